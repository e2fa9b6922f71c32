"""The event vocabulary of a session, one builder for each type of event.

Decides the shape of each type's `data` and which types carry `surfaceOp` (the five that can become
messages). The vocabulary is open: any other type is a plain `SessionEvent`, and nothing in this
project refuses a type, or data, that is not listed here. Does not decide where an event may stand
(`turns`) or what a history it makes (`transcript`).

Every builder takes `seq` and `time` first, by keyword. Optional keys that are not given are left
out, never written as null.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal, NotRequired, TypedDict

from torntail.session.events import Json, SessionEvent

__all__ = [
    "EVENT_TYPES",
    "USER",
    "ContentBlock",
    "MessageSource",
    "ReasoningBlock",
    "ReplaceRange",
    "SurfaceOp",
    "TextBlock",
    "TodoItem",
    "TokenUsage",
    "ToolCallBlock",
    "ToolError",
    "ToolResultBlock",
    "Trigger",
    "TurnEndReason",
    "assistant_chunk",
    "assistant_message",
    "compact_end",
    "compact_start",
    "compact_summary",
    "context_message",
    "hook_invoked",
    "hook_result",
    "prompt_blocked",
    "reasoning",
    "replace",
    "steering_message",
    "step_end",
    "step_start",
    "text",
    "todo_write",
    "tool_call",
    "tool_call_block",
    "tool_result",
    "tool_result_block",
    "turn_end",
    "turn_start",
    "user_message",
]

EVENT_TYPES: Final[tuple[str, ...]] = (
    "turn/start",
    "turn/end",
    "step/start",
    "step/end",
    "user/message",
    "prompt/blocked",
    "context/message",
    "steering/message",
    "assistant/chunk",
    "assistant/message",
    "tool/call",
    "tool/result",
    "todo/write",
    "compact/start",
    "compact/end",
    "compact/summary",
    "hook/invoked",
    "hook/result",
)
"""Every type that has a builder here."""

# --- parts of events ----------------------------------------------------------------------------


class TextBlock(TypedDict):
    """Words of a message."""

    type: Literal["text"]
    text: str


class ReasoningBlock(TypedDict):
    """The model's thinking, kept apart from its words."""

    type: Literal["reasoning"]
    text: str


class ToolCallBlock(TypedDict):
    """A call the model asks for; `arguments` is raw JSON text, never parsed by a store."""

    type: Literal["tool-call"]
    id: str
    name: str
    arguments: str


class ToolResultBlock(TypedDict):
    """The answer to a call."""

    type: Literal["tool-result"]
    toolCallId: str
    content: Sequence[ContentBlock]
    isError: NotRequired[bool]


ContentBlock = TextBlock | ReasoningBlock | ToolCallBlock | ToolResultBlock


class MessageSource(TypedDict):
    """Who wrote a message: the user, or the plugin named."""

    kind: Literal["user", "plugin"]
    plugin: NotRequired[str]


class Trigger(TypedDict):
    """What began a turn: a message in the queue, or an injection."""

    kind: Literal["message", "injection"]
    source: MessageSource


class TurnEndReason(TypedDict):
    """Why a turn ended; `interrupted` is only ever written by a repair (CL-4)."""

    kind: Literal[
        "completed", "aborted", "error", "disposed", "max-tokens", "rejected", "interrupted"
    ]
    reason: NotRequired[str]
    step: NotRequired[int]
    message: NotRequired[str]
    code: NotRequired[str]


class TokenUsage(TypedDict):
    """What a model call cost."""

    inputTokens: int
    outputTokens: int
    cacheReadTokens: NotRequired[int]
    cacheWriteTokens: NotRequired[int]
    reasoningTokens: NotRequired[int]


class ToolError(TypedDict):
    """Why a tool failed."""

    name: str
    code: str


class TodoItem(TypedDict):
    """One line of the agent's list of things to do."""

    content: str
    status: Literal["pending", "in_progress", "completed"]


class ReplaceRange(TypedDict):
    """The surface operation of a compaction: this event stands for the seqs of the range (LV-5)."""

    op: Literal["replace"]
    start: int
    end: int


SurfaceOp = Literal["append"] | ReplaceRange
Time = int | float

USER: Final[MessageSource] = {"kind": "user"}
"""The source of what the user typed."""


