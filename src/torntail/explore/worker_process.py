"""A worker process that is let loose on a store, and how it is started, heard and ended.

Whatever it leaves behind, children of the store included, is killed with it. Does not decide what
is worked on, what a message means or when a worker hangs (`crash_workers`, `fuzz_crew`).
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from typing import Generic, Protocol, TypeVar

__all__ = ["WorkerProcess"]


class _Report(Protocol):
    @property
    def moved(self) -> int: ...
    @property
    def done(self) -> bool: ...


ReportType = TypeVar("ReportType", bound=_Report)
MessageType = TypeVar("MessageType")


class WorkerProcess(ABC, Generic[MessageType, ReportType]):
    """One worker process and what was heard of it.

    `moved_at` is when its report last told of work done, in seconds of the monotonic clock.
    """

    def __init__(
        self, module: str, order: bytes, report: ReportType, environment: Mapping[str, str]
    ) -> None:
        # A file, since a store may print without end and nobody reads along.
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115
        # The caller's modules must be found by name in the worker, too.
        path = os.pathsep.join(filter(None, sys.path))
        self.process = subprocess.Popen(
            [sys.executable, "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            env={**os.environ, "PYTHONPATH": path, **environment},
            # A group of its own: Ctrl-C is for the campaign, and what the store forked ends with
            # its worker.
            start_new_session=True,
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with suppress(BrokenPipeError):
            self.process.stdin.write(order + b"\n")
            self.process.stdin.close()
        self.output = self.process.stdout
        os.set_blocking(self.output.fileno(), False)
        self.buffer = b""
        self.moved = -1
        self.moved_at = time.monotonic()
        self.report = report
        self.error: str | None = None

    @abstractmethod
    def decoded(self, line: bytes) -> MessageType:
        """One line that it wrote."""

    @abstractmethod
    def told(self, message: MessageType) -> tuple[str | None, ReportType | None]:
        """The error and the report of a message."""

    def messages(self) -> tuple[list[MessageType], bool]:
        """What it wrote since, and whether there may be more at once."""
        try:
            chunk = os.read(self.output.fileno(), 1 << 20)
        except BlockingIOError:
            return [], False
        *lines, self.buffer = (self.buffer + chunk).split(b"\n")
        messages = [self.decoded(line) for line in lines]
        for message in messages:
            error, report = self.told(message)
            self.error = error or self.error
            # A beat that waited while the last report was written tells an older state, in which
            # the work is not done: a worker that ends then would be taken for lost.
            if report is not None and not self.report.done:
                self.report = report
                if report.moved != self.moved:
                    self.moved, self.moved_at = report.moved, time.monotonic()
        return messages, bool(chunk)

    def end(self) -> int:
        """Kills it with all it has started; gives its exit code, negative for a signal."""
        code = self.process.poll()
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        final = self.process.wait()
        return final if code is None else code

    def close(self) -> None:
        """Lets go of its pipes and files."""
        self.output.close()
        self.errors.close()
