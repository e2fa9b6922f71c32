"""A session store of JSONL files, one per session, in the layout of era S.

Decides when a log is read, repaired and written, and by whom: the life of a session in one store
object. The order of bytes and fsyncs is in `jsonl_log`, reading in `jsonl_read`, the meaning of the
bytes in `session.scan`. Does not cover write-behind or live sessions.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Literal, Self

from torntail.session import SessionEvent, SessionHeader, TornTail, encode_event, join_surrogates
from torntail.stores.contract import (
    InvalidSessionId,
    ListEntry,
    LoadResult,
    RepairReport,
    SessionExists,
    SessionNotFound,
    StorageFailed,
    StoreClosed,
    StoreError,
    WriterConflict,
)
from torntail.stores.entrance import Record, accept_batch, accept_header, check_sequence
from torntail.stores.files import FILE_MODE, open_log, sync_directory, sync_file, write_all
from torntail.stores.jsonl_log import Cursor, LogWriter
from torntail.stores.jsonl_read import (
    ReadLog,
    find_log,
    find_logs,
    list_logs,
    never_materialised,
    read_log,
)
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
_COPY_CHUNK_BYTES: Final = 1 << 20


class _Session:
    """What a store object knows of a session that it created or loaded.

    `header_line` is set while the session is not materialised; `cursor` once it was read;
    `writer` while this object writes it; `unrepaired` says why the last load was not durable;
    `failed` that an fsync failed before there was a writer to carry that news, or that a `reopen`
    did not come to its end.
    """

    __slots__ = (
        "cursor",
        "failed",
        "header_line",
        "lock",
        "next_seq",
        "path",
        "unrepaired",
        "writer",
    )

    def __init__(self, path: Path, lock: WriterLock) -> None:
        self.path = path
        self.lock = lock
        self.header_line: bytes | None = None
        self.cursor: Cursor | None = None
        self.writer: LogWriter | None = None
        self.next_seq = 0
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
            raise StorageFailed(session_id, self.path, "append", cause, writer_dead=True)

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


class JsonlStore:
    """Sessions as JSONL files under `root`; see `contract.SessionStore` for the calls.

    `durability` is what an acknowledged event survives: `power` syncs as the write path demands;
    `process` and `none` skip every fsync, and `none` claims nothing at all.
    """

    def __init__(self, root: Path | str, durability: Durability = "power") -> None:
        if durability not in ("none", "process", "power"):
            raise ValueError(f"durability is {durability!r}; choose 'power', 'process' or 'none'")
        # Absolute, for the process may change its working directory later.
        self.root = Path(root).absolute()
        self.durability = durability
        self._durable = durability == "power"
        self._sessions: dict[str, _Session] = {}
        # A few locks shared by all ids: calls on one session are serialised, and no lookup of an
        # unknown id leaves anything behind.
        self._stripes = [threading.RLock() for _ in range(_STRIPES)]
        self._closed = False
        self._process_id = os.getpid()

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
                raise SessionExists(header.id, None if known.header_line else known.path)
            for path in self._stored(header.id):
                raise SessionExists(header.id, path)
            session = _Session(self.root / bucket_name(header.cwd) / name, self._lock(header.id))
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
        if session is None or session.unrepaired is not None:
            self._load(session_id, None if session is None else session.cursor)
            session = self._sessions[session_id]
            if session.unrepaired is not None:
                raise session.unrepaired
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
            return _result(read, None if read.whole else "inspect never writes")

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
            session.unrepaired = None
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
            return _result(read, None if read.whole else "the writer is dead; call reopen()")
        read = self._read(session_id, session)
        _check_same_log(session_id, read, seen)
        session = self._adopt(session_id, read)
        if read.whole:
            return _result(read, None)
        held_before = session.lock.held
        try:
            session.lock.acquire()
            if not held_before:
                # What was read without the lock may have been another writer's work in progress.
                read = self._read(session_id, session)
                _check_same_log(session_id, read, seen)
                session = self._adopt(session_id, read)
                if read.whole:
                    session.let_go()
                    return _result(read, None)
            copy = self._repair(session_id, session, read)
        except BaseException as error:
            session.step_back(held_before)
            if not isinstance(error, WriterConflict | StorageFailed):
                raise
            session.unrepaired = error
            return _result(read, str(error))
        session.unrepaired = None
        session.next_seq = len(read.events) + len(read.closers)
        return _result(read, None, copy)

    def _read(self, session_id: str, session: _Session | None) -> ReadLog:
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
        return read_log(find_log(self.root, session_id), session_id, limit)

    def _stored(self, session_id: str) -> list[Path]:
        """Where logs of this id stand, without those that were never materialised."""
        return [path for path in find_logs(self.root, session_id) if not never_materialised(path)]

    def _adopt(self, session_id: str, read: ReadLog) -> _Session:
        """Remembers what was read: which file, up to where, and the seq that comes next."""
        session = self._sessions.get(session_id)
        if session is None:
            session = self._sessions[session_id] = _Session(read.path, self._lock(session_id))
        if session.writer is not None:
            session.writer.close()
            session.writer = None
        session.path = read.path
        session.header_line = None
        session.cursor = read.cursor
        session.next_seq = len(read.events)
        # An append must not go on behind a torn tail, whatever stops the repair that follows.
        session.unrepaired = (
            None
            if read.whole
            else StorageFailed(session_id, read.path, "repair", "it did not come to its end")
        )
        return session

    def _repair(self, session_id: str, session: _Session, read: ReadLog) -> str | None:
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
                copy = self._keep_copy(session_id, read.path, torn)
            writer.cut(read.scan.kept_bytes)
        if read.scan.newline_missing:
            writer.add_newline()
        return copy

    def _keep_copy(self, session_id: str, path: Path, torn: TornTail) -> str:
        """Copies the torn tail beside the log, durably; again under the same name if repeated."""
        stem = path.name.removesuffix(LOG_SUFFIX)
        name = companion_name(stem, f"{LOG_SUFFIX}.torn-{torn.byte}-{torn.digest[:16]}")
        temporary = path.with_name(companion_name(stem, f"{LOG_SUFFIX}.torn.tmp"))
        target = path.with_name(name)
        try:
            temporary.unlink(missing_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
            descriptor = os.open(temporary, flags, FILE_MODE)
            try:
                with os.fdopen(open_log(path, os.O_RDONLY), "rb") as source:
                    source.seek(torn.byte)
                    while chunk := source.read(_COPY_CHUNK_BYTES):
                        write_all(descriptor, chunk)
                if self._durable:
                    sync_file(descriptor)
            finally:
                os.close(descriptor)
            temporary.replace(target)
            if self._durable:
                sync_directory(path.parent)
        except OSError as error:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise StorageFailed(session_id, target, "copy of the torn tail", error) from error
        return str(target)

    # --- writing --------------------------------------------------------------------------------

    def _writer(self, session_id: str, session: _Session) -> LogWriter:
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

    def _open_writer(self, session_id: str, session: _Session) -> LogWriter:
        """Opens the log that was read, under the lock; what stands in it is made durable first."""
        assert session.cursor is not None
        try:
            return LogWriter.open(session_id, session.path, session.cursor, durable=self._durable)
        except StorageFailed as error:
            session.failed = error.writer_dead
            raise

    def _first_flush(
        self, session_id: str, session: _Session, header_line: bytes, batch: list[Record]
    ) -> None:
        """Materialises a session with its first batch (RW-6, CR-10)."""
        session.lock.acquire()
        try:
            for path in find_logs(self.root, session_id):
                if not never_materialised(path):
                    raise SessionExists(session_id, path)
                self._move_aside(session_id, path)
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

    def _move_aside(self, session_id: str, path: Path) -> None:
        """Keeps the bytes of a log that was never materialised, and frees its name (DM-6)."""
        try:
            with os.fdopen(open_log(path, os.O_RDONLY), "rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()[:16]
            stem = path.name.removesuffix(LOG_SUFFIX)
            path.replace(path.with_name(companion_name(stem, f"{LOG_SUFFIX}.aside-{digest}")))
            if self._durable:
                # Its folder need not be the new log's: back after a power cut, it would be a second
                # place of the same id.
                sync_directory(path.parent)
        except OSError as error:
            raise StorageFailed(session_id, path, "moving aside", error) from error

    def _lock(self, session_id: str) -> WriterLock:
        name = companion_name(encode_segment(session_id), ".lock")
        return WriterLock(self.root / ".locks" / name, session_id)

    @contextmanager
    def _serialised(self, session_id: str) -> Iterator[str]:
        """One call at a time on a session; gives the id in its one spelling."""
        session_id = join_surrogates(session_id)
        # Before the lock is taken: another thread may have held it when this process was forked.
        self._check_usable(session_id)
        with self._stripes[hash(session_id) % _STRIPES]:
            self._check_usable(session_id)
            yield session_id

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
        raise WriterConflict(session_id, read.path, reason)


def _result(read: ReadLog, reason: str | None, copy: str | None = None) -> LoadResult:
    torn = read.scan.torn
    report = RepairReport(
        torn_from_line=None if torn is None else torn.line,
        torn_from_byte=None if torn is None else torn.byte,
        torn_bytes=0 if torn is None else torn.length,
        copy_kept=copy,
        newline_added=read.scan.newline_missing,
        closers=tuple(read.closers),
        durable=reason is None,
        reason=reason,
    )
    return LoadResult(read.header, [*read.events, *read.closers], report)
