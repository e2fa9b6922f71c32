"""The builders: every type, the shapes as the original writes them, optional keys left out."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from torntail.session import SessionEvent, copy_event, same_json
from torntail.session import vocabulary as words
from torntail.session.transcript import SURFACE_TYPES

TEXT = [words.text("x")]
PLUGIN: words.MessageSource = {"kind": "plugin", "plugin": "compact"}
USAGE: words.TokenUsage = {"inputTokens": 1, "outputTokens": 2}
CHUNK = {"type": "finish", "reason": "stop"}

CALLS: dict[str, tuple[Any, dict[str, Any], dict[str, Any]]] = {
    "turn/start": (
        words.turn_start,
        {"turn": 1},
        {"turn": 1, "trigger": {"kind": "message", "source": {"kind": "user"}}},
    ),
    "turn/end": (words.turn_end, {"turn": 1}, {"turn": 1, "reason": {"kind": "completed"}}),
    "step/start": (words.step_start, {"turn": 1, "step": 2}, {"turn": 1, "step": 2}),
    "step/end": (words.step_end, {"turn": 1, "step": 2}, {"turn": 1, "step": 2}),
    "user/message": (
        words.user_message,
        {"content": TEXT},
        {"content": TEXT, "source": {"kind": "user"}},
    ),
    "prompt/blocked": (
        words.prompt_blocked,
        {"content": TEXT, "source": PLUGIN, "reason": "no"},
        {"content": TEXT, "source": PLUGIN, "reason": "no"},
    ),
    "context/message": (
        words.context_message,
        {"content": TEXT, "source": PLUGIN},
        {"content": TEXT, "source": PLUGIN},
    ),
    "steering/message": (
        words.steering_message,
        {"turn": 1, "content": TEXT, "source": PLUGIN},
        {"turn": 1, "content": TEXT, "source": PLUGIN},
    ),
    "assistant/chunk": (
        words.assistant_chunk,
        {"turn": 1, "step": 2, "chunk": CHUNK},
        {"turn": 1, "step": 2, "chunk": CHUNK},
    ),
    "assistant/message": (
        words.assistant_message,
        {"turn": 1, "step": 2, "content": TEXT, "usage": USAGE},
        {"turn": 1, "step": 2, "content": TEXT, "usage": USAGE},
    ),
    "tool/call": (
        words.tool_call,
        {"turn": 1, "step": 2, "call_id": "c", "name": "f"},
        {"turn": 1, "step": 2, "callId": "c", "name": "f", "arguments": "{}"},
    ),
    "tool/result": (
        words.tool_result,
        {"turn": 1, "step": 2, "call_id": "c", "content": TEXT},
        {"turn": 1, "step": 2, "callId": "c", "content": TEXT, "isError": False},
    ),
    "todo/write": (
        words.todo_write,
        {"todos": [{"content": "x", "status": "pending"}]},
        {"todos": [{"content": "x", "status": "pending"}]},
    ),
    "compact/start": (words.compact_start, {"turn": 1}, {"turn": 1}),
    "compact/end": (words.compact_end, {"turn": 1}, {"turn": 1}),
    "compact/summary": (
        words.compact_summary,
        {
            "summary": TEXT,
            "shadowed_range": (1, 3),
            "shadowed_seqs": [1, 3],
            "shadowed_token_count": 9,
        },
        {
            "summary": TEXT,
            "shadowedRange": {"start": 1, "end": 3},
            "shadowedSeqs": [1, 3],
            "shadowedTokenCount": 9,
        },
    ),
    "hook/invoked": (
        words.hook_invoked,
        {"turn": 1, "point": "p", "dialect": "d", "handler_id": "h"},
        {"turn": 1, "point": "p", "dialect": "d", "handlerId": "h"},
    ),
    "hook/result": (
        words.hook_result,
        {"turn": 1, "point": "p", "handler_id": "h", "decision": "allow", "duration_ms": 3},
        {"turn": 1, "point": "p", "handlerId": "h", "decision": "allow", "durationMs": 3},
    ),
}


def test_every_type_has_a_case() -> None:
    assert tuple(CALLS) == words.EVENT_TYPES


@pytest.mark.parametrize("kind", words.EVENT_TYPES)
def test_builder(kind: str) -> None:
    builder, members, data = CALLS[kind]
    event = builder(seq=3, time=4, **members)
    assert (event.type, event.seq, event.time) == (kind, 3, 4)
    assert event.data == data
    assert event.surface_op == ("append" if kind in SURFACE_TYPES else None)
    assert same_json(copy_event(event).to_json(), event.to_json())
    parameters = list(inspect.signature(builder).parameters.values())
    assert [parameter.name for parameter in parameters[:2]] == ["seq", "time"]
    assert all(parameter.kind is parameter.KEYWORD_ONLY for parameter in parameters)


def test_optional_members_and_replace() -> None:
    event = words.user_message(
        seq=9,
        time=0,
        content=TEXT,
        source=PLUGIN,
        surface_op=words.replace(1, 5),
        source_event_seqs=(1, 5),
    )
    assert event.surface_op == {"op": "replace", "start": 1, "end": 5}
    assert event.source_event_seqs == [1, 5]
    failed = words.tool_result(
        seq=0,
        time=0,
        turn=1,
        step=1,
        call_id="c",
        content=TEXT,
        is_error=True,
        error={"name": "E", "code": "e"},
        meta={"took": 1},
    )
    assert failed.data["error"] == {"name": "E", "code": "e"}
    assert failed.data["meta"] == {"took": 1}


def test_builders_do_not_share_the_constant_source() -> None:
    first = words.user_message(seq=0, time=0, content=TEXT)
    first.data["source"]["kind"] = "changed"
    assert words.USER == {"kind": "user"}
    started = words.turn_start(seq=0, time=0, turn=1)
    started.data["trigger"]["source"]["kind"] = "changed"
    assert words.USER == {"kind": "user"}


def test_any_other_type_is_a_plain_event() -> None:
    event = SessionEvent("ui/status", 0, 1, {"any": ["thing"]})
    assert copy_event(event) == event
