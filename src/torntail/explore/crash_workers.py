"""Worker processes that let a store loose on disks, and what becomes of them.

Decides how a worker is started, heard and ended, when it is taken for hung, and in which words its
loss is told. Whatever a worker leaves behind, children of the store included, is killed with it,
and its scratch space stands in that of the caller. Does not decide what is worked on
(`crash_campaign`) or what a message means.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import msgspec

from torntail.explore.crash_shard import ShareReport
from torntail.explore.crash_worker import Message, WorkOrder

__all__ = ["Crew", "hang_reason"]

_LOOK_SECONDS: Final = 0.5


def hang_reason(seconds: float) -> str:
    """How a call that does not come back is told."""
    return f"a call had not returned after {seconds:g} s"


class _Worker:
    """One worker process and what was heard of it."""

    def __init__(self, order: WorkOrder) -> None:
        # A file, since a store may print without end and nobody reads along.
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115
        # The caller's modules must be found by name in the worker, too.
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "torntail.explore.crash_worker"],
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
            self.process.stdin.write(msgspec.json.encode(order) + b"\n")
            self.process.stdin.close()
        self.output = self.process.stdout
        os.set_blocking(self.output.fileno(), False)
        self.buffer = b""
        self.moved = -1
        self.moved_at = time.monotonic()
        self.report = ShareReport()
        self.error: str | None = None

    def messages(self) -> tuple[list[Message], bool]:
        """What it wrote since, and whether there may be more at once."""
        try:
            chunk = os.read(self.output.fileno(), 1 << 20)
        except BlockingIOError:
            return [], False
        *lines, self.buffer = (self.buffer + chunk).split(b"\n")
        messages = [msgspec.json.decode(line, type=Message) for line in lines]
        for message in messages:
            self.error = message.error or self.error
            if message.report is not None:
                self.report = message.report
                if message.report.moved != self.moved:
                    self.moved, self.moved_at = message.report.moved, time.monotonic()
        return messages, bool(chunk)

    def is_done(self) -> bool:
        """Whether it has said that nothing is left to do."""
        return self.report.done

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


@dataclass(slots=True)
class Crew:
    """Workers, one for each order, and how their loss is told.

    `hear` gets each message with the number of its order, `lost` the number, the last report and
    the reason when a worker hung or died before it was done, `error` what went wrong in one apart
    from the store; `beat` is called now and then, and ends all when it says so.
    """

    hear: Callable[[int, Message], None]
    lost: Callable[[int, ShareReport, str], None]
    error: Callable[[str], None]
    beat: Callable[[], bool]
    hang_seconds: float
    _workers: dict[int, _Worker] = field(default_factory=dict)

    def work(self, orders: Sequence[WorkOrder]) -> None:
        """Works until each order is done, or lost; no worker is left, whatever happens."""
        selector = selectors.DefaultSelector()
        try:
            for number, order in enumerate(orders):
                worker = self._workers[number] = _Worker(order)
                selector.register(worker.output, selectors.EVENT_READ, number)
            while self._workers:
                for key, _ in selector.select(timeout=_LOOK_SECONDS):
                    self._listen(key.data)
                for number, worker in list(self._workers.items()):
                    if self._is_over(number, worker):
                        selector.unregister(worker.output)
                        del self._workers[number]
                        worker.close()
                if self.beat():
                    return
        finally:
            for worker in self._workers.values():
                worker.end()
                worker.close()
            self._workers.clear()
            selector.close()

    def _listen(self, number: int) -> bool:
        """Passes on what a worker wrote; false when there is no more of it for now."""
        messages, more = self._workers[number].messages()
        for message in messages:
            self.hear(number, message)
        return more

    def _is_over(self, number: int, worker: _Worker) -> bool:
        """Whether a worker is done or lost; says so and ends it."""
        if worker.is_done():
            worker.end()  # Threads of the store may keep it from ending by itself.
            return True
        if worker.process.poll() is not None:
            # Its output need not end with it: a child of the store may hold it open.
            while self._listen(number):
                pass
            code = worker.end()
            if worker.is_done():
                return True
            if worker.error is not None:
                self.error(worker.error)
                return True
            how = f"killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
            self.lost(number, worker.report, f"the store's process was {how}")
            return True
        if time.monotonic() - worker.moved_at > self.hang_seconds:
            worker.end()
            self.lost(number, worker.report, hang_reason(self.hang_seconds))
            return True
        return False
