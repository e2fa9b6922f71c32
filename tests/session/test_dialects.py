from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torntail.explore.strategies import any_sequences, lawful_sequences
from torntail.session import (
    SessionEvent,
    SessionHeader,
    interrupted_turn_closers,
    same_json,
)
from torntail.session.dialects import DIALECTS, RC8_TYPES, SHARED_TYPES
from torntail.session.events import FORMAT_VERSION

RC8 = DIALECTS["dsh-rc8"]
RC1 = DIALECTS["dsh-rc1"]
ERA_R = pytest.mark.parametrize("dialect", [RC8, RC1], ids=["rc8", "rc1"])

USER = {"kind": "user"}
TEXT = [{"type": "text", "text": "hello"}]
MODEL = {"kind": "model", "provider": "torntail", "model": "torntail"}


def event(kind: str, seq: int, data: Any, **more: Any) -> SessionEvent:
    return SessionEvent(kind, seq, 7, data, **more)


# Ours, and what era R writes for it: the rows of the types whose shape is another one there.
SHAPES: dict[str, tuple[SessionEvent, dict[str, Any]]] = {
    "turn/start loses its trigger": (
        event("turn/start", 0, {"turn": 1, "trigger": {"kind": "message", "source": USER}}),
        {"turn": 1, "torntail": {"trigger": {"kind": "message", "source": USER}}},
    ),
    "the data of a user message is the message": (
        event("user/message", 1, {"content": TEXT, "source": USER}, surface_op="append"),
        {"id": "m-1", "role": "user", "content": TEXT, "source": USER},
    ),
    "an assistant message has an identity and a source": (
        event("assistant/message", 2, {"turn": 1, "step": 1, "content": TEXT}, surface_op="append"),
        {
            "turn": 1,
            "step": 1,
            "message": {"id": "m-2", "role": "assistant", "content": TEXT, "source": MODEL},
        },
    ),
    "a tool result is a message with one block": (
        event(
            "tool/result",
            3,
            {"turn": 1, "step": 1, "callId": "c", "content": TEXT, "isError": False, "meta": [1]},
            surface_op="append",
            source_event_seqs=[2],
        ),
        {
            "turn": 1,
            "step": 1,
            "meta": [1],
            "message": {
                "id": "m-3",
                "role": "user",
                "source": {"kind": "tool", "callId": "c"},
                "content": [
                    {"type": "tool-result", "toolCallId": "c", "content": TEXT, "isError": False}
                ],
            },
        },
    ),
    "context messages are user messages": (
        event("context/message", 4, {"content": TEXT, "source": USER}, surface_op="append"),
        {
            "id": "m-4",
            "role": "user",
            "content": TEXT,
            "source": USER,
            "torntail": {"type": "context/message"},
        },
    ),
    "an end without a word for it is an aborted one": (
        event("turn/end", 5, {"turn": 1, "reason": {"kind": "rejected", "reason": "no"}}),
        {
            "turn": 1,
            "reason": {
                "kind": "aborted",
                "reason": {
                    "kind": "user",
                    "torntail": {"reason": {"kind": "rejected", "reason": "no"}},
                },
            },
        },
    ),
}


@ERA_R
@pytest.mark.parametrize("name", SHAPES)
def test_a_shape_of_era_r_stands_for_ours(dialect: Any, name: str) -> None:
    ours, data = SHAPES[name]
    spoken = dialect.spoken(ours)
    assert spoken.data == data
    assert spoken.type in RC8_TYPES
    assert dialect.heard(spoken) == ours


@ERA_R
@pytest.mark.parametrize("name", SHAPES)
def test_what_was_changed_is_not_taken_for_what_was_sent(dialect: Any, name: str) -> None:
    ours, _ = SHAPES[name]
    spoken = dialect.spoken(ours)
    changed = event(spoken.type, spoken.seq, {**spoken.data, "turn": 9}, surface_op="append")
    assert dialect.heard(changed) != ours


def test_types_that_rc8_does_not_know_are_marked() -> None:
    ours = event("plugin/note", 0, {"a": 1})
    assert RC8.spoken(ours).to_json() == {**ours.to_json(), "ignorable": True}
    assert RC1.spoken(ours) == ours
    # A store that loses the mark has lost something: the session could not be read any more.
    assert RC8.heard(ours) == ours
    assert RC8.heard(RC8.spoken(ours)) == ours


