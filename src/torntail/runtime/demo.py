"""`python -m torntail.runtime.demo`: an agent is killed in the middle of a tool, and goes on.

The agent runs in a process of its own, which is sent SIGKILL when it says that it is inside the
tool that writes. Shown are the log that is left, what the repair adds to it,
marked, and the log at the end.
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from itertools import count
from pathlib import Path
from typing import Any, Final

from torntail.runtime.agent import Agent, ToolCall
from torntail.runtime.opening import resume, start
from torntail.runtime.scripts import ScriptedModel
from torntail.session import SessionEvent
from torntail.session import vocabulary as words
from torntail.stores.jsonl import JsonlStore

__all__ = ["main"]

SESSION: Final = "demo"
INSIDE: Final = "inside the tool"

_START = 1_700_000_000_000
_REPLIES: Final[list[list[Any]]] = [
    [
        words.text("I read the file first."),
        words.tool_call_block("call_1", "read", '{"path":"a.txt"}'),
    ],
    [
        words.text("Now I copy it, and look for others."),
        words.tool_call_block("call_2", "write", '{"path":"b.txt"}'),
        words.tool_call_block("call_3", "read", '{"path":"."}'),
    ],
    [words.text("The copy was cut off. I look at b.txt before I write it again.")],
]


async def _read(call: ToolCall) -> str:
    return "one line"


async def _write_for_ever(call: ToolCall) -> str:
    # The parent kills the process at this line; the read of stdin ends with the parent.
    _say(INSIDE)
    await asyncio.to_thread(sys.stdin.read)
    return "never"


async def _child(root: Path) -> None:
    with JsonlStore(root) as store:
        async with start(store, SESSION, clock=_clock(0)) as session:
            tools = {"read": _read, "write": _write_for_ever}
            await Agent(session, ScriptedModel(_REPLIES), tools).say("Copy a.txt to b.txt.")


async def _demonstrate(root: Path) -> None:
    command = [sys.executable, "-m", "torntail.runtime.demo", str(root)]
    _say("An agent runs in a process of its own.")
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        said = child.stdout.readline().strip()
        child.send_signal(signal.SIGKILL)
        status = child.wait()
    if said != INSIDE or status != -signal.SIGKILL:
        raise RuntimeError(f"the agent was not killed inside its tool, but ended with {status}")
    _say("It says that it is inside the tool that writes, and is killed (SIGKILL).\n")
    with JsonlStore(root) as store:
        left = store.inspect(SESSION)
        stored = left.events[: len(left.events) - len(left.repair.closers)]
        _say(f"What it left in storage, {len(stored)} events:")
        _show(stored)
        session = await resume(store, SESSION, clock=_clock(1000))
        async with session:
            synthetic = range(len(stored), len(session))
            _say(f"\nResumed: the {len(synthetic)} events marked * were made to close the turn.")
            _show(session.events(len(stored)), synthetic)
            _say("\nThe agent goes on.")
            tools = {"read": _read}
            said = await Agent(session, ScriptedModel(_REPLIES), tools).say("What happened?")
            _say(f"It says: {said}\n")
        _say("The log at the end:")
        _show(_loaded(store), synthetic)


def _loaded(store: JsonlStore) -> list[SessionEvent]:
    return store.load(SESSION).events


def _show(events: Iterable[SessionEvent], synthetic: range = range(0)) -> None:
    chunks = 0
    for event in events:
        if event.type == "assistant/chunk":
            chunks += 1
            continue
        if chunks:
            _say(f"      … {chunks} × assistant/chunk")
            chunks = 0
        mark = "*" if event.seq in synthetic else " "
        _say(f"  {mark} {event.seq:3}  {event.type:18} {_told(event.data)}".rstrip())
    if chunks:
        _say(f"      … {chunks} × assistant/chunk")


def _told(data: dict[str, Any]) -> str:
    parts = [f"{key} {data[key]}" for key in ("turn", "step", "callId", "name") if key in data]
    if "reason" in data:
        parts.append(data["reason"]["kind"])
    for block in data.get("content", ()):
        if block["type"] == "tool-call":
            parts.append(f"asks for {block['name']} ({block['id']})")
        else:
            parts.append(f'"{block["text"]}"')
    return ", ".join(parts)


def _clock(minutes: int) -> Any:
    """A clock that is the same in each run."""
    ticks = count(_START + minutes * 60_000)
    return lambda: next(ticks)


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(arguments: list[str]) -> None:
    """Without arguments the demonstration, with a directory the agent that is killed."""
    if arguments:
        asyncio.run(_child(Path(arguments[0])))
        return
    with tempfile.TemporaryDirectory(prefix="torntail-demo-") as root:
        asyncio.run(_demonstrate(Path(root)))


if __name__ == "__main__":
    main(sys.argv[1:])
