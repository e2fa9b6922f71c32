"""What fuzzing costs: distinct disks of the JSONL store in a minute, and Hypothesis's part of it.

`images`: seconds for each distinct disk on all cores, against the 100,000 that are asked of a
minute on two. `drawing`: the processor time that goes into drawing plans and into the rules that
write them, against all of it. TORNTAIL_FUZZ_SECONDS shortens the minute.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from benchmarks.measure import Measured
from torntail.explore.fuzz import fuzz

IMAGES_A_MINUTE = 100_000


def run(folder: Path) -> Iterator[Measured]:
    del folder  # Disks are held in memory.
    seconds = float(os.environ.get("TORNTAIL_FUZZ_SECONDS", "60"))
    cores = min(os.cpu_count() or 1, 2)
    result = fuzz("jsonl", seed=1, max_time_seconds=seconds, workers=cores)
    total = result.total
    yield Measured(
        subject="fuzz",
        name=f"JSONL store fuzzed for {result.seconds:.0f} s on {cores} core(s): "
        f"{total.distinct} distinct images of {total.plans} plans, {result.rate:.0f} a second",
        unit="s",
        value=result.seconds / max(total.distinct, 1),
        floor=60 / IMAGES_A_MINUTE,
        rounds=1,
        bar=1.0,
        note=f"floor is the time allowed an image; {total.seconds:.1f} s of processor time, "
        f"{total.distinct / max(total.seconds, 1e-9):.0f} images for each second of it; "
        f"{len(result.findings)} finding(s)",
    )
    yield Measured(
        subject="fuzz",
        name="drawing plans, with the rules that write them, of all processor time",
        unit="s",
        value=total.seconds - total.trial_seconds - total.shrinking_seconds,
        floor=total.seconds,
        rounds=1,
        bar=0.5,
    )
