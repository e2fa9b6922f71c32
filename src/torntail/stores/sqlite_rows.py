"""A session as rows: reading it by the reading rule, mending it, adding to it.

Rows are judged as the lines of a file would be (`session.scan`), each row one line with its
newline, so that both reference stores give the same answer to the same damage (DM-1 to DM-5). What
only rows can have, a seq column that is not the next one, is a wrong seq (DM-3). Decides which
statements read and write a session; transactions are the caller's.
"""

from __future__ import annotations

import gc
import hashlib
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from torntail.session import (
    FORMAT_VERSION,
    Damage,
    LogScan,
    MalformedRecord,
    Outcome,
    SessionEvent,
    SessionHeader,
    TornTail,
    encode_event,
    parse_event,
    parse_header,
    scan_events,
)
from torntail.stores.contract import (
    IdentityMismatch,
    ListEntry,
    SessionCorrupted,
    SessionNotFound,
    UnsupportedVersion,
)
from torntail.stores.paths import decode_segment, encode_segment

__all__ = [
    "HEADER_ROW",
    "SessionRows",
    "drop_torn_tail",
    "has_session",
    "insert_events",
    "insert_session",
    "last_event_mark",
    "list_sessions",
    "mark_of",
    "next_seq",
    "read_session",
]

HEADER_ROW = -1
"""What `SessionCorrupted.line` says where the header is damaged: it stands before row 0."""


@dataclass(frozen=True, slots=True)
class SessionRows:
    """A session as read: its header, the events kept, and what the reading rule says of the rest.

    `torn_start` is the offset of the row in which the torn tail begins.
    """

    header: SessionHeader
    events: list[SessionEvent]
    torn: TornTail | None
    torn_start: int


def read_session(connection: sqlite3.Connection, path: Path, session_id: str) -> SessionRows:
    """Reads a session; raises what `load` raises for it."""
    key = encode_segment(session_id)
    row = connection.execute("SELECT header FROM sessions WHERE session_id = ?", (key,)).fetchone()
    if row is None:
        orphan = _first_seq(connection, key)
        if orphan is None:
            raise SessionNotFound(session_id)
        raise SessionCorrupted(session_id, path, orphan, "events without a session row")
    try:
        header = parse_header(row[0])
    except MalformedRecord as error:
        raise SessionCorrupted(session_id, path, HEADER_ROW, f"header: {error.reason}") from None
    if header.version != FORMAT_VERSION:
        raise UnsupportedVersion(session_id, path, header.version)
    if header.id != session_id:
        raise IdentityMismatch(session_id, [path], header.id)
    lines = _Lines(connection, key)
    with _collector_paused():
        try:
            scan = scan_events(lines, lines.events.append, header=header, line=0)
        except sqlite3.DatabaseError as error:
            if getattr(error, "sqlite_errorcode", 0) & 0xFF != sqlite3.SQLITE_CORRUPT:
                raise
            reason = f"unreadable: {error}"
            raise SessionCorrupted(session_id, path, len(lines.events), reason) from error
        finally:
            lines.close()
    damage = _damage(scan, lines)
    if damage is not None:
        raise SessionCorrupted(session_id, path, damage[0], damage[1])
    return SessionRows(header, lines.events, scan.torn, lines.bad_start)


class _Lines:
    """The rows of a session as lines of a log, and where they stop being what they should be.

    As long as every row before has been accepted, the seq column must be the number of rows: behind
    a row that does not parse seqs are not looked at (DM-3).
    """

    def __init__(self, connection: sqlite3.Connection, key: str) -> None:
        self.events: list[SessionEvent] = []
        self.misplaced: int | None = None
        self.bad_start = 0
        self._rows = connection.execute(
            "SELECT seq, record FROM events WHERE session_id = ? ORDER BY seq", (key,)
        )

    def __iter__(self) -> Iterator[bytes]:
        events = self.events
        byte = 0
        for index, (seq, record) in enumerate(self._rows):
            if len(events) == index:
                if seq != index:
                    self.misplaced = seq
                    return
                self.bad_start = byte
            line = record + b"\n"
            byte += len(line)
            yield line

    def close(self) -> None:
        """Ends the query, which would otherwise keep its view of the database alive."""
        self._rows.close()


def _damage(scan: LogScan, lines: _Lines) -> tuple[int, str] | None:
    if lines.misplaced is not None:
        return lines.misplaced, f"seq: expected {len(lines.events)}, got {lines.misplaced}"
    if scan.outcome is Outcome.CORRUPT:
        assert isinstance(scan.damage, Damage)
        return scan.damage.line, scan.damage.reason
    return None


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Half the time of a bulk load would go to a collector that finds nothing: events are trees."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


# --- mending ------------------------------------------------------------------------------------


