from __future__ import annotations

import gc
import hashlib
import json
import os
import re
import shutil
import sqlite3
import stat
import subprocess
import sys
import tempfile
import textwrap
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.shapes import event_lines, log
from torntail.session import SessionEvent, SessionHeader, parse_event
from torntail.stores import sqlite_database
from torntail.stores.contract import (
    IdentityMismatch,
    InvalidSessionId,
    ListEntry,
    LoadResult,
    NotSerializable,
    RepairReport,
    SequenceMismatch,
    SessionCorrupted,
    SessionExists,
    SessionNotFound,
    SessionStore,
    StorageFailed,
    StoreClosed,
    StoreError,
    UnsupportedVersion,
    WriterConflict,
)
from torntail.stores.lock import WriterLock
from torntail.stores.paths import encode_segment
from torntail.stores.sqlite import SqliteStore
from torntail.stores.sqlite_schema import APPLICATION_ID, TABLES

ROOT = Path(__file__).parents[2]
ID = "s-1"
HEADER = SessionHeader(ID, 1_700_000_000_000, cwd="/w")
OPEN = "TS U SS A:c1,c2 K:c1 K:c2 R:c1"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "sessions.db"


@pytest.fixture
def store(path: Path) -> Iterator[SqliteStore]:
    with SqliteStore(path, busy_timeout=0.05) as opened:
        yield opened


def events(shape: str) -> list[SessionEvent]:
    return [parse_event(line) for line in event_lines(shape)]


def repaired_lines(shape: str, closers: str) -> list[bytes]:
    """The lines of `shape` and of the closers, which take the time of the last event (CL-5)."""
    count = len(event_lines(shape))
    last = json.loads(event_lines(shape)[-1])["time"]
    lines = event_lines(f"{shape} {closers}")
    for index in range(count, len(lines)):
        lines[index] = re.sub(rb'"time":\d+', b'"time":%d' % last, lines[index], count=1)
    return lines


def as_json(values: Sequence[SessionEvent]) -> list[Any]:
    return [value.to_json() for value in values]


CLOSED = repaired_lines(OPEN, "Rs:c2 SE TEi")


def rows(path: Path, session_id: str = ID) -> list[tuple[int, bytes]]:
    """What an independent reader sees."""
    connection = sqlite3.connect(path)
    connection.text_factory = bytes
    found = connection.execute(
        "SELECT seq, record FROM events WHERE session_id = ? ORDER BY seq",
        (encode_segment(session_id),),
    ).fetchall()
    connection.close()
    return found


def everything(path: Path) -> list[list[tuple[Any, ...]]]:
    connection = sqlite3.connect(path)
    connection.text_factory = bytes
    tables = [
        sorted(connection.execute(f"SELECT * FROM {table}").fetchall())
        for table in ("sessions", "events", "torn_copies")
    ]
    connection.close()
    return tables


def execute(path: Path, statement: str, *values: Any) -> list[Any]:
    connection = sqlite3.connect(path, isolation_level=None)
    found = connection.execute(statement, values).fetchall()
    connection.close()
    return found


def plant(
    path: Path, lines: Sequence[bytes], *, header: bytes | None = None, key: str = ID
) -> None:
    """A database with one session of these rows, made without the store."""
    connection = sqlite3.connect(path, isolation_level=None)
    if not connection.execute("SELECT 1 FROM sqlite_master").fetchall():
        for statement in TABLES.values():
            connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute("PRAGMA user_version = 1")
    text = log("H").rstrip(b"\n") if header is None else header
    connection.execute("BEGIN")
    connection.execute("INSERT INTO sessions VALUES (?, CAST(? AS TEXT))", (key, text))
    connection.executemany(
        "INSERT INTO events VALUES (?, ?, CAST(? AS TEXT))",
        ((key, seq, line) for seq, line in enumerate(lines)),
    )
    connection.execute("COMMIT")
    connection.close()


def plant_shape(path: Path, shape: str) -> list[bytes]:
    lines = event_lines(shape)
    plant(path, lines)
    return lines


def python(code: str, *arguments: str, **options: Any) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(code), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
        **options,
    )


def run(code: str, *arguments: str, **options: Any) -> str:
    process = python(code, *arguments, **options)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0, output
    return output


# --- reading and writing ------------------------------------------------------------------------


def test_it_is_a_session_store(store: SqliteStore) -> None:
    assert isinstance(store, SessionStore)


def test_load_returns_what_was_appended(store: SqliteStore, path: Path) -> None:
    header = SessionHeader(
        "s", 1.5, cwd="/w", parent_session="p", seed_length=3, extra={"later": [1]}
    )
    appended = events("T TS U SS C C A SE TE")
    store.create(header)
    store.append("s", appended[:4])
    store.append("s", appended[4:])
    assert store.load("s") == LoadResult(header, appended, RepairReport())
    with SqliteStore(path) as other:
        assert other.load("s") == LoadResult(header, appended, RepairReport())


def test_a_record_is_stored_as_the_line_of_a_file(store: SqliteStore, path: Path) -> None:
    store.create(HEADER)
    store.append(ID, events("TS U!sep A!sur A!big TE"))
    assert [record for _, record in rows(path)] == event_lines("TS U!sep A!sur A!big TE")
    assert execute(path, "SELECT header FROM sessions") == [(log("H").decode().strip(),)]


def test_the_writers_own_load_closes_the_turn(store: SqliteStore, path: Path) -> None:
    store.create(HEADER)
    store.append(ID, events(OPEN))
    result = store.load(ID)
    wanted = list(map(json.loads, CLOSED))
    assert as_json(result.events) == wanted
    assert result.repair == RepairReport(closers=tuple(result.events[-3:]))
    assert [record for _, record in rows(path)] == CLOSED
    store.append(ID, [SessionEvent("next", len(wanted), 1, None)])
    assert len(rows(path)) == len(wanted) + 1


def test_a_second_load_writes_nothing(store: SqliteStore, path: Path) -> None:
    store.create(HEADER)
    store.append(ID, events(OPEN))
    first = store.load(ID)
    before = everything(path)
    second = store.load(ID)
    assert second == LoadResult(first.header, first.events, RepairReport())
    assert everything(path) == before


@pytest.mark.parametrize(("shape", "expected", "got"), [("T@1", 6, 5), ("T@7", 6, 7)])
def test_a_wrong_first_seq_is_refused(
    store: SqliteStore, path: Path, shape: str, expected: int, got: int
) -> None:
    store.create(HEADER)
    store.append(ID, events("T"))
    before = everything(path)
    with pytest.raises(SequenceMismatch) as refusal:
        store.append(ID, [SessionEvent("x", got, 0, 1)])
    assert (refusal.value.expected, refusal.value.got, refusal.value.index) == (expected, got, 0)
    assert everything(path) == before


def test_a_gap_in_a_batch_is_refused(store: SqliteStore, path: Path) -> None:
    store.create(HEADER)
    with pytest.raises(SequenceMismatch) as refusal:
        store.append(ID, [SessionEvent("x", seq, 0, 1) for seq in (0, 1, 3)])
    assert (refusal.value.expected, refusal.value.got, refusal.value.index) == (2, 3, 2)
    assert not path.exists()
    store.append(ID, events("T"))


@pytest.mark.parametrize("value", [float("nan"), b"bytes", {1: 2}, {1, 2}, object()])
def test_what_json_lacks_is_refused(store: SqliteStore, path: Path, value: Any) -> None:
    store.create(HEADER)
    with pytest.raises(NotSerializable) as refusal:
        store.append(ID, [SessionEvent("a", 0, 0, 1), SessionEvent("b", 1, 0, [value])])
    assert (refusal.value.event_type, refusal.value.seq) == ("b", 1)
    assert not path.exists()


def test_append_and_load_copy(store: SqliteStore) -> None:
    data = {"list": [1]}
    store.create(HEADER)
    store.append(ID, [SessionEvent("a", 0, 0, data)])
    data["list"].append(2)
    store.load(ID).events[0].data["list"].append(3)
    assert store.load(ID).events == [SessionEvent("a", 0, 0, {"list": [1]})]


def test_changing_a_loaded_closer_changes_no_report(store: SqliteStore) -> None:
    store.create(HEADER)
    store.append(ID, events(OPEN))
    result = store.load(ID)
    result.events[-1].data["reason"] = "changed"
    assert result.repair.closers[-1].data["reason"] == {"kind": "interrupted"}


def test_an_empty_batch_does_nothing(store: SqliteStore, tmp_path: Path) -> None:
    store.create(HEADER)
    store.append(ID, [])
    store.append("unknown", iter(()))
    assert list(tmp_path.iterdir()) == []


def test_create_is_lazy(store: SqliteStore, tmp_path: Path) -> None:
    store.create(HEADER)
    assert store.list() == []
    for look in (store.load, store.inspect):
        with pytest.raises(SessionNotFound):
            look(ID)
    assert list(tmp_path.iterdir()) == []


