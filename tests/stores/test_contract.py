"""The store contract without faults, the same for every reference store.

Covers the original's suites as far as they concern a store (P1 to P8, C1 to C29 without the live
session) and clauses RW-1 to RW-17.
"""

from __future__ import annotations

import copy
import decimal
import math
import threading
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.json_values import ODD_NUMBERS, ODD_TEXTS
from tests.stores.support import HEADER, check, events, files, other, place, plain
from torntail.session import (
    SessionEvent,
    SessionHeader,
    interrupted_turn_closers,
    join_surrogates,
    same_json,
)
from torntail.stores.contract import (
    InvalidSessionId,
    ListEntry,
    NotSerializable,
    RepairReport,
    SequenceMismatch,
    SessionExists,
    SessionNotFound,
    SessionStore,
    StoreClosed,
    UnsupportedVersion,
)
from torntail.stores.jsonl import JsonlStore
from torntail.stores.memory import MemoryStore

Open = Callable[[], SessionStore]

PERSISTENT: dict[str, Callable[[Path], SessionStore]] = {
    "jsonl-power": lambda root: JsonlStore(root),
    "jsonl-process": lambda root: JsonlStore(root, "process"),
    "jsonl-none": lambda root: JsonlStore(root, "none"),
}
try:
    from torntail.stores.sqlite import SqliteStore
except ImportError:
    pass
else:
    PERSISTENT["sqlite"] = lambda root: SqliteStore(root / "sessions.db")

ALL = {"memory": lambda _: MemoryStore(), **PERSISTENT}


def opener(factory: Callable[[Path], SessionStore], root: Path) -> Iterator[Open]:
    opened: list[SessionStore] = []

    def open_store() -> SessionStore:
        opened.append(factory(root))
        return opened[-1]

    yield open_store
    for store in opened:
        store.close()


@pytest.fixture(params=ALL)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SessionStore]:
    with ALL[request.param](tmp_path) as opened:
        yield opened


@pytest.fixture(params=PERSISTENT)
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    """Opens stores over one storage, one after the other or side by side."""
    yield from opener(PERSISTENT[request.param], tmp_path / "root")


CLOSED = "T Tt"
OPEN = "T TS U SS A:c1,c2 K:c1 R:c1 K:c2"


def header(session_id: str, **fields: Any) -> SessionHeader:
    return SessionHeader(session_id, 1, **fields)


def add(store: SessionStore, shape: str = CLOSED, head: SessionHeader = HEADER) -> None:
    store.create(head)
    store.append(head.id, events(shape))


def entries(store: SessionStore) -> list[ListEntry]:
    return sorted(store.list(), key=lambda entry: entry.session_id)


def test_is_a_session_store(store: SessionStore) -> None:
    assert isinstance(store, SessionStore)


# --- reading what was written -------------------------------------------------------------------


def test_round_trip(store: SessionStore) -> None:  # P1, RW-1
    add(store, "T TS U SS C C C A SE TE X:plugin/odd X:another")
    check(store.load("s-1"), events("T TS U SS C C C A SE TE X:plugin/odd X:another"))


def test_round_trip_through_another_object(open_store: Open) -> None:  # C1
    store = open_store()
    add(store)
    store.close()
    check(open_store().load("s-1"), events(CLOSED))


def test_an_open_turn_is_closed_for_good(store: SessionStore) -> None:  # P2, P3, RW-1
    add(store, OPEN)
    closers = [
        SessionEvent(
            "tool/result",
            13,
            events(OPEN)[-1].time,
            {
                "turn": 2,
                "step": 1,
                "callId": "c2",
                "content": [
                    {
                        "type": "text",
                        "text": "Tool call interrupted by a crash; no result was recorded.",
                    }
                ],
                "isError": True,
                "error": {"name": "InterruptedError", "code": "interrupted"},
            },
            "append",
            [12],
        ),
        SessionEvent("step/end", 14, events(OPEN)[-1].time, {"turn": 2, "step": 1}),
        SessionEvent(
            "turn/end",
            15,
            events(OPEN)[-1].time,
            {"turn": 2, "reason": {"kind": "interrupted"}},
        ),
    ]
    whole = [*events(OPEN), *closers]
    check(store.load("s-1"), whole, RepairReport(closers=tuple(closers)))
    check(store.load("s-1"), whole)
    with pytest.raises(SequenceMismatch) as refusal:
        store.append("s-1", [other(13)])
    assert (refusal.value.expected, refusal.value.got) == (16, 13)
    store.append("s-1", [other(16)])
    check(store.load("s-1"), [*whole, other(16)])