def drop_torn_tail(connection: sqlite3.Connection, rows: SessionRows) -> str | None:
    """Cuts the torn tail off; returns the name of the copy, if one was due (DM-2, DM-4)."""
    torn = rows.torn
    if torn is None:
        return None
    key = encode_segment(rows.header.id)
    tail = (key, torn.line)
    kept = torn.byte - rows.torn_start
    copy = None
    if torn.holds_record:
        found = connection.execute(
            "SELECT record FROM events WHERE session_id = ? AND seq >= ? ORDER BY seq", tail
        )
        content = b"".join(record + b"\n" for (record,) in found)[kept:]
        digest = hashlib.sha256(content).hexdigest()
        assert digest == torn.digest
        connection.execute(
            "INSERT OR IGNORE INTO torn_copies (session_id, seq, byte, digest, content)"
            " VALUES (?, ?, ?, ?, ?)",
            (key, torn.line, torn.byte, digest, content),
        )
        copy = f"torn_copies(session_id={key}, byte={torn.byte}, digest={digest})"
    if kept:
        connection.execute(
            "UPDATE events SET record = CAST(substr(CAST(record AS BLOB), 1, ?) AS TEXT)"
            " WHERE session_id = ? AND seq = ?",
            (kept, *tail),
        )
    connection.execute(
        "DELETE FROM events WHERE session_id = ? AND seq >= ?", (key, torn.line + bool(kept))
    )
    return copy


# --- adding -------------------------------------------------------------------------------------


def has_session(connection: sqlite3.Connection, session_id: str) -> bool:
    """Whether the session stands in storage, whatever its header says."""
    key = encode_segment(session_id)
    found = connection.execute("SELECT 1 FROM sessions WHERE session_id = ?", (key,)).fetchone()
    return found is not None


def insert_session(
    connection: sqlite3.Connection, path: Path, session_id: str, header: bytes
) -> None:
    """Adds a session row; events that stand there without one are no session to add to."""
    key = encode_segment(session_id)
    orphan = _first_seq(connection, key)
    if orphan is not None:
        raise SessionCorrupted(session_id, path, orphan, "events without a session row")
    connection.execute(
        "INSERT INTO sessions (session_id, header) VALUES (?, ?)", (key, header.decode())
    )


def insert_events(
    connection: sqlite3.Connection, session_id: str, lines: Sequence[bytes], first_seq: int
) -> None:
    """Adds rows with plain INSERT: a seq that is taken fails and never overwrites."""
    key = encode_segment(session_id)
    connection.executemany(
        "INSERT INTO events (session_id, seq, record) VALUES (?, ?, ?)",
        ((key, seq, line.decode()) for seq, line in enumerate(lines, first_seq)),
    )


def next_seq(connection: sqlite3.Connection, session_id: str) -> int | None:
    """The next seq by the rows in storage; None where the session is gone (MW-4)."""
    key = encode_segment(session_id)
    sessions, last = connection.execute(
        "SELECT (SELECT count(*) FROM sessions WHERE session_id = ?),"
        " (SELECT max(seq) FROM events WHERE session_id = ?)",
        (key, key),
    ).fetchone()
    if not sessions:
        return None
    return 0 if last is None else int(last) + 1


def mark_of(events: Sequence[SessionEvent]) -> bytes:
    """A digest of the last event, to know it again; empty for no events."""
    return hashlib.sha256(encode_event(events[-1])).digest() if events else b""


def last_event_mark(connection: sqlite3.Connection, session_id: str) -> bytes | None:
    """`mark_of` the last stored row; None where that is no record."""
    row = connection.execute(
        "SELECT record FROM events WHERE session_id = ? ORDER BY seq DESC LIMIT 1",
        (encode_segment(session_id),),
    ).fetchone()
    if row is None:
        return b""
    try:
        return mark_of([parse_event(row[0])])
    except MalformedRecord:
        return None


def _first_seq(connection: sqlite3.Connection, key: str) -> int | None:
    row = connection.execute("SELECT min(seq) FROM events WHERE session_id = ?", (key,)).fetchone()
    return None if row[0] is None else int(row[0])


# --- listing ------------------------------------------------------------------------------------


def list_sessions(connection: sqlite3.Connection, path: Path) -> list[ListEntry]:
    """An entry for each session row, in the order of the encoded ids; no event is read (RW-9)."""
    rows = connection.execute("SELECT session_id, header FROM sessions ORDER BY session_id")
    return [_entry(path, key.decode("utf-8", "surrogateescape"), header) for key, header in rows]


def _entry(path: Path, key: str, line: bytes) -> ListEntry:
    session_id = decode_segment(key)
    if session_id is None:
        reason = "header: its row is under a name that no id encodes to"
        return ListEntry(key, None, SessionCorrupted(key, path, HEADER_ROW, reason))
    try:
        header = parse_header(line)
    except MalformedRecord as error:
        reason = f"header: {error.reason}"
        return ListEntry(session_id, None, SessionCorrupted(session_id, path, HEADER_ROW, reason))
    if header.version == FORMAT_VERSION and header.id != session_id:
        return ListEntry(session_id, header, IdentityMismatch(session_id, [path], header.id))
    return ListEntry(session_id, header)
