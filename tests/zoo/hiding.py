"""Careful stores whose syncs are hard to see; none of them may be accused of losing data.

Each keeps the fsync of this module's import, before any recorder, in a place of its own; but for
the last two, of which one syncs without Python and one does not sync at all.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from tests.zoo.careful import CarefulStore
from tests.zoo.plain import factory
from torntail.session import SessionEvent

HIDING: list[str] = []


def _hides(store: Any) -> Any:
    HIDING.append(f"{__name__}:{store.__name__}")
    return factory(store, durability="power")


@_hides
class in_a_class_attribute(CarefulStore):
    fsync: Any = os.fsync

    def sync(self, descriptor: int) -> None:
        self.fsync(descriptor)


@_hides
class in_a_static_method(CarefulStore):
    fsync = staticmethod(os.fsync)

    def sync(self, descriptor: int) -> None:
        self.fsync(descriptor)


@_hides
class in_a_default(CarefulStore):
    def sync(self, descriptor: int, fsync: Callable[[int], None] = os.fsync) -> None:
        fsync(descriptor)


@_hides
class in_a_keyword_default(CarefulStore):
    def sync(self, descriptor: int, *, fsync: Callable[[int], None] = os.fsync) -> None:
        fsync(descriptor)


def _closed_over() -> Callable[[int], None]:
    fsync = os.fsync

    def sync(descriptor: int) -> None:
        fsync(descriptor)

    return sync


@_hides
class in_a_closure(CarefulStore):
    closed_over = staticmethod(_closed_over())

    def sync(self, descriptor: int) -> None:
        self.closed_over(descriptor)


class _Slotted:
    __slots__ = ("call",)

    def __init__(self, call: Callable[[int], None]) -> None:
        self.call = call


class _Plain:
    def __init__(self, call: Callable[[int], None]) -> None:
        self.call = call


class _Named(NamedTuple):
    call: Callable[[int], None]


_SLOTTED = _Slotted(os.fdatasync)
_PLAIN = _Plain(os.fsync)
_TABLE = {"sync": (os.fsync, os.fdatasync)}
_LISTED = [partial(os.fsync)]
_NAMED = _Named(os.fsync)


@_hides
class in_a_slot(CarefulStore):
    def sync(self, descriptor: int) -> None:
        (_PLAIN if os.path.isdir(f"/proc/self/fd/{descriptor}") else _SLOTTED).call(descriptor)


@_hides
class in_a_table(CarefulStore):
    def sync(self, descriptor: int) -> None:
        _TABLE["sync"][0](descriptor)


@_hides
class in_a_partial(CarefulStore):
    def sync(self, descriptor: int) -> None:
        _LISTED[0](descriptor)


@_hides
class in_a_named_tuple(CarefulStore):
    def sync(self, descriptor: int) -> None:
        _NAMED.call(descriptor)


@_hides
class by_its_own_name(CarefulStore):
    def sync(self, descriptor: int) -> None:
        import posix

        posix.fsync(descriptor)


class _Foreign(CarefulStore):
    """Syncs through the C library."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.library = ctypes.CDLL(None)

    def sync(self, descriptor: int) -> None:
        self.library.fsync(descriptor)


class _ForeignAndForgetful(_Foreign):
    """Syncs so, and appends nothing before it is closed."""

    def append_batch(
        self, path: Path, batch: Sequence[SessionEvent], lines: Sequence[bytes]
    ) -> None:
        self.__dict__.setdefault("later", []).append((path, batch, lines))

    def close(self) -> None:
        for waiting in self.__dict__.pop("later", []):
            super().append_batch(*waiting)
        super().close()


foreign = factory(_Foreign, durability="power")
foreign_and_forgetful = factory(_ForeignAndForgetful, durability="power")
