"""What the trials of one process share: the store under test, disks, counts, and who is told.

Decides where slots and onlooker come from and which crashes a level asks for. Does not decide what
is tried (`fuzz_trial`).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Final

from torntail.crash.disk import Model
from torntail.drive.onlooker import Onlooker
from torntail.drive.target import Target
from torntail.explore.case_run import CaseRunner
from torntail.explore.crash_counts import Counts
from torntail.explore.crash_search import MODELS_OF_LEVEL
from torntail.explore.fuzz_finding import FuzzFinding
from torntail.explore.room import case_scratch, scratch_base
from torntail.judge.history import Operation
from torntail.record.scratch import Scratch
from torntail.record.slots import Slot

__all__ = ["IMAGES_A_TRIAL", "Bench", "Trail", "new_bench"]

IMAGES_A_TRIAL: Final = 250
"""About how many distinct disks of one plan are loaded."""


class Trail:
    """Told what is about to be done, in case it does not come back; this one tells nobody."""

    def begin(self) -> None:
        """Another plan."""

    def about_to(self, operation: Operation) -> None:
        """A call is about to be made."""

    def crashing(self) -> None:
        """From here on crashed disks of the plan are loaded."""


@dataclass(slots=True)
class Bench:
    """What the trials of one process share: the target, two slots, the counts.

    `slot` holds crashed disks, `live_slot` the directory of the plan that is driven. `models` are
    the crashes that are tried at all. `seconds` of processor time were spent on trials.
    `unseen` says why this store's file operations cannot be recorded, once that is known.
    """

    target: Target
    models: tuple[Model, ...]
    slot: Slot
    live_slot: Slot
    cases: CaseRunner
    found: Callable[[FuzzFinding], None]
    seed: int = 0
    images: int = IMAGES_A_TRIAL
    counts: Counts = field(default_factory=Counts)
    tick: Callable[[], None] = lambda: None
    began: Callable[[], object] = lambda: None
    trail: Trail = field(default_factory=Trail)
    calls: int = 0
    seconds: float = 0.0
    unseen: str | None = None
    checks_plans: bool = False
    harness_errors: list[str] = field(default_factory=list)

    def met(self, situations: tuple[str, ...], clause: str | None = None) -> None:
        """Situations occurred, and a clause was put to the test."""
        for situation in situations:
            self.counts.situations[situation] = self.counts.situations.get(situation, 0) + 1
        if clause is not None:
            self.counts.executed[clause] = self.counts.executed.get(clause, 0) + 1


def new_bench(
    target: Target,
    stack: ExitStack,
    *,
    models: tuple[Any, ...] | None = None,
    found: Callable[[FuzzFinding], None],
    call_timeout: float = 30.0,
    **options: Any,
) -> Bench:
    """A bench whose slots and onlooker are closed with the stack."""
    room = stack.enter_context(Scratch(scratch_base()))
    folder = stack.enter_context(case_scratch())
    onlooker = stack.enter_context(Onlooker(folder))
    return Bench(
        target,
        MODELS_OF_LEVEL[target.capabilities.durability] if models is None else models,
        stack.enter_context(Slot(room)),
        stack.enter_context(Slot(room)),
        CaseRunner(target, folder, onlooker, call_timeout),
        found,
        **options,
    )
