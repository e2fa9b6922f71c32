"""A scenario made of what a campaign found: of the witness that it keeps of each finding.

A witness of a crash (`crash.json`) is carried out once more, crash by crash, to learn in which call
of which process each of them falls and what the store did up to it. A witness of a history
(`history.json`) is its operations. Decides ids, folders and words; a finding that does not show
again is saved as it was told. Does not decide where scenarios are kept (`files`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from torntail.crash.crashes import Crash
from torntail.crash.disk import DiskImage
from torntail.drive.target import BUILT_IN, Target
from torntail.explore.crash_calls import CrashCalls, Recording, further_events
from torntail.explore.crash_shard import CrashFinding
from torntail.judge.clauses import clause
from torntail.judge.history import Append, History, Load, Operation, Returned
from torntail.judge.recovery import Answer
from torntail.scenarios.crash_replay import CrashReplay, CrashSight, Stage, Strike
from torntail.scenarios.format import (
    CrashFault,
    DeviceStrike,
    Expectation,
    Fault,
    RecordedFinding,
    Scenario,
    ScenarioClass,
)
from torntail.scenarios.outcome import cause_of, operations_digest

__all__ = ["NoWitness", "crash_faults", "pinned", "scenario_of_finding", "scenario_of_witness"]

_CLASSES: Final[Mapping[str, ScenarioClass]] = {
    "CR": "durability",
    "CL": "repair",
    "DM": "damage",
    "IO": "io-error",
}
_SAVED: Final = "Saved by torntail from a finding on {store}."


class NoWitness(ValueError):
    """A directory that holds no witness a scenario could be made of; the text says why."""


@dataclass(frozen=True, slots=True)
class _Witness:
    """What a finding is about, whichever way it was found."""

    clause: str
    sentence: str
    session: str
    plan: tuple[Operation, ...]


def scenario_of_witness(directory: Path, target: Target, calls: CrashCalls) -> Scenario:
    """The scenario that a witness directory stands for; raises `NoWitness`."""
    crash, history = directory / "crash.json", directory / "history.json"
    if crash.is_file():
        finding = read_crash_finding(crash)
        return scenario_of_finding(finding, target, calls)
    if history.is_file():
        return _of_history(history, target)
    raise NoWitness(f"{directory} holds neither crash.json nor history.json")


def read_crash_finding(path: Path) -> CrashFinding:
    """The finding in a `crash.json`, without its disk; raises `NoWitness`."""
    try:
        record = json.loads(path.read_bytes())
        record = {"files": {}, "directories": [], **record}
        return msgspec.convert(record, CrashFinding)
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise NoWitness(f"{path} cannot be read: {error}") from error


def read_history(path: Path) -> History:
    """The history in a `history.json`; raises `NoWitness`."""
    try:
        return msgspec.convert(json.loads(path.read_bytes()), History)
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise NoWitness(f"{path} cannot be read: {error}") from error


# --- crashes and device faults ----------------------------------------------------------------


def scenario_of_finding(finding: CrashFinding, target: Target, calls: CrashCalls) -> Scenario:
    """The scenario of a crash or a device fault that a campaign found; raises `NoWitness`."""
    kind = _CLASSES["CR"]
    faults: tuple[Fault, ...]
    if finding.fault is not None:
        kind = "device"
        recording = _recorded(finding.calls, calls)
        before = recording.operations[: finding.fault.position]
        faults = (DeviceStrike(strike=finding.fault, operations=operations_digest(before)),)
    elif not finding.chain or not finding.calls:
        raise NoWitness("the store's process was lost before it could be told where")
    else:
        faults = crash_faults(finding.calls, finding.chain, calls)
        if len(faults) > 1:
            kind = "repair"
    witness = _Witness(finding.clause, finding.sentence, finding.session, finding.calls)
    level = "process" if all(crash.model == "kill" for crash in finding.chain) else "power"
    scenario = _scenario(witness, target, kind, faults)
    return msgspec.structs.replace(scenario, level=level)


def _recorded(plan: Sequence[Operation], calls: CrashCalls) -> Recording:
    calls.hold(DiskImage({}, frozenset()))
    return calls.record(plan, None)


def crash_faults(
    plan: Sequence[Operation], chain: Sequence[Crash], calls: CrashCalls
) -> tuple[CrashFault, ...]:
    """The faults that a chain of crashes stands for, the first of which fell into `plan`.

    Between two crashes the calls were those of a campaign. Raises `NoWitness` where the store does
    not do the same again.
    """
    retracing = _Retracing(plan, chain, calls)
    retracing.run()
    if len(retracing.faults_found) != len(chain):
        raise NoWitness("the store did not do the same again")
    return tuple(retracing.faults_found)


class _Retracing(CrashReplay):
    """Follows a chain of crashes, noting where each falls."""

    def __init__(
        self, plan: Sequence[Operation], chain: Sequence[Crash], calls: CrashCalls
    ) -> None:
        guesses = [CrashFault(during=len(plan) - 1, model=crash.model) for crash in chain]
        super().__init__(tuple(plan), guesses, calls, lambda sight: None)
        self._chain = tuple(chain)
        self._called: tuple[Operation, ...] = ()
        self.faults_found: list[CrashFault] = []

    def recovery(self, index: int, answers: Mapping[str, Answer]) -> tuple[Operation, ...]:
        calls: list[Operation] = [Load(session=session) for session in answers]
        for session, answer in answers.items():
            if isinstance(answer, Returned) and answer.session is not None and index == 1:
                events = further_events(answer.session.events)
                calls.append(Append(session=session, events=events))
        self._called = tuple(calls)
        self.faults[index] = msgspec.structs.replace(self.faults[index], during=len(calls) - 1)
        return self._called

    def strikes(self, fault: CrashFault, stage: Stage, recording: Recording) -> Iterator[Strike]:
        crash = self._chain[len(self.faults_found)]
        for place in self.places(fault.model, stage, recording, begun=True):
            if (place.moment.position, place.moment.torn) != (crash.position, crash.torn):
                continue
            found = CrashFault(
                during=place.call,
                model=crash.model,
                operations=operations_digest(recording.operations[: crash.position]),
                crash=crash,
                recovery=self._called[: place.call + 1],
            )
            self.faults_found.append(found)
            yield Strike(crash, crash.image(place.moment.disk), place)
            return


def pinned(faults: Sequence[CrashFault], sight: CrashSight) -> tuple[CrashFault, ...]:
    """The faults, each with the very crash of a disk that was seen and the recovery before it."""
    return tuple(
        msgspec.structs.replace(
            fault,
            crash=crash,
            operations=operations_digest(recording.operations[: crash.position]),
            recovery=tuple(one.operation for one in recording.history) if index else (),
        )
        for index, (fault, crash, recording) in enumerate(
            zip(faults, sight.chain, sight.recordings, strict=True)
        )
    )


# --- histories --------------------------------------------------------------------------------


def _of_history(path: Path, target: Target) -> Scenario:
    history = read_history(path)
    plan = tuple(observation.operation for observation in history)
    if not plan:
        raise NoWitness(f"{path} holds no operations")
    # The folder of a witness is called by its number and its clause.
    _, _, clause_id = path.parent.name.partition("-")
    steps = path.with_name("steps.txt")
    told = steps.read_text(encoding="utf-8").strip().splitlines() if steps.is_file() else [""]
    witness = _Witness(clause_id, told[-1], "", plan)
    kind = _CLASSES.get(clause_id[:2], "reading-and-writing")
    return _scenario(witness, target, kind, ())


def _scenario(
    witness: _Witness, target: Target, kind: ScenarioClass, faults: tuple[Fault, ...]
) -> Scenario:
    summary = clause(witness.clause).summary
    own = target.name not in BUILT_IN
    default = target.name == "memory" or target.capabilities.durability == "power"
    return Scenario(
        torntail=1,
        id=scenario_id(target.name, witness.clause),
        kind=kind,
        title=f"{witness.clause}: {summary}",
        origin=_SAVED.format(store=target.name),
        store=target.name,
        durability=None if own or default else target.capabilities.durability,
        capabilities=target.capabilities if own else None,
        plan=witness.plan,
        faults=faults,
        expect=(Expectation(clause=witness.clause, outcome=summary),),
        finding=RecordedFinding(
            clause=witness.clause,
            sentence=witness.sentence,
            cause=cause_of(witness.clause, witness.sentence),
            session=witness.session,
            store=target.name,
        ),
    )


def scenario_id(store: str, clause_id: str, *more: Any) -> str:
    """An id made of words: the store's name, the clause, and what else tells it from others."""
    words = [store.rpartition(":")[2] or store, clause_id, *map(str, more)]
    return re.sub(r"[^a-z0-9]+", "-", "-".join(words).lower()).strip("-")[:120] or "scenario"