def test_inspect_shows_the_closers_and_stores_none(store: SessionStore) -> None:  # DM-8
    add(store, OPEN)
    closers = interrupted_turn_closers(events(OPEN))
    report = RepairReport(closers=tuple(closers), durable=False, reason="inspect never writes")
    for _ in range(2):
        check(store.inspect("s-1"), [*events(OPEN), *closers], report)
    grown = [*events(OPEN), other(13)]
    store.append("s-1", [other(13)])
    assert plain(store.inspect("s-1").events) == plain([*grown, *interrupted_turn_closers(grown)])


def test_a_header_comes_back_whole(open_store: Open) -> None:  # C2, C27, RW-1, RW-14
    rich = SessionHeader(
        "s-2",
        1.5,
        cwd="relative/\u00e9\u2028",
        parent_session="s-1",
        seed_length=3,
        extra={"agentPreset": None, "deep": {"a": [1, -0.0]}, "origin": "subagent"},
    )
    store = open_store()
    add(store, "T", rich)
    check(store.load("s-2"), events("T"), header=rich)
    store.close()
    other_store = open_store()
    check(other_store.load("s-2"), events("T"), header=rich)
    [entry] = other_store.list()
    assert (entry.session_id, entry.error) == ("s-2", None)
    assert entry.header is not None
    assert entry.header.to_json() == rich.to_json()


@pytest.mark.parametrize(
    "extra", [{"id": "other"}, {"type": "x"}, {"cwd": "/elsewhere"}, {"version": 0}, {"a": {1}}]
)
def test_a_header_that_would_not_come_back_is_refused(store: SessionStore, extra: Any) -> None:
    with pytest.raises(NotSerializable):
        store.create(SessionHeader("s-1", 1, extra=extra))
    store.create(HEADER)


@pytest.mark.parametrize("version", [7, -1, 1])
def test_another_version_is_refused(store: SessionStore, version: int) -> None:  # C26, RW-14
    with pytest.raises(UnsupportedVersion) as refusal:
        store.create(SessionHeader("s-1", 1, version=version))
    assert refusal.value.version == version
    assert store.list() == []
    store.create(HEADER)


# --- append -------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", [1, 3, 2**53 - 1])
def test_the_first_seq_must_be_the_next_one(store: SessionStore, first: int) -> None:  # P6, RW-2
    store.create(HEADER)
    with pytest.raises(SequenceMismatch) as refusal:
        store.append("s-1", [other(first)])
    assert (refusal.value.expected, refusal.value.got, refusal.value.index) == (0, first, 0)
    with pytest.raises(SessionNotFound):
        store.load("s-1")
    store.append("s-1", [other(0), other(1)])
    for wrong in (0, 1, max(3, first - 1)):
        with pytest.raises(SequenceMismatch) as refusal:
            store.append("s-1", [other(wrong), other(wrong + 1)])
        assert (refusal.value.expected, refusal.value.got) == (2, wrong)
    check(store.load("s-1"), [other(0), other(1)])


