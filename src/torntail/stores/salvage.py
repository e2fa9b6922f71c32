"""Repairing a session file by hand: a copy first, then the store's own repair; or a new session.

Decides how the copy is kept, and what can be saved from a log that a load refuses: the longest
prefix that a load would take, closed like any interrupted turn, written as a new file. The original
is never changed by a salvage. What the prefix is follows from `session.scan`.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from torntail.session import (
    LogScan,
    Outcome,
    SessionEvent,
    SessionHeader,
    TurnTracker,
    encode_event,
    encode_header,
    scan_log,
)
from torntail.stores.files import FILE_MODE, open_log, sync_directory, sync_file, write_all
from torntail.stores.inspection import Inspection, place_of, read_blocks
from torntail.stores.jsonl_read import find_logs
from torntail.stores.paths import LOG_SUFFIX, companion_name

__all__ = ["CannotSalvage", "Salvage", "copy_name", "keep_copy", "plan_salvage", "write_salvage"]

_CHUNK_BYTES: Final = 1 << 20
_BUFFER_BYTES: Final = 1 << 18


class CannotSalvage(Exception):
    """Why nothing can be saved, or not to the place named, in one sentence."""


@dataclass(frozen=True, slots=True)
class Salvage:
    """What a salvage saves: the header it gives the new session, and the events up to a point.

    `limit` is the number of bytes of the original that are read; `events` and `closers` the numbers
    of events the new session holds.
    """

    header: SessionHeader
    limit: int
    events: int
    closers: int


# --- the copy -----------------------------------------------------------------------------------


def copy_name(path: Path) -> Path:
    """Where `keep_copy` keeps a copy of a file as it is now; raises OSError."""
    with os.fdopen(open_log(path, os.O_RDONLY), "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()[:16]
    stem = path.name.removesuffix(LOG_SUFFIX)
    return path.with_name(companion_name(stem, f"{LOG_SUFFIX}.before-repair-{digest}"))


def keep_copy(path: Path) -> Path:
    """Copies a file byte for byte beside itself, durably; raises OSError.

    The copy is named after its content, so that a repeated repair makes no second one, and gets its
    name only when it is whole.
    """
    target = copy_name(path)
    stem = path.name.removesuffix(LOG_SUFFIX)
    temporary = path.with_name(companion_name(stem, f"{LOG_SUFFIX}.before-repair.tmp"))
    temporary.unlink(missing_ok=True)
    with _new_file(temporary) as descriptor, os.fdopen(open_log(path, os.O_RDONLY), "rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            write_all(descriptor, chunk)
        sync_file(descriptor)
    temporary.replace(target)
    sync_directory(path.parent)
    return target


# --- the salvage --------------------------------------------------------------------------------


def plan_salvage(path: Path, found: Inspection, out: Path) -> Salvage:
    """What can be saved from `path` into a new file `out`; raises `CannotSalvage` or OSError."""
    header = found.header
    if found.outcome in (Outcome.NEVER_MATERIALISED, Outcome.UNSUPPORTED_VERSION) or header is None:
        raise CannotSalvage(f"nothing can be saved: {found.problem}")
    header = _header_for(header, out)
    limit = found.size
    if found.damage is not None:
        # With the damaged line last, what it begins with may still be a whole record (DM-4);
        # where it is a record out of sequence, the log ends before it.
        limit = found.damage.byte + _line_length(path, found.damage.byte)
    for end in (limit, found.damage.byte if found.damage is not None else limit):
        tracker = TurnTracker()
        scan = _scan(path, end, tracker.feed)
        if scan.outcome is Outcome.OK:
            return Salvage(header, end, scan.events, len(tracker.closers()))
    raise CannotSalvage(f"nothing can be saved: {found.problem}")


def write_salvage(path: Path, salvage: Salvage, out: Path) -> None:
    """Writes the new session file, durably; raises OSError, FileExistsError where `out` exists."""
    tracker = TurnTracker()
    with _new_file(out) as descriptor:
        buffer = bytearray(encode_header(salvage.header) + b"\n")

        def write(event: SessionEvent) -> None:
            tracker.feed(event)
            put(event)

        def put(event: SessionEvent) -> None:
            buffer.extend(encode_event(event) + b"\n")
            if len(buffer) >= _BUFFER_BYTES:
                flush()

        def flush() -> None:
            write_all(descriptor, bytes(buffer))
            buffer.clear()

        _scan(path, salvage.limit, write)
        for closer in tracker.closers():
            put(closer)
        flush()
        sync_file(descriptor)
    sync_directory(out.absolute().parent)


def _header_for(header: SessionHeader, out: Path) -> SessionHeader:
    """The header the new file needs: in a store's folder its id must be what its name says."""
    place = place_of(out)
    if place is None:
        return header
    if place.session_id is None:
        raise CannotSalvage(f"no session id has the file name {out.name!r}: choose another")
    others = [one for one in find_logs(place.root, place.session_id) if one != out.absolute()]
    if others:
        raise CannotSalvage(
            f"session {place.session_id!r} exists already at {others[0]}: choose another name"
        )
    record = {**header.to_json(), "id": place.session_id}
    return SessionHeader.from_json(record)


def _scan(path: Path, limit: int, accept: Callable[[SessionEvent], object]) -> LogScan:
    with _opened(path) as file:
        return scan_log(read_blocks(file, limit), accept)


def _line_length(path: Path, byte: int) -> int:
    with _opened(path) as file:
        file.seek(byte)
        return len(file.readline())


def _opened(path: Path) -> BinaryIO:
    return os.fdopen(open_log(path.resolve(), os.O_RDONLY), "rb")


@contextmanager
def _new_file(path: Path) -> Iterator[int]:
    """A file that did not exist, open for writing; removed again if the body fails."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(path, flags, FILE_MODE)
    try:
        yield descriptor
    except BaseException:
        with contextlib.suppress(OSError):
            path.unlink()
        raise
    finally:
        os.close(descriptor)
