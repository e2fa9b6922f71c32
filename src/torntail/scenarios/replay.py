"""Carrying out one scenario on one store, and saying whether its expectation holds.

Decides which store is meant, whether the scenario applies to it, which of the ways of carrying out
it takes, and the status: failed where a clause that the store is held to is violated, unknown where
a fault did not land or nothing was put to the test. Runs in this process; what a store may do to it
is for `batch`. Does not decide what a violation is (`judge`).
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

import msgspec

from torntail.crash.io_faults import IoFault
from torntail.drive import exits
from torntail.drive.onlooker import Onlooker
from torntail.drive.target import Durability, Target, target_of
from torntail.explore.case_run import check_opens
from torntail.explore.crash_calls import CrashCalls
from torntail.explore.room import case_scratch, lacks_room, no_room_in, scratch_base
from torntail.explore.traced_calls import calls_on
from torntail.judge.capabilities import Capabilities, claims
from torntail.judge.clauses import clause
from torntail.judge.history import Damage, Reopen
from torntail.record.inprocess import RecordingFailed
from torntail.record.install import install
from torntail.record.scratch import Scratch
from torntail.record.slots import Slot
from torntail.scenarios.crash_replay import CrashLimits, CrashReplay, CrashSight, NotLanded
from torntail.scenarios.device_replay import replay_device
from torntail.scenarios.format import CrashFault, DeviceStrike, FileFault, Scenario
from torntail.scenarios.outcome import Replay, ReplayFinding, cause_of
from torntail.scenarios.plan_replay import run_plan
from torntail.scenarios.story import crash_story, plan_story

__all__ = ["Replayer", "StoreChoice", "replay"]

CALL_TIMEOUT_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class StoreChoice:
    """Which store scenarios are run on: each on its own unless another `target` is named.

    `durability` replaces the claim. A scenario whose faults ask more of a store than it claims is
    skipped, unless that level is asked for by `level`.
    """

    target: str | Target | None = None
    durability: Durability | None = None
    level: Durability | None = None

    def of(self, scenario: Scenario) -> Target:
        """The target a scenario is run on; raises `TargetError`."""
        if isinstance(self.target, Target):
            return self.target
        if self.target is not None and self.target != scenario.store:
            return target_of(self.target, durability=self.durability)
        durability = self.durability or scenario.durability
        return target_of(scenario.store, capabilities=scenario.capabilities, durability=durability)

    def may_ask(self, scenario: Scenario, capabilities: Capabilities) -> Durability:
        """The most that may be asked of a store with these claims."""
        if self.level is not None:
            return self.level
        # On its own store a scenario is run as it was saved, which may be above the claim.
        return scenario.level if self.is_own(scenario) else capabilities.durability

    def is_own(self, scenario: Scenario) -> bool:
        """Whether a scenario is run on the store that it names."""
        named = self.target.name if isinstance(self.target, Target) else self.target
        return named in (None, scenario.store)


def replay(
    scenario: Scenario,
    target: str | Target | None = None,
    *,
    durability: Durability | None = None,
    level: Durability | None = None,
    limits: CrashLimits | None = None,
    call_timeout: float = CALL_TIMEOUT_SECONDS,
    explain: bool = False,
) -> Replay:
    """Carries out one scenario, by default on the store it names.

    Args:
        scenario: what to do, and what is to hold.
        target: another store, as on the command line.
        durability: replaces the store's claim.
        level: run it although its faults ask so much more than the store claims.
        limits: how many disks are loaded.
        call_timeout: seconds after which a call that has not come back is taken to hang; a store
            that hangs on a crashed disk hangs the caller.
        explain: also tell what happened step by step.

    Raises:
        TargetError: the target does not lead to a store.
    """
    choice = StoreChoice(target, durability, level)
    with Replayer(choice, limits=limits, call_timeout=call_timeout, explain=explain) as replayer:
        return replayer.replay(scenario)


class Replayer:
    """Carries out scenarios one after the other; a context manager. `tick` is called now and then.

    The wrappers of the recorder are put in place at once, before a store is imported. `scratch` is
    the directory in which stores of plans stand.
    """

    def __init__(
        self,
        choice: StoreChoice,
        *,
        limits: CrashLimits | None = None,
        call_timeout: float = CALL_TIMEOUT_SECONDS,
        explain: bool = False,
        tick: Callable[[], object] = lambda: None,
    ) -> None:
        self._choice = choice
        self._limits = limits or CrashLimits()
        self._call_timeout = call_timeout
        self._explain = explain
        self._tick = tick
        self._stack = ExitStack()
        self._slot: Slot | None = None
        self._opened: set[str] = set()

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            install()
        self._stack.enter_context(exits.refused())
        self.scratch: Path = self._stack.enter_context(case_scratch())
        self._onlooker = self._stack.enter_context(Onlooker(self.scratch))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def replay(self, scenario: Scenario) -> Replay:
        """What one scenario comes to; raises `TargetError`, and `NoRoomLeft` for a full disk."""
        result = self._replay(scenario)
        if any(isinstance(fault, IoFault) for fault in scenario.faults):
            return result  # Its disk says that it is full.
        told = [one.sentence for one in result.findings]
        if result.status == "unknown":
            told.append(result.reason)
        if any(lacks_room(self.scratch, text) for text in told):
            raise no_room_in(self.scratch)
        return result

    def _replay(self, scenario: Scenario) -> Replay:
        target = self._choice.of(scenario)
        reason = _does_not_apply(scenario, target.capabilities, self._choice)
        if reason:
            return Replay(scenario=scenario.id, store=target.name, status="skipped", reason=reason)
        self._check_opens(target)
        kinds = {type(fault) for fault in scenario.faults}
        try:
            if CrashFault in kinds:
                return self._crash(scenario, target)
            if DeviceStrike in kinds:
                return replay_device(scenario, target, self.calls_on(target), self._explain)
            if IoFault in kinds:
                # Here, since few scenarios need the machinery of injected errors.
                from torntail.scenarios.io_replay import replay_io

                self.calls_on(target)
                assert self._slot is not None
                return replay_io(
                    scenario, target, self._slot, tick=self._tick, explain=self._explain
                )
        except RecordingFailed as error:
            reason = f"file operations of this store are not seen from inside Python: {error}"
            return _unknown(scenario, target, reason)
        return self._plan(scenario, target)

    def _check_opens(self, target: Target) -> None:
        """Once for each target; raises `TargetError`."""
        if target.name not in self._opened:
            with tempfile.TemporaryDirectory(dir=self.scratch) as directory:
                check_opens(target, Path(directory), self._onlooker, self._call_timeout)
            self._opened.add(target.name)

    def target_of(self, scenario: Scenario) -> Target:
        """The store a scenario is run on; raises `TargetError`."""
        return self._choice.of(scenario)

    def first_sight(self, scenario: Scenario, clause_id: str, cause: str) -> CrashSight | None:
        """The first disk that shows a violation of this clause with this cause, if one does."""

        def seen(sight: CrashSight) -> None:
            for breach in sight.breaches:
                if breach.clause == clause_id and cause_of(clause_id, breach.sentence) == cause:
                    raise _Seen(sight)

        faults = [fault for fault in scenario.faults if isinstance(fault, CrashFault)]
        calls = self.calls_on(self.target_of(scenario))
        try:
            CrashReplay(scenario.plan, faults, calls, seen, self._limits).run()
        except _Seen as found:
            return found.sight
        except (NotLanded, RecordingFailed):
            pass
        return None

    def calls_on(self, target: Target) -> CrashCalls:
        """The calls of a crash campaign on a store, in a directory of this replayer."""
        if self._slot is None:
            scratch = self._stack.enter_context(Scratch(scratch_base()))
            self._slot = self._stack.enter_context(Slot(scratch))
        return calls_on(target, self._slot, self._tick)

    # --- the ways of carrying out ---------------------------------------------------------------

    def _plan(self, scenario: Scenario, target: Target) -> Replay:
        run = run_plan(
            scenario,
            target,
            self.scratch,
            self._onlooker,
            timeout=self._call_timeout,
            tick=self._tick,
        )
        result = Replay(
            scenario=scenario.id,
            store=target.name,
            status="fixed",
            findings=_in_order(run.findings, scenario),
            digest=run.digest,
            landed=(True,) * len(scenario.faults),
        )
        if self._explain:
            story = plan_story(scenario, run.history, result.findings)
            result = msgspec.structs.replace(result, story=story)
        if run.findings:
            return msgspec.structs.replace(result, status="failed")
        if run.skipped:
            return msgspec.structs.replace(result, status="skipped", reason=run.skipped)
        reason = run.unknown or _untested(scenario, run.tested, target.capabilities)
        if reason:
            return msgspec.structs.replace(result, status="unknown", reason=reason)
        return result

    def _crash(self, scenario: Scenario, target: Target) -> Replay:
        findings: dict[str, ReplayFinding] = {}
        told: list[CrashSight] = []

        def seen(sight: CrashSight) -> None:
            new = False
            for breach in sight.breaches:
                cause = cause_of(breach.clause, breach.sentence)
                if cause not in findings:
                    new = True
                    findings[cause] = ReplayFinding(
                        clause=breach.clause,
                        sentence=breach.sentence,
                        cause=cause,
                        session=breach.session,
                        model=sight.chain[-1].model,
                    )
            if (new and not any(one.breaches for one in told)) or not told:
                told[:] = [sight]

        faults = [fault for fault in scenario.faults if isinstance(fault, CrashFault)]
        run = CrashReplay(scenario.plan, faults, self.calls_on(target), seen, self._limits)
        reason = ""
        try:
            run.run()
        except NotLanded as error:
            reason = f"fault {error.index + 1} did not land: {error}"
        result = Replay(
            scenario=scenario.id,
            store=target.name,
            status="failed" if findings else "unknown" if reason else "fixed",
            reason="" if findings else reason,
            findings=_in_order(findings.values(), scenario),
            images=run.images,
            digest=run.digest,
            landed=tuple(run.landed),
        )
        if self._explain and told:
            story = crash_story(scenario, told[0], result.findings)
            result = msgspec.structs.replace(result, story=story)
        return result


class _Seen(Exception):
    """What was looked for."""

    def __init__(self, sight: CrashSight) -> None:
        super().__init__()
        self.sight = sight


def _unknown(scenario: Scenario, target: Target, reason: str) -> Replay:
    return Replay(scenario=scenario.id, store=target.name, status="unknown", reason=reason)


def _in_order(findings: Iterable[ReplayFinding], scenario: Scenario) -> tuple[ReplayFinding, ...]:
    """The findings, those of an expected clause first."""
    expected = [one.clause for one in scenario.expect]
    return tuple(sorted(findings, key=lambda finding: finding.clause not in expected))


def _untested(scenario: Scenario, tested: frozenset[str], capabilities: Capabilities) -> str:
    """Which expected clause nothing put to the test, in words."""
    missing = [
        one.clause
        for one in scenario.expect
        if one.clause not in tested and _is_held_to(one.clause, capabilities)
    ]
    if not missing:
        return ""
    return f'no call of the plan tests {missing[0]}: give one "probes": ["{missing[0]}"]'


def _is_held_to(clause_id: str, capabilities: Capabilities) -> bool:
    return all(claims(capabilities, need) for need in clause(clause_id).requires)


_LEVELS: Final = ("none", "process", "power")


def _does_not_apply(scenario: Scenario, capabilities: Capabilities, choice: StoreChoice) -> str:
    """Why a scenario says nothing about a store with these claims; empty where it does."""
    # What a store was seen to violate it is held to, whatever it claims, as in a certificate.
    seen = scenario.finding is not None and choice.is_own(scenario)
    if not seen and not any(_is_held_to(one.clause, capabilities) for one in scenario.expect):
        lacking = [need for one in scenario.expect for need in clause(one.clause).requires]
        return f"the store does not claim {', '.join(dict.fromkeys(lacking))}"
    asked = "none"
    for fault in scenario.faults:
        needed = "process"
        if isinstance(fault, CrashFault) and fault.model != "kill":
            needed = "power"
        asked = max(asked, needed, key=_LEVELS.index)
    if any(isinstance(one, Damage | Reopen) for one in scenario.plan):
        asked = max(asked, "process", key=_LEVELS.index)
    if _LEVELS.index(asked) > _LEVELS.index(choice.may_ask(scenario, capabilities)):
        if choice.level is not None:
            return f"asks for durability {asked}, and --level {choice.level} was given"
        more = f"; --level {asked} replays it all the same" if asked == "power" else ""
        return f"asks for durability {asked}, and the store claims {capabilities.durability}{more}"
    for operation in scenario.plan:
        if isinstance(operation, Damage):
            wrong_seq = operation.kind in ("delete", "duplicate", "renumber")
            what = "gap" if wrong_seq else "torn"
            if what not in capabilities.detects and operation.kind != "restore":
                return f"the store does not claim to notice such damage (detects {what})"
            if operation.kind.startswith("header") and not capabilities.header:
                return "the store does not claim header"
    if choice.target is not None and any(isinstance(one, FileFault) for one in scenario.faults):
        target = choice.of(scenario)
        if target.name != "jsonl" and getattr(target.factory, "layout", None) != "jsonl":
            return (
                "is about a file in the layout of the JSONL store; a store that has it says so by "
                "its factory's attribute layout = 'jsonl'"
            )
    return ""
