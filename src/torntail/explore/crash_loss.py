"""Naming the disk over which a store took its process along.

A worker that hung or died cannot tell what it was at. So its plan is run twice more: first with
each call on a store counted where another process can read it, until the worker is lost again; then
with the fatal call answered in the place of the store, so that the judge sees, and reports, the
disk, the crashes and the calls as for any other refusal. Works for a store that does the same
twice.
"""

from __future__ import annotations

import inspect
import mmap
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec

from torntail.drive.target import Target
from torntail.explore.crash_shard import CrashFinding, Share, ShareReport, crash_share
from torntail.record.slots import Slot

__all__ = ["CallCounter", "FatalCall", "as_fatal", "counted", "fatal_finding", "read_count"]

_COUNTED: Final = frozenset({"create", "append", "load", "list"})
_BYTES: Final = 8


class FatalCall(msgspec.Struct, frozen=True, kw_only=True):
    """The call that is not to be made, by its number, and what became of it."""

    number: int
    reason: str


class ProcessLost(Exception):
    """In the place of an answer: the process did not survive the call."""


class _Passed(Exception):
    """The fatal call is behind, and nothing was made of it."""


class CallCounter:
    """Counts calls in a file, which outlives the process; makes none from the fatal one on."""

    def __init__(self, path: str | None, fatal: FatalCall | None = None) -> None:
        self.number = 0
        self.fatal = fatal
        self._page: mmap.mmap | None = None
        if path is not None:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.truncate(descriptor, _BYTES)
                self._page = mmap.mmap(descriptor, _BYTES)
            finally:
                os.close(descriptor)

    def __call__(self) -> None:
        """A call is about to be made."""
        self.number += 1
        if self._page is not None:
            self._page[:] = self.number.to_bytes(_BYTES, "little")
        if self.fatal is not None and self.number >= self.fatal.number:
            raise ProcessLost(self.fatal.reason)

    def began(self) -> None:
        """Another disk is about to be loaded."""
        if self.fatal is not None and self.number >= self.fatal.number:
            raise _Passed


def read_count(path: str) -> int:
    """How many calls were begun by a process that is gone."""
    try:
        return int.from_bytes(Path(path).read_bytes(), "little")
    except OSError:
        return 0


def counted(target: Target, count: CallCounter) -> Target:
    """The target with every call on its stores counted before it is made.

    Closing is not: a store that ends in `close` is found by the call before.
    """

    def open_counted(root: Path) -> Any:
        count()
        store = target.factory(root)
        if not inspect.isawaitable(store):
            return _CountedStore(store, count)

        async def wait() -> Any:
            return _CountedStore(await store, count)

        return wait()

    open_counted.error_kinds = getattr(target.factory, "error_kinds", None)  # type: ignore[attr-defined]
    return msgspec.structs.replace(target, factory=open_counted)


class _CountedStore:
    def __init__(self, store: Any, count: Callable[[], None]) -> None:
        self._store = store
        self._count = count

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._store, name)
        if name not in _COUNTED:
            return attribute

        def call(*arguments: Any) -> Any:
            self._count()
            return attribute(*arguments)

        return call


def fatal_finding(
    target: Target,
    share: Share,
    fatal: FatalCall,
    *,
    slot: Slot,
    tick: Callable[[ShareReport], None],
) -> CrashFinding | None:
    """What the judge makes of a fatal call in a plan; None where it was not made over a disk that a
    crash left.
    """
    count = CallCounter(None, fatal)
    found: list[CrashFinding] = []

    def first(finding: CrashFinding) -> None:
        if count.number >= fatal.number:
            found.append(finding)
            raise _Passed

    try:
        crash_share(
            counted(target, count), share, slot=slot, found=first, tick=tick, began=count.began
        )
    except _Passed:
        pass
    if not found:
        return None
    return as_fatal(found[0], ProcessLost, fatal.reason)


def as_fatal(finding: CrashFinding, exception: type[BaseException], reason: str) -> CrashFinding:
    """A refusal that stands in the place of an answer, told as what it was.

    Whatever else is due at that moment, a crash alone may not make a store unusable: CR-3.
    """
    sentence = finding.sentence.replace(
        f"refused ({exception.__name__}): {reason}", f"was not answered: {reason}"
    )
    return msgspec.structs.replace(
        finding, clause="CR-3", sentence=sentence, cause=f"CR-3 {reason}"
    )
