"""Reading JSONL logs from a store's root: finding, scanning, listing. Never writes (DM-8).

Decides where a session is looked for and how absence is told apart from "cannot look" (RW-8,
RW-9, RW-15). What the bytes mean is decided by `session.scan`.
"""

from __future__ import annotations

import errno
import gc
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import msgspec

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
    LoadResult,
    NeverMaterialised,
    RepairReport,
    SessionCorrupted,
    SessionNotFound,
    StorageFailed,
    StoreError,
    UnsupportedVersion,
)
from torntail.stores.files import open_log, open_log_with_status
from torntail.stores.jsonl_log import Cursor
from torntail.stores.paths import (
    LOG_SUFFIX,
    MAXIMUM_NAME_BYTES,
    decode_segment,
    encode_segment,
    is_bucket_name,
)

__all__ = [
    "ReadLog",
    "find_log",
    "find_logs",
    "list_logs",
    "load_result",
    "log_places",
    "never_materialised",
    "read_log",
    "still_holds",
]

_BLOCK_BYTES: Final = 1 << 18
_FIRST_READ_BYTES: Final = 1 << 14
_NOTHING_MENDED: Final = RepairReport()


class ReadLog(msgspec.Struct, frozen=True):
    """A log read once: what the scan decided, the events kept, the closers they need.

    `content` is the log's bytes where they were few enough to be kept (`still_holds`).
    """

    path: str
    scan: LogScan
    header: SessionHeader
    events: list[SessionEvent]
    closers: list[SessionEvent]
    cursor: Cursor
    content: bytes | None = None

    @property
    def whole(self) -> bool:
        """Whether there is nothing to repair."""
        return not self.scan.needs_repair and not self.closers


def log_buckets(root: Path | str) -> list[str]:
    """The folders of a root that hold sessions, in order of their names.

    A missing root has none; anything else that keeps us from looking raises `StorageFailed`, also
    a file or a link where a folder should be: what stands behind it is not absent (RW-8).
    """
    try:
        buckets = []
        with os.scandir(root) as entries:
            for entry in entries:
                if is_bucket_name(entry.name):
                    if not entry.is_dir(follow_symlinks=False):
                        raise NotADirectoryError(errno.ENOTDIR, "Not a directory", entry.path)
                    buckets.append(entry.path)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StorageFailed(None, Path(root), "list", error) from error
    return sorted(buckets)


def find_logs(root: Path | str, session_id: str) -> list[Path]:
    """Every place where a log of this id stands, whatever its working directory."""
    return [Path(place) for place in log_places(root, session_id)]


def find_log(root: Path | str, session_id: str) -> str:
    """The one place of a log; raises `SessionNotFound`, or `IdentityMismatch` for two places."""
    places = log_places(root, session_id)
    if not places:
        raise SessionNotFound(session_id)
    if len(places) > 1:
        raise IdentityMismatch(session_id, [Path(place) for place in places])
    return places[0]


def log_places(root: Path | str, session_id: str) -> list[str]:
    """As `find_logs`, for the store itself: paths as strings, which cost less to make."""
    name = encode_segment(session_id) + LOG_SUFFIX
    if name == LOG_SUFFIX or len(name) > MAXIMUM_NAME_BYTES:
        return []
    places = []
    for bucket in log_buckets(root):
        place = f"{bucket}/{name}"
        try:
            os.lstat(place)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise StorageFailed(session_id, place, "look-up", error) from error
        places.append(place)
    return places


def read_log(path: str, session_id: str, limit: int | None = None) -> ReadLog:
    """Reads a log whole, or its first `limit` bytes.

    Raises `SessionNotFound`, `NeverMaterialised`, `SessionCorrupted`, `UnsupportedVersion`,
    `IdentityMismatch` and `StorageFailed`.
    """
    # Half of a bulk load would be spent in the cyclic garbage collector, for nothing, since records
    # are trees.
    collector_paused = gc.isenabled()
    gc.disable()
    try:
        read = None
        while read is None:
            read = _read_once(path, session_id, limit)
        return read
    finally:
        if collector_paused:
            gc.enable()


