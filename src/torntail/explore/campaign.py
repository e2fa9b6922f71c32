"""A campaign: the baseline, then every case, then the crashes; and the certificate of it all.

Decides the order of the work and when it ends. Tells its progress as one stream of values, which
reports consume. Does not decide whether a clause was kept (`judge`), how a violation is made small
(`case_run`, `crash_shrink`) or how anything is shown (`report`).
"""

from __future__ import annotations

import contextlib
import platform
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

import torntail
from torntail.drive import exits
from torntail.drive.onlooker import HarnessError, Onlooker
from torntail.drive.target import Factory, Target, target_of
from torntail.explore.carried import JSON_ONLY, carried
from torntail.explore.case_run import CaseRunner, cause_of
from torntail.explore.cases_cl import CLOSERS
from torntail.explore.cases_dm import DAMAGE
from torntail.explore.cases_rw import READING_AND_WRITING
from torntail.explore.cases_sessions import SESSIONS
from torntail.explore.cases_values import VALUES
from torntail.explore.crash_part import CrashOrder, crash_part
from torntail.explore.plans import crash_plan
from torntail.explore.progress import (
    CampaignEnded,
    CampaignStarted,
    CaseEnded,
    CrashesWent,
    Progress,
)
from torntail.explore.room import case_scratch
from torntail.explore.script import Case
from torntail.explore.surroundings import Surroundings
from torntail.explore.witness import Runs
from torntail.explore.writers_part import WritersPart
from torntail.judge.capabilities import Capabilities
from torntail.judge.clauses import check_selector
from torntail.judge.history import Damage, History
from torntail.judge.oracle import Judging
from torntail.judge.verdict import (
    Certificate,
    Counts,
    Finding,
    Request,
    StoreLevel,
    Tally,
    healed_clauses,
    moot_acceptances,
)

__all__ = [
    "CampaignEnded",
    "CampaignStarted",
    "CaseEnded",
    "CrashesWent",
    "Interrupted",
    "Progress",
    "certify",
]


class Interrupted(KeyboardInterrupt):
    """A campaign was ended before its time; `certificate` holds what was found by then.

    Of a clause without a finding it says nothing. The cause is the interrupt itself.
    """

    def __init__(self, certificate: Certificate) -> None:
        super().__init__()
        self.certificate = certificate


RUNS_DIRECTORY: Final = Path(".torntail") / "runs"


def certify(
    factory: Factory | Target | str,
    *,
    capabilities: Capabilities | None = None,
    level: StoreLevel | None = None,
    durability: Literal["none", "process", "power"] | None = None,
    seed: int = 0,
    budget: float | None = None,
    only: Sequence[str] = (),
    accept: Mapping[str, str] | None = None,
    progress: Progress | None = None,
    runs: Path | None = RUNS_DIRECTORY,
    call_timeout: float = 30.0,
    images: int | None = None,
    plan: str | None = None,
    workers: int | None = None,
    device_faults: bool = False,
    io_runs: int | None = None,
) -> Certificate:
    """Proves or refutes what a store claims, and says which.

    Args:
        factory: called with a directory, returns a store over it; called again to reopen. A
            `Target`, or the text that names one on the command line, will do as well.
        capabilities: what the store claims; default is the factory's attribute of that name.
        level: what is to be proven (VD-7); default is what the store claims.
        durability: replaces the claim, and is passed on to a built-in store.
        seed: which values the cases are made of; the same seed makes the same cases.
        budget: after so many seconds no new case begins, and what was not reached is not exercised.
        only: clause ids or their prefixes (`RW`, `DM-1`) to be looked at.
        accept: known violations, each with a reason; they do not make the verdict fail.
        progress: called with each event of the campaign.
        runs: where witnesses of violations are kept; None keeps none.
        call_timeout: after so many seconds a call that has not come back is taken to hang.
        images: how many distinct disk images are loaded; by default a quick look, and some ten
            times as many where `level` is given.
        plan: crash this plan alone.
        workers: processes that crash plans; 0 crashes them in this process, where a store that
            ends the process ends all of it.
        device_faults: also try disks that a broken or lying device leaves; they are counted apart.
        io_runs: how many runs are made in which the disk says no; by default a quick look, and
            more where `level` is given.

    Raises:
        TargetError: the factory does not lead to a store.
        UnknownClauseError: `only` or `accept` name no clause.
        UnknownPlanError: `plan` names no plan.
        NoRoom: there is no scratch space, or so little that nothing could be tried.
        Interrupted: Ctrl-C came; a `KeyboardInterrupt` that holds what was found by then.
    """
    if isinstance(factory, Target):
        target = factory
    else:
        target = target_of(factory, capabilities=capabilities, durability=durability)
    for selector in (*only, *(accept or ())):
        check_selector(selector)
    if plan is not None:
        crash_plan(seed, target.capabilities, plan)  # Raises now rather than in every worker.
    request = Request(
        level=level or target.capabilities.durability,
        explicit_level=level is not None,
        only=tuple(only),
        accepted=dict(accept or {}),
    )
    command = _command(target, request, seed, durability)
    order = CrashOrder(
        seed=seed,
        durability=durability,
        images=images,
        plan=plan,
        workers=workers,
        device_faults=device_faults,
        io_runs=io_runs,
        call_timeout=call_timeout,
    )
    kept = None if runs is None else Runs(runs)
    campaign = _Campaign(target, request, command, budget, kept, order)
    return campaign.run(progress or (lambda event: None))


