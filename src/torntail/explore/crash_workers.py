"""Worker processes that let a store loose on disks, and what becomes of them.

Decides when a worker is over, when it is taken for hung, and in which words its loss is told. Its
scratch space stands in that of the caller. Does not decide how one is started and ended
(`worker_process`), what is worked on (`crash_campaign`) or what a message means.
"""

from __future__ import annotations

import selectors
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from torntail.explore.crash_shard import ShareReport
from torntail.explore.crash_worker import Message, WorkOrder
from torntail.explore.worker_process import WorkerProcess

__all__ = ["Crew", "hang_reason"]

_LOOK_SECONDS: Final = 0.5


def hang_reason(seconds: float) -> str:
    """How a call that does not come back is told."""
    return f"a call had not returned after {seconds:g} s"


class _Worker(WorkerProcess[Message, ShareReport]):
    """A worker of a crash campaign."""

    def __init__(self, order: WorkOrder) -> None:
        line = msgspec.json.encode(order)
        super().__init__("torntail.explore.crash_worker", line, ShareReport(), {})

    def decoded(self, line: bytes) -> Message:
        return msgspec.json.decode(line, type=Message)

    def told(self, message: Message) -> tuple[str | None, ShareReport | None]:
        return message.error, message.report

    def is_done(self) -> bool:
        """Whether it has said that nothing is left to do."""
        return self.report.done


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
