"""Which stores of the zoo a scenario breaks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tests.scenarios import found_stores
from tests.scenarios.corpus_zoo import CRASHING, READING
from tests.zoo import io_errors
from torntail.crash.io_faults import IoFault
from torntail.scenarios.format import CrashFault, DeviceStrike, FileFault, Scenario
from torntail.scenarios.replay import Replayer, StoreChoice

STORES: dict[str, str] = {**CRASHING, **READING, **found_stores.ZOO, **io_errors.ZOO}


def concerns(scenario: Scenario, target: str) -> bool:
    """Whether a scenario is tried on a store: one that is broken in a thing of its kind."""
    kinds = {type(fault) for fault in scenario.faults}
    if FileFault in kinds:
        return target in found_stores.ZOO
    if IoFault in kinds:
        return target in io_errors.ZOO
    if kinds & {CrashFault, DeviceStrike}:
        return target in CRASHING
    groups = {one.clause[:2] for one in scenario.expect}
    if groups & {"DM", "CL"}:
        groups |= {"DM", "CL"}
    return target in READING and READING[target][:2] in groups


def broken_by(scenarios: Sequence[Scenario]) -> Iterator[tuple[str, list[str]]]:
    """For each store the ids of those scenarios that it fails, by an expected clause."""
    for target in STORES:
        broken = []
        with Replayer(StoreChoice(target), call_timeout=5.0) as replayer:
            for scenario in scenarios:
                if not concerns(scenario, target):
                    continue
                replay = replayer.replay(scenario)
                clauses = {one.clause for one in replay.findings}
                if replay.status == "failed" and clauses & {one.clause for one in scenario.expect}:
                    broken.append(scenario.id)
        yield target, broken
