"""The tables of a session database, and how a database of ours is told from any other file.

Decides which databases may be read and filled: one without tables, application_id 0 and
user_version 0 is new; one that carries our ids and exactly our tables is ours; everything else is
refused and stays as it is. Does not decide what the rows mean (`sqlite_rows`) or how a file is
opened (`sqlite_database`).
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Final

from torntail.stores.contract import StorageFailed, UnsupportedVersion

__all__ = ["APPLICATION_ID", "SCHEMA_VERSION", "TABLES", "fill", "identify"]

APPLICATION_ID: Final = 0x544F524E
"""`TORN`, at offset 68 of the file: what `file` and SQLite itself know a database by."""

SCHEMA_VERSION: Final = 1
"""The user_version of the tables below."""

TABLES: Final = {
    "sessions": """CREATE TABLE sessions (
    -- The session's id as encode_segment() writes it: injective, readable, valid for any id.
    session_id TEXT NOT NULL PRIMARY KEY,
    -- The header line of the log, without its newline.
    header TEXT NOT NULL
) STRICT""",
    "events": """CREATE TABLE events (
    session_id TEXT NOT NULL,
    seq INTEGER NOT NULL,
    -- The event's line of the log, without its newline.
    record TEXT NOT NULL,
    PRIMARY KEY (session_id, seq)
) STRICT""",
    "torn_copies": """CREATE TABLE torn_copies (
    session_id TEXT NOT NULL,
    -- The row with which the torn tail began, and its offset had the rows been lines of a file.
    seq INTEGER NOT NULL,
    byte INTEGER NOT NULL,
    -- SHA-256 of the content, in hex: a repeated repair makes no second copy.
    digest TEXT NOT NULL,
    content BLOB NOT NULL,
    PRIMARY KEY (session_id, byte, digest)
) STRICT""",
}
"""The tables by name, each with the statement that makes it, as SQLite keeps it."""


def identify(connection: sqlite3.Connection, path: Path, *, check_tables: bool = True) -> bool:
    """Whether the database is ours (True) or new (False).

    Raises `UnsupportedVersion` for our database with another user_version, `StorageFailed` for the
    database of another program. `check_tables` also holds our tables against this version's.
    """
    application_id = int(connection.execute("PRAGMA application_id").fetchone()[0])
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if application_id == APPLICATION_ID:
        if version != SCHEMA_VERSION:
            raise UnsupportedVersion("", path, version)
        if check_tables:
            _check_tables(connection, path)
        return True
    if application_id or version:
        raise _foreign(path, f"application_id {application_id}, user_version {version}")
    tables = connection.execute("SELECT name FROM sqlite_master LIMIT 1").fetchall()
    if tables:
        raise _foreign(path, "it has tables, but no application_id")
    return False


def fill(connection: sqlite3.Connection, path: Path) -> None:
    """Makes a new database ours, in one transaction (CR-10); does nothing where it is already.

    Of two processes that fill the same new database one waits here and finds it filled.
    """
    connection.execute("BEGIN IMMEDIATE")
    try:
        if not identify(connection, path):
            for statement in TABLES.values():
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _check_tables(connection: sqlite3.Connection, path: Path) -> None:
    """Refuses our ids over other tables: a trigger or an altered table would change what we store.

    Names that begin with `sqlite_` are the engine's own (indexes of primary keys, statistics).
    """
    found = {
        _text(name): _text(statement)
        for name, statement in connection.execute("SELECT name, sql FROM sqlite_master")
        if not _text(name).startswith("sqlite_")
    }
    if found != TABLES:
        names = sorted(
            name for name in found.keys() | TABLES if found.get(name) != TABLES.get(name)
        )
        raise StorageFailed(
            None,
            path,
            "open",
            f"its tables are not those of version {SCHEMA_VERSION}: {', '.join(names)}",
        )


def _foreign(path: Path, reason: str) -> StorageFailed:
    return StorageFailed(
        None, path, "open", f"the database belongs to another program ({reason}); left untouched"
    )


def _text(value: bytes | str | None) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value or ""
