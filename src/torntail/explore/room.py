"""Where scratch space is, and how it is told that there is none left.

Decides the place: what the environment variable names, else memory if there is room, else the
temporary directory. Does not decide how disks are kept there (`record.scratch`).
"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from torntail.drive.onlooker import HarnessError
from torntail.record.scratch import FULL, ScratchFull
from torntail.record.tree import ForeignEntry

__all__ = [
    "SCRATCH_VARIABLE",
    "NoRoom",
    "NoRoomLeft",
    "case_scratch",
    "lacks_room",
    "no_room_in",
    "scratch_base",
    "told",
]

SCRATCH_VARIABLE: Final = "TORNTAIL_SCRATCH"
"""Names a directory for scratch space, instead of the one that is chosen."""

_MEMORY: Final = Path("/dev/shm")
_ROOM_BYTES: Final = 512 << 20
_LITTLE_BYTES: Final = 1 << 20
_FULL: Final = (os.strerror(errno.ENOSPC), os.strerror(errno.EDQUOT), "disk is full")


class NoRoom(HarnessError):
    """There is no scratch space, or none left; the text says what to set.

    `exit_code`: a place that is none is a mistake in the call, one that is full leaves all unknown.
    """

    exit_code = 2


class NoRoomLeft(NoRoom):
    """Scratch space is full."""

    exit_code = 3


def scratch_base() -> Path | None:
    """The directory that the environment names; raises `NoRoom` if it is none to write to."""
    named = os.environ.get(SCRATCH_VARIABLE)
    if not named:
        return None
    if not os.path.isdir(named) or not os.access(named, os.W_OK | os.X_OK):
        raise NoRoom(f"{SCRATCH_VARIABLE}={named} is no directory that can be written to")
    return Path(named)


def no_room_in(path: str | Path) -> NoRoomLeft:
    """What is to be said where scratch space is full."""
    advice = f"set {SCRATCH_VARIABLE} to a directory with more room"
    return NoRoomLeft(f"no room left in {path}: {advice}")


def lacks_room(path: str | Path, text: str) -> bool:
    """Whether what a store said, in `text`, is due to scratch space that is full.

    No fault of the store's: nothing here makes a disk full on purpose.
    """
    if any(full in text for full in _FULL):
        return True
    status = os.statvfs(path)
    return status.f_bavail * status.f_frsize < _LITTLE_BYTES


def told(error: Exception) -> str:
    """An error that is not the store's, in words that say what to do."""
    if isinstance(error, ScratchFull):
        return str(no_room_in(error.path))
    if isinstance(error, HarnessError):
        return str(error)
    if isinstance(error, ForeignEntry):
        return f"the store left what no disk image can hold: {error}"
    return f"{type(error).__name__}: {error}"


@contextmanager
def case_scratch() -> Iterator[Path]:
    """A temporary directory in memory, if there is such a file system with room; then removed."""
    place = scratch_base()
    usable = _MEMORY.is_dir() and os.access(_MEMORY, os.W_OK | os.X_OK)
    # In a container it often has 64 MiB, the size of one line of RW-12.
    if place is None and usable and shutil.disk_usage(_MEMORY).free >= _ROOM_BYTES:
        place = _MEMORY
    try:
        scratch = Path(tempfile.mkdtemp(prefix="torntail-", dir=place))
    except OSError as error:
        if error.errno not in FULL:
            raise
        raise no_room_in(place or tempfile.gettempdir()) from error
    try:
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
