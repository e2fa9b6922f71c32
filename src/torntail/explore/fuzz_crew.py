"""The worker processes of a fuzzing campaign, and what becomes of them.

Decides when a worker is taken for hung. Does not decide how one is started and ended
(`worker_process`), what a message means or whether a lost worker is followed by another (`fuzz`).
"""

from __future__ import annotations

import selectors
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from torntail.explore.fuzz_messages import FuzzMessage, FuzzOrder, FuzzReport, from_line, to_line
from torntail.explore.room import SCRATCH_VARIABLE
from torntail.explore.worker_process import WorkerProcess

__all__ = ["FuzzWorker", "listen"]

_LOOK_SECONDS: Final = 0.25
_OWN_SECONDS: Final = 60.0


class FuzzWorker(WorkerProcess[FuzzMessage, FuzzReport]):
    """A worker of a fuzzing campaign."""

    def __init__(self, number: int, order: FuzzOrder, hang_seconds: float) -> None:
        self.number = number
        self.order = order
        self.hang_seconds = hang_seconds
        # What it makes there goes with the campaign's own, even if it is killed.
        environment = {SCRATCH_VARIABLE: order.scratch}
        super().__init__("torntail.explore.fuzz_worker", to_line(order), FuzzReport(), environment)

    def decoded(self, line: bytes) -> FuzzMessage:
        """As in `WorkerProcess`."""
        return from_line(line, FuzzMessage)

    def told(self, message: FuzzMessage) -> tuple[str | None, FuzzReport | None]:
        """As in `WorkerProcess`."""
        return message.error, message.report

    @property
    def hangs(self) -> bool:
        """Whether nothing has come back from the store for too long."""
        # Between calls it draws, judges, or reads sources for constants: that is not the store's.
        patience = self.hang_seconds if self.report.busy else self.hang_seconds + _OWN_SECONDS
        return time.monotonic() - self.moved_at > patience

    def close(self) -> None:
        """Ends it, and lets go of its pipes and files."""
        self.end()
        super().close()

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