@pytest.mark.parametrize("second", [0, 2, 5])
def test_a_gap_inside_a_batch_stores_nothing(store: SessionStore, second: int) -> None:  # P7
    store.create(HEADER)
    for start in (0, 1):
        with pytest.raises(SequenceMismatch) as refusal:
            store.append("s-1", [other(start), other(start + second), other(start + 2)])
        assert (refusal.value.expected, refusal.value.got) == (start + 1, start + second)
        assert refusal.value.index == 1
        if start == 0:
            assert store.list() == []
            store.append("s-1", [other(0)])
    check(store.load("s-1"), [other(0)])


class Text(str):
    """A string with something more to it."""


def cyclic() -> Any:
    value: dict[str, Any] = {"list": []}
    value["list"].append(value)
    return value


def nested(levels: int) -> Any:
    value: Any = 0
    for _ in range(levels):
        value = [value]
    return value


UNFIT = {
    "NaN": {"x": math.nan},
    "infinity": [math.inf],
    "minus infinity": -math.inf,
    "bytes": {"x": b"abc"},
    "set": {"x": {1}},
    "date": {"x": datetime(2026, 1, 1)},
    "decimal": decimal.Decimal(1),
    "object": {"x": object()},
    "function": len,
    "cycle": cyclic(),
    "integer key": {1: "x"},
    "null key": {None: "x"},
    "too deep": nested(200),
    "4301 digits": 10**4300,
    "halves that make two keys one": {"\ud83d\ude00": 1, "\U0001f600": 2},
}


@pytest.mark.parametrize("unfit", UNFIT)
def test_what_json_cannot_carry_is_refused(store: SessionStore, unfit: str) -> None:  # P8, RW-3
    store.create(HEADER)
    store.append("s-1", [other(0)])
    with pytest.raises(NotSerializable) as refusal:
        store.append("s-1", [other(1), other(2, UNFIT[unfit], "todo/write"), other(3)])
    assert (refusal.value.event_type, refusal.value.seq) == ("todo/write", 2)
    assert "'todo/write' (seq 2)" in str(refusal.value)
    check(store.load("s-1"), [other(0)])
    store.append("s-1", [other(1)])


@pytest.mark.parametrize(
    "event",
    [
        SessionEvent("", 0, 1, {}),
        SessionEvent("a", 0, math.nan, {}),
        SessionEvent("a", 0, True, {}),
        SessionEvent("a", True, 1, {}),
        SessionEvent("a", 0.0, 1, {}),  # type: ignore[arg-type]
        SessionEvent("a", -1, 1, {}),
        SessionEvent("a", 2**53, 1, {}),
        SessionEvent("a", 0, 1, {}, extra={"seq": 0}),
        SessionEvent("a", 0, 1, {}, math.nan),
    ],
    ids=repr,
)
def test_what_load_would_refuse_append_refuses(
    store: SessionStore, event: SessionEvent
) -> None:  # DM-5
    store.create(HEADER)
    with pytest.raises(NotSerializable):
        store.append("s-1", [event])
    assert store.list() == []


def test_batches_are_private_copies(store: SessionStore) -> None:  # C3, C4, RW-4
    data: dict[str, Any] = {"deep": [{"x": 1}], "op": {"op": "replace", "start": 0, "end": 0}}
    event = SessionEvent("note", 0, 1, data, data["op"], [0], {"more": data["deep"]})
    kept = copy.deepcopy(event)
    extra: dict[str, Any] = {"list": [1]}
    head = SessionHeader("s-1", 1, extra=extra)
    kept_head = copy.deepcopy(head)
    store.create(head)
    extra["list"].append(2)
    batch = [event]
    store.append("s-1", batch)
    batch.append(other(1))
    data["deep"][0]["x"] = 2
    data["op"]["start"] = 9
    check(store.inspect("s-1"), [kept], header=kept_head)
    for look in (store.load, store.inspect):
        found = look("s-1")
        found.events[0].data["deep"].append("changed")
        found.events.append(other(1))
        assert found.header.extra is not None
        found.header.extra["list"] = None
    [entry] = store.list()
    assert entry.header is not None
    assert entry.header.extra is not None
    entry.header.extra.clear()
    check(store.load("s-1"), [kept], header=kept_head)
    assert plain(store.load("s-1").events) == plain([kept])
    store.append("s-1", [other(1)])


