"""Making the history of a crash finding small, so that a person can read it.

Drops sessions, calls, and events of a batch, and records and crashes what is left anew, as long as
a violation of the same clause with the same cause shows; the crash is then the earliest that shows
it. Bounded in runs and in disks. Does not decide what a violation is (`judge.recovery`), and leaves
a finding as it is that does not show a second time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from torntail.crash.disk import MODELS
from torntail.drive.target import Target
from torntail.explore.crash_run import Counts, CrashRun, Limits, Violation
from torntail.explore.crash_shard import CrashFinding, ShareReport, violation_finding
from torntail.explore.dropping import Dropping
from torntail.explore.script import Case
from torntail.judge.history import Operation
from torntail.record.inprocess import RecordingFailed
from torntail.record.slots import Slot

__all__ = ["SHRINKING_IMAGES", "SHRINKING_RUNS", "smallest_history"]

SHRINKING_RUNS: Final = 60
"""How many shorter histories of one finding are tried."""

SHRINKING_IMAGES: Final = 4_000
"""How many distinct disks are loaded for them all."""

_SLACK_IMAGES: Final = 50


def smallest_history(
    target: Target,
    finding: CrashFinding,
    *,
    seed: int,
    slot: Slot,
    tick: Callable[[ShareReport], None] = lambda report: None,
    began: Callable[[], object] = lambda: None,
) -> CrashFinding:
    """The finding with the smallest history found that shows its clause and its cause.

    `tick` gets the counts after each moment; `began` is called before the store is let loose on a
    disk, for a watchdog.
    """
    if finding.fault is not None or not finding.chain or not finding.calls:
        return finding
    return _Shrinking(target, finding, seed, slot, tick, began).smallest()


class _Shows(Exception):
    """A crash of the history shows what was found."""

    def __init__(self, finding: CrashFinding) -> None:
        super().__init__()
        self.finding = finding


class _TooFar(Exception):
    """More disks were loaded than it takes to see what was found."""


class _Shrinking(Dropping):
    """The search for one finding; `best` is the smallest so far."""

    def __init__(
        self,
        target: Target,
        finding: CrashFinding,
        seed: int,
        slot: Slot,
        tick: Callable[[ShareReport], None],
        began: Callable[[], object],
    ) -> None:
        self.target = target
        self.capabilities = target.capabilities
        self.seed = seed
        self.slot = slot
        self.tick = tick
        self.began = began
        self.best = finding
        used = {crash.model for crash in finding.chain}
        self.models = tuple(model for model in MODELS if model in used)
        self.runs = 0
        self.images = 0
        self.needed = Limits().images * len(self.models)

    @property
    def calls(self) -> tuple[Operation, ...]:
        return self.best.calls

    def smallest(self) -> CrashFinding:
        if self.shows(self.best.calls):
            self.drop()
        return self.best

    def may_go_on(self) -> bool:
        return self.runs < SHRINKING_RUNS and self.images < SHRINKING_IMAGES

    def shows(self, calls: tuple[Operation, ...]) -> bool:
        self.runs += 1
        before = self.images

        def found(violation: Violation) -> None:
            finding = violation_finding(violation, self.best.images_until_found)
            if (finding.clause, finding.cause) == (self.best.clause, self.best.cause):
                raise _Shows(finding)

        def tick(counts: Counts) -> None:
            self.images = before + counts.distinct
            self.tick(ShareReport(distinct=self.images, plan=self.best.plan))
            if counts.distinct > self.needed:
                raise _TooFar

        run = CrashRun(
            self.target,
            self.slot,
            self.models,
            seed=self.seed,
            # No crash more in a row than it took.
            limits=Limits(images=min(Limits().images, self.needed), depth=len(self.best.chain) - 1),
            found=found,
            tick=tick,
            began=self.began,
        )
        try:
            run.run(Case(self.best.plan, (), calls))
        except _Shows as shows:
            self.best = shows.finding
            # A shorter history has fewer disks before the one that shows it.
            self.needed = min(self.needed, run.counts.distinct + _SLACK_IMAGES)
            return True
        except (RecordingFailed, _TooFar):
            pass
        finally:
            self.images = before + run.counts.distinct
        return False
