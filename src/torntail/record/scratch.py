"""Scratch space for disk images: where it is, and that nothing of it stays.

Decides the place: `/dev/shm` when that is a writable memory file system with room, else the default
temporary directory. A scratch directory is removed when it is closed, when nobody refers to it any
more, and when the interpreter exits, an interrupt included. What a killed process left is removed
by the next one: each directory has a lock file beside it, locked as long as its process lives, and
made before the directory, so a directory whose lock can be had is nobody's.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import secrets
import stat
import tempfile
import weakref
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from torntail.record.real import Real
from torntail.record.tree import remove_tree

__all__ = ["FULL", "Scratch", "ScratchFull", "memory_directory"]

FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
"""The errors of a file system, or of a share of one, that is full."""

_MEMORY: Final = "/dev/shm"
_ROOM_BYTES: Final = 32 << 20
_PREFIX: Final = "torntail-scratch-"
_LOCK_NAME: Final = re.compile(re.escape(_PREFIX) + r"[0-9a-f]{16}\.lock")


class ScratchFull(OSError):
    """There is no room left for disk images in `path`."""

    def __init__(self, path: str, cause: OSError) -> None:
        super().__init__(cause.errno, cause.strerror, path)
        self.path = path

    def __str__(self) -> str:
        return (
            f"the scratch space for disk images is full: {self.path} ({self.strerror});"
            " free some of that file system, or choose another place for scratch space"
        )


class Scratch:
    """A directory of this process for disk images, below `base` or the best place there is.

    `path` is the directory, `place` says in words where it is and why.
    """

    def __init__(self, base: Path | str | None = None) -> None:
        if base is not None:
            self.place = f"{base} (as given)"
        else:
            base, self.place = memory_directory()
        base = os.path.abspath(base)
        try:
            _remove_stale(base)
            self.path, lock, descriptor = _make(base)
        except OSError as error:
            if error.errno in FULL:
                raise ScratchFull(base, error) from error
            raise
        self._directories = 0
        self._remove = weakref.finalize(self, _remove, self.path, lock, descriptor, os.getpid())

    def new_directory(self) -> str:
        """Makes a directory of a new name in it; gives its path."""
        while True:
            self._directories += 1
            path = f"{self.path}/{self._directories}"
            try:
                Real.mkdir(path, 0o700)
            except FileExistsError:
                continue
            except OSError as error:
                if error.errno in FULL:
                    raise ScratchFull(self.path, error) from error
                raise
            return path

    @property
    def closed(self) -> bool:
        """Whether it was removed."""
        return not self._remove.alive

    def close(self) -> None:
        """Removes the directory with all that is in it; again is harmless."""
        self._remove()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def memory_directory() -> tuple[str, str]:
    """The best place for scratch space, and in words why."""
    temporary = tempfile.gettempdir()
    try:
        with Real.open_file("/proc/self/mounts", encoding="utf-8", errors="replace") as mounts:
            kinds = {line.split(" ")[1]: line.split(" ")[2] for line in mounts}
    except OSError:
        return temporary, f"{temporary} (no mount table to find a memory file system in)"
    if kinds.get(_MEMORY) != "tmpfs":
        return temporary, f"{temporary} ({_MEMORY} is no memory file system)"
    if not os.access(_MEMORY, os.W_OK | os.X_OK):
        return temporary, f"{temporary} ({_MEMORY} is not writable)"
    status = os.statvfs(_MEMORY)
    if status.f_bavail * status.f_frsize < _ROOM_BYTES:
        return temporary, f"{temporary} ({_MEMORY} has less than {_ROOM_BYTES >> 20} MiB free)"
    return _MEMORY, f"{_MEMORY} (memory)"


def _make(base: str) -> tuple[str, str, int]:
    """Makes the lock file, locks it, makes the directory; gives directory, lock, descriptor."""
    while True:
        path = f"{base}/{_PREFIX}{secrets.token_hex(8)}"
        lock = path + ".lock"
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = Real.open_descriptor(lock, flags, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not Real.fstat(descriptor).st_nlink:
                raise BlockingIOError
        except BlockingIOError:
            # Another process took it for a dead one's in this very moment, and removes it.
            os.close(descriptor)
            continue
        try:
            Real.mkdir(path, 0o700)
        except OSError:
            Real.unlink(lock)
            os.close(descriptor)
            raise
        return path, lock, descriptor


def _remove(path: str, lock: str, descriptor: int, process_id: int) -> None:
    if os.getpid() != process_id:
        return  # A forked child that exits: the scratch space is its parent's.
    try:
        remove_tree(path)
        Real.unlink(lock)
    except FileNotFoundError:
        pass
    finally:
        os.close(descriptor)


def _remove_stale(base: str) -> None:
    """Removes the scratch directories of dead processes of this user."""
    with os.scandir(base) as entries:
        locks = [entry.path for entry in entries if _LOCK_NAME.fullmatch(entry.name)]
    for lock in locks:
        try:
            _remove_if_stale(lock)
        except OSError:
            pass  # Another's, or another process is at it; the space is not needed for certain.


def _remove_if_stale(lock: str) -> None:
    descriptor = Real.open_descriptor(lock, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        status = Real.fstat(descriptor)
        if status.st_uid != os.geteuid() or not stat.S_ISREG(status.st_mode):
            return
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path = lock.removesuffix(".lock")
        try:
            directory = Real.lstat(path)
        except FileNotFoundError:
            Real.unlink(lock)
            return
        if directory.st_uid == os.geteuid() and stat.S_ISDIR(directory.st_mode):
            remove_tree(path)
            Real.unlink(lock)
    finally:
        os.close(descriptor)
