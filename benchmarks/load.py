"""A strict load against `[orjson.loads(l) for l in lines]` over bytes already in memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import orjson

from benchmarks.events import write_log
from benchmarks.measure import Measured, best_of
from torntail.stores.jsonl import JsonlStore
from torntail.stores.paths import NO_CWD_BUCKET

BAR = 2.0
# Two ratios of one run differ by about this much without any cause.
NOISE = 1.1
SIZES = {
    "3 KB": {"size": 3 << 10, "rounds": 5, "repeats": 300},
    "300 KB": {"size": 300 << 10, "rounds": 5, "repeats": 20},
    "30 MB": {"size": 30 << 20, "rounds": 5, "repeats": 1},
    "1,000,000 events": {"events": 1_000_000, "rounds": 3, "repeats": 1},
}


def run(directory: Path) -> Iterator[Measured]:
    bucket = directory / NO_CWD_BUCKET
    bucket.mkdir()
    base = None
    for name, plan in SIZES.items():
        path = bucket / "s.jsonl"
        events, size = write_log(path, "s", events=plan.get("events", 0), size=plan.get("size", 0))
        lines = path.read_bytes().split(b"\n")[1:-1]
        with JsonlStore(directory) as store:
            floor, value = best_of(
                plan["rounds"],
                plan["repeats"],
                lambda lines=lines: [orjson.loads(line) for line in lines],
                lambda store=store: store.load("s").events,
            )
        del lines
        found = Measured(
            "load",
            f"JSONL strict load, {name} ({events} events, {size} bytes)",
            "s",
            value,
            floor,
            plan["rounds"],
            None if name == "3 KB" else BAR,
        )
        yield found
        if name == "300 KB":
            base = found.ratio
        if base is not None and "events" in plan:
            yield Measured(
                "load",
                f"ratio at a million events against the one at 300 KB (noise {NOISE - 1:.0%})",
                "×",
                found.ratio,
                base,
                plan["rounds"],
                NOISE,
            )
        path.unlink()
