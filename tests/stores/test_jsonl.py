"""The JSONL store: its files byte for byte, the order of its writes, damage, and a failing disk."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.shapes import event_lines, log
from tests.stores.support import (
    BUCKET,
    HEADER,
    HEADER_LINE,
    LOG,
    Disk,
    check,
    events,
    files,
    jsonl,
    other,
    place,
    plain,
)
from torntail.session import SessionEvent, SessionHeader, interrupted_turn_closers
from torntail.stores.contract import (
    IdentityMismatch,
    ListEntry,
    NeverMaterialised,
    RepairReport,
    SequenceMismatch,
    SessionCorrupted,
    SessionExists,
    SessionNotFound,
    StorageFailed,
    UnsupportedVersion,
    WriterConflict,
)
from torntail.stores.jsonl import JsonlStore

OPEN = "T TS U SS A:c1,c2 K:c1 R:c1 K:c2"


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Disk:
    return Disk(monkeypatch, tmp_path)


@pytest.fixture
def put(disk: Disk) -> Callable[..., Path]:
    """Puts a log there by hand, unseen by the disk."""

    def unseen(root: Path, content: bytes, name: str = LOG) -> Path:
        path = place(root, content, name)
        disk.writes()
        return path

    return unseen


def lines(batch: list[SessionEvent]) -> bytes:
    """What these events are in a file, in the words of the standard library."""
    return b"".join(
        json.dumps(event.to_json(), ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
        for event in batch
    )


class Interrupt(BaseException):
    """Stands for KeyboardInterrupt, which would stop the test run if one got away."""


# --- the files ----------------------------------------------------------------------------------


def test_layout_byte_for_byte(tmp_path: Path) -> None:
    root = tmp_path / "new" / "root"
    with jsonl(root) as store:
        store.create(HEADER)
        store.append("s-1", events("T TS U")[:3])
        store.append("s-1", events("T TS U")[3:])
        store.create(SessionHeader("a/b \u00e9", 1.0, parent_session="s-1", seed_length=2))
        store.append("a/b \u00e9", [other(0, [1.0, -0.0, 10**21, "\u2028\ud83d", "\U0001f600"])])
    assert files(root) == {
        LOG: log("H T TS U"),
        "_no-cwd/a~002Fb~0020~00E9.jsonl": (
            '{"type":"session","version":0,"id":"a/b \u00e9","createdAt":1.0,'
            '"parentSession":"s-1","seedLength":2}\n'
            '{"type":"note","seq":0,"time":7,'
            '"data":[1.0,-0.0,1000000000000000000000,"\u2028\\ud83d","\U0001f600"]}\n'
        ).encode(),
    }
    modes = {path.relative_to(tmp_path): path.stat().st_mode for path in tmp_path.rglob("*")}
    assert {stat.S_IMODE(mode) for mode in modes.values() if stat.S_ISDIR(mode)} == {0o700}
    assert {stat.S_IMODE(mode) for mode in modes.values() if stat.S_ISREG(mode)} == {0o600}


def test_keys_keep_their_order(tmp_path: Path) -> None:
    event = SessionEvent(
        "z", 0, 1, {"b": 1, "a": {"d": 1, "c": 2}}, "append", [0], {"y": 1, "x": 2}
    )
    with jsonl(tmp_path) as store:
        store.create(HEADER)
        store.append("s-1", [event])
    assert files(tmp_path)[LOG] == HEADER_LINE + (
        b'{"type":"z","seq":0,"time":1,"data":{"b":1,"a":{"d":1,"c":2}},"surfaceOp":"append",'
        b'"sourceEventSeqs":[0],"y":1,"x":2}\n'
    )


FOREIGN = (
    b'{"type":"session","version":0,"id":"s-1","createdAt":1700000000000,"cwd":"/w"}\n'
    b'{"seq":0,"type":"turn/start","data":{"turn":1,"trigger":{"kind":"message",'
    b'"source":{"kind":"user"}}},"time":1e3}\n'
    b'{ "time" : 5, "type":"x\\u0041\\/", "seq":1, "data":{"s":"\\ud83d\\ude00","n":1E2} }\r\n'
    b'{"type":"turn/end","seq":2,"time":1,"data":{"turn":1,"reason":{"kind":"completed"}}}\n'
)
"""A log in the layout of another writer: other key order, escapes, blanks, CRLF."""


def test_a_log_of_another_writer_is_read_and_not_rewritten(tmp_path: Path) -> None:
    place(tmp_path, FOREIGN)
    trigger = {"kind": "message", "source": {"kind": "user"}}
    expected = [
        SessionEvent("turn/start", 0, 1000.0, {"turn": 1, "trigger": trigger}),
        SessionEvent("xA/", 1, 5, {"s": "\U0001f600", "n": 100.0}),
        SessionEvent("turn/end", 2, 1, {"turn": 1, "reason": {"kind": "completed"}}),
    ]
    with jsonl(tmp_path) as store:
        check(store.load("s-1"), expected)
        assert files(tmp_path) == {LOG: FOREIGN}
        store.append("s-1", [other(3)])
    assert files(tmp_path) == {LOG: FOREIGN + lines([other(3)])}


def test_a_relative_root_stays_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(tmp_path)
    with jsonl(Path("root")) as store:
        store.create(HEADER)
        monkeypatch.chdir(elsewhere)
        store.append("s-1", events("T"))
        store.append("s-1", [other(6)])
    assert files(tmp_path) == {f"root/{LOG}": log("H T") + lines([other(6)])}


# --- the order of writes ------------------------------------------------------------------------

TEMPORARY = f"{LOG}.tmp"


def without_fsync(calls: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return [call for call in calls if call[0] != "fsync"]


DURABILITIES = ["power", "process", "none"]


def expect(found: list[tuple[Any, ...]], calls: list[tuple[Any, ...]], durability: str) -> None:
    assert found == (calls if durability == "power" else without_fsync(calls))


@pytest.mark.parametrize("durability", DURABILITIES)
def test_order_of_the_first_flush(tmp_path: Path, disk: Disk, durability: str) -> None:
    batch = events("T TS U SS A SE TE")
    with jsonl(tmp_path / "made" / "root", durability) as store:
        store.create(HEADER)
        assert disk.writes() == []
        store.append("s-1", batch)
        root = "made/root"
        calls = [
            ("mkdir", "made"),
            ("mkdir", root),
            ("mkdir", f"{root}/.locks"),
            ("mkdir", f"{root}/{BUCKET}"),
            ("create", f"{root}/{TEMPORARY}"),
            ("write", f"{root}/{TEMPORARY}", HEADER_LINE + lines(batch)),
            ("fsync", f"{root}/{TEMPORARY}"),
            ("link", f"{root}/{TEMPORARY}", f"{root}/{LOG}".encode()),
            ("unlink", f"{root}/{TEMPORARY}"),
            ("fsync", f"{root}/{BUCKET}"),
            ("fsync", root),
            ("fsync", "made"),
            ("fsync", "."),
        ]
        expect(disk.writes(), calls, durability)


def test_the_first_flush_syncs_folders_that_stood_there(tmp_path: Path, disk: Disk) -> None:
    """A process that was killed may have made them without syncing."""
    (tmp_path / BUCKET).mkdir()
    with jsonl(tmp_path) as store:
        store.create(HEADER)
        store.append("s-1", [other(0)])
    assert disk.writes()[-2:] == [("fsync", BUCKET), ("fsync", ".")]


def test_first_flush_syncs_up_to_the_mount(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk(monkeypatch, Path("/"))
    with jsonl(tmp_path / "root") as store:
        store.create(HEADER)
        store.append("s-1", [other(0)])
    synced = [Path("/", call[1]) for call in disk.calls if call[0] == "fsync"]
    top = next(path for path in [tmp_path, *tmp_path.parents] if os.path.ismount(path))
    assert synced[1:4] == [tmp_path / "root" / BUCKET, tmp_path / "root", tmp_path]
    assert synced[-1] == top


@pytest.mark.parametrize("durability", DURABILITIES)
def test_order_of_an_append(tmp_path: Path, disk: Disk, durability: str) -> None:
    """Before each turn/end, wherever it stands in the batch, all that precedes it is synced."""
    kinds = ["a", "b", "turn/end", "c", "turn/end", "d"]
    batch = [other(seq, None, kind) for seq, kind in enumerate(kinds, 1)]
    with jsonl(tmp_path, durability) as store:
        store.create(HEADER)
        store.append("s-1", [other(0)])
        disk.writes()
        store.append("s-1", batch)
        calls = [
            ("write", LOG, lines(batch[:2])),
            ("fsync", LOG),
            ("write", LOG, lines(batch[2:4])),
            ("fsync", LOG),
            ("write", LOG, lines(batch[4:])),
            ("fsync", LOG),
        ]
        expect(disk.writes(), calls, durability)
        # What precedes was synced by this object, so that the barrier may be left out.
        store.append("s-1", [other(7, None, "turn/end"), other(8, None, "turn/end")])
        calls = [
            ("write", LOG, lines([other(7, None, "turn/end")])),
            ("fsync", LOG),
            ("write", LOG, lines([other(8, None, "turn/end")])),
            ("fsync", LOG),
        ]
        expect(disk.writes(), calls, durability)


@pytest.mark.parametrize("durability", DURABILITIES)
@pytest.mark.parametrize("loaded", [True, False])
def test_order_of_an_append_to_a_log_found(
    tmp_path: Path, disk: Disk, put: Callable[..., Path], durability: str, loaded: bool
) -> None:
    """What was found may stand in the page cache only, and so may the names that lead to it."""
    put(tmp_path, log("H T"))
    with jsonl(tmp_path, durability) as store:
        if loaded:
            store.load("s-1")
        assert disk.writes() == []
        store.append("s-1", [other(6, None, "turn/end")])
        calls = [
            ("mkdir", ".locks"),
            ("fsync", LOG),
            ("fsync", BUCKET),
            ("fsync", "."),
            ("write", LOG, lines([other(6, None, "turn/end")])),
            ("fsync", LOG),
        ]
        expect(disk.writes(), calls, durability)


@pytest.mark.parametrize("durability", DURABILITIES)
def test_order_of_a_repair(
    tmp_path: Path, disk: Disk, put: Callable[..., Path], durability: str
) -> None:
    """Copy, cut, newline, closers; each is durable before the next (DM-4)."""
    kept = log(f"H {OPEN} NONL")
    torn = b"\0\0\0\n" + event_lines("X:late")[0] + b"\n"
    put(tmp_path, kept + torn)
    copy = f"{LOG}.torn-{len(kept)}-{hashlib.sha256(torn).hexdigest()[:16]}"
    closers = interrupted_turn_closers(events(OPEN))
    with jsonl(tmp_path, durability) as store:
        report = RepairReport(
            torn_from_line=14,
            torn_from_byte=len(kept),
            torn_bytes=len(torn),
            copy_kept=str(tmp_path / copy),
            newline_added=True,
            closers=tuple(closers),
        )
        check(store.load("s-1"), [*events(OPEN), *closers], report)
    calls = [
        ("mkdir", ".locks"),
        ("fsync", LOG),
        ("fsync", BUCKET),
        ("fsync", "."),
        ("create", f"{LOG}.torn.tmp"),
        ("write", f"{LOG}.torn.tmp", torn),
        ("fsync", f"{LOG}.torn.tmp"),
        ("replace", f"{LOG}.torn.tmp", copy.encode()),
        ("fsync", BUCKET),
        ("truncate", LOG, str(len(kept)).encode()),
        ("fsync", LOG),
        ("write", LOG, b"\n"),
        ("fsync", LOG),
        ("write", LOG, lines(closers[:-1])),
        ("fsync", LOG),
        ("write", LOG, lines(closers[-1:])),
        ("fsync", LOG),
    ]
    expect(disk.writes(), calls, durability)
    assert files(tmp_path) == {LOG: kept + b"\n" + lines(closers), copy: torn}


def test_a_load_without_repair_writes_and_locks_nothing(
    tmp_path: Path, disk: Disk, put: Callable[..., Path]
) -> None:
    put(tmp_path, log("H T Tt"))
    with jsonl(tmp_path) as store:
        check(store.load("s-1"), events("T Tt"))
    assert disk.writes() == []
    assert not (tmp_path / ".locks").exists()


# --- damage -------------------------------------------------------------------------------------

BAD_LINES = {
    "garbage": b"garbage",
    "blank": b"",
    "blanks": b"  \t",
    "NUL": b"\0" * 7,
    "null": b"null",
    "number": b"7",
    "array": b"[]",
    "cut": b'{"type":"x","seq":',
    "invalid UTF-8": b'{"type":"x","seq":6,"time":1,"data":"\xff"}',
    "raw surrogate": b'{"type":"x","seq":6,"time":1,"data":"\xed\xa0\x80"}',
    "BOM": b'\xef\xbb\xbf{"type":"x","seq":6,"time":1,"data":0}',
    "NaN": b'{"type":"x","seq":6,"time":1,"data":NaN}',
    "1e999": b'{"type":"x","seq":6,"time":1,"data":1e999}',
    "repeated key": b'{"type":"x","seq":6,"time":1,"data":0,"data":0}',
    "deep repeated key": b'{"type":"x","seq":6,"time":1,"data":{"a":[{"b":1,"b":1}]}}',
    "bool seq": b'{"type":"x","seq":true,"time":1,"data":0}',
    "string seq": b'{"type":"x","seq":"6","time":1,"data":0}',
    "float seq": b'{"type":"x","seq":6.0,"time":1,"data":0}',
    "negative seq": b'{"type":"x","seq":-6,"time":1,"data":0}',
    "huge seq": b'{"type":"x","seq":9007199254740992,"time":1,"data":0}',
    "empty type": b'{"type":"","seq":6,"time":1,"data":0}',
    "no data": b'{"type":"x","seq":6,"time":1}',
    "string time": b'{"type":"x","seq":6,"time":"1","data":0}',
    "too deep": b'{"type":"x","seq":6,"time":1,"data":' + b"[" * 200 + b"]" * 200 + b"}",
    "million deep": b"[" * 1_000_000,
    "form feed": b'\x0c{"type":"x","seq":6,"time":1,"data":0}',
}


@pytest.mark.parametrize("bad", BAD_LINES)
def test_a_bad_line_in_the_committed_region_is_refused(
    tmp_path: Path, bad: str
) -> None:  # DM-1, DM-5
    content = log("H T") + BAD_LINES[bad] + b"\n" + event_lines("T Tt")[-1] + b"\n"
    path = place(tmp_path, content)
    with jsonl(tmp_path) as store:
        for call in (store.load, store.inspect, lambda name: store.append(name, [other(6)])):
            with pytest.raises(SessionCorrupted) as refusal:
                call("s-1")
            assert (refusal.value.path, refusal.value.line) == (path, 8)
            assert refusal.value.byte == len(log("H T"))
            assert refusal.value.reason
        assert store.list() == [ListEntry("s-1", HEADER)]
        with pytest.raises(SessionExists):
            store.create(HEADER)
        with pytest.raises(SessionCorrupted):
            store.reopen("s-1")
    with jsonl(tmp_path) as store, pytest.raises(SessionCorrupted):
        store.load("s-1")
    assert files(tmp_path) == {LOG: content}


@pytest.mark.parametrize("bad", BAD_LINES)
def test_a_bad_line_in_the_tail_is_dropped(tmp_path: Path, bad: str) -> None:  # DM-2, DM-5
    torn = BAD_LINES[bad] + b"\n"
    content = log("H T TS") + torn
    place(tmp_path, content)
    closers = interrupted_turn_closers(events("T TS"))
    whole = [*events("T TS"), *closers]
    report = RepairReport(9, len(log("H T TS")), len(torn), None, False, tuple(closers))
    with jsonl(tmp_path) as store:
        look = store.inspect("s-1")
        virtual = RepairReport(
            9, len(log("H T TS")), len(torn), None, False, tuple(closers), False,
            "inspect never writes",
        )  # fmt: skip
        check(look, whole, virtual)
        assert files(tmp_path) == {LOG: content}
        check(store.load("s-1"), whole, report)
        check(store.load("s-1"), whole)
    assert files(tmp_path) == {LOG: log("H T TS") + lines(closers)}


def test_a_tail_with_whole_records_is_copied_first_and_once(tmp_path: Path) -> None:  # DM-2
    torn = b'{"cut\n' + event_lines("X:late@20")[0] + b"\nmore"
    content = log("H T") + torn
    copy = f"{LOG}.torn-{len(log('H T'))}-{hashlib.sha256(torn).hexdigest()[:16]}"
    for _ in range(3):
        path = place(tmp_path, content)
        with jsonl(tmp_path) as store:
            report = RepairReport(8, len(log("H T")), len(torn), str(tmp_path / copy))
            check(store.load("s-1"), events("T"), report)
            assert store.list() == [ListEntry("s-1", HEADER)]
        assert files(tmp_path) == {LOG: log("H T"), copy: torn}
        assert stat.S_IMODE((tmp_path / copy).stat().st_mode) == 0o600
        path.unlink()


def test_a_long_id_has_a_copy_with_a_name_that_fits(tmp_path: Path) -> None:
    name = "x" * 249
    torn = b"cut\n" + event_lines("X:late")[0] + b"\n"
    head = log("H").replace(b"s-1", name.encode())
    place(tmp_path, head + torn, f"{BUCKET}/{name}.jsonl")
    with jsonl(tmp_path) as store:
        copy = store.load(name).repair.copy_kept
        assert copy is not None
        assert Path(copy).parent == tmp_path / BUCKET
        assert Path(copy).read_bytes() == torn
        store.append(name, [other(0)])
        assert [entry.session_id for entry in store.list()] == [name]


@pytest.mark.parametrize(
    "shape, line",
    [
        ("H T TS U@8", 9),
        ("H T TS@9 U", 8),
        ("H T TS TS@6", 9),
        ("H T TS U@0", 9),
        ("H@5 TS@1", 2),
        ("H T X:a@3 TE", 8),
        ("H T TS U@9 NONL", 9),
        ("H T TS U@9 RAW:7b22", 9),
    ],
)
def test_a_wrong_seq_is_refused_everywhere(tmp_path: Path, shape: str, line: int) -> None:  # DM-3
    content = log(shape.replace("H@5", "H"))
    place(tmp_path, content)
    with jsonl(tmp_path) as store:
        with pytest.raises(SessionCorrupted) as refusal:
            store.load("s-1")
        assert refusal.value.line == line
        assert "seq" in refusal.value.reason
    assert files(tmp_path) == {LOG: content}


def test_behind_a_bad_line_seqs_are_not_looked_at(tmp_path: Path) -> None:  # DM-3
    torn = b"cut\n" + event_lines("X:a@99")[0] + b"\n" + event_lines("X:b@3")[0] + b"\n"
    place(tmp_path, log("H T") + torn)
    with jsonl(tmp_path) as store:
        assert plain(store.load("s-1").events) == plain(events("T"))


LATE = event_lines("X:late")[0] + b"\n"
KEPT = {
    "nothing": (b"", None),
    "NULs": (b"\0" * 9, None),
    "a cut record": (b'{"type":', None),
    "the next record": (LATE, LATE),
    "NULs, newline, a record": (b"\0\n" + LATE, LATE),
    "a closing brace": (b"}\n", None),
}


@pytest.mark.parametrize("shape", ["T TS U", "T", "T TS U SS A:c1"])
@pytest.mark.parametrize("behind", KEPT)
def test_a_whole_record_is_kept_whatever_follows_it(
    tmp_path: Path, shape: str, behind: str
) -> None:  # DM-4
    torn, record = KEPT[behind]
    kept = log(f"H {shape} NONL")
    place(tmp_path, kept + torn)
    closers = interrupted_turn_closers(events(shape))
    copy = f"{LOG}.torn-{len(kept)}-{hashlib.sha256(torn).hexdigest()[:16]}"
    report = RepairReport(
        torn_from_line=len(events(shape)) + 1 if torn else None,
        torn_from_byte=len(kept) if torn else None,
        torn_bytes=len(torn),
        copy_kept=str(tmp_path / copy) if record else None,
        newline_added=True,
        closers=tuple(closers),
    )
    with jsonl(tmp_path) as store:
        check(store.load("s-1"), [*events(shape), *closers], report)
    expected = {LOG: kept + b"\n" + lines(closers), **({copy: torn} if record else {})}
    assert files(tmp_path) == expected


def test_a_whole_record_with_a_wrong_seq_is_not_kept(tmp_path: Path) -> None:  # DM-4, DM-2
    torn = event_lines("X:late@9")[0] + b"\0"
    place(tmp_path, log("H T") + torn)
    with jsonl(tmp_path) as store:
        report = RepairReport(8, len(log("H T")), len(torn))
        check(store.load("s-1"), events("T"), report)


def test_crlf_is_read_and_never_written(tmp_path: Path) -> None:  # DM-5
    content = log("H T TS CRLF")
    place(tmp_path, content)
    closers = interrupted_turn_closers(events("T TS"))
    with jsonl(tmp_path) as store:
        check(store.load("s-1"), [*events("T TS"), *closers], RepairReport(closers=tuple(closers)))
        assert files(tmp_path) == {LOG: content + lines(closers)}


@pytest.mark.parametrize(
    "content",
    [b"", b"\0" * 50, HEADER_LINE[:-2], b"{", HEADER_LINE[:-1] + b"\0", b"garbage"],
    ids=["empty", "NULs", "cut header", "brace", "header and NUL", "garbage"],
)
@pytest.mark.parametrize("bucket", [BUCKET, "_no-cwd"])
def test_never_materialised(tmp_path: Path, content: bytes, bucket: str) -> None:  # DM-6
    name = f"{bucket}/s-1.jsonl"
    path = place(tmp_path, content, name)
    with jsonl(tmp_path) as store:
        calls: list[Callable[[], Any]] = [
            lambda: store.load("s-1"),
            lambda: store.inspect("s-1"),
            lambda: store.append("s-1", [other(0)]),
            lambda: store.reopen("s-1"),
        ]
        for call in calls:
            with pytest.raises(NeverMaterialised) as refusal:
                call()
            assert (refusal.value.path, refusal.value.size) == (path, len(content))
        assert store.list() == []
        assert files(tmp_path) == {name: content}
        store.create(HEADER)
        assert files(tmp_path) == {name: content}
        store.append("s-1", events("T"))
        aside = f"{name}.aside-{hashlib.sha256(content).hexdigest()[:16]}"
        assert files(tmp_path) == {LOG: log("H T"), aside: content}
        check(store.load("s-1"), events("T"))
        assert store.list() == [ListEntry("s-1", HEADER)]


def test_moving_aside_is_durable_before_the_new_log_is(tmp_path: Path, disk: Disk) -> None:
    """Back after a power cut, the old name would be a second place of the same id."""
    place(tmp_path, b"", "_no-cwd/s-1.jsonl")
    with jsonl(tmp_path) as store:
        store.create(HEADER)
        store.append("s-1", events("T"))
    calls = disk.writes()
    moved = next(number for number, call in enumerate(calls) if call[0] == "replace")
    assert calls[moved + 1] == ("fsync", "_no-cwd")
    assert moved < calls.index(("link", TEMPORARY, LOG.encode()))


def test_exactly_one_header_without_newline_is_an_empty_session(tmp_path: Path) -> None:  # DM-6
    place(tmp_path, HEADER_LINE[:-1])
    with jsonl(tmp_path) as store:
        assert store.list() == [ListEntry("s-1", HEADER)]
        with pytest.raises(SessionExists):
            store.create(HEADER)
        check(store.load("s-1"), [], RepairReport(newline_added=True))
        check(store.load("s-1"), [])
        store.append("s-1", events("T"))
    assert files(tmp_path) == {LOG: log("H T")}


@pytest.mark.parametrize("first", [b"\n", b"{}\n", b"garbage\n", b"\0\n", event_lines("TS")[0]])
def test_a_first_line_that_is_no_header(tmp_path: Path, first: bytes) -> None:  # DM-6
    content = first.rstrip(b"\n") + b"\n" + log("H T")
    path = place(tmp_path, content)
    with jsonl(tmp_path) as store:
        for call in (store.load, store.inspect, store.reopen):
            with pytest.raises(SessionCorrupted) as refusal:
                call("s-1")
            assert (refusal.value.path, refusal.value.line, refusal.value.byte) == (path, 1, 0)
        with pytest.raises(SessionExists):
            store.create(HEADER)
        [entry] = store.list()
        assert (entry.session_id, entry.header) == ("s-1", None)
        assert isinstance(entry.error, SessionCorrupted)
    assert files(tmp_path) == {LOG: content}


@pytest.mark.parametrize("version", [7, -1, 1, 2**70])
def test_another_version_is_left_alone(tmp_path: Path, version: int) -> None:  # RW-14
    line = b'{"type":"session","version":%d,"id":"other","future":[]}\nnot ours\n' % version
    place(tmp_path, line)
    with jsonl(tmp_path) as store:
        for call in (store.load, store.inspect, store.reopen):
            with pytest.raises(UnsupportedVersion) as refusal:
                call("s-1")
            assert refusal.value.version == version
        with pytest.raises(UnsupportedVersion):
            store.append("s-1", [other(0)])
        [entry] = store.list()
        assert (entry.session_id, entry.error) == ("s-1", None)
        assert entry.header is not None
        assert entry.header.version == version
    assert files(tmp_path) == {LOG: line}


def test_a_header_of_another_id_is_refused(tmp_path: Path) -> None:  # RW-15
    path = place(tmp_path, log("H:id=s-2 T TS"))
    with jsonl(tmp_path) as store:
        for call in (store.load, store.inspect, store.reopen):
            with pytest.raises(IdentityMismatch) as refusal:
                call("s-1")
            assert (refusal.value.paths, refusal.value.found) == ((path,), "s-2")
        with pytest.raises(IdentityMismatch):
            store.append("s-1", [other(8)])
        with pytest.raises(SessionNotFound):
            store.load("s-2")
        [entry] = store.list()
        assert entry.session_id == "s-1"
        assert isinstance(entry.error, IdentityMismatch)
    assert files(tmp_path) == {LOG: log("H:id=s-2 T TS")}


def test_an_id_in_two_places_is_refused(tmp_path: Path) -> None:  # RW-15
    paths = tuple(place(tmp_path, log("H T TS"), name) for name in ("_no-cwd/s-1.jsonl", LOG))
    with jsonl(tmp_path) as store:
        for call in (store.load, store.inspect, store.reopen):
            with pytest.raises(IdentityMismatch) as refusal:
                call("s-1")
            assert set(refusal.value.paths) == set(paths)
        with pytest.raises(IdentityMismatch):
            store.append("s-1", [other(7)])
        assert [type(entry.error) for entry in store.list()] == [IdentityMismatch] * 2
    assert files(tmp_path) == {"_no-cwd/s-1.jsonl": log("H T TS"), LOG: log("H T TS")}


def test_a_name_no_id_has_hides_no_session(tmp_path: Path) -> None:  # RW-9
    head = SessionHeader("a b", 1)
    with jsonl(tmp_path) as store:
        store.create(head)
        store.append("a b", [other(0)])
        place(tmp_path, log("H T").replace(b"s-1", b"a b"), "_no-cwd/a b.jsonl")
        found = store.list()
        assert ListEntry("a b", head) in found
        [stray] = [entry for entry in found if entry.error is not None]
        assert isinstance(stray.error, IdentityMismatch)
        check(store.load("a b"), [other(0)], header=head)


def test_inspect_and_list_never_write(
    tmp_path: Path, disk: Disk, put: Callable[..., Path]
) -> None:  # DM-8
    put(tmp_path, log("H T TS NONL RAW:0000"))
    put(tmp_path, b"", "_no-cwd/empty.jsonl")
    before = files(tmp_path)
    with jsonl(tmp_path) as store:
        for _ in range(2):
            store.inspect("s-1")
            store.list()
    assert disk.writes() == []
    assert files(tmp_path) == before
    assert not (tmp_path / ".locks").exists()


def test_a_header_longer_than_usual(tmp_path: Path) -> None:  # CR-6
    """Upstream reads headers beyond 8 KB; a list must agree with a load on any of them."""
    head = SessionHeader("s-1", 1, extra={"long": "x" * (17 << 20)})
    with jsonl(tmp_path) as store:
        store.create(head)
        store.append("s-1", [other(0)])
        [entry] = store.list()
        assert (entry.header, entry.error) == (head, None)
        check(store.load("s-1"), [other(0)], header=head)
    path = tmp_path / "_no-cwd/s-1.jsonl"
    path.write_bytes(path.read_bytes().partition(b"\n")[0])
    with jsonl(tmp_path) as store, pytest.raises(SessionExists):
        store.create(head)


# --- the first flush ----------------------------------------------------------------------------


def test_left_overs_of_a_first_flush_are_never_data(tmp_path: Path) -> None:  # CR-10, CR-11
    place(tmp_path, b"half of a header", TEMPORARY)
    place(tmp_path, b"old", f"{LOG}.torn.tmp")
    with jsonl(tmp_path) as store:
        with pytest.raises(SessionNotFound):
            store.load("s-1")
        assert store.list() == []
        store.create(HEADER)
        store.append("s-1", events("T"))
    assert files(tmp_path) == {LOG: log("H T"), f"{LOG}.torn.tmp": b"old"}


def test_a_kill_between_link_and_unlink(tmp_path: Path) -> None:  # CR-10, CR-11
    """The temporary name is then a second name of the log; no later write may go through it."""
    path = place(tmp_path, log("H T"))
    os.link(path, tmp_path / TEMPORARY)
    with jsonl(tmp_path) as store:
        with pytest.raises(SessionExists):
            store.create(HEADER)
        store.append("s-1", [other(6)])
        assert store.list() == [ListEntry("s-1", HEADER)]
    kept = log("H T") + lines([other(6)])
    assert files(tmp_path) == {LOG: kept, TEMPORARY: kept}
    path.rename(tmp_path / "elsewhere")
    with jsonl(tmp_path) as store:
        store.create(HEADER)
        store.append("s-1", [other(0)])
    assert files(tmp_path) == {LOG: HEADER_LINE + lines([other(0)]), "elsewhere": kept}


def test_a_log_that_appears_before_the_link(tmp_path: Path, disk: Disk) -> None:
    """Made by a writer that knows no lock: the link fails, and its log is left as it is."""

    def fault(operation: str, name: str, _: bytes) -> None:
        if operation == "link":
            (tmp_path / LOG).write_bytes(log("H T"))

    disk.fault = fault
    with jsonl(tmp_path) as store:
        store.create(HEADER)
        with pytest.raises(SessionExists):
            store.append("s-1", [other(0)])
        disk.heal()
        assert files(tmp_path) == {LOG: log("H T")}
        check(store.load("s-1"), events("T"))
        store.append("s-1", [other(6)])


NO_LINKS = [errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK]


@pytest.mark.parametrize("error", NO_LINKS)
@pytest.mark.parametrize("durability", DURABILITIES)
def test_without_hard_links(tmp_path: Path, disk: Disk, error: int, durability: str) -> None:
    disk.fail("link", error)
    batch = events("T TS U")
    with jsonl(tmp_path, durability) as store:
        store.create(HEADER)
        store.append("s-1", batch)
        calls = disk.writes()
        assert files(tmp_path) == {LOG: log("H T TS U")}
        store.append("s-1", [other(8)])
    # The header must stand before the newline that makes it a line, and that before all else: else
    # a power cut could leave a first line that is no header.
    in_place = [
        ("create", LOG),
        ("write", LOG, HEADER_LINE[:-1]),
        ("fsync", LOG),
        ("write", LOG, b"\n"),
        ("fsync", LOG),
        ("write", LOG, lines(batch[:5])),
        ("fsync", LOG),
        ("write", LOG, lines(batch[5:])),
        ("fsync", LOG),
        ("fsync", BUCKET),
        ("fsync", "."),
    ]
    expect(calls[calls.index(("create", LOG)) :], in_place, durability)


def test_without_hard_links_a_log_that_appears_is_kept(tmp_path: Path, disk: Disk) -> None:
    def fault(operation: str, name: str, _: bytes) -> None:
        if operation == "link":
            (tmp_path / LOG).write_bytes(log("H T"))
            raise OSError(errno.EPERM, "no links here")

    disk.fault = fault
    with jsonl(tmp_path) as store:
        store.create(HEADER)
        with pytest.raises(SessionExists):
            store.append("s-1", [other(0)])
    assert files(tmp_path) == {LOG: log("H T")}


FIRST_FLUSH_FAULTS = [
    ("mkdir", BUCKET, False),
    ("create", TEMPORARY, False),
    ("write", TEMPORARY, False),
    ("fsync", TEMPORARY, True),
    ("link", TEMPORARY, False),
    ("unlink", TEMPORARY, False),
    ("fsync", BUCKET, True),
    ("fsync", ".", True),
]


@pytest.mark.parametrize("operation, name, dead", FIRST_FLUSH_FAULTS)
def test_a_first_flush_that_fails_leaves_nothing(
    tmp_path: Path, disk: Disk, operation: str, name: str, dead: bool
) -> None:  # IO-1, IO-3, CR-10
    with jsonl(tmp_path) as store:
        store.create(HEADER)
        disk.fail(operation, errno.EIO, times=1, name=name)
        with pytest.raises(StorageFailed) as failure:
            store.append("s-1", events("T"))
        assert failure.value.writer_dead is dead
        assert isinstance(failure.value.cause, OSError)
        assert files(tmp_path) == {}
        assert store.list() == []
        with pytest.raises(SessionNotFound):
            store.load("s-1")
        if dead:
            for _ in range(2):
                with pytest.raises(StorageFailed, match="reopen"):
                    store.append("s-1", events("T"))
            assert files(tmp_path) == {}
        assert store.reopen("s-1") == 0
        store.append("s-1", events("T"))
        assert files(tmp_path) == {LOG: log("H T")}
        check(store.load("s-1"), events("T"))


@pytest.mark.parametrize("operation, name, dead", FIRST_FLUSH_FAULTS)
def test_a_first_flush_that_fails_frees_the_id_for_another_store(
    tmp_path: Path, disk: Disk, operation: str, name: str, dead: bool
) -> None:
    with jsonl(tmp_path) as store, jsonl(tmp_path) as second:
        store.create(HEADER)
        second.create(HEADER)
        disk.fail(operation, errno.EIO, times=1, name=name)
        with pytest.raises(StorageFailed):
            store.append("s-1", [other(0)])
        second.append("s-1", events("T"))
        check(second.load("s-1"), events("T"))


def test_a_first_flush_that_cannot_take_its_log_back(tmp_path: Path, disk: Disk) -> None:
    """The names were not synced, and the log would not go: storage decides at reopen (LV-1)."""

    def fault(operation: str, name: str, _: bytes) -> None:
        if (operation, name) in (("fsync", BUCKET), ("unlink", LOG)):
            raise OSError(errno.EIO, "no")

    disk.fault = fault
    with jsonl(tmp_path) as store:
        store.create(HEADER)
        with pytest.raises(StorageFailed):
            store.append("s-1", events("T TS"))
        with pytest.raises(SessionNotFound):
            store.load("s-1")
        with pytest.raises(StorageFailed):
            store.append("s-1", events("T TS"))
        disk.heal()
        assert store.reopen("s-1") == 7
        store.append("s-1", [other(7)])
    assert files(tmp_path) == {LOG: log("H T TS") + lines([other(7)])}


# --- a disk that fails --------------------------------------------------------------------------

BATCH = [other(seq, None, kind) for seq, kind in enumerate(["a", "turn/end", "b", "turn/end"], 6)]


def start(store: JsonlStore, shape: str = "T") -> None:
    store.create(HEADER)
    store.append("s-1", events(shape))


@pytest.mark.parametrize("piece", range(3))
@pytest.mark.parametrize("kept", [0, 1, 20])
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO, errno.EDQUOT])
def test_a_failed_write_is_cut_back_and_work_goes_on(
    tmp_path: Path, disk: Disk, piece: int, kept: int, error: int
) -> None:  # IO-1, IO-2, IO-4
    with jsonl(tmp_path) as store:
        start(store)
        left = [piece]
        half = [True]

        def fault(operation: str, name: str, _: bytes) -> int | None:
            if operation != "write":
                return None
            if left[0]:
                left[0] -= 1
                return None
            if kept and half[0]:
                half[0] = False
                return kept
            raise OSError(error, os.strerror(error))

        disk.fault = fault
        disk.writes()
        for _ in range(2):
            with pytest.raises(StorageFailed) as failure:
                store.append("s-1", BATCH)
            assert not failure.value.writer_dead
            assert failure.value.operation == "write"
            assert isinstance(failure.value.__cause__, OSError)
            assert disk.writes()[-2:] == [
                ("truncate", LOG, str(len(log("H T"))).encode()),
                ("fsync", LOG),
            ]
            assert files(tmp_path) == {LOG: log("H T")}
        check(store.load("s-1"), events("T"))
        disk.heal()
        store.append("s-1", BATCH)
    assert files(tmp_path) == {LOG: log("H T") + lines(BATCH)}


@pytest.mark.parametrize("size", [1, 3, 50])
def test_short_writes_are_continued(tmp_path: Path, disk: Disk, size: int) -> None:  # IO-4
    disk.fault = lambda operation, name, data: size
    with jsonl(tmp_path) as store:
        start(store)
        store.append("s-1", BATCH)
    assert files(tmp_path) == {LOG: log("H T") + lines(BATCH)}


def test_a_write_that_accepts_nothing_ends(tmp_path: Path, disk: Disk) -> None:
    with jsonl(tmp_path) as store:
        start(store)
        disk.fault = lambda operation, name, data: 0 if operation == "write" else None
        with pytest.raises(StorageFailed):
            store.append("s-1", BATCH)
        disk.heal()
        store.append("s-1", BATCH)


@pytest.mark.parametrize("which", range(3))
@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_after_a_failed_fsync_the_writer_is_dead(
    tmp_path: Path, disk: Disk, which: int, error: int
) -> None:  # IO-3
    with jsonl(tmp_path) as store, jsonl(tmp_path) as second:
        start(store)
        left = [which]

        def fault(operation: str, name: str, _: bytes) -> None:
            if operation == "fsync":
                left[0] -= 1
                if left[0] == -1:
                    raise OSError(error, os.strerror(error))

        disk.fault = fault
        with pytest.raises(StorageFailed) as failure:
            store.append("s-1", BATCH)
        assert failure.value.writer_dead
        assert failure.value.operation == "fsync"
        assert files(tmp_path) == {LOG: log("H T")}
        for _ in range(2):
            with pytest.raises(StorageFailed, match="reopen"):
                store.append("s-1", BATCH)
        check(store.load("s-1"), events("T"))
        with pytest.raises(StorageFailed):
            store.append("s-1", BATCH)
        # The lock is kept meanwhile: no other writer may come in between.
        with pytest.raises(WriterConflict):
            second.append("s-1", BATCH)
        assert store.reopen("s-1") == 6
        store.append("s-1", BATCH)
    assert files(tmp_path) == {LOG: log("H T") + lines(BATCH)}


@pytest.mark.parametrize("operation", ["write", "fsync"])
def test_what_cannot_be_cut_back_is_not_shown(
    tmp_path: Path, disk: Disk, operation: str
) -> None:  # IO-2, IO-3
    """The acknowledged prefix loads; bytes never acknowledged are dropped by reopen."""
    acknowledged = events(OPEN)
    with jsonl(tmp_path) as store:
        start(store, OPEN)
        more = [other(13), other(14), other(15, None, "turn/end")]
        count = [0]

        def fault(called: str, name: str, _: bytes) -> None:
            count[0] += called == operation
            if called == "truncate" or (called == operation and count[0] > 1):
                raise OSError(errno.EIO, "no")

        disk.fault = fault
        with pytest.raises(StorageFailed) as failure:
            store.append("s-1", more)
        assert failure.value.writer_dead
        assert files(tmp_path)[LOG].startswith(log(f"H {OPEN}") + lines(more[:2]))
        closers = interrupted_turn_closers(acknowledged)
        virtual = RepairReport(
            closers=tuple(closers), durable=False, reason="the writer is dead; call reopen()"
        )
        for _ in range(2):
            check(store.load("s-1"), [*acknowledged, *closers], virtual)
        assert plain(store.inspect("s-1").events) == plain([*acknowledged, *closers])
        with pytest.raises(StorageFailed):
            store.append("s-1", more)
        for _ in range(2):
            with pytest.raises(StorageFailed):
                store.reopen("s-1")
            with pytest.raises(StorageFailed):
                store.append("s-1", more)
        disk.heal()
        assert store.reopen("s-1") == 13
        assert files(tmp_path) == {LOG: log(f"H {OPEN}")}
        store.append("s-1", more)
    assert files(tmp_path) == {LOG: log(f"H {OPEN}") + lines(more)}


def test_a_new_store_settles_what_a_dead_writer_left(tmp_path: Path, disk: Disk) -> None:  # IO-2
    with jsonl(tmp_path) as store:
        start(store)

        def fault(operation: str, name: str, _: bytes) -> int | None:
            if operation == "truncate":
                raise OSError(errno.EIO, "no")
            if operation == "write" and not store_wrote:
                store_wrote.append(True)
                return len(lines(BATCH[:1])) - 5
            if operation == "write":
                raise OSError(errno.ENOSPC, "no")
            return None

        store_wrote: list[bool] = []
        disk.fault = fault
        with pytest.raises(StorageFailed):
            store.append("s-1", BATCH)
    disk.heal()
    with jsonl(tmp_path) as fresh:
        torn = lines(BATCH[:1])[:-5]
        check(fresh.load("s-1"), events("T"), RepairReport(8, len(log("H T")), len(torn)))
        fresh.append("s-1", BATCH)


def test_reopen_of_a_live_writer_leaves_another_writers_bytes(tmp_path: Path) -> None:
    """Bytes of a writer that knows no lock are not ours to drop (DM-2, IO-6)."""
    with jsonl(tmp_path) as store:
        start(store)
        with (tmp_path / LOG).open("ab") as file:
            file.write(lines([other(6)]))
        with pytest.raises(WriterConflict):
            store.append("s-1", [other(6)])
        with pytest.raises(WriterConflict):
            store.reopen("s-1")
        check(store.load("s-1"), [*events("T"), other(6)])
        store.append("s-1", [other(7)])
    assert files(tmp_path) == {LOG: log("H T") + lines([other(6), other(7)])}


DAMAGED = log(f"H {OPEN} NONL RAW:0000 LF X:late")


def faults_of_a_repair(root: Path, disk: Disk) -> list[tuple[int, str, str]]:
    """Number, kind and name of each operation of the whole repair of `DAMAGED`."""
    place(root, DAMAGED)
    disk.writes()
    with jsonl(root) as store:
        store.load("s-1")
    found = disk.writes()
    return [(number, call[0], call[1].removeprefix("model/")) for number, call in enumerate(found)]


def fail_from(disk: Disk, number: int, error: Callable[[], BaseException], *, once: bool) -> None:
    seen = [-1]

    def fault(operation: str, name: str, _: bytes) -> None:
        if operation == "open":
            return
        seen[0] += 1
        if seen[0] == number or (seen[0] > number and not once):
            raise error()

    disk.fault = fault


@pytest.mark.parametrize("once", [True, False], ids=["once", "for good"])
def test_a_repair_that_cannot_be_written(tmp_path: Path, disk: Disk, once: bool) -> None:  # IO-5
    """Load gives L, not durable; append is refused until a repair succeeds; then L goes on."""
    steps = faults_of_a_repair(tmp_path / "model", disk)
    kept = events(OPEN)
    whole = [*kept, *interrupted_turn_closers(kept)]
    model = files(tmp_path / "model")[LOG]
    assert len(steps) == 18
    for number, kind, name in steps:
        root = tmp_path / str(number)
        place(root, DAMAGED)
        fail_from(disk, number, lambda: OSError(errno.EIO, "no"), once=once)
        with jsonl(root) as store:
            found = store.load("s-1")
            assert plain(found.events) == plain(whole)
            assert not found.repair.durable
            assert found.repair.reason
            if once and kind != "fsync":
                # Nothing stands in the way any more: the append repairs first.
                store.append("s-1", [other(len(whole))])
                continue
            if once and name != LOG and number > 4:
                # The copy's own fsync: it is made anew, so that no lost byte is trusted.
                store.append("s-1", [other(len(whole))])
                continue
            for _ in range(2):
                with pytest.raises(StorageFailed) as failure:
                    store.append("s-1", [other(len(whole))])
                assert plain(store.load("s-1").events) == plain(whole)
            disk.heal()
            assert failure.value.writer_dead or kind != "fsync" or number > 4
            if failure.value.writer_dead:
                assert store.reopen("s-1") <= len(whole)
            assert plain(store.load("s-1").events) == plain(whole)
            store.append("s-1", [other(len(whole))])
    disk.heal()
    for number, *_ in steps:
        root = tmp_path / str(number)
        assert files(root)[LOG] == model + lines([other(len(whole))])
        assert not [name for name in files(root) if name.endswith(".tmp")]


def test_a_full_disk_keeps_no_half_of_a_copy(tmp_path: Path, disk: Disk) -> None:  # IO-5
    place(tmp_path, DAMAGED)
    disk.fault = lambda operation, name, data: _full() if operation == "write" else None
    with jsonl(tmp_path) as store:
        found = store.load("s-1")
        assert plain(found.events[:13]) == plain(events(OPEN))
        assert "No space" in str(found.repair.reason)
        assert files(tmp_path) == {LOG: DAMAGED}


def _full() -> int:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("again", ["load", "append", "reopen"])
def test_an_interrupt_inside_a_repair(tmp_path: Path, disk: Disk, again: str) -> None:
    """Whatever stops it, nothing may be written behind the torn tail afterwards."""
    steps = faults_of_a_repair(tmp_path / "model", disk)
    kept = events(OPEN)
    whole = [*kept, *interrupted_turn_closers(kept)]
    for number, *_ in steps:
        root = tmp_path / f"{again}-{number}"
        place(root, DAMAGED)
        fail_from(disk, number, Interrupt, once=True)
        with jsonl(root) as store:
            with pytest.raises(Interrupt):
                store.load("s-1")
            if again == "append":
                with pytest.raises((SequenceMismatch, WriterConflict, StorageFailed)):
                    store.append("s-1", [other(len(kept))])
            elif again == "reopen":
                assert store.reopen("s-1") in range(len(kept), len(whole) + 1)
            store.load("s-1") if store.list()[0].error is None else None
            try:
                store.append("s-1", [other(len(whole))])
            except StorageFailed:
                store.reopen("s-1")
                store.load("s-1")
                store.append("s-1", [other(len(whole))])
        with jsonl(root) as store:
            check(store.load("s-1"), [*whole, other(len(whole))])


@pytest.mark.parametrize("again", ["reopen", "append"])
@pytest.mark.parametrize("error", [Interrupt, OSError])
def test_what_stops_a_reopen(
    tmp_path: Path, disk: Disk, error: type[BaseException], again: str
) -> None:
    """Nothing is written behind a torn tail that a reopen was about to drop."""
    kept = events(OPEN)
    number = 0
    done = False
    while not done:
        root = tmp_path / str(number)
        place(root, DAMAGED)
        fail_from(disk, number, lambda: error(errno.EIO, "no"), once=True)
        with jsonl(root) as store:
            try:
                store.reopen("s-1")
                done = True
            except (Interrupt, StorageFailed):
                if again == "append":
                    # Refused by a dead writer; where the lock could not be had, load comes first.
                    with pytest.raises(SequenceMismatch if number == 0 else StorageFailed):
                        store.append("s-1", [other(len(kept))])
            disk.heal()
            seq = store.reopen("s-1")
            assert seq == len(kept) or again == "append"
            store.append("s-1", [other(seq)])
        whole = [*kept, *interrupted_turn_closers(kept)][:seq]
        expected = [*whole, other(seq)]
        with jsonl(root) as store:
            closers = interrupted_turn_closers(expected)
            assert plain(store.load("s-1").events) == plain([*expected, *closers])
        number += 1
    assert number > 5


@pytest.mark.parametrize("kept", [0, 1, 30])
def test_an_interrupt_inside_a_write(tmp_path: Path, disk: Disk, kept: int) -> None:
    with jsonl(tmp_path) as store:
        start(store)
        half = [True]

        def fault(operation: str, name: str, _: bytes) -> int | None:
            if operation != "write":
                return None
            if kept and half[0]:
                half[0] = False
                return kept
            raise Interrupt

        disk.fault = fault
        with pytest.raises(Interrupt):
            store.append("s-1", BATCH)
        assert files(tmp_path) == {LOG: log("H T")}
        disk.heal()
        store.append("s-1", BATCH)
    assert files(tmp_path) == {LOG: log("H T") + lines(BATCH)}


def test_an_interrupt_inside_the_first_flush(tmp_path: Path, disk: Disk) -> None:
    number = 0
    done = False
    while not done:
        root = tmp_path / str(number)
        fail_from(disk, number, Interrupt, once=True)
        with jsonl(root) as store:
            store.create(HEADER)
            try:
                store.append("s-1", events("T"))
                done = True
            except Interrupt:
                assert files(root) == {}
                store.append("s-1", events("T"))
        assert files(root) == {LOG: log("H T")}
        number += 1
    assert number > 5


# --- a log changed under its writer -------------------------------------------------------------


def replaced(path: Path) -> None:
    path.with_name("new").write_bytes(path.read_bytes())
    path.with_name("new").replace(path)


def linked(path: Path) -> None:
    path.rename(path.with_name("moved"))
    path.symlink_to("moved")


def made_a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def moved(path: Path) -> None:
    bucket = path.parent.with_name("_no-cwd")
    bucket.mkdir()
    path.rename(bucket / path.name)


CHANGES: dict[str, Callable[[Path], object]] = {
    "replaced": replaced,
    "moved and linked": linked,
    "truncated": lambda path: os.truncate(path, len(HEADER_LINE)),
    "emptied": lambda path: os.truncate(path, 0),
    "grown": lambda path: path.write_bytes(path.read_bytes() + b"x"),
    "unlinked": lambda path: path.unlink(),
    "made a folder": made_a_folder,
    "moved to another bucket": moved,
    "bucket gone": lambda path: path.parent.rename(path.parent.with_name("moved")),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("writing", [True, False], ids=["writing", "only loaded"])
def test_a_log_changed_under_a_live_writer(
    tmp_path: Path, change: str, writing: bool
) -> None:  # IO-6, MW-4
    with jsonl(tmp_path) as store:
        if writing:
            start(store)
        else:
            place(tmp_path, log("H T"))
            store.load("s-1")
        CHANGES[change](tmp_path / LOG)
        after = files(tmp_path)
        for _ in range(2):
            with pytest.raises((WriterConflict, StorageFailed)):
                store.append("s-1", [other(6)])
            assert files(tmp_path) == after


def test_a_log_replaced_is_taken_up_by_the_next_load(tmp_path: Path) -> None:
    with jsonl(tmp_path) as store:
        start(store)
        replaced(tmp_path / LOG)
        with pytest.raises(WriterConflict):
            store.append("s-1", [other(6)])
        check(store.load("s-1"), events("T"))
        store.append("s-1", [other(6)])
    assert files(tmp_path) == {LOG: log("H T") + lines([other(6)])}


# --- files that are not sessions, places that cannot be looked at -------------------------------


def fifo(path: Path) -> None:
    os.mkfifo(path)


def symlink(path: Path) -> None:
    target = path.parent.parent / "target"
    target.write_bytes(log("H T"))
    path.symlink_to(target)


def loop(path: Path) -> None:
    path.symlink_to(path.name)


@pytest.mark.parametrize("make", [fifo, symlink, loop, Path.mkdir], ids=lambda made: made.__name__)
def test_what_is_no_regular_file_is_no_log(tmp_path: Path, make: Callable[[Path], None]) -> None:
    path = tmp_path / LOG
    path.parent.mkdir()
    make(path)
    place(tmp_path, log("H:id=fine T"), f"{BUCKET}/fine.jsonl")
    before = files(tmp_path)
    with jsonl(tmp_path) as store:
        for call in (store.load, store.inspect, store.reopen):
            with pytest.raises(StorageFailed):
                call("s-1")
        with pytest.raises(StorageFailed):
            store.append("s-1", [other(6)])
        with pytest.raises(SessionExists):
            store.create(HEADER)
        found = {entry.session_id: entry for entry in store.list()}
        assert found["fine"].error is None
        assert isinstance(found["s-1"].error, StorageFailed)
        check(
            store.load("fine"), events("T"), header=SessionHeader("fine", HEADER.created_at, "/w")
        )
    assert files(tmp_path) == before


@pytest.mark.parametrize("kind", ["link", "file"])
def test_a_bucket_that_is_no_folder_is_not_followed(tmp_path: Path, kind: str) -> None:
    """Sessions behind it are not absent: they cannot be looked at (RW-8)."""
    root, outside = tmp_path / "root", tmp_path / "outside"
    root.mkdir()
    place(outside, log("H T"), "s-1.jsonl")
    if kind == "link":
        (root / BUCKET).symlink_to(outside)
    else:
        (root / BUCKET).write_bytes(b"")
    before = files(tmp_path)
    with jsonl(root) as store:
        calls: list[Callable[[], Any]] = [
            lambda: store.load("s-1"),
            lambda: store.create(SessionHeader("new", 1, cwd="/w")),
            lambda: store.append("s-1", [other(6)]),
            store.list,
        ]
        for call in calls:
            with pytest.raises(StorageFailed, match=BUCKET):
                call()
    assert files(tmp_path) == before


def test_a_root_that_is_a_link_to_a_folder(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "root").symlink_to("real")
    with jsonl(tmp_path / "root") as store:
        start(store)
        check(store.load("s-1"), events("T"))
    assert files(tmp_path / "real") == {LOG: log("H T")}


def test_a_root_that_is_a_file(tmp_path: Path) -> None:  # RW-8
    root = tmp_path / "file"
    root.write_bytes(b"precious")
    for place_of_root in (root, root / "below"):
        with jsonl(place_of_root) as store:
            for look in (store.load, store.inspect, store.reopen):
                with pytest.raises(StorageFailed):
                    look("s-1")
            with pytest.raises(StorageFailed):
                store.append("s-1", [other(0)])
            with pytest.raises(StorageFailed):
                store.create(HEADER)
            with pytest.raises(StorageFailed):
                store.list()
    assert root.read_bytes() == b"precious"


def test_a_root_that_is_missing(tmp_path: Path) -> None:  # RW-8
    root = tmp_path / "a" / "b" / "c"
    with jsonl(root) as store:
        assert store.list() == []
        for call in (store.load, store.inspect, store.reopen):
            with pytest.raises(SessionNotFound):
                call("s-1")
        with pytest.raises(SessionNotFound):
            store.append("s-1", [other(0)])
        assert list(tmp_path.iterdir()) == []
        start(store)
    assert files(root) == {LOG: log("H T")}


UNPRIVILEGED = """
import os, sys
from pathlib import Path
sys.path[:0] = {path!r}
from torntail.stores.jsonl import JsonlStore
from torntail.session import SessionHeader, SessionEvent
if os.getuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
store = JsonlStore(Path(sys.argv[1]))
calls = {{
    "load": lambda: store.load("s-1"),
    "list": store.list,
    "append": lambda: store.append("s-1", [SessionEvent("note", int(sys.argv[2]), 7, None)]),
    "create": lambda: store.create(SessionHeader("new", 1, cwd="/new")),
    "first flush": lambda: store.append("new", [SessionEvent("note", 0, 7, None)]),
}}
for name, call in calls.items():
    try:
        found = call()
    except Exception as error:
        print(name, type(error).__name__)
    else:
        repair = getattr(found, "repair", None)
        print(name, "ok" if repair is None else (len(found.events), repair.durable))
