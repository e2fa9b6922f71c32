"""One plan tried out: driven live and judged call by call, then crashed, then damaged.

    trial = Trial(bench, "a plan", seed=7)
    for operation in plan:
        trial.perform(operation)
    trial.finish()

Decides how much of a plan is crashed: first inside the calls that were named, then inside others,
until some hundreds of distinct disks are loaded, so that drawing a plan costs less than trying it.
Does not decide what is done (`machine`), what a crash leaves (`crash`), or what is right (`judge`).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import process_time
from typing import Final

from torntail.crash.disk import EMPTY_IMAGE
from torntail.crash.oplog import Acknowledged, Invoked
from torntail.drive.inline_store import InlineStore
from torntail.drive.onlooker import HarnessError
from torntail.explore.case_run import cause_of
from torntail.explore.crash_calls import Recording
from torntail.explore.crash_search import Violation
from torntail.explore.crash_shard import violation_finding
from torntail.explore.fuzz_bench import Bench
from torntail.explore.fuzz_crashes import CallCrashes, shapes
from torntail.explore.fuzz_disk import try_errors
from torntail.explore.fuzz_finding import FuzzFinding, FuzzKind, crash_finding_of
from torntail.explore.script import Case
from torntail.judge.history import (
    Append,
    Create,
    Inspect,
    ListSessions,
    Load,
    Observation,
    Operation,
    Outcome,
    Reopen,
    Returned,
)
from torntail.judge.oracle import Judgement, LiveJudge
from torntail.record.inprocess import Recorder, RecordingFailed

__all__ = ["Reach", "Trial"]

_IMAGES_A_CALL: Final = 80
_NESTED_IMAGES: Final = 60
_ERRORS: Final = 20
"""How many errors of the disk are tried for each time one was drawn."""


@dataclass(slots=True)
class Reach:
    """How far a trial came: calls done before the latest crash, repairs that were crashed in turn,
    distinct disks; `features` are the situations, clauses and shapes of the op log it met.
    """

    crash_depth: int = 0
    repair_depth: int = 0
    images: int = 0
    features: set[str] = field(default_factory=set)


class Trial:
    """A plan that is driven as it grows; `models` and `depth` may be narrowed before `finish`."""

    def __init__(self, bench: Bench, name: str, seed: int) -> None:
        self.bench = bench
        self.name = name
        self.seed = seed
        self.plan: list[Operation] = []
        self.history: list[Observation] = []
        self.models = bench.models
        self.depth = 2
        self.points: list[int] = []
        self.damage: list[tuple[int, tuple[Operation, ...]]] = []
        self.errors = 0
        self.judge = LiveJudge(bench.target.capabilities)
        self.reach = Reach()
        self._root = Path(bench.live_slot.path)
        self._stores: dict[int, InlineStore] = {}
        self._recorder: Recorder | None = None
        self._ended = False
        bench.trail.begin()
        bench.live_slot.hold(EMPTY_IMAGE)
        if bench.models and bench.unseen is None:
            self._recorder = Recorder(self._root).start()

    # --- live -----------------------------------------------------------------------------------

    def perform(self, operation: Operation) -> Outcome:
        """Makes a call, judges it, and remembers it as part of the plan."""
        bench, index = self.bench, len(self.plan)
        begun = process_time()
        bench.trail.about_to(operation)
        bench.began()
        self.plan.append(operation)
        self._mark(Invoked(index))
        outcome = self._call(operation)
        self._mark(Acknowledged(index))
        observation = Observation(operation, outcome)
        self.history.append(observation)
        for judgement in self.judge.observe(observation):
            self._heard(judgement, self.history, "call")
        bench.calls += 1
        bench.tick()
        bench.seconds += process_time() - begun
        return outcome

    def _mark(self, mark: Invoked | Acknowledged) -> None:
        if self._recorder is not None:
            self._recorder.mark(mark)

    def _call(self, operation: Operation) -> Outcome:
        number = operation.store
        if isinstance(operation, Reopen) and number in self._stores:
            self._stores.pop(number).close()
        store = self._stores.get(number)
        if store is None:
            store = InlineStore(self.bench.target.factory, self._root)
            self._stores[number] = store
        if not isinstance(store.opened, Returned):
            return store.opened
        match operation:
            case Create(header=header):
                if self.bench.target.capabilities.creates == "implicit":
                    return Returned()
                return store.create(header)
            case Append(session=session, events=events):
                return store.append(session, events)
            case Load(session=session):
                return store.load(session)
            case Inspect(session=session):
                return store.inspect(session)
            case ListSessions():
                return store.list()
        return Returned()

    def _heard(self, judgement: Judgement, history: Sequence[Observation], kind: FuzzKind) -> None:
        if judgement.passed:
            self.bench.met(judgement.situations, judgement.clause)
            self.reach.features.update(judgement.situations)
            return
        seen = tuple(history[: judgement.index + 1])
        self.bench.found(
            FuzzFinding(
                kind=kind,
                clause=judgement.clause,
                sentence=judgement.sentence,
                cause=cause_of(judgement),
                operations=tuple(one.operation for one in seen),
                history=seen,
            )
        )

    # --- the end --------------------------------------------------------------------------------

    def abandon(self) -> None:
        """Closes what is open; nothing is crashed."""
        if self._ended:
            return
        self._ended = True
        try:
            self.bench.began()
            for store in self._stores.values():
                store.close()
            self._stores.clear()
        finally:
            if self._recorder is not None:
                self._recorder.stop()

    def finish(self) -> Reach:
        """Closes the store, crashes the plan, damages what is left of it."""
        begun = process_time()
        recording = self.recorded()
        self.bench.counts.plans += 1
        if recording is not None:
            self._crash(recording)
        for calls, episode in self.damage:
            self._damage(calls, episode)
        if recording is not None and self.errors:
            try_errors(self.bench, self.plan, self.seed, _ERRORS * self.errors)
        self.bench.seconds += process_time() - begun
        return self.reach

    def recorded(self) -> Recording | None:
        """Closes the store; what was recorded, or None where it cannot be."""
        recorder = self._recorder
        self.abandon()
        self.bench.tick()
        if recorder is None:
            return None
        try:
            recorder.check()
        except RecordingFailed as error:
            self.bench.unseen = str(error)
            return None
        return Recording(tuple(recorder.operations), tuple(self.history))

    # --- crashes --------------------------------------------------------------------------------

    def crashes(self, recording: Recording, found: Callable[[Violation], None]) -> CallCrashes:
        """What can be crashed of the plan that was driven."""
        return CallCrashes(
            self.bench,
            Case(self.name, (), tuple(self.plan)),
            recording,
            self.models,
            self.depth,
            found,
        )

    def _crash(self, recording: Recording) -> None:
        bench, reach = self.bench, self.reach
        bench.trail.crashing()
        reach.features.update(shapes(recording))
        if not self.models or not self.plan:
            return
        known = set(bench.counts.situations)
        begun = bench.counts.distinct
        late = 0.0

        def violated(violation: Violation) -> None:
            crash = violation_finding(violation, bench.counts.distinct)
            bench.found(crash_finding_of(crash, late=late))

        crashes = self.crashes(recording, violated)
        chance = random.Random(self.seed)
        for call in self._order(chance):
            late = chance.random() if chance.random() < 0.5 else 0.0
            reach.repair_depth = max(reach.repair_depth, crashes.inside(call, late))
            reach.crash_depth = max(reach.crash_depth, call + 1)
            if bench.counts.distinct - begun >= bench.images:
                break
        reach.images = bench.counts.distinct - begun
        reach.features.update(bench.counts.situations.keys() - known)

    def _order(self, chance: random.Random) -> list[int]:
        """In which calls the plan is crashed: those that were named, then the others."""
        writing = [
            index
            for index, operation in enumerate(self.plan)
            if isinstance(operation, Append | Create | Load | Reopen)
        ]
        chance.shuffle(writing)
        return list(dict.fromkeys([*self.points, *writing]))

    # --- damage ---------------------------------------------------------------------------------

    def strike(self, episode: tuple[Operation, ...]) -> None:
        """After the calls so far, damage is done; tried apart, at the end."""
        self.damage.append((len(self.plan), episode))

    def _damage(self, calls: int, episode: tuple[Operation, ...]) -> None:
        """Drives the plan anew, damages its storage, and judges what is made of that."""
        case = Case(self.name, (), (*self.plan[:calls], *episode))
        try:
            history, judging = self.bench.cases.run(case)
        except HarnessError as error:
            self.bench.harness_errors.append(str(error))
            return
        for judgement in judging.judgements:
            if judgement.index >= calls:
                self._heard(judgement, history, "damage")