def test_create_of_what_exists_is_refused(store: SqliteStore, path: Path) -> None:
    store.create(HEADER)
    with pytest.raises(SessionExists):
        store.create(HEADER)
    store.append(ID, events("T"))
    with pytest.raises(SessionExists):
        store.create(SessionHeader(ID, 2, cwd="/elsewhere"))
    with SqliteStore(path) as other, pytest.raises(SessionExists):
        other.create(HEADER)


def test_create_refuses_what_cannot_be_loaded(store: SqliteStore) -> None:
    with pytest.raises(InvalidSessionId):
        store.create(SessionHeader("", 0))
    with pytest.raises(UnsupportedVersion):
        store.create(SessionHeader("s", 0, version=1))
    with pytest.raises(NotSerializable):
        store.create(SessionHeader("s", float("nan")))


def test_an_unknown_id_is_not_found_and_leaves_no_trace(store: SqliteStore, tmp_path: Path) -> None:
    calls: list[Callable[[], object]] = [
        lambda: store.load("unknown"),
        lambda: store.inspect("unknown"),
        lambda: store.reopen("unknown"),
        lambda: store.append("unknown", events("T")),
    ]
    for call in calls:
        with pytest.raises(SessionNotFound):
            call()
    assert list(tmp_path.iterdir()) == []
    store.create(HEADER)
    store.append(ID, events("T"))
    names = sorted(str(name) for name in tmp_path.rglob("*"))
    for call in calls:
        with pytest.raises(SessionNotFound):
            call()
    assert sorted(str(name) for name in tmp_path.rglob("*")) == names


def test_append_to_a_session_of_another_store_loads_it_first(path: Path) -> None:
    with SqliteStore(path) as first:
        first.create(HEADER)
        first.append(ID, events(OPEN))
    with SqliteStore(path) as second:
        with pytest.raises(SequenceMismatch) as refusal:
            second.append(ID, [SessionEvent("x", 7, 0, 1)])
        assert (refusal.value.expected, refusal.value.got) == (10, 7)
        second.append(ID, [SessionEvent("x", 10, 0, 1)])
    assert [seq for seq, _ in rows(path)] == list(range(11))


IDS = [
    "..",
    ".",
    "a/b",
    "/etc/passwd",
    "nul\0nul",
    "half \ud800",
    "x" * 300,
    "é" * 300,
    "CASE",
    "case",
    "~",
    "a'b\"c;--",
    "new\nline",
    "\U0001f600",
]


def test_any_id_is_stored_faithfully(store: SqliteStore, path: Path, tmp_path: Path) -> None:
    for index, session_id in enumerate(IDS):
        store.create(SessionHeader(session_id, index))
        store.append(session_id, [SessionEvent("x", 0, index, session_id)])
    with SqliteStore(path) as other:
        for index, session_id in enumerate(IDS):
            result = other.load(session_id)
            assert result.header == SessionHeader(session_id, index)
            assert result.events == [SessionEvent("x", 0, index, session_id)]
        found = {entry.session_id: entry for entry in other.list()}
    assert found == {
        session_id: ListEntry(session_id, SessionHeader(session_id, index))
        for index, session_id in enumerate(IDS)
    }
    locks = path.with_name(path.name + ".locks")
    assert len(list(locks.iterdir())) == len(IDS)
    outside = {path.name, f"{path.name}.locks", f"{path.name}-wal", f"{path.name}-shm"}
    assert {name.name for name in tmp_path.iterdir()} <= outside


def test_surrogate_halves_name_the_same_session_as_the_character(store: SqliteStore) -> None:
    store.create(SessionHeader("\ud83d\ude00", 0))
    store.append("\U0001f600", [SessionEvent("x", 0, 0, 1)])
    assert store.load("\ud83d\ude00").header.id == "\U0001f600"
    with pytest.raises(SessionExists):
        store.create(SessionHeader("\U0001f600", 0))


def test_the_empty_id_is_refused(store: SqliteStore) -> None:
    for call in (store.load, store.inspect):
        with pytest.raises(InvalidSessionId):
            call("")
    with pytest.raises(InvalidSessionId):
        store.append("", events("T"))


def test_sessions_do_not_touch_each_other(store: SqliteStore) -> None:
    for session_id in ("a", "b"):
        store.create(SessionHeader(session_id, 0))
    store.append("a", events("T"))
    store.append("b", events("TS"))
    store.append("a", [SessionEvent("x", 6, 0, 1)])
    store.load("b")
    assert store.load("a").events == [*events("T"), SessionEvent("x", 6, 0, 1)]
    assert store.load("b").events == [parse_event(line) for line in repaired_lines("TS", "TEi")]


def test_values_survive(store: SqliteStore) -> None:
    data = [
        "\u2028\u2029\u0085\0",
        "\ud800 half",
        "".join(map(chr, range(0x20, 0x3000))),
        10**4299,
        -0.0,
        5e-324,
        1.7976931348623157e308,
        2**53 + 1,
        "x" * (8 << 20),
    ]
    nested: Any = 1
    for _ in range(199):
        nested = [nested]
    appended = [SessionEvent("a", 0, -0.5, data), SessionEvent("never heard of", 1, 0, nested)]
    store.create(HEADER)
    store.append(ID, appended)
    loaded = store.load(ID).events
    assert loaded == appended
    assert str(loaded[0].data[4]) == "-0.0"


def test_after_close_every_call_says_closed(path: Path) -> None:
    store = SqliteStore(path)
    store.create(HEADER)
    store.append(ID, events("T"))
    store.close()
    store.close()
    for call in (
        lambda: store.create(SessionHeader("x", 0)),
        lambda: store.append(ID, []),
        lambda: store.append(ID, events("T")),
        lambda: store.load(ID),
        lambda: store.inspect(ID),
        lambda: store.list(),
        lambda: store.reopen(ID),
    ):
        with pytest.raises(StoreClosed):
            call()
    with SqliteStore(path) as other:
        other.append(ID, [SessionEvent("x", 6, 0, 1)])


