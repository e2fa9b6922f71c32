"""The worker processes of a fuzzing campaign, and what becomes of them.

Decides how a worker is started, heard and ended, and when it is taken for hung. What it leaves
behind, children of the store included, is killed with it. Does not decide what a message means or
whether a lost worker is followed by another (`fuzz`).
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from torntail.explore.fuzz_messages import FuzzMessage, FuzzOrder, FuzzReport, from_line, to_line
from torntail.explore.room import SCRATCH_VARIABLE

__all__ = ["FuzzWorker", "listen"]

_LOOK_SECONDS: Final = 0.25
_OWN_SECONDS: Final = 60.0


class FuzzWorker:
    """One worker process and what was heard of it."""

    def __init__(self, number: int, order: FuzzOrder, hang_seconds: float) -> None:
        self.number = number
        self.order = order
        self.hang_seconds = hang_seconds
        # A file, since a store may print without end and nobody reads along.
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115
        # The caller's modules must be found by name in the worker, too.
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            # What it makes there goes with the campaign's own, even if it is killed.
            SCRATCH_VARIABLE: order.scratch,
        }
        self.process = subprocess.Popen(
            [sys.executable, "-m", "torntail.explore.fuzz_worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            env=environment,
            # A group of its own: Ctrl-C is for the campaign, and what the store forked ends with
            # its worker.
            start_new_session=True,
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with suppress(BrokenPipeError):
            self.process.stdin.write(to_line(order) + b"\n")
            self.process.stdin.close()
        self.output = self.process.stdout
        os.set_blocking(self.output.fileno(), False)
        self.buffer = b""
        self.moved = -1
        self.moved_at = time.monotonic()
        self.report = FuzzReport()
        self.error: str | None = None

    def messages(self) -> tuple[list[FuzzMessage], bool]:
        """What it wrote since, and whether there may be more at once."""
        try:
            chunk = os.read(self.output.fileno(), 1 << 20)
        except BlockingIOError:
            return [], False
        *lines, self.buffer = (self.buffer + chunk).split(b"\n")
        messages = [from_line(line, FuzzMessage) for line in lines]
        for message in messages:
            self.error = message.error or self.error
            if message.report is not None:
                self.report = message.report
                if message.report.moved != self.moved:
                    self.moved, self.moved_at = message.report.moved, time.monotonic()
        return messages, bool(chunk)

    @property
    def hangs(self) -> bool:
        """Whether nothing has come back from the store for too long."""
        # Between calls it draws, judges, or reads sources for constants: that is not the store's.
        patience = self.hang_seconds if self.report.busy else self.hang_seconds + _OWN_SECONDS
        return time.monotonic() - self.moved_at > patience

    def end(self) -> int:
        """Kills it with all it has started; gives its exit code, negative for a signal."""
        code = self.process.poll()
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        final = self.process.wait()
        return final if code is None else code

    def close(self) -> None:
        """Ends it, and lets go of its pipes and files."""
        self.end()
        self.output.close()
        self.errors.close()

    @property
    def trail(self) -> Path:
        """The file in which it tells of each call."""
        return Path(self.order.trail)


def listen(workers: list[FuzzWorker]) -> Iterator[tuple[FuzzWorker, FuzzMessage]]:
    """What the workers write in a moment."""
    with selectors.DefaultSelector() as selector:
        for worker in workers:
            selector.register(worker.output, selectors.EVENT_READ, worker)
        for key, _ in selector.select(timeout=_LOOK_SECONDS):
            worker = key.data
            messages, _ = worker.messages()
            for message in messages:
                yield worker, message
