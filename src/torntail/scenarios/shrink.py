"""Making a scenario small: what is left out of it does not change what it shows.

Drops faults, operations and events, takes a milder crash and an earlier one, shortens texts, as
long as a violation of the same clause with the same cause shows. A crash is found anew in each
shorter plan, and the earliest that shows it is put down. Bounded in runs. Does not decide what a
violation is, or where scenarios are kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec

from torntail.crash.disk import MODELS
from torntail.explore.sound_calls import sound_calls
from torntail.judge.capabilities import Capabilities
from torntail.judge.history import MARK_KEY, Append, Create, Operation
from torntail.scenarios.format import CrashFault, Fault, RecordedFinding, Scenario
from torntail.scenarios.from_finding import pinned
from torntail.scenarios.reading import ScenarioError, parse_scenario
from torntail.scenarios.replay import Replayer
from torntail.scenarios.text import scenario_text
from torntail.session import SessionEvent

__all__ = ["NotShown", "Shrunk", "shrink"]

SHRINKING_RUNS: Final = 300
"""How many smaller scenarios are tried."""

_KEPT_KEYS: Final = (MARK_KEY, "callId", "id", "type", "kind", "name", "arguments")
_SHORT: Final = 8


class NotShown(Exception):
    """The finding does not show; the text says what showed instead."""


class Shrunk(msgspec.Struct, frozen=True):
    """The smallest scenario found, and how many were tried."""

    scenario: Scenario
    runs: int


def shrink(scenario: Scenario, replayer: Replayer, *, runs: int = SHRINKING_RUNS) -> Shrunk:
    """The smallest scenario that shows the finding of this one; raises `NotShown`.

    Without a recorded finding it is the first that shows.
    """
    return _Shrinking(scenario, replayer, runs).smallest()


class _Shrinking:
    def __init__(self, scenario: Scenario, replayer: Replayer, runs: int) -> None:
        self.replayer = replayer
        self.best = scenario
        self.left = runs
        self.runs = 0
        self.capabilities: Capabilities = replayer.target_of(scenario).capabilities

    def smallest(self) -> Shrunk:
        self._find()
        before: Scenario | None = None
        while before != self.best and self.runs < self.left:
            before = self.best
            for candidates in (
                self._fewer_faults,
                self._milder,
                self._fewer_calls,
                self._fewer_events,
                self._shorter,
            ):
                self._take(candidates)
        return Shrunk(self.best, self.runs)

    def _find(self) -> None:
        """What is to go on showing; the crash that shows it is put down."""
        replay = self.replayer.replay(self.best)
        recorded = self.best.finding
        found = next(
            (
                one
                for one in replay.findings
                if recorded is None or (one.clause, one.cause) == (recorded.clause, recorded.cause)
            ),
            None,
        )
        if found is None:
            shown = ", ".join(dict.fromkeys(one.clause for one in replay.findings))
            reason = replay.reason or (f"it shows {shown}" if shown else "its expectation holds")
            raise NotShown(f"the finding does not show on {replay.store}: {reason}")
        finding = RecordedFinding(
            clause=found.clause,
            sentence=found.sentence,
            cause=found.cause,
            session=found.session,
            store=replay.store,
        )
        self.best = msgspec.structs.replace(self.best, finding=finding)
        shown_again = self._showing(self.best)
        if shown_again is None:
            raise NotShown(f"the finding does not show a second time on {replay.store}")
        self.best = shown_again

    # --- trying ---------------------------------------------------------------------------------

    def _take(self, candidates: Any) -> None:
        """Takes candidates made from the best so far, until none of them is any better."""
        taken = True
        while taken:
            taken = False
            for candidate in candidates():
                if self.runs >= self.left:
                    return
                if _size(candidate) >= _size(self.best):
                    continue
                self.runs += 1
                smaller = self._showing(candidate)
                if smaller is not None:
                    self.best = smaller
                    taken = True
                    break

    def _showing(self, candidate: Scenario) -> Scenario | None:
        """The candidate with the very crash that shows the finding, if one does."""
        finding = self.best.finding
        assert finding is not None
        try:
            parse_scenario(scenario_text(candidate).encode("utf-8"), candidate.id)
        except ScenarioError:
            return None
        faults = [fault for fault in candidate.faults if isinstance(fault, CrashFault)]
        if faults:
            sight = self.replayer.first_sight(candidate, finding.clause, finding.cause)
            if sight is None:
                return None
            sentence, sessions = next(
                (one.sentence, one.session)
                for one in sight.breaches
                if one.clause == finding.clause
            )
            told = msgspec.structs.replace(finding, sentence=sentence, session=sessions)
            return msgspec.structs.replace(candidate, faults=pinned(faults, sight), finding=told)
        for one in self.replayer.replay(candidate).findings:
            if (one.clause, one.cause) == (finding.clause, finding.cause):
                told = msgspec.structs.replace(finding, sentence=one.sentence, session=one.session)
                return msgspec.structs.replace(candidate, finding=told)
        return None

    # --- candidates -----------------------------------------------------------------------------

    def _with(
        self,
        plan: Sequence[Operation] | None = None,
        faults: Iterable[Fault] | None = None,
    ) -> Scenario:
        """The best so far with another plan, or other faults, crashed anew."""
        scenario = self.best
        plan = tuple(scenario.plan if plan is None else plan)
        created = {call.header.id for call in plan if isinstance(call, Create)}
        changed: list[Fault] = []
        for index, fault in enumerate(scenario.faults if faults is None else faults):
            if isinstance(fault, CrashFault):
                calls = tuple(
                    call for call in fault.recovery if getattr(call, "session", None) in created
                )
                fault = msgspec.structs.replace(
                    fault,
                    during=min(fault.during, len(calls) - 1) if index else len(plan) - 1,
                    recovery=calls if index else (),
                    crash=None,
                    operations="",
                )
            changed.append(fault)
        return msgspec.structs.replace(scenario, plan=plan, faults=tuple(changed))

    def _fewer_faults(self) -> Iterator[Scenario]:
        faults = self.best.faults
        if len(faults) > 1:
            for index in range(len(faults)):
                yield self._with(faults=(*faults[:index], *faults[index + 1 :]))

    def _milder(self) -> Iterator[Scenario]:
        for index, fault in enumerate(self.best.faults):
            if not isinstance(fault, CrashFault):
                continue
            for model in MODELS[: MODELS.index(fault.model)]:
                milder = msgspec.structs.replace(fault, model=model)
                faults = self.best.faults
                yield self._with(faults=(*faults[:index], milder, *faults[index + 1 :]))

    def _fewer_calls(self) -> Iterator[Scenario]:
        """Halves first, then ever smaller runs of calls, from the end: the last matter most."""
        crashed = isinstance(next(iter(self.best.faults), None), CrashFault)
        if crashed and isinstance(self.best.faults[0], CrashFault):
            yield self._with(plan=self.best.plan[: self.best.faults[0].during + 1])
        plan = self.best.plan
        size = max(len(plan) // 2, 1)
        while size:
            for end in range(len(plan), 0, -size):
                shorter: Sequence[Operation] = (*plan[: max(end - size, 0)], *plan[end:])
                if crashed:
                    shorter = sound_calls(shorter, self.capabilities)
                if shorter:
                    yield self._with(plan=shorter)
            size //= 2

    def _fewer_events(self) -> Iterator[Scenario]:
        crashed = isinstance(next(iter(self.best.faults), None), CrashFault)
        plan = self.best.plan
        for index in reversed(range(len(plan))):
            call = plan[index]
            if not isinstance(call, Append) or len(call.events) < 2:
                continue
            size = len(call.events) // 2
            while size:
                for end in range(len(call.events), 0, -size):
                    events = (*call.events[: max(end - size, 0)], *call.events[end:])
                    if not events:
                        continue
                    changed = msgspec.structs.replace(call, events=events)
                    shorter: Sequence[Operation] = (*plan[:index], changed, *plan[index + 1 :])
                    if crashed:
                        shorter = sound_calls(shorter, self.capabilities)
                    yield self._with(plan=shorter)
                size //= 2

    def _shorter(self) -> Iterator[Scenario]:
        plan = self.best.plan
        everywhere = [_shortened(call) for call in plan]
        yield self._with(plan=everywhere)
        for index, call in enumerate(everywhere):
            if call != plan[index]:
                yield self._with(plan=(*plan[:index], call, *plan[index + 1 :]))


def _shortened(call: Operation) -> Operation:
    """An append whose events have no long texts in their data."""
    if not isinstance(call, Append):
        return call
    events = tuple(
        SessionEvent(
            event.type,
            event.seq,
            event.time,
            _short(event.data),
            event.surface_op,
            event.source_event_seqs,
            event.extra,
        )
        for event in call.events
    )
    return msgspec.structs.replace(call, events=events)


def _short(value: Any) -> Any:
    if isinstance(value, str):
        return value[:_SHORT]
    if isinstance(value, list):
        return [_short(member) for member in value]
    if isinstance(value, dict):
        return {
            key: member if key in _KEPT_KEYS and isinstance(member, str) else _short(member)
            for key, member in value.items()
            if key != "note"
        }
    return value


def _size(scenario: Scenario) -> tuple[int, ...]:
    """What makes a scenario long: faults, calls, events, the models' strength, characters."""
    crashes = [fault for fault in scenario.faults if isinstance(fault, CrashFault)]
    recoveries = [call for fault in crashes for call in fault.recovery]
    calls = [*scenario.plan, *recoveries]
    events = [event for call in calls if isinstance(call, Append) for event in call.events]
    return (
        len(scenario.faults),
        len(calls),
        len(events),
        sum(MODELS.index(fault.model) for fault in crashes),
        sum(len(repr(event.data)) for event in events),
    )