def test_calls_from_threads_are_serialised(store: SqliteStore) -> None:
    store.create(HEADER)
    refused: list[BaseException] = []
    start = threading.Barrier(8)

    def add() -> None:
        start.wait()
        for seq in range(20):
            try:
                store.append(ID, [SessionEvent("x", seq, 0, seq)])
            except SequenceMismatch:
                pass
            except BaseException as error:
                refused.append(error)

    threads = [threading.Thread(target=add) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert refused == []
    loaded = store.load(ID).events
    assert loaded == [SessionEvent("x", seq, 0, seq) for seq in range(len(loaded))]
    assert loaded


def test_a_load_leaves_the_collector_as_it_found_it(store: SqliteStore) -> None:
    store.create(HEADER)
    store.append(ID, events("T"))
    store.load(ID)
    assert gc.isenabled()
    gc.disable()
    try:
        store.load(ID)
        assert not gc.isenabled()
    finally:
        gc.enable()


# --- the file -----------------------------------------------------------------------------------


def test_the_database_is_private_and_ours(path: Path, tmp_path: Path) -> None:
    deep = tmp_path / "one" / "two" / "sessions.db"
    with SqliteStore(deep) as store:
        store.create(HEADER)
        assert not deep.parent.exists()
        store.append(ID, events("T"))
        assert stat.S_IMODE(deep.stat().st_mode) == 0o600
        assert stat.S_IMODE(Path(f"{deep}-wal").stat().st_mode) == 0o600
        assert stat.S_IMODE(deep.parent.stat().st_mode) == 0o700
        assert stat.S_IMODE(deep.parent.parent.stat().st_mode) == 0o700
        main_file = deep.read_bytes()
    assert main_file[68:72] == b"TORN"
    assert int.from_bytes(main_file[60:64], "big") == 1


@pytest.mark.parametrize("name", ["a?mode=memory", "a#b", "a%20b", "ü ber", ":memory:", "x\udcff"])
def test_the_path_is_taken_literally(tmp_path: Path, name: str) -> None:
    with SqliteStore(tmp_path / name) as store:
        store.create(HEADER)
        store.append(ID, events("T"))
    assert (tmp_path / name).is_file()


def test_a_link_leads_to_the_same_locks(path: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.db"
    with SqliteStore(path) as first:
        first.create(HEADER)
        first.append(ID, events("T"))
        link.symlink_to(path)
        with SqliteStore(link) as second, pytest.raises(WriterConflict):
            second.append(ID, [SessionEvent("x", 6, 0, 1)])


def foreign(path: Path, *statements: str) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    for statement in statements:
        connection.execute(statement)
    connection.close()


FOREIGN = {
    "tables": ["CREATE TABLE mine (x)"],
    "application_id": ["PRAGMA application_id = 77"],
    "user_version": ["PRAGMA user_version = 4"],
    "write-ahead log": ["PRAGMA journal_mode = wal", "CREATE TABLE mine (x)"],
    "a view": ["CREATE VIEW mine AS SELECT 1"],
}


def snapshot(directory: Path) -> dict[str, bytes]:
    return {
        str(file.relative_to(directory)): file.read_bytes()
        for file in sorted(directory.rglob("*"))
        if file.is_file() and not file.name.endswith("-shm")
    }


def refused_everywhere(path: Path, kind: type[StoreError]) -> list[StoreError]:
    refusals = []
    for call in (
        lambda store: store.list(),
        lambda store: store.load(ID),
        lambda store: store.inspect(ID),
        lambda store: store.create(HEADER),
        lambda store: store.append(ID, events("T")),
        lambda store: store.reopen(ID),
    ):
        with SqliteStore(path, busy_timeout=0.05) as store, pytest.raises(kind) as refusal:
            call(store)
        assert type(refusal.value) is kind
        refusals.append(refusal.value)
    return refusals


@pytest.mark.parametrize("name", FOREIGN)
def test_a_foreign_database_is_refused_and_untouched(path: Path, tmp_path: Path, name: str) -> None:
    foreign(path, *FOREIGN[name])
    before = snapshot(tmp_path)
    for refusal in refused_everywhere(path, StorageFailed):
        assert isinstance(refusal, StorageFailed)
        assert refusal.operation == "open"
    assert snapshot(tmp_path) == before
    assert not path.with_name(path.name + ".locks").exists()


@pytest.mark.parametrize("application_id", [0, 77])
def test_a_foreign_database_whose_tables_stand_in_its_log_is_untouched(
    path: Path, tmp_path: Path, application_id: int
) -> None:
    run(
        """
        import os, sqlite3, sys
        connection = sqlite3.connect(sys.argv[1], isolation_level=None)
        connection.execute("PRAGMA journal_mode = wal")
        connection.execute("CREATE TABLE mine (x)")
        connection.execute(f"PRAGMA application_id = {sys.argv[2]}")
        sys.stdout.flush()
        os._exit(0)
        """,
        str(path),
        str(application_id),
    )
    assert Path(f"{path}-wal").stat().st_size
    before = snapshot(tmp_path)
    refused_everywhere(path, StorageFailed)
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize(
    "content", [b"xy", b"hello world\n" * 9, bytes(4096), b"SQLite format 3\0", log("H T")]
)
def test_a_file_that_is_no_database_is_refused_and_untouched(
    path: Path, tmp_path: Path, content: bytes
) -> None:
    path.write_bytes(content)
    for refusal in refused_everywhere(path, StorageFailed):
        assert isinstance(refusal, StorageFailed)
        assert refusal.operation == "open"
    assert snapshot(tmp_path) == {path.name: content}


@pytest.mark.parametrize("version", [0, 2, -1])
def test_our_database_of_another_version_is_refused(
    path: Path, tmp_path: Path, version: int
) -> None:
    plant_shape(path, "T")
    execute(path, f"PRAGMA user_version = {version}")
    before = snapshot(tmp_path)
    for refusal in refused_everywhere(path, UnsupportedVersion):
        assert isinstance(refusal, UnsupportedVersion)
        assert refusal.version == version
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize(
    "change",
    [
        "DROP TABLE torn_copies",
        "ALTER TABLE events ADD COLUMN more TEXT",
        "CREATE TRIGGER thief AFTER INSERT ON events BEGIN DELETE FROM events; END",
    ],
)
def test_our_ids_over_other_tables_are_refused(path: Path, tmp_path: Path, change: str) -> None:
    plant_shape(path, "T")
    execute(path, change)
    before = snapshot(tmp_path)
    refused_everywhere(path, StorageFailed)
    assert snapshot(tmp_path) == before


def test_a_database_that_becomes_foreign_before_the_first_flush_is_untouched(
    store: SqliteStore, path: Path, tmp_path: Path
) -> None:
    store.create(HEADER)
    foreign(path, "CREATE TABLE mine (x)")
    before = snapshot(tmp_path)
    with pytest.raises(StorageFailed):
        store.append(ID, events("T"))
    assert snapshot(tmp_path) == before
    assert list(tmp_path.iterdir()) == [path]


def test_statistics_of_the_engine_are_no_other_tables(path: Path) -> None:
    plant_shape(path, "T")
    execute(path, "ANALYZE")
    with SqliteStore(path) as store:
        assert store.load(ID).events == events("T")


@pytest.mark.parametrize("mode", ["delete", "wal"])
def test_an_empty_database_is_new(path: Path, mode: str) -> None:
    execute(path, f"PRAGMA journal_mode = {mode}")
    if mode == "delete":
        path.touch()
    with SqliteStore(path) as store:
        assert store.list() == []
        with pytest.raises(SessionNotFound):
            store.load(ID)
        store.create(HEADER)
        store.append(ID, events("T"))
        assert store.load(ID).events == events("T")


def test_a_missing_database_is_no_error_and_not_made(tmp_path: Path) -> None:
    with SqliteStore(tmp_path / "no" / "where.db") as store:
        assert store.list() == []
        with pytest.raises(SessionNotFound):
            store.load(ID)
    assert list(tmp_path.iterdir()) == []


def test_a_directory_or_a_file_in_the_way_is_not_absence(tmp_path: Path) -> None:
    (tmp_path / "directory").mkdir()
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "loop").symlink_to("loop")
    os.mkfifo(tmp_path / "pipe")
    before = sorted(tmp_path.rglob("*"))
    for wrong in ("directory", "file/sessions.db", "loop", "pipe"):
        refused_everywhere(tmp_path / wrong, StorageFailed)
    assert sorted(tmp_path.rglob("*")) == before


# --- durability ---------------------------------------------------------------------------------


@pytest.mark.parametrize("journal_mode", ["wal", "delete", "truncate", "persist"])
@pytest.mark.parametrize("synchronous", ["off", "normal", "full", "extra"])
def test_every_mode_and_level_reaches_the_database(
    path: Path, journal_mode: Any, synchronous: Any
) -> None:
    with SqliteStore(
        path, durability="process", journal_mode=journal_mode, synchronous=synchronous
    ) as store:
        store.create(HEADER)
        store.append(ID, events(OPEN))
        assert as_json(store.load(ID).events) == list(map(json.loads, CLOSED))
        connection = store._database._connection
        assert connection is not None
        assert connection.execute("PRAGMA journal_mode").fetchone() == (journal_mode.encode(),)
        level = ["off", "normal", "full", "extra"].index(synchronous)
        assert connection.execute("PRAGMA synchronous").fetchone() == (level,)
    with SqliteStore(
        path, durability="process", journal_mode=journal_mode, synchronous=synchronous
    ) as store:
        assert as_json(store.load(ID).events) == list(map(json.loads, CLOSED))


@pytest.mark.parametrize(
    ("options", "synchronous"),
    [
        ({}, "full"),
        ({"synchronous": "extra"}, "extra"),
        ({"journal_mode": "delete"}, "extra"),
        ({"durability": "process"}, "normal"),
        ({"durability": "none"}, "off"),
    ],
)
def test_the_level_follows_from_the_claim(path: Path, options: Any, synchronous: str) -> None:
    with SqliteStore(path, **options) as store:
        assert store.settings.synchronous == synchronous


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        ({"synchronous": "normal"}, "use synchronous='full' or synchronous='extra'"),
        ({"synchronous": "off"}, 'durability="process"'),
        ({"journal_mode": "delete", "synchronous": "full"}, "use synchronous='extra'"),
        ({"journal_mode": "persist", "synchronous": "normal"}, "use synchronous='extra'"),
        ({"journal_mode": "memory"}, "journal_mode is one of wal, delete, truncate, persist"),
        ({"durability": "total"}, "durability is one of none, process, power"),
        ({"synchronous": "2"}, "synchronous is one of off, normal, full, extra"),
    ],
)
def test_a_claim_that_cannot_be_kept_is_refused(path: Path, options: Any, advice: str) -> None:
    with pytest.raises(ValueError, match=re.escape(advice)):
        SqliteStore(path, **options)


@pytest.mark.parametrize("written", [1, 16, 60, 100, 512])
def test_a_creation_torn_in_its_first_page_is_rolled_back(path: Path, written: int) -> None:
    # The journal of a database of no pages: it is synced before the first page is written.
    magic = bytes.fromhex("d9d505f920a163d7")
    header = magic + bytes(12) + (512).to_bytes(4, "big") + (4096).to_bytes(4, "big")
    for _ in range(2):
        journal = path.with_name(f"{path.name}-journal")
        journal.write_bytes(header.ljust(512, b"\0"))
        with SqliteStore(path.with_name("whole.db")) as whole:
            whole.create(HEADER)
            whole.append(ID, events("T"))
        path.write_bytes(path.with_name("whole.db").read_bytes()[:written])
        with SqliteStore(path) as first, pytest.raises(SessionNotFound):
            first.load(ID)
        # What SQLite leaves of it is new again.
        with SqliteStore(path) as second:
            assert second.list() == []
            second.create(HEADER)
            second.append(ID, events("T"))
            assert len(second.load(ID).events) == len(events("T"))
        for name in ("whole.db", path.name):
            path.with_name(name).unlink()