def text(words: str) -> TextBlock:
    """A block of text."""
    return {"type": "text", "text": words}


def reasoning(words: str) -> ReasoningBlock:
    """A block of reasoning."""
    return {"type": "reasoning", "text": words}


def tool_call_block(call_id: str, name: str, arguments: str = "{}") -> ToolCallBlock:
    """The block of an assistant message that asks for a call."""
    return {"type": "tool-call", "id": call_id, "name": name, "arguments": arguments}


def tool_result_block(
    call_id: str, content: Sequence[ContentBlock], *, is_error: bool = False
) -> ToolResultBlock:
    """The block of a derived message that answers a call."""
    return {
        "type": "tool-result",
        "toolCallId": call_id,
        "content": list(content),
        "isError": is_error,
    }


def replace(start: int, end: int) -> ReplaceRange:
    """The surface operation that puts an event in the place of the seqs `start` to `end`."""
    return {"op": "replace", "start": start, "end": end}


# --- turns and steps ----------------------------------------------------------------------------


def turn_start(*, seq: int, time: Time, turn: int, trigger: Trigger | None = None) -> SessionEvent:
    """A turn begins; without a trigger, by a message of the user."""
    trigger = trigger if trigger is not None else {"kind": "message", "source": USER}
    cause = {"kind": trigger["kind"], "source": {**trigger["source"]}}
    return SessionEvent("turn/start", seq, time, {"turn": turn, "trigger": cause})


def turn_end(
    *, seq: int, time: Time, turn: int, reason: TurnEndReason | None = None
) -> SessionEvent:
    """A turn ends and everything before it is committed; without a reason, completed."""
    reason = reason if reason is not None else {"kind": "completed"}
    return SessionEvent("turn/end", seq, time, {"turn": turn, "reason": {**reason}})


def step_start(*, seq: int, time: Time, turn: int, step: int) -> SessionEvent:
    """A model call with what follows from it begins."""
    return SessionEvent("step/start", seq, time, {"turn": turn, "step": step})


def step_end(*, seq: int, time: Time, turn: int, step: int) -> SessionEvent:
    """A step ends; calls it left without a result stay so."""
    return SessionEvent("step/end", seq, time, {"turn": turn, "step": step})


# --- messages -----------------------------------------------------------------------------------


def user_message(
    *,
    seq: int,
    time: Time,
    content: Sequence[ContentBlock],
    source: MessageSource = USER,
    surface_op: SurfaceOp = "append",
    source_event_seqs: Sequence[int] | None = None,
) -> SessionEvent:
    """What the user said; with a `replace` range, the summary that stands for older messages."""
    data = {"content": list(content), "source": {**source}}
    return _surface("user/message", seq, time, data, source_event_seqs, surface_op)


def prompt_blocked(
    *, seq: int, time: Time, content: Sequence[ContentBlock], source: MessageSource, reason: str
) -> SessionEvent:
    """A prompt that a hook refused; it never becomes a message."""
    data = {"content": list(content), "source": {**source}, "reason": reason}
    return SessionEvent("prompt/blocked", seq, time, data)


def context_message(
    *, seq: int, time: Time, content: Sequence[ContentBlock], source: MessageSource
) -> SessionEvent:
    """Background that a plugin adds for the model."""
    data = {"content": list(content), "source": {**source}}
    return _surface("context/message", seq, time, data)


def steering_message(
    *, seq: int, time: Time, turn: int, content: Sequence[ContentBlock], source: MessageSource
) -> SessionEvent:
    """What was said to the model in the middle of a turn."""
    data = {"turn": turn, "content": list(content), "source": {**source}}
    return _surface("steering/message", seq, time, data)


def assistant_chunk(
    *, seq: int, time: Time, turn: int, step: int, chunk: dict[str, Json]
) -> SessionEvent:
    """A piece of the stream as the model sent it: `block-start`, `text-delta`, `finish`, …"""
    return SessionEvent("assistant/chunk", seq, time, {"turn": turn, "step": step, "chunk": chunk})


