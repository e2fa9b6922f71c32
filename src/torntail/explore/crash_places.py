"""Where in a recording a crash can fall: its moment, what is owed then, and what a program finds.

Decides which moments are worth a crash, and how a disk stands under another model after one. Does
not decide which of them are tried (`crash_expansion`, `scenarios.crash_replay`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from operator import attrgetter
from typing import Final, Literal, NamedTuple, TypeVar

import msgspec

from torntail.crash.crashes import Crash, Moment, is_mark, moments
from torntail.crash.disk import Disk, Model
from torntail.crash.oplog import Acknowledged, Invoked, Operation, Write
from torntail.explore.crash_calls import Recording
from torntail.judge.capabilities import Capabilities
from torntail.judge.ledger import Ledger, ledger_steps

__all__ = [
    "SPARSE_IMAGES",
    "Place",
    "disk_after_crash",
    "ledgers_of",
    "places_of",
    "sparse_places",
    "spread",
]

SPARSE_IMAGES: Final = 4
"""How many images are loaded of a moment of a plan that is crashed here and there only."""

_SPARSE_PLACES: Final = 9

_Item = TypeVar("_Item")


class Place(NamedTuple):
    """Where in a recording a crash is: its moment, what was owed, the call last begun."""

    moment: Moment
    ledger: Ledger
    call: int


def ledgers_of(
    recording: Recording, capabilities: Capabilities, start: Ledger | None = None
) -> list[Ledger]:
    """What is owed before the first mark of a recording and after each."""
    marks = [
        (operation.call, isinstance(operation, Acknowledged))
        for operation in recording.operations
        if isinstance(operation, Invoked | Acknowledged)
    ]
    return ledger_steps(recording.history, marks, capabilities, start=start)


def places_of(
    disk: Disk,
    model: Model,
    operations: Sequence[Operation],
    ledgers: Sequence[Ledger],
    *,
    begun: bool = False,
) -> Iterator[Place]:
    """The moments worth a crash, each with the strictest ledger its disk has, and the call.

    A mark changes no disk: an acknowledgement makes the debt stricter, so the moment before it is
    left out; an invocation makes it milder, so the moment after it is, unless `begun` asks for the
    moment at which a call has begun and done nothing: who crashes one call alone starts there.
    """
    step = 0
    call = -1
    tears: Literal["all", "synced"] = "all" if model == "kill" else "synced"
    for moment in moments(disk, operations, tears=tears):
        operation = moment.operation
        if is_mark(operation):
            step += 1
            if isinstance(operation, Invoked):
                call = operation.call
                if not begun:
                    continue
        following = operations[moment.position] if moment.position < len(operations) else None
        if moment.torn is None and isinstance(following, Acknowledged):
            continue
        yield Place(moment, ledgers[step], call)


def sparse_places(places: Iterable[Place], calls: Collection[int]) -> Iterator[Place]:
    """A few places in each of these calls, the first and the last of a call among them."""
    for call, there in groupby(places, attrgetter("call")):
        if call in calls:
            yield from spread(there, _SPARSE_PLACES)


def spread(items: Iterable[_Item], count: int) -> list[_Item]:
    """At most `count` (two or more) of these, evenly spread from the first to the last."""
    found = list(items)
    if len(found) <= count:
        return found
    return [found[index * (len(found) - 1) // (count - 1)] for index in range(count)]


def disk_after_crash(
    crash: Crash, moment: Moment, model: Model, begun: Disk, operations: Sequence[Operation]
) -> Disk:
    """The disk a program finds after a crash, as another model sees it.

    `begun` is the disk of that model on which the recorded `operations` began.
    """
    if crash.model == model:
        return crash.disk_after(moment.disk)
    if crash.model != "kill":
        # All that is left is durable, whichever model took the rest away.
        return replace(crash.disk_after(moment.disk), model=model)
    before = disk = begun
    for operation in operations[: crash.position]:
        before, disk = disk, disk.after(operation)
    if crash.torn is None:
        return disk
    torn = operations[crash.position - 1]
    assert isinstance(torn, Write)
    return before.after(msgspec.structs.replace(torn, data=torn.data[: crash.torn]))
