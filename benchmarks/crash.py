"""What crashing costs: how many disks, how fast, and which stage takes how much of it.

`peers`: the workload that other crash testers were measured on (34 file operations: a header by
temporary file, fsync and rename, then 20 lines of about 104 bytes appended one at a time, an fsync
after each five). Every distinct directory is worked out, put on a memory file system and checked.

`harness`: a log of about 3 KB under a store that only reads and parses, against reading and parsing
the same images; what is above the floor is the harness itself. `judged`: the same plans under the
JSONL store, with second load, list and continuation where due, and the share of each stage.

`growth`: what a further operation costs in a long plan, against a short one.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, Self

import orjson

from benchmarks.measure import Measured
from torntail.crash.crashes import Images, moments
from torntail.crash.disk import Disk, DiskImage, Model
from torntail.crash.oplog import (
    ROOT,
    Acknowledged,
    CreateFile,
    Operation,
    Rename,
    SyncDirectory,
    SyncFile,
    Write,
)
from torntail.drive.target import target_of
from torntail.explore.crash_calls import CrashCalls
from torntail.explore.crash_expansion import Expansion
from torntail.explore.crash_run import CrashRun, Limits
from torntail.explore.crash_search import PlanSearch
from torntail.explore.crash_shard import Share, ShareReport, crash_share
from torntail.explore.script import Case, Script
from torntail.record.install import standing
from torntail.record.scratch import Scratch
from torntail.record.slots import Slot

MODELS: tuple[Model, ...] = ("kill", "ordered", "posix")
ROUNDS = 5
GROWTH = (50, 200, 800)
SAMPLED_IMAGES = 50


def run(folder: Path) -> Iterator[Measured]:
    yield _peers()
    yield from _harness()
    yield from _judged()
    yield _growth()


# --- the peers' workload ------------------------------------------------------------------------


def peers_log() -> list[Operation]:
    """The 34 operations of the workload, with its acknowledgements."""
    header = b'{"type":"session","version":0,"id":"s","createdAt":0}\n'
    log: list[Operation] = [
        CreateFile(ROOT, "log.tmp", 1),
        Write(1, 0, header),
        SyncFile(1),
        Rename(ROOT, "log.tmp", ROOT, "log"),
        SyncDirectory(ROOT),
    ]
    offset = len(header)
    for number in range(20):
        line = json.dumps({"type": "note", "seq": number, "time": 0, "data": "x" * 58}).encode()
        log.append(Write(1, offset, line + b"\n"))
        offset += len(line) + 1
        if number % 5 == 4:
            log += [SyncFile(1), Acknowledged(number // 5)]
    return log


def distinct_images(log: list[Operation]) -> Iterator[DiskImage]:
    """Every distinct directory the three models leave."""
    seen: set[int] = set()
    for model in MODELS:
        since = None
        images = Images(model)
        for moment in moments(Disk(model), log, tears="all" if model == "kill" else "synced"):
            for left in images.at(moment, since=since):
                if left.key not in seen:
                    seen.add(left.key)
                    yield left.image
            if moment.torn is None:
                since = moment.disk


def _peers() -> Measured:
    log = peers_log()
    best, count = float("inf"), 0
    with Scratch() as scratch, Slot(scratch) as slot:
        path = Path(slot.path) / "log"
        for _ in range(ROUNDS):
            begun = time.perf_counter()
            count = 0
            for image in distinct_images(log):
                slot.hold(image)
                _check(path, image)
                count += 1
            best = min(best, time.perf_counter() - begun)
    return Measured(
        subject="crash",
        name=f"peers' workload: {count} distinct directories (ALICE: 423), all checked",
        unit="s",
        value=best,
        floor=0.1,
        rounds=ROUNDS,
        bar=1.0,
        note="floor is the time allowed; ALICE takes 38 s",
    )


def _check(path: Path, image: DiskImage) -> None:
    """What the peers' checker does: reads the log and parses each whole line."""
    if "log" in image.files:
        for line in path.read_bytes().split(b"\n")[:-1]:
            try:
                orjson.loads(line)
            except ValueError:
                return


# --- the harness and a judged store -------------------------------------------------------------


def _images_of_a_log() -> list[DiskImage]:
    """Images of a log of about 3 KB, as a crash campaign makes them."""
    log: list[Operation] = [CreateFile(ROOT, "log", 1)]
    offset = 0
    for number in range(24):
        line = json.dumps({"type": "note", "seq": number, "time": 0, "data": "y" * 80}).encode()
        log.append(Write(1, offset, line + b"\n"))
        offset += len(line) + 1
        if number % 3 == 2:
            log.append(SyncFile(1))
    return list(distinct_images(log))


def _harness() -> Iterator[Measured]:
    images = _images_of_a_log()
    floor = generated = held = float("inf")
    with Scratch() as scratch, Slot(scratch) as slot:
        path = Path(slot.path) / "log"
        slot.hold(DiskImage({"log": b"z" * 3000}, frozenset()))
        contents = [image.files.get("log", b"") for image in images]
        for _ in range(ROUNDS):
            begun = time.perf_counter()
            for _ in images:
                with open(path, "rb") as file:
                    file.read()
            reading = time.perf_counter() - begun
            begun = time.perf_counter()
            for content in contents:
                _parse(content)
            floor = min(floor, reading + time.perf_counter() - begun)
            begun = time.perf_counter()
            _images_of_a_log()
            generated = min(generated, time.perf_counter() - begun)
            begun = time.perf_counter()
            for image in images:
                slot.hold(image, untouched=True)
                slot.changed()
            held = min(held, time.perf_counter() - begun)
    count = len(images)
    yield Measured(
        subject="crash",
        name=f"harness alone, {count} images of about 3 KB: generated and held",
        unit="s",
        value=(generated + held) / count,
        floor=floor / count,
        rounds=ROUNDS,
        bar=3.0,
        note=f"generating {generated / (generated + held):.0%}, holding and looking for changes "
        f"{held / (generated + held):.0%}; {count / (generated + held + floor):.0f} images a "
        "second with a store that only reads and parses",
    )


