"""A traced writer against the same writer alone: what it costs to see every file operation.

Both begin with the start of an interpreter; the traced run also starts the helper that traces, and
ends with the log in hand. The bar is on wall time, where the files are on a disk: there the writer
waits for its fsyncs either way. Processor time, on any file system, is reported beside it.
"""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.measure import Measured, file_system, medians
from torntail.record.traced.linux import unavailable
from torntail.record.traced.process import TracedProcess

APPENDS = 200
RECORD_BYTES = 300
SYNC_EVERY = 10
ROUNDS = 15
BAR = 3.5
OPERATIONS = 1 + APPENDS + APPENDS // SYNC_EVERY

WRITER = f"""
import os, sys
log = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
line = b"x" * {RECORD_BYTES - 1} + b"\\n"
for number in range(1, {APPENDS} + 1):
    os.write(log, line)
    if number % {SYNC_EVERY} == 0:
        os.fsync(log)
"""


def run(directory: Path) -> Iterator[Measured]:
    if unavailable() is not None:
        return
    kind = file_system(directory)
    on_disk = kind != "tmpfs"
    processor: dict[str, list[float]] = {"alone": [], "traced": []}

    def command(name: str, number: int) -> tuple[list[str], Path]:
        root = directory / f"{name}-{number}"
        root.mkdir()
        return [sys.executable, "-c", WRITER, str(root / "log")], root

    def alone(number: int) -> None:
        argv, _ = command("alone", number)
        processor["alone"].append(_processor_seconds(lambda: subprocess.run(argv, check=True)))

    def traced(number: int) -> None:
        argv, root = command("traced", number)

        def record() -> None:
            with TracedProcess(argv, root=root, stdin=False, stdout=False) as process:
                process.wait()
                assert len(process.operations) == OPERATIONS

        processor["traced"].append(_processor_seconds(record))

    floor, value = medians(ROUNDS, alone, traced)
    what = f"a traced Python writer, {APPENDS} appends of {RECORD_BYTES} B, an fsync every "
    what += f"{SYNC_EVERY}, with all starts"
    yield Measured(
        "traced",
        f"{what} (wall time, on {kind})",
        "s",
        value,
        floor,
        ROUNDS,
        BAR,
        applies=on_disk,
        note="" if on_disk else "tmpfs: reported only",
    )
    yield Measured(
        "traced",
        f"{what} (processor time, all processes)",
        "s",
        statistics.median(processor["traced"]),
        statistics.median(processor["alone"]),
        ROUNDS,
    )


def _processor_seconds(action: Callable[[], object]) -> float:
    """What an action takes of processors, in this process and in children it has waited for."""

    def taken() -> float:
        usages = [
            resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
        ]
        return sum(usage.ru_utime + usage.ru_stime for usage in usages)

    before = taken()
    action()
    return taken() - before
