"""A store that says no as told, for the cases of live layers: failures of every kind a drain sees.

Decides what storage holds after an append that failed, and keeps a list of the calls made. Wraps
the memory store, whose sessions are what counts as stored.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Literal

from torntail.session import SessionEvent, SessionHeader
from torntail.stores.contract import LoadResult, SessionNotFound, StorageFailed
from torntail.stores.memory import MemoryStore

__all__ = ["Trouble", "TroubledStore"]

Trouble = Literal["none stored", "first stored", "all stored", "others stored"]
"""What is in storage after an append that raised: of the batch nothing, its first event, all of it,
or other events under its seqs."""


class TroubledStore:
    """A memory store whose next appends meet `troubles`, one each, and whose writer then is dead.

    `calls` are the names of all calls with their session. `gate`, where it is closed (cleared),
    holds every append until it is opened; `waiting` is set when one stands before it.
    """

    def __init__(self, *troubles: Trouble) -> None:
        self.troubles = list(troubles)
        self.calls: list[tuple[str, str]] = []
        self.gate = threading.Event()
        self.gate.set()
        self.waiting = threading.Event()
        self.appended = threading.Event()
        self._dead: set[str] = set()
        self._inner = MemoryStore()

    def create(self, header: SessionHeader) -> None:
        """Announces a session."""
        self.calls.append(("create", header.id))
        self._inner.create(header)

    def append(self, session_id: str, events: Iterable[SessionEvent]) -> None:
        """Stores a batch, or what the next trouble leaves of it."""
        self.calls.append(("append", session_id))
        self.waiting.set()
        self.gate.wait()
        batch = list(events)
        if session_id in self._dead:
            raise self._failed(session_id)
        if batch and self.troubles:
            left = _left_of(batch, self.troubles.pop(0))
            self._inner.append(session_id, left)
            self._dead.add(session_id)
            raise self._failed(session_id)
        self._inner.append(session_id, batch)
        self.appended.set()

    def load(self, session_id: str) -> LoadResult:
        """The session, its open turn closed."""
        self.calls.append(("load", session_id))
        return self._inner.load(session_id)

    def inspect(self, session_id: str) -> LoadResult:
        """What load would return."""
        self.calls.append(("inspect", session_id))
        return self._inner.inspect(session_id)

    def reopen(self, session_id: str) -> int:
        """Revives the writer."""
        self.calls.append(("reopen", session_id))
        next_seq = self._inner.reopen(session_id)
        self._dead.discard(session_id)
        return next_seq

    def close(self) -> None:
        """Ends the store."""
        self._inner.close()

    def stored(self, session_id: str) -> list[SessionEvent]:
        """The events in storage, without closers that a load would add; not a call of the store."""
        try:
            found = self._inner.inspect(session_id)
        except SessionNotFound:
            return []
        return found.events[: len(found.events) - len(found.repair.closers)]

    def stored_header(self, session_id: str) -> SessionHeader | None:
        """The header in storage; not a call of the store."""
        try:
            return self._inner.inspect(session_id).header
        except SessionNotFound:
            return None

    def put(self, header: SessionHeader, events: Iterable[SessionEvent]) -> None:
        """A session as somebody else left it; not a call of the store."""
        self._inner.create(header)
        self._inner.append(header.id, events)

    def _failed(self, session_id: str) -> StorageFailed:
        cause = "the disk says no"
        return StorageFailed(session_id, "a disk", "append", cause, writer_dead=True)


def _left_of(batch: list[SessionEvent], trouble: Trouble) -> list[SessionEvent]:
    match trouble:
        case "none stored":
            return []
        case "first stored":
            return batch[:1]
        case "all stored":
            return batch
        case "others stored":
            return [
                SessionEvent("note", event.seq, event.time, {"of": "another"}) for event in batch
            ]
