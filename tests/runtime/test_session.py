"""The live session in memory: what append takes and gives, subscribers, header, history."""

from __future__ import annotations

import datetime
import threading
from itertools import count
from typing import Any

import pytest

from torntail.runtime import Session, SessionClosed, TurnGrammarBroken, start
from torntail.session import SessionEvent, SessionHeader, TranscriptError, derive_messages
from torntail.session import vocabulary as words
from torntail.stores.contract import NotSerializable


def ticking(begin: int = 100) -> Any:
    ticks = count(begin)
    return lambda: next(ticks)


def in_a_turn(session: Session) -> Session:
    session.add(words.turn_start, turn=1)
    return session


def test_an_event_is_stamped_and_given_back() -> None:
    session = start(clock=ticking())
    first = session.append("note", {"a": 1})
    second = session.append("user/message", {"content": []}, source_event_seqs=[0])
    # The first tick went into the header.
    assert first == SessionEvent("note", 0, 101, {"a": 1})
    assert second == SessionEvent("user/message", 1, 102, {"content": []}, "append", [0])
    assert session.events() == [first, second]
    assert session.events(1) == [second]
    assert session.events(0, 1) == [first]
    assert (len(session), session.turn, session.step) == (2, 0, 0)


def test_a_builder_of_the_vocabulary_is_given_seq_and_time() -> None:
    session = start(clock=ticking())
    event = session.add(words.turn_start, turn=1)
    assert event == words.turn_start(seq=0, time=101, turn=1)
    session.add(words.step_start, turn=1, step=1)
    assert (session.turn, session.step) == (1, 1)


def test_a_builder_that_counts_by_itself_is_refused() -> None:
    session = start()
    with pytest.raises(ValueError, match="seq 7 of seq 0"):
        session.add(lambda seq, time: SessionEvent("note", 7, time, {}))
    assert len(session) == 0


@pytest.mark.parametrize(
    "value",
    [
        float("nan"),
        b"bytes",
        {1, 2},
        datetime.date(2026, 1, 1),
        {1: "a key that is no string"},
        10**5000,
    ],
    ids=["nan", "bytes", "set", "date", "key", "huge"],
)
def test_what_json_cannot_carry_is_refused_at_the_source(value: Any) -> None:
    session = start(session_id="s")
    session.append("note", {})
    with pytest.raises(NotSerializable) as refused:
        session.append("note", {"value": value})
    assert (refused.value.event_type, refused.value.seq, refused.value.session_id) == (
        "note",
        1,
        "s",
    )
    assert len(session) == 1


def test_what_only_the_strict_path_can_decide_is_taken() -> None:
    session = start()
    data = {"pair": ("a", "b"), "lone": "\ud800", "big": 2**70, "zero": -0.0}
    event = session.append("note", data)
    assert event.data == {"pair": ["a", "b"], "lone": "\ud800", "big": 2**70, "zero": -0.0}
    assert str(event.data["zero"]) == "-0.0"
    assert session.events() == [event]


def test_an_empty_type_is_refused() -> None:
    with pytest.raises(NotSerializable):
        start().append("", {})


def test_the_grammar_says_what_is_wrong() -> None:
    session = in_a_turn(start(session_id="s"))
    with pytest.raises(TurnGrammarBroken, match="expected step 1, got 2") as refused:
        session.add(words.step_start, turn=1, step=2)
    assert (refused.value.event_type, refused.value.seq) == ("step/start", 1)


def test_an_interrupted_result_needs_no_call() -> None:
    # What a hook or a repair of an agent's own writes.
    session = in_a_turn(start())
    session.add(words.step_start, turn=1, step=1)
    error: words.ToolError = {"name": "InterruptedError", "code": "interrupted"}
    at = {"turn": 1, "step": 1}
    session.add(words.tool_result, **at, call_id="c", content=[], is_error=True, error=error)
    assert len(session) == 3


def test_the_header_is_no_part_of_the_log_and_cannot_be_changed() -> None:
    header = SessionHeader("s", 5, "/home", extra={"tags": ["one"]})
    session = Session(header)
    assert header.extra is not None
    header.extra["tags"].append("two")
    found = session.header
    assert found == SessionHeader("s", 5, "/home", extra={"tags": ["one"]})
    assert found.extra is not None
    found.extra["tags"].append("three")
    assert session.header.extra == {"tags": ["one"]}
    with pytest.raises(AttributeError):
        session.header = header  # type: ignore[misc]
    assert session.events() == []


