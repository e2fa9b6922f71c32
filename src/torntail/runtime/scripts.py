"""Models that follow a script, and logs played again by the agent.

Decides what is taken of a log to play it again: prompts, replies and results, by turns. Nothing
here is random, so that a script gives the same log each time.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from torntail.runtime.agent import Agent, Content, ModelEnded, Tool, ToolCall
from torntail.runtime.live_session import Session
from torntail.session import SessionEvent
from torntail.session.transcript import Message

__all__ = ["Recording", "ScriptedModel", "chunks_of", "recording_of", "replay"]

CHARACTERS_A_CHUNK: Final = 12


class ScriptedModel:
    """Says its replies one after the other, and after the last one breaks the turn off.

    Which one is next is counted in the history, so that a resumed session goes on where it was.
    """

    def __init__(
        self, replies: Sequence[Content], *, characters_a_chunk: int = CHARACTERS_A_CHUNK
    ) -> None:
        self._replies = replies
        self._characters = characters_a_chunk

    async def stream(self, messages: list[Message]) -> AsyncIterator[dict[str, Any]]:
        """The chunks of the next reply; raises `ModelEnded` when there is none."""
        said = sum(message["role"] == "assistant" for message in messages)
        if said >= len(self._replies):
            raise ModelEnded
        for chunk in chunks_of(self._replies[said], self._characters):
            yield chunk


def chunks_of(content: Content, characters: int = CHARACTERS_A_CHUNK) -> Iterator[dict[str, Any]]:
    """A message as a model streams it, so many characters at a time."""
    for index, block in enumerate(content):
        kind = block["type"]
        yield {"type": "block-start", "index": index, "blockType": kind}
        text = block["arguments"] if kind == "tool-call" else block["text"]
        for start in range(0, len(text), characters):
            piece = text[start : start + characters]
            if kind == "tool-call":
                told = {"id": block["id"], "name": block["name"], "argumentsDelta": piece}
            else:
                told = {"text": piece}
            yield {"type": f"{kind}-delta", "index": index, **told}
        yield {"type": "block-end", "index": index, "block": {**block}}
    yield {"type": "finish", "reason": "stop"}


# --- playing a log again ------------------------------------------------------------------------


@dataclass(slots=True)
class RecordedTurn:
    """What the user said in a turn, and what the model said to it."""

    prompts: list[Content] = field(default_factory=list)
    replies: list[Content] = field(default_factory=list)


@dataclass(slots=True)
class Recording:
    """What a log says was asked, said and answered; `results` are by call id, first come first."""

    turns: list[RecordedTurn] = field(default_factory=list)
    results: dict[str, list[tuple[str, bool]]] = field(default_factory=dict)
    tool_names: set[str] = field(default_factory=set)

    def tools(self) -> Mapping[str, Tool]:
        """Tools that answer as recorded, and fail where nothing was."""
        unused = {call_id: list(results) for call_id, results in self.results.items()}

        async def answer(call: ToolCall) -> str:
            if not unused.get(call.id):
                raise LookupError("no result was recorded")
            text, is_error = unused[call.id].pop(0)
            if is_error:
                raise RuntimeError(text)
            return text

        return dict.fromkeys(self.tool_names, answer)


class _RecordedModel:
    """Says the replies of one turn after the other."""

    def __init__(self) -> None:
        self.replies: list[Content] = []

    async def stream(self, messages: list[Message]) -> AsyncIterator[dict[str, Any]]:
        if not self.replies:
            raise ModelEnded
        for chunk in chunks_of(self.replies.pop(0)):
            yield chunk


def recording_of(events: Iterable[SessionEvent]) -> Recording:
    """What can be played again of a log, lawful or not; what stands outside turns is left out."""
    recording = Recording()
    turn: RecordedTurn | None = None
    for event in events:
        data = event.data if isinstance(event.data, dict) else {}
        content = data.get("content")
        blocks = [one for one in content if isinstance(one, dict)] if type(content) is list else []
        if event.type == "turn/start":
            turn = RecordedTurn()
            recording.turns.append(turn)
        elif event.type == "turn/end":
            turn = None
        elif event.type == "user/message" and event.surface_op == "append" and turn is not None:
            turn.prompts.append(blocks)
        elif event.type == "assistant/message" and turn is not None:
            said = [block for block in blocks if _can_be_said(block)]
            recording.tool_names.update(
                block["name"] for block in said if block["type"] == "tool-call"
            )
            if said:
                turn.replies.append(said)
        elif event.type == "tool/result" and isinstance(data.get("callId"), str):
            text = "".join(str(block.get("text", "")) for block in blocks)
            result = (text, bool(data.get("isError")))
            recording.results.setdefault(data["callId"], []).append(result)
    return recording


async def replay(events: Iterable[SessionEvent], session: Session) -> None:
    """Plays a log again in another session: the same prompts, replies and results, turn by turn.

    What was broken off is broken off again; the new log keeps the turn grammar whatever the old one
    did, and its history is valid for a provider.
    """
    recording = recording_of(events)
    model = _RecordedModel()
    agent = Agent(session, model, recording.tools())
    for turn in recording.turns:
        model.replies = list(turn.replies)
        await agent.run_turn(turn.prompts)


def _can_be_said(block: dict[str, Any]) -> bool:
    if block.get("type") == "tool-call":
        return all(isinstance(block.get(key), str) for key in ("id", "name", "arguments"))
    return block.get("type") in ("text", "reasoning") and isinstance(block.get("text"), str)
