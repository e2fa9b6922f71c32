"""The SQLite session store: one database, one row per event.

Rows hold the very lines the JSONL store writes, so both give the same answer to the same damage. A
batch is one transaction: after a crash it is there whole or not at all (`atomic_batch`). Decides
the order of the calls: what is checked, what is locked, when a writer is dead. The file is
`sqlite_database`'s business, the tables `sqlite_schema`'s, the rows `sqlite_rows`'s, and the lock
is the same as for files: one lock file per id, in `<database>.locks/`.

Does not cover: a database on a network file system without working locks, a `-wal` removed by hand
under a live writer (the database file itself is watched, IO-6), and bit flips inside a value.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from torntail.session import (
    SessionEvent,
    SessionHeader,
    encode_event,
    interrupted_turn_closers,
    join_surrogates,
)
from torntail.stores.contract import (
    InvalidSessionId,
    ListEntry,
    LoadResult,
    RepairReport,
    SessionExists,
    SessionNotFound,
    StorageFailed,
    StoreClosed,
    WriterConflict,
)
from torntail.stores.entrance import Record, accept_batch, accept_header, check_sequence
from torntail.stores.lock import WriterLock
from torntail.stores.paths import companion_name, encode_segment
from torntail.stores.sqlite_database import Database, FileMark
from torntail.stores.sqlite_rows import (
    SessionRows,
    drop_torn_tail,
    has_session,
    insert_events,
    insert_session,
    last_event_mark,
    list_sessions,
    mark_of,
    next_seq,
    read_session,
)
from torntail.stores.sqlite_settings import Durability, JournalMode, Settings, Synchronous

__all__ = ["Durability", "JournalMode", "SqliteStore", "Synchronous"]


@dataclass(slots=True)
class _Writer:
    """A session whose lock this store holds. `next_seq` is None until its rows have been read."""

    lock: WriterLock
    file: FileMark | None = None
    next_seq: int | None = None
    dead: bool = False


@dataclass(frozen=True, slots=True)
class _Seen:
    """Where a session stood when it was loaded without its lock.

    `mark` knows its last event again. `stored` is false when closers or a cut are still to be
    written (MW-3, IO-5).
    """

    file: FileMark | None
    next_seq: int
    mark: bytes
    stored: bool


@dataclass(frozen=True, slots=True)
class _Reading:
    """What was read, from which file, and in which version of the database."""

    rows: SessionRows
    closers: list[SessionEvent]
    file: FileMark | None
    version: tuple[int, int] | None

    @property
    def whole(self) -> bool:
        return self.rows.torn is None and not self.closers


class SqliteStore:
    """Sessions in one SQLite database; see `contract.SessionStore` for the calls.

    `durability="power"` needs `wal` with synchronous `full` or `extra`, or one of the rollback
    journals with `extra`; `process` survives SIGKILL in every combination; `none` claims nothing.
    `synchronous` defaults to the cheapest level that keeps the claim. `busy_timeout` is how many
    seconds to wait for writers of other sessions. The database is made by the first append.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        durability: Durability = "power",
        journal_mode: JournalMode = "wal",
        synchronous: Synchronous | None = None,
        busy_timeout: float = 5.0,
    ) -> None:
        self.settings = Settings.choose(durability, journal_mode, synchronous, busy_timeout)
        self._database = Database(Path(path), self.settings)
        self._announced: dict[str, bytes] = {}
        self._writers: dict[str, _Writer] = {}
        self._seen: dict[str, _Seen] = {}
        self._closed = False

    @property
    def path(self) -> Path:
        """The database file, links resolved."""
        return self._database.path

    # --- the protocol ---------------------------------------------------------------------------

    def create(self, header: SessionHeader) -> None:
        """Announces a session; nothing is stored before its first event (RW-6, RW-7)."""
        with self._call():
            line, copy = accept_header(header)
            if copy.id in self._announced:
                raise SessionExists(copy.id)
            if copy.id in self._writers or self._is_stored(copy.id):
                raise SessionExists(copy.id, self.path)
            self._seen.pop(copy.id, None)
            self._announced[copy.id] = line

    def append(self, session_id: str, events: Iterable[SessionEvent]) -> None:
        """Stores a batch in one transaction (RW-2 to RW-5, IO-1 to IO-3, MW-1, MW-4)."""
        self._check_usable()
        session_id = join_surrogates(session_id)
        batch = accept_batch(session_id, events)
        if not batch:
            return
        with self._call():
            self._check_alive(session_id)
            if session_id in self._announced:
                check_sequence(session_id, batch, 0)
                self._is_stored(session_id)  # Not a database of ours: not even a lock beside it.
                with self._locked(session_id) as writer:
                    try:
                        self._first_flush(session_id, writer, batch)
                    except SessionExists:
                        # Another store made it since: this announcement is void, load finds it.
                        del self._announced[session_id]
                        raise
                return
            unknown = session_id not in self._seen and self._writer_seq(session_id) is None
            if unknown:
                self._load(session_id)
            try:
                with self._locked(session_id) as writer:
                    self._append(session_id, writer, batch)
            except BaseException:
                if unknown:
                    # The caller was given nothing that could be stale: the next try looks again.
                    self._seen.pop(session_id, None)
                raise

    def load(self, session_id: str) -> LoadResult:
        """The session, its interrupted turn closed and its torn tail dropped (RW-1, DM, CR)."""
        with self._call():
            return self._load(join_surrogates(session_id))

    def inspect(self, session_id: str) -> LoadResult:
        """What `load` would return; writes nothing (DM-8)."""
        with self._call():
            reading = self._read(join_surrogates(session_id))
            return _result(reading, None if reading.whole else "inspect never writes")

    def list(self) -> list[ListEntry]:
        """An entry for each session row; reads no event and writes nothing (RW-9, DM-8)."""
        with self._call(), self._database.reading() as connection:
            return [] if connection is None else list_sessions(connection, self.path)

    def reopen(self, session_id: str) -> int:
        """Revives the writer after a storage error; writes no closers, returns the next seq.

        A transaction that failed is not there, or, where its commit alone was in doubt, is there
        whole: the next seq says which.
        """
        with self._call():
            session_id = join_surrogates(session_id)
            if not self._is_stored(session_id):
                if session_id not in self._announced:
                    raise SessionNotFound(session_id)
                with self._locked(session_id) as writer:
                    writer.dead = False
                return 0
            with self._locked(session_id) as writer:
                reading = self._read(session_id)
                if reading.rows.torn is not None:
                    reading, _ = self._mend(session_id, reading, close_turn=False)
                writer.file = reading.file
                writer.next_seq = len(reading.rows.events)
                writer.dead = False
                self._announced.pop(session_id, None)
                self._seen.pop(session_id, None)
                return writer.next_seq

    def close(self) -> None:
        """Closes the database and frees the locks; in a forked child only marks the store."""
        if os.getpid() != self._database.process:
            self._closed = True
            return
        with self._database.mutex:
            self._closed = True
            try:
                self._database.disconnect()
            finally:
                while self._writers:
                    self._writers.popitem()[1].lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # --- reading --------------------------------------------------------------------------------

    def _read(self, session_id: str) -> _Reading:
        if not session_id:
            raise InvalidSessionId(session_id, "is empty")
        with self._database.reading(session_id) as connection:
            if connection is None:
                raise SessionNotFound(session_id)
            rows = read_session(connection, self.path, session_id)
            version = self._database.version(connection)
            file = self._database.file
        return _Reading(rows, interrupted_turn_closers(rows.events), file, version)

    def _is_stored(self, session_id: str) -> bool:
        with self._database.reading(session_id) as connection:
            return connection is not None and has_session(connection, session_id)

    def _load(self, session_id: str) -> LoadResult:
        reading = self._read(session_id)
        # Another store object has stored what this one only announced.
        self._announced.pop(session_id, None)
        held = self._writers.get(session_id)
        if held is not None and held.dead:
            # A dead writer mends nothing: reopen settles what is in doubt (IO-3).
            return _result(reading, None if reading.whole else "the writer is dead; call reopen()")
        reason = None
        copy = None
        if not reading.whole:
            try:
                with self._locked(session_id) as writer:
                    reading, copy = self._mend(session_id, reading, close_turn=True)
                    writer.file = reading.file
            except (WriterConflict, StorageFailed) as error:
                reason = str(error)
        result = _result(reading, reason, copy)
        held = self._writers.get(session_id)
        if held is not None and reason is None:
            held.file = reading.file
            held.next_seq = len(result.events)
            self._seen.pop(session_id, None)
        else:
            if held is not None:
                held.next_seq = None
            self._seen[session_id] = _Seen(
                reading.file, len(result.events), mark_of(result.events), reason is None
            )
        return result

    # --- writing --------------------------------------------------------------------------------

    def _mend(
        self, session_id: str, reading: _Reading, *, close_turn: bool
    ) -> tuple[_Reading, str | None]:
        """Drops the torn tail and closes the turn, in one transaction, under the lock (MW-3).

        What was read before the lock was had is read again if the database has changed since.
        """
        self._database.prepare(session_id, file=reading.file)
        with self._database.writing(session_id) as connection:
            version = self._database.version(connection)
            if version != reading.version:
                rows = read_session(connection, self.path, session_id)
                closers = interrupted_turn_closers(rows.events)
                reading = _Reading(rows, closers, self._database.file, version)
            copy = drop_torn_tail(connection, reading.rows)
            if close_turn:
                lines = [encode_event(closer) for closer in reading.closers]
                insert_events(connection, session_id, lines, len(reading.rows.events))
        return reading, copy

    def _first_flush(self, session_id: str, writer: _Writer, batch: Sequence[Record]) -> None:
        """Session row and first batch in one transaction (CR-10); makes the database if need be."""
        # A database removed under a live writer is not made anew (IO-6).
        create = all(other.file is None for other in self._writers.values())
        self._database.prepare(session_id, create=create)
        writer.file = self._database.file
        with self._writing(session_id, writer) as connection:
            if has_session(connection, session_id):
                raise SessionExists(session_id, self.path)
            insert_session(connection, self.path, session_id, self._announced[session_id])
            insert_events(connection, session_id, [record.line for record in batch], 0)
        del self._announced[session_id]
        writer.next_seq = len(batch)

    def _append(self, session_id: str, writer: _Writer, batch: Sequence[Record]) -> None:
        seen = self._seen.get(session_id)
        if seen is not None:
            self._take_over(session_id, writer, seen)
        expected = writer.next_seq
        assert expected is not None
        check_sequence(session_id, batch, expected)
        self._database.prepare(session_id, file=writer.file)
        with self._writing(session_id, writer) as connection:
            if seen is not None and seen.mark != last_event_mark(connection, session_id):
                raise WriterConflict(session_id, self.path, "changed since it was loaded")
            stored = next_seq(connection, session_id)
            if stored != expected:
                found = "the session is gone" if stored is None else f"the next seq is {stored}"
                raise WriterConflict(
                    session_id, self.path, f"{found} where {expected} was expected; load it again"
                )
            insert_events(connection, session_id, [record.line for record in batch], expected)
        writer.next_seq = expected + len(batch)
        self._seen.pop(session_id, None)

    def _take_over(self, session_id: str, writer: _Writer, seen: _Seen) -> None:
        """Makes a session that was loaded without its lock the writer's.

        What was still to be mended then is mended now; the caller goes on from what it was given,
        so if that is not what storage now holds, it must load again (MW-4, IO-5).
        """
        if not seen.stored:
            reading = self._read(session_id)
            if not reading.whole:
                reading, _ = self._mend(session_id, reading, close_turn=True)
            if len(reading.rows.events) + len(reading.closers) != seen.next_seq:
                raise WriterConflict(session_id, self.path, "changed since it was loaded")
            writer.file = reading.file
        else:
            writer.file = seen.file
        writer.next_seq = seen.next_seq

    @contextmanager
    def _writing(self, session_id: str, writer: _Writer) -> Iterator[sqlite3.Connection]:
        """A transaction of a writer, which is dead unless it ends well or is rolled back whole."""
        try:
            with self._database.writing(session_id, writer.file) as connection:
                yield connection
            writer.file = self._database.file
        except StorageFailed as error:
            writer.dead = error.writer_dead
            raise
        except Exception:
            raise  # A refusal; the transaction was rolled back before anything was committed.
        except BaseException:
            # Interrupted, perhaps behind the commit: only storage can tell.
            writer.dead = True
            raise

    @contextmanager
    def _locked(self, session_id: str) -> Iterator[_Writer]:
        """The session's writer; a lock taken for a call that then fails is given back (MW-1)."""
        writer = self._writers.get(session_id)
        if writer is not None:
            yield writer
            return
        name = companion_name(encode_segment(session_id), ".lock")
        lock = WriterLock(Path(f"{self.path}.locks") / name, session_id)
        lock.acquire()
        writer = self._writers[session_id] = _Writer(lock)
        try:
            yield writer
        except BaseException:
            # A dead writer keeps it: the doubt is settled by reopen, not by another writer.
            if not writer.dead:
                del self._writers[session_id]
                lock.release()
            raise

    # --- every call -----------------------------------------------------------------------------

    @contextmanager
    def _call(self) -> Iterator[None]:
        self._check_usable()
        with self._database.mutex:
            self._check_usable()
            yield

    def _check_usable(self) -> None:
        if self._closed:
            raise StoreClosed
        # Before the mutex: in a forked child no one may be left to give it back.
        self._database.check_process()

    def _check_alive(self, session_id: str) -> None:
        writer = self._writers.get(session_id)
        if writer is not None and writer.dead:
            raise StorageFailed(
                session_id, self.path, "append", "an earlier write failed", writer_dead=True
            )

    def _writer_seq(self, session_id: str) -> int | None:
        writer = self._writers.get(session_id)
        return None if writer is None else writer.next_seq


def _result(reading: _Reading, reason: str | None, copy: str | None = None) -> LoadResult:
    torn = reading.rows.torn
    closers = tuple(reading.closers)
    report = RepairReport(
        torn_from_line=None if torn is None else torn.line,
        torn_from_byte=None if torn is None else torn.byte,
        torn_bytes=0 if torn is None else torn.length,
        copy_kept=copy,
        closers=closers,
        durable=reason is None,
        reason=reason,
    )
    # The report's closers and the list's share nothing the caller could change in both (RW-4).
    events = [*reading.rows.events, *interrupted_turn_closers(reading.rows.events)]
    return LoadResult(reading.rows.header, events, report)