@pytest.mark.parametrize("byte", [b"S", b"\0", b"g"])
def test_the_one_byte_that_a_creation_may_leave_is_new(path: Path, byte: bytes) -> None:
    # SQLite counts it as none when it rolls back; unsynced, a power cut may leave any.
    path.write_bytes(byte)
    with SqliteStore(path) as store:
        assert store.list() == []
        store.create(HEADER)
        store.append(ID, events("T"))
        assert len(store.load(ID).events) == len(events("T"))


def test_what_is_no_database_stays_refused_beside_what_is_no_journal(path: Path) -> None:
    path.write_bytes(b"not a database, and longer than its header would be" * 4)
    journal = path.with_name(f"{path.name}-journal")
    journal.write_bytes(b"no journal")
    before = path.read_bytes()
    with SqliteStore(path) as store, pytest.raises(StorageFailed):
        store.load(ID)
    assert (path.read_bytes(), journal.read_bytes()) == (before, b"no journal")


def test_a_journal_mode_that_cannot_be_had_is_refused(path: Path) -> None:
    with SqliteStore(path) as first:
        first.create(HEADER)
        first.append(ID, events("T"))
        with SqliteStore(path, journal_mode="delete", busy_timeout=0.02) as second:
            second.create(SessionHeader("t", 0))
            with pytest.raises(StorageFailed) as refusal:
                second.append("t", events("T"))
            assert not refusal.value.writer_dead
        first.append(ID, [SessionEvent("x", 6, 0, 1)])
        assert [entry.session_id for entry in first.list()] == [ID]


def test_a_journal_mode_that_reads_back_otherwise_is_refused(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        sqlite_database.Database, "_change_journal_mode", lambda *_: "delete", raising=True
    )
    with SqliteStore(path) as store:
        store.create(HEADER)
        with pytest.raises(StorageFailed, match="stays with delete"):
            store.append(ID, events("T"))
        assert store.list() == []


@pytest.mark.parametrize(("durability", "calls"), [("power", 1), ("process", 0), ("none", 0)])
def test_directories_are_synced_before_the_first_acknowledgement_only(
    path: Path, monkeypatch: pytest.MonkeyPatch, durability: Any, calls: int
) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(sqlite_database, "sync_directories", synced.append)
    with SqliteStore(path, durability=durability) as store:
        store.create(HEADER)
        store.append(ID, events("T"))
        store.append(ID, [SessionEvent("x", 6, 0, 1)])
        assert synced == [path.parent] * calls
    # Another store object does not know whether the first lived to sync them.
    with SqliteStore(path, durability=durability) as store:
        store.append(ID, [SessionEvent("x", 7, 0, 1)])
        assert synced == [path.parent] * calls * 2


# --- damage in row form -------------------------------------------------------------------------

TORN = b'{"type":"user/message","seq":6,"ti'
GARBAGE = [TORN, b"", b"\0\0\0", b"null", b"[]", b"\xff\xfe", b'{"type":"x","seq":6,"time":0}']


def torn_report(kept: list[bytes], torn: list[bytes], **more: Any) -> RepairReport:
    return RepairReport(
        torn_from_line=len(kept),
        torn_from_byte=sum(len(line) + 1 for line in kept),
        torn_bytes=sum(len(line) + 1 for line in torn),
        **more,
    )


@pytest.mark.parametrize("garbage", GARBAGE)
def test_a_bad_last_row_is_dropped(store: SqliteStore, path: Path, garbage: bytes) -> None:
    kept = event_lines("T")
    plant(path, [*kept, garbage])
    result = store.load(ID)
    assert result == LoadResult(HEADER, events("T"), torn_report(kept, [garbage]))
    assert rows(path) == list(enumerate(kept))
    assert execute(path, "SELECT count(*) FROM torn_copies") == [(0,)]


def test_a_torn_open_turn_is_closed(store: SqliteStore, path: Path) -> None:
    kept = event_lines(OPEN)
    plant(path, [*kept, TORN])
    result = store.load(ID)
    closers = tuple(result.events[-3:])
    assert as_json(result.events) == list(map(json.loads, CLOSED))
    assert result.repair == torn_report(kept, [TORN], closers=closers)
    assert [record for _, record in rows(path)] == CLOSED


def test_whole_records_in_the_torn_tail_are_copied_first(store: SqliteStore, path: Path) -> None:
    lines = event_lines(OPEN)
    torn = [b"garbage", *lines[4:]]
    plant(path, [*lines[:4], *torn])
    result = store.load(ID)
    content = b"".join(line + b"\n" for line in torn)
    digest = hashlib.sha256(content).hexdigest()
    byte = sum(len(line) + 1 for line in lines[:4])
    assert execute(path, "SELECT * FROM torn_copies") == [(ID, 4, byte, digest, content)]
    closers = tuple(result.events[4:])
    copy = f"torn_copies(session_id={ID}, byte={byte}, digest={digest})"
    assert result.repair == torn_report(lines[:4], torn, closers=closers, copy_kept=copy)
    # The same damage again makes no second copy.
    execute(path, "DELETE FROM events")
    execute(path, "DELETE FROM sessions")
    plant(path, [*lines[:4], *torn])
    assert store.load(ID).repair.copy_kept == copy
    assert len(execute(path, "SELECT * FROM torn_copies")) == 1


@pytest.mark.parametrize("rest", [TORN, b"\0\0", b" x", event_lines("T X:later")[6]])
@pytest.mark.parametrize("shape", ["T", OPEN])
def test_a_glued_row_is_cut_back_to_its_record(
    store: SqliteStore, path: Path, shape: str, rest: bytes
) -> None:
    lines = event_lines(shape)
    plant(path, [*lines[:-1], lines[-1] + rest])
    result = store.load(ID)
    assert as_json(result.events[: len(lines)]) == as_json(events(shape))
    assert rows(path)[: len(lines)] == list(enumerate(lines))
    start = sum(len(line) + 1 for line in lines[:-1])
    assert (result.repair.torn_from_line, result.repair.torn_from_byte) == (
        len(lines) - 1,
        start + len(lines[-1]),
    )
    assert result.repair.torn_bytes == len(rest) + 1
    whole = rest.startswith(b'{"type":"later"')
    copies = execute(path, "SELECT content FROM torn_copies")
    assert copies == ([(rest + b"\n",)] if whole else [])
    assert len(rows(path)) == len(result.events)


def corrupted(path: Path, row: int, reason: str) -> None:
    before = everything(path)
    for name in ("load", "inspect", "append", "reopen"):
        arguments = (ID, [SessionEvent("x", 99, 0, 1)]) if name == "append" else (ID,)
        with SqliteStore(path) as store, pytest.raises(SessionCorrupted) as refusal:
            getattr(store, name)(*arguments)
        assert (refusal.value.line, refusal.value.byte) == (row, None)
        assert refusal.value.path == path
        assert reason in refusal.value.reason
    with SqliteStore(path) as store:
        assert store.list() == [ListEntry(ID, HEADER)]
    assert everything(path) == before


@pytest.mark.parametrize("garbage", GARBAGE)
@pytest.mark.parametrize("index", [0, 2])
def test_a_bad_row_before_a_turn_end_is_corruption(path: Path, garbage: bytes, index: int) -> None:
    lines = event_lines("T")
    lines[index] = garbage
    plant(path, lines)
    corrupted(path, index, "")


@pytest.mark.parametrize("shape", ["T", "T T", OPEN])
def test_a_missing_row_is_corruption(path: Path, shape: str) -> None:
    plant_shape(path, shape)
    execute(path, "DELETE FROM events WHERE seq = 3")
    corrupted(path, 4, "seq: expected 3, got 4")


def test_a_missing_first_row_is_corruption(path: Path) -> None:
    plant_shape(path, "T")
    execute(path, "DELETE FROM events WHERE seq = 0")
    corrupted(path, 1, "seq: expected 0, got 1")


def test_a_row_before_the_first_is_corruption(path: Path) -> None:
    plant_shape(path, "T")
    execute(path, "UPDATE events SET seq = -5 WHERE seq = 5")
    corrupted(path, -5, "seq: expected 0, got -5")


def test_a_wrong_seq_in_a_record_is_corruption_even_behind_the_last_turn_end(path: Path) -> None:
    lines = event_lines("T TS U")
    lines[7] = lines[7].replace(b'"seq":7', b'"seq":6')
    plant(path, lines)
    corrupted(path, 7, "seq: expected 7, got 6")


def test_a_wrong_seq_of_a_row_is_corruption_though_its_record_is_right(path: Path) -> None:
    plant_shape(path, "T TS U")
    execute(path, "UPDATE events SET seq = 70 WHERE seq = 7")
    corrupted(path, 70, "seq: expected 7, got 70")


def test_a_gap_before_a_bad_row_is_corruption(path: Path) -> None:
    plant(path, [*event_lines("T"), TORN])
    execute(path, "UPDATE events SET seq = 9 WHERE seq = 6")
    corrupted(path, 9, "seq: expected 6, got 9")