def test_a_batch_may_be_any_iterable(store: SessionStore) -> None:
    store.create(HEADER)
    store.append("s-1", (other(seq) for seq in range(3)))
    store.append("s-1", iter((other(3),)))
    store.append("s-1", (other(4),))
    check(store.load("s-1"), [other(seq) for seq in range(5)])


def test_a_batch_that_breaks_off_stores_nothing(store: SessionStore) -> None:
    def broken() -> Iterator[SessionEvent]:
        yield other(0)
        raise LookupError("the producer failed")

    store.create(HEADER)
    with pytest.raises(LookupError):
        store.append("s-1", broken())
    assert store.list() == []
    store.append("s-1", [other(0)])


def test_a_batch_may_look_at_the_store_it_goes_into(store: SessionStore) -> None:
    def curious() -> Iterator[SessionEvent]:
        yield other(len(store.inspect("s-1").events))
        yield other(len(store.inspect("s-1").events) + 1)

    store.create(HEADER)
    store.append("s-1", [other(0)])
    store.append("s-1", curious())
    check(store.load("s-1"), [other(0), other(1), other(2)])


def test_an_empty_batch_does_nothing(store: SessionStore, tmp_path: Path) -> None:  # C23, RW-5
    store.append("nobody", [])
    store.append("nobody", iter(()))
    store.create(HEADER)
    store.append("s-1", [])
    assert store.list() == []
    assert files(tmp_path) == {}
    with pytest.raises(SessionNotFound):
        store.load("s-1")


def test_order_is_by_seq_alone(store: SessionStore) -> None:  # RW-13, RW-16
    times = [5, 5, 3, -1, 2**70, 1.5, 0]
    batch = [SessionEvent("same", seq, time, "same") for seq, time in enumerate(times)]
    store.create(HEADER)
    for event in batch:
        store.append("s-1", [event])
    check(store.load("s-1"), batch)


# --- create, list, absence ----------------------------------------------------------------------


def test_create_is_lazy(store: SessionStore, tmp_path: Path) -> None:  # P4, P5, RW-6
    store.create(HEADER)
    assert list(tmp_path.iterdir()) == []
    assert store.list() == []
    for look in (store.load, store.inspect):
        with pytest.raises(SessionNotFound):
            look("s-1")
    store.append("s-1", [other(0)])
    assert [entry.session_id for entry in store.list()] == ["s-1"]


def test_an_id_is_created_once(open_store: Open) -> None:  # C25, RW-7
    store = open_store()
    store.create(HEADER)
    elsewhere = header("s-1", cwd="/elsewhere")
    for again in (HEADER, elsewhere, header("s-1")):
        with pytest.raises(SessionExists):
            store.create(again)
    store.append("s-1", events("T"))
    for again in (HEADER, elsewhere, header("s-1")):
        with pytest.raises(SessionExists):
            store.create(again)
        with pytest.raises(SessionExists):
            open_store().create(again)
    check(store.load("s-1"), events("T"))
    assert len(open_store().list()) == 1


def test_an_announcement_dies_with_its_store(open_store: Open) -> None:  # C13
    store = open_store()
    store.create(HEADER)
    store.close()
    fresh = open_store()
    with pytest.raises(SessionNotFound):
        fresh.append("s-1", events("T"))
    add(fresh, "T", header("s-1"))
    check(fresh.load("s-1"), events("T"), header=header("s-1"))


def test_of_two_announcements_the_second_first_flush_is_refused(open_store: Open) -> None:
    first, second = open_store(), open_store()
    first.create(HEADER)
    second.create(header("s-1", cwd="/elsewhere"))
    first.append("s-1", events("T"))
    first.close()
    with pytest.raises(SessionExists):
        second.append("s-1", [other(0), other(1)])
    check(second.load("s-1"), events("T"))
    second.append("s-1", [other(6)])
    check(open_store().load("s-1"), [*events("T"), other(6)])


