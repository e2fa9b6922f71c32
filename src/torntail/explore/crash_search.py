"""What all expansions of one plan share: how it is searched, and what the store answered.

Decides when two answers are one: what a store gives back depends on the disk alone, whatever crash
left it, so equal answers, and the recoveries they make, are one value for the whole plan, which is
judged once by each debt.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from torntail.crash.crashes import Crash
from torntail.crash.disk import MODELS, DiskImage, Model
from torntail.explore.crash_calls import CrashCalls, Followed
from torntail.explore.crash_counts import Counts
from torntail.explore.script import Case
from torntail.judge.evidence import Evidence
from torntail.judge.history import Operation as Call
from torntail.judge.history import Returned
from torntail.judge.ledger import Ledger
from torntail.judge.recovery import Answer, Breach, Recovery, RecoveryJudge

__all__ = ["MODELS_OF_LEVEL", "Limits", "PlanSearch", "Violation"]


MODELS_OF_LEVEL: Final[Mapping[str, tuple[Model, ...]]] = {
    "none": (),
    "process": ("kill",),
    "power": MODELS,
}
"""Which crashes a level asks for (VD-7)."""

_SMALL_PLAN_OPERATIONS: Final = 8
_SPREAD_DISKS: Final = 4


@dataclass(frozen=True, slots=True)
class Limits:
    """How far a plan is followed: images of it, images of each recovery, crashes in a row.

    The search ends with `until` distinct images, those of earlier plans among them.
    """

    images: int = 4_000
    nested_images: int = 200
    depth: int = 2
    until: int | None = None


@dataclass(frozen=True, slots=True)
class Violation:
    """A breach with all it takes to see it again.

    `chain` are the crashes one after the other, the last leaving `image`; `calls` the plan up to
    the first of them; `recovery_calls` what was called between two crashes; `evidence` is what
    the breach was judged by.
    """

    breach: Breach
    plan: str
    calls: tuple[Call, ...]
    chain: tuple[Crash, ...]
    recovery_calls: tuple[Call, ...]
    image: DiskImage
    ledger: Ledger
    evidence: Evidence

    @property
    def model(self) -> Model:
        """The weakest promise of a disk that shows it."""
        return self.chain[-1].model


@dataclass(slots=True)
class PlanSearch:
    """One plan, the sessions it speaks of, how it is searched, and what came of it so far.

    `recoveries` are known by the hash of the image they follow, `followed` by that of the disk that
    the first load left.
    """

    plan: Case
    sessions: Sequence[str]
    calls: CrashCalls
    models: Sequence[Model]
    seed: int
    limits: Limits
    counts: Counts
    found: Callable[[Violation], None]
    tick: Callable[[Counts], None]
    judge: RecoveryJudge
    recoveries: dict[int, Recovery] = field(default_factory=dict)
    followed: dict[int, Followed] = field(default_factory=dict)
    _answers: dict[tuple[object, ...], list[Answer]] = field(default_factory=dict)
    _one_of: dict[tuple[int, ...], Recovery] = field(default_factory=dict)
    _met: Counter[tuple[str, int]] = field(default_factory=Counter)

    def left(self) -> int:
        """How many distinct images may still be loaded."""
        until = self.limits.until
        return sys.maxsize if until is None else max(0, until - self.counts.distinct)

    def one(self, session: str, answer: Answer, disk: int) -> Answer:
        """The first answer of the plan that was equal to this one, which left `disk` behind."""
        # What left the same disk is nearly always the same answer.
        near = self._answers.setdefault((session, disk), [])
        for other in near:
            if _alike(answer, other):
                return other
        loaded = answer.session if isinstance(answer, Returned) else None
        length = -1 if loaded is None else len(loaded.events)
        known = self._answers.setdefault((session, type(answer), length, _torn(answer)), [])
        first = next((other for other in known if _alike(answer, other)), answer)
        if first is answer:
            known.append(answer)
        near.append(first)
        return first

    def goes_on(self, session: str, answer: Answer) -> bool:
        """Whether a session is gone on with on one more disk where `one` gave `answer`.

        In a small plan it always is. In a large one, most of whose disks differ in another session,
        it is where the answer is new, and on a spread of the other disks: a store may give equal
        answers of unequal files.
        """
        met = self._met[session, id(answer)]
        self._met[session, id(answer)] += 1
        return len(self.plan.operations) <= _SMALL_PLAN_OPERATIONS or met % _SPREAD_DISKS == 0

    def recovery(self, loads: Mapping[str, Answer], key: int, followed: Followed) -> Recovery:
        """The recovery that these answers make with what became of the disk they left.

        `loads` are answers of `one`; `key` is the hash of that disk.
        """
        identity = (key, *map(id, loads.values()))
        recovery = self._one_of.get(identity)
        if recovery is None:
            recovery = self._one_of[identity] = Recovery(loads, *followed)
        return recovery


def _alike(one: Answer, other: Answer) -> bool:
    """Whether two answers are judged and counted alike: equal but for where a tail was torn."""
    if not (isinstance(one, Returned) and isinstance(other, Returned)):
        return one == other
    if one.session is None or other.session is None:
        return one == other
    return (
        one.session.events == other.session.events
        and one.session.header == other.session.header
        and _torn(one) == _torn(other)
    )


def _torn(answer: Answer) -> bool:
    loaded = answer.session if isinstance(answer, Returned) else None
    return loaded is not None and loaded.repair is not None and bool(loaded.repair.torn_bytes)
