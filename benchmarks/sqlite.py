"""The SQLite store against bare `sqlite3` with the same journal, level of syncing and rows."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import orjson

from benchmarks.events import TIME, batch, session
from benchmarks.measure import Measured, best_of, file_system, medians
from torntail.session import SessionHeader
from torntail.stores.sqlite import SqliteStore

LOADS = {"300 KB": (1_600, 5, 10), "30 MB": (160_000, 5, 1)}
APPENDS = ((1, 300), (1000, 60))

_SCHEMA = (
    "CREATE TABLE events (session_id TEXT, seq INTEGER, record BLOB, "
    "PRIMARY KEY (session_id, seq)) STRICT, WITHOUT ROWID"
)
_INSERT = "INSERT INTO events VALUES ('s', ?, ?)"
_SELECT = "SELECT record FROM events WHERE session_id = 's' ORDER BY seq"


def run(directory: Path) -> Iterator[Measured]:
    for name, (events, rounds, repeats) in LOADS.items():
        yield _load(directory, name, events, rounds, repeats)
    for size, rounds in APPENDS:
        yield _append(directory, size, rounds)


def _bare(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = wal")
    connection.execute("PRAGMA synchronous = full")
    connection.execute(_SCHEMA)
    return connection


def _insert(connection: sqlite3.Connection, first: int, records: list) -> None:
    rows = [(first + index, orjson.dumps(record)) for index, record in enumerate(records)]
    connection.execute("BEGIN IMMEDIATE")
    connection.executemany(_INSERT, rows)
    connection.execute("COMMIT")


def _load(directory: Path, name: str, events: int, rounds: int, repeats: int) -> Measured:
    mix = list(islice(session(), events))
    # A closed log, or each load would also repair it.
    while mix and mix[-1].type != "turn/end":
        mix.pop()
    bare = _bare(directory / f"bare-load-{events}.db")
    _insert(bare, 0, [event.to_json() for event in mix])
    with SqliteStore(directory / f"store-load-{events}.db") as store:
        store.create(SessionHeader("s", TIME))
        store.append("s", mix)
        count = len(mix)
        del mix
        floor, value = best_of(
            rounds,
            repeats,
            lambda: [orjson.loads(record) for (record,) in bare.execute(_SELECT)],
            lambda: store.load("s").events,
        )
    bare.close()
    return Measured("sqlite", f"SQLite load, {name} ({count} events)", "s", value, floor, rounds)


def _append(directory: Path, size: int, rounds: int) -> Measured:
    batches = [batch(size, start=number * size) for number in range(rounds + 1)]
    records = [[event.to_json() for event in events] for events in batches]
    bare = _bare(directory / f"bare-append-{size}.db")
    with SqliteStore(directory / f"store-append-{size}.db") as store:
        store.create(SessionHeader("s", TIME))
        store.append("s", batches[0])
        floor, value = medians(
            rounds,
            lambda number: _insert(bare, (number + 1) * size, records[number + 1]),
            lambda number: store.append("s", batches[number + 1]),
        )
    bare.close()
    name = f"SQLite append and commit, batch of {size} (on {file_system(directory)})"
    return Measured("sqlite", name, "s", value, floor, rounds)
