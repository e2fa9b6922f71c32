"""One plan, crashed everywhere: record it, expand its op log, load every disk, judge.

Decides what a run is given and what it keeps from plan to plan. How a plan is expanded is in
`crash_expansion`, what is called on the store in `crash_calls`, what is kept in `crash_search`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torntail.crash.disk import EMPTY_IMAGE, Disk, Model
from torntail.crash.oplog import is_sync
from torntail.drive.target import Target
from torntail.explore.crash_calls import Recording, sessions_of
from torntail.explore.crash_counts import Counts
from torntail.explore.crash_expansion import Expansion, Root
from torntail.explore.crash_search import Limits, PlanSearch, Violation
from torntail.explore.script import Case
from torntail.explore.traced_calls import calls_on
from torntail.judge.ledger import Ledger
from torntail.judge.recovery import RecoveryJudge
from torntail.record.slots import Slot

__all__ = ["Counts", "CrashRun", "Limits", "Recording", "Violation"]


class CrashRun:
    """Crashes plans of one target; `found` is called with every violation, `tick` now and then.

    `recorded` gets each plan's recording before anything is crashed.
    """

    def __init__(
        self,
        target: Target,
        slot: Slot,
        models: Sequence[Model],
        *,
        seed: int = 0,
        limits: Limits | None = None,
        found: Callable[[Violation], None],
        tick: Callable[[Counts], None] = lambda counts: None,
        began: Callable[[], object] = lambda: None,
        recorded: Callable[[Recording], None] = lambda recording: None,
    ) -> None:
        self.calls = calls_on(target, slot, began)
        self.models = tuple(models)
        self.seed = seed
        self.limits = limits or Limits()
        self.counts = Counts()
        self.found = found
        self.tick = tick
        self.recorded = recorded

    def run(self, plan: Case) -> None:
        """Records a plan and crashes it; raises what the recorder raises for an unseen write."""
        self.calls.hold(EMPTY_IMAGE)
        recording = self.calls.record(plan.operations, None)
        self.counts.plans += 1
        self.counts.syncs += sum(map(is_sync, recording.operations))
        self.recorded(recording)
        search = PlanSearch(
            plan,
            sessions_of(plan.operations),
            self.calls,
            self.models,
            self.seed,
            self.limits,
            self.counts,
            self.found,
            self.tick,
            RecoveryJudge(self.calls.capabilities),
        )
        root = Root({model: Disk(model) for model in self.models}, Ledger())
        Expansion(search, recording, root, self.limits.images).expand()
