"""Reading JSONL logs from a store's root: finding, scanning, listing. Never writes (DM-8).

Decides where a session is looked for and how absence is told apart from "cannot look" (RW-8,
RW-9, RW-15). What the bytes mean is decided by `session.scan`.
"""

from __future__ import annotations

import errno
import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from torntail.session import (
    LogScan,
    MalformedRecord,
    Outcome,
    SessionEvent,
    SessionHeader,
    interrupted_turn_closers,
    parse_header,
    scan_log,
)
from torntail.session.codec import MAXIMUM_RECORD_BYTES
from torntail.stores.contract import (
    IdentityMismatch,
    ListEntry,
    NeverMaterialised,
    SessionCorrupted,
    SessionNotFound,
    StorageFailed,
    StoreError,
    UnsupportedVersion,
)
from torntail.stores.files import open_log
from torntail.stores.jsonl_log import Cursor
from torntail.stores.paths import (
    LOG_SUFFIX,
    MAXIMUM_NAME_BYTES,
    decode_segment,
    encode_segment,
    is_bucket_name,
)

__all__ = ["ReadLog", "find_log", "find_logs", "list_logs", "never_materialised", "read_log"]

_BLOCK_BYTES: Final = 1 << 18


@dataclass(frozen=True, slots=True)
class ReadLog:
    """A log read once: what the scan decided, the events kept, the closers they need."""

    path: Path
    scan: LogScan
    header: SessionHeader
    events: list[SessionEvent]
    closers: list[SessionEvent]
    cursor: Cursor

    @property
    def whole(self) -> bool:
        """Whether there is nothing to repair."""
        return not self.scan.needs_repair and not self.closers


def log_buckets(root: Path) -> list[str]:
    """The folders of a root that hold sessions, in order of their names.

    A missing root has none; anything else that keeps us from looking raises `StorageFailed`, also
    a file or a link where a folder should be: what stands behind it is not absent (RW-8).
    """
    try:
        with os.scandir(root) as entries:
            buckets = [entry for entry in entries if is_bucket_name(entry.name)]
            for bucket in buckets:
                if not bucket.is_dir(follow_symlinks=False):
                    raise NotADirectoryError(errno.ENOTDIR, "Not a directory", bucket.path)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StorageFailed(None, root, "list", error) from error
    return sorted(bucket.path for bucket in buckets)


def find_logs(root: Path, session_id: str) -> list[Path]:
    """Every place where a log of this id stands, whatever its working directory."""
    name = encode_segment(session_id) + LOG_SUFFIX
    if name == LOG_SUFFIX or len(name) > MAXIMUM_NAME_BYTES:
        return []
    found = []
    for bucket in log_buckets(root):
        path = f"{bucket}/{name}"
        try:
            os.lstat(path)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise StorageFailed(session_id, path, "look-up", error) from error
        found.append(Path(path))
    return found


def find_log(root: Path, session_id: str) -> Path:
    """The one place of a log; raises `SessionNotFound`, or `IdentityMismatch` for two places."""
    found = find_logs(root, session_id)
    if not found:
        raise SessionNotFound(session_id)
    if len(found) > 1:
        raise IdentityMismatch(session_id, found)
    return found[0]


def read_log(path: Path, session_id: str, limit: int | None = None) -> ReadLog:
    """Reads a log whole, or its first `limit` bytes.

    Raises `SessionNotFound`, `NeverMaterialised`, `SessionCorrupted`, `UnsupportedVersion`,
    `IdentityMismatch` and `StorageFailed`.
    """
    while True:
        events: list[SessionEvent] = []
        try:
            descriptor = open_log(path, os.O_RDONLY)
        except FileNotFoundError:
            raise SessionNotFound(session_id) from None
        except OSError as error:
            raise StorageFailed(session_id, path, "open", error) from error
        try:
            with os.fdopen(descriptor, "rb", buffering=0) as file, _collector_paused():
                status = os.fstat(descriptor)
                scan = scan_log(_blocks(file, limit), events.append, session_id=session_id)
                changed = _changed(status, os.fstat(descriptor))
        except OSError as error:
            raise StorageFailed(session_id, path, "read", error) from error
        # Whoever holds the lock may cut the log and write on while it is read here, and the old
        # bytes joined to the new ones are damage that never stood in the file (MW-3).
        if scan.damage is None or not changed:
            break
    header = _header_or_refusal(scan, path, session_id)
    # A turn/end forgets all that was open before it, so only the events behind it matter.
    closers = interrupted_turn_closers(events[scan.committed :])
    cursor = Cursor(status.st_dev, status.st_ino, scan.size)
    return ReadLog(path, scan, header, events, closers, cursor)


