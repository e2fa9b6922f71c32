"""Writes docs/zoo.md, each broken store with its clause: `python -m tests.zoo.table [NAME…]`.

With names, only these stores are crashed anew and the other rows are kept. Minutes without.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from tests.zoo import crashing, devices, io_errors, reaching, writers
from torntail import certify
from torntail.drive.target import target_of
from torntail.explore.crash_shard import CrashFinding, Share, crash_share
from torntail.explore.device_shard import device_share
from torntail.explore.io_shard import IoFinding, io_share
from torntail.explore.writers_plans import writers_plans
from torntail.record.scratch import Scratch
from torntail.record.slots import Slot

PAGE = Path(__file__).parents[2] / "docs" / "zoo.md"

IMAGES = 4_000
IO_RUNS = 320

ZOO: dict[str, str] = {
    **crashing.ZOO,
    **reaching.ZOO,
    **{target: clause for target, clause in devices.ZOO.items() if clause is not None},
    **io_errors.ZOO,
    **writers.ZOO,
}

HEAD = """\
# Stores that break in a crash

No check without a store that breaks it (VD-5): each of these is a careful store with one step left
out, or done in the wrong order, and is caught by the clause beside it. *Images* counts the distinct
disks that were loaded in one process with seed 0 until the first violation of that clause;
*model* is that of the crash that showed it, or of the crashes one after the other. What breaks only
in work of a certain size or shape was given that plan alone. Then come
[device faults](crashes.md#device-faults), [I/O errors](io-errors.md), where *images* counts runs in
which the disk said no, and [several writers](writers.md), where it counts the histories of the
clause. Made by `python -m tests.zoo.table`.

| store | what is wrong | clause | images | plan | model |
| --- | --- | --- | ---: | --- | --- |
"""

_ROW = re.compile(r"^\| `(?P<name>\w+)` \|.*\| (?P<clause>[A-Z]+-\d+) \|", re.MULTILINE)


def name_of(target: str) -> str:
    return target.partition(":")[2]


def rows(text: str) -> dict[str, str]:
    """The clause of each store in a page."""
    return {match["name"]: match["clause"] for match in _ROW.finditer(text)}


def first_finding(target: str, clause: str) -> CrashFinding | None:
    """The first violation of a clause, crashing in this process."""
    found: list[CrashFinding] = []
    struck = target in devices.ZOO
    share = Share(
        models=("kill", "ordered", "posix"),
        seed=0,
        images=IMAGES,
        sought=frozenset({clause}),
        plan=reaching.PLANS.get(target),
        devices=2 if struck else 0,
    )
    run_share = device_share if struck else crash_share
    with Scratch() as scratch, Slot(scratch) as slot:
        run_share(target_of(target), share, slot=slot, found=found.append, tick=lambda report: None)
    return next((one for one in found if one.clause == clause), None)


def first_struck(target: str, clause: str) -> IoFinding | None:
    """The first violation of a clause under an I/O error, in this process."""
    found: list[IoFinding] = []
    share = Share(
        models=(), seed=0, images=0, sought=frozenset({clause}), io_runs=IO_RUNS, power=True
    )
    with Scratch() as scratch, Slot(scratch) as slot:
        io_share(target_of(target), share, slot=slot, found=found.append, tick=lambda report: None)
    return next((one for one in found if one.clause == clause), None)


def caught_among_writers(target: str, clause: str) -> tuple[int, str]:
    """How many histories of a clause it takes to see it violated, and the name of the last."""
    finding = certify(target, only=[clause], runs=None, call_timeout=5.0).findings[0]
    assert finding.clause == clause, target
    plans = writers_plans(0, target_of(target).capabilities)
    names = [plan.name for plan in plans if plan.clause == clause]
    return names.index(finding.case) + 1, finding.case


def store_class(target: str) -> Any:
    """The class behind a target, whose name the decorator gave to its factory."""
    factory: Any = target_of(target).factory
    return next(cell.cell_contents for cell in factory.__closure__)


def row(target: str, clause: str) -> str:
    told = " ".join(store_class(target).__doc__.split()).removesuffix(".")
    if target in io_errors.ZOO:
        struck = first_struck(target, clause)
        assert struck is not None, target
        model = "file taken" if struck.fault is None else "I/O error"
        model += "" if struck.crash is None else f" then {struck.crash.model}"
        return (
            f"| `{name_of(target)}` | {told} | {clause} | {struck.runs_until_found} | "
            f"{struck.plan} | {model} |"
        )
    if target in writers.ZOO:
        count, name = caught_among_writers(target, clause)
        return f"| `{name_of(target)}` | {told} | {clause} | {count} | {name} | several writers |"
    finding = first_finding(target, clause)
    assert finding is not None, target
    model = " then ".join(crash.model for crash in finding.chain) or "device fault"
    images = finding.images_until_found
    return f"| `{name_of(target)}` | {told} | {clause} | {images} | {finding.plan} | {model} |"


def main(names: list[str]) -> None:
    old = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    kept = {match["name"]: line for line in old.splitlines() if (match := _ROW.match(line))}
    lines = []
    for target, clause in ZOO.items():
        name = name_of(target)
        if names and name not in names and name in kept:
            lines.append(kept[name])
        else:
            lines.append(row(target, clause))
    PAGE.write_text(HEAD + "\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