def test_what_another_store_made_of_an_announced_id_is_found(open_store: Open) -> None:
    first, second = open_store(), open_store()
    second.create(HEADER)
    add(first, "T", header("s-1", cwd="/elsewhere"))
    first.close()
    check(second.load("s-1"), events("T"), header=header("s-1", cwd="/elsewhere"))
    second.append("s-1", [other(6)])


def test_unknown_ids_are_not_found(store: SessionStore) -> None:  # C24, RW-8
    for call in (store.load, store.inspect, store.reopen):
        with pytest.raises(SessionNotFound) as refusal:
            call("nobody")
        assert refusal.value.session_id == "nobody"
    with pytest.raises(SessionNotFound):
        store.append("nobody", [other(0)])
    add(store)
    with pytest.raises(SessionNotFound):
        store.load("nobody")


def test_list_gives_every_header(store: SessionStore) -> None:  # RW-9
    heads = [header(f"s-{number}", cwd=f"/w{number % 2}") for number in range(5)]
    for head in heads:
        add(store, "T TS", head)
    store.create(header("lazy"))
    assert entries(store) == [ListEntry(head.id, head) for head in heads]


def test_append_to_a_stored_session_does_what_load_does(open_store: Open) -> None:  # C22, RW-2
    store = open_store()
    add(store, OPEN)
    store.close()
    fresh = open_store()
    with pytest.raises(SequenceMismatch) as refusal:
        fresh.append("s-1", [other(13)])
    assert (refusal.value.expected, refusal.value.got) == (16, 13)
    fresh.append("s-1", [other(16)])
    closers = interrupted_turn_closers(events(OPEN))
    check(fresh.load("s-1"), [*events(OPEN), *closers, other(16)])


def test_reopen_in_the_middle_of_a_turn_closes_nothing(store: SessionStore) -> None:
    store.create(HEADER)
    assert store.reopen("s-1") == 0
    store.append("s-1", events(OPEN))
    assert store.reopen("s-1") == 13
    store.append("s-1", [other(13)])
    assert plain(store.inspect("s-1").events[:14]) == plain([*events(OPEN), other(13)])


def test_reopen_takes_over_a_session_in_the_middle_of_a_turn(open_store: Open) -> None:
    store = open_store()
    add(store, OPEN)
    store.close()
    fresh = open_store()
    assert fresh.reopen("s-1") == 13
    fresh.append("s-1", [other(13)])
    assert plain(fresh.inspect("s-1").events[:14]) == plain([*events(OPEN), other(13)])


def test_sessions_do_not_touch_each_other(store: SessionStore) -> None:  # RW-11
    heads = [header(name, cwd="/w") for name in ("a", "a.jsonl", "a.b", "A-", "b")]
    for head in heads:
        store.create(head)
    for seq in range(4):
        for head in heads:
            store.append(head.id, [other(seq, head.id)])
    store.append("b", [SessionEvent("turn/start", 4, 1, {"turn": 1})])
    store.load("b")
    for head in heads[:-1]:
        check(store.load(head.id), [other(seq, head.id) for seq in range(4)], header=head)
    assert len(store.load("b").events) == 6


# --- ids ----------------------------------------------------------------------------------------

HOSTILE_IDS = [
    ".",
    "..",
    "...",
    "../../etc/passwd",
    "/etc/passwd",
    "a/b",
    "a\\b",
    "C:\\x",
    "nul\x00byte",
    "\x00",
    " ",
    "a ",
    "a.",
    "a..",
    "trailing/",
    "-",
    "~",
    "~0041",
    "A",
    "~002E~002E",
    "CON",
    "con",
    "NUL.txt",
    "LPT1",
    "Case",
    "cASE",
    "stra\u00dfe",
    "STRASSE",
    "e\u0301",
    "\u00e9",
    "\ud800",
    "\udc00",
    "x\udfff",
    "\udc00\ud800",
    "\U0001f600",
    "\uffff",
    "\u2028",
    "new\nline",
    "%2e%2e",
    "_no-cwd",
    ".locks",
    "s.jsonl",
    "s.jsonl.tmp",
    "s",
    "s.lock",
    "*?<>|\"'",
    "x" * 249,
    "'; DROP TABLE events; --",
]


