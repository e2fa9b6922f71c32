"""Crashing a store from several processes at once, and surviving what it does to them.

Decides how plans are shared out, and what is done with what comes back: after the search, the disk
over which a worker was lost is named, and the history of each cause is made small. A target that no
other process can import is crashed in this one. Does not decide what a violation is
(`judge.recovery`) or what a certificate says (`crash_part`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import msgspec

from torntail.crash.disk import Model
from torntail.drive.target import BUILT_IN, Durability, Target
from torntail.explore.crash_here import search_here, shorten_here
from torntail.explore.crash_loss import FatalCall, read_count
from torntail.explore.crash_result import CrashResult, WorkerLoss
from torntail.explore.crash_shard import CrashFinding, Share, ShareReport
from torntail.explore.crash_worker import Message, WorkOrder
from torntail.explore.crash_workers import Crew, hang_reason
from torntail.explore.room import scratch_base, told
from torntail.record.scratch import Scratch

__all__ = ["CrashResult", "WorkerLoss", "crash_campaign"]

HANG_SECONDS: Final = 30.0

_IMPATIENT_SECONDS: Final = 5.0
"""How long a call may take once another one was seen to hang."""


def crash_campaign(
    target: Target,
    models: Iterable[Model],
    *,
    seed: int,
    images: int,
    durability: Durability | None = None,
    plan: str | None = None,
    sought: Iterable[str] = (),
    wanted: Callable[[str], bool] = lambda clause: True,
    workers: int | None = None,
    progress: Callable[[CrashResult], None] = lambda result: None,
    hang_seconds: float = HANG_SECONDS,
    device_plans: int = 0,
    io_runs: int = 0,
    power: bool = False,
    result: CrashResult | None = None,
) -> CrashResult:
    """Crashes a target on about `images` distinct images, shared among `workers` processes.

    Ends early when each clause of `sought` is found violated by one of them. Afterwards the
    histories of the findings of `wanted` clauses are made small, once for each cause.

    With `device_plans`, so many plans are struck with device faults, apart from the crashes; with
    `io_runs`, so many I/O errors are tried, apart as well, and power is cut after them if `power`
    says so. With no `models` nothing else is done.

    With `workers` 0, or for a target that only this process knows, all is done here. What comes of
    it is put into `result` as it comes, so that it is there after an interrupt, too.
    """
    result = CrashResult() if result is None else result
    count = workers if workers is not None else max(1, min(os.cpu_count() or 1, 8))
    if plan is not None:
        count = min(count, 1)
    if not _importable(target.name):
        count = 0
    shares = _shares(tuple(models), seed, images, max(1, count), plan, sought, device_plans)
    if io_runs:
        alone = not device_plans and not shares[0].models
        shares = [] if alone else shares
        shares.append(
            Share(
                models=(),
                seed=seed,
                images=0,
                shard=count + 1,
                plan=plan,
                sought=frozenset(name for name in sought if name.startswith("IO-")),
                io_runs=io_runs,
                power=power,
            )
        )
    if count == 0:
        began = time.monotonic()
        for share in shares:
            search_here(target, share, result, progress, hang_seconds)
        result.seconds = time.monotonic() - began
        findings = _to_shorten(result, wanted)
        progress(result)
        shorten_here(target, findings, seed, result, progress, hang_seconds)
        return result
    try:
        with Scratch(scratch_base()) as scratch:
            crew = _Workers(target, durability, scratch.path, result, progress, hang_seconds)
            crew.search(shares)
            crew.name_losses(shares[0])
            crew.shorten(_to_shorten(result, wanted), shares[0], count)
    except OSError as error:
        result.errors.append(told(error))
    return result


def _shares(
    models: tuple[Model, ...],
    seed: int,
    images: int,
    count: int,
    plan: str | None,
    sought: Iterable[str],
    device_plans: int,
) -> list[Share]:
    shares = [
        Share(
            models=models,
            seed=seed,
            images=-(-images // count),
            shard=number,
            shards=count,
            plan=plan,
            sought=frozenset(sought),
        )
        for number in range(count)
    ]
    if device_plans:
        apart = Share(models=(), seed=seed, images=0, shard=count, plan=plan, devices=device_plans)
        shares = [*shares, apart] if models else [apart]
    return shares


def _importable(name: str) -> bool:
    return name in BUILT_IN or ("<" not in name and not name.startswith("__main__:"))


def _to_shorten(result: CrashResult, wanted: Callable[[str], bool]) -> list[CrashFinding]:
    """The first finding of each cause that is reported, but for those that cost a process."""
    fatal = {loss.reason for loss in result.losses}
    shown = result.grouped(finding for finding in result.findings if wanted(finding.clause))
    first = [
        finding
        for finding in shown.values()
        if finding.chain and not any(reason in finding.sentence for reason in fatal)
    ]
    result.histories = len(first)
    return first


class _Workers:
    """What is done in worker processes, one step after the other."""

    def __init__(
        self,
        target: Target,
        durability: Durability | None,
        scratch: str,
        result: CrashResult,
        progress: Callable[[CrashResult], None],
        hang_seconds: float,
    ) -> None:
        self.target = target
        self.durability = durability
        self.scratch = scratch
        self.result = result
        self.progress = progress
        self.hang_seconds = hang_seconds

    def _order(self, share: Share) -> WorkOrder:
        return WorkOrder(
            target=self.target.name,
            capabilities=self.target.capabilities,
            durability=self.durability,
            share=share,
            scratch=self.scratch,
        )

    # --- the search -----------------------------------------------------------------------------

    def search(self, shares: list[Share]) -> None:
        """Runs the shares at once, until all are done or what is sought is found."""
        result, began = self.result, time.monotonic()
        wanted = frozenset[str]().union(*(share.sought for share in shares))

        def hear(number: int, message: Message) -> None:
            if message.finding is not None:
                result.findings.append(message.finding)
            if message.io_finding is not None:
                result.io_findings[message.io_finding.cause] = message.io_finding
            if message.report is not None:
                result.reports[shares[number].shard] = message.report

        def lost(number: int, report: ShareReport, reason: str) -> None:
            result.losses.append(
                WorkerLoss(
                    report.plan,
                    reason,
                    bool(shares[number].devices),
                    bool(shares[number].io_runs),
                )
            )

        def beat() -> bool:
            result.seconds = time.monotonic() - began
            self.progress(result)
            found = {finding.clause for finding in result.findings}
            found |= {finding.clause for finding in result.io_findings.values()}
            return bool(wanted) and wanted <= found

        Crew(hear, lost, result.errors.append, beat, self.hang_seconds).work(
            [self._order(share) for share in shares]
        )

    # --- the disk over which a worker was lost --------------------------------------------------

    def name_losses(self, share: Share) -> None:
        """Makes a finding with its disk of each way in which a worker was lost."""
        reasons = {
            loss.reason: loss for loss in self.result.losses if not (loss.devices or loss.io)
        }
        for number, loss in enumerate(reasons.values()):
            if loss.plan:
                alone = msgspec.structs.replace(
                    share, plan=loss.plan, shard=0, shards=1, sought=frozenset()
                )
                self._name(loss, alone, Path(self.scratch) / f"calls-{number}")

    def _name(self, loss: WorkerLoss, share: Share, counts: Path) -> None:
        order = self._order(share)
        if not self._lost_again(msgspec.structs.replace(order, count=str(counts))):
            return
        fatal = FatalCall(number=read_count(str(counts)), reason=loss.reason)

        def hear(number: int, message: Message) -> None:
            if message.finding is not None:
                self.result.findings.append(message.finding)

        self._patiently(hear, lambda *_: None).work([msgspec.structs.replace(order, fatal=fatal)])

    def _lost_again(self, order: WorkOrder) -> bool:
        losses: list[str] = []
        self._patiently(lambda *_: None, lambda _, report, reason: losses.append(reason)).work(
            [order]
        )
        return bool(losses)

    def _patiently(
        self,
        hear: Callable[[int, Message], None],
        lost: Callable[[int, ShareReport, str], None],
    ) -> Crew:
        """Workers after the search: a call that hangs is waited for no longer than need be."""

        def beat() -> bool:
            self.progress(self.result)
            return False

        hung = any(loss.reason == hang_reason(self.hang_seconds) for loss in self.result.losses)
        seconds = min(self.hang_seconds, _IMPATIENT_SECONDS) if hung else self.hang_seconds
        return Crew(hear, lost, lambda error: None, beat, seconds)

    # --- small histories ------------------------------------------------------------------------

    def shorten(self, findings: list[CrashFinding], share: Share, workers: int) -> None:
        """Makes the histories of findings small; one over which a worker is lost stays as it is."""
        self.progress(self.result)
        waiting = [findings[number::workers] for number in range(workers)]
        while any(waiting):
            # What a worker was at when it was lost is not tried again.
            waiting = [left[1:] for left in self._shortened([one for one in waiting if one], share)]

    def _shortened(
        self, waiting: list[list[CrashFinding]], share: Share
    ) -> list[list[CrashFinding]]:
        """What is left of the findings of each worker when none works any more."""

        def hear(number: int, message: Message) -> None:
            if message.finding is not None:
                self.result.keep_shortened(message.finding)
                waiting[number] = waiting[number][1:]

        orders = [msgspec.structs.replace(self._order(share), shrink=tuple(one)) for one in waiting]
        self._patiently(hear, lambda *_: None).work(orders)
        return waiting
