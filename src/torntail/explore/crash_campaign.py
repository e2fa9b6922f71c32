"""Crashing a store from several processes at once, and surviving what it does to them.

Decides how plans are shared out, when a worker is taken for hung, and what its death means. A
target that no other process can import is crashed in this one. Does not decide what a violation is
(`judge.recovery`) or what a certificate says (`campaign`).
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final, Self

import msgspec

from torntail.crash.disk import Model
from torntail.drive.target import BUILT_IN, Durability, Target
from torntail.explore.crash_shard import CrashFinding, Share, ShareReport, crash_share
from torntail.explore.crash_worker import Message, WorkOrder
from torntail.explore.device_shard import device_share
from torntail.record.scratch import Scratch
from torntail.record.slots import Slot

__all__ = ["CrashResult", "WorkerLoss", "crash_campaign"]

HANG_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class WorkerLoss:
    """A worker that hung or died: in which plan, how, and whether under a device fault."""

    plan: str
    reason: str
    devices: bool = False


@dataclass(slots=True)
class CrashResult:
    """What the crash part of a campaign came to."""

    reports: dict[int, ShareReport] = field(default_factory=dict)
    findings: list[CrashFinding] = field(default_factory=list)
    losses: list[WorkerLoss] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def unseen(self) -> str | None:
        """Why this store cannot be recorded in this process, if so."""
        return next((report.unseen for report in self.reports.values() if report.unseen), None)

    def total(self) -> ShareReport:
        """The sum of all shares."""
        sums = ShareReport(done=all(report.done for report in self.reports.values()))
        for report in self.reports.values():
            sums = msgspec.structs.replace(
                sums,
                plans=sums.plans + report.plans,
                moments=sums.moments + report.moments,
                images=sums.images + report.images,
                distinct=sums.distinct + report.distinct,
                recoveries=sums.recoveries + report.recoveries,
                executed=_added(sums.executed, report.executed),
                situations=_added(sums.situations, report.situations),
                plan=report.plan or sums.plan,
                device_faults=report.device_faults or sums.device_faults,
            )
        return sums


def _added(one: dict[str, int], other: dict[str, int]) -> dict[str, int]:
    return {key: one.get(key, 0) + other.get(key, 0) for key in {**one, **other}}


def crash_campaign(
    target: Target,
    models: Iterable[Model],
    *,
    seed: int,
    images: int,
    durability: Durability | None = None,
    plan: str | None = None,
    sought: Iterable[str] = (),
    workers: int | None = None,
    progress: Callable[[CrashResult], None] = lambda result: None,
    hang_seconds: float = HANG_SECONDS,
    device_plans: int = 0,
) -> CrashResult:
    """Crashes a target on about `images` distinct images, shared among `workers` processes.

    Ends early when each clause of `sought` is found violated by one of them.

    With `device_plans`, so many plans are struck with device faults, apart from the crashes; with
    no `models` nothing else is done.

    With `workers` 0, or for a target that only this process knows, all is done here.
    """
    count = workers if workers is not None else max(1, min(os.cpu_count() or 1, 8))
    if plan is not None:
        count = min(count, 1)
    if not _importable(target.name):
        count = 0
    shares = [
        Share(
            models=tuple(models),
            seed=seed,
            images=-(-images // max(1, count)),
            shard=number,
            shards=max(1, count),
            plan=plan,
            sought=frozenset(sought),
        )
        for number in range(max(1, count))
    ]
    if device_plans:
        apart = Share(
            models=(),
            seed=seed,
            images=0,
            shard=len(shares),
            plan=plan,
            devices=device_plans,
        )
        shares = [*shares, apart] if shares[0].models else [apart]
    began = time.monotonic()
    result = CrashResult()
    try:
        if count == 0:
            for share in shares:
                _crash_here(target, share, result, progress, hang_seconds)
        else:
            _crash_in_workers(target, shares, durability, result, progress, hang_seconds)
    finally:
        result.seconds = time.monotonic() - began
    return result


def _importable(name: str) -> bool:
    return name in BUILT_IN or ("<" not in name and not name.startswith("__main__:"))


def _crash_here(
    target: Target,
    share: Share,
    result: CrashResult,
    progress: Callable[[CrashResult], None],
    hang_seconds: float,
) -> None:
    def tick(report: ShareReport) -> None:
        result.reports[share.shard] = report
        progress(result)

    found = result.findings.append
    try:
        with Scratch() as scratch, Slot(scratch) as slot, _Alarm(hang_seconds) as began:
            if share.devices:
                report = device_share(target, share, slot=slot, found=found, tick=tick)
            else:
                report = crash_share(target, share, slot=slot, found=found, tick=tick, began=began)
    except CallHung as error:
        plan = result.reports[share.shard].plan if share.shard in result.reports else ""
        result.losses.append(WorkerLoss(plan, str(error)))
    except (OSError, RuntimeError) as error:
        # Ours, not the store's: a full scratch space, a recorder that stands already.
        result.errors.append(f"{type(error).__name__}: {error}")
    else:
        result.reports[share.shard] = report


class CallHung(BaseException):
    """Raised inside a call of the store that has not come back in time, and then at the next."""


class _Alarm:
    """A watchdog within this process: each call of it starts the time anew.

    Only the main thread can be interrupted; elsewhere nothing watches, and a store that may hang is
    better named by its module, so that worker processes crash it. A store that has hung once is not
    given another disk.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._watches = threading.current_thread() is threading.main_thread()
        self._before: Any = None
        self.reason: str | None = None

    def __call__(self) -> None:
        if self.reason is not None:
            raise CallHung(self.reason)
        if self._watches:
            signal.setitimer(signal.ITIMER_REAL, self._seconds, self._seconds)

    def __enter__(self) -> Self:
        if self._watches:
            self._before = signal.signal(signal.SIGALRM, self._ring)
        return self

    def __exit__(self, *_: object) -> None:
        if self._watches:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, self._before)

    def _ring(self, signal_number: int, frame: object) -> None:
        self.reason = f"a call had not returned after {self._seconds:g} s"
        raise CallHung(self.reason)


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
            start_new_session=True,
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(msgspec.json.encode(order) + b"\n")
        self.process.stdin.close()
        self.output = self.process.stdout
        os.set_blocking(self.output.fileno(), False)
        self.buffer = b""
        self.progress = -1
        self.moved_at = time.monotonic()
        self.plan = ""
        self.devices = bool(order.share.devices)
        self.finished = False
        self.error: str | None = None


