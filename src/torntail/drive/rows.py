"""Records that are rows of a SQLite database, and how a damage is made there.

A row is found by the mark in one of its cells and known again by its seq and session columns. What
has no row form (a missing newline, a record standing twice under a primary key) is moot. Runs in
the onlooker process, all stores being closed.
"""

from __future__ import annotations

import contextlib
import hashlib
import sqlite3
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from torntail.drive.records import addition, damage_header, damage_record
from torntail.judge.history import Damage, Damaged, NotPossible

__all__ = ["RowLog", "damage_rows", "find_rows", "is_database"]


def is_database(path: Path) -> bool:
    """Whether a file is a SQLite database."""
    with path.open("rb") as file:
        return file.read(16) == b"SQLite format 3\0"


@dataclass(frozen=True, slots=True)
class RowLog:
    """A session's rows: the cell that holds the record, its seq, and what all of them share.

    `header` is the cell, in another table, of the session's header: table, column, and the columns
    and values by which its row is found.
    """

    path: Path
    table: str
    content: str
    seq: str
    session: dict[str, Any]
    header: tuple[str, str, dict[str, Any]] | None


_MOOT: Final = {
    "duplicate": "a row cannot stand twice under its primary key",
    "crlf": "rows have no line ends",
    "header-only": "rows have no newline that could be missing",
    "header-cut": "a header row stands in storage whole or not at all",
    "empty": "a header row stands in storage whole or not at all",
    "nul-file": "a header row stands in storage whole or not at all",
    "misplace": "rows have no file of their own",
    "second-place": "rows have no file of their own",
}


def find_rows(path: Path, session: str, marks: dict[int, str]) -> RowLog | None:
    """The table whose rows hold the marks, one each, with a column that counts as seq does."""
    with _connect(path) as connection:
        for table in _tables(connection):
            log = _find_in_table(connection, path, table, session, marks)
            if log is not None:
                return log
    return None


@contextlib.contextmanager
def _connect(path: Path) -> Any:
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        connection.text_factory = lambda text: text.decode("utf-8", "surrogateescape")
        yield connection
    finally:
        connection.close()


def _tables(connection: sqlite3.Connection) -> list[str]:
    rows = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")
    return [name for (name,) in rows]


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _rows(connection: sqlite3.Connection, table: str) -> list[dict[str, Any]]:
    cursor = connection.execute(f"SELECT * FROM {_quote(table)}")
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor]


def _holds(cell: Any, text: str) -> bool:
    return (
        text in cell
        if isinstance(cell, str)
        else isinstance(cell, bytes) and (text.encode("ascii") in cell)
    )


def _find_in_table(
    connection: sqlite3.Connection, path: Path, table: str, session: str, marks: dict[int, str]
) -> RowLog | None:
    rows = _rows(connection, table)
    by_index: dict[int, dict[str, Any]] = {}
    contents: set[str] = set()
    for index, mark in marks.items():
        found = [(row, name) for row in rows for name, cell in row.items() if _holds(cell, mark)]
        if len(found) != 1:
            return None
        by_index[index] = found[0][0]
        contents.add(found[0][1])
    if len(contents) != 1:
        return None
    content = contents.pop()
    columns = [name for name in rows[0] if name != content]
    counting = [
        name
        for name in columns
        if all(type(row[name]) is int and row[name] == index for index, row in by_index.items())
    ]
    shared = {
        name: rows_of_name.pop()
        for name in columns
        if len(rows_of_name := {row[name] for row in by_index.values()}) == 1
    }
    if len(counting) != 1:
        return None
    # The column that names the session; where none does, whatever its rows have in common.
    named = {name: value for name, value in shared.items() if value == session} or {
        name: value for name, value in shared.items() if name != counting[0]
    }
    header = _find_header(connection, table, session)
    return RowLog(path, table, content, counting[0], named, header)


def _find_header(
    connection: sqlite3.Connection, events_table: str, session: str
) -> tuple[str, str, dict[str, Any]] | None:
    """The cell of another table that holds the session's header as JSON."""
    for table in _tables(connection):
        if table == events_table:
            continue
        for row in _rows(connection, table):
            for name, cell in row.items():
                if isinstance(cell, str) and cell.startswith("{") and session in cell:
                    key = {other: value for other, value in row.items() if other != name}
                    return table, name, key
    return None


