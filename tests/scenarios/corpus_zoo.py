"""A scenario for each store of the zoo: run until it is found, made small, saved.

Takes minutes, so that what is saved already is kept unless it is asked for by name.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec

from tests.zoo import closing, crashing, damage, devices, reading, subtle
from tests.zoo.table import first_finding
from torntail import certify
from torntail.drive.target import target_of
from torntail.explore.crash_calls import CrashCalls
from torntail.explore.crash_shrink import smallest_history
from torntail.judge.clauses import clause
from torntail.record.scratch import Scratch
from torntail.record.slots import Slot
from torntail.scenarios.format import Expectation, Scenario, ScenarioClass
from torntail.scenarios.from_finding import scenario_of_finding, scenario_of_witness

CRASHING: dict[str, str] = {
    **crashing.ZOO,
    **{target: name for target, name in devices.ZOO.items() if name is not None},
}
READING: dict[str, str] = {**reading.ZOO, **closing.ZOO, **damage.ZOO, **subtle.ZOO}
ZOO: dict[str, str] = {**CRASHING, **READING}

_TOO_LARGE = 200_000


def scenario_name(target: str) -> str:
    """The store's name, with its clause where two stores have one name."""
    name = target.rpartition(":")[2]
    others = [other for other in ZOO if other.rpartition(":")[2] == name]
    words = f"{name}-{ZOO[target]}" if len(others) > 1 else name
    return words.replace("_", "-").lower()


def scenario_of_animal(target: str, clause_id: str) -> Scenario | None:
    """The scenario of a store of the zoo; None where it is not found, or too large to be kept."""
    scenario = _crash(target, clause_id) if target in CRASHING else _history(target, clause_id)
    if scenario is None:
        return None
    expect = scenario.expect
    if clause_id == "CR-8":
        # What a store that does not claim whole batches is held to.
        expect = (*expect, Expectation(clause="CR-2", outcome="nothing is invented"))
    scenario = msgspec.structs.replace(
        scenario,
        id=scenario_name(target),
        store="jsonl",
        capabilities=None,
        durability=None,
        expect=expect,
        kills=(target,),
    )
    return told(scenario, target, clause_id)


def told(scenario: Scenario, target: str, clause_id: str) -> Scenario:
    """The scenario of a store in words."""
    return msgspec.structs.replace(
        scenario,
        kind=_kind(scenario, clause_id),
        title=store_words(target),
        teaches=f"What {clause_id} asks for: {clause(clause_id).summary}.",
        origin=f"The first violation of {clause_id} that torntail finds in a store of its zoo, "
        "made small.",
    )


def store_words(target: str) -> str:
    """What is wrong with a store, as its class or, without a word there, its name says."""
    name = target.rpartition(":")[2]
    words = name.replace("_", " ")
    factory = target_of(target).factory
    for cell in getattr(factory, "__closure__", None) or ():
        own = (
            vars(cell.cell_contents).get("__doc__") if isinstance(cell.cell_contents, type) else ""
        )
        if own:
            words = " ".join(own.split()).removesuffix(".")
    return words[0].upper() + words[1:]


def _kind(scenario: Scenario, clause_id: str) -> ScenarioClass:
    if scenario.faults and scenario.kind == "device":
        return "device"
    if clause_id in ("CR-2", "CR-4", "CR-5", "CR-7", "CR-9") or clause_id.startswith("CL"):
        return "repair"
    if clause_id in ("DM-2", "DM-4"):
        return "torn-tail"
    if clause_id == "DM-3":
        return "gap"
    groups: dict[str, ScenarioClass] = {"CR": "durability", "DM": "damage"}
    return groups.get(clause_id[:2], "reading-and-writing")


def _crash(target_name: str, clause_id: str) -> Scenario | None:
    finding = first_finding(target_name, clause_id)
    if finding is None:
        return None
    target = target_of(target_name)
    with Scratch() as scratch, Slot(scratch) as slot:
        finding = smallest_history(target, finding, seed=0, slot=slot)
        return scenario_of_finding(finding, target, CrashCalls(target, slot))


def _history(target_name: str, clause_id: str) -> Scenario | None:
    target = target_of(target_name)
    with tempfile.TemporaryDirectory() as directory, Scratch() as scratch, Slot(scratch) as slot:
        certificate = certify(target_name, only=[clause_id], runs=Path(directory))
        witness = certificate.findings[0].witness
        if witness is None or not (Path(witness) / "history.json").exists():
            return None
        if (Path(witness) / "history.json").stat().st_size > _TOO_LARGE:
            return None
        return scenario_of_witness(Path(witness), target, CrashCalls(target, slot))


def scenarios(wanted: set[str]) -> Iterator[tuple[str, Scenario | None]]:
    """The scenario of each store, by its target, of those wanted."""
    for target, clause_id in ZOO.items():
        if scenario_name(target) in wanted:
            yield target, scenario_of_animal(target, clause_id)
