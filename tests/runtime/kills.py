"""The reader of the agents in `child`: runs and kills one, holds storage against its words."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.runtime import providers
from tests.runtime.child import STORES
from torntail.session import (
    SessionEvent,
    derive_messages,
    encode_event,
    interrupted_turn_closers,
    parse_event,
    transcript_problems,
    turn_grammar_problem,
)
from torntail.stores.contract import NeverMaterialised, SessionNotFound

PROJECT = Path(__file__).parents[2]
KILLED = -signal.SIGKILL


@dataclass(frozen=True)
class Run:
    """What an agent said, and how it ended: 0, or minus the signal that killed it."""

    said: list[str]
    status: int

    def count(self, word: str) -> int:
        return sum(line.split(" ", 1)[0] == word for line in self.said)


class Agents:
    """A process that forks agents, one at a time."""

    def __enter__(self) -> Self:
        # A pipe of one page: an agent is never far ahead of what was read of it.
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.runtime.child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=PROJECT,
            pipesize=4096,
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.read()
        self._process.wait()
        self._process.stdout.close()

    def run(self, root: Path, *, kill_after: int | None = None, **request: Any) -> Run:
        """Runs an agent to its end, or kills it when it has said so many bytes."""
        standard = {"store": "jsonl", "session": "s", "turns": 2}
        line = json.dumps({"root": str(root), **standard, **request})
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(line.encode() + b"\n")
        self._process.stdin.flush()
        said: list[str] = []
        read = 0
        while True:
            heard = self._process.stdout.readline()
            assert heard, "the process that forks the agents is gone"
            text = heard.decode().removesuffix("\n")
            word, _, rest = text.partition(" ")
            if word == "ended":
                return Run(said, os.waitstatus_to_exitcode(int(rest)))
            said.append(text)
            read += len(heard)
            if kill_after is not None and read > kill_after and said[0].startswith("pid "):
                # Not yet waited for, or `ended` would have come: its id is still its own.
                os.kill(int(said[0].split()[1]), signal.SIGKILL)
                kill_after = None


@dataclass
class Ledger:
    """What the agents of one session have appended and what storage has acknowledged of it."""

    root: Path
    store: str = "jsonl"
    session: str = "s"
    events: list[SessionEvent] = field(default_factory=list)
    saved: int = 0

    def take(self, run: Run) -> None:
        """Notes what an agent said."""
        for line in run.said:
            word, _, rest = line.partition(" ")
            if word == "event":
                event = parse_event(rest.split(" ", 2)[2].encode())
                known = self.events[event.seq : event.seq + 1]
                if [encode_event(one) for one in known] != [encode_event(event)]:
                    # Behind what is saved, a resumed session may go on otherwise than the last.
                    assert event.seq >= self.saved, "an acknowledged event has changed"
                    self.events[event.seq :] = [event]
            elif word in ("saved", "resumed"):
                assert int(rest) >= self.saved, "what was acknowledged is not there any more"
                self.saved = int(rest)
                assert len(self.events) >= self.saved
                if word == "resumed":
                    del self.events[self.saved :]

    def stored(self) -> list[SessionEvent]:
        """Holds storage against the ledger; gives the session as a load would."""
        with STORES[self.store](self.root) as store:
            try:
                found = store.inspect(self.session)
            except (SessionNotFound, NeverMaterialised):
                assert self.saved == 0
                return []
        events: list[SessionEvent] = found.events
        lines = [encode_event(event) for event in events]
        ours = [encode_event(event) for event in self.events]
        stored = len(events) - len(found.repair.closers)
        # What was appended, as far as it came, and behind it nothing but the closers of that.
        kept = next(
            (place for place in range(min(len(lines), len(ours))) if lines[place] != ours[place]),
            min(len(lines), len(ours)),
        )
        closers = [encode_event(one) for one in interrupted_turn_closers(events[:kept])]
        assert lines[kept:] == closers[: len(lines) - kept] == closers
        assert stored >= self.saved, "an acknowledged event is missing"
        assert kept >= self.saved, "an acknowledged event is missing"
        assert [event.seq for event in events] == [*range(len(events))]
        assert turn_grammar_problem(events) is None
        messages = derive_messages(events)
        assert transcript_problems(messages) == []
        assert providers.problems(messages) == []
        answered = Counter(event.data["callId"] for event in events if event.type == "tool/result")
        assert [call for call, count in answered.items() if count > 1] == []
        return events


def go_on(agents: Agents, ledger: Ledger) -> list[SessionEvent]:
    """Another agent resumes the session and runs it to the end of a turn."""
    before = ledger.stored()
    run = agents.run(ledger.root, store=ledger.store, turns=1)
    assert (run.status, run.said[-1]) == (0, "finished")
    ledger.take(run)
    events = ledger.stored()
    assert events[: len(before)] == before
    assert (events[-1].type, events[-1].data["reason"]) == ("turn/end", {"kind": "completed"})
    assert len(events) == ledger.saved
    return events


def synthetic(events: list[SessionEvent]) -> list[SessionEvent]:
    """The events that a repair made, but for a step/end, which looks like any other."""
    return [
        event
        for event in events
        if "interrupted" in (event.data.get("error") or event.data.get("reason") or {}).values()
    ]
