"""A crash at every byte of a log, and at every operation of the repair that follows.

Whatever was cut off, a load comes to the longest prefix of whole records and its closers (CR-1 to
CR-5), and a crash inside the repair, wherever it falls, changes nothing about that (CR-7).
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.shapes import log
from tests.stores.support import (
    HEADER,
    LOG,
    Crash,
    Disk,
    check,
    crash_at,
    events,
    files,
    jsonl,
    other,
    place,
    plain,
)
from torntail.session import SessionEvent, interrupted_turn_closers
from torntail.stores.contract import NeverMaterialised, RepairReport, StoreError
from torntail.stores.jsonl import JsonlStore

TURNS = "T Tt TS U SS A:c1,c2 K:c1 R:c1 K:c2"
"""Two closed turns, and one interrupted in the middle of its second call."""


def survivors(cut: bytes, length: int) -> tuple[list[SessionEvent], bool]:
    """The events whole in the first `length` bytes, and whether the last one lacks its newline."""
    count = cut[:length].count(b"\n") - 1
    whole = events(TURNS)
    line_ends = cut.find(b"\n", length) == length
    return whole[: count + line_ends], line_ends


@pytest.mark.parametrize("share", range(4))
def test_every_byte_cut(tmp_path: Path, share: int) -> None:
    whole = log(f"H {TURNS}")
    header_end = whole.index(b"\n")
    for length in range(share, len(whole) + 1, 4):
        root = tmp_path / str(length)
        place(root, whole[:length])
        with jsonl(root, "process") as store:
            if length < header_end:
                with pytest.raises(NeverMaterialised):
                    store.load("s-1")
                assert files(root) == {LOG: whole[:length]}
                continue
            kept, bare = ([], True) if length == header_end else survivors(whole, length)
            closers = interrupted_turn_closers(kept)
            begun = b"" if bare else whole[:length].rpartition(b"\n")[2]
            report = RepairReport(
                torn_from_line=whole[:length].count(b"\n") + 1 if begun else None,
                torn_from_byte=length - len(begun) if begun else None,
                torn_bytes=len(begun),
                newline_added=bare,
                closers=tuple(closers),
            )
            expected = [*kept, *closers]
            check(store.load("s-1"), expected, report)
            mended = files(root)
            assert list(mended) == [LOG]
            check(store.load("s-1"), expected)
        with jsonl(root, "process") as store:
            check(store.load("s-1"), expected)
            assert files(root) == mended
            store.append("s-1", [other(len(expected))])
            check(store.inspect("s-1"), [*expected, other(len(expected))])
        assert files(root)[LOG].startswith(mended[LOG])


DAMAGED = {
    "a torn tail with whole records": log("H T TS U SS A:c1 K:c1 RAW:7b22 LF X:late X:later"),
    "a record without its newline": log("H T TS U SS A:c1,c2 K:c2 NONL"),
    "a record with bytes behind it": log("H T TS U SS A:c1 NONL NUL:40 LF X:late"),
    "a header without its newline": log("H NONL"),
    "an open turn": log("H T TS"),
}


def load_or_crash(store: JsonlStore) -> bool:
    """Whether the load came to its end."""
    try:
        store.load("s-1")
    except Crash:
        return False
    finally:
        store.close()
    return True


@pytest.mark.parametrize("torn", [False, True], ids=["between calls", "inside writes"])
@pytest.mark.parametrize("damage", DAMAGED)
def test_crash_at_every_operation_of_the_repair(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str, torn: bool
) -> None:
    with jsonl(tmp_path / "model") as store:
        place(store.root, DAMAGED[damage])
        expected = store.load("s-1").events
    end_state = files(tmp_path / "model")
    disk = Disk(monkeypatch, tmp_path)
    number = 0
    finished = False
    while not finished:
        number += 1
        root = tmp_path / str(number)
        disk.heal()
        place(root, DAMAGED[damage])
        crash_at(disk, number, torn=torn)
        finished = load_or_crash(JsonlStore(root))
        # A second crash, one operation further into what is then left to do, and a third.
        for again in (2, 1) if not finished else ():
            crash_at(disk, again, torn=torn)
            load_or_crash(JsonlStore(root))
        disk.heal()
        with jsonl(root) as store:
            assert plain(store.load("s-1").events) == plain(expected)
            store.append("s-1", [other(len(expected))])
        left = {name: content for name, content in files(root).items() if ".tmp" not in name}
        assert left.keys() == end_state.keys()
        with jsonl(root) as store:
            check(store.load("s-1"), [*expected, other(len(expected))])
    assert number > 5


def test_crash_at_every_operation_of_the_first_flush(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Either no session, and the id is free, or the whole one (CR-10)."""
    disk = Disk(monkeypatch, tmp_path)
    batch = events("T TS U")
    seen = set()
    for torn in (False, True):
        number = 0
        finished = False
        while not finished:
            number += 1
            root = tmp_path / f"{number}-{torn}" / "deep" / "root"
            disk.heal()
            crash_at(disk, number, torn=torn)
            store = JsonlStore(root)
            store.create(HEADER)
            try:
                store.append("s-1", batch)
                finished = True
            except Crash:
                pass
            disk.heal()
            store.close()
            expected = [*batch, *interrupted_turn_closers(batch)]
            with jsonl(root) as fresh:
                entries = fresh.list()
                seen.add(len(entries))
                if not entries:
                    fresh.create(HEADER)
                    fresh.append("s-1", batch)
                assert plain(fresh.load("s-1").events) == plain(expected)
                assert [entry.session_id for entry in fresh.list()] == ["s-1"]
            # Nothing but the log is left, or a temporary name that no one takes for a log.
            assert {name for name in files(root) if name.endswith(".jsonl")} == {LOG}
    assert seen == {0, 1}


def test_crash_at_every_operation_of_the_first_flush_without_hard_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch, tmp_path)
    batch = events("T TS U")
    outcomes: set[int | str] = set()
    for torn in (False, True):
        number = 0
        finished = False
        while not finished:
            number += 1
            root = tmp_path / f"{number}-{torn}"
            disk.heal()
            crash_at(disk, number, torn=torn)
            dies = disk.fault
            assert dies is not None

            def fault(operation: str, where: str, data: bytes, dies=dies) -> int | None:
                if operation == "link":
                    raise OSError(95, os.strerror(95))
                return dies(operation, where, data)

            disk.fault = fault
            store = JsonlStore(root)
            store.create(HEADER)
            try:
                store.append("s-1", batch)
                finished = True
            except Crash:
                pass
            disk.heal()
            store.close()
            with jsonl(root) as fresh:
                try:
                    found = fresh.load("s-1").events
                    outcomes.add(len(found))
                except StoreError as error:
                    outcomes.add(type(error).__name__)
                    fresh.create(HEADER)
                    fresh.append("s-1", batch)
                    found = fresh.load("s-1").events
                    assert len(found) == len(batch) + 1
            prefixes = [batch[:length] for length in range(len(batch) + 1)]
            assert plain(found) in [plain([*p, *interrupted_turn_closers(p)]) for p in prefixes]
    assert {"SessionNotFound", "NeverMaterialised", 0, len(batch) + 1} <= outcomes
