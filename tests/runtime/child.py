"""The agents that are killed: `python -m tests.runtime.child` forks one for each line it reads.

A line is a request as JSON, see `Request`. An agent says on stdout where it is, one line each:

    pid N                    it has begun
    opening                  it is about to start or resume its session
    resumed N                the session is there, N events of it stored
    event TYPE COUNT JSON    the log has an event, the COUNTth of its type since the session opened
    saved N                  storage has acknowledged N events
    tool ID begin|end        it is inside a tool
    operation N NAME         it is about to change a file, for the Nth time
    operated N               it has done so, or tried
    finished                 it has closed its session
    ended STATUS             said by the parent of the agent: its wait status

It kills itself, with SIGKILL, at the line that begins with `die_at`; or is killed by the reader.
A process is forked and not spawned, since a thousand of them are needed.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from tests.runtime.stores import HastyStore
from torntail.runtime import WritePolicy, resume, start
from torntail.runtime.agent import Agent, ToolCall
from torntail.runtime.live_session import Session
from torntail.runtime.scripts import chunks_of
from torntail.runtime.write_behind import WriteBehind
from torntail.session import encode_event, parse_event
from torntail.session import vocabulary as words
from torntail.stores.contract import NeverMaterialised, SessionNotFound
from torntail.stores.jsonl import JsonlStore
from torntail.stores.sqlite import SqliteStore

STORES: dict[str, Callable[[Path], Any]] = {
    "jsonl": JsonlStore,
    "sqlite": lambda root: SqliteStore(root / "sessions.db"),
}
BROKEN_STORES: dict[str, Callable[[Path], Any]] = {"hasty": HastyStore}

OPERATIONS = ("write", "fsync", "ftruncate", "link", "unlink", "mkdir")

_write = os.write
_standard_output = 1


class Voice:
    """Says where the agent is, and kills it at the place it was asked to die at."""

    def __init__(self, die_at: str | None, torn: int | None) -> None:
        self._die_at = die_at
        self._torn = torn
        self._operations = 0

    def say(self, line: str) -> None:
        # One write of less than a page is whole or not there.
        _write(_standard_output, f"{line}\n".encode())
        if self._die_at is not None and f"{line} ".startswith(f"{self._die_at} "):
            die()

    def watch(self, name: str) -> None:
        """Says before and after each call of a function of `os` that changes files."""
        real = getattr(os, name)

        def told(*arguments: Any, **keywords: Any) -> Any:
            self._operations += 1
            number = self._operations
            if name == "write" and number == self._torn:
                data = bytes(arguments[1])
                real(arguments[0], data[: len(data) // 2])
                die()
            self.say(f"operation {number} {name}")
            try:
                return real(*arguments, **keywords)
            finally:
                self.say(f"operated {number}")

        setattr(os, name, told)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Talker:
    """A model that asks for some tools at once, and then says what it makes of them."""

    def __init__(self, tools: int = 3) -> None:
        self._tools = tools

    async def stream(self, messages: list[Any]) -> AsyncIterator[dict[str, Any]]:
        said = sum(message["role"] == "assistant" for message in messages)
        content: list[Any] = [words.text(f"This is what I say, for the {said}th time.")]
        if said % 2 == 0:
            content += [
                words.tool_call_block(f"call-{said}-{n}", "look") for n in range(self._tools)
            ]
        for chunk in chunks_of(content):
            yield chunk
            await asyncio.sleep(0)


async def act(request: dict[str, Any], voice: Voice) -> None:
    policy = WritePolicy(window_seconds=request.get("window"))

    async def look(call: ToolCall) -> str:
        voice.say(f"tool {call.id} begin")
        await asyncio.sleep(0)
        voice.say(f"tool {call.id} end")
        return f"the answer to {call.id}"

    with (STORES | BROKEN_STORES)[request["store"]](Path(request["root"])) as store:
        voice.say("opening")
        session = await _open(store, request["session"], policy)
        # The events of a resumed log, before the place that says so: all of them are stored.
        for event in session.events():
            line = encode_event(event).decode()
            _write(_standard_output, f"event {event.type} 0 {line}\n".encode())
        voice.say(f"resumed {len(session)}")
        async with session:
            agent = Agent(session, Talker(request.get("tools", 3)), {"look": look})
            for _ in range(request["turns"]):
                await agent.say(f"This is turn {session.turn + 1}.")
        voice.say("finished")


async def _open(store: Any, session_id: str, policy: WritePolicy) -> Session:
    with contextlib.suppress(SessionNotFound, NeverMaterialised):
        return await resume(store, session_id, policy=policy)
    return start(store, session_id, policy=policy)


def be_an_agent(request: dict[str, Any]) -> None:
    voice = Voice(request.get("die_at"), request.get("torn"))
    voice.say(f"pid {os.getpid()}")
    advance = WriteBehind._advance
    took = WriteBehind.took
    counts: Counter[str] = Counter()

    def appended(self: WriteBehind, size_bytes: int, *, turn_ended: bool) -> None:
        # Under the lock of the session: said before any drain can see it.
        line = self._lines[-1]
        kind = parse_event(line).type
        counts[kind] += 1
        voice.say(f"event {kind} {counts[kind]} {line.decode()}")
        took(self, size_bytes, turn_ended=turn_ended)

    def acknowledged(self: WriteBehind, saved: int) -> None:
        advance(self, saved)
        voice.say(f"saved {saved}")

    WriteBehind.took = appended  # type: ignore[method-assign]
    WriteBehind._advance = acknowledged  # type: ignore[method-assign]
    for name in OPERATIONS:
        voice.watch(name)
    asyncio.run(act(request, voice))


def main() -> None:
    # Not by iterating, which would read ahead.
    while line := sys.stdin.readline():
        child = os.fork()
        if child == 0:
            status = 1
            try:
                be_an_agent(json.loads(line))
                status = 0
            finally:
                sys.stderr.flush()
                os._exit(status)
        _, status = os.waitpid(child, 0)
        _write(_standard_output, f"ended {status}\n".encode())


if __name__ == "__main__":
    main()
