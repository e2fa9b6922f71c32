"""Dialects: the shapes in which other programs write the events of this design, as data.

Decides how an event and a header of ours read in a dialect (`spoken`), and back (`heard`). What a
dialect has no place for is carried in a member `torntail` of the event's data, so that nothing is
lost on the way. The closers of a dialect are ours in other words: which calls they answer, their
order, seq, time and cited call are compared, not their text. An event that is not as `spoken` would
have it is heard as it stands, and so differs from what was sent; one of ours that happens to have
the shape of the dialect already is heard as what that stands for. Does not decide what a program's
errors are called: its driver does that.

The published packages of the DeepSeek Harness speak `dsh-rc8` (0.1.0-rc.8) and `dsh-rc1`
(0.0.1-rc.1); `dsh-s` is the earlier design of theirs that this project's own shapes are those of.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from torntail.session.comparing import same_json
from torntail.session.events import Json, SessionEvent, SessionHeader
from torntail.session.turns import INTERRUPTED_CALL_TEXT

__all__ = ["DIALECTS", "RC8_TYPES", "SHARED_TYPES", "TORNTAIL", "Dialect"]

_CARRIED: Final = "torntail"
_MESSAGES: Final = frozenset({"user/message", "context/message", "steering/message"})
_SURFACE: Final = frozenset({"user/message", "assistant/message", "tool/result"})
_PLAIN_REASONS: Final = ("completed", "max-tokens", "interrupted")

SHARED_TYPES: Final = (
    "step/start",
    "step/end",
    "assistant/chunk",
    "tool/call",
    "todo/write",
    "hook/invoked",
    "hook/result",
)
"""The types whose shape is the same in both eras, besides a `turn/end` that says no more than that
the turn completed, ran out of tokens or was interrupted."""

RC8_TYPES: Final = frozenset(
    {
        "agent-preset/selected",
        "agent/inbox/spliced",
        "approval/asked",
        "approval/decided",
        "approval/policy",
        "assistant/chunk",
        "assistant/message",
        "command/done",
        "command/run",
        "compaction/end",
        "compaction/prune",
        "compaction/start",
        "compaction/summary",
        "feedback/record",
        "goal/change",
        "hook/invoked",
        "hook/result",
        "llm/retry",
        "llm/retry-started",
        "permission/preset",
        "plan/mode",
        "request/context",
        "request/header",
        "sandbox/mode",
        "schedule/change",
        "session/end-seed",
        "session/title",
        "session/title-llm-request",
        "step/end",
        "step/start",
        "subagent/descriptor",
        "team/member",
        "team/message/delivered",
        "team/message/queued",
        "team/task",
        "todo/write",
        "tool-workflow/agent-end",
        "tool-workflow/agent-start",
        "tool-workflow/run-end",
        "tool-workflow/run-start",
        "tool/call",
        "tool/code-dispatch",
        "tool/code-dispatch-start",
        "tool/result",
        "turn/end",
        "turn/start",
        "user/message",
        "web/deepseek-search-llm-request",
    }
)
"""The types that 0.1.0-rc.8 knows; it takes another one only where it is marked as ignorable."""


class _Interrupted(msgspec.Struct, frozen=True):
    """How a closer says that a call was not answered."""

    name: str
    code: str
    text: str


_OURS: Final = _Interrupted("InterruptedError", "interrupted", INTERRUPTED_CALL_TEXT)
_NOT_STARTED: Final = _Interrupted(
    "ToolNotStartedError",
    "TOOL_NOT_STARTED",
    "The tool call was interrupted before the Harness recorded it as started. Retry it if it is "
    "still needed.",
)
_OUTCOME_UNKNOWN: Final = _Interrupted(
    "ToolOutcomeUnknownError",
    "TOOL_OUTCOME_UNKNOWN",
    "The tool call was interrupted after it was recorded, but no result was durably recorded. Its "
    "outcome is unknown. Decide whether to retry from the tool semantics: retry only if the "
    "operation is read-only or idempotent; if it may have side effects, first verify external "
    "state or ask the user. Do not retry blindly.",
)


class Dialect(msgspec.Struct, frozen=True):
    """A vocabulary of events.

    `wraps`: messages have an identity and a wrapper of their own, as in era R; else all shapes are
    ours. `known`: the types that a reader knows, any other being marked `ignorable`; None where
    there is no such mark.
    """

    name: str
    wraps: bool = False
    known: frozenset[str] | None = None

    def spoken(self, event: SessionEvent) -> SessionEvent:
        """An event of ours as it is written in this dialect."""
        return _spoken(event, self.known) if self.wraps else event

    def heard(self, event: SessionEvent) -> SessionEvent:
        """The event of ours that one of this dialect stands for; itself if it stands for none."""
        if not self.wraps:
            return event
        sent = event.to_json()
        for ours in (_unwrapped(event), _unmarked(event)):
            if same_json(self.spoken(ours).to_json(), sent, i_json=True):
                return ours
        return event

    def spoken_header(self, header: SessionHeader) -> SessionHeader:
        """A header of ours as it is written in this dialect."""
        if not self.wraps:
            return header
        extra = {"delegationDepth": 0, **(header.extra or {})}
        return msgspec.structs.replace(header, extra=extra)

    def heard_header(self, header: SessionHeader) -> SessionHeader:
        """The header of ours that one of this dialect stands for."""
        if not self.wraps or (header.extra or {}).get("delegationDepth") != 0:
            return header
        extra = {key: one for key, one in (header.extra or {}).items() if key != "delegationDepth"}
        return msgspec.structs.replace(header, extra=extra or None)


TORNTAIL: Final = Dialect("torntail")

DIALECTS: Final[Mapping[str, Dialect]] = {
    dialect.name: dialect
    for dialect in (
        TORNTAIL,
        Dialect("dsh-s"),
        Dialect("dsh-rc1", wraps=True),
        Dialect("dsh-rc8", wraps=True, known=RC8_TYPES),
    )
}


# --- era R: speaking ------------------------------------------------------------------------------


def _spoken(event: SessionEvent, known: frozenset[str] | None) -> SessionEvent:
    kind, data = event.type, event.data
    surface, sources = event.surface_op, event.source_event_seqs
    extra = event.extra
    carried: dict[str, Json] = {}
    if isinstance(data, dict):
        if _CARRIED in data:
            carried["own"] = data[_CARRIED]
            data = {key: value for key, value in data.items() if key != _CARRIED}
        if kind in _MESSAGES and surface is not None and _is_message(data):
            if kind != "user/message":
                carried["type"] = kind
            kind, data = "user/message", {"id": f"m-{event.seq}", "role": "user", **data}
        elif kind == "assistant/message" and _is_answer(data):
            data = _assistant_message(data, event.seq)
        elif kind == "tool/result" and _is_result(data):
            data = _tool_result(data, event.seq, sources)
        elif kind == "turn/end" and "turn" in data and not _is_plain_end(data):
            rest = {key: value for key, value in data.items() if key != "turn"}
            reason = {"kind": "aborted", "reason": {"kind": "user", _CARRIED: rest}}
            data = {"turn": data["turn"], "reason": reason}
        elif kind == "turn/start" and "trigger" in data:
            carried["trigger"] = data["trigger"]
            data = {key: value for key, value in data.items() if key != "trigger"}
        elif kind == "steering/message":
            # Under this name rc.8 reads a message of an older version of its own.
            carried["type"], kind = kind, "torntail/steering"
        if kind not in _SURFACE:
            if surface is not None:
                carried["surfaceOp"], surface = surface, None
            if sources is not None:
                carried["sourceEventSeqs"], sources = sources, None
        if carried:
            data = {**data, _CARRIED: carried}
    if known is not None and kind not in known and kind:
        extra = {"ignorable": True, **(extra or {})}
    return SessionEvent(kind, event.seq, event.time, data, surface, sources, extra)


def _is_message(data: dict[str, Json]) -> bool:
    return (
        isinstance(data.get("content"), list)
        and isinstance(data.get("source"), dict)
        and not data.keys() & {"id", "role", "message"}
    )


def _is_answer(data: dict[str, Json]) -> bool:
    return isinstance(data.get("content"), list) and "message" not in data


def _is_result(data: dict[str, Json]) -> bool:
    call = data.get("callId")
    return (
        isinstance(call, str)
        and call != ""
        and isinstance(data.get("content"), list)
        and isinstance(data.get("isError"), bool)
        and "message" not in data
    )


def _is_plain_end(data: dict[str, Json]) -> bool:
    return data.keys() == {"turn", "reason"} and any(
        data["reason"] == {"kind": kind} for kind in _PLAIN_REASONS
    )


def _assistant_message(data: dict[str, Json], seq: int) -> dict[str, Json]:
    message = {
        "id": f"m-{seq}",
        "role": "assistant",
        "content": data["content"],
        "source": {"kind": "model", "provider": _CARRIED, "model": _CARRIED},
    }
    rest = {key: value for key, value in data.items() if key != "content"}
    return {**rest, "message": message}


def _tool_result(data: dict[str, Json], seq: int, sources: Json) -> dict[str, Json]:
    call, content, mine = data["callId"], data["content"], data.get("error")
    identity = f"m-{seq}"
    rest = {key: data[key] for key in data if key not in ("callId", "content", "isError")}
    if _says(data, _OURS):
        theirs = _NOT_STARTED if sources is None else _OUTCOME_UNKNOWN
        mine = {"name": theirs.name, "code": theirs.code}
        content = [{"type": "text", "text": theirs.text}]
        identity = f"interrupted-tool-result-{call}-{seq}"
    if mine is not None:
        rest["error"] = mine
    block = {
        "type": "tool-result",
        "toolCallId": call,
        "content": content,
        "isError": data["isError"],
    }
    source = {"kind": "tool", "callId": call}
    message = {"id": identity, "role": "user", "source": source, "content": [block]}
    return {**rest, "message": message}


def _says(data: dict[str, Json], words: _Interrupted) -> bool:
    """Whether a result in our shape is a closer in these words."""
    return (
        data.get("isError") is True
        and data.get("error") == {"name": words.name, "code": words.code}
        and data.get("content") == [{"type": "text", "text": words.text}]
    )


# --- era R: hearing -------------------------------------------------------------------------------


def _unmarked(event: SessionEvent) -> SessionEvent:
    """An event without the mark that a reader may skip it."""
    extra = {key: one for key, one in (event.extra or {}).items() if key != "ignorable"}
    return msgspec.structs.replace(event, extra=extra or None)


def _unwrapped(event: SessionEvent) -> SessionEvent:
    """The best guess; what it is worth shows when it is spoken again."""
    event = _unmarked(event)
    kind, data = event.type, event.data
    surface, sources = event.surface_op, event.source_event_seqs
    if isinstance(data, dict):
        carried = data.get(_CARRIED)
        if isinstance(carried, dict):
            data = {key: data[key] for key in data if key != _CARRIED}
        message, reason = data.get("message"), data.get("reason")
        if kind == "user/message":
            data = {key: data[key] for key in data if key not in ("id", "role")}
        elif kind == "assistant/message" and isinstance(message, dict):
            data = {key: data[key] for key in data if key != "message"}
            data["content"] = message.get("content")
        elif kind == "tool/result" and isinstance(message, dict):
            data = _heard_result(data, message)
        elif kind == "turn/end" and isinstance(reason, dict):
            inner = reason.get("reason")
            rest = inner.get(_CARRIED) if isinstance(inner, dict) else None
            data = {"turn": data.get("turn"), **rest} if isinstance(rest, dict) else data
        if isinstance(carried, dict):
            type_ = carried.get("type")
            kind = type_ if isinstance(type_, str) and type_ else kind
            surface = carried.get("surfaceOp", surface)
            sources = carried.get("sourceEventSeqs", sources)
            if kind == "turn/start" and "trigger" in carried:
                data["trigger"] = carried["trigger"]
            if "own" in carried:
                data = {**data, _CARRIED: carried["own"]}
    return SessionEvent(kind, event.seq, event.time, data, surface, sources, event.extra)


def _heard_result(data: dict[str, Json], message: dict[str, Json]) -> dict[str, Json]:
    blocks = message.get("content")
    block = blocks[0] if isinstance(blocks, list) and blocks else None
    if not isinstance(block, dict):
        return data
    ours = {key: data[key] for key in data if key != "message"}
    ours["callId"] = block.get("toolCallId")
    ours["content"] = block.get("content")
    ours["isError"] = block.get("isError")
    if _says(ours, _NOT_STARTED) or _says(ours, _OUTCOME_UNKNOWN):
        ours["content"] = [{"type": "text", "text": _OURS.text}]
        ours["error"] = {"name": _OURS.name, "code": _OURS.code}
    return ours