def _crash_in_workers(
    target: Target,
    shares: list[Share],
    durability: Durability | None,
    result: CrashResult,
    progress: Callable[[CrashResult], None],
    hang_seconds: float,
) -> None:
    workers: dict[int, _Worker] = {}
    selector = selectors.DefaultSelector()
    try:
        for share in shares:
            order = WorkOrder(
                target=target.name,
                capabilities=target.capabilities,
                durability=durability,
                share=share,
            )
            worker = workers[share.shard] = _Worker(order)
            selector.register(worker.output, selectors.EVENT_READ, share.shard)
        while selector.get_map():
            for key, _ in selector.select(timeout=1.0):
                if not _listen(workers[key.data], key.data, result):
                    selector.unregister(workers[key.data].output)
                    _bury(workers[key.data], result)
            for worker in workers.values():
                hung = time.monotonic() - worker.moved_at > hang_seconds
                if hung and not worker.finished and worker.output in _registered(selector):
                    selector.unregister(worker.output)
                    reason = f"a call had not returned after {hang_seconds:g} s"
                    result.losses.append(WorkerLoss(worker.plan, reason, worker.devices))
                    worker.process.kill()
            progress(result)
            sought = shares[0].sought
            if sought and sought <= {finding.clause for finding in result.findings}:
                return
    finally:
        for worker in workers.values():
            worker.process.kill()
            worker.process.wait()
            worker.output.close()
            worker.errors.close()


def _registered(selector: selectors.BaseSelector) -> list[object]:
    return [key.fileobj for key in selector.get_map().values()]


def _listen(worker: _Worker, number: int, result: CrashResult) -> bool:
    """Takes what a worker wrote; false when it will write no more."""
    try:
        chunk = os.read(worker.output.fileno(), 1 << 20)
    except BlockingIOError:
        return True
    if not chunk:
        return False
    *lines, worker.buffer = (worker.buffer + chunk).split(b"\n")
    for line in lines:
        message = msgspec.json.decode(line, type=Message)
        if message.finding is not None:
            result.findings.append(message.finding)
        if message.error is not None:
            worker.error = message.error
        if message.report is not None:
            report = result.reports[number] = message.report
            worker.plan, worker.finished = report.plan, report.done
            struck = sum(sum(kind.values()) for kind in report.device_faults.values())
            moved = report.distinct + report.images + struck
            if moved != worker.progress:
                worker.progress, worker.moved_at = moved, time.monotonic()
    return True


def _bury(worker: _Worker, result: CrashResult) -> None:
    """A worker's output ended: well, with an error of ours, or because the store ended it."""
    code = worker.process.wait()
    if worker.finished:
        return
    if worker.error is not None:
        result.errors.append(worker.error)
        return
    reason = f"killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
    reason = f"the store's process was {reason}"
    result.losses.append(WorkerLoss(worker.plan, reason, worker.devices))
