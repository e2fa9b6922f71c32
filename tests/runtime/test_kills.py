"""An agent is killed anywhere, in a process of its own, and another one goes on."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.runtime.child import STORES
from tests.runtime.kills import KILLED, Agents, Ledger, go_on, synthetic

PLACES = [
    "opening",
    "resumed",
    "event turn/start 1",
    "event user/message 1",
    "event step/start 1",
    "event assistant/chunk 1",
    "event assistant/chunk 6",
    "event assistant/message 1",
    "event tool/call 1",
    "event tool/call 3",
    "tool call-0-0 begin",
    "tool call-0-1 begin",
    "tool call-0-0 end",
    "tool call-0-2 end",
    "event tool/result 1",
    "event tool/result 3",
    "event step/end 1",
    "event assistant/chunk 30",
    "event assistant/message 2",
    "event turn/end 1",
    "event turn/start 2",
    "event turn/end 2",
    "finished",
]


@pytest.fixture(scope="module")
def agents() -> Iterator[Agents]:
    with Agents() as agents:
        yield agents


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("place", PLACES)
def test_a_kill_at_a_place(place: str, store: str, agents: Agents, tmp_path: Path) -> None:
    ledger = Ledger(tmp_path, store)
    run = agents.run(tmp_path, store=store, die_at=place)
    assert run.status == KILLED
    # Not the last line: the thread that drains speaks, too.
    assert any(f"{line} ".startswith(f"{place} ") for line in run.said)
    ledger.take(run)
    ledger.stored()
    go_on(agents, ledger)


@pytest.mark.parametrize("store", STORES)
def test_a_kill_inside_a_tool_leaves_its_calls_answered_once(
    store: str, agents: Agents, tmp_path: Path
) -> None:
    ledger = Ledger(tmp_path, store)
    ledger.take(agents.run(tmp_path, store=store, die_at="tool call-0-1 begin"))
    # No tool began before its call was durable.
    assert [event.type for event in ledger.events[: ledger.saved]].count("tool/call") == 3
    events = go_on(agents, ledger)
    made = [(event.type, event.data.get("callId")) for event in synthetic(events)]
    calls = [("tool/result", f"call-0-{n}") for n in range(3)]
    assert made == [*calls, ("turn/end", None)]


def test_an_agent_that_is_not_killed_leaves_nothing_to_repair(
    agents: Agents, tmp_path: Path
) -> None:
    ledger = Ledger(tmp_path)
    run = agents.run(tmp_path)
    ledger.take(run)
    assert run.status == 0
    assert synthetic(ledger.stored()) == []
    assert ledger.saved == len(ledger.events)


# --- at file operations -------------------------------------------------------------------------

# Where in an operation: before it, in the middle of a write, after it.
MOMENTS = ("before", "torn", "after")


def deaths(operations: list[str], moment: str, stride: int, first: int) -> list[dict[str, Any]]:
    """The requests that kill an agent at each of these operations, or at some of them."""
    requests: list[dict[str, Any]] = []
    for operation in operations[first::stride]:
        _, number, name = operation.split()
        if moment == "before":
            requests.append({"die_at": f"operation {number}"})
        elif moment == "after":
            requests.append({"die_at": f"operated {number}"})
        elif name == "write":
            requests.append({"torn": int(number)})
    return requests


def operations_of(said: list[str]) -> list[str]:
    return [line for line in said if line.startswith("operation ")]


def kill_at_operations(agents: Agents, tmp_path: Path, moment: str, stride: int) -> None:
    (tmp_path / "whole").mkdir()
    operations = operations_of(agents.run(tmp_path / "whole").said)
    assert {line.split()[2] for line in operations} >= {"write", "fsync", "link", "mkdir"}
    first = 0 if stride == 1 else MOMENTS.index(moment)
    for number, death in enumerate(deaths(operations, moment, stride, first)):
        root = tmp_path / str(number)
        root.mkdir()
        ledger = Ledger(root)
        run = agents.run(root, **death)
        assert run.status == KILLED
        ledger.take(run)
        go_on(agents, ledger)


@pytest.mark.parametrize("moment", MOMENTS)
def test_kills_at_file_operations(moment: str, agents: Agents, tmp_path: Path) -> None:
    kill_at_operations(agents, tmp_path, moment, stride=3)


@pytest.mark.slow
@pytest.mark.parametrize("moment", MOMENTS)
def test_kills_at_every_file_operation(moment: str, agents: Agents, tmp_path: Path) -> None:
    kill_at_operations(agents, tmp_path, moment, stride=1)


@pytest.mark.parametrize("moment", MOMENTS)
def test_kills_during_the_repair_of_a_resume(moment: str, agents: Agents, tmp_path: Path) -> None:
    left = tmp_path / "left"
    left.mkdir()
    ledger = Ledger(left)
    ledger.take(agents.run(left, die_at="tool call-0-1 begin"))
    (log,) = left.glob("*/*.jsonl")
    with log.open("ab") as file:
        # A whole record is in what is cut, so that a copy of it is kept first.
        file.write(b'{"type":"tool/res\n{"type":"note","seq":99,"time":1,"data":0}\n{"ty')
    whole = tmp_path / "whole"
    shutil.copytree(left, whole)
    said = agents.run(whole, turns=0).said
    operations = operations_of(said[: said.index(next(x for x in said if x[:7] == "resumed"))])
    assert {line.split()[2] for line in operations} >= {"write", "fsync", "ftruncate"}
    for number, death in enumerate(deaths(operations, moment, 1, 0)):
        root = tmp_path / str(number)
        shutil.copytree(left, root)
        killed = Ledger(root, events=list(ledger.events), saved=ledger.saved)
        run = agents.run(root, **death)
        assert (run.status, run.count("resumed")) == (KILLED, 0)
        killed.take(run)
        events = go_on(agents, killed)
        made = [event.type for event in synthetic(events)]
        assert made == ["tool/result", "tool/result", "tool/result", "turn/end"]


# --- at random moments --------------------------------------------------------------------------

KILLS_A_SESSION = 10
MOST_BYTES = 30_000


def kill_at_random(agents: Agents, tmp_path: Path, kills: int, seed: int) -> None:
    chance = random.Random(seed)
    died_in: set[str] = set()
    for session in range(kills // KILLS_A_SESSION):
        root = tmp_path / str(session)
        root.mkdir()
        ledger = Ledger(root, chance.choice([*STORES]))
        window = chance.choice([None, 0.0])
        for _ in range(KILLS_A_SESSION):
            # Small numbers, too: they fall into the first flush, or into the repair.
            bytes_said = int(MOST_BYTES ** chance.random())
            run = agents.run(
                root, store=ledger.store, turns=1000, kill_after=bytes_said, window=window
            )
            assert run.status == KILLED
            died_in.add(run.said[-1].split()[0])
            ledger.take(run)
            ledger.stored()
        go_on(agents, ledger)
    assert len(died_in) > 1, "all died in one place"


def test_kills_at_random_moments(agents: Agents, tmp_path: Path) -> None:
    kill_at_random(agents, tmp_path, kills=30, seed=0)


@pytest.mark.slow
def test_a_thousand_kills_at_random_moments(agents: Agents, tmp_path: Path) -> None:
    kill_at_random(agents, tmp_path, kills=1000, seed=1)