def _command(target: Target, request: Request, seed: int, durability: str | None) -> list[str]:
    command = ["torntail", "certify", *target.arguments, "--seed", str(seed)]
    if request.explicit_level:
        command += ["--level", request.level]
    if durability is not None:
        command += ["--durability", durability]
    return command


class _Campaign:
    def __init__(
        self,
        target: Target,
        request: Request,
        command: list[str],
        budget: float | None,
        runs: Runs | None,
        order: CrashOrder,
    ) -> None:
        self._target = target
        self._request = request
        self._command = command
        self._budget = budget
        self._runs = runs
        self._order = order
        self._tally = Tally(target.capabilities, request)
        self._findings: dict[str, Finding] = {}
        self._counts: dict[str, Any] = {"cases": 0, "operations": 0, "judgements": 0, "damages": 0}
        self._device_faults: dict[str, dict[str, int]] = {}

    def run(self, progress: Progress) -> Certificate:
        with exits.refused() as self._exits:
            return self._run(progress)

    def _run(self, progress: Progress) -> Certificate:
        notes: list[str] = []
        try:
            return self._run_to_the_end(progress, notes)
        except KeyboardInterrupt as error:
            self._tally.harness_error("interrupted")
            raise Interrupted(self._certificate(None, notes)) from error

    def _run_to_the_end(self, progress: Progress, notes: list[str]) -> Certificate:
        started = time.monotonic()
        baseline_error = None
        with (
            case_scratch() as scratch,
            Onlooker(scratch) as onlooker,
            Surroundings() as self._surroundings,
        ):
            runner = CaseRunner(self._target, scratch, onlooker, self._order.call_timeout)
            cases = self._cases()
            for case in cases:
                self._tally.plan(case.clauses)
            baseline_error = runner.baseline_error(self._order.seed)
            if baseline_error is None:
                writers = self._writers(scratch, onlooker)
                progress(CampaignStarted(self._target.name, len(cases) + len(writers.plans)))
                for case in cases:
                    if self._is_over(started):
                        notes.append(f"the budget of {self._budget:g} s ended before {case.name}")
                        break
                    progress(self._run_case(runner, case))
                if not self._is_over(started):
                    self._run_writers(writers, progress)
            notes += self._surroundings.habits
        if baseline_error is None:
            crashed = crash_part(
                self._target,
                self._request,
                msgspec.structs.replace(self._order, call_timeout=runner.call_timeout),
                tally=self._tally,
                command=self._command,
                runs=self._runs,
                progress=progress,
            )
            self._counts |= crashed.counts
            self._device_faults = crashed.device_faults
            self._findings |= {finding.cause: finding for finding in crashed.findings}
            notes += crashed.notes
            if crashed.interrupted is not None:
                raise crashed.interrupted
        certificate = self._certificate(baseline_error, notes)
        progress(CampaignEnded(certificate, time.monotonic() - started))
        return certificate

    def _is_over(self, started: float) -> bool:
        return self._budget is not None and time.monotonic() - started > self._budget

    def _certificate(self, baseline_error: str | None, notes: list[str]) -> Certificate:
        claimed = self._target.capabilities.durability
        levels = ("none", "process", "power")
        if levels.index(self._request.level) > levels.index(claimed):
            notes.append(
                f"the level {self._request.level} is above what is claimed (durability {claimed})"
            )
        told = any("EndsProcess" in finding.sentence for finding in self._findings.values())
        if self._exits and not told:
            # In a thread of its own, say: no call came to it, and nothing may pass on it.
            self._tally.harness_error(f"the store called {self._exits[0]} outside of any call")
        results = self._tally.results()
        notes += moot_acceptances(self._request.accepted, results)
        flips, silent_flips = self._tally.flips
        devices = ["--device-faults"] if self._order.device_faults else []
        only = [part for selector in self._request.only for part in ("--only", selector)]
        return Certificate(
            torntail=torntail.__version__,
            target=self._target.name,
            seed=self._order.seed,
            capabilities=self._target.capabilities,
            request=self._request,
            results=results,
            findings=tuple(self._findings.values()),
            counts=Counts(flips=flips, silent_flips=silent_flips, **self._counts),
            healed=healed_clauses(self._request.accepted, results),
            notes=tuple(notes),
            baseline_error=baseline_error,
            harness_errors=self._tally.harness_errors,
            device_faults=self._device_faults,
            command=shlex.join([*self._command, *only, *devices]),
            python=platform.python_version(),
        )

    # --- cases ----------------------------------------------------------------------------------

    def _cases(self) -> list[Case]:
        cases = [
            case
            for book in (READING_AND_WRITING, SESSIONS, VALUES, CLOSERS, DAMAGE)
            for case in book.cases(self._order.seed, self._target.capabilities, self._request.wants)
        ]
        if self._target.driver is None:
            return cases
        kept = []
        for case in cases:
            less = carried(case)
            if less is not None:
                kept.append(less)
                continue
            for clause in case.clauses:
                self._tally.moot(clause, JSON_ONLY)
        return kept

    def _run_case(self, runner: CaseRunner, case: Case) -> CaseEnded:
        try:
            history, judging = runner.run(case)
            self._surroundings.look()
            self._tally.add(judging, case.clauses)
        except HarnessError as error:
            self._tally.harness_error(f"{case.name}: {error}")
            return CaseEnded(case.name, case.clauses, 0)
        self._counts["cases"] += 1
        self._counts["operations"] += len(history)
        self._counts["judgements"] += len(judging.judgements)
        self._counts["damages"] += sum(isinstance(o.operation, Damage) for o in history)
        findings = tuple(self._new_findings(runner, case, history, judging))
        return CaseEnded(case.name, case.clauses, len(judging.judgements), findings)

    def _writers(self, scratch: Path, onlooker: Onlooker) -> WritersPart:
        return WritersPart(
            self._target,
            self._request,
            seed=self._order.seed,
            durability=self._order.durability,
            call_timeout=self._order.call_timeout,
            scratch=scratch,
            onlooker=onlooker,
            tally=self._tally,
            command=self._command,
            runs=self._runs,
        )

    def _run_writers(self, writers: WritersPart, progress: Progress) -> None:
        try:
            with contextlib.closing(writers.run()) as histories:
                for ended, steps in histories:
                    self._counts["cases"] += 1
                    self._counts["operations"] += steps
                    self._counts["judgements"] += ended.judgements
                    progress(ended)
        finally:
            self._findings |= writers.findings

    def _new_findings(
        self, runner: CaseRunner, case: Case, history: History, judging: Judging
    ) -> Iterator[Finding]:
        for judgement in judging.judgements:
            if judgement.passed or not self._request.wants(judgement.clause):
                continue
            cause = cause_of(judgement)
            if cause in self._findings:
                continue
            finding = runner.finding(case, history, judgement, self._command, self._runs)
            self._findings[cause] = finding
            yield finding
