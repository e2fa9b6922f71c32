"""The database file under a SqliteStore: how it is found, opened, read and written.

Decides: nothing but an append creates a file; a database that is not ours is looked at in a way
that changes no byte; what cannot be opened for writing is read all the same (IO-5); a file that was
replaced under a live writer is noticed (IO-6); no connection crosses a fork. Does not decide what
stands in the rows (`sqlite_rows`) or who may write (`lock`).
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
import sys
import tempfile
import threading
import time
import urllib.parse
import weakref
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from torntail.stores.contract import StorageFailed, WriterConflict
from torntail.stores.files import FILE_MODE, make_directories, sync_directories
from torntail.stores.sqlite_schema import fill, identify
from torntail.stores.sqlite_settings import Settings

__all__ = ["Database", "FileMark", "primary_code"]


@dataclass(frozen=True, slots=True)
class FileMark:
    """Which file a database was, and how long; a database file never grows shorter by itself."""

    device: int
    inode: int
    size: int

    def problem(self, now: FileMark) -> str | None:
        """Why `now` is not this file, grown or not; None if it is."""
        if (now.device, now.inode) != (self.device, self.inode):
            return "the database was replaced"
        return "the database was truncated" if now.size < self.size else None


_MINIMUM_VERSION: Final = (3, 37, 0)
_BESIDE: Final = ("-wal", "-journal")
_JOURNAL_MAGIC: Final = bytes.fromhex("d9d505f920a163d7")
# What a file is whose pages were written in part; its journal is still to be rolled back.
_IN_PART: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_COPY_ATTEMPTS: Final = 5
_RETRY_SECONDS: Final = 0.005

# What an attempt to read raises where database, -shm or directory cannot be written.
_CANNOT_WRITE: Final = frozenset(
    {sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM}
)
# After these the transaction is rolled back and nothing is in doubt: no fsync has failed (IO-2).
_HARMLESS: Final = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_READONLY,
    }
)

# Closing a descriptor of a file drops every POSIX lock this process holds on it, SQLite's too. So
# nothing in this process connects to a database while the descriptor that made its file is open.
_CREATION = threading.Lock()


def primary_code(error: BaseException) -> int:
    """The primary result code of a SQLite error, 0 for any other error."""
    code: int = getattr(error, "sqlite_errorcode", None) or 0
    return code & 0xFF


class Database:
    """One database file and the connection to it; `mutex` guards both, and the caller holds it.

    `process` is the process that made this object, the only one that may use it.
    With a durability of `power` directories are synced before the first commit is acknowledged, and
    on macOS every sync goes down to the medium. `journal_mode` is set, and read back, before the
    first write: readers take no notice of it.
    """

    def __init__(self, path: Path, settings: Settings) -> None:
        # Journal, log and locks stand beside the file itself, not beside a link to it.
        self.path = Path(os.path.realpath(path))
        self.mutex = threading.RLock()
        self.process = os.getpid()
        self._settings = settings
        self._connection: sqlite3.Connection | None = None
        self._file: FileMark | None = None
        self._generation = 0
        self._prepared = False
        self._directories_synced = not settings.durable
        if sqlite3.sqlite_version_info < _MINIMUM_VERSION:
            raise StorageFailed(
                None, path, "open", f"SQLite {sqlite3.sqlite_version} is older than 3.37"
            )
        with _FORK:
            _DATABASES.add(self)

    @property
    def file(self) -> FileMark | None:
        """The file the connection is to, as it was last seen."""
        return self._file

    def check_process(self) -> None:
        """Raises `StorageFailed` in a forked child: SQLite forbids the use of a parent's handle."""
        if os.getpid() != self.process:
            raise StorageFailed(
                None, self.path, "use", "this store was opened before a fork; open a new one here"
            )

    # --- reading --------------------------------------------------------------------------------

    @contextmanager
    def reading(self, session_id: str | None = None) -> Iterator[sqlite3.Connection | None]:
        """A read transaction over one state of the database; None where there is no database yet.

        Creates nothing and writes no row. Raises `StorageFailed` where one cannot look (RW-8).
        """
        with ExitStack() as stack:
            connection = self._reader(stack)
            try:
                yield connection
            except sqlite3.Error as error:
                raise StorageFailed(session_id, self.path, "read", error) from error
            finally:
                if connection is not None and connection.in_transaction:
                    connection.execute("ROLLBACK")

    def version(self, connection: sqlite3.Connection) -> tuple[int, int] | None:
        """Names the state that `connection` sees, to tell later whether another has written since.

        None for a private copy, of which nothing can be told.
        """
        if connection is not self._connection:
            return None
        return self._generation, int(connection.execute("PRAGMA data_version").fetchone()[0])

    def _reader(self, stack: ExitStack) -> sqlite3.Connection | None:
        status = self._look()
        if status is None:
            return None
        try:
            if self._connection is None and not self._open(status):
                return None
            connection = self._connection
            assert connection is not None
            connection.execute("BEGIN")
            if identify(connection, self.path):
                return connection
            self.disconnect()  # The hot journal of a creation that a crash cut: new again.
            return None
        except sqlite3.Error as error:
            self.disconnect()
            if primary_code(error) not in _CANNOT_WRITE:
                raise StorageFailed(None, self.path, "open", error) from error
        except BaseException:
            self.disconnect()
            raise
        return self._read_only(stack)

    def _read_only(self, stack: ExitStack) -> sqlite3.Connection | None:
        """Reads where SQLite would have to write first: in place, or in a private copy (IO-5)."""
        try:
            if self._beside():
                directory = Path(tempfile.mkdtemp(prefix="torntail-"))
                stack.callback(shutil.rmtree, directory, ignore_errors=True)
                connection = self._connect("rw", path=self._copy(directory))
            else:
                connection = self._connect("ro", immutable=True)
            stack.callback(connection.close)
            connection.execute("BEGIN")
            return connection if identify(connection, self.path) else None
        except (sqlite3.Error, OSError) as error:
            raise StorageFailed(None, self.path, "open", error) from error

    def _copy(self, directory: Path) -> Path:
        """Copies the files while they stand still: a writer with more rights may be at work."""
        for attempt in range(_COPY_ATTEMPTS):
            copy = directory / f"copy-{attempt}"
            suffixes = ["", *self._beside()]
            try:
                before = self._fingerprint(suffixes)
                for suffix in suffixes:
                    shutil.copyfile(f"{self.path}{suffix}", f"{copy}{suffix}")
                if before == self._fingerprint(suffixes):
                    return copy
            except FileNotFoundError:
                continue
        raise OSError(f"the database changed during {_COPY_ATTEMPTS} attempts to copy it")

    def _beside(self) -> list[str]:
        """What stands beside the database and holds a part of its content."""
        return [suffix for suffix in _BESIDE if os.path.lexists(f"{self.path}{suffix}")]

    def _fingerprint(self, suffixes: list[str]) -> list[tuple[int, int, int]]:
        found = [os.stat(f"{self.path}{suffix}") for suffix in suffixes]
        return [(status.st_ino, status.st_size, status.st_mtime_ns) for status in found]

    # --- writing --------------------------------------------------------------------------------

    def prepare(
        self, session_id: str, *, create: bool = False, file: FileMark | None = None
    ) -> None:
        """Connects for writing; with `create` makes the file and the tables where there are none.

        `file` is the one that must still be there (IO-6). Raises `WriterConflict` where it is not,
        `StorageFailed`.
        """
        if not create:
            # Before SQLite looks: it would close, and so change, what was replaced or truncated.
            self._check_unchanged(session_id, file)
        try:
            status = self._look()
            if self._connection is None:
                if status is None:
                    if not create:
                        raise WriterConflict(session_id, self.path, "the database is gone")
                    status = self._make_file()
                if not self._open(status) and create:
                    self._attach(status)
            if not self._prepared:
                self._set_up(session_id, create=create)
        except (sqlite3.Error, OSError) as error:
            self.disconnect()
            raise StorageFailed(session_id, self.path, "open", error) from error
        except BaseException:
            self.disconnect()
            raise

    @contextmanager
    def writing(
        self, session_id: str, file: FileMark | None = None
    ) -> Iterator[sqlite3.Connection]:
        """One transaction of a prepared database: durable when the block ends, or rolled back.

        `file` is the one that must still be there (IO-6). Raises `StorageFailed`, whose
        `writer_dead` says that what is in storage is in doubt, and `WriterConflict`.
        """
        connection = self._connection
        assert connection is not None
        file = file or self._file
        operation = "begin"
        try:
            self._check_unchanged(session_id, file)
            connection.execute("BEGIN IMMEDIATE")
            # Only now is its size what was committed: what a killed writer left is rolled back.
            self._file = self._check_unchanged(session_id, file)
            operation = "write"
            yield connection
            operation = "commit"
            connection.execute("COMMIT")
            operation = "fsync of the directories"
            if not self._directories_synced:
                sync_directories(self.path.parent)
                self._directories_synced = True
        except BaseException as error:
            rolled_back = self._roll_back(connection)
            if not isinstance(error, sqlite3.Error | OSError):
                if not rolled_back:
                    self.disconnect()
                raise
            harmless = rolled_back and primary_code(error) in _HARMLESS
            if not harmless:
                # A connection that met a failed sync is not trusted with what follows (IO-3).
                self.disconnect()
            raise StorageFailed(
                session_id, self.path, operation, error, writer_dead=not harmless
            ) from error

    def disconnect(self) -> None:
        """Closes the connection, if there is one; the next call opens the file anew."""
        connection, self._connection = self._connection, None
        self._file = None
        self._prepared = False
        if connection is not None:
            connection.close()

    def _check_unchanged(self, session_id: str, file: FileMark | None) -> FileMark:
        status = self._status()
        if status is None:
            raise WriterConflict(session_id, self.path, "the database is gone")
        now = _mark(status)
        for known in (file, self._file):
            problem = None if known is None else known.problem(now)
            if problem is not None:
                raise WriterConflict(session_id, self.path, problem)
        return now

    def _roll_back(self, connection: sqlite3.Connection) -> bool:
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        except sqlite3.Error:
            return False
        return True

    def _make_file(self) -> os.stat_result:
        """An empty file, private to the user; one that another process made first will do."""
        make_directories(self.path.parent)
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with _CREATION:
            try:
                os.close(os.open(self.path, flags, FILE_MODE))
            except FileExistsError:
                pass
        return os.stat(self.path)

    def _set_up(self, session_id: str, *, create: bool) -> None:
        """Makes the tables, if that is wanted, and the connection one that may write."""
        connection = self._connection
        if connection is None or not (create or identify(connection, self.path)):
            raise WriterConflict(session_id, self.path, "the database was emptied")
        if create:
            if self._settings.careful_creation:
                # Tables are made under a rollback journal, whose removal must be durable, too.
                connection.execute("PRAGMA synchronous = EXTRA")
            fill(connection, self.path)
        mode = self._change_journal_mode(connection)
        if mode != self._settings.journal_mode:
            raise StorageFailed(
                None,
                self.path,
                "journal_mode",
                f"asked for {self._settings.journal_mode}, the database stays with {mode}",
            )
        connection.execute(f"PRAGMA synchronous = {self._settings.synchronous}")
        self._prepared = True

    def _change_journal_mode(self, connection: sqlite3.Connection) -> str:
        """Sets the mode and reads it back; not for every lock it needs SQLite waits itself."""
        deadline = time.monotonic() + self._settings.busy_timeout
        while True:
            try:
                row = connection.execute(f"PRAGMA journal_mode = {self._settings.journal_mode}")
                return bytes(row.fetchone()[0]).decode()
            except sqlite3.OperationalError as error:
                if primary_code(error) != sqlite3.SQLITE_BUSY or time.monotonic() >= deadline:
                    raise
            time.sleep(_RETRY_SECONDS)

    # --- opening --------------------------------------------------------------------------------

    def _status(self) -> os.stat_result | None:
        try:
            status = os.stat(self.path)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StorageFailed(None, self.path, "stat", error) from error
        if not stat.S_ISREG(status.st_mode):
            raise StorageFailed(None, self.path, "open", "it is not a regular file")
        return status

    def _look(self) -> os.stat_result | None:
        """The file's status now; leaves a connection to a file that is no longer this one."""
        status = self._status()
        if self._connection is not None and (
            status is None or self._file is None or self._file.problem(_mark(status)) is not None
        ):
            self.disconnect()
        return status

    def _open(self, status: os.stat_result) -> bool:
        """Connects to a database that is ours; False, and no connection, where it is new."""
        if not self._is_ours(status):
            return False
        self._attach(status)
        return True

    def _attach(self, status: os.stat_result) -> None:
        self._connection = self._connect("rw")
        self._generation += 1
        now = self._status()
        if now is None or not os.path.samestat(status, now):
            raise StorageFailed(None, self.path, "open", "the file was replaced meanwhile")
        # Connecting may have made it shorter: what a killed writer left is rolled back.
        self._file = _mark(now)

    def _is_ours(self, status: os.stat_result) -> bool:
        """Whether the file may be ours, or is new (False), without changing a byte of it.

        An immutable connection reads the main file only and takes no lock. Where that shows nothing
        and a write-ahead log stands beside it, a read-only connection looks at both: it does not
        move the log's content on closing, as others would. Beside a rollback journal nothing can be
        told before SQLite has rolled back, not even by a first page that a crash has torn: then
        True, and `identify` on the connection decides.
        """
        beside = self._beside()
        try:
            if self._peek(status, immutable=True):
                return True
        except sqlite3.Error as error:
            if primary_code(error) not in _IN_PART:
                raise
            if not self._is_journaled():
                # Another process may have made the database while it was looked at without a lock.
                now = self._status()
                if now is None or _state(now) == _state(status):
                    raise
                return self._is_ours(now)
        if "-journal" in beside:
            return True
        return "-wal" in beside and self._peek(status, immutable=False)

    def _peek(self, status: os.stat_result, *, immutable: bool) -> bool:
        connection = self._connect("ro", immutable=immutable)
        try:
            ours = identify(connection, self.path, check_tables=False)
            # SQLite takes a file shorter than its own header for an empty database. One of a single
            # byte is: a creation leaves it even when SQLite has rolled it back, since that counts
            # it as none, and not being synced it may be any byte after a power cut.
            if not ours and status.st_size > 1:
                pages = connection.execute("PRAGMA page_count").fetchone()[0]
                if not pages:
                    error = sqlite3.DatabaseError("the file is not a database")
                    error.sqlite_errorcode = sqlite3.SQLITE_NOTADB
                    raise error
            return ours
        finally:
            connection.close()

    def _is_journaled(self) -> bool:
        """Whether a rollback journal stands beside the file whose header SQLite has finished."""
        try:
            with open(f"{self.path}-journal", "rb") as journal:
                return journal.read(len(_JOURNAL_MAGIC)) == _JOURNAL_MAGIC
        except OSError:
            return False

    def _connect(
        self, mode: str, *, path: Path | None = None, immutable: bool = False
    ) -> sqlite3.Connection:
        name = urllib.parse.quote(os.fsencode(path or self.path))
        uri = f"file://{name}?mode={mode}{'&immutable=1' if immutable else ''}"
        with _CREATION:
            connection = sqlite3.connect(
                uri,
                uri=True,
                timeout=self._settings.busy_timeout,
                isolation_level=None,
                check_same_thread=False,
            )
        try:
            connection.text_factory = bytes
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.execute(f"PRAGMA synchronous = {self._settings.synchronous}")
            if self._settings.durable and sys.platform == "darwin":
                connection.execute("PRAGMA fullfsync = 1")
                connection.execute("PRAGMA checkpoint_fullfsync = 1")
        except BaseException:
            connection.close()
            raise
        return connection


def _state(status: os.stat_result) -> tuple[int, int, int, int]:
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _mark(status: os.stat_result) -> FileMark:
    return FileMark(status.st_dev, status.st_ino, status.st_size)


# --- forks --------------------------------------------------------------------------------------
#
# SQLite keeps its locks in memory that a child would inherit and believe in, also on connections of
# its own to the same file. So every connection is closed before the process forks, with the mutex
# held, and opened again by the next call in the parent.

_FORK = threading.Lock()
_DATABASES: weakref.WeakSet[Database] = weakref.WeakSet()
_held: list[Database] = []


def _before_fork() -> None:
    _FORK.acquire()
    for database in list(_DATABASES):
        database.mutex.acquire()
        _held.append(database)
        connection = database._connection
        # In a transaction only where a signal handler forks in the middle of a call.
        if connection is not None and not connection.in_transaction:
            database.disconnect()


def _after_fork() -> None:
    while _held:
        _held.pop().mutex.release()
    _FORK.release()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)