def _parse(content: bytes) -> None:
    for line in content.split(b"\n")[:-1]:
        try:
            orjson.loads(line)
        except ValueError:
            return


def _judged() -> Iterator[Measured]:
    best = float("inf")
    report = ShareReport()
    # As in the workers of a campaign, which put the recorder's wrappers in place once.
    with Scratch() as scratch, Slot(scratch) as slot, standing():
        for _ in range(ROUNDS):
            begun = time.perf_counter()
            report = _crash_jsonl(slot)
            best = min(best, time.perf_counter() - begun)
        with Stages() as stages:
            _crash_jsonl(slot)
        shares = ", ".join(
            f"{name} {seconds / sum(stages.seconds.values()):.0%}"
            for name, seconds in stages.seconds.items()
        )
    yield Measured(
        subject="crash",
        name=f"JSONL store, {report.images} images fully judged: "
        f"{report.images / best:.0f} images a second",
        unit="s",
        value=best / report.images,
        floor=1 / 2_500,
        rounds=ROUNDS,
        bar=1.0,
        note="floor is the time allowed an image; one equal to another is not loaded again, but "
        "judged by what was owed at its own moment",
    )
    yield Measured(
        subject="crash",
        name=f"the same by the {report.distinct} of them that are distinct, and were loaded: "
        f"{report.distinct / best:.0f} a second",
        unit="s",
        value=best / report.distinct,
        floor=1 / 2_500,
        rounds=ROUNDS,
        note=shares,
    )


def _crash_jsonl(slot: Slot) -> ShareReport:
    """Crashes the JSONL store until so many images were loaded."""
    return crash_share(
        target_of("jsonl"),
        Share(models=MODELS, seed=0, images=2_000),
        slot=slot,
        found=lambda finding: None,
        tick=lambda report: None,
    )


class Stages:
    """Processor time by stage while it is entered: the functions of each stage are wrapped.

    What is called by a function of another stage counts for its own stage; what is in none, for
    `generating`, which is all that is left of the walk over the moments.
    """

    FUNCTIONS: Final[tuple[tuple[str, type, str], ...]] = (
        ("recording", CrashCalls, "record"),
        ("holding", CrashCalls, "hold"),
        ("the store's own load", CrashCalls, "load_all"),
        ("looking for changes", CrashCalls, "left"),
        ("following", CrashCalls, "follow"),
        ("judging", PlanSearch, "one"),
        ("judging", PlanSearch, "recovery"),
        ("judging", Expansion, "_judge"),
        ("judging", Expansion, "_count"),
    )

    def __init__(self) -> None:
        self.seconds = {"generating": 0.0} | {stage: 0.0 for stage, _, _ in self.FUNCTIONS}
        self._open = ["generating"]
        self._since = 0.0
        self._originals: list[tuple[type, str, Any]] = []

    def __enter__(self) -> Self:
        for stage, owner, name in self.FUNCTIONS:
            original = getattr(owner, name)
            self._originals.append((owner, name, original))
            setattr(owner, name, self._timed(stage, original))
        self._since = time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        self._settle()
        for owner, name, original in self._originals:
            setattr(owner, name, original)

    def _settle(self) -> None:
        now = time.process_time()
        self.seconds[self._open[-1]] += now - self._since
        self._since = now

    def _timed(self, stage: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*arguments: Any) -> Any:
            self._settle()
            self._open.append(stage)
            try:
                return original(*arguments)
            finally:
                self._settle()
                self._open.pop()

        return timed


# --- growth -------------------------------------------------------------------------------------


def _growth() -> Measured:
    """What a further operation costs in a long plan, against what it costs in a short one.

    One session is appended to in half turns. All plans are in the sampled mode: of each, the same
    number of images is loaded, which is less than the shortest one has. What that costs is in the
    difference of two plans no more.
    """
    short, middle, long = GROWTH
    costs: dict[int, float] = {}
    with Scratch() as scratch, Slot(scratch) as slot:
        for operations in GROWTH:
            costs[operations] = min(_cost_of_a_plan(slot, operations) for _ in range(2))
    told = ", ".join(f"{cost / count * 1e3:.2f} ms of {count}" for count, cost in costs.items())
    return Measured(
        subject="crash",
        name=f"a further operation in a plan of {middle} to {long}, against {short} to {middle}",
        unit="s",
        value=(costs[long] - costs[middle]) / (long - middle),
        floor=(costs[middle] - costs[short]) / (middle - short),
        rounds=2,
        bar=1.5,
        note=f"an operation costs, the sampled loads shared out among all: {told}",
    )


def _cost_of_a_plan(slot: Slot, operations: int) -> float:
    """Processor seconds for a plan of so many operations."""
    target = target_of("jsonl")
    script = Script(f"growth/{operations}", target.capabilities)
    log = script.session()
    while len(script.operations) < operations:
        log.append("TS U SS" if len(script.operations) % 2 else "A SE TE")
    run = CrashRun(
        target,
        slot,
        MODELS,
        limits=Limits(images=SAMPLED_IMAGES, nested_images=SAMPLED_IMAGES // 10),
        found=lambda violation: None,
    )
    begun = time.process_time()
    run.run(Case(f"growth-{operations}", (), tuple(script.operations)))
    return time.process_time() - begun
