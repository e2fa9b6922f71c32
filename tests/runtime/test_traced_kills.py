"""An agent is killed at the file operations that the tracer sees, and another one goes on.

Unlike `test_kills`, this sees what a library does without a word to Python: all that SQLite does.
The operations are counted in a run to the end; then the same run is killed before each of them, or
before some, or in the middle of each write.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.blackbox.support import needs_tracing, traced
from tests.runtime.child import STORES
from tests.runtime.kills import KILLED, Agents, Ledger, Run, go_on, synthetic
from torntail.crash.oplog import Operation
from torntail.record.traced.log import operations_in
from torntail.record.traced.process import TracedProcess
from torntail.record.traced.values import Delay, Ended, Kill, Strike
from torntail.session import SessionEvent

pytestmark = needs_tracing


@pytest.fixture(scope="module")
def agents() -> Iterator[Agents]:
    with Agents() as agents:
        yield agents


@dataclass(frozen=True)
class Death:
    """A kill at a call, and the kinds of the operations that are in the log by then."""

    strike: Kill
    done: list[type[Operation]]


@dataclass(frozen=True)
class Traced:
    """What a traced agent said, how it ended, and its process, which is over."""

    run: Run
    end: Ended
    process: TracedProcess

    def kinds(self, position: int | None = None) -> list[type[Operation]]:
        """The kinds of the operations before an entry of the log, or of all."""
        return [type(one) for one in operations_in(self.process.entries[:position])]

    def deaths_before(self, stride: int) -> list[Death]:
        """Kills before each call that changed a file, or before some.

        More than there are operations: the log has none for the index of SQLite's journal, which
        its processes share in memory.
        """
        calls = [struck for struck in self.process.struck if struck.kind != "open"]
        return [
            Death(Kill(nth=number), self.kinds(calls[number].position))
            for number in range(0, len(calls), stride)
        ]

    def deaths_within(self) -> list[Death]:
        """Kills in the middle of each write."""
        writes = [struck for struck in self.process.struck if struck.kind == "write"]
        return [
            Death(Kill(on="write", nth=number, length=half), self.kinds(write.position))
            for number, write in enumerate(writes)
            if (half := write.size // 2)
        ]


def traced_agent(root: Path, store: str, strike: Strike, turns: int = 1) -> Traced:
    """Runs an agent, whose turn asks for two tools at once and ends with an answer to them.

    A kill is also one of the process that forks it.
    """
    request = {"root": str(root), "store": store, "session": "s", "tools": 2, "turns": turns}
    command = [sys.executable, "-m", "tests.runtime.child"]
    with traced(command, root, inject=[strike]) as process:
        process.stdin.write(json.dumps(request).encode() + b"\n")
        process.stdin.close()
        said = process.stdout.read().decode().splitlines()
        end = process.wait()
    assert end is not None
    process.check()
    return Traced(Run(said, end.code), end, process)


def whole_run(start: Ledger, root: Path, **request: int) -> Traced:
    """The run in which nobody is killed, on a copy of what there is at the start."""
    shutil.copytree(start.root, root)
    # A delay of nothing changes nothing, but notes each call.
    whole = traced_agent(root, start.store, Delay(on="any", seconds=0), **request)
    assert (whole.end, whole.run.said[-1]) == (Ended(0), "ended 0")
    return whole


def killed(start: Ledger, root: Path, death: Death, **request: int) -> Ledger:
    """What one run leaves that is killed, on a copy of what there is at the start."""
    shutil.copytree(start.root, root)
    agent = traced_agent(root, start.store, death.strike, **request)
    assert agent.end == Ended(KILLED, "killed")
    (struck,) = agent.process.struck
    assert agent.kinds(struck.position) == death.done
    ledger = replace(start, root=root, events=list(start.events))
    ledger.take(agent.run)
    return ledger


def kill_and_go_on(
    agents: Agents, start: Ledger, deaths: Sequence[Death], tmp_path: Path, **request: int
) -> list[list[SessionEvent]]:
    """Each death in a run of its own, after which another agent resumes; the sessions then."""
    sessions = []
    for number, death in enumerate(deaths):
        ledger = killed(start, tmp_path / str(number), death, **request)
        sessions.append(go_on(agents, ledger))
    return sessions


def nothing(tmp_path: Path, store: str) -> Ledger:
    """The start of a run that finds an empty directory."""
    root = tmp_path / "start"
    root.mkdir()
    return Ledger(root, store)


def kill_turns(agents: Agents, tmp_path: Path, store: str, stride: int) -> None:
    start = nothing(tmp_path, store)
    whole = whole_run(start, tmp_path / "whole")
    sessions = kill_and_go_on(agents, start, whole.deaths_before(stride), tmp_path)
    # Nothing was there of the first; the last had said all; in between a turn was broken off.
    turns = [[event.type for event in events].count("turn/end") for events in sessions]
    assert (turns[0], turns[-1]) == (1, 2)
    assert any(synthetic(events) for events in sessions)


def kill_resumes(agents: Agents, tmp_path: Path, store: str, stride: int) -> None:
    start = nothing(tmp_path, store)
    start.take(agents.run(start.root, store=store, tools=2, die_at="tool call-0-1 begin"))
    whole = whole_run(start, tmp_path / "whole", turns=0)
    deaths = whole.deaths_before(stride)
    assert deaths
    for events in kill_and_go_on(agents, start, deaths, tmp_path, turns=0):
        made = [(event.type, event.data.get("callId")) for event in synthetic(events)]
        calls = [("tool/result", f"call-0-{number}") for number in range(2)]
        assert made == [*calls, ("turn/end", None)]


@pytest.mark.parametrize("store", STORES)
def test_kills_before_operations_of_a_turn(store: str, agents: Agents, tmp_path: Path) -> None:
    kill_turns(agents, tmp_path, store, stride=3)


@pytest.mark.slow
@pytest.mark.parametrize("store", STORES)
def test_kills_before_every_operation_of_a_turn(store: str, agents: Agents, tmp_path: Path) -> None:
    kill_turns(agents, tmp_path, store, stride=1)


@pytest.mark.slow
@pytest.mark.parametrize("store", STORES)
def test_kills_within_every_write_of_a_turn(store: str, agents: Agents, tmp_path: Path) -> None:
    start = nothing(tmp_path, store)
    deaths = whole_run(start, tmp_path / "whole").deaths_within()
    assert deaths
    kill_and_go_on(agents, start, deaths, tmp_path)


@pytest.mark.parametrize("store", STORES)
def test_kills_before_operations_of_a_resume(store: str, agents: Agents, tmp_path: Path) -> None:
    kill_resumes(agents, tmp_path, store, stride=3)


@pytest.mark.slow
@pytest.mark.parametrize("store", STORES)
def test_kills_before_every_operation_of_a_resume(
    store: str, agents: Agents, tmp_path: Path
) -> None:
    kill_resumes(agents, tmp_path, store, stride=1)


def test_a_store_that_acknowledges_before_it_writes_is_caught(tmp_path: Path) -> None:
    start = nothing(tmp_path, "hasty")
    whole = whole_run(start, tmp_path / "whole")
    found = set()
    for number, death in enumerate(whole.deaths_before(3)):
        # Read by a store that is not broken.
        ledger = replace(killed(start, tmp_path / str(number), death), store="jsonl")
        try:
            ledger.stored()
        except AssertionError as error:
            found.add(str(error))
    assert "an acknowledged event is missing" in found
