"""The message history a model is shown: derived from the log, never stored (LV-5).

`derive_messages` is the derivation itself; `provider_messages` is the mending view on top of it,
which every provider accepts; `transcript_problems` is the rule checker both are held against
(CR-9). Does not decide how an interrupted turn is closed (`turns`).
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final

from torntail.session.events import Json, SessionEvent
from torntail.session.turns import INTERRUPTED_CALL_TEXT

__all__ = [
    "SURFACE_TYPES",
    "Message",
    "MessageHistory",
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


class MessageHistory:
    """The message history of a log, followed event by event (LV-5).

    `problem(event)` says why a surface event cannot be applied, or None; `feed(event)` applies it,
    at the cost of that event alone. Events that are not on the surface are ignored. The messages
    share their blocks with the events fed.
    """

    def __init__(self) -> None:
        self._seqs: list[int] = []
        self._surface: list[Message | None] = []
        self._messages: list[Message] = []

    def messages(self) -> list[Message]:
        """The messages so far, in a list of the caller's own; the messages are not copied."""
        return self._messages.copy()

    def problem(self, event: SessionEvent) -> str | None:
        """Why `event` cannot be applied, in one phrase; None when it can."""
        operation = event.surface_op
        if event.type not in SURFACE_TYPES or operation is None or operation == "append":
            return None
        if not isinstance(operation, dict) or operation.get("op") != "replace":
            return "surfaceOp is neither append nor replace"
        try:
            start, end = self._range(operation)
        except (KeyError, ValueError):
            return "replaces a range not on the surface"
        return "replaces a reversed range" if end < start else None

    def feed(self, event: SessionEvent) -> None:
        """Applies `event`; raises `TranscriptError` when it cannot be applied."""
        operation = event.surface_op
        if event.type not in SURFACE_TYPES or operation is None:
            return
        message = _message(event)
        if operation == "append":
            self._seqs.append(event.seq)
            self._surface.append(message)
            if message is not None:
                self._messages.append(message)
            return
        problem = self.problem(event)
        if problem is not None:
            raise TranscriptError(event.seq, problem)
        start, end = self._range(operation)
        self._seqs[start : end + 1] = [event.seq]
        self._surface[start : end + 1] = [message]
        self._messages = [message for message in self._surface if message is not None]

    def _range(self, operation: dict[str, Json]) -> tuple[int, int]:
        return self._seqs.index(operation["start"]), self._seqs.index(operation["end"])


def derive_messages(events: Iterable[SessionEvent], *, private: bool = True) -> list[Message]:
    """The message history of a log (LV-5), as a deep copy unless `private` is false.

    Surface events with `append` add a message, `{"op": "replace", "start", "end"}` splices the
    inclusive range of seqs out and puts the event in its place; all else is ignored. Raises
    `TranscriptError` for a replace whose ends are not on the surface, or are reversed.
    """
    history = MessageHistory()
    for event in events:
        history.feed(event)
    return copy.deepcopy(history.messages()) if private else history.messages()


def provider_messages(events: Iterable[SessionEvent]) -> list[Message]:
    """The derived history mended so that any provider accepts it.

    Every call is answered once, directly behind its message: a call without a result gets an error
    result, results without their call and second results are left out, results that stand further
    on, or amid other content, are moved to their call. A call that is not the assistant's, or has
    no id, is left out.
    """
    return mend_messages(derive_messages(events))


def mend_messages(messages: Sequence[Message]) -> list[Message]:
    """The mending view over messages already derived; see `provider_messages`."""
    answers = _answers(messages)
    mended: list[Message] = []
    for index, message in enumerate(messages):
        content = [block for block in message["content"] if _may_stand(message["role"], block)]
        if message["role"] == "assistant":
            content = _without_repeated_calls(content)
        if content or not message["content"]:
            mended.append({**message, "content": content})
        if message["role"] == "assistant":
            for call_id in _calls(message):
                block = answers.get((index, call_id)) or _lost_result(call_id)
                mended.append({"role": "user", "content": [block]})
    return mended


def transcript_problems(messages: Sequence[Message]) -> list[str]:
    """What a provider would refuse in a history, one sentence each; empty when it is valid.

    Every call answered exactly once, directly behind its message; no result without its call.
    """
    problems: list[str] = []
    waiting: list[str] = []
    answered: set[str] = set()
    for position, message in enumerate(messages):
        place = f"message {position}"
        results = [block for block in message["content"] if _is_kind(block, "tool-result")]
        if message["role"] == "user" and results:
            for block in results:
                call_id = block.get("toolCallId")
                if call_id in waiting:
                    waiting.remove(call_id)
                    answered.add(call_id)
                elif isinstance(call_id, str) and call_id in answered:
                    problems.append(f"{place}: second result for call {call_id!r}")
                else:
                    problems.append(f"{place}: result for {call_id!r} without its call")
            if len(results) == len(message["content"]):
                continue
            problems.append(f"{place}: a result amid other content")
        problems.extend(f"{place}: call {call!r} has no result" for call in waiting)
        waiting, answered = [], set()
        role = message["role"]
        problems.extend(
            f"{place}: {block['type']} in a message of role {role}"
            for block in message["content"]
            if not _may_stand(role, block) and not (role == "user" and block in results)
        )
        if role == "assistant":
            ids = [block["id"] for block in message["content"] if _is_call(block)]
            waiting = list(dict.fromkeys(ids))
            problems.extend(f"{place}: call id {call!r} is used twice" for call in _repeated(ids))
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


def _is_kind(block: Json, kind: str) -> bool:
    return isinstance(block, dict) and block.get("type") == kind


def _is_call(block: Json) -> bool:
    return _is_kind(block, "tool-call") and isinstance(block.get("id"), str)


def _may_stand(role: str, block: Json) -> bool:
    """Whether a block is left where it is: results are moved, calls are the assistant's only."""
    if _is_kind(block, "tool-call"):
        return role == "assistant" and _is_call(block)
    return not _is_kind(block, "tool-result")


def _calls(message: Message) -> list[str]:
    """The ids of a message's calls, each once, in order of first appearance."""
    return list(dict.fromkeys(block["id"] for block in message["content"] if _is_call(block)))


def _repeated(ids: Sequence[str]) -> list[str]:
    return [one for one, count in Counter(ids).items() if count > 1]


def _without_repeated_calls(content: list[Json]) -> list[Json]:
    seen: set[str] = set()
    kept = []
    for block in content:
        if _is_call(block):
            if block["id"] in seen:
                continue
            seen.add(block["id"])
        kept.append(block)
    return kept


def _answers(messages: Sequence[Message]) -> dict[tuple[int, str], dict[str, Json]]:
    """The first result behind each call, before its id is called again: (message, id) to block."""
    asked: dict[str, int] = {}
    answers: dict[tuple[int, str], dict[str, Json]] = {}
    for index, message in enumerate(messages):
        if message["role"] == "assistant":
            asked.update(dict.fromkeys(_calls(message), index))
            continue
        for block in message["content"]:
            if _is_kind(block, "tool-result"):
                call_id = block.get("toolCallId")
                if isinstance(call_id, str) and call_id in asked:
                    answers.setdefault((asked[call_id], call_id), block)
    return answers


def _lost_result(call_id: str) -> dict[str, Json]:
    return {
        "type": "tool-result",
        "toolCallId": call_id,
        "content": [{"type": "text", "text": INTERRUPTED_CALL_TEXT}],
        "isError": True,
    }
