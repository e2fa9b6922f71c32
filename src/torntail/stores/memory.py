"""A session store in memory: the contract without storage, and the model the others are held to.

Claims durability `none`: everything ends with the object. Sessions are kept as encoded lines, so
that copies are private in both directions (RW-4) and values pass the same strict codec.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from types import TracebackType
from typing import Self

from torntail.session import (
    SessionEvent,
    SessionHeader,
    encode_event,
    interrupted_turn_closers,
    join_surrogates,
    parse_event,
    parse_header,
)
from torntail.stores.contract import (
    ListEntry,
    LoadResult,
    RepairReport,
    SessionExists,
    SessionNotFound,
    StoreClosed,
)
from torntail.stores.entrance import accept_batch, accept_header, check_sequence

__all__ = ["MemoryStore"]


class _Session:
    def __init__(self, header: bytes) -> None:
        self.header = header
        self.lines: list[bytes] = []


class MemoryStore:
    """Sessions in memory; see `contract.SessionStore` for the calls."""

    def __init__(self) -> None:
        self._sessions: dict[str, _Session] = {}
        self._mutex = threading.RLock()
        self._closed = False

    def create(self, header: SessionHeader) -> None:
        """Announces a session; it is neither listed nor loaded before its first event (RW-6)."""
        with self._mutex:
            self._check_open()
            line, copy = accept_header(header)
            if copy.id in self._sessions:
                raise SessionExists(copy.id)
            self._sessions[copy.id] = _Session(line)

    def append(self, session_id: str, events: Iterable[SessionEvent]) -> None:
        """Stores a contiguous batch at the next seq (RW-2, RW-3)."""
        with self._mutex:
            self._check_open()
            session_id = join_surrogates(session_id)
            batch = accept_batch(session_id, events)
            if not batch:
                return
            session = self._sessions.get(session_id)
            if session is None:
                raise SessionNotFound(session_id)
            check_sequence(session_id, batch, len(session.lines))
            session.lines.extend(record.line for record in batch)

    def load(self, session_id: str) -> LoadResult:
        """The session; closers of an open turn are stored first (RW-1)."""
        with self._mutex:
            session, events = self._read(session_id)
            closers = interrupted_turn_closers(events)
            session.lines.extend(encode_event(closer) for closer in closers)
            report = RepairReport(closers=tuple(closers))
            return LoadResult(
                parse_header(session.header), [parse_event(line) for line in session.lines], report
            )

    def inspect(self, session_id: str) -> LoadResult:
        """What `load` would return; stores nothing (DM-8)."""
        with self._mutex:
            session, events = self._read(session_id)
            closers = interrupted_turn_closers(events)
            report = RepairReport(
                closers=tuple(closers),
                durable=not closers,
                reason="inspect never writes" if closers else None,
            )
            return LoadResult(parse_header(session.header), [*events, *closers], report)

    def reopen(self, session_id: str) -> int:
        """The next seq; memory has no storage error to recover from."""
        with self._mutex:
            self._check_open()
            session = self._sessions.get(join_surrogates(session_id))
            if session is None:
                raise SessionNotFound(session_id)
            return len(session.lines)

    def close(self) -> None:
        """Ends the store; every later call but `close` raises `StoreClosed`."""
        with self._mutex:
            self._closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosed

    def _read(self, session_id: str) -> tuple[_Session, list[SessionEvent]]:
        self._check_open()
        session = self._sessions.get(join_surrogates(session_id))
        if session is None or not session.lines:
            raise SessionNotFound(session_id)
        return session, [parse_event(line) for line in session.lines]

    def list(self) -> list[ListEntry]:
        """An entry for each session with at least one event."""
        with self._mutex:
            self._check_open()
            return [
                ListEntry(session_id, parse_header(session.header))
                for session_id, session in self._sessions.items()
                if session.lines
            ]
