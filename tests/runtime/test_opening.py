"""Resume and fork: what the suite for live layers does not ask, over each reference store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from torntail.explore.live_store import TroubledStore
from torntail.runtime import LiveError, NoStore, SessionRunning, fork, resume, start
from torntail.session import SessionEvent, SessionHeader, TranscriptError, encode_event
from torntail.session import vocabulary as words
from torntail.stores.contract import (
    NeverMaterialised,
    SessionCorrupted,
    SessionExists,
    SessionNotFound,
    WriterConflict,
)
from torntail.stores.jsonl import JsonlStore
from torntail.stores.memory import MemoryStore
from torntail.stores.sqlite import SqliteStore

STORES: dict[str, Callable[[Path], Any]] = {
    "memory": lambda root: MemoryStore(),
    "jsonl": JsonlStore,
    "sqlite": lambda root: SqliteStore(root / "sessions.db"),
}


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    with STORES[request.param](tmp_path) as store:
        yield store


def interrupted(store: Any, session_id: str = "s") -> None:
    """A session closed in the middle of a step."""
    with start(store, session_id, cwd="/home/agent", clock=lambda: 5) as session:
        session.add(words.turn_start, turn=1)
        session.add(words.user_message, content=[words.text("Hello")])
        session.add(words.step_start, turn=1, step=1)


def test_resume_says_what_it_mended(store: Any) -> None:
    interrupted(store)
    session = resume(store, "s").wait()
    assert session.header == SessionHeader("s", 5, "/home/agent")
    assert session.repair is not None
    assert [event.type for event in session.repair.closers] == ["step/end", "turn/end"]
    assert session.events(3) == list(session.repair.closers)
    assert (session.saved, len(session), session.turn) == (5, 5, 1)
    session.close().wait()
    again = resume(store, "s").wait()
    assert again.repair is not None
    assert again.repair.empty
    again.close().wait()


def test_resume_says_what_was_torn(tmp_path: Path) -> None:
    with JsonlStore(tmp_path) as store:
        interrupted(store)
    (log,) = tmp_path.glob("*/s.jsonl")
    size = log.stat().st_size
    with log.open("ab") as file:
        file.write(b'{"type":"user/mess')
    with JsonlStore(tmp_path) as store:
        session = resume(store, "s").wait()
        assert session.repair is not None
        assert (session.repair.torn_from_byte, session.repair.torn_bytes) == (size, 18)
        session.close().wait()


def test_what_was_stored_between_load_and_lock_is_loaded(tmp_path: Path) -> None:
    class Late(JsonlStore):
        """Another process ends its work between the two."""

        def reopen(self, session_id: str) -> int:
            with JsonlStore(tmp_path) as other:
                other.load(session_id)
                other.append(session_id, [SessionEvent("note", 5, 5, "late")])
            return super().reopen(session_id)

    with JsonlStore(tmp_path) as store:
        interrupted(store)
        store.load("s")
    with Late(tmp_path) as store:
        session = resume(store, "s").wait()
        assert (len(session), session.events(-1)[0].data) == (6, "late")
        session.append("note", "mine")
        session.close().wait()
        assert len(store.load("s").events) == 7


def test_a_session_that_was_not_resumed_has_no_repair() -> None:
    assert start().repair is None


def test_resume_without_a_store_is_refused_at_once() -> None:
    with pytest.raises(NoStore, match="cannot resume session 's' without a store"):
        resume(None, "s")
    with pytest.raises(NoStore, match="cannot fork session 's' without a store"):
        fork(None, "s")


def test_what_is_not_there_is_not_resumed(store: Any) -> None:
    for _attempt in range(2):
        # And the id is free again each time.
        with pytest.raises(SessionNotFound):
            resume(store, "s").wait()
    with pytest.raises(SessionNotFound):
        fork(store, "s", new_id="child").wait()
    start(store, "child").close().wait()


def test_two_resumes_at_once_get_one_session(store: Any) -> None:
    interrupted(store)
    first = resume(store, "s")
    with pytest.raises(SessionRunning):
        resume(store, "s")
    first.wait().close().wait()


@pytest.mark.parametrize("kind", ["jsonl", "sqlite"])
def test_a_session_that_another_store_object_runs_is_not_resumed(kind: str, tmp_path: Path) -> None:
    with STORES[kind](tmp_path) as one, STORES[kind](tmp_path) as other:
        session = start(one, "s")
        session.add(words.turn_start, turn=1)
        session.flush().wait()
        with pytest.raises(WriterConflict):
            resume(other, "s").wait()
        # Its turn was not closed under its feet.
        session.add(words.turn_end, turn=1)
        session.close().wait()
        assert [event.type for event in one.inspect("s").events] == ["turn/start", "turn/end"]


def test_damage_is_told_and_nothing_is_changed(tmp_path: Path) -> None:
    with JsonlStore(tmp_path) as store:
        with start(store, "s") as session:
            session.add(words.turn_start, turn=1)
            session.add(words.turn_end, turn=1)
        with start(store, "empty") as session:
            session.append("note", {})
    (log,) = tmp_path.glob("*/s.jsonl")
    damaged = log.read_bytes().replace(b"turn/start", b'turn"start')
    log.write_bytes(damaged)
    (empty,) = tmp_path.glob("*/empty.jsonl")
    empty.write_bytes(b"")
    with JsonlStore(tmp_path) as store:
        with pytest.raises(SessionCorrupted):
            resume(store, "s").wait()
        with pytest.raises(SessionCorrupted):
            fork(store, "s").wait()
        with pytest.raises(NeverMaterialised):
            resume(store, "empty").wait()
    assert log.read_bytes() == damaged


def test_a_load_that_is_not_durable_is_not_run_on() -> None:
    class ReadOnly:
        """A store that says that it could not write its repair."""

        def __init__(self, inner: MemoryStore) -> None:
            self.append = inner.append
            self.load = inner.inspect

    inner = MemoryStore()
    interrupted(inner)
    store = ReadOnly(inner)
    for _attempt in range(2):
        with pytest.raises(LiveError, match="cannot be written to: inspect never writes"):
            resume(store, "s").wait()


def test_a_fork_copies_bytes_and_shares_nothing(store: Any) -> None:
    interrupted(store)
    child = fork(store, "s", at=2, new_id="child", clock=lambda: 9).wait()
    assert child.header == SessionHeader("child", 9, "/home/agent", "s", 2)
    source = store.inspect("s").events
    stored = store.inspect("child")
    assert [encode_event(one) for one in stored.events[:2]] == [
        encode_event(one) for one in source[:2]
    ]
    assert [event.type for event in stored.events[2:]] == ["turn/end"]
    assert stored.header == child.header
    child.close().wait()
    # Numbers go on in a fork that is resumed, and the boundary is kept.
    again = resume(store, "child").wait()
    assert again.header.seed_length == 2
    again.add(words.turn_start, turn=2)
    again.close().wait()


@pytest.mark.parametrize("at", [0, 4, -1])
def test_a_fork_outside_its_source_is_refused(at: int, store: Any) -> None:
    interrupted(store)
    with pytest.raises(ValueError, match=f"at is {at}: session 's' has 1 to 3"):
        fork(store, "s", at=at, new_id="child").wait()
    with pytest.raises(SessionNotFound):
        store.load("child")


def test_a_fork_takes_no_id_that_is_taken(store: Any) -> None:
    interrupted(store)
    interrupted(store, "t")
    with pytest.raises(SessionExists):
        fork(store, "s", new_id="t").wait()
    session = resume(store, "s").wait()
    with pytest.raises(SessionRunning):
        fork(store, "s", new_id="s")
    session.close().wait()


def test_a_fork_of_a_fork_names_its_own_parent(store: Any) -> None:
    interrupted(store)
    fork(store, "s", new_id="child").wait().close().wait()
    grandchild = fork(store, "child", at=4, new_id="grandchild").wait()
    header = grandchild.header
    assert (header.parent_session, header.seed_length) == ("child", 4)
    grandchild.close().wait()


def test_a_fork_whose_append_failed_leaves_its_id_free() -> None:
    store = TroubledStore()
    with start(store, "s") as session:
        session.append("note", {})
    store.troubles.append("none stored")
    with pytest.raises(Exception, match="the disk says no"):
        fork(store, "s", new_id="child").wait()
    start(store, "child").close().wait()


def test_a_header_holds_what_it_was_given() -> None:
    store = MemoryStore()
    with start(store, "s", cwd="/home", extra={"origin": "test"}, clock=lambda: 5) as session:
        session.append("note", {})
    header = SessionHeader("s", 5, "/home", extra={"origin": "test"})
    assert store.load("s").header == header


@pytest.mark.parametrize("session_id", ["", "\ud800"])
def test_an_id_is_taken_as_it_is_or_refused(session_id: str) -> None:
    store = MemoryStore()
    if not session_id:
        with pytest.raises(ValueError, match="id is not a non-empty string"):
            start(store, session_id)
        return
    with start(store, session_id) as session:
        session.append("note", {})
    with resume(store, session_id).wait() as session:
        assert (session.id, len(session)) == (session_id, 1)


def test_a_stored_history_that_cannot_be_derived_says_so_each_time() -> None:
    store = TroubledStore()
    content = {"content": [words.text("Hello")]}
    events = [
        SessionEvent("user/message", 0, 5, content, "append"),
        SessionEvent("user/message", 1, 5, content, {"op": "replace", "start": 7, "end": 7}),
    ]
    store.put(SessionHeader("s", 5), events)
    with resume(store, "s").wait() as session:
        for _attempt in range(2):
            with pytest.raises(TranscriptError, match="seq 1: replaces a range not on"):
                session.derive_messages()
        assert len(session._history.messages()) == 1


def test_a_fork_stores_its_seed_once() -> None:
    store = TroubledStore()
    with start(store, "s") as session:
        session.append("note", {})
    child = fork(store, "s", new_id="child").wait()
    child.flush().wait()
    child.close().wait()
    assert store.calls.count(("append", "child")) == 1
    assert store.calls.count(("create", "child")) == 1