def damage_rows(log: RowLog, root: Path, damage: Damage) -> Damaged | NotPossible:
    """Makes a damage among a session's rows."""
    if damage.kind in _MOOT:
        return NotPossible(_MOOT[damage.kind], moot=True)
    with _connect(log.path) as connection:
        before = _digest(connection, log)
        try:
            problem = _damage(connection, log, damage)
        except sqlite3.IntegrityError as error:
            problem = NotPossible(f"the database does not allow it: {error}", moot=True)
        if problem is not None:
            return problem
        after = _digest(connection, log)
    line = damage.record
    if damage.kind == "add":
        line = _last_seq(log)
    return Damaged(log.path.relative_to(root).as_posix(), before, after, line=line)


def _digest(connection: sqlite3.Connection, log: RowLog) -> str:
    tables = [log.table, *([log.header[0]] if log.header else [])]
    text = repr([_rows(connection, table) for table in tables])
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _last_seq(log: RowLog) -> int:
    where, values = _where(log.session)
    with _connect(log.path) as connection:
        query = f"SELECT max({_quote(log.seq)}) FROM {_quote(log.table)} WHERE {where}"
        return int(connection.execute(query, values).fetchone()[0])


def _where(key: dict[str, Any]) -> tuple[str, list[Any]]:
    return " AND ".join(f"{_quote(name)} IS ?" for name in key) or "1", list(key.values())


def _damage(connection: sqlite3.Connection, log: RowLog, damage: Damage) -> NotPossible | None:
    if damage.kind.startswith("header-"):
        if log.header is None:
            return NotPossible("the header stands in columns, its id only once", moot=True)
        table, column, key = log.header
        return _change(connection, table, column, key, lambda text: damage_header(text, damage))
    where, values = _where(log.session)
    table, seq = _quote(log.table), _quote(log.seq)
    key = {**log.session, log.seq: damage.record}
    match damage.kind:
        case "delete":
            connection.execute(
                f"DELETE FROM {table} WHERE {where} AND {seq} = ?", [*values, damage.record]
            )
            return None
        case "cut":
            if damage.amount == -1:
                return NotPossible("rows have no newline that could be missing", moot=True)
            first = damage.record + (damage.amount != 0)
            connection.execute(
                f"DELETE FROM {table} WHERE {where} AND {seq} >= ?", [*values, first]
            )
            if damage.amount == 0:
                return None
            keep = damage.amount if damage.amount > 0 else damage.amount + 1
            return _change(connection, log.table, log.content, key, lambda text: text[:keep])
        case "add":
            last = _last_seq(log)
            row = dict(next(row for row in _session_rows(connection, log) if row[log.seq] == last))
            record = row[log.content].encode("utf-8", "surrogateescape")
            added = addition(record, damage.variant).removesuffix(b"\n")
            row[log.seq] = last + 1
            row[log.content] = added
            marks = ", ".join("CAST(? AS TEXT)" if name == log.content else "?" for name in row)
            names = ", ".join(map(_quote, row))
            connection.execute(
                f"INSERT INTO {table} ({names}) VALUES ({marks})", list(row.values())
            )
            return None
        case "trail" if damage.variant == "no newline":
            return NotPossible("rows have no newline that could be missing", moot=True)
        case "renumber" if not any(
            '"seq"' in str(row[log.content]) for row in _session_rows(connection, log)
        ):
            connection.execute(
                f"UPDATE {table} SET {seq} = {seq} + ? WHERE {where} AND {seq} = ?",
                [damage.amount, *values, damage.record],
            )
            return None
    return _change(
        connection, log.table, log.content, key, lambda text: damage_record(text, damage)
    )


def _session_rows(connection: sqlite3.Connection, log: RowLog) -> list[dict[str, Any]]:
    return [
        row
        for row in _rows(connection, log.table)
        if all(row[name] == value for name, value in log.session.items())
    ]


def _change(
    connection: sqlite3.Connection, table: str, column: str, key: dict[str, Any], change: Any
) -> NotPossible | None:
    """Puts new text into one cell; it may be no valid UTF-8."""
    where, values = _where(key)
    cell = f"FROM {_quote(table)} WHERE {where}"
    found = connection.execute(f"SELECT {_quote(column)} {cell}", values).fetchall()
    if len(found) != 1:
        return NotPossible(f"{len(found)} rows were found where one was expected", moot=False)
    old = found[0][0]
    is_text = isinstance(old, str)
    new = change(old.encode("utf-8", "surrogateescape") if is_text else old)
    if isinstance(new, NotPossible):
        return new
    value = "CAST(? AS TEXT)" if is_text else "?"
    connection.execute(
        f"UPDATE {_quote(table)} SET {_quote(column)} = {value} WHERE {where}", [new, *values]
    )
    return None
