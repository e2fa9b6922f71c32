"""Finding records in storage and damaging them: bytes in, bytes out; and that locks survive."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from torntail.drive.layout import Damager, TextDamage, damage_text, find_text
from torntail.drive.onlooker import HarnessError, Onlooker, take_snapshot
from torntail.drive.records import ADDITIONS, STRICT_VARIANTS, damage_record
from torntail.drive.rows import find_rows
from torntail.judge.history import Damage, Damaged, NotPossible
from torntail.session import MalformedRecord, parse_event

HEADER = b'{"type":"session","version":0,"id":"s","createdAt":1}\n'
RECORDS = [
    b'{"type":"note","seq":%d,"time":%d,"data":{"mark":"mark-00000000-000%d"}}\n' % (seq, seq, seq)
    for seq in range(3)
]
LOG = HEADER + b"".join(RECORDS)
MARKS = {seq: f"mark-00000000-000{seq}" for seq in range(3)}


def damage(kind: Any, record: int = 0, amount: int = 0, variant: str = "") -> Damage:
    return Damage(session="s", kind=kind, record=record, amount=amount, variant=variant)


def test_records_are_found_by_their_marks() -> None:
    assert find_text(LOG, MARKS) == 1
    assert find_text(b"".join(RECORDS), MARKS) == 0
    assert find_text(LOG, {0: MARKS[0], 2: MARKS[2]}) == 1
    assert find_text(LOG.replace(b"0001", b"000x"), MARKS) is None
    assert find_text(LOG + RECORDS[1], MARKS) is None
    assert find_text(HEADER + RECORDS[1] + RECORDS[0] + RECORDS[2], MARKS) is None


ONE, TWO = RECORDS[1], RECORDS[2]
START, END = LOG.index(ONE), len(LOG)


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        (damage("garble", 1), LOG.replace(ONE, b"{" + b"#" * (len(ONE) - 3) + b"}\n")),
        (damage("delete", 1), LOG.replace(ONE, b"")),
        (damage("duplicate", 1), LOG.replace(ONE, ONE + ONE)),
        (damage("renumber", 1, 4), LOG.replace(b'"seq":1', b'"seq":5')),
        (damage("cut", 1, 0), LOG[:START]),
        (damage("cut", 1, 5), LOG[: START + 5]),
        (damage("cut", 1, -1), LOG[: START + len(ONE) - 1]),
        (damage("cut", 2, -2), LOG[:-2]),
        (damage("trail", 1, 0, "rubbish"), LOG.replace(ONE, ONE[:-1] + b"\0\0!rubbish\n")),
        (damage("trail", 2, 0, "no newline"), LOG[:-1] + b"\0\0!rubbish"),
        (damage("add", 0, 0, "nul-run"), LOG + b"\0" * 64),
        (damage("add", 0, 0, "blank-line"), LOG + b"\n"),
        (damage("add", 0, 0, "fragment"), LOG + TWO[: (len(TWO) - 1) // 2]),
        (damage("crlf"), LOG.replace(b"\n", b"\r\n")),
        (damage("flip", 1, 1), LOG.replace(ONE, b"y" + ONE[1:])),
        (damage("header-version", 0, 7), LOG.replace(b'"version":0', b'"version":7')),
        (damage("header-id"), LOG.replace(b'"id":"s"', b'"id":"!"')),
        (damage("header-only"), HEADER[:-1]),
        (damage("header-cut"), HEADER[: (len(HEADER) - 1) // 2]),
        (damage("empty"), b""),
        (damage("nul-file"), b"\0" * (len(HEADER) - 1)),
    ],
    ids=lambda value: value.kind if isinstance(value, Damage) else "",
)
def test_a_damage_changes_exactly_these_bytes(order: Damage, expected: bytes) -> None:
    result = damage_text(LOG, 1, order)
    assert isinstance(result, TextDamage)
    assert result.content == expected


@pytest.mark.parametrize(
    ("order", "line", "byte"),
    [
        (damage("garble", 1), 2, START),
        (damage("delete", 1), 2, START),
        (damage("duplicate", 1), 3, START + len(ONE)),
        (damage("add", 0, 0, "fragment"), 4, END),
    ],
)
def test_the_place_is_where_a_reader_meets_the_damage(order: Damage, line: int, byte: int) -> None:
    result = damage_text(LOG, 1, order)
    assert isinstance(result, TextDamage)
    assert (result.line, result.byte) == (line, byte)


def test_what_cannot_be_done_is_said() -> None:
    assert isinstance(damage_text(LOG, 1, damage("garble", 3)), NotPossible)
    assert isinstance(damage_text(LOG, 1, damage("cut", 1, 10_000)), NotPossible)
    assert isinstance(damage_text(LOG, 1, damage("trail", 1, 0, "no newline")), NotPossible)
    headless = damage_text(LOG.removeprefix(HEADER), 0, damage("header-only"))
    assert headless == NotPossible("the first line is not the header", moot=True)


@pytest.mark.parametrize("variant", STRICT_VARIANTS)
def test_a_loose_record_is_one_a_strict_reader_refuses(variant: str) -> None:
    loose = damage_record(ONE[:-1], damage("rewrite", 1, 0, variant))
    assert isinstance(loose, bytes)
    assert b"\n" not in loose
    with pytest.raises(MalformedRecord):
        parse_event(loose)


@pytest.mark.parametrize("variant", ADDITIONS)
def test_an_addition_ends_as_its_name_says(variant: str) -> None:
    added = ADDITIONS[variant](ONE[:-1])
    assert added.endswith(b"\n") == variant.endswith("line")


# --- in storage -----------------------------------------------------------------------------------


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "case" / "root"
    root.mkdir(parents=True)
    return root


def test_restore_brings_back_what_stood_before_the_first_damage(root: Path) -> None:
    (root / "s.jsonl").write_bytes(LOG)
    damager = Damager()
    for order in (damage("delete", 2), damage("garble", 1), damage("root-is-a-file")):
        assert isinstance(damager.apply(root, order, {"s": MARKS}), Damaged)
    assert root.is_file()
    assert isinstance(damager.apply(root, damage("restore"), {}), Damaged)
    assert (root / "s.jsonl").read_bytes() == LOG
    assert isinstance(damager.apply(root, damage("restore"), {}), NotPossible)


def _database(root: Path) -> Path:
    path = root / "x.db"
    with sqlite3.connect(path) as connection:
        connection.executescript(
            "CREATE TABLE h (id TEXT PRIMARY KEY, header TEXT) STRICT;"
            "CREATE TABLE e (sid TEXT, n INTEGER, body TEXT, PRIMARY KEY (sid, n)) STRICT;"
        )
        connection.execute("INSERT INTO h VALUES ('s', ?)", (HEADER[:-1].decode(),))
        for number, record in enumerate(RECORDS):
            connection.execute("INSERT INTO e VALUES ('s', ?, ?)", (number, record[:-1].decode()))
            connection.execute("INSERT INTO e VALUES ('t', ?, '{}')", (number,))
    connection.close()
    return path


def _bodies(path: Path) -> list[bytes]:
    connection = sqlite3.connect(path)
    connection.text_factory = bytes
    try:
        rows = connection.execute("SELECT body FROM e WHERE sid = 's' ORDER BY n").fetchall()
        assert connection.execute("SELECT count(*) FROM e WHERE sid = 't'").fetchone() == (3,)
    finally:
        connection.close()
    return [body for (body,) in rows]


def test_rows_are_found_by_mark_seq_and_session(root: Path) -> None:
    found = find_rows(_database(root), "s", MARKS)
    assert found is not None
    assert (found.table, found.content, found.seq, found.session) == (
        "e",
        "body",
        "n",
        {"sid": "s"},
    )
    assert found.header == ("h", "header", {"id": "s"})


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        (damage("delete", 1), [RECORDS[0][:-1], TWO[:-1]]),
        (damage("cut", 1, 0), [RECORDS[0][:-1]]),
        (damage("cut", 1, 4), [RECORDS[0][:-1], ONE[:4]]),
        (damage("add", 0, 0, "nul-line"), [*(one[:-1] for one in RECORDS), b"\0" * 64]),
        (
            damage("rewrite", 2, 0, "invalid UTF-8"),
            [RECORDS[0][:-1], ONE[:-1], TWO[:-2] + b',"note":"\xff"}'],
        ),
        (
            damage("renumber", 2, 3),
            [RECORDS[0][:-1], ONE[:-1], TWO[:-1].replace(b'"seq":2', b'"seq":5')],
        ),
    ],
)
def test_a_damage_changes_exactly_these_rows(
    root: Path, order: Damage, expected: list[bytes]
) -> None:
    path = _database(root)
    outcome = Damager().apply(root, order, {"s": MARKS})
    assert isinstance(outcome, Damaged)
    assert outcome.before != outcome.after
    assert _bodies(path) == expected


@pytest.mark.parametrize("kind", ["duplicate", "crlf", "header-only", "empty", "second-place"])
def test_what_rows_cannot_suffer_is_moot(root: Path, kind: str) -> None:
    _database(root)
    outcome = Damager().apply(root, damage(kind, 1), {"s": MARKS})
    assert isinstance(outcome, NotPossible)
    assert outcome.moot


def test_looking_at_a_database_sees_rows_and_not_pages(root: Path, tmp_path: Path) -> None:
    path = _database(root)
    before = take_snapshot(root, tmp_path)
    assert before["x.db"].marks == dict.fromkeys(MARKS.values(), 1)
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode = wal")
    connection.execute("UPDATE e SET n = n")
    connection.commit()
    # Rows as before, though the file's bytes changed and side files stand beside it.
    assert take_snapshot(root, tmp_path)["x.db"].digest == before["x.db"].digest
    connection.execute("DELETE FROM e WHERE n = 2")
    connection.commit()
    seen = take_snapshot(root, tmp_path)
    connection.close()
    assert seen["x.db"].digest != before["x.db"].digest
    assert list(seen) == ["x.db"]


def test_the_onlooker_leaves_the_locks_of_a_live_store_alone(root: Path, tmp_path: Path) -> None:
    path = _database(root)
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with Onlooker(tmp_path) as onlooker:
        onlooker.snapshot(root)
    rival = sqlite3.connect(path, timeout=0)
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        rival.execute("BEGIN IMMEDIATE")
    rival.close()
    holder.close()


def test_an_onlooker_that_fails_says_so(tmp_path: Path) -> None:
    with Onlooker(tmp_path) as onlooker, pytest.raises(HarnessError, match="damage"):
        onlooker.damage(tmp_path / "a" / "b", damage("add"), None)  # type: ignore[arg-type]


def test_files_outside_the_root_are_seen(root: Path, tmp_path: Path) -> None:
    (root.parent / "escaped").write_bytes(b"x")
    assert list(take_snapshot(root, tmp_path)) == ["../escaped"]
