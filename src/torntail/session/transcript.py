"""The message history a model is shown: derived from the log, never stored (LV-5).

`derive_messages` is the derivation itself; `provider_messages` is the mending view on top of it,
which every provider accepts; `transcript_problems` is the rule checker both are held against
(CR-9). Does not decide how an interrupted turn is closed (`turns`).
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from typing import Any, Final

from torntail.session.events import Json, SessionEvent
from torntail.session.turns import INTERRUPTED_CALL_TEXT

__all__ = [
    "SURFACE_TYPES",
    "Message",
    "TranscriptError",
    "derive_messages",
    "provider_messages",
    "transcript_problems",
]

Message = dict[str, Any]
"""`{"role": "user" | "assistant", "content": [block, ...]}`."""

SURFACE_TYPES: Final = frozenset(
    {"user/message", "assistant/message", "tool/result", "context/message", "steering/message"}
)
"""Event types that can stand on the surface, that is, become messages."""


class TranscriptError(ValueError):
    """A surface event that cannot be applied; `seq` names it, `reason` says why."""

    def __init__(self, seq: int, reason: str) -> None:
        super().__init__(f"seq {seq}: {reason}")
        self.seq = seq
        self.reason = reason


def derive_messages(events: Iterable[SessionEvent]) -> list[Message]:
    """The message history of a log (LV-5), as a deep copy.

    Surface events with `append` add a message, `{"op": "replace", "start", "end"}` splices the
    inclusive range of seqs out and puts the event in its place; all else is ignored. Raises
    `TranscriptError` for a replace whose ends are not on the surface, or are reversed.
    """
    surface: list[SessionEvent] = []
    for event in events:
        if event.type not in SURFACE_TYPES or event.surface_op is None:
            continue
        operation = event.surface_op
        if operation == "append":
            surface.append(event)
        elif isinstance(operation, dict) and operation.get("op") == "replace":
            seqs = [node.seq for node in surface]
            try:
                start, end = seqs.index(operation["start"]), seqs.index(operation["end"])
            except (KeyError, ValueError):
                raise TranscriptError(event.seq, "replaces a range not on the surface") from None
            if end < start:
                raise TranscriptError(event.seq, "replaces a reversed range")
            surface[start : end + 1] = [event]
        else:
            raise TranscriptError(event.seq, "surfaceOp is neither append nor replace")
    messages = (_message(event) for event in surface)
    return [copy.deepcopy(message) for message in messages if message is not None]


def provider_messages(events: Iterable[SessionEvent]) -> list[Message]:
    """The derived history mended so that any provider accepts it.

    Every call is answered once, directly behind its message: a call without a result gets an error
    result, results without their call and second results are left out, results that stand further
    on are moved to their call.
    """
    return mend_messages(derive_messages(events))


def mend_messages(messages: Sequence[Message]) -> list[Message]:
    """The mending view over messages already derived; see `provider_messages`."""
    mended: list[Message] = []
    taken: set[int] = set()
    for index, message in enumerate(messages):
        if message["role"] == "assistant":
            calls = _calls(message)
            content = _without_repeated_calls(message["content"])
            mended.append({**message, "content": content})
            for call_id in calls:
                found = _find_result(messages, index + 1, call_id, taken)
                if found is None:
                    mended.append(_result_message(call_id, INTERRUPTED_CALL_TEXT))
                else:
                    taken.add(found)
                    mended.append(messages[found])
        elif _result_id(message) is None:
            mended.append(message)
    return mended


def transcript_problems(messages: Sequence[Message]) -> list[str]:
    """What a provider would refuse in a history, one sentence each; empty when it is valid.

    Every call answered exactly once, directly behind its message; no result without its call.
    """
    problems: list[str] = []
    waiting: list[str] = []
    answered: set[str] = set()
    for position, message in enumerate(messages):
        result = _result_id(message)
        if result is not None:
            if result in waiting:
                waiting.remove(result)
                answered.add(result)
            elif result in answered:
                problems.append(f"message {position}: second result for call {result!r}")
            else:
                problems.append(f"message {position}: result for {result!r} without its call")
            continue
        problems.extend(f"message {position}: call {call!r} has no result" for call in waiting)
        waiting, answered = [], set()
        if message["role"] == "assistant":
            ids = [block["id"] for block in _call_blocks(message["content"])]
            problems.extend(
                f"message {position}: call id {call!r} is used twice"
                for call in dict.fromkeys(ids)
                if ids.count(call) > 1
            )
            waiting = list(dict.fromkeys(ids))
    problems.extend(f"end: call {call!r} has no result" for call in waiting)
    return problems


def _message(event: SessionEvent) -> Message | None:
    data = event.data if isinstance(event.data, dict) else {}
    content = data.get("content")
    blocks = list(content) if isinstance(content, list | tuple) else []
    match event.type:
        case "user/message":
            return {"role": "user", "content": blocks}
        case "assistant/message":
            return {"role": "assistant", "content": blocks} if blocks else None
        case "tool/result":
            block = {
                "type": "tool-result",
                "toolCallId": data.get("callId"),
                "content": blocks,
                "isError": data.get("isError", False),
            }
            return {"role": "user", "content": [block]}
    # context/message and steering/message: marked as not the user's own words.
    name = event.type.removesuffix("/message")
    source = data.get("source")
    kind = source.get("kind") if isinstance(source, dict) else None
    opening = {"type": "text", "text": f'<{name} source="{kind}">'}
    closing = {"type": "text", "text": f"</{name}>"}
    return {"role": "user", "content": [opening, *blocks, closing]}


def _call_blocks(content: Json) -> list[dict[str, Json]]:
    return [
        block
        for block in content
        if isinstance(block, dict)
        and block.get("type") == "tool-call"
        and isinstance(block.get("id"), str)
    ]


def _calls(message: Message) -> list[str]:
    """The ids of a message's calls, each once, in order of first appearance."""
    return list(dict.fromkeys(block["id"] for block in _call_blocks(message["content"])))


def _without_repeated_calls(content: list[Json]) -> list[Json]:
    seen: set[str] = set()
    kept = []
    for block in content:
        if _call_blocks([block]):
            if block["id"] in seen:
                continue
            seen.add(block["id"])
        kept.append(block)
    return kept


def _result_id(message: Message) -> Any:
    """The call id a result message answers, or None if it is no result message."""
    content = message["content"]
    if message["role"] == "user" and len(content) == 1 and isinstance(content[0], dict):
        block = content[0]
        if block.get("type") == "tool-result":
            return block.get("toolCallId")
    return None


def _find_result(
    messages: Sequence[Message], start: int, call_id: str, taken: set[int]
) -> int | None:
    """The first free result for `call_id` before the id is called again."""
    for index in range(start, len(messages)):
        message = messages[index]
        if message["role"] == "assistant" and call_id in _calls(message):
            return None
        if index not in taken and _result_id(message) == call_id:
            return index
    return None


def _result_message(call_id: str, text: str) -> Message:
    block = {
        "type": "tool-result",
        "toolCallId": call_id,
        "content": [{"type": "text", "text": text}],
        "isError": True,
    }
    return {"role": "user", "content": [block]}
