"""Crashing a store in the process of the campaign, for a target that no other process can import.

Decides how a call that hangs is interrupted here. A store that ends the process ends all of it, but
for what `drive.exits` holds back. Does not decide what is worked on (`crash_campaign`).
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Self

import msgspec

from torntail.drive.onlooker import HarnessError
from torntail.drive.target import Target
from torntail.explore.crash_loss import as_fatal
from torntail.explore.crash_result import CrashResult, WorkerLoss
from torntail.explore.crash_shard import CrashFinding, Share, ShareReport, crash_share
from torntail.explore.crash_shrink import smallest_history
from torntail.explore.crash_workers import hang_reason
from torntail.explore.device_shard import device_share
from torntail.explore.io_shard import IoFinding, io_share
from torntail.explore.room import scratch_base, told
from torntail.explore.surroundings import Outside, Surroundings
from torntail.record.foreign import foreign_syncs
from torntail.record.install import standing
from torntail.record.scratch import Scratch
from torntail.record.slots import Slot
from torntail.record.tree import ForeignEntry

__all__ = ["CallHung", "search_here", "shorten_here"]


def search_here(
    target: Target,
    share: Share,
    result: CrashResult,
    progress: Callable[[CrashResult], None],
    hang_seconds: float,
) -> None:
    """Runs a share, and puts what comes of it into the result."""
    found = result.findings.append
    try:
        with (
            standing(),
            _watched_slot(hang_seconds) as (slot, began),
            Surroundings() as surroundings,
            Outside(slot.path) as outside,
        ):

            def tick(report: ShareReport) -> None:
                surroundings.look()
                with outside.paused():
                    result.reports[share.shard] = report
                    progress(result)

            if share.io_runs:

                def found_io(finding: IoFinding) -> None:
                    result.io_findings[finding.cause] = finding

                report = io_share(target, share, slot=slot, found=found_io, tick=tick, began=began)
            elif share.devices:
                report = device_share(target, share, slot=slot, found=found, tick=tick)
            else:
                report = crash_share(target, share, slot=slot, found=found, tick=tick, began=began)
    except CallHung as error:
        reason = str(error)
        plan = result.reports[share.shard].plan if share.shard in result.reports else ""
        result.losses.append(WorkerLoss(plan, reason, bool(share.devices), bool(share.io_runs)))
        # What the judge was given in the place of an answer names the disk.
        result.findings[:] = [
            as_fatal(finding, CallHung, reason) if reason in finding.sentence else finding
            for finding in result.findings
        ]
    except (OSError, RuntimeError, HarnessError, ForeignEntry) as error:
        # Ours, not the store's: a full scratch space, a recorder that stands already.
        result.errors.append(told(error))
    else:
        result.reports[share.shard] = msgspec.structs.replace(
            report,
            outside=outside.first,
            habits=tuple(surroundings.habits),
            foreign=foreign_syncs(),
        )


def shorten_here(
    target: Target,
    findings: list[CrashFinding],
    seed: int,
    result: CrashResult,
    progress: Callable[[CrashResult], None],
    hang_seconds: float,
) -> None:
    """Makes the histories of findings small, until a call hangs or there is no room."""
    try:
        with (
            standing(),
            Scratch(scratch_base()) as scratch,
            Slot(scratch) as slot,
            _Alarm(hang_seconds) as began,
        ):
            for finding in findings:
                shorter = smallest_history(target, finding, seed=seed, slot=slot, began=began)
                result.keep_shortened(shorter)
                progress(result)
    except (CallHung, OSError, RuntimeError, HarnessError, ForeignEntry):
        return  # What was found stands, with the history it was found by.


@contextmanager
def _watched_slot(hang_seconds: float) -> Iterator[tuple[Slot, _Alarm]]:
    with Scratch(scratch_base()) as scratch, Slot(scratch) as slot, _Alarm(hang_seconds) as began:
        yield slot, began


class CallHung(BaseException):
    """Raised inside a call of the store that has not come back in time, and then at the next."""


class _Alarm:
    """A watchdog within this process: each call of it starts the time anew.

    Only the main thread can be interrupted; elsewhere nothing watches, and a store that may hang is
    better named by its module, so that worker processes crash it. A store that has hung once is not
    given another disk. One that takes the alarm for itself, and hangs then, takes the process with
    it.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._watches = threading.current_thread() is threading.main_thread()
        self._before: Any = None
        self._calls = 0
        self._over = threading.Event()
        self.reason: str | None = None

    def __call__(self) -> None:
        self._calls += 1
        if self.reason is not None:
            raise CallHung(self.reason)
        if self._watches:
            if signal.getsignal(signal.SIGALRM) != self._ring:
                signal.signal(signal.SIGALRM, self._ring)  # The store has taken it.
            signal.setitimer(signal.ITIMER_REAL, self._seconds, self._seconds)

    def __enter__(self) -> Self:
        if self._watches:
            self._before = signal.signal(signal.SIGALRM, self._ring)
            threading.Thread(target=self._wait, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._watches:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, self._before)

    def _ring(self, signal_number: int, frame: object) -> None:
        self.reason = hang_reason(self._seconds)
        raise CallHung(self.reason)

    def _wait(self) -> None:
        """Ends the process when nothing has come of the alarm."""
        calls = -1
        while not self._over.wait(self._seconds + 1):
            if calls == self._calls:
                told = f"torntail: {hang_reason(self._seconds)}, and no alarm ends it\n"
                os.write(2, told.encode("ascii"))
                os.kill(os.getpid(), signal.SIGKILL)
            calls = self._calls
