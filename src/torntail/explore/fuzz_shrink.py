"""Making a fuzzing finding small: calls, events and values, as long as its fault still shows.

A crash is sought again inside the last call of what is left alone: it was found there, and the
whole expansion of each shorter plan (`crash_shrink`) would take many times as long. A history
without a crash, and one with a damage, is driven anew as cases are. Decides what of a finding may
be dropped, in which order, and how long. Does not decide what a violation is, and leaves what does
not show again as it was.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Final

import msgspec

from torntail.crash.disk import MODELS
from torntail.drive.onlooker import HarnessError
from torntail.explore.case_run import cause_of
from torntail.explore.crash_search import Violation
from torntail.explore.crash_shard import violation_finding
from torntail.explore.dropping import Dropping
from torntail.explore.fuzz_bench import Bench
from torntail.explore.fuzz_disk import shows_error
from torntail.explore.fuzz_finding import FuzzFinding, crash_finding_of
from torntail.explore.fuzz_trial import Trial
from torntail.explore.script import Case
from torntail.explore.smaller_values import smaller_values, volume
from torntail.judge.history import Operation

__all__ = ["smaller"]

_RUNS: Final = 150
_VALUE_RUNS: Final = 40
"""How many plans with smaller values are tried, beyond those with fewer calls."""


def smaller(bench: Bench, finding: FuzzFinding, still_time: Callable[[], bool]) -> FuzzFinding:
    """The finding with the smallest history found that shows its clause and its cause."""
    if finding.fault is not None:
        return _SmallerError(bench, finding, still_time).smallest()
    if finding.crash is not None:
        return _SmallerCrash(bench, finding, still_time).smallest()
    return _SmallerHistory(bench, finding, still_time).smallest()


class _Smaller(Dropping):
    """The search for one finding; `best` is the smallest so far."""

    def __init__(self, bench: Bench, finding: FuzzFinding, still_time: Callable[[], bool]) -> None:
        self.bench = bench
        self.capabilities = bench.target.capabilities
        self.best = finding
        self.still_time = still_time
        self.runs = 0
        self.most_runs = _RUNS

    @property
    def calls(self) -> tuple[Operation, ...]:
        return self.best.operations

    @abstractmethod
    def still_shows(self, operations: tuple[Operation, ...]) -> bool:
        """As `shows`; may fail on operations that make no sense."""

    def smallest(self) -> FuzzFinding:
        if self.shows(self.best.operations):
            self.drop()
            self.most_runs = self.runs + _VALUE_RUNS
            self._shrink_values()
        return msgspec.structs.replace(self.best, small=True)

    def may_go_on(self) -> bool:
        return self.runs < self.most_runs and self.still_time()

    def _shrink_values(self) -> None:
        """Takes smaller values until none that was not tried yet shows the fault."""
        tried: set[str] = set()
        taken = True
        while taken:
            taken = False
            for calls in smaller_values(self.calls):
                key = repr(calls)
                if key in tried or volume(calls) >= volume(self.calls):
                    continue
                if not self.may_go_on():
                    return
                tried.add(key)
                if self.shows(calls):
                    taken = True
                    break

    def shows(self, calls: tuple[Operation, ...]) -> bool:
        if not self.may_go_on():
            return False
        self.runs += 1
        try:
            return self.still_shows(calls)
        except (HarnessError, LookupError, AssertionError):
            # Without what was dropped the plan makes no sense any more.
            return False


class _SmallerHistory(_Smaller):
    """For a fault that shows at a call, or after a damage."""

    def still_shows(self, operations: tuple[Operation, ...]) -> bool:
        self.bench.tick()
        history, judging = self.bench.cases.run(Case("smaller", (), operations))
        for one in judging.judgements:
            if not one.passed and cause_of(one) == self.best.cause:
                self.best = msgspec.structs.replace(
                    self.best,
                    operations=operations[: one.index + 1],
                    sentence=one.sentence,
                    history=history[: one.index + 1],
                )
                return True
        return False


class _SmallerError(_Smaller):
    """For a fault that shows after an error of the disk, in the last of the operations."""

    def still_shows(self, operations: tuple[Operation, ...]) -> bool:
        self.bench.counts.moments += 1
        self.bench.tick()
        shown = shows_error(self.bench, self.best, operations)
        if shown is None:
            return False
        self.best = shown
        return True


class _Shows(Exception):
    """A crash shows what was found."""

    def __init__(self, finding: FuzzFinding) -> None:
        super().__init__()
        self.finding = finding


class _SmallerCrash(_Smaller):
    """For a fault that shows after a crash, in the last of the operations."""

    def still_shows(self, operations: tuple[Operation, ...]) -> bool:
        crash = self.best.crash
        assert crash is not None
        trial = Trial(self.bench, crash.plan, self.bench.seed)
        used = {one.model for one in crash.chain}
        trial.models = tuple(model for model in MODELS if model in used)
        trial.depth = len(crash.chain) - 1
        try:
            for operation in operations:
                trial.perform(operation)
            recording = trial.recorded()
        finally:
            trial.abandon()
        if recording is None:
            return False
        try:
            for late in dict.fromkeys((0.0, self.best.late)):
                # Each time anew: what is known of a disk already is not crashed in turn.
                crashes = trial.crashes(recording, self._found)
                crashes.inside(len(operations) - 1, late, thorough=True)
        except _Shows as shown:
            self.best = shown.finding
            return True
        return False

    def _found(self, violation: Violation) -> None:
        assert self.best.crash is not None
        crash = violation_finding(violation, self.best.crash.images_until_found)
        finding = crash_finding_of(crash, late=self.best.late)
        if finding.cause == self.best.cause:
            raise _Shows(finding)
