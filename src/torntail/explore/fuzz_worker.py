"""The process that fuzzes a store: a share of the plans, in a process that may die of it.

Reads one line on standard input that says what to do, writes lines on what was standard output, and
puts down each call in a file before it makes it, so that a store that takes the process along can
be told with what was done to it. Whatever the store prints goes to standard error. Decides nothing;
see `fuzz_share`.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import msgspec

from torntail.explore.fuzz_bench import Trail
from torntail.explore.fuzz_finding import FuzzFinding
from torntail.explore.fuzz_messages import (
    CorpusPlan,
    FuzzMessage,
    FuzzOrder,
    FuzzReport,
    TrailLine,
    from_line,
    to_line,
)
from torntail.explore.room import told
from torntail.judge.history import Operation
from torntail.record.install import install

__all__ = ["FileTrail", "main", "read_trail"]

_BEAT_SECONDS: Final = 0.25


class FileTrail(Trail):
    """A trail in a file, one line a call of the plan that is tried."""

    def __init__(self, path: str) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        self._descriptor = os.open(path, flags, 0o600)

    def begin(self) -> None:
        """Another plan."""
        os.ftruncate(self._descriptor, 0)
        os.lseek(self._descriptor, 0, os.SEEK_SET)

    def about_to(self, operation: Operation) -> None:
        """A call is about to be made."""
        os.write(self._descriptor, to_line(TrailLine(operation=operation)) + b"\n")

    def crashing(self) -> None:
        """From here on crashed disks of the plan are loaded."""
        os.write(self._descriptor, to_line(TrailLine(crashing=True)) + b"\n")


def read_trail(path: Path) -> tuple[tuple[Operation, ...], bool]:
    """The calls of the plan a process was lost with, and whether it was loading crashed disks."""
    operations: list[Operation] = []
    crashing = False
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError:
        return (), False
    for line in lines[:-1]:
        try:
            told = from_line(line, TrailLine)
        except ValueError:
            break
        crashing = crashing or told.crashing
        if told.operation is not None:
            operations.append(told.operation)
    return tuple(operations), crashing


class _Channel:
    """Lines to the campaign, from the thread that works and the one that beats."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lock = threading.Lock()
        self._report: FuzzReport | None = None
        self._busy = False
        self._write = os.write  # The recorder's wrapper is not for this.
        threading.Thread(target=self._beat, daemon=True).start()

    def send(self, message: FuzzMessage) -> None:
        """Writes one line whole."""
        line = to_line(message) + b"\n"
        with self._lock:
            view = memoryview(line)
            while view:
                view = view[self._write(self._descriptor, view) :]

    def update(self, report: FuzzReport) -> None:
        """Keeps the newest state for the next beat; the store has come back.

        The end of a plan is told at once.
        """
        before, self._report = self._report, report
        self._busy = False
        if before is None or before.plans != report.plans:
            self.send(FuzzMessage(report=report))

    def called(self) -> None:
        """The store is let loose on a disk, or called."""
        self._busy = True

    def _beat(self) -> None:
        timer = threading.Event()
        while not timer.wait(_BEAT_SECONDS):
            report = self._report
            if report is not None:
                try:
                    busy = msgspec.structs.replace(report, busy=self._busy)
                    self.send(FuzzMessage(report=busy))
                except OSError:
                    # Nobody listens any more: the campaign was killed, and this goes with it.
                    os._exit(1)


def main() -> None:
    """Runs one order to its end."""
    order = from_line(sys.stdin.buffer.readline().removesuffix(b"\n"), FuzzOrder)
    channel = _Channel(os.dup(1))
    os.dup2(2, 1)
    # Before the store's module is imported, so that a name bound early is a wrapped one.
    install()
    from torntail.drive.target import target_of
    from torntail.explore.fuzz_bench import new_bench
    from torntail.explore.fuzz_share import fuzz_share

    def found(finding: FuzzFinding) -> None:
        channel.send(FuzzMessage(finding=finding))

    def interesting(plan: CorpusPlan) -> None:
        channel.send(FuzzMessage(interesting=plan))

    try:
        target = target_of(
            order.target, capabilities=order.capabilities, durability=order.durability
        )
        with ExitStack() as stack:
            bench = new_bench(
                target,
                stack,
                models=order.share.models,
                found=found,
                call_timeout=order.call_timeout,
                seed=order.share.seed,
                images=order.share.images,
                began=channel.called,
                trail=FileTrail(order.trail),
            )
            # What is there by now stays; collecting it again and again costs more than it frees.
            gc.collect()
            gc.freeze()
            report = fuzz_share(
                bench,
                order.share,
                found=found,
                interesting=interesting,
                tick=channel.update,
                note=lambda text: channel.send(FuzzMessage(note=text)),
            )
            channel.send(FuzzMessage(report=report))
    except Exception as error:
        channel.send(FuzzMessage(error=told(error)))
        raise


if __name__ == "__main__":
    main()
