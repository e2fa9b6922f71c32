"""What a writer that was killed leaves to SQLite's rollback: no error for anybody else."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from torntail.session import SessionEvent, SessionHeader
from torntail.stores.sqlite import SqliteStore

KILLED = """
import os, sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("PRAGMA cache_size = 1")
connection.execute("BEGIN IMMEDIATE")
for seq in range(1000, 1100):
    connection.execute(
        "INSERT INTO events (session_id, seq, record) VALUES ('a', ?, ?)", (seq, "x" * 3000)
    )
os.kill(os.getpid(), 9)
"""


def _note(seq: int) -> SessionEvent:
    return SessionEvent("note", seq, 1, {})


def _append(store: SqliteStore, path: Path) -> None:
    store.append("a", [_note(1)])


def _load(store: SqliteStore, path: Path) -> None:
    assert len(store.load("a").events) == 1


def _create(store: SqliteStore, path: Path) -> None:
    store.create(SessionHeader("b", 1))
    store.append("b", [_note(0)])


def _open(store: SqliteStore, path: Path) -> None:
    with SqliteStore(path, journal_mode="delete") as other:
        assert len(other.load("a").events) == 1


@pytest.mark.parametrize("call", [_append, _load, _create, _open])
def test_a_transaction_that_was_cut_short_is_rolled_back(
    call: Callable[[SqliteStore, Path], None], tmp_path: Path
) -> None:
    path = tmp_path / "sessions.db"
    with SqliteStore(path, journal_mode="delete") as store:
        store.create(SessionHeader("a", 1))
        store.append("a", [_note(0)])
        size = path.stat().st_size
        subprocess.run([sys.executable, "-c", KILLED, path], check=False)
        assert path.stat().st_size > size
        assert path.with_name("sessions.db-journal").exists()
        call(store, path)
        assert path.stat().st_size <= size + 8192
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
