"""A fuzzing campaign: plans drawn without end, tried by workers, until time or count is used up.

    result = fuzz("mypackage.store:open_store", seed=7, max_time_seconds=60)

Decides how long is searched and by whom, that a lost worker is a finding and is followed by
another, and that whatever ends the run, what was found by then is kept. A target that no other
process can import is fuzzed in this one, where nothing watches over a store that hangs. Does not
decide how plans are drawn (`fuzz_share`, `machine`) or what is shown (`report`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import msgspec

from torntail.drive import exits
from torntail.drive.onlooker import Onlooker
from torntail.drive.target import BUILT_IN, Durability, Factory, Target, TargetError, target_of
from torntail.explore.case_run import CaseRunner
from torntail.explore.crash_search import MODELS_OF_LEVEL
from torntail.explore.crash_workers import hang_reason
from torntail.explore.fuzz_bench import IMAGES_A_TRIAL
from torntail.explore.fuzz_crew import FuzzWorker, listen
from torntail.explore.fuzz_files import CannotWrite, Corpus, RunDirectory
from torntail.explore.fuzz_finding import FuzzFinding, loss_finding
from torntail.explore.fuzz_messages import (
    CorpusPlan,
    FuzzMessage,
    FuzzOrder,
    FuzzReport,
    FuzzShare,
)
from torntail.explore.fuzz_result import FuzzResult, KeptFinding, total_report
from torntail.explore.fuzz_worker import read_trail
from torntail.explore.room import case_scratch, scratch_base
from torntail.record.scratch import Scratch

__all__ = ["HANG_SECONDS", "NotSaved", "Terminated", "fuzz"]

DEFAULT_SECONDS: Final = 60.0
HANG_SECONDS: Final = 10.0

_MOST_LOSSES: Final = 4
_MOST_FINDINGS: Final = 40
_GRACE_SECONDS: Final = 20.0


class Terminated(KeyboardInterrupt):
    """The process was told to end: like Ctrl-C, with another exit code."""


class NotSaved(Exception):
    """A finding could not be saved; the text says why."""


def fuzz(
    factory: Factory | Target | str,
    *,
    seed: int,
    max_time_seconds: float | None = None,
    max_examples: int | None = None,
    shard: tuple[int, int] = (1, 1),
    stop_at_first: bool = False,
    level: Durability | None = None,
    durability: Durability | None = None,
    workers: int | None = None,
    images: int = IMAGES_A_TRIAL,
    runs: Path | None = None,
    corpus: Path | None = None,
    save: Callable[[FuzzFinding, FuzzResult], tuple[Path, bool] | None] | None = None,
    progress: Callable[[FuzzResult], None] = lambda result: None,
    hang_seconds: float = HANG_SECONDS,
) -> FuzzResult:
    """Fuzzes a store.

    Args:
        factory: a factory, a `Target`, or the text that names one on the command line.
        seed: which plans are drawn; the same seed and count give the same plans and findings.
        max_time_seconds: no plan is drawn after that; by default a minute, if no count is given.
        max_examples: so many plans are drawn.
        shard: `(k, n)`: of n runs this is the k-th; they draw different plans without speaking to
            each other.
        stop_at_first: end with the first finding that was made small.
        level: which crashes are tried (VD-7); default is what the store claims.
        durability: replaces the claim, and is passed on to a built-in store.
        workers: processes that try plans; 0 tries them in this process.
        images: about how many distinct disks are loaded for each plan.
        runs: where the directory of this run is made; None makes none.
        corpus: where interesting plans are kept between runs; None keeps none.
        save: called with each finding once it was made small, or at the end; gives the file it was
            saved to and whether that is new, or raises `NotSaved`.
        progress: called with the state every now and then.
        hang_seconds: a call that has not come back after so long is taken to hang.

    Raises:
        TargetError: the factory does not lead to a store.
        CannotWrite: the files of the run cannot be written.
    """
    target = factory if isinstance(factory, Target) else target_of(factory, durability=durability)
    if target.driver is not None:
        raise TargetError("fuzz does not speak to drivers yet; certify --exec does")
    if max_time_seconds is None and max_examples is None:
        max_time_seconds = DEFAULT_SECONDS
    asked = level or target.capabilities.durability
    result = FuzzResult(target, seed, shard, asked)
    share = FuzzShare(
        seed=seed,
        models=MODELS_OF_LEVEL[asked],
        images=images,
        shard=shard[0],
        shards=shard[1],
        examples=max_examples,
        seconds=max_time_seconds,
    )
    with ExitStack() as stack:
        run = stack.enter_context(RunDirectory(runs)) if runs is not None else None
        campaign = _Campaign(result, share, run, corpus, save, progress)
        campaign.durability = durability
        campaign.stop_at_first = stop_at_first
        campaign.hang_seconds = hang_seconds
        campaign.run_all(workers)
    return result


class _Campaign:
    def __init__(
        self,
        result: FuzzResult,
        share: FuzzShare,
        run: RunDirectory | None,
        corpus: Path | None,
        save: Callable[[FuzzFinding, FuzzResult], tuple[Path, bool] | None] | None,
        progress: Callable[[FuzzResult], None],
    ) -> None:
        self.result = result
        self.share = share
        self.run = run
        self.corpus = None if corpus is None else Corpus(corpus, result.target.name)
        self.save = save
        self.progress = progress
        self.durability: Durability | None = None
        self.stop_at_first = False
        self.hang_seconds = HANG_SECONDS
        self.began = time.monotonic()
        self.reports: list[FuzzReport] = []
        self.live: list[FuzzWorker] = []
        self.losses: dict[int, int] = {}
        self.unsaved: dict[str, FuzzFinding] = {}

    # --- the whole ------------------------------------------------------------------------------

    def run_all(self, workers: int | None) -> None:
        result = self.result
        if self.run is not None:
            result.run = self.run.path
            self.run.write({**result.to_json(), "exit_code": None, "state": "running"})
        count = workers if workers is not None else max(1, min(os.cpu_count() or 1, 32))
        if not _importable(result.target.name):
            count = 0
        try:
            result.baseline_error = self._baseline()
            if result.baseline_error is None:
                self._load_corpus()
                if count:
                    self._in_workers(count)
                else:
                    self._here()
        except KeyboardInterrupt as error:
            result.interrupted = 143 if isinstance(error, Terminated) else 130
        finally:
            result.seconds = time.monotonic() - self.began
            self._end()

    def _end(self) -> None:
        """Whatever ended the run: what was found and not yet saved is saved, and all is told."""
        result = self.result
        if not self._has_enough():
            for finding in self.unsaved.values():
                self._keep(finding)
        self.unsaved.clear()
        result.total = total_report(self.reports)
        if self.corpus is not None:
            result.notes += [note for note in self.corpus.notes if note not in result.notes]
        if self.run is not None:
            try:
                self.run.write({**result.to_json(), "state": "ended"})
            except CannotWrite as error:
                result.errors.append(str(error))

    def _baseline(self) -> str | None:
        with case_scratch() as scratch, Onlooker(scratch) as onlooker, exits.refused():
            runner = CaseRunner(self.result.target, scratch, onlooker, self.hang_seconds)
            return runner.baseline_error(self.share.seed)

    def _load_corpus(self) -> None:
        if self.corpus is None:
            return
        plans = self.corpus.load()
        self.result.corpus_plans = len(plans)
        self.share = msgspec.structs.replace(
            self.share, corpus=plans, features=tuple(sorted(self.corpus.features))
        )

    def _has_enough(self) -> bool:
        return self.stop_at_first and bool(self.result.findings)

    # --- what is heard --------------------------------------------------------------------------

    def heard(self, message: FuzzMessage) -> None:
        if message.finding is not None:
            self.found(message.finding)
        if message.interesting is not None:
            self.interesting(message.interesting)
        if message.note is not None and message.note not in self.result.notes:
            self.result.notes.append(message.note)

    def found(self, finding: FuzzFinding) -> None:
        if finding.small or finding.kind == "lost":
            self.unsaved.pop(finding.cause, None)
            self._keep(finding)
        elif not any(kept.finding.cause == finding.cause for kept in self.result.findings):
            self.unsaved.setdefault(finding.cause, finding)

    def interesting(self, plan: CorpusPlan) -> None:
        if self.corpus is not None:
            self.result.corpus_added += self.corpus.add(plan)

    def _keep(self, finding: FuzzFinding) -> None:
        result = self.result
        if result.known(finding) is not None or len(result.findings) >= _MOST_FINDINGS:
            return
        kept = KeptFinding(finding)
        result.findings.append(kept)
        try:
            if self.run is not None:
                kept.witness = self.run.keep(finding, result.target.capabilities)
            if self.save is not None:
                saved = self.save(finding, result)
                if saved is not None:
                    kept.scenario, kept.new = saved
        except (CannotWrite, NotSaved) as error:
            # The finding is told all the same.
            result.errors.append(str(error))

    # --- in workers -----------------------------------------------------------------------------

    def _in_workers(self, count: int) -> None:
        with Scratch(scratch_base()) as scratch:
            try:
                self._work(count, scratch)
            finally:
                # Before their scratch space goes: they write there until they end.
                for worker in self.live:
                    self.reports.append(worker.report)
                    worker.close()
                self.live.clear()

    def _work(self, count: int, scratch: Scratch) -> None:
        for number in range(count):
            corpus = self.share.corpus[number::count]
            share = msgspec.structs.replace(self.share, worker=number, workers=count, corpus=corpus)
            self._start(number, share, scratch)
        while self.live:
            for _, message in listen(self.live):
                self.heard(message)
            for worker in list(self.live):
                self._look_after(worker, scratch)
            self.result.seconds = time.monotonic() - self.began
            reports = [*self.reports, *(worker.report for worker in self.live)]
            self.result.total = total_report(reports)
            self.progress(self.result)
            if self._has_enough():
                return

    def _start(self, number: int, share: FuzzShare, scratch: Scratch) -> None:
        target = self.result.target
        order = FuzzOrder(
            target=target.name,
            capabilities=target.capabilities,
            durability=self.durability,
            share=share,
            scratch=scratch.path,
            trail=f"{scratch.path}/trail-{number}",
            call_timeout=self.hang_seconds,
        )
        self.live.append(FuzzWorker(number, order, self.hang_seconds))

    def _look_after(self, worker: FuzzWorker, scratch: Scratch) -> None:
        """Buries a worker that is done, too late, or lost; a lost one is followed by another."""
        reason = None
        if worker.report.done or self._too_late():
            pass
        elif worker.process.poll() is not None:
            # Its output need not end with it: a child of the store may hold it open.
            self._listen_to_the_end(worker)
            if worker.error is None and not worker.report.done:
                code = worker.end()
                how = f"killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
                reason = f"the store's process was {how}"
        elif worker.hangs:
            reason = hang_reason(self.hang_seconds)
        else:
            return
        if worker.error is not None:
            self.result.errors.append(worker.error)
        self.live.remove(worker)
        worker.close()
        self.reports.append(worker.report)
        if reason is not None:
            self._lost(worker, reason, scratch)

    def _listen_to_the_end(self, worker: FuzzWorker) -> None:
        while True:
            messages, more = worker.messages()
            for message in messages:
                self.heard(message)
            if not more:
                return

    def _too_late(self) -> bool:
        seconds = self.share.seconds
        if seconds is None:
            return False
        return time.monotonic() - self.began > seconds + _GRACE_SECONDS

    def _lost(self, worker: FuzzWorker, reason: str, scratch: Scratch) -> None:
        operations, crashing = read_trail(worker.trail)
        self.result.losses += 1
        self.found(loss_finding(reason, operations, crashing))
        losses = self.losses[worker.number] = self.losses.get(worker.number, 0) + 1
        share = worker.order.share
        left = None
        if self.share.seconds is not None:
            left = self.share.seconds - (time.monotonic() - self.began)
        if losses >= _MOST_LOSSES or (left is not None and left <= 0):
            return
        again = msgspec.structs.replace(
            share,
            first_round=max(worker.report.round, share.first_round - 1) + 1,
            seconds=left,
            corpus=(),
            causes=tuple({kept.finding.cause for kept in self.result.findings}),
        )
        self._start(worker.number, again, scratch)

    # --- in this process ------------------------------------------------------------------------

    def _here(self) -> None:
        # Only here: importing Hypothesis takes more than half a second.
        from torntail.explore.fuzz_bench import new_bench
        from torntail.explore.fuzz_share import fuzz_share

        latest = FuzzReport()

        def tick(report: FuzzReport) -> None:
            nonlocal latest
            latest = report
            self.result.total = report
            self.result.seconds = time.monotonic() - self.began
            self.progress(self.result)
            if self._has_enough():
                raise _Enough

        try:
            with ExitStack() as stack:
                bench = new_bench(
                    self.result.target,
                    stack,
                    models=self.share.models,
                    found=self.found,
                    call_timeout=self.hang_seconds,
                    seed=self.share.seed,
                    images=self.share.images,
                )
                latest = fuzz_share(
                    bench,
                    self.share,
                    found=self.found,
                    interesting=self.interesting,
                    tick=tick,
                    note=lambda text: self.heard(FuzzMessage(note=text)),
                )
        except _Enough:
            pass
        finally:
            self.reports.append(latest)


class _Enough(BaseException):
    """The first finding was asked for, and is there."""


def _importable(name: str) -> bool:
    return name in BUILT_IN or ("<" not in name and not name.startswith("__main__:"))