def test_the_earliest_damage_is_named(path: Path) -> None:
    lines = event_lines("T T T")
    lines[2] = TORN
    plant(path, lines)
    execute(path, "DELETE FROM events WHERE seq = 8")
    corrupted(path, 2, "not JSON")


def test_behind_a_bad_row_seqs_are_not_looked_at(store: SqliteStore, path: Path) -> None:
    lines = event_lines("T TS U C C")
    lines[7] = b"bad"
    plant(path, lines)
    execute(path, "UPDATE events SET seq = 70 WHERE seq = 9")
    result = store.load(ID)
    assert as_json(result.events) == [json.loads(line) for line in repaired_lines("T TS", "TEi")]
    assert len(rows(path)) == 8


def test_a_deleted_last_turn_end_is_an_interrupted_turn(store: SqliteStore, path: Path) -> None:
    plant_shape(path, "T")
    execute(path, "DELETE FROM events WHERE seq = 5")
    result = store.load(ID)
    assert as_json(result.events) == [
        json.loads(line) for line in repaired_lines("TS U SS A SE", "TEi")
    ]
    assert result.repair == RepairReport(closers=tuple(result.events[5:]))


def test_a_session_without_events_loads_empty(store: SqliteStore, path: Path) -> None:
    plant(path, [])
    assert store.list() == [ListEntry(ID, HEADER)]
    assert store.load(ID) == LoadResult(HEADER, [], RepairReport())
    store.append(ID, events("T"))
    assert store.load(ID).events == events("T")


def test_events_without_a_session_are_corruption_and_never_adopted(
    store: SqliteStore, path: Path
) -> None:
    plant_shape(path, "T")
    execute(path, "DELETE FROM sessions")
    before = everything(path)
    with pytest.raises(SessionCorrupted):
        store.load(ID)
    store.create(HEADER)
    with pytest.raises(SessionCorrupted):
        store.append(ID, events("T"))
    assert store.list() == []
    assert everything(path) == before


BAD_HEADERS = [b"", b"{", b"null", log("H")[:-5], b'{"type":"session","version":"0","id":"s-1"}']


@pytest.mark.parametrize("header", BAD_HEADERS)
def test_a_bad_header_hides_nothing_else(store: SqliteStore, path: Path, header: bytes) -> None:
    plant(path, event_lines("T"), header=header)
    plant(path, [], header=log("H:id=other").rstrip(b"\n"), key="other")
    before = everything(path)
    for call in (store.load, store.inspect, store.reopen):
        with pytest.raises(SessionCorrupted, match="header"):
            call(ID)
    with pytest.raises(SessionCorrupted):
        store.append(ID, [SessionEvent("x", 6, 0, 1)])
    good, bad = store.list()
    assert good.session_id == "other"
    assert good.error is None
    assert (bad.session_id, bad.header, type(bad.error)) == (ID, None, SessionCorrupted)
    assert everything(path) == before


def test_another_format_version_is_listed_and_refused(store: SqliteStore, path: Path) -> None:
    plant(path, event_lines("T"), header=log("H:v1").rstrip(b"\n"))
    before = everything(path)
    for call in (store.load, store.inspect, store.reopen):
        with pytest.raises(UnsupportedVersion) as refusal:
            call(ID)
        assert refusal.value.version == 1
    with pytest.raises(UnsupportedVersion):
        store.append(ID, [SessionEvent("x", 6, 0, 1)])
    (entry,) = store.list()
    assert entry.error is None
    assert entry.header is not None
    assert entry.header.version == 1
    assert everything(path) == before


def test_a_header_of_another_id_is_its_own_error(store: SqliteStore, path: Path) -> None:
    plant(path, event_lines("T"), header=log("H:id=other").rstrip(b"\n"))
    before = everything(path)
    for call in (store.load, store.inspect, store.reopen):
        with pytest.raises(IdentityMismatch) as refusal:
            call(ID)
        assert (refusal.value.session_id, refusal.value.found) == (ID, "other")
    with pytest.raises(IdentityMismatch):
        store.append(ID, [SessionEvent("x", 6, 0, 1)])
    (entry,) = store.list()
    assert entry.session_id == ID
    assert isinstance(entry.error, IdentityMismatch)
    assert everything(path) == before


def test_a_row_under_no_possible_id_is_listed_with_its_error(
    store: SqliteStore, path: Path
) -> None:
    plant(path, [], key="not/encoded")
    (entry,) = store.list()
    assert (entry.session_id, type(entry.error)) == ("not/encoded", SessionCorrupted)


