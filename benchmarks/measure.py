"""Timing two ways of doing the same thing in turn, and the record of what came out."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Measured:
    """One line of the report: a value against its floor, and the bar it is held to, if any.

    `bar` is the largest ratio allowed; `met` is None where there is no bar or it does not apply.
    """

    subject: str
    name: str
    unit: str
    value: float
    floor: float
    rounds: int
    bar: float | None = None
    applies: bool = True
    note: str = ""

    @property
    def ratio(self) -> float:
        return self.value / self.floor if self.floor else float("inf")

    @property
    def met(self) -> bool | None:
        return None if self.bar is None or not self.applies else self.ratio <= self.bar

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "ratio": self.ratio, "met": self.met}


def best_of(
    rounds: int, repeats: int, floor: Callable[[], object], subject: Callable[[], object]
) -> tuple[float, float]:
    """The best time of one call each; taken in turn, so that noise falls on both alike.

    The garbage collector is left as the caller has it, but begins each round with a clean slate.
    """
    best = [float("inf"), float("inf")]
    for _ in range(rounds):
        for index, action in enumerate((floor, subject)):
            gc.collect()
            begun = time.perf_counter()
            for _ in range(repeats):
                kept = action()
            best[index] = min(best[index], (time.perf_counter() - begun) / repeats)
            del kept
    return best[0], best[1]


def medians(
    rounds: int, floor: Callable[[int], object], subject: Callable[[int], object]
) -> tuple[float, float]:
    """The median time of one call each, in turn, the order changing: for what waits on a disk."""
    times: tuple[list[float], list[float]] = ([], [])
    actions = (floor, subject)
    for number in range(rounds):
        for index in (0, 1) if number % 2 else (1, 0):
            begun = time.perf_counter()
            actions[index](number)
            times[index].append(time.perf_counter() - begun)
    return statistics.median(times[0]), statistics.median(times[1])


def file_system(directory: Path) -> str:
    """The type of the file system a directory is on, or `unknown`."""
    found = (-1, "unknown")
    resolved = directory.resolve()
    try:
        mounts = Path("/proc/self/mounts").read_text().splitlines()
    except OSError:
        return "unknown"
    for line in mounts:
        _, mounted_on, kind, *_ = line.split()
        place = Path(mounted_on.encode().decode("unicode_escape"))
        if resolved.is_relative_to(place) and len(place.parts) >= found[0]:
            found = (len(place.parts), kind)
    return found[1]
