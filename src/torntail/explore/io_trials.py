"""Which I/O errors are tried: every kind of error at every kind of operation of every kind of call.

A base is run once without an error to learn its operations, as SQLite's own tests do; each then
gives some faults, and each fault is followed up in three ways. What a budget cannot hold is chosen
so that every kind comes once before any comes twice. Decides nothing about what a store owes.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import msgspec

from torntail.crash.crashes import moments
from torntail.crash.disk import Disk
from torntail.crash.io_faults import IoFault, SyncFailure
from torntail.crash.oplog import Write
from torntail.explore.io_story import FOLLOWS, Base, Follow, Story
from torntail.explore.script import Case
from torntail.judge.history import Append, Load
from torntail.judge.io_steps import call_session
from torntail.record.injection import Seen

__all__ = ["Trial", "plan_base", "repair_bases", "trials_of", "well_spread"]

_REPAIRS_PER_PLAN: Final = 4

_SYNC_FAILURES: Final = tuple(
    SyncFailure(pages=pages, reported=reported)
    for pages in ("clean-new", "clean-old", "dirty")
    for reported in ("once", "again")
)


class Trial(NamedTuple):
    """One run: from where, which error, what follows; `kind` is equal for those that are alike."""

    base: Base
    fault: IoFault
    follow: Follow
    kind: tuple[object, ...]


def plan_base(plan: Case) -> Base:
    """A plan from its beginning, on an empty disk."""
    return Base(plan.name, tuple(plan.operations))


def trials_of(base: Base, story: Story) -> list[Trial]:
    """Every error of a base, `story` being its run without one."""
    trials = []
    counted: dict[tuple[int, str], int] = {}
    for seen in story.seen:
        if seen.call >= len(base.calls):
            continue  # What is done by closing the store behind the plan.
        nth = counted.get((seen.call, seen.kind), 0)
        counted[seen.call, seen.kind] = nth + 1
        during = _call_kind(story, seen.call)
        for name, fault in _faults(seen, nth):
            for follow in FOLLOWS:
                kind = (during, seen.kind, min(nth, 1), name, follow)
                trials.append(Trial(base, fault, follow, kind))
    return trials


def _call_kind(story: Story, index: int) -> str:
    call = story.steps[index].call
    session = call_session(call)
    standing = story.during[index].get(session) if session is not None else None
    name = type(call).__name__.lower()
    if standing is not None and isinstance(call, Append):
        if not standing.acknowledged:
            name = "first flush"
        elif not standing.touched:
            name = "append without load"
    return name


def _faults(seen: Seen, nth: int) -> Iterator[tuple[str, IoFault]]:
    def fault(**fields: object) -> IoFault:
        return IoFault(**{"during": seen.call, "on": seen.kind, "nth": nth, **fields})  # type: ignore[arg-type]

    yield "EIO", fault()
    match seen.kind:
        case "write":
            yield "EIO on", fault(lasts="on")
            lengths = sorted({1, seen.size // 2, seen.size - 1} - {0, seen.size})
            for number, length in enumerate(lengths):
                yield f"short {number}", fault(error=None, length=length)
            for number, length in enumerate([0, *lengths]):
                yield f"ENOSPC {number}", fault(error="ENOSPC", length=length)
            if seen.size > 1:
                yield "EIO in the middle", fault(length=seen.size // 2)
                yield "ENOSPC on", fault(error="ENOSPC", length=seen.size // 2, lasts="on")
        case "sync":
            for failure in _SYNC_FAILURES:
                yield f"{failure.pages} {failure.reported}", fault(sync=failure)
            lost = SyncFailure(pages="clean-new")
            yield "ENOSPC", fault(error="ENOSPC", sync=lost)
            yield "EIO on", fault(sync=lost, lasts="on")
        case "sync-directory" | "truncate":
            yield "EIO on", fault(lasts="on")
        case "open" | "create" | "mkdir" | "link" | "rename":
            yield "ENOSPC", fault(error="ENOSPC")
    if seen.kind not in ("sync", "sync-directory"):
        yield "EROFS", fault(error="EROFS", lasts="on")
        if nth == 0:
            yield "any EROFS", IoFault(during=seen.call, error="EROFS", lasts="on")
    if nth == 0 and seen.kind in ("write", "sync"):
        yield "any EIO", fault(on=seen.kind, lasts="on")


def repair_bases(plan: Case, story: Story, seed: int) -> list[Base]:
    """Disks of a plan that was killed inside an append, to be loaded by a new object.

    `story` is the plan's run without an error.
    """
    chance = random.Random(f"{seed}/{plan.name}/repairs")
    candidates = []
    for moment in moments(Disk("ordered"), story.operations):
        call = _call_at(story, moment.position - 1)
        if call is None or call >= len(plan.operations):
            continue
        operation = plan.operations[call]
        if not isinstance(operation, Append) or not isinstance(moment.operation, Write):
            continue
        standing = story.during[call].get(operation.session)
        if standing is None or not standing.acknowledged:
            continue
        candidates.append((call, moment, operation.session))
    torn = [one for one in candidates if one[1].torn is not None]
    whole = [one for one in candidates if one[1].torn is None]
    chance.shuffle(torn)
    chance.shuffle(whole)
    # A cut behind a whole record leaves a tail that has to be copied before it is dropped.
    torn.sort(key=lambda one: not _holds_record(one[1].operation, one[1].torn))
    half = _REPAIRS_PER_PLAN // 2
    chosen = [*torn[:1], *torn[-1:], *whole[:half]] if len(torn) > 1 else [*torn, *whole[:half]]
    bases = []
    for index, moment, session in chosen:
        standings = {
            name: msgspec.structs.replace(standing, shown=None, touched=False)
            for name, standing in story.during[index].items()
            if standing.acknowledged
        }
        bases.append(
            Base(
                plan.name,
                (Load(session=session),),
                moment.disk,
                moment.disk.image(),
                standings,
                tuple(plan.operations[: index + 1]),
            )
        )
    return bases


def _holds_record(operation: object, torn: int | None) -> bool:
    return isinstance(operation, Write) and b"\n" in operation.data[:torn]


def _call_at(story: Story, index: int) -> int | None:
    """The call during which an operation of the log was made."""
    return next(
        (call for call, (start, end) in enumerate(story.spans) if start <= index < end), None
    )


def well_spread(trials: Iterable[Trial], seed: int) -> list[Trial]:
    """The trials in an order in which each kind comes once before any comes twice."""
    kinds: dict[tuple[object, ...], list[Trial]] = {}
    for trial in trials:
        kinds.setdefault(trial.kind, []).append(trial)
    chance = random.Random(seed)
    groups = list(kinds.values())
    for group in groups:
        chance.shuffle(group)
    chance.shuffle(groups)
    rounds = max(map(len, groups), default=0)
    return [group[turn] for turn in range(rounds) for group in groups if turn < len(group)]
