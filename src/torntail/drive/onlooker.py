"""A second process that looks at, and damages, the storage of a store under test.

Opening and closing a file in the process whose store has it open would drop the locks that SQLite
(and any user of POSIX record locks) holds on it, so nothing here may run in that process: a child,
started once, reads the files, reads the rows of a copy of each database, and makes the damages of
`layout` and `rows`. Decides what counts as a change: for a file its bytes, for a database the rows
an independent reader sees, so that what the engine does with its side files does not count. Does
not decide which changes are allowed (`judge`).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pickle
import re
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Final, NamedTuple, Self

from torntail.judge.history import MARK_PATTERN, Damage, Damaged, NotPossible

__all__ = [
    "HarnessError",
    "Onlooker",
    "Storage",
    "StorageTooLarge",
    "StoredFile",
    "take_snapshot",
]

_MARK: Final = re.compile(MARK_PATTERN)
_SIDE_FILES: Final = ("-wal", "-shm", "-journal")


class HarnessError(Exception):
    """torntail itself failed, so that nothing is proven about the store."""


class StorageTooLarge(HarnessError):
    """The store made a file that is too long to be looked at, be it a hole for the most part."""


_LARGEST_FILE_BYTES: Final = 1 << 28


class StoredFile(NamedTuple):
    """A file of the storage: a digest of its bytes (or rows), its size, the marks it holds."""

    digest: str
    size: int
    marks: dict[str, int]


Storage = dict[str, StoredFile]
"""Every regular file under a case's directory, by its path relative to the store's root."""


class _Seen(NamedTuple):
    """A file as it was looked at, when, and what the file system said of it then."""

    status: tuple[int, ...]
    at: int
    file: StoredFile


_Cache = dict[str, _Seen]

# Time stamps of files are coarse: one that is younger than this when a file is read says nothing
# about a write that follows at once.
_SETTLED_NANOSECONDS: Final = 50_000_000


def take_snapshot(root: Path, scratch: Path, seen: _Cache | None = None) -> Storage:
    """The storage under the folder that holds `root`; paths outside the root begin with `..`.

    `seen` carries over what large or many files were, as long as their time stamps can be trusted.
    """
    files: Storage = {}
    seen = {} if seen is None else seen
    for folder, _, names in os.walk(root.parent):
        found = set(names)
        prefix = os.path.relpath(folder, root)
        prefix = "" if prefix == "." else f"{prefix}/"
        for name in sorted(found):
            if any(
                name.endswith(suffix) and name.removesuffix(suffix) in found
                for suffix in _SIDE_FILES
            ):
                continue
            beside = [f"{name}{suffix}" for suffix in _SIDE_FILES if f"{name}{suffix}" in found]
            with contextlib.suppress(FileNotFoundError):
                file = _look_again(folder, [name, *beside], scratch, seen)
                if file is not None:
                    files[prefix + name] = file
    return files


def _look_again(folder: str, names: list[str], scratch: Path, seen: _Cache) -> StoredFile | None:
    """A file and what stands beside it; None for what is no regular file."""
    path = f"{folder}/{names[0]}"
    status: tuple[int, ...] = ()
    newest = 0
    for name in names:
        one = os.lstat(f"{folder}/{name}")
        if not stat.S_ISREG(one.st_mode):
            return None
        status += (one.st_ino, one.st_size, one.st_mtime_ns, one.st_ctime_ns)
        newest = max(newest, one.st_mtime_ns, one.st_ctime_ns)
    known = seen.get(path)
    if known and known.status == status and newest + _SETTLED_NANOSECONDS < known.at:
        return known.file
    at = time.time_ns()
    file = _look_at(path, scratch)
    seen[path] = _Seen(status, at, file)
    return file


def _look_at(path: str, scratch: Path) -> StoredFile:
    with open(path, "rb") as file:
        size_bytes = os.fstat(file.fileno()).st_size
        if size_bytes > _LARGEST_FILE_BYTES:
            raise StorageTooLarge(
                f"the store made a file {size_bytes:,} bytes long, {os.path.basename(path)!r}: "
                f"{_LARGEST_FILE_BYTES:,} are looked at at most"
            )
        content = file.read()
    if content.startswith(b"SQLite format 3\0"):
        with contextlib.suppress(sqlite3.Error, OSError):
            return _look_at_rows(Path(path), scratch)
    marks = Counter(mark.decode("ascii") for mark in _MARK.findall(content))
    return StoredFile(hashlib.sha256(content).hexdigest(), len(content), dict(marks))


def _look_at_rows(path: Path, scratch: Path) -> StoredFile:
    """The rows of a database, read from a copy so that the original sees no connection."""
    copy = scratch / "copy.db"
    for suffix in ("", *_SIDE_FILES):
        Path(f"{copy}{suffix}").unlink(missing_ok=True)
    # Without the -shm: it is rebuilt from the WAL, and may be in use.
    for suffix in ("", "-wal", "-journal"):
        if Path(f"{path}{suffix}").exists():
            shutil.copyfile(f"{path}{suffix}", f"{copy}{suffix}")
    digest = hashlib.sha256()
    marks: Counter[str] = Counter()
    with contextlib.closing(sqlite3.connect(copy)) as connection:
        connection.text_factory = bytes
        tables = connection.execute(
            "SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name"
        ).fetchall()
        for (table,) in tables:
            name = table.decode("utf-8")
            digest.update(table)
            quoted = name.replace('"', '""')
            for row in connection.execute(f'SELECT * FROM "{quoted}"'):
                for cell in row:
                    text = cell if isinstance(cell, bytes) else repr(cell).encode("ascii")
                    digest.update(b"%d %d " % (isinstance(cell, bytes), len(text)))
                    digest.update(text)
                    marks.update(mark.decode("ascii") for mark in _MARK.findall(text))
    return StoredFile(digest.hexdigest(), path.stat().st_size, dict(marks))


# --- the two ends of the pipe ---------------------------------------------------------------------


class Onlooker:
    """The child process; a context manager. `scratch` is where it copies databases to."""

    def __init__(self, scratch: Path | None = None) -> None:
        self._scratch = scratch
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        assert process.stdout is not None
        with contextlib.suppress(OSError):
            # Said, and not only the pipe closed: a child that the store forked may hold it open.
            pickle.dump(None, process.stdin)
            process.stdin.close()
        process.wait()
        process.stdout.close()

    def snapshot(self, root: Path) -> Storage:
        """What stands in storage now."""
        storage: Storage = self._ask(("snapshot", root))
        return storage

    def damage(
        self, root: Path, damage: Damage, marks: dict[str, dict[int, str]]
    ) -> Damaged | NotPossible:
        """Makes a damage; `marks` are the marks of each session's records, by index."""
        outcome: Damaged | NotPossible = self._ask(("damage", root, damage, marks))
        return outcome

    def _ask(self, request: tuple[Any, ...]) -> Any:
        if self._process is None:
            start = f"import sys; sys.path[:] = {sys.path!r}; "
            start += f"from {__name__} import serve; serve({str(self._scratch or '')!r})"
            self._process = subprocess.Popen(
                [sys.executable, "-c", start], stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            pickle.dump(request, self._process.stdin)
            self._process.stdin.flush()
            answer = pickle.load(self._process.stdout)
        except (OSError, EOFError) as error:
            raise HarnessError(f"the onlooker process died: {error}") from error
        if isinstance(answer, StorageTooLarge):
            raise answer
        if isinstance(answer, BaseException):
            raise HarnessError(f"the onlooker failed at {request[0]}: {answer!r}") from answer
        return answer


def serve(parent: str = "") -> None:
    """Answers requests from standard input until it ends."""
    from torntail.drive.layout import Damager

    # Ctrl-C is for the parent, which ends this process by closing the pipe.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    requests: BinaryIO = sys.stdin.buffer
    answers: BinaryIO = sys.stdout.buffer
    damager = Damager()
    root, seen = Path(), _Cache()
    with tempfile.TemporaryDirectory(prefix="onlooker-", dir=parent or None) as scratch:
        while True:
            try:
                request = pickle.load(requests)
            except EOFError:
                return
            if request is None:
                return
            answer: object
            try:
                if request[1] != root:
                    root, seen = request[1], _Cache()
                if request[0] == "snapshot":
                    answer = take_snapshot(root, Path(scratch), seen)
                else:
                    seen.clear()
                    answer = damager.apply(*request[1:])
            except Exception as error:
                answer = error
            pickle.dump(answer, answers)
            answers.flush()