def test_a_damaged_page_is_corruption(path: Path) -> None:
    plant(path, [line_of(seq) for seq in range(2000)])
    content = bytearray(path.read_bytes())
    page = 4096 * (len(content) // 4096 // 2)
    content[page : page + 4096] = b"\xff" * 4096
    path.write_bytes(content)
    with SqliteStore(path) as store:
        with pytest.raises(SessionCorrupted):
            store.load(ID)
        assert store.list() == [ListEntry(ID, HEADER)]
    assert path.read_bytes() == bytes(content)


def line_of(seq: int) -> bytes:
    return json.dumps({"type": "x", "seq": seq, "time": 0, "data": "y" * 200}).encode()


@pytest.mark.parametrize("shape", ["T", OPEN])
@pytest.mark.parametrize("extra", [[], [TORN], [b"bad", line_of(50)]])
def test_inspect_and_list_write_nothing(
    store: SqliteStore, path: Path, shape: str, extra: list[bytes]
) -> None:
    lines = event_lines(shape)
    plant(path, [*lines, *extra])
    before = everything(path)
    inspected = store.inspect(ID)
    store.list()
    assert everything(path) == before
    whole = inspected.repair.empty
    assert whole == (shape == "T" and not extra)
    assert (inspected.repair.durable, inspected.repair.reason is None) == (whole, whole)
    assert inspected.repair.copy_kept is None
    loaded = store.load(ID)
    assert (loaded.header, loaded.events) == (inspected.header, inspected.events)
    assert loaded.repair.closers == inspected.repair.closers
    assert loaded.repair.torn_bytes == inspected.repair.torn_bytes


# --- more than one at a time --------------------------------------------------------------------


def test_a_second_writer_gets_conflict_before_anything_is_written(path: Path) -> None:
    with SqliteStore(path) as first, SqliteStore(path) as second:
        first.create(HEADER)
        first.append(ID, events("T"))
        before = everything(path)
        with pytest.raises(WriterConflict):
            second.append(ID, [SessionEvent("x", 6, 0, 1)])
        with pytest.raises(WriterConflict):
            second.reopen(ID)
        assert everything(path) == before
        first.append(ID, [SessionEvent("x", 6, 0, 1)])
        first.close()
        second.append(ID, [SessionEvent("x", 7, 0, 1)])


def test_two_first_flushes_of_one_id(path: Path) -> None:
    with SqliteStore(path) as first, SqliteStore(path) as second, SqliteStore(path) as third:
        for store in (first, second, third):
            store.create(HEADER)
        first.append(ID, events("T"))
        with pytest.raises(WriterConflict):
            second.append(ID, events("TS"))
        first.close()
        with pytest.raises(SessionExists):
            third.append(ID, events("TS"))
        assert third.load(ID).events == events("T")
        third.append(ID, [SessionEvent("x", 6, 0, 1)])
    assert len(rows(path)) == 7


def test_load_under_a_writer_is_virtual(path: Path) -> None:
    with SqliteStore(path) as writer, SqliteStore(path) as reader:
        writer.create(HEADER)
        writer.append(ID, events(OPEN))
        before = everything(path)
        result = reader.load(ID)
        assert as_json(result.events) == list(map(json.loads, CLOSED))
        assert not result.repair.durable
        assert result.repair.reason is not None
        assert "another writer" in result.repair.reason
        assert everything(path) == before
        writer.append(ID, [SessionEvent("x", 7, 0, 1)])
        assert len(rows(path)) == 8


def test_a_virtual_load_is_made_good_by_the_next_append(path: Path) -> None:
    with SqliteStore(path) as writer, SqliteStore(path) as reader:
        writer.create(HEADER)
        writer.append(ID, events(OPEN))
        assert len(reader.load(ID).events) == 10
        writer.close()
        reader.append(ID, [SessionEvent("x", 10, 0, 1)])
    assert [record for _, record in rows(path)][:10] == CLOSED


def test_a_stale_virtual_load_is_noticed_though_the_count_is_right(path: Path) -> None:
    with SqliteStore(path) as writer, SqliteStore(path) as reader:
        writer.create(HEADER)
        writer.append(ID, events(OPEN))
        reader.load(ID)
        writer.append(ID, [SessionEvent("x", seq, 0, 1) for seq in (7, 8)])
        writer.append(ID, [SessionEvent("turn/end", 9, 0, {"turn": 1})])
        writer.close()
        before = rows(path)
        with pytest.raises(WriterConflict):
            reader.append(ID, [SessionEvent("x", 10, 0, 1)])
        assert rows(path) == before
        reader.load(ID)
        reader.append(ID, [SessionEvent("x", 10, 0, 1)])


def test_a_load_without_repair_takes_no_lock(path: Path) -> None:
    plant_shape(path, "T")
    with SqliteStore(path) as first, SqliteStore(path) as second:
        first.load(ID)
        second.load(ID)
        assert not path.with_name(path.name + ".locks").exists()
        second.append(ID, [SessionEvent("x", 6, 0, 1)])
        second.close()
        with pytest.raises(WriterConflict):
            first.append(ID, [SessionEvent("x", 6, 0, 2)])
        with pytest.raises(SequenceMismatch):
            first.append(ID, [SessionEvent("x", 7, 0, 2)])
        first.load(ID)
        first.append(ID, [SessionEvent("x", 7, 0, 2)])


def test_a_changed_last_event_is_noticed_though_the_count_is_right(path: Path) -> None:
    plant_shape(path, "T")
    with SqliteStore(path) as store:
        store.load(ID)
        execute(path, "UPDATE events SET record = ? WHERE seq = 5", line_of(5).decode())
        with pytest.raises(WriterConflict):
            store.append(ID, [SessionEvent("x", 6, 0, 1)])


def test_a_stale_cursor_of_the_writer_is_caught(store: SqliteStore, path: Path) -> None:
    store.create(HEADER)
    store.append(ID, events("T"))
    execute(path, "INSERT INTO events VALUES (?, 6, ?)", ID, line_of(6).decode())
    before = everything(path)
    for seq in (6, 6):
        with pytest.raises(WriterConflict):
            store.append(ID, [SessionEvent("x", seq, 0, 1)])
    assert everything(path) == before
    assert store.reopen(ID) == 7
    store.append(ID, [SessionEvent("x", 7, 0, 1)])


def test_rows_that_change_between_the_read_and_the_lock_are_read_again(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant_shape(path, "T TS U")
    acquire = WriterLock.acquire

    def late(lock: WriterLock) -> None:
        acquire(lock)
        execute(path, "DELETE FROM events WHERE seq = 7")

    monkeypatch.setattr(WriterLock, "acquire", late)
    with SqliteStore(path) as store:
        assert as_json(store.load(ID).events) == [
            json.loads(line) for line in repaired_lines("T TS", "TEi")
        ]
    assert [record for _, record in rows(path)] == repaired_lines("T TS", "TEi")


HOLDER = """
    import sys
    from torntail.session import SessionEvent, SessionHeader
    from torntail.stores.sqlite import SqliteStore
    store = SqliteStore(sys.argv[1])
    store.create(SessionHeader("s-1", 1))
    store.append("s-1", [SessionEvent("turn/start", 0, 0, {"turn": 1})])
    print("ready", flush=True)
    sys.stdin.readline()
"""


def test_a_writer_in_another_process_and_its_sudden_end(path: Path) -> None:
    with python(HOLDER, str(path)) as process, SqliteStore(path) as store:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        assert not store.load(ID).repair.durable
        with pytest.raises(WriterConflict):
            store.append(ID, [SessionEvent("x", 2, 0, 1)])
        process.kill()
        process.wait()
        result = store.load(ID)
        assert result.repair == RepairReport(closers=tuple(result.events[1:]))
        store.append(ID, [SessionEvent("x", 2, 0, 1)])


def test_writers_of_different_sessions_share_the_database(path: Path) -> None:
    with SqliteStore(path) as first, SqliteStore(path) as second:
        for store, session_id in ((first, "a"), (second, "b")):
            store.create(SessionHeader(session_id, 0))
        for seq in range(20):
            first.append("a", [SessionEvent("x", seq, 0, 1)])
            second.append("b", [SessionEvent("x", seq, 0, 1)])
    assert len(rows(path, "a")) == len(rows(path, "b")) == 20


@pytest.mark.parametrize("journal_mode", ["wal", "delete"])
def test_a_busy_database_is_a_storage_error_that_kills_no_writer(
    path: Path, journal_mode: Any
) -> None:
    with SqliteStore(path, journal_mode=journal_mode, busy_timeout=0.02) as store:
        store.create(HEADER)
        store.append(ID, events("T"))
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StorageFailed) as refusal:
            store.append(ID, [SessionEvent("x", 6, 0, 1)])
        assert not refusal.value.writer_dead
        other.execute("ROLLBACK")
        other.close()
        store.append(ID, [SessionEvent("x", 6, 0, 1)])
    assert len(rows(path)) == 7


def test_a_locked_database_is_not_read_behind_the_lock(path: Path) -> None:
    plant_shape(path, "T")
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    with SqliteStore(path, busy_timeout=0.02) as store:
        for call in (lambda: store.load(ID), store.list):
            with pytest.raises(StorageFailed, match="locked"):
                call()
        other.close()
        assert store.load(ID).events == events("T")


def test_a_change_of_mode_waits_for_other_connections(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = SqliteStore(path)
    first.create(HEADER)
    first.append(ID, events("T"))
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        first.close()

    monkeypatch.setattr("torntail.stores.sqlite_database.time.sleep", wait)
    with SqliteStore(path, journal_mode="delete") as second:
        second.create(SessionHeader("t", 0))
        second.append("t", events("T"))
        assert [entry.session_id for entry in second.list()] == [ID, "t"]
    assert len(waits) == 1


CREATOR = """
    import sys
    from torntail.session import SessionEvent, SessionHeader
    from torntail.stores.sqlite import SqliteStore
    print("ready", flush=True)
    sys.stdin.readline()
    with SqliteStore(sys.argv[1], journal_mode=sys.argv[3]) as store:
        store.create(SessionHeader(sys.argv[2], 1))
        store.append(sys.argv[2], [SessionEvent("x", 0, 0, 1)])
        print(len(store.load(sys.argv[2]).events), flush=True)
"""


@pytest.mark.parametrize("journal_mode", ["wal", "delete"])
def test_processes_that_make_the_same_new_database_at_once_all_work(
    tmp_path: Path, journal_mode: str
) -> None:
    for attempt in range(3):
        path = tmp_path / f"{attempt}.db"
        names = [f"session-{index}" for index in range(6)]
        processes = [python(CREATOR, str(path), name, journal_mode) for name in names]
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        for process in processes:
            assert process.communicate(timeout=60)[0] == "1\n"
        with SqliteStore(path) as store:
            assert [entry.session_id for entry in store.list()] == names


def test_threads_that_make_the_same_new_database_at_once_all_work(path: Path) -> None:
    start = threading.Barrier(6)
    failures: list[BaseException] = []

    def make(session_id: str) -> None:
        try:
            with SqliteStore(path) as store:
                store.create(SessionHeader(session_id, 0))
                start.wait()
                store.append(session_id, events("T"))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=make, args=(str(index),)) for index in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    with SqliteStore(path) as store:
        assert len(store.list()) == 6


# --- when the disk says no ----------------------------------------------------------------------


class Failing(sqlite3.Connection):
    """A connection that fails one statement, before or after it runs."""

    statement = ""
    code = 0
    afterwards = False

    def execute(self, sql: str, *arguments: Any) -> sqlite3.Cursor:
        armed = bool(Failing.statement) and sql.startswith(Failing.statement)
        if not armed:
            return super().execute(sql, *arguments)
        Failing.statement = ""
        if Failing.afterwards:
            super().execute(sql, *arguments)
        error = sqlite3.OperationalError("injected")
        error.sqlite_errorcode = Failing.code
        raise error


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    connect = sqlite3.connect

    def arm(statement: str, code: int, *, afterwards: bool = False) -> None:
        Failing.statement, Failing.code, Failing.afterwards = statement, code, afterwards

    monkeypatch.setattr(
        sqlite3, "connect", lambda *given, **named: connect(*given, factory=Failing, **named)
    )
    yield arm
    Failing.statement = ""


@pytest.mark.parametrize("statement", ["BEGIN IMMEDIATE", "SELECT (SELECT count", "COMMIT"])
def test_an_error_ends_the_writer_until_reopen(
    store: SqliteStore, path: Path, failing: Callable[..., None], statement: str
) -> None:
    store.create(HEADER)
    store.append(ID, events("TS U"))
    failing(statement, sqlite3.SQLITE_IOERR_FSYNC)
    with pytest.raises(StorageFailed) as failure:
        store.append(ID, [SessionEvent("x", 2, 0, 1)])
    assert failure.value.writer_dead
    assert isinstance(failure.value.__cause__, sqlite3.OperationalError)
    assert len(rows(path)) == 2
    with pytest.raises(StorageFailed, match="reopen") as refusal:
        store.append(ID, [SessionEvent("x", 2, 0, 1)])
    assert refusal.value.writer_dead
    with SqliteStore(path) as other, pytest.raises(WriterConflict):
        other.append(ID, [SessionEvent("x", 2, 0, 1)])
    loaded = store.load(ID)
    assert not loaded.repair.durable
    assert "reopen" in str(loaded.repair.reason)
    # No closers: the open turn goes on.
    assert store.reopen(ID) == 2
    assert len(rows(path)) == 2
    store.append(ID, [SessionEvent("x", 2, 0, 1)])
    assert len(rows(path)) == 3


@pytest.mark.parametrize("code", [sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY])
@pytest.mark.parametrize("statement", ["SELECT (SELECT count", "COMMIT"])
def test_a_full_disk_that_was_rolled_back_lets_work_go_on(
    store: SqliteStore, path: Path, failing: Callable[..., None], statement: str, code: int
) -> None:
    store.create(HEADER)
    store.append(ID, events("TS U"))
    failing(statement, code)
    with pytest.raises(StorageFailed) as failure:
        store.append(ID, [SessionEvent("x", 2, 0, 1)])
    assert not failure.value.writer_dead
    assert len(rows(path)) == 2
    store.append(ID, [SessionEvent("x", 2, 0, 1)])
    assert [seq for seq, _ in rows(path)] == [0, 1, 2]


def test_a_commit_in_doubt_is_settled_by_reopen(
    store: SqliteStore, path: Path, failing: Callable[..., None]
) -> None:
    store.create(HEADER)
    failing("COMMIT", sqlite3.SQLITE_IOERR, afterwards=True)  # The tables.
    with pytest.raises(StorageFailed) as failure:
        store.append(ID, events("TS U"))
    assert not failure.value.writer_dead
    store.append(ID, events("TS U"))
    failing("COMMIT", sqlite3.SQLITE_IOERR, afterwards=True)
    with pytest.raises(StorageFailed) as failure:
        store.append(ID, [SessionEvent("x", 2, 0, 1)])
    assert failure.value.writer_dead
    assert store.reopen(ID) == 3
    store.append(ID, [SessionEvent("x", 3, 0, 1)])


@pytest.mark.parametrize("afterwards", [False, True])
def test_a_failed_first_flush_keeps_the_announcement(
    path: Path, failing: Callable[..., None], afterwards: bool
) -> None:
    with SqliteStore(path) as store:
        store.create(SessionHeader("first", 0))
        store.append("first", events("T"))
        store.create(HEADER)
        failing("COMMIT", sqlite3.SQLITE_IOERR, afterwards=afterwards)
        with pytest.raises(StorageFailed):
            store.append(ID, events("TS U"))
        expected = 2 if afterwards else 0
        assert store.reopen(ID) == expected
        store.append(ID, events("TS U")[expected:] or [SessionEvent("x", 2, 0, 1)])
        assert as_json(store.load(ID).events[:2]) == as_json(events("TS U"))


def test_a_failed_directory_sync_is_not_acknowledged(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = [True]

    def sync(directory: Path) -> None:
        if broken[0]:
            raise OSError(5, "injected")

    monkeypatch.setattr(sqlite_database, "sync_directories", sync)
    with SqliteStore(path) as store:
        store.create(HEADER)
        with pytest.raises(StorageFailed) as failure:
            store.append(ID, events("TS U"))
        assert failure.value.writer_dead
        broken[0] = False
        assert store.reopen(ID) == 2
        store.append(ID, [SessionEvent("x", 2, 0, 1)])


def test_an_interrupt_leaves_a_writer_that_must_be_reopened(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Interrupt(BaseException):
        pass

    store.create(HEADER)
    store.append(ID, events("TS U"))
    with monkeypatch.context() as patch:

        def interrupt(*_: Any) -> None:
            raise Interrupt

        patch.setattr("torntail.stores.sqlite.insert_events", interrupt)
        with pytest.raises(Interrupt):
            store.append(ID, [SessionEvent("x", 2, 0, 1)])
    assert len(rows(path)) == 2
    with pytest.raises(StorageFailed):
        store.append(ID, [SessionEvent("x", 2, 0, 1)])
    assert store.reopen(ID) == 2


def test_a_repair_that_fails_gives_the_session_not_durable(
    store: SqliteStore, path: Path, failing: Callable[..., None]
) -> None:
    plant(path, [*event_lines(OPEN), TORN])
    before = everything(path)
    failing("DELETE", sqlite3.SQLITE_FULL)
    result = store.load(ID)
    assert as_json(result.events) == list(map(json.loads, CLOSED))
    assert not result.repair.durable
    assert result.repair.torn_bytes == len(TORN) + 1
    assert everything(path) == before
    failing("DELETE", sqlite3.SQLITE_FULL)
    with pytest.raises(StorageFailed):
        store.append(ID, [SessionEvent("x", 10, 0, 1)])
    assert everything(path) == before
    store.append(ID, [SessionEvent("x", 10, 0, 1)])
    assert [record for _, record in rows(path)][:10] == CLOSED


def test_reopen_drops_the_torn_tail_and_writes_no_closers(store: SqliteStore, path: Path) -> None:
    lines = event_lines(OPEN)
    plant(path, [*lines, TORN])
    assert store.reopen(ID) == len(lines)
    assert rows(path) == list(enumerate(lines))
    store.append(ID, [SessionEvent("x", len(lines), 0, 1)])


def remove(path: Path) -> None:
    path.unlink()


def replace(path: Path) -> None:
    copy = path.with_name("copy")
    shutil.copyfile(path, copy)
    copy.replace(path)


def truncate(path: Path) -> None:
    os.truncate(path, 0)


def shorten(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 4096)


@pytest.mark.parametrize("journal_mode", ["wal", "delete"])
@pytest.mark.parametrize("change", [remove, replace, truncate, shorten])
def test_a_database_changed_under_a_live_writer_is_refused(
    path: Path, change: Callable[[Path], None], journal_mode: Any
) -> None:
    with SqliteStore(path, journal_mode=journal_mode) as store:
        store.create(HEADER)
        store.append(ID, events("T"))
        change(path)
        before = path.read_bytes() if path.exists() else None
        for _ in range(2):
            with pytest.raises(WriterConflict):
                store.append(ID, [SessionEvent("x", 6, 0, 1)])
        assert (path.read_bytes() if path.exists() else None) == before


def test_a_removed_database_is_not_made_anew_under_a_live_writer(path: Path) -> None:
    with SqliteStore(path) as store:
        store.create(HEADER)
        store.append(ID, events("T"))
        path.unlink()
        assert store.list() == []
        store.create(SessionHeader("second", 0))
        with pytest.raises(WriterConflict):
            store.append("second", events("T"))
        assert not path.exists()


# --- media and permissions ----------------------------------------------------------------------

READER = """
    import json, os, sys
    from pathlib import Path
    from torntail.session import SessionEvent, SessionHeader
    from torntail.stores.contract import StoreError
    from torntail.stores.sqlite import SqliteStore
    if os.getuid() == 0:
        os.setgid(65534)
        os.setuid(65534)
    with SqliteStore(sys.argv[1]) as store:
        try:
            store.append("s-1", [SessionEvent("x", 10, 0, 1)])
            appended = "stored"
        except StoreError as error:
            appended = error.kind
        try:
            result = store.load("s-1")
        except StoreError as error:
            print(json.dumps([error.kind, appended]))
        else:
            listed = [entry.session_id for entry in store.list()]
            found = [event.to_json() for event in result.events]
            print(json.dumps([found, result.repair.durable, listed, appended]))
"""


@pytest.fixture
def public() -> Iterator[Path]:
    """A directory that another user can reach, unlike tmp_path."""
    directory = Path(tempfile.mkdtemp())
    directory.chmod(0o755)
    yield directory
    directory.chmod(0o755)
    shutil.rmtree(directory)


WRITE_AND_DIE = """
    import os, sys
    from torntail.session import SessionHeader, parse_event
    from torntail.stores.sqlite import SqliteStore
    from tests.shapes import event_lines
    store = SqliteStore(sys.argv[1], journal_mode=sys.argv[2])
    store.create(SessionHeader("s-1", 1, cwd="/w"))
    store.append("s-1", [parse_event(line) for line in event_lines(sys.argv[3])])
    if sys.argv[4] == "close":
        store.close()
    elif sys.argv[4] == "hot":
        connection = store._database._connection
        connection.execute("PRAGMA cache_spill = 1")
        connection.execute("PRAGMA cache_size = 2")
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany("INSERT INTO events VALUES ('s-2', ?, ?)",
                               ((seq, "x" * 3000) for seq in range(100)))
    os._exit(0)
"""


@pytest.mark.parametrize("shape", ["T", OPEN])
@pytest.mark.parametrize(
    ("journal_mode", "end", "beside"),
    [
        ("wal", "close", []),
        ("wal", "die", ["-wal"]),
        ("delete", "close", []),
        ("delete", "hot", ["-journal"]),
    ],
)
@pytest.mark.parametrize("shared_memory", [True, False])
def test_read_only_media_are_read(
    public: Path, shape: str, journal_mode: str, end: str, beside: list[str], shared_memory: bool
) -> None:
    path = public / "sessions.db"
    run(WRITE_AND_DIE, str(path), journal_mode, shape, end)
    if not shared_memory:
        Path(f"{path}-shm").unlink(missing_ok=True)
    shutil.rmtree(f"{path}.locks")
    for suffix in beside:
        assert Path(f"{path}{suffix}").stat().st_size
    for file in public.iterdir():
        file.chmod(0o444)
    public.chmod(0o555)
    before = snapshot(public)
    loaded, durable, listed, appended = json.loads(run(READER, str(path)))
    assert loaded == [json.loads(line) for line in (event_lines("T") if shape == "T" else CLOSED)]
    assert durable == (shape == "T")
    assert listed == [ID]
    assert appended in ("storage", "sequence")
    assert snapshot(public) == before


@pytest.mark.parametrize("journal_mode", ["wal", "delete"])
def test_what_may_not_be_read_is_not_absent(public: Path, journal_mode: str) -> None:
    path = public / "sessions.db"
    run(WRITE_AND_DIE, str(path), journal_mode, "T", "close")
    path.chmod(0o600 if os.getuid() == 0 else 0)
    assert json.loads(run(READER, str(path))) == ["storage", "storage"]
    public.chmod(0o700 if os.getuid() == 0 else 0)
    assert json.loads(run(READER, str(path))) == ["storage", "storage"]


def test_a_lock_that_cannot_be_had_gives_a_virtual_load(store: SqliteStore, path: Path) -> None:
    plant_shape(path, OPEN)
    path.with_name(path.name + ".locks").write_bytes(b"in the way")
    result = store.load(ID)
    assert as_json(result.events) == list(map(json.loads, CLOSED))
    assert not result.repair.durable
    with pytest.raises(StorageFailed):
        store.append(ID, [SessionEvent("x", 10, 0, 1)])
    assert len(rows(path)) == 7


# --- forks --------------------------------------------------------------------------------------


def test_a_forked_child_neither_uses_the_store_nor_holds_its_lock(path: Path) -> None:
    output = run(
        """
        import os, sys
        from torntail.session import SessionEvent, SessionHeader
        from torntail.stores.contract import StorageFailed, StoreClosed
        from torntail.stores.sqlite import SqliteStore

        store = SqliteStore(sys.argv[1])
        store.create(SessionHeader("s-1", 1))
        store.append("s-1", [SessionEvent("x", 0, 0, 1)])
        told, tell = os.pipe()
        go, wait = os.pipe()
        child = os.fork()
        if child == 0:
            for call in (lambda: store.load("s-1"), store.list, lambda: store.append("s-1", [])):
                try:
                    call()
                    os._exit(1)
                except StorageFailed:
                    pass
            with SqliteStore(sys.argv[1]) as own:
                own.create(SessionHeader("child", 1))
                own.append("child", [SessionEvent("x", 0, 0, 1)])
                os.write(tell, b"x")
                os.read(go, 1)
                own.append("child", [SessionEvent("x", 1, 0, 1)])
            store.close()
            store.close()
            try:
                store.list()
            except StoreClosed:
                os._exit(0)
            os._exit(2)
        os.read(told, 1)
        store.append("s-1", [SessionEvent("x", 1, 0, 1)])
        # The parent's end must not take the log away from under the child.
        store.close()
        with SqliteStore(sys.argv[1]) as other:
            other.append("s-1", [SessionEvent("x", 2, 0, 1)])
        os.write(wait, b"x")
        _, status = os.waitpid(child, 0)
        with SqliteStore(sys.argv[1]) as other:
            print(status, len(other.load("s-1").events), len(other.load("child").events))
        """,
        str(path),
    )
    assert output == "0 3 2\n"


def test_a_lock_is_free_when_the_parent_dies_and_the_child_lives_on(path: Path) -> None:
    code = """
        import os, sys
        from torntail.session import SessionEvent, SessionHeader
        from torntail.stores.sqlite import SqliteStore
        store = SqliteStore(sys.argv[1])
        store.create(SessionHeader("s-1", 1))
        store.append("s-1", [SessionEvent("x", 0, 0, 1)])
        if os.fork() == 0:
            print("child", flush=True)
            sys.stdin.readline()
            os._exit(0)
        sys.stdin.readline()
    """
    with python(code, str(path)) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "child\n"
        process.kill()
        process.wait()
        with SqliteStore(path) as store:
            store.append(ID, [SessionEvent("x", 1, 0, 1)])
            assert len(store.load(ID).events) == 2


# --- crashes ------------------------------------------------------------------------------------

CRASHES = """
    import os, shutil, signal, sqlite3, sys
    from pathlib import Path
    from torntail.session import SessionEvent, SessionHeader, parse_event
    from torntail.stores.contract import SessionNotFound
    from torntail.stores.sqlite import SqliteStore
    from tests.shapes import event_lines

    root, journal_mode = Path(sys.argv[1]), sys.argv[2]
    batches = [[parse_event(line) for line in event_lines("T TS U SS A:c1 K:c1")][a:b]
               for a, b in ((0, 6), (6, 8), (8, 11))]
    left = [10**9]

    def countdown():
        left[0] -= 1
        if left[0] < 0:
            os.kill(os.getpid(), signal.SIGKILL)

    class Dying(sqlite3.Connection):
        def execute(self, sql, *arguments):
            countdown()
            return super().execute(sql, *arguments)

        def executemany(self, sql, rows):
            def counted():
                for row in rows:
                    countdown()
                    yield row
            return super().executemany(sql, counted())

    connect = sqlite3.connect
    sqlite3.connect = lambda *given, **named: connect(*given, factory=Dying, **named)

    def workload(path, acknowledged):
        with SqliteStore(path, journal_mode=journal_mode) as store:
            store.create(SessionHeader("s-1", 1))
            for batch in batches:
                store.append("s-1", batch)
                os.write(acknowledged, b"x")

    def repair(path, acknowledged):
        with SqliteStore(path, journal_mode=journal_mode) as store:
            store.load("s-1")
            os.write(acknowledged, b"x")

    def die_at(position, action, path):
        \"\"\"How often `action` acknowledged, and whether the kill came before its end.\"\"\"
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            left[0] = position
            action(path, write)
            os._exit(0)
        os.close(write)
        _, status = os.waitpid(child, 0)
        count = len(os.read(read, 100))
        assert status in (0, signal.SIGKILL), status
        os.close(read)
        return count, status != 0

    def judge(path, acknowledged):
        with SqliteStore(path, journal_mode=journal_mode) as store:
            try:
                events = store.load("s-1").events
            except SessionNotFound:
                assert acknowledged == 0 and store.list() == []
                store.create(SessionHeader("s-1", 1))
                store.append("s-1", batches[0])
                return
            stored = [b for b in range(1, 4)
                      if events[:sum(map(len, batches[:b]))] == sum(batches[:b], [])]
            assert stored and stored[-1] >= acknowledged, (stored, acknowledged)
            prefix = sum(map(len, batches[:stored[-1]]))
            assert [e.type for e in events[prefix:]] == {
                1: [], 2: ["turn/end"], 3: ["tool/result", "step/end", "turn/end"]
            }[stored[-1]]
            assert store.load("s-1").events == events
            store.append("s-1", [SessionEvent("x", len(events), 0, 1)])
        with SqliteStore(path, journal_mode=journal_mode) as store:
            assert store.load("s-1").events[:-1] == events

    kills = repairs_cut = 0
    position = 0
    while True:
        path = root / str(position) / "sessions.db"
        acknowledged, killed = die_at(position, workload, path)
        if acknowledged == 3:
            # The kill of the repair, at every statement, over the same image.
            for nested in range(1000):
                image = root / f"{position}-{nested}"
                shutil.copytree(path.parent, image)
                _, cut = die_at(nested, repair, image / "sessions.db")
                judge(image / "sessions.db", 3)
                repairs_cut += cut
                if not cut:
                    break
        judge(path, acknowledged)
        kills += killed
        position += 1
        if not killed:
            break
    print(kills, repairs_cut)
"""


@pytest.mark.parametrize("journal_mode", ["wal", "delete", "truncate", "persist"])
def test_a_kill_before_any_statement_or_row_loses_and_invents_nothing(
    tmp_path: Path, journal_mode: str
) -> None:
    output = run(CRASHES, str(tmp_path), journal_mode)
    kills, repairs_cut = map(int, output.split())
    assert kills >= 40
    assert repairs_cut >= 10


def test_a_database_that_another_makes_meanwhile_is_no_damage(
    tmp_path: Path, store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # MW-1
    """It is looked at without a lock while it is half made, and is whole a moment later."""
    with SqliteStore(tmp_path / "other" / "sessions.db", journal_mode="delete") as other:
        other.create(SessionHeader("other", 1))
        other.append("other", events("TS"))
    whole = (tmp_path / "other" / "sessions.db").read_bytes()
    path.write_bytes(whole[:5000])

    def has_ended(database: sqlite_database.Database) -> bool:
        database.path.write_bytes(whole)
        return False

    monkeypatch.setattr(sqlite_database.Database, "_is_journaled", has_ended)
    store.create(HEADER)
    store.append(ID, events("TS"))
    assert [entry.session_id for entry in store.list()] == ["other", ID]