def never_materialised(path: Path) -> bool:
    """Whether a file under a log's name holds no session, so that its name is free (DM-6)."""
    try:
        with os.fdopen(open_log(path, os.O_RDONLY), "rb") as file:
            line = file.readline(MAXIMUM_RECORD_BYTES + 1)
            chunk = line
            while chunk:
                if chunk.endswith(b"\n"):
                    return False
                chunk = file.readline(_BLOCK_BYTES)
        parse_header(line)
    except MalformedRecord:
        return True
    except OSError:
        return False  # Whatever it is, it is not free.
    return False


def _header_or_refusal(scan: LogScan, path: Path, session_id: str) -> SessionHeader:
    if scan.outcome is Outcome.NEVER_MATERIALISED:
        raise NeverMaterialised(session_id, path, scan.size)
    if scan.damage is not None:
        damage = scan.damage
        raise SessionCorrupted(session_id, path, damage.line, damage.reason, damage.byte)
    assert scan.header is not None
    if scan.outcome is Outcome.UNSUPPORTED_VERSION:
        raise UnsupportedVersion(session_id, path, scan.header.version)
    if scan.outcome is Outcome.IDENTITY_MISMATCH:
        raise IdentityMismatch(session_id, [path], scan.header.id)
    return scan.header


def list_logs(root: Path) -> list[ListEntry]:
    """One entry per log in storage (RW-9); only first lines are read."""
    places: dict[str, list[Path]] = {}
    nameless: list[ListEntry | None] = []
    for bucket in log_buckets(root):
        try:
            with os.scandir(bucket) as entries:
                names = sorted(entry.name for entry in entries)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise StorageFailed(None, bucket, "list", error) from error
        for name in names:
            if name.endswith(LOG_SUFFIX) and name != LOG_SUFFIX:
                path = Path(bucket, name)
                stem = name.removesuffix(LOG_SUFFIX)
                session_id = decode_segment(stem)
                if session_id is None:
                    # A name that no id has: listed under itself, for hiding it would help nobody,
                    # but apart from the session that may really have the id it looks like.
                    nameless.append(_list_entry(stem, path, [path], named=False))
                else:
                    places.setdefault(session_id, []).append(path)
    entries_found = (
        _list_entry(session_id, path, paths)
        for session_id, paths in places.items()
        for path in paths
    )
    return [entry for entry in (*entries_found, *nameless) if entry is not None]


def _list_entry(
    session_id: str, path: Path, paths: list[Path], *, named: bool = True
) -> ListEntry | None:
    """The entry of one log, or None for one that was never materialised.

    `named` is false for a file whose name is not the one its id would have.
    """
    try:
        descriptor = open_log(path, os.O_RDONLY)
        with os.fdopen(descriptor, "rb") as file:
            line = file.readline(MAXIMUM_RECORD_BYTES + 1)
    except FileNotFoundError:
        return None  # Gone since the folder was read.
    except OSError as cause:
        return ListEntry(session_id, error=StorageFailed(session_id, path, "read", cause))
    try:
        header = parse_header(line.removesuffix(b"\n"))
    except MalformedRecord as cause:
        if not line.endswith(b"\n") and len(line) <= MAXIMUM_RECORD_BYTES:
            return None
        reason = f"header: {cause.reason}"
        return ListEntry(session_id, error=SessionCorrupted(session_id, path, 1, reason, 0))
    error: StoreError | None = None
    if len(paths) > 1:
        error = IdentityMismatch(session_id, paths)
    elif not named or (header.version == 0 and header.id != session_id):
        error = IdentityMismatch(session_id, [path], header.id)
    return ListEntry(session_id, header, error)


def _changed(before: os.stat_result, after: os.stat_result) -> bool:
    return (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns)


def _blocks(file: BinaryIO, limit: int | None) -> Iterator[bytes]:
    """The bytes of a file, or its first `limit` ones, in blocks cut behind newlines."""
    begun: list[bytes] = []
    while chunk := file.read(_BLOCK_BYTES if limit is None else min(_BLOCK_BYTES, limit)):
        if limit is not None:
            limit -= len(chunk)
        end = chunk.rfind(b"\n") + 1
        if end:
            yield b"".join([*begun, chunk[:end]])
            begun = []
        if end < len(chunk):
            begun.append(chunk[end:])
    if begun:
        yield b"".join(begun)


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Pauses the cyclic garbage collector: half of a bulk load would be spent in it, for nothing,
    since records are trees.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
