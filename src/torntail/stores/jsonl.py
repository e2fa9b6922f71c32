"""A session store of JSONL files, one per session, in the layout of era S.

Decides when a log is read, repaired and written, and by whom: the life of a session in one store
object. The order of bytes and fsyncs is in `jsonl_log`, reading in `jsonl_read`, the meaning of the
bytes in `session.scan`. Does not cover write-behind or live sessions.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Final, Literal, Self

from torntail.session import SessionEvent, SessionHeader, encode_event, join_surrogates
from torntail.stores.contract import (
    InvalidSessionId,
    ListEntry,
    LoadResult,
    SessionExists,
    SessionNotFound,
    StorageFailed,
    StoreClosed,
    StoreError,
    WriterConflict,
)
from torntail.stores.entrance import Record, accept_batch, accept_header, check_sequence
from torntail.stores.jsonl_keep import keep_torn_tail, move_aside
from torntail.stores.jsonl_log import Cursor, LogWriter
from torntail.stores.jsonl_read import (
    ReadLog,
    find_log,
    list_logs,
    load_result,
    log_places,
    never_materialised,
    read_log,
    still_holds,
)
from torntail.stores.jsonl_session import JsonlSession, SerialisedCall
from torntail.stores.lock import WriterLock
from torntail.stores.paths import (
    LOG_SUFFIX,
    MAXIMUM_NAME_BYTES,
    bucket_name,
    companion_name,
    encode_segment,
)

__all__ = ["JsonlStore"]

Durability = Literal["none", "process", "power"]

_STRIPES: Final = 8


class JsonlStore:
    """Sessions as JSONL files under `root`; see `contract.SessionStore` for the calls.

    `durability` is what an acknowledged event survives: `power` syncs as the write path demands;
    `process` and `none` skip every fsync, and `none` claims nothing at all.
    """

    def __init__(self, root: Path | str, durability: Durability = "power") -> None:
        if durability not in ("none", "process", "power"):
            raise ValueError(f"durability is {durability!r}; choose 'power', 'process' or 'none'")
        # Absolute, for the process may change its working directory later. Inside the store paths
        # are strings: making a Path costs as much as several system calls, and a load is made of
        # few.
        self._root = os.fspath(root if os.path.isabs(root) else Path(root).absolute())
        self.durability = durability
        self._durable = durability == "power"
        self._sessions: dict[str, JsonlSession] = {}
        # A few locks shared by all ids: calls on one session are serialised, and no lookup of an
        # unknown id leaves anything behind.
        self._stripes = [threading.RLock() for _ in range(_STRIPES)]
        self._closed = False
        self._process_id = os.getpid()

    @property
    def root(self) -> Path:
        """The directory the sessions are stored under, absolute."""
        return Path(self._root)

    # --- the calls ------------------------------------------------------------------------------

    def create(self, header: SessionHeader) -> None:
        """Announces a session; nothing is stored before its first event (RW-6, RW-7)."""
        self._check_usable(header.id)
        line, header = accept_header(header)
        with self._serialised(header.id):
            name = encode_segment(header.id) + LOG_SUFFIX
            if len(name) > MAXIMUM_NAME_BYTES:
                raise InvalidSessionId(
                    header.id, f"is too long for a file name ({len(name)} bytes encoded)"
                )
            if header.id in self._sessions:
                known = self._sessions[header.id]
                place = None if known.header_line else Path(known.path)
                raise SessionExists(header.id, place)
            for path in self._stored(header.id):
                raise SessionExists(header.id, Path(path))
            path = os.path.join(self._root, bucket_name(header.cwd), name)
            session = JsonlSession(path, self._lock(header.id))
            session.header_line = line
            self._sessions[header.id] = session

    def append(self, session_id: str, events: Iterable[SessionEvent]) -> None:
        """Stores a contiguous batch that begins at the stored next seq; durable on return."""
        self._check_usable(session_id)
        # Before the lock is taken: the iterable is the caller's code and may call the store.
        batch = accept_batch(join_surrogates(session_id), events)
        with self._serialised(session_id) as session_id:
            if not batch:
                return
            known = session_id in self._sessions
            try:
                self._append(session_id, batch)
            except StoreError:
                session = self._sessions.get(session_id)
                if not known and session is not None and not session.lock.held:
                    # The caller has seen nothing of this session: the next append looks anew.
                    del self._sessions[session_id]
                raise

    def _append(self, session_id: str, batch: list[Record]) -> None:
        session = self._sessions.get(session_id)
        if session is not None:
            session.check_alive(session_id)
        if session is None or not session.whole:
            self._load(session_id, None if session is None else session.cursor)
            session = self._sessions[session_id]
            session.check_whole(session_id)
        check_sequence(session_id, batch, session.next_seq)
        if session.header_line is not None:
            self._first_flush(session_id, session, session.header_line, batch)
        else:
            self._writer(session_id, session).append(batch)
        session.next_seq += len(batch)

    def load(self, session_id: str) -> LoadResult:
        """The session with its interrupted turn closed; the repair is durable before it returns."""
        with self._serialised(session_id) as session_id:
            return self._load(session_id)

    def inspect(self, session_id: str) -> LoadResult:
        """What `load` would return; never writes (DM-8)."""
        with self._serialised(session_id) as session_id:
            session = self._sessions.get(session_id)
            read = self._read(session_id, session)
            return load_result(read, None if read.whole else "inspect never writes")

    def reopen(self, session_id: str) -> int:
        """Revives the writer after a storage error: drops the torn tail, writes no closers.

        Returns the next seq. Raises `WriterConflict` when another holds the lock, `StorageFailed`
        when the storage still refuses, and what `load` raises.
        """
        with self._serialised(session_id) as session_id:
            session = self._sessions.get(session_id)
            if session is not None and session.header_line is not None:
                if not self._stored(session_id):
                    # A failed first flush left no log behind; the next one begins anew.
                    session.failed = False
                    return 0
                # It could not remove the log again, or another store made one: that one counts.
                del self._sessions[session_id]
                session.let_go()
                session = None
            if session is None:
                session = self._adopt(session_id, self._read(session_id, None))
            held_before = session.lock.held
            session.lock.acquire()
            try:
                if session.writer is not None:
                    session.writer.revive()
                read = self._read(session_id, session)
                # Until the end is reached nothing may be written behind what is not yet mended.
                session.failed = True
                if session.writer is None:
                    session = self._adopt(session_id, read)
                    session.writer = self._open_writer(session_id, session)
                self._mend(session_id, session.writer, read)
            except BaseException:
                session.step_back(held_before)
                raise
            session.next_seq = len(read.events)
            session.whole = True
            session.failed = False
            return session.next_seq

    def close(self) -> None:
        """Closes the logs and frees the locks; calling it again is harmless (RW-17)."""
        self._closed = True
        if os.getpid() != self._process_id:
            return  # A forked child holds no lock, and its stripes may be locked for ever.
        for stripe in self._stripes:
            stripe.acquire()
        try:
            for session in self._sessions.values():
                session.let_go()
            self._sessions.clear()
        finally:
            for stripe in self._stripes:
                stripe.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # --- reading and repairing ------------------------------------------------------------------

    def _load(self, session_id: str, seen: Cursor | None = None) -> LoadResult:
        """Reads and repairs a session.

        `seen` is given by an append that comes after a load which could not repair: the log must
        still be the one that load saw, or the caller's cursor is stale (MW-4).
        """
        session = self._sessions.get(session_id)
        if session is not None and session.dead:
            # A dead writer repairs nothing; what it never acknowledged is not shown (IO-3).
            read = self._read(session_id, session)
            # A cut that failed, or was not synced, may be undone by a power cut.
            uncut = session.writer is not None and session.writer.uncut
            settled = read.whole and not uncut
            return load_result(read, None if settled else "the writer is dead; call reopen()")
        read = self._read(session_id, session)
        _check_same_log(session_id, read, seen)
        session = self._adopt(session_id, read)
        if read.whole:
            return load_result(read, None)
        held_before = session.lock.held
        try:
            session.lock.acquire()
            # What was read without the lock may have been another writer's work in progress. Where
            # the same bytes stand there now, there is nothing to decide anew; nor to look for: this
            # id gets a second log from nobody but the holder of its lock.
            if not held_before and not still_holds(read):
                read = self._read(session_id, session)
                _check_same_log(session_id, read, seen)
                session = self._adopt(session_id, read)
                if read.whole:
                    session.let_go()
                    return load_result(read, None)
            copy = self._repair(session_id, session, read)
        except BaseException as error:
            session.step_back(held_before)
            if not isinstance(error, WriterConflict | StorageFailed):
                raise
            session.unrepaired = error
            return load_result(read, str(error))
        session.whole = True
        session.next_seq = len(read.events) + len(read.closers)
        return load_result(read, None, copy)

    def _read(self, session_id: str, session: JsonlSession | None) -> ReadLog:
        # Another store may have made what this one only announced.
        if (
            session is not None
            and session.header_line is not None
            and (session.dead or not self._stored(session_id))
        ):
            raise SessionNotFound(session_id)
        limit = None
        if session is not None and session.writer is not None and session.writer.dead:
            limit = session.writer.length
        return read_log(find_log(self._root, session_id), session_id, limit)

    def _stored(self, session_id: str) -> list[str]:
        """Where logs of this id stand, without those that were never materialised."""
        places = log_places(self._root, session_id)
        return [path for path in places if not never_materialised(path)]

    def _adopt(self, session_id: str, read: ReadLog) -> JsonlSession:
        """Remembers what was read: which file, up to where, and the seq that comes next."""
        session = self._sessions.get(session_id)
        if session is None:
            session = self._sessions[session_id] = JsonlSession(read.path, self._lock(session_id))
        if session.writer is not None:
            session.writer.close()
            session.writer = None
        session.path = read.path
        session.header_line = None
        session.cursor = read.cursor
        session.next_seq = len(read.events)
        # An append must not go on behind a torn tail, whatever stops the repair that follows.
        session.whole = read.whole
        session.unrepaired = None
        return session

    def _repair(self, session_id: str, session: JsonlSession, read: ReadLog) -> str | None:
        """Makes storage what `load` returns; gives the name of the copy kept, if one was."""
        writer = session.writer = self._open_writer(session_id, session)
        copy = self._mend(session_id, writer, read)
        if read.closers:
            writer.append(
                [Record(encode_event(closer), closer.type, closer.seq) for closer in read.closers]
            )
        return copy

    def _mend(self, session_id: str, writer: LogWriter, read: ReadLog) -> str | None:
        """Drops the torn tail, its copy kept first, and ends the last line (DM-2, DM-4)."""
        copy = None
        torn = read.scan.torn
        if torn is not None:
            if torn.holds_record:
                copy = keep_torn_tail(session_id, read.path, torn, durable=self._durable)
            writer.cut(read.scan.kept_bytes)
        if read.scan.newline_missing:
            writer.add_newline()
        return copy

    # --- writing --------------------------------------------------------------------------------

    def _writer(self, session_id: str, session: JsonlSession) -> LogWriter:
        """The writer of a loaded session; the first append takes the lock and settles the log."""
        if session.writer is not None:
            return session.writer
        held_before = session.lock.held
        session.lock.acquire()
        try:
            session.writer = self._open_writer(session_id, session)
        except StoreError:
            if not held_before:
                session.lock.release()
            raise
        return session.writer

    def _open_writer(self, session_id: str, session: JsonlSession) -> LogWriter:
        """Opens the log that was read, under the lock; what stands in it is made durable first."""
        assert session.cursor is not None
        try:
            return LogWriter.open(
                session_id,
                session.path,
                session.cursor,
                durable=self._durable,
                write_again=session.failed,
            )
        except StorageFailed as error:
            session.failed = error.writer_dead
            raise

    def _first_flush(
        self, session_id: str, session: JsonlSession, header_line: bytes, batch: list[Record]
    ) -> None:
        """Materialises a session with its first batch (RW-6, CR-10)."""
        session.lock.acquire()
        try:
            for path in log_places(self._root, session_id):
                if not never_materialised(path):
                    raise SessionExists(session_id, Path(path))
                move_aside(session_id, path, durable=self._durable)
            session.writer = LogWriter.create(
                session_id, session.path, header_line, batch, durable=self._durable
            )
        except SessionExists:
            # Another store made it since: this announcement is void, and load finds the other.
            del self._sessions[session_id]
            session.let_go()
            raise
        except StoreError as error:
            session.lock.release()
            session.failed = isinstance(error, StorageFailed) and error.writer_dead
            raise
        session.header_line = None
        session.cursor = None

    def _lock(self, session_id: str) -> WriterLock:
        name = companion_name(encode_segment(session_id), ".lock")
        return WriterLock(f"{self._root}/.locks/{name}", session_id)

    def _serialised(self, session_id: str) -> SerialisedCall:
        """One call at a time on a session; gives the id in its one spelling."""
        session_id = join_surrogates(session_id)
        # Before the lock is taken: another thread may have held it when this process was forked.
        self._check_usable(session_id)
        return SerialisedCall(
            session_id, self._stripes[hash(session_id) % _STRIPES], self._check_usable
        )

    def _check_usable(self, session_id: str) -> None:
        if self._closed:
            raise StoreClosed
        if os.getpid() != self._process_id:
            raise StorageFailed(
                session_id, self.root, "use in a forked process", "open a store of its own"
            )

    def list(self) -> list[ListEntry]:
        """One entry per log in storage; reads first lines only and never writes (RW-9)."""
        with self._serialised(""):
            return list_logs(self.root)


def _check_same_log(session_id: str, read: ReadLog, seen: Cursor | None) -> None:
    if seen is not None and read.cursor != seen:
        reason = "another writer changed the log since it was loaded; load it again"
        raise WriterConflict(session_id, Path(read.path), reason)
