"""Looking at session files without touching them: what a load of each would come to.

Decides how a file is found to belong to a store (it stands in a bucket folder), which id its place
names, and what is counted. Reads in blocks and keeps no events, so that the cost in memory is that
of the longest line and not that of the file. Never writes (DM-8). What the bytes mean is decided by
`session.scan`; how the answer is shown is not decided here.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO, Final

from torntail.session import (
    Damage,
    Outcome,
    SessionEvent,
    SessionHeader,
    TornTail,
    TurnTracker,
    scan_log,
)
from torntail.stores.contract import (
    IdentityMismatch,
    ListEntry,
    NeverMaterialised,
    SessionCorrupted,
    SessionNotFound,
    StoreError,
    UnsupportedVersion,
)
from torntail.stores.files import open_log
from torntail.stores.jsonl_read import find_logs
from torntail.stores.paths import LOG_SUFFIX, decode_segment, is_bucket_name
from torntail.stores.sqlite import SqliteStore

__all__ = [
    "Inspection",
    "Place",
    "inspect_database",
    "inspect_log",
    "is_database",
    "place_of",
    "read_blocks",
    "session_files",
]

_BLOCK_BYTES: Final = 1 << 18
_DATABASE_MAGIC: Final = b"SQLite format 3\0"
_MAXIMUM_TYPES: Final = 500
OTHER_TYPES: Final = "(other types)"
"""What the rest is counted under in a log of very many types."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a session file of a store stands: the store's root, and the id its name stands for.

    `session_id` is None for a name that no id is encoded to; no load finds such a file.
    """

    root: Path
    session_id: str | None


@dataclass(frozen=True, slots=True)
class Inspection:
    """What a load of one session would come to, and what stands in it.

    `outcome`, `torn`, `newline_missing` and `damage` are those of the scan; `problem` says why a
    load is refused, in one phrase. `expected_id` is the id that the file's place, or the caller,
    names. `kept` is the number of events kept, or of those before the damage. In a database there
    are no lines: `Damage.line` is then the row's seq and `byte` is -1.
    """

    path: Path
    outcome: Outcome
    size: int
    expected_id: str | None = None
    place: Place | None = None
    header: SessionHeader | None = None
    kept: int = 0
    types: dict[str, int] = field(default_factory=dict)
    turns: int = 0
    turn_open: bool = False
    open_calls: int = 0
    closers: tuple[SessionEvent, ...] = ()
    kept_bytes: int = 0
    torn: TornTail | None = None
    newline_missing: bool = False
    damage: Damage | None = None
    problem: str | None = None
    notes: tuple[str, ...] = ()
    database: bool = False

    @property
    def session_id(self) -> str | None:
        """The session's id as far as one is known: by its header, else by its place."""
        if self.header is not None and self.header.id:
            return self.header.id
        return self.expected_id

    @property
    def loads(self) -> bool:
        """Whether a load would succeed."""
        return self.outcome is Outcome.OK

    @property
    def needs_repair(self) -> bool:
        """Whether that load would write: cut a tail, add a newline, or close a turn."""
        return self.loads and bool(self.torn or self.newline_missing or self.closers)


class _Counts:
    """Follows a log and counts; keeps no event but the last."""

    def __init__(self) -> None:
        self.tracker = TurnTracker()
        self.types: dict[str, int] = {}
        self.turns = 0

    def take(self, event: SessionEvent) -> None:
        kind = event.type
        if kind not in self.types and len(self.types) >= _MAXIMUM_TYPES:
            kind = OTHER_TYPES
        self.types[kind] = self.types.get(kind, 0) + 1
        if event.type == "turn/start":
            self.turns += 1
        self.tracker.feed(event)


# --- one file -----------------------------------------------------------------------------------


def place_of(path: Path) -> Place | None:
    """The store a file belongs to by where it stands, or None for a loose file."""
    absolute = path.absolute()
    if not is_bucket_name(absolute.parent.name) or absolute.suffix != LOG_SUFFIX:
        return None
    return Place(absolute.parent.parent, decode_segment(absolute.name.removesuffix(LOG_SUFFIX)))


def inspect_log(
    path: Path,
    session_id: str | None = None,
    progress: Callable[[int], object] | None = None,
) -> Inspection:
    """Reads a session file once; raises OSError where it cannot be read.

    The header's id is held against `session_id`, or against the file's name when it stands in a
    store's folder (RW-15); for any other file a difference is only noted. `progress` is called
    with the number of bytes of each block read.
    """
    place = place_of(path)
    expected = session_id
    if expected is None and place is not None:
        expected = place.session_id
    counts = _Counts()
    # A store follows no link in the last place; a person who names a loose file may mean one.
    descriptor = open_log(path if place is not None else path.resolve(), os.O_RDONLY)
    with os.fdopen(descriptor, "rb") as file:
        size = os.fstat(descriptor).st_size
        scan = scan_log(read_blocks(file, progress=progress), counts.take, session_id=expected)
    found = Inspection(
        path,
        scan.outcome,
        size,
        expected,
        place,
        scan.header,
        kept=scan.events,
        types=counts.types,
        turns=counts.turns,
        turn_open=bool(counts.tracker.closers()),
        open_calls=counts.tracker.open_calls,
        closers=tuple(counts.tracker.closers()) if scan.outcome is Outcome.OK else (),
        kept_bytes=scan.kept_bytes,
        torn=scan.torn,
        newline_missing=scan.newline_missing,
        damage=scan.damage,
    )
    found = replace(found, problem=_problem(found), notes=_notes(found))
    return found if place is None else _as_its_store_sees_it(found, place)