def assistant_message(
    *,
    seq: int,
    time: Time,
    turn: int,
    step: int,
    content: Sequence[ContentBlock],
    usage: TokenUsage | None = None,
    source_event_seqs: Sequence[int] | None = None,
) -> SessionEvent:
    """The message that came out of the stream; `source_event_seqs` are the seqs of its chunks."""
    data = {"turn": turn, "step": step, "content": list(content), **_given(usage=usage)}
    return _surface("assistant/message", seq, time, data, source_event_seqs)


# --- tools --------------------------------------------------------------------------------------


def tool_call(
    *, seq: int, time: Time, turn: int, step: int, call_id: str, name: str, arguments: str = "{}"
) -> SessionEvent:
    """A call is handed to its tool."""
    data = {"turn": turn, "step": step, "callId": call_id, "name": name, "arguments": arguments}
    return SessionEvent("tool/call", seq, time, data)


def tool_result(
    *,
    seq: int,
    time: Time,
    turn: int,
    step: int,
    call_id: str,
    content: Sequence[ContentBlock],
    is_error: bool = False,
    error: ToolError | None = None,
    meta: Json = None,
    source_event_seqs: Sequence[int] | None = None,
) -> SessionEvent:
    """What the tool answered; `source_event_seqs` is the seq of its `tool/call`."""
    data = {
        "turn": turn,
        "step": step,
        "callId": call_id,
        "content": list(content),
        "isError": is_error,
        **_given(error=error, meta=meta),
    }
    return _surface("tool/result", seq, time, data, source_event_seqs)


def todo_write(*, seq: int, time: Time, todos: Sequence[TodoItem]) -> SessionEvent:
    """The list of things to do, as a whole."""
    return SessionEvent("todo/write", seq, time, {"todos": list(todos)})


# --- compaction ---------------------------------------------------------------------------------


def compact_start(*, seq: int, time: Time, turn: int) -> SessionEvent:
    """A compaction begins."""
    return SessionEvent("compact/start", seq, time, {"turn": turn})


def compact_end(*, seq: int, time: Time, turn: int, error: Json = None) -> SessionEvent:
    """A compaction ends."""
    return SessionEvent("compact/end", seq, time, {"turn": turn, **_given(error=error)})


def compact_summary(
    *,
    seq: int,
    time: Time,
    summary: Sequence[ContentBlock],
    shadowed_range: tuple[int, int],
    shadowed_seqs: Sequence[int],
    shadowed_token_count: int,
) -> SessionEvent:
    """What a compaction wrote and what it stands for; provenance only, never a message."""
    data = {
        "summary": list(summary),
        "shadowedRange": {"start": shadowed_range[0], "end": shadowed_range[1]},
        "shadowedSeqs": list(shadowed_seqs),
        "shadowedTokenCount": shadowed_token_count,
    }
    return SessionEvent("compact/summary", seq, time, data)


# --- hooks --------------------------------------------------------------------------------------


def hook_invoked(
    *,
    seq: int,
    time: Time,
    turn: int,
    point: str,
    dialect: str,
    handler_id: str,
    matcher: str | None = None,
) -> SessionEvent:
    """A hook is run."""
    data = {"turn": turn, "point": point, "dialect": dialect, **_given(matcher=matcher)}
    return SessionEvent("hook/invoked", seq, time, {**data, "handlerId": handler_id})


def hook_result(
    *,
    seq: int,
    time: Time,
    turn: int,
    point: str,
    handler_id: str,
    decision: str,
    duration_ms: int | float,
    exit_code: int | None = None,
    stderr_summary: str | None = None,
) -> SessionEvent:
    """What a hook decided."""
    data = {
        "turn": turn,
        "point": point,
        "handlerId": handler_id,
        "decision": decision,
        **_given(exitCode=exit_code, stderrSummary=stderr_summary),
        "durationMs": duration_ms,
    }
    return SessionEvent("hook/result", seq, time, data)


def _surface(
    kind: str,
    seq: int,
    time: Time,
    data: dict[str, Any],
    source_event_seqs: Sequence[int] | None = None,
    surface_op: SurfaceOp = "append",
) -> SessionEvent:
    sources = None if source_event_seqs is None else list(source_event_seqs)
    operation: Json = surface_op if isinstance(surface_op, str) else {**surface_op}
    return SessionEvent(kind, seq, time, data, operation, sources)


def _given(**members: Json) -> dict[str, Json]:
    """The members that have a value."""
    return {key: value for key, value in members.items() if value is not None}