def test_a_surface_operation_stands_on_surface_types_only() -> None:
    session = start()
    with pytest.raises(TranscriptError, match="cannot stand on the surface"):
        session.append("note", {}, surface_op="append")
    with pytest.raises(TranscriptError, match="neither append nor replace"):
        session.append("user/message", {"content": []}, surface_op="prepend")
    assert len(session) == 0


# --- subscribers --------------------------------------------------------------------------------


def test_subscribers_are_told_in_order_also_of_what_they_append() -> None:
    session = start()
    told: list[tuple[str, int]] = []

    def react(event: SessionEvent) -> None:
        if event.type == "question":
            session.append("answer", {})

    session.subscribe(react)
    session.subscribe(lambda event: told.append((event.type, event.seq)))
    session.append("question", {})
    session.append("note", {})
    assert told == [("question", 0), ("answer", 1), ("note", 2)]


def test_a_subscriber_that_fails_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    session = start()
    told: list[int] = []

    def fail(event: SessionEvent) -> None:
        raise RuntimeError("not now")

    session.subscribe(fail)
    session.subscribe(lambda event: told.append(event.seq))
    session.append("note", {})
    assert (told, len(session)) == ([0], 1)
    assert [record.getMessage() for record in caplog.records] == [
        "a subscriber failed at note (seq 0)"
    ]


def test_an_interrupt_in_a_subscriber_does_not_silence_the_others() -> None:
    session = start()
    told: list[int] = []

    def interrupt(event: SessionEvent) -> None:
        if event.seq == 0:
            raise KeyboardInterrupt

    session.subscribe(interrupt)
    session.subscribe(lambda event: told.append(event.seq))
    with pytest.raises(KeyboardInterrupt):
        session.append("note", {})
    session.append("note", {})
    assert (told, len(session)) == ([1], 2)


def test_who_ends_a_subscription_is_told_no_more() -> None:
    session = start()
    told: list[int] = []
    end = session.subscribe(lambda event: told.append(event.seq))
    session.append("note", {})
    end()
    end()
    session.append("note", {})
    assert told == [0]


def test_a_subscriber_cannot_change_what_append_returns() -> None:
    session = start()
    session.subscribe(lambda event: event.data.clear())
    assert session.append("note", {"a": 1}).data == {"a": 1}
    assert session.events()[0].data == {"a": 1}


# --- threads ------------------------------------------------------------------------------------


def test_threads_append_one_after_the_other() -> None:
    session = start()
    told: list[int] = []
    session.subscribe(lambda event: told.append(event.seq))
    ready = threading.Barrier(4)

    def work(number: int) -> None:
        ready.wait()
        for index in range(200):
            session.append("note", {"thread": number, "index": index})

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    events = session.events()
    assert [event.seq for event in events] == [*range(800)]
    assert told == [*range(800)]
    for number in range(4):
        mine = [event.data["index"] for event in events if event.data["thread"] == number]
        assert mine == [*range(200)]


# --- the history --------------------------------------------------------------------------------


def test_the_history_costs_what_is_new(monkeypatch: pytest.MonkeyPatch) -> None:
    session = in_a_turn(start())
    for number in range(100):
        session.add(words.user_message, content=[words.text(str(number))])
    assert len(session.derive_messages(private=False)) == 100
    fed: list[int] = []
    feed = session._history.feed

    def noted(event: SessionEvent) -> None:
        fed.append(event.seq)
        feed(event)

    monkeypatch.setattr(session._history, "feed", noted)
    session.derive_messages(private=False)
    session.append("note", {})
    session.add(words.user_message, content=[words.text("new")])
    messages = session.derive_messages(private=False)
    assert fed == [102]
    assert messages == derive_messages(session.events())


def test_the_history_is_private_unless_asked_otherwise() -> None:
    session = in_a_turn(start())
    session.add(words.user_message, content=[words.text("Hello")])
    session.derive_messages()[0]["content"][0]["text"] = "changed"
    assert session.derive_messages(private=False)[0]["content"][0]["text"] == "Hello"


# --- without a store ----------------------------------------------------------------------------


def test_without_a_store_there_is_nothing_to_wait_for() -> None:
    with start() as session:
        in_a_turn(session)
        session.flush().wait()
        session.checkpoint().wait()
        assert (session.saved, session.crowded) == (0, False)
    with pytest.raises(SessionClosed):
        session.append("note", {})


def test_each_session_has_an_id_of_its_own() -> None:
    assert len({start().id for _ in range(10)}) == 10
