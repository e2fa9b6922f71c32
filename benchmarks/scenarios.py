"""How long the whole corpus takes to replay on the JSONL store."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.measure import Measured
from torntail.scenarios.batch import replay_files
from torntail.scenarios.files import find_scenarios
from torntail.scenarios.worker import ReplayOrder

CORPUS = Path(__file__).parents[1] / "fault-scenarios"
MOST_SECONDS = 10.0


def run(folder: Path) -> Iterator[Measured]:
    """The best of two runs, against ten seconds; `folder` is not used, disks are in memory."""
    paths = tuple(map(str, find_scenarios([CORPUS])))
    best = float("inf")
    note = ""
    for _ in range(2):
        before = _processor_seconds()
        began = time.perf_counter()
        results = replay_files(ReplayOrder(paths=paths))
        seconds = time.perf_counter() - began
        fixed = sum(one.replay is not None and one.replay.status == "fixed" for one in results)
        images = sum(one.replay.images for one in results if one.replay is not None)
        if seconds < best:
            best = seconds
            note = (
                f"{fixed} of {len(paths)} scenarios hold, {images} disks loaded, "
                f"{_processor_seconds() - before:.1f} s of processor time"
            )
    yield Measured(
        subject="scenarios",
        name="replaying the corpus on jsonl",
        unit="s",
        value=best,
        floor=MOST_SECONDS,
        rounds=2,
        bar=1.0,
        note=note,
    )


def _processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
