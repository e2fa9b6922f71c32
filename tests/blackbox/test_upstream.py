"""The packages of the DeepSeek Harness do what the tables of `tests/upstream_tables.py` say, and a
log of ours is one of theirs, event for event, where the eras write alike.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.blackbox.upstream_packages import package
from tests.upstream_tables import CLOSERS, HEADER, LOADS, SESSION, Row, events_of, in_short
from torntail.drive.target import Target, target_of
from torntail.judge.history import LoadedSession, Refused, Returned
from torntail.session import (
    SessionEvent,
    encode_event,
    encode_header,
    interrupted_turn_closers,
    same_json,
)
from torntail.session.dialects import DIALECTS, SHARED_TYPES

RC8 = DIALECTS["dsh-rc8"]
OURS = Path("_no-cwd", f"{SESSION}.jsonl")
THEIRS = Path("_no-cwd", SESSION, "session.jsonl")


def load(target: Target, root: Path) -> LoadedSession | Refused:
    """What a new store over `root` makes of the session."""
    store = target.open_inline(root)
    try:
        outcome = store.load(SESSION)
    finally:
        store.close()
    if isinstance(outcome, Refused):
        return outcome
    assert isinstance(outcome, Returned)
    assert outcome.session is not None
    return outcome.session


def came(target: Target, root: Path, events: list[SessionEvent]) -> str | tuple[int, str]:
    """An outcome as the table tells it; what it returns first has to be what was written."""
    loaded = load(target, root)
    if isinstance(loaded, Refused):
        return loaded.kind
    told = [
        same_json(one.to_json(), two.to_json())
        for one, two in zip(loaded.events, events, strict=False)
    ]
    kept = told.index(False) if False in told else len(told)
    return kept, " ".join(map(in_short, loaded.events[kept:]))


def put(root: Path, place: Path, row: Row, *, theirs: bool) -> list[SessionEvent]:
    events = events_of(row.log)
    header = RC8.spoken_header(HEADER) if theirs else HEADER
    written = [RC8.spoken(event) if theirs else event for event in events]
    lines = [encode_header(header), *map(encode_event, written)]
    file = root / place
    file.parent.mkdir(parents=True)
    file.write_bytes(row.change([line + b"\n" for line in lines]))
    return events


# --- the tables -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CLOSERS)
def test_our_closers_are_those_of_the_table(name: str) -> None:
    words, closers = CLOSERS[name]
    assert " ".join(map(in_short, interrupted_turn_closers(events_of(words)))) == closers


@pytest.mark.parametrize("name", LOADS)
def test_our_loads_are_those_of_the_table(name: str, tmp_path: Path) -> None:
    row = LOADS[name]
    events = put(tmp_path, OURS, row, theirs=False)
    assert came(target_of("jsonl"), tmp_path, events) == row.ours
    assert bool(row.clause) == (row.ours != row.theirs)


@pytest.mark.parametrize("base", ["dsh-jsonl", "dsh-jsonl:zstd,packed", "dsh-sqlite"])
def test_their_closers_are_those_of_the_table(base: str, tmp_path: Path) -> None:
    target = package(base)
    found: dict[str, list[SessionEvent]] = {}
    for index, (name, (words, _)) in enumerate(CLOSERS.items()):
        root = tmp_path / str(index)
        root.mkdir()
        store = target.open_inline(root)
        assert store.create(HEADER) == Returned()
        assert store.append(SESSION, events_of(words)) == Returned()
        store.close()
        loaded = load(target, root)
        assert isinstance(loaded, LoadedSession), (name, loaded)
        found[name] = list(loaded.events)
    # Event for event: their words stand for ours, or it would not be ours that is heard.
    assert found == {
        name: [*(log := events_of(words)), *interrupted_turn_closers(log)]
        for name, (words, _) in CLOSERS.items()
    }


def test_their_loads_are_those_of_the_table(tmp_path: Path) -> None:
    target = package("dsh-jsonl")
    found = {}
    for index, (name, row) in enumerate(LOADS.items()):
        root = tmp_path / str(index)
        events = put(root, THEIRS, row, theirs=True)
        found[name] = came(target, root, events)
    assert found == {name: row.theirs for name, row in LOADS.items()}


# --- interchange ----------------------------------------------------------------------------------


def shared_log() -> list[SessionEvent]:
    """A turn of every type whose shape the eras share, with tools, chunks, hooks and todos."""
    place = {"turn": 1, "step": 1}
    chunk = {"type": "text-delta", "index": 0, "text": "größer \u2028 👩"}
    hook = {"turn": 1, "point": "before", "handlerId": "h"}
    shapes: list[tuple[str, dict[str, Any]]] = [
        ("turn/start", {"turn": 1}),
        ("step/start", place),
        ("assistant/chunk", {**place, "chunk": chunk}),
        ("tool/call", {**place, "callId": "c", "name": "f", "arguments": "{}"}),
        ("todo/write", {"todos": [{"content": "write", "status": "pending"}]}),
        ("hook/invoked", {**hook, "dialect": "d"}),
        ("hook/result", {**hook, "decision": "allow", "durationMs": 0.5}),
        ("step/end", place),
        ("turn/end", {"turn": 1, "reason": {"kind": "completed"}}),
        ("turn/start", {"turn": 2}),
        ("turn/end", {"turn": 2, "reason": {"kind": "max-tokens"}}),
        ("turn/start", {"turn": 3}),
        ("step/start", {"turn": 3, "step": 1}),
    ]
    return [SessionEvent(kind, seq, 1_000 + seq, data) for seq, (kind, data) in enumerate(shapes)]


def test_a_log_of_ours_is_one_of_theirs_and_back(tmp_path: Path) -> None:
    theirs = package("dsh-jsonl")
    ours = target_of("jsonl")
    log = shared_log()
    assert {event.type for event in log} == {*SHARED_TYPES, "turn/start", "turn/end"}
    here, there, back = (tmp_path / name for name in ("here", "there", "back"))
    here.mkdir()
    store = ours.open_inline(here)
    assert store.create(HEADER) == Returned()
    assert store.append(SESSION, log) == Returned()
    store.close()

    # Their header has one field more; the events are copied byte for byte.
    _, _, records = (here / OURS).read_bytes().partition(b"\n")
    (there / THEIRS).parent.mkdir(parents=True)
    header = encode_header(RC8.spoken_header(HEADER))
    (there / THEIRS).write_bytes(header + b"\n" + records)
    closed = [*log, *interrupted_turn_closers(log)]
    loaded = load(theirs, there)
    assert isinstance(loaded, LoadedSession)
    assert (loaded.header, list(loaded.events)) == (HEADER, closed)

    # What they closed is closed for us, under the header that they wrote.
    (back / OURS).parent.mkdir(parents=True)
    content = (there / THEIRS).read_bytes()
    (back / OURS).write_bytes(content)
    returned = load(ours, back)
    assert isinstance(returned, LoadedSession)
    assert (returned.header, list(returned.events)) == (RC8.spoken_header(HEADER), closed)
    assert (back / OURS).read_bytes() == content


# --- two processes --------------------------------------------------------------------------------


def two_writers(base: str, root: Path) -> list[str]:
    """What two processes are told that append at the same place, and what a load says then."""
    one, other = package(base).open_inline(root), target_of(base).open_inline(root)
    log = events_of("TS1 U SS1 A1 SE1 TE1")
    assert one.create(HEADER) == Returned()
    assert one.append(SESSION, log[:2]) == Returned()
    # The other one does not load but for what it needs to know: nothing is open in this log.
    outcomes = [one.append(SESSION, log[2:]), other.load(SESSION)]
    more = events_of("TS1 U SS1 A1 SE1 TE1 TS2 TE2")[6:]
    outcomes += [one.append(SESSION, more), other.append(SESSION, more), other.load(SESSION)]
    one.close()
    other.close()
    return [told(outcome) for outcome in outcomes]


def reader_of_a_live_log(base: str, root: Path) -> list[str]:
    """What is said when a process loads what another one is writing, which then goes on."""
    one, other = package(base).open_inline(root), target_of(base).open_inline(root)
    log = events_of("TS1 U SS1 A1 SE1 TE1")
    assert one.create(HEADER) == Returned()
    assert one.append(SESSION, log[:3]) == Returned()
    outcomes = [other.load(SESSION), one.append(SESSION, log[3:])]
    other.close()
    one.close()
    last = target_of(base).open_inline(root)
    outcomes.append(last.load(SESSION))
    last.close()
    return [told(outcome) for outcome in outcomes]


def told(outcome: Any) -> str:
    return outcome.kind if isinstance(outcome, Refused) else type(outcome).__name__.lower()


def test_two_writers_of_a_file_are_both_told_that_they_wrote(tmp_path: Path) -> None:
    assert two_writers("dsh-jsonl", tmp_path) == ["returned"] * 4 + ["corrupted"]


def test_two_writers_of_a_database_are_told_apart(tmp_path: Path) -> None:
    expected = ["returned", "returned", "returned", "conflict", "returned"]
    assert two_writers("dsh-sqlite", tmp_path) == expected


def test_a_load_under_a_live_writer_leaves_a_file_that_cannot_be_loaded(tmp_path: Path) -> None:
    assert reader_of_a_live_log("dsh-jsonl", tmp_path) == ["returned", "returned", "corrupted"]


def test_a_load_under_a_live_writer_leaves_the_database_whole(tmp_path: Path) -> None:
    assert reader_of_a_live_log("dsh-sqlite", tmp_path) == ["returned", "conflict", "returned"]