def test_hostile_ids_are_kept_apart(open_store: Open, tmp_path: Path) -> None:  # RW-10
    store = open_store()
    for name in HOSTILE_IDS:
        store.create(header(name, cwd="/w"))
    for name in HOSTILE_IDS:
        store.append(name, [other(0, name)])
    store.close()
    fresh = open_store()
    for name in HOSTILE_IDS:
        check(fresh.load(name), [other(0, name)], header=header(name, cwd="/w"))
        fresh.append(name, [other(1, name)])
    assert entries(fresh) == [
        ListEntry(name, header(name, cwd="/w")) for name in sorted(HOSTILE_IDS)
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["root"]


def test_halves_that_form_a_pair_are_one_id(store: SessionStore) -> None:  # RW-10, RW-12
    add(store, "T", header("x\ud83d\ude00"))
    with pytest.raises(SessionExists):
        store.create(header("x\U0001f600"))
    store.append("x\U0001f600", [other(6)])
    check(store.load("x\ud83d\ude00"), [*events("T"), other(6)], header=header("x\U0001f600"))
    assert [entry.session_id for entry in store.list()] == ["x\U0001f600"]


def test_the_empty_id_is_refused(store: SessionStore) -> None:
    with pytest.raises(InvalidSessionId):
        store.create(header(""))
    for call in (store.load, store.inspect, store.reopen):
        with pytest.raises((SessionNotFound, InvalidSessionId)):
            call("")
    with pytest.raises((SessionNotFound, InvalidSessionId)):
        store.append("", [other(0)])
    assert store.list() == []


@pytest.mark.parametrize(
    "name", ["x" * 300, "\u00e9" * 50, "x" * 250, "/" * 300], ids=lambda name: f"{len(name)}"
)
def test_a_long_id_is_stored_or_refused(store: SessionStore, name: str, tmp_path: Path) -> None:
    try:
        store.create(header(name))
    except InvalidSessionId:
        with pytest.raises(SessionNotFound):
            store.load(name)
        with pytest.raises(SessionNotFound):
            store.append(name, [other(0)])
        assert list(tmp_path.iterdir()) == []
    else:
        store.append(name, [other(0)])
        check(store.load(name), [other(0)], header=header(name))


# --- values -------------------------------------------------------------------------------------


def test_values_survive(open_store: Open) -> None:  # RW-12
    deep = nested(198)
    every = "".join(map(chr, range(0xD800))) + "".join(map(chr, range(0xE000, 0x110000, 97)))
    values = [*ODD_TEXTS, *ODD_NUMBERS, deep, every, {text: text for text in ODD_TEXTS}]
    values += [None, True, False, [], {}, [[]], "\ud800" * 3]
    batch = [SessionEvent("value", seq, 1, value) for seq, value in enumerate(values)]
    batch.append(SessionEvent("\u2028type\x00", len(batch), -0.0, 0, extra={"\ud800": -0.0}))
    store = open_store()
    store.create(HEADER)
    store.append("s-1", batch)
    store.close()
    check(open_store().load("s-1"), batch)


def test_halves_that_form_a_pair_equal_the_character(store: SessionStore) -> None:  # RW-12
    event = SessionEvent("note", 0, 1, {"a\ud83d\ude00": ["\ud83d\ude00\ud83d"]})
    store.create(HEADER)
    store.append("s-1", [event])
    [found] = store.load("s-1").events
    assert same_json(found.to_json(), event.to_json())
    assert found.data == {"a\U0001f600": [join_surrogates("\U0001f600\ud83d")]}


@pytest.mark.slow
def test_a_line_of_64_mib(open_store: Open) -> None:  # RW-12
    text = "0123456789abcdef" * (4 << 20)
    store = open_store()
    store.create(HEADER)
    store.append("s-1", [other(0, text), other(1)])
    store.close()
    found = open_store().load("s-1").events
    assert found[0].data == text
    assert found[1] == other(1)


# --- threads and closing ------------------------------------------------------------------------


def test_calls_of_several_threads_are_serialised(store: SessionStore) -> None:  # RW-17
    """Each seq is fought for by all threads, and exactly one of them gets it."""
    store.create(HEADER)
    won: list[list[int]] = [[] for _ in range(4)]
    odd: list[BaseException] = []
    start = threading.Barrier(len(won))

    def fight(mine: list[int], name: int) -> None:
        try:
            start.wait()
            for seq in range(30):
                try:
                    store.append("s-1", [other(seq, name)])
                    mine.append(seq)
                except SequenceMismatch:
                    store.inspect("s-1")
        except BaseException as error:
            odd.append(error)

    threads = [threading.Thread(target=fight, args=(mine, name)) for name, mine in enumerate(won)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert odd == []
    assert sorted(seq for mine in won for seq in mine) == list(range(30))
    owner = {seq: name for name, mine in enumerate(won) for seq in mine}
    check(store.load("s-1"), [other(seq, owner[seq]) for seq in range(30)])


def test_close_while_threads_write(store: SessionStore) -> None:
    store.create(HEADER)
    store.append("s-1", [other(0)])
    odd: list[BaseException] = []
    running = threading.Barrier(3)

    def write(name: str) -> None:
        store.create(header(name))
        running.wait()
        try:
            seq = 0
            while True:
                store.append(name, [other(seq)])
                seq += 1
        except StoreClosed:
            pass
        except BaseException as error:
            odd.append(error)

    threads = [threading.Thread(target=write, args=(name,)) for name in ("a", "b")]
    for thread in threads:
        thread.start()
    running.wait()
    store.close()
    for thread in threads:
        thread.join()
    assert odd == []


def test_after_close_every_call_is_refused(store: SessionStore) -> None:  # RW-17
    add(store)
    store.close()
    store.close()
    calls: list[Callable[[], Any]] = [
        lambda: store.create(header("s-2")),
        lambda: store.create(header("")),
        lambda: store.create(SessionHeader("s-3", math.nan)),
        lambda: store.append("s-1", [other(16)]),
        lambda: store.append("s-1", []),
        lambda: store.append("s-1", [other(16, math.nan)]),
        lambda: store.load("s-1"),
        lambda: store.inspect("s-1"),
        lambda: store.reopen("s-1"),
        store.list,
    ]
    for call in calls:
        with pytest.raises(StoreClosed):
            call()


def test_close_frees_the_lock(open_store: Open) -> None:  # RW-17
    for length in range(16, 20):
        with open_store() as store:
            if length == 16:
                add(store)
            store.append("s-1", [other(length)])
    check(open_store().load("s-1"), [*events(CLOSED), *map(other, range(16, 20))])


def test_with_closes_also_after_an_error(open_store: Open) -> None:
    store = open_store()
    store.create(HEADER)
    with pytest.raises(SequenceMismatch), store:
        store.append("s-1", [other(1)])
    with pytest.raises(StoreClosed):
        store.list()


def test_damaged_sessions_hide_none(tmp_path: Path) -> None:  # RW-9
    with JsonlStore(tmp_path) as store:
        add(store)
        place(tmp_path, b"garbage\n", "_no-cwd/bad.jsonl")
        place(tmp_path, b"", "_no-cwd/empty.jsonl")
        found = {entry.session_id: entry for entry in store.list()}
    assert found.keys() == {"s-1", "bad"}
    assert found["s-1"] == ListEntry("s-1", HEADER)
    assert found["bad"].error is not None
    assert found["bad"].error.kind == "corrupted"
