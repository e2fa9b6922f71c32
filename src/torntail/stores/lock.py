"""The writer lock: at most one store object, in this process or any other, writes a session.

Decides MW-1 and MW-2: `flock`, which dies with its process and conflicts between two store objects
of one process as between two processes. No guess by pid or age; the lock file is never unlinked,
since a waiting process could hold a lock on the unlinked one. A forked child gives its copy up at
once, so that the lock does not outlive the process that took it.
"""

from __future__ import annotations

import fcntl
import os
import weakref
from contextlib import suppress
from pathlib import Path
from typing import Final

from torntail.stores.contract import StorageFailed, WriterConflict
from torntail.stores.files import FILE_MODE, make_directories

__all__ = ["WriterLock"]

_FLAGS: Final = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW


class WriterLock:
    """The lock of one session, taken by `acquire` and held until `release`."""

    def __init__(self, path: Path | str, session_id: str) -> None:
        self.path = os.fspath(path)
        self.session_id = session_id
        self._descriptor: int | None = None

    @property
    def held(self) -> bool:
        """Whether this object holds the lock."""
        return self._descriptor is not None

    def acquire(self) -> None:
        """Takes the lock without waiting; does nothing when it is held already.

        Raises `WriterConflict` when another holds it, `StorageFailed` when it cannot be had.
        """
        if self._descriptor is not None:
            return
        # Before there is anything a forked child could inherit.
        _LOCKS.add(self)
        try:
            try:
                descriptor = os.open(self.path, _FLAGS, FILE_MODE)
            except FileNotFoundError:
                # Only where no session was ever locked; most often the folder stands there.
                make_directories(os.path.dirname(self.path))
                descriptor = os.open(self.path, _FLAGS, FILE_MODE)
        except OSError as error:
            raise StorageFailed(
                self.session_id, Path(self.path), "open of the lock", error
            ) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise WriterConflict(
                self.session_id, Path(self.path), "another writer holds the session"
            ) from None
        except OSError as error:
            os.close(descriptor)
            raise StorageFailed(self.session_id, Path(self.path), "lock", error) from error
        self._descriptor = descriptor

    def release(self) -> None:
        """Gives the lock up; does nothing when it is not held."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            # Closing alone would leave the lock to a forked child that still has a copy.
            try:
                fcntl.flock(descriptor, fcntl.LOCK_UN)
            finally:
                os.close(descriptor)

    def __del__(self) -> None:
        # A store that was forgotten without `close` must not hold the session for ever.
        if self._descriptor is not None:
            with suppress(OSError):
                self.release()

    def _abandon(self) -> None:
        """In a forked child: drops the copy without unlocking what the parent holds."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


_LOCKS: weakref.WeakSet[WriterLock] = weakref.WeakSet()


def _abandon_all() -> None:
    for lock in list(_LOCKS):
        lock._abandon()


os.register_at_fork(after_in_child=_abandon_all)
