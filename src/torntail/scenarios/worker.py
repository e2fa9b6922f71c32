"""The process that carries out scenarios: what a store does to it is not done to who asked.

Reads one JSON line on standard input that says what to do, writes JSON lines on what was standard
output: which file it is at, that it is alive, and what came of each. Whatever the store prints goes
to standard error. Decides nothing; see `batch`.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Literal

import msgspec

from torntail.drive.onlooker import HarnessError
from torntail.drive.target import TargetError, target_of
from torntail.explore.room import no_room_in, told
from torntail.judge.evidence import evidence_of
from torntail.record.inprocess import RecordingFailed
from torntail.record.install import install
from torntail.record.scratch import FULL, ScratchFull
from torntail.scenarios.crash_replay import CrashLimits
from torntail.scenarios.files import (
    ScenarioError,
    load_scenario,
    place_of,
    save_scenario,
)
from torntail.scenarios.format import CrashFault, Scenario
from torntail.scenarios.from_finding import NoWitness, scenario_id, scenario_of_witness
from torntail.scenarios.outcome import Replay, ReplayFinding
from torntail.scenarios.recheck import keep_crash_evidence
from torntail.scenarios.replay import Replayer, StoreChoice
from torntail.scenarios.shrink import NotShown, shrink

__all__ = ["Line", "ReplayOrder", "main"]

_BEAT_SECONDS = 0.2


class ReplayOrder(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker gets on its standard input: the files, and how they are carried out.

    `replay` carries scenarios out; `shrink` makes each small and writes it to `out`; `save` makes a
    scenario of each witness directory and writes it below `out`.
    """

    paths: tuple[str, ...]
    action: Literal["replay", "shrink", "save"] = "replay"
    out: str = ""
    keep: str = ""
    target: str | None = None
    durability: Literal["none", "process", "power"] | None = None
    level: Literal["none", "process", "power"] | None = None
    images: int = CrashLimits().images
    call_timeout: float = 30.0
    explain: bool = False


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """A line a worker writes: it begins with a file, it is alive, a file's replay or its error."""

    index: int
    replay: Replay | None = None
    error: str | None = None
    beat: bool = False
    saved: str | None = None
    not_shown: str | None = None
    tried: int = 0


def main() -> None:
    """Carries out one order to its end."""
    order = msgspec.convert(json.loads(sys.stdin.buffer.readline()), ReplayOrder)
    channel = os.dup(1)
    os.dup2(2, 1)
    write = os.write  # The recorder's wrapper is not for this.
    # Before a store's module is imported, so that a name bound early is a wrapped one.
    install()
    index, last = 0, 0.0

    def send(line: Line) -> None:
        # Not with msgspec's own encoder, which has no way to write half a character.
        view = memoryview(json.dumps(msgspec.to_builtins(line)).encode("ascii") + b"\n")
        while view:
            view = view[write(channel, view) :]

    def tick() -> None:
        nonlocal last
        now = time.monotonic()
        if now - last > _BEAT_SECONDS:
            last = now
            send(Line(index=index, beat=True))

    choice = StoreChoice(order.target, order.durability, order.level)
    limits = CrashLimits(images=order.images)
    with Replayer(
        choice,
        limits=limits,
        call_timeout=order.call_timeout,
        explain=order.explain,
        tick=tick,
    ) as replayer:
        for index, path in enumerate(order.paths):
            send(Line(index=index, beat=True))
            send(_line(replayer, order, index, Path(path)))


def _line(replayer: Replayer, order: ReplayOrder, index: int, path: Path) -> Line:
    try:
        match order.action:
            case "shrink":
                return _shrunk(replayer, order, index, path)
            case "save":
                return _saved(replayer, order, index, path)
        scenario = load_scenario(path)
        replay = replayer.replay(scenario)
        if order.keep and replay.findings:
            _keep(replayer, scenario, replay.findings[0], Path(order.keep))
        return Line(index=index, replay=replay)
    except NotShown as error:
        return Line(index=index, not_shown=str(error))
    except TargetError as error:
        store = "" if order.target is not None else "store: "
        return Line(index=index, error=f"{path}: {store}{error}")
    except (ScenarioError, NoWitness, RecordingFailed) as error:
        return Line(index=index, error=str(error))
    except (HarnessError, ScratchFull) as error:
        return _unknown(index, path, told(error))
    except OSError as error:
        if error.errno not in FULL:
            raise
        return _unknown(index, path, str(no_room_in(error.filename or replayer.scratch)))


def _unknown(index: int, path: Path, reason: str) -> Line:
    replay = Replay(scenario=path.stem, store="", status="unknown", reason=reason)
    return Line(index=index, replay=replay)


def _shrunk(replayer: Replayer, order: ReplayOrder, index: int, path: Path) -> Line:
    shrunk = shrink(load_scenario(path), replayer)
    save_scenario(shrunk.scenario, Path(order.out))
    return Line(index=index, saved=order.out, tried=shrunk.runs)


def _saved(replayer: Replayer, order: ReplayOrder, index: int, path: Path) -> Line:
    """A scenario made of a witness; the name of its store is the order's target."""
    target = target_of(order.target or "jsonl", durability=order.durability)
    scenario = scenario_of_witness(path, target, replayer.calls_on(target))
    place = place_of(scenario, Path(order.out))
    number = 2
    while place.exists() and load_scenario(place).plan != scenario.plan:
        scenario = msgspec.structs.replace(
            scenario, id=scenario_id(target.name, scenario.expect[0].clause, number)
        )
        place = place_of(scenario, Path(order.out))
        number += 1
    save_scenario(scenario, place)
    return Line(index=index, saved=str(place))


def _keep(replayer: Replayer, scenario: Scenario, found: ReplayFinding, directory: Path) -> None:
    """Keeps what a failed crash came to, so that it can be judged again (`recheck`)."""
    if not any(isinstance(fault, CrashFault) for fault in scenario.faults):
        return
    sight = replayer.first_sight(scenario, found.clause, found.cause)
    if sight is not None:
        capabilities = replayer.target_of(scenario).capabilities
        evidence = evidence_of(sight.recovery, sight.ledger, sight.settled, capabilities)
        keep_crash_evidence(directory / scenario.id, evidence, found)


if __name__ == "__main__":
    main()