def test_the_types_both_eras_share_are_written_alike() -> None:
    assert set(SHARED_TYPES) <= RC8_TYPES
    assert len(RC8_TYPES) == 48
    for kind in SHARED_TYPES:
        ours = event(kind, 0, {"turn": 1, "step": 1, "callId": "c", "name": "f", "arguments": "{}"})
        assert RC8.spoken(ours) == RC1.spoken(ours) == ours
    for reason in ("completed", "max-tokens", "interrupted"):
        ours = event("turn/end", 0, {"turn": 1, "reason": {"kind": reason}})
        assert RC8.spoken(ours) == RC1.spoken(ours) == ours


def test_the_earlier_era_is_written_as_we_write() -> None:
    for name in ("torntail", "dsh-s"):
        for ours, _ in SHAPES.values():
            assert DIALECTS[name].spoken(ours) is ours
            assert DIALECTS[name].heard(ours) is ours


ODD = [
    event("turn/end", 0, {"reason": {"kind": "completed"}}, surface_op="append"),
    event("turn/end", 0, {"turn": 1, "reason": {"kind": "completed"}}, source_event_seqs=[0]),
    event("turn/start", 0, {"turn": 1, "trigger": None}, surface_op={"op": "replace"}),
    event("steering/message", 0, {"turn": 1}, surface_op="append"),
    event("user/message", 0, {"id": "u", "content": [], "source": {}}, surface_op="append"),
    event("tool/result", 0, {"callId": "", "content": [], "isError": True}),
    event("assistant/message", 0, {"message": {}, "content": []}),
    event("note", 0, {"torntail": {"surfaceOp": "append"}}),
    event("note", 0, None, surface_op="append", extra={"ignorable": 1}),
]


@ERA_R
@pytest.mark.parametrize("ours", ODD, ids=range(len(ODD)))
def test_odd_events_come_back_as_they_were(dialect: Any, ours: SessionEvent) -> None:
    assert dialect.heard(dialect.spoken(ours)) == ours


@ERA_R
@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_nothing_is_lost_on_the_way(dialect: Any, data: st.DataObject) -> None:
    sequence = st.one_of(any_sequences(surface=True), lawful_sequences())
    for ours in data.draw(sequence):
        again = dialect.heard(dialect.spoken(ours))
        assert same_json(again.to_json(), ours.to_json())


@ERA_R
@settings(max_examples=100, deadline=None)
@given(events=lawful_sequences())
def test_closers_in_their_words_are_ours(dialect: Any, events: list[SessionEvent]) -> None:
    for closer in interrupted_turn_closers(events):
        spoken = dialect.spoken(closer)
        if closer.type == "tool/result":
            seen = closer.source_event_seqs is not None
            code = "TOOL_OUTCOME_UNKNOWN" if seen else "TOOL_NOT_STARTED"
            name = "ToolOutcomeUnknownError" if seen else "ToolNotStartedError"
            call = closer.data["callId"]
            assert spoken.data["error"] == {"name": name, "code": code}
            assert spoken.data["message"]["id"] == f"interrupted-tool-result-{call}-{closer.seq}"
        assert dialect.heard(spoken) == closer


def test_a_closer_with_the_wrong_code_is_not_ours() -> None:
    data = {"turn": 1, "step": 1, "callId": "c", "isError": True}
    data["content"] = [
        {"type": "text", "text": "Tool call interrupted by a crash; no result was recorded."}
    ]
    data["error"] = {"name": "InterruptedError", "code": "interrupted"}
    ours = event("tool/result", 9, data, surface_op="append", source_event_seqs=[3])
    spoken = RC8.spoken(ours)
    without = event("tool/result", 9, spoken.data, surface_op="append")
    assert RC8.heard(without) != event("tool/result", 9, data, surface_op="append")


@ERA_R
def test_headers_of_era_r_have_a_depth(dialect: Any) -> None:
    ours = SessionHeader("a", 1, "/w", "parent", 3, FORMAT_VERSION, {"k": 1})
    spoken = dialect.spoken_header(ours)
    assert spoken.to_json() == {**ours.to_json(), "delegationDepth": 0}
    assert dialect.heard_header(spoken) == ours
    deeper = SessionHeader("a", 1, extra={"delegationDepth": 1})
    assert dialect.heard_header(deeper) == deeper