"""


def unprivileged(root: Path, seq: int) -> dict[str, str]:
    """What each call comes to for a user without rights, in a process of its own."""
    script = UNPRIVILEGED.format(path=[str(Path(place).resolve()) for place in sys.path if place])
    done = subprocess.run(
        [sys.executable, "-c", script, str(root), str(seq)],
        capture_output=True,
        text=True,
        check=True,
    )
    rows = (line.rpartition(" ") for line in done.stdout.splitlines() if "(" not in line)
    found = {name: result for name, _, result in rows}
    for line in done.stdout.splitlines():
        if "(" in line:
            found[line.partition(" ")[0]] = line.partition(" ")[2]
    return found


@pytest.fixture
def open_path(tmp_path: Path) -> Path:
    """A folder that any user can reach."""
    for path in (tmp_path, *tmp_path.parents):
        if path.owner() == Path.home().owner() and path != Path("/"):
            path.chmod(path.stat().st_mode | 0o011)
    return tmp_path


def test_an_unreadable_root_is_not_an_empty_one(open_path: Path) -> None:  # RW-8
    root = open_path / "root"
    place(root, log("H T"))
    root.chmod(0o000)
    try:
        found = unprivileged(root, 6)
    finally:
        root.chmod(0o700)
    assert found == {
        "load": "StorageFailed",
        "list": "StorageFailed",
        "append": "StorageFailed",
        "create": "StorageFailed",
        "first flush": "StorageFailed",
    }
    assert files(root) == {LOG: log("H T")}


@pytest.mark.parametrize(
    "shape, load, seq", [("H T", "(6, True)", 6), ("H T TS CUT:3", "(6, False)", 6),
                         ("H T TS", "(8, False)", 8)]
)  # fmt: skip
def test_a_root_that_can_only_be_read(
    open_path: Path, shape: str, load: str, seq: int
) -> None:  # IO-5, MW-3
    root = open_path / "root"
    path = place(root, log(shape))
    for folder in (root, path.parent):
        folder.chmod(0o755)
    path.chmod(0o644)
    assert unprivileged(root, seq) == {
        "load": load,
        "list": "ok",
        "append": "StorageFailed",
        "create": "ok",
        "first flush": "StorageFailed",
    }
    assert files(root) == {LOG: log(shape)}


def test_a_log_that_cannot_be_read_hides_no_other(open_path: Path) -> None:  # RW-9
    root = open_path / "root"
    place(root, log("H T")).chmod(0o000)
    for folder in (root, root / BUCKET):
        folder.chmod(0o755)
    found = unprivileged(root, 6)
    assert (found["load"], found["list"], found["append"]) == (
        "StorageFailed",
        "ok",
        "StorageFailed",
    )


def test_durability_is_checked() -> None:
    with pytest.raises(ValueError, match="choose 'power', 'process' or 'none'"):
        JsonlStore("anywhere", "disk")  # type: ignore[arg-type]
