"""A small agent: turns, steps, a model that streams, tools that run side by side.

Decides the order in which an agent writes its log, so that a crash at any point leaves a log that
closes well: what a tool may have done is always behind its durable `tool/call`. It is the example
of how to use a live session, and it is what the crash tests kill. Does not decide what a model says
(`scripts` has models that follow a script).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from torntail.runtime.live_session import Session
from torntail.session import SessionEvent, transcript_problems
from torntail.session import vocabulary as words
from torntail.session.transcript import Message, mend_messages

__all__ = ["Agent", "Content", "Hook", "Model", "ModelEnded", "Tool", "ToolCall"]

Content = Sequence[Any]
"""The blocks of a message."""

MAXIMUM_STEPS: Final = 50


class Model(Protocol):
    """What the agent asks for the next message."""

    def stream(self, messages: list[Message]) -> AsyncIterator[dict[str, Any]]:
        """The chunks of the answer to a history, which is not to be changed.

        Each finished block comes in a `block-end`, what it cost in a `usage`.
        """
        ...


class ModelEnded(Exception):
    """The model has no more to say: the turn is broken off."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call as the log has it; `arguments` is the model's raw JSON text."""

    id: str
    name: str
    arguments: str


Tool = Callable[[ToolCall], Awaitable[str]]
"""Answers a call with text; what it raises becomes an error result."""

Hook = Callable[[Content], Content]
"""Sees the content of an assistant message before it is appended, and gives what is appended."""


class Agent:
    """Runs turns in a session, with or without a store behind it."""

    def __init__(
        self,
        session: Session,
        model: Model,
        tools: Mapping[str, Tool] | None = None,
        *,
        before_message: Hook | None = None,
        maximum_steps: int = MAXIMUM_STEPS,
    ) -> None:
        self.session = session
        self._model = model
        self._tools = tools or {}
        self._before_message = before_message
        self._maximum_steps = maximum_steps
        # A log from elsewhere may hold calls that nobody answered; only then is the whole history
        # looked through again at each step.
        self._mend = bool(transcript_problems(session.derive_messages(private=False)))

    async def say(self, prompt: str) -> str:
        """Runs a turn on what the user says, and gives the words of the last answer."""
        await self.run_turn([[words.text(prompt)]])
        messages = self.session.derive_messages(private=False)
        blocks = messages[-1]["content"] if messages[-1]["role"] == "assistant" else []
        return "".join(block["text"] for block in blocks if block["type"] == "text")

    async def run_turn(self, prompts: Sequence[Content]) -> None:
        """Runs a turn until the model asks for no more tools; its end is durable on return.

        Whatever stops it, the turn is ended in the log; errors of the model and of the store are
        raised, and a model that has ended is no error.
        """
        turn = self.session.turn + 1
        self.session.add(words.turn_start, turn=turn)
        reason: words.TurnEndReason = {"kind": "aborted", "reason": "stopped"}
        try:
            for prompt in prompts:
                self.session.add(words.user_message, content=prompt)
            await self._steps(turn)
            reason = {"kind": "completed"}
        except ModelEnded:
            reason = {"kind": "aborted", "reason": "the model has ended"}
        except asyncio.CancelledError:
            reason = {"kind": "aborted", "reason": "cancelled"}
            raise
        except Exception as error:
            reason = {"kind": "error", "step": self.session.step, "message": str(error)}
            raise
        finally:
            self.session.add(words.turn_end, turn=turn, reason=reason)
        # Not in the `finally`: a turn that failed already has an error to tell.
        await self.session.flush()

    async def _steps(self, turn: int) -> None:
        for step in range(1, self._maximum_steps + 1):
            self.session.add(words.step_start, turn=turn, step=step)
            try:
                message = await self._ask(turn, step)
                calls = _calls(message)
                await self._run_tools(turn, step, calls)
            finally:
                self.session.add(words.step_end, turn=turn, step=step)
            if not calls:
                return

    async def _ask(self, turn: int, step: int) -> SessionEvent | None:
        """The model's message as it was appended; None where it had nothing to say."""
        await self.session.checkpoint()
        content: list[Any] = []
        usage: words.TokenUsage | None = None
        chunks: list[int] = []
        messages = self.session.derive_messages(private=False)
        async for chunk in self._model.stream(mend_messages(messages) if self._mend else messages):
            event = self.session.add(words.assistant_chunk, turn=turn, step=step, chunk=chunk)
            chunks.append(event.seq)
            if chunk["type"] == "block-end":
                content.append(chunk["block"])
            elif chunk["type"] == "usage":
                usage = chunk["usage"]
            if self.session.crowded:
                await self.session.flush()
        if self._before_message is not None:
            content = list(self._before_message(content))
        if not content and usage is None:
            return None
        return self.session.add(
            words.assistant_message,
            turn=turn,
            step=step,
            content=content,
            usage=usage,
            source_event_seqs=chunks or None,
        )

    async def _run_tools(self, turn: int, step: int, calls: Sequence[ToolCall]) -> None:
        """Runs the calls side by side; results are appended in the order of the message."""
        if not calls:
            return
        at = {"turn": turn, "step": step}
        logged: dict[str, int] = {}
        running: list[asyncio.Task[str]] = []
        answered = 0
        try:
            for call in calls:
                event = self.session.add(
                    words.tool_call, **at, call_id=call.id, name=call.name, arguments=call.arguments
                )
                logged[call.id] = event.seq
            # No tool begins before its call is durable: after a crash the log knows of it.
            await self.session.checkpoint()
            running = [asyncio.create_task(self._run_tool(call)) for call in calls]
            for call, task in zip(calls, running, strict=True):
                await asyncio.wait([task])
                self._answer(at, call, logged[call.id], task)
                answered += 1
        finally:
            # However this ended: what still runs is stopped, and no call is left without a result.
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
            for call in calls[answered:]:
                self._answer(at, call, logged.get(call.id))

    def _answer(
        self,
        at: Mapping[str, int],
        call: ToolCall,
        logged: int | None,
        task: asyncio.Task[str] | None = None,
    ) -> None:
        """Appends what a tool came to: without a task, or where it was cancelled, a stop."""
        error: words.ToolError | None = None
        if task is None or task.cancelled():
            told = "The call was stopped before it had a result."
            error = {"name": "CancelledError", "code": "aborted"}
        elif (failure := task.exception()) is not None:
            told = str(failure)
            error = {"name": type(failure).__name__, "code": "failed"}
        else:
            told = task.result()
        self.session.add(
            words.tool_result,
            **at,
            call_id=call.id,
            content=[words.text(told)],
            is_error=error is not None,
            error=error,
            source_event_seqs=None if logged is None else [logged],
        )

    async def _run_tool(self, call: ToolCall) -> str:
        if call.name not in self._tools:
            raise LookupError(f"there is no tool {call.name!r}")
        return await self._tools[call.name](call)


def _calls(message: SessionEvent | None) -> list[ToolCall]:
    """The calls of a message as appended, each id once: what was asked for before a hook changed it
    is not run.
    """
    if message is None:
        return []
    calls = {
        block["id"]: ToolCall(block["id"], block["name"], block["arguments"])
        for block in message.data["content"]
        if block["type"] == "tool-call"
    }
    return list(calls.values())