def _as_its_store_sees_it(found: Inspection, place: Place) -> Inspection:
    """What a load would find before it opens the file: no such id, or two places (RW-15)."""
    if place.session_id is None:
        return _refused(found, "no session id has this file name, so that no store will find it")
    try:
        places = find_logs(place.root, place.session_id)
    except StoreError:
        return found
    if len(places) > 1:
        among = ", ".join(map(str, places))
        return _refused(found, f"the id is found in {len(places)} places: {among}")
    return found


def _refused(found: Inspection, problem: str) -> Inspection:
    return replace(
        found,
        outcome=Outcome.IDENTITY_MISMATCH,
        problem=problem,
        closers=(),
        torn=None,
        newline_missing=False,
        damage=None,
    )


def _problem(found: Inspection) -> str | None:
    match found.outcome:
        case Outcome.CORRUPT:
            return found.damage.reason if found.damage is not None else "corrupt"
        case Outcome.NEVER_MATERIALISED:
            return "no complete header line: its first flush never ended"
        case Outcome.UNSUPPORTED_VERSION:
            version = found.header.version if found.header is not None else "?"
            return f"format version {version}, only 0 is supported"
        case Outcome.IDENTITY_MISMATCH:
            actual = found.header.id if found.header is not None else "?"
            return f"the header says {actual!r}, the session expected here is {found.expected_id!r}"
    return None


def _notes(found: Inspection) -> tuple[str, ...]:
    if found.header is None or found.expected_id is not None or not found.header.id:
        return ()
    stem = found.path.name.removesuffix(LOG_SUFFIX)
    if decode_segment(stem) == found.header.id:
        return ()
    return (
        f"the file's name does not say {found.header.id!r}; a store would refuse it under this "
        "name, but the file does not stand in a store's folder",
    )


def read_blocks(
    file: BinaryIO,
    limit: int | None = None,
    progress: Callable[[int], object] | None = None,
) -> Iterator[bytes]:
    """The bytes of an open file, or its first `limit` ones, in blocks cut behind newlines."""
    left = limit
    while lines := file.readlines(_BLOCK_BYTES):
        block = b"".join(lines)
        if left is not None:
            block = block[:left]
            left -= len(block)
        if block:
            yield block
        if progress is not None:
            progress(len(block))
        if left == 0:
            return


# --- folders ------------------------------------------------------------------------------------


def session_files(directory: Path) -> list[Path] | None:
    """The session files of a store's root, of one bucket, or lying loose in a folder.

    None for a folder that is neither a store's nor holds any. Raises OSError for one that cannot
    be read.
    """
    with os.scandir(directory) as entries:
        names = sorted(entry.name for entry in entries)
    files = [directory / name for name in names if name.endswith(LOG_SUFFIX)]
    buckets = [directory / name for name in names if is_bucket_name(name)]
    for bucket in buckets:
        if bucket.is_dir() and not bucket.is_symlink():
            found = sorted(one.name for one in bucket.iterdir() if one.name.endswith(LOG_SUFFIX))
            files += [bucket / name for name in found]
    of_a_store = bool(buckets) or ".locks" in names or is_bucket_name(directory.absolute().name)
    return files if files or of_a_store else None


# --- databases ----------------------------------------------------------------------------------


def is_database(path: Path) -> bool:
    """Whether a file is an SQLite database; raises OSError where it cannot be read."""
    with open(path, "rb") as file:
        return file.read(len(_DATABASE_MAGIC)) == _DATABASE_MAGIC


def inspect_database(path: Path, session_id: str | None = None) -> list[Inspection]:
    """What a load of each session of a database would come to, or of the one asked for.

    Raises `StorageFailed` for a database that is not ours.
    """
    with SqliteStore(path) as store:
        entries = {entry.session_id: entry for entry in store.list()}
        names = list(entries) if session_id is None else [session_id]
        return [_row_inspection(store, path, name, entries.get(name)) for name in names]


def _row_inspection(
    store: SqliteStore, path: Path, session_id: str, entry: ListEntry | None
) -> Inspection:
    header = None if entry is None else entry.header
    size = path.stat().st_size
    base = Inspection(path, Outcome.OK, size, session_id, header=header, database=True)
    try:
        found = store.inspect(session_id)
    except SessionCorrupted as error:
        damage = Damage(error.line, -1, error.reason, b"")
        return replace(base, outcome=Outcome.CORRUPT, damage=damage, problem=error.reason)
    except UnsupportedVersion as error:
        problem = f"format version {error.version}, only 0 is supported"
        return replace(base, outcome=Outcome.UNSUPPORTED_VERSION, problem=problem)
    except IdentityMismatch as error:
        return replace(base, outcome=Outcome.IDENTITY_MISMATCH, problem=str(error))
    except NeverMaterialised as error:
        return replace(base, outcome=Outcome.NEVER_MATERIALISED, problem=str(error))
    except SessionNotFound:
        raise
    except StoreError as error:
        # One session that cannot be read never hides the rest.
        return replace(base, outcome=Outcome.CORRUPT, problem=str(error))
    report = found.repair
    counts = _Counts()
    kept = len(found.events) - len(report.closers)
    for event in found.events[:kept]:
        counts.take(event)
    torn = None
    if report.torn_from_line is not None:
        byte = report.torn_from_byte if report.torn_from_byte is not None else -1
        torn = TornTail(report.torn_from_line, byte, report.torn_bytes, "", False, "torn", b"")
    return replace(
        base,
        header=found.header,
        kept=kept,
        types=counts.types,
        turns=counts.turns,
        turn_open=bool(counts.tracker.closers()),
        open_calls=counts.tracker.open_calls,
        closers=report.closers,
        torn=torn,
        newline_missing=report.newline_added,
    )
