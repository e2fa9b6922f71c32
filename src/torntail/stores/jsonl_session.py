"""What a store of JSONL files knows of one session that it created or loaded, and a call on one.

Decides when such a session is dead and when its lock is freed, and that calls on it come one after
the other. Does not decide what is read or written (`jsonl`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from torntail.stores.contract import StorageFailed, StoreError
from torntail.stores.jsonl_log import Cursor, LogWriter
from torntail.stores.lock import WriterLock

__all__ = ["JsonlSession", "SerialisedCall"]


class JsonlSession:
    """What a store object knows of a session that it created or loaded.

    `header_line` is set while the session is not materialised; `cursor` once it was read;
    `writer` while this object writes it; `whole` says whether storage is what the last load
    returned, and `unrepaired` why it is not; `failed` that an fsync failed before there was a
    writer to carry that news, or that a `reopen` did not come to its end.
    """

    __slots__ = (
        "cursor",
        "failed",
        "header_line",
        "lock",
        "next_seq",
        "path",
        "unrepaired",
        "whole",
        "writer",
    )

    def __init__(self, path: str, lock: WriterLock) -> None:
        self.path = path
        self.lock = lock
        self.header_line: bytes | None = None
        self.cursor: Cursor | None = None
        self.writer: LogWriter | None = None
        self.next_seq = 0
        self.whole = True
        self.unrepaired: StoreError | None = None
        self.failed = False

    @property
    def dead(self) -> bool:
        """Whether a failure has ended this object's writing until `reopen` (IO-3)."""
        return self.failed or (self.writer is not None and self.writer.dead)

    def check_alive(self, session_id: str) -> None:
        """Raises `StorageFailed` when the writer is dead."""
        if self.dead:
            cause = "an earlier write or fsync failed"
            raise StorageFailed(session_id, Path(self.path), "append", cause, writer_dead=True)

    def check_whole(self, session_id: str) -> None:
        """Raises the reason why storage is not what the last load returned, if it is not."""
        if not self.whole:
            cause = "it did not come to its end"
            raise self.unrepaired or StorageFailed(session_id, Path(self.path), "repair", cause)

    def step_back(self, held_before: bool) -> None:
        """After a repair that failed: remembers how far it came, and frees a lock taken for it.

        A dead writer keeps its lock, since only `reopen` may go on from here.
        """
        if self.writer is not None:
            self.cursor = self.writer.cursor
        if not held_before and not self.dead:
            self.let_go()

    def let_go(self) -> None:
        """Closes the log and frees the lock."""
        if self.writer is not None:
            self.writer.close()
            self.writer = None
        self.lock.release()


class SerialisedCall:
    """A call on a session, from the taking of the lock that all calls on it share to its release.

    `check` is asked under the lock, and may refuse the call. A class, since a generator would cost
    a twentieth of the load of a small log.
    """

    __slots__ = ("_check", "_session_id", "_stripe")

    def __init__(
        self, session_id: str, stripe: threading.RLock, check: Callable[[str], None]
    ) -> None:
        self._session_id = session_id
        self._stripe = stripe
        self._check = check

    def __enter__(self) -> str:
        self._stripe.acquire()
        try:
            self._check(self._session_id)
        except BaseException:
            self._stripe.release()
            raise
        return self._session_id

    def __exit__(self, *_: object) -> None:
        self._stripe.release()