def _read_once(path: str, session_id: str, limit: int | None) -> ReadLog | None:
    """Reads a log; None where another writer changed it meanwhile, and that may be the damage."""
    try:
        descriptor, status = open_log_with_status(path, os.O_RDONLY)
    except FileNotFoundError:
        raise SessionNotFound(session_id) from None
    except OSError as error:
        raise StorageFailed(session_id, Path(path), "open", error) from error
    events: list[SessionEvent] = []
    content: bytes | None = None
    try:
        blocks: Iterable[bytes] = _blocks(descriptor, limit)
        if status.st_size <= _BLOCK_BYTES:
            blocks = list(blocks)
            content = b"".join(blocks)
        scan = scan_log(blocks, events.append, session_id=session_id)
        # Whoever holds the lock may cut the log and write on while it is read here, and the old
        # bytes joined to the new ones are damage that never stood in the file (MW-3).
        if scan.damage is not None and _changed(status, os.fstat(descriptor)):
            return None
    except OSError as error:
        raise StorageFailed(session_id, Path(path), "read", error) from error
    finally:
        os.close(descriptor)
    header = _header_or_refusal(scan, path, session_id)
    # A turn/end forgets all that was open before it, so only the events behind it matter.
    closers = interrupted_turn_closers(events[scan.committed :])
    cursor = Cursor(status.st_dev, status.st_ino, scan.size)
    return ReadLog(path, scan, header, events, closers, cursor, content)


def still_holds(read: ReadLog) -> bool:
    """Whether the log is, byte for byte and as the same file, what was read.

    Asked under the lock, where no other writer is at work: what the scan decided is a function of
    the bytes alone, so it need not be decided again. Times of change are not looked at, since they
    are coarser than two writes. False also where that cannot be told: then the log is read again.
    """
    if read.content is None:
        return False
    try:
        descriptor, status = open_log_with_status(read.path, os.O_RDONLY)
    except OSError:
        return False
    try:
        cursor = Cursor(status.st_dev, status.st_ino, status.st_size)
        return cursor == read.cursor and os.read(descriptor, cursor.length + 1) == read.content
    except OSError:
        return False
    finally:
        os.close(descriptor)


def load_result(read: ReadLog, reason: str | None, copy: str | None = None) -> LoadResult:
    """What a load returns: `reason` says why storage is not that yet; `copy` names a copy kept."""
    if read.whole and reason is None:
        return LoadResult(read.header, read.events, _NOTHING_MENDED)
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


def never_materialised(path: Path | str) -> bool:
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


def _header_or_refusal(scan: LogScan, path: str, session_id: str) -> SessionHeader:
    if scan.outcome is Outcome.NEVER_MATERIALISED:
        raise NeverMaterialised(session_id, Path(path), scan.size)
    if scan.damage is not None:
        damage = scan.damage
        raise SessionCorrupted(session_id, Path(path), damage.line, damage.reason, damage.byte)
    assert scan.header is not None
    if scan.outcome is Outcome.UNSUPPORTED_VERSION:
        raise UnsupportedVersion(session_id, Path(path), scan.header.version)
    if scan.outcome is Outcome.IDENTITY_MISMATCH:
        raise IdentityMismatch(session_id, [Path(path)], scan.header.id)
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


def _blocks(descriptor: int, limit: int | None) -> Iterator[bytes]:
    """The bytes of a file, or its first `limit` ones, in blocks cut behind newlines."""
    begun: list[bytes] = []
    # Most logs are small, and making room for a large block costs more than reading one of them.
    most = _FIRST_READ_BYTES
    while chunk := os.read(descriptor, most if limit is None else min(most, limit)):
        if len(chunk) == most:
            most = _BLOCK_BYTES
        if limit is not None:
            limit -= len(chunk)
        end = chunk.rfind(b"\n") + 1
        if end:
            yield b"".join([*begun, chunk[:end]]) if begun else chunk[:end]
            begun = []
        if end < len(chunk):
            begun.append(chunk[end:])
    if begun:
        yield b"".join(begun)
