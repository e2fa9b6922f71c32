"""A campaign: the baseline, then every case, judged; what is found is made small and kept.

Decides the order of the work, what is a finding, and where witnesses are kept. Tells its progress
as one stream of values, which reports consume. Does not decide whether a clause was kept (`judge`)
or how anything is shown (`report`).
"""

from __future__ import annotations

import errno
import os
import platform
import re
import shlex
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import msgspec

import torntail
from torntail.crash.crashes import Crash
from torntail.crash.disk import Model
from torntail.drive import exits
from torntail.drive.onlooker import HarnessError, Onlooker
from torntail.drive.runner import Runner, hangs, keep_storage, run_history
from torntail.drive.target import Factory, Target, TargetError, check_store, target_of
from torntail.explore.cases_cl import CLOSERS
from torntail.explore.cases_dm import DAMAGE
from torntail.explore.cases_rw import READING_AND_WRITING
from torntail.explore.cases_sessions import SESSIONS
from torntail.explore.cases_values import VALUES
from torntail.explore.crash_campaign import CrashResult, WorkerLoss, crash_campaign
from torntail.explore.crash_findings import crash_finding, keep_crash
from torntail.explore.crash_shard import CrashFinding
from torntail.explore.device_run import DEVICE_PLANS
from torntail.explore.plans import crash_plan
from torntail.explore.script import Case, Script
from torntail.explore.witness import describe_steps, keep_history
from torntail.judge.capabilities import Capabilities
from torntail.judge.clauses import CLAUSES, check_selector
from torntail.judge.history import Damage, History, Hung, Observation, Operation, Refused
from torntail.judge.oracle import Judgement, Judging, judge
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
    "Progress",
    "certify",
]

_MEMORY: Final = Path("/dev/shm")
_ROOM_BYTES: Final = 512 << 20
_FULL: Final = (os.strerror(errno.ENOSPC), os.strerror(errno.EDQUOT), "disk is full")

RUNS_DIRECTORY: Final = Path(".torntail") / "runs"


class CampaignStarted(msgspec.Struct, frozen=True):
    """A campaign begins; so many cases will be run."""

    target: str
    cases: int


class CaseEnded(msgspec.Struct, frozen=True):
    """A case was run and judged; `findings` are the new ones."""

    case: str
    clauses: tuple[str, ...]
    judgements: int
    findings: tuple[Finding, ...] = ()


class CrashesWent(msgspec.Struct, frozen=True):
    """How far the crashes are: plans, moments, images, distinct images of `wanted`, findings."""

    plans: int
    moments: int
    images: int
    distinct_images: int
    wanted_images: int
    findings: int
    seconds: float


class CampaignEnded(msgspec.Struct, frozen=True):
    """The certificate is ready; `seconds` is how long it took."""

    certificate: Certificate
    seconds: float


Progress = Callable[[CampaignStarted | CaseEnded | CrashesWent | CampaignEnded], None]

_MODELS: Final[dict[str, tuple[Model, ...]]] = {
    "process": ("kill",),
    "power": ("kill", "ordered", "posix"),
}
_IMAGES: Final = {"process": 6_000, "power": 10_000}
_IMAGES_ASKED_FOR: Final = {"process": 30_000, "power": 105_000}


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

    Raises:
        TargetError: the factory does not lead to a store.
        UnknownClauseError: `only` or `accept` name no clause.
        UnknownPlanError: `plan` names no plan.
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
    crash_order = _CrashOrder(durability, images, plan, workers, device_faults)
    campaign = _Campaign(target, request, seed, command, budget, runs, call_timeout, crash_order)
    return campaign.run(progress or (lambda event: None))


def _command(target: Target, request: Request, seed: int, durability: str | None) -> list[str]:
    command = ["torntail", "certify", *target.arguments, "--seed", str(seed)]
    if request.explicit_level:
        command += ["--level", request.level]
    if durability is not None:
        command += ["--durability", durability]
    return command


class _CrashOrder(NamedTuple):
    """What was asked for about crashes."""

    durability: Literal["none", "process", "power"] | None
    images: int | None
    plan: str | None
    workers: int | None
    device_faults: bool


class _Campaign:
    def __init__(
        self,
        target: Target,
        request: Request,
        seed: int,
        command: list[str],
        budget: float | None,
        runs: Path | None,
        call_timeout: float,
        crash_order: _CrashOrder,
    ) -> None:
        self._crash_order = crash_order
        self._target = target
        self._request = request
        self._seed = seed
        self._command = command
        self._budget = budget
        self._runs = runs
        self._call_timeout = call_timeout
        self._tally = Tally(target.capabilities, request)
        self._device_faults: dict[str, dict[str, int]] = {}
        self._findings: dict[str, Finding] = {}
        self._run_directory: Path | None = None
        self._counts: dict[str, Any] = {"cases": 0, "operations": 0, "judgements": 0, "damages": 0}

    def run(self, progress: Progress) -> Certificate:
        with exits.refused() as self._exits:
            return self._run(progress)

    def _run(self, progress: Progress) -> Certificate:
        started = time.monotonic()
        notes: list[str] = []
        baseline_error = None
        with _scratch() as scratch, Onlooker(scratch) as onlooker:
            self._scratch, self._onlooker = scratch, onlooker
            cases = self._cases()
            for case in cases:
                self._tally.plan(case.clauses)
            baseline_error = self._baseline()
            if baseline_error is None:
                progress(CampaignStarted(self._target.name, len(cases)))
                for case in cases:
                    if self._budget is not None and time.monotonic() - started > self._budget:
                        notes.append(f"the budget of {self._budget:g} s ended before {case.name}")
                        break
                    progress(self._run_case(case))
        if baseline_error is None and (self._wants_crashes() or self._strikes):
            self._crash(progress, notes)
        certificate = self._certificate(baseline_error, notes)
        progress(CampaignEnded(certificate, time.monotonic() - started))
        return certificate

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
        only = [part for selector in self._request.only for part in ("--only", selector)]
        return Certificate(
            torntail=torntail.__version__,
            target=self._target.name,
            seed=self._seed,
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
            command=shlex.join([*self._command, *only, *self._device_option]),
            python=platform.python_version(),
        )

    # --- crashes --------------------------------------------------------------------------------

    @property
    def _strikes(self) -> bool:
        """Whether device faults are tried: without durability there is nothing to strike."""
        durable = self._target.capabilities.durability != "none"
        return self._crash_order.device_faults and durable

    def _wants_crashes(self) -> bool:
        return any(
            clause.group == "CR" and self._request.requests(clause) and self._request.wants(name)
            for name, clause in CLAUSES.items()
        )

    @property
    def _device_option(self) -> list[str]:
        return ["--device-faults"] if self._crash_order.device_faults else []

    def _crash(self, progress: Progress, notes: list[str]) -> None:
        """Crashes the store as far as the level asks, and takes what came of it."""
        level, order = self._request.level, self._crash_order
        asked = _IMAGES_ASKED_FOR if self._request.explicit_level else _IMAGES
        crashes = self._wants_crashes()
        images = order.images or asked.get(level, 0)

        def went(result: CrashResult) -> None:
            total = result.total()
            progress(
                CrashesWent(
                    total.plans,
                    total.moments,
                    total.images,
                    total.distinct,
                    images,
                    len(result.findings),
                    result.seconds,
                )
            )

        result = crash_campaign(
            self._target,
            _MODELS[level] if crashes else (),
            seed=self._seed,
            images=images,
            durability=order.durability,
            plan=order.plan,
            # Asked for by their ids, clauses that are violated need no further search.
            sought=[name for name in self._request.only if name in CLAUSES],
            workers=order.workers,
            progress=went,
            hang_seconds=self._call_timeout,
            device_plans=DEVICE_PLANS if self._strikes else 0,
        )
        total = result.total()
        self._counts |= {
            "plans": total.plans,
            "moments": total.moments,
            "images": total.images,
            "distinct_images": total.distinct,
            "recoveries": total.recoveries,
            "crash_seconds": round(result.seconds, 1),
        }
        for error in result.errors:
            self._tally.harness_error(f"crashing: {error}")
        if result.unseen is not None:
            self._tally.not_crashed(
                f"file operations of this store are not seen from inside Python: {result.unseen}"
            )
            return
        for loss in result.losses:
            result.findings.append(_loss_finding(loss))
        self._device_faults = total.device_faults
        failed = []
        for found in result.findings:
            if not self._request.wants(found.clause) or found.cause in self._findings:
                continue
            failed.append((found.clause, found.sentence))
            witness = None
            if self._runs is not None:
                kept = self._run_path(found.clause)
                keep_crash(kept, found)
                witness = kept.as_posix()
            self._findings[found.cause] = crash_finding(found, self._command, witness)
        if crashes or failed:
            self._tally.add_crashes(total.executed, failed, total.situations)
        self._note_models(result, notes)

    def _note_models(self, result: CrashResult, notes: list[str]) -> None:
        """Says apart whether power loss is survived on a journaling file system only (VD-7)."""
        if self._request.level != "power":
            return
        models = {found.chain[0].model for found in result.findings if found.chain}
        if models == {"posix"}:
            notes.append(
                "power loss: holds on a journaling file system (model ordered), not on what POSIX "
                "alone promises (model posix)"
            )
        elif models and "kill" not in models:
            notes.append("kills: no violation; the violations need a power loss")

    # --- cases ----------------------------------------------------------------------------------

    def _cases(self) -> list[Case]:
        return [
            case
            for book in (READING_AND_WRITING, SESSIONS, VALUES, CLOSERS, DAMAGE)
            for case in book.cases(self._seed, self._target.capabilities, self._request.wants)
        ]

    def _baseline(self) -> str | None:
        """Why the baseline of VD-2 fails: create, append a closed turn, load, reopen, load."""
        script = Script(f"{self._seed}/baseline", self._target.capabilities)
        log = script.session()
        log.append("TS U SS A SE TE")
        log.load()
        script.reopen()
        log.load()
        with self._directory() as directory:
            self._check_factory(directory)
            history = self._history(script.operations, directory)
        judging = judge(history, self._target.capabilities)
        if judging.harness_error:
            raise HarnessError(judging.harness_error)
        return next((one.sentence for one in judging.judgements if not one.passed), None)

    def _check_factory(self, directory: Path) -> None:
        """A factory that does not lead to a store is a mistake of the caller, not a finding."""
        with Runner(
            self._target, directory / "factory", self._onlooker, timeout=self._call_timeout
        ) as runner:
            store = runner.open(0)
            if isinstance(store.opened, Hung):
                raise TargetError(
                    f"{self._target.name} had not returned after {store.opened.seconds:g} s when "
                    "called with an empty directory"
                )
            if isinstance(store.opened, Refused):
                raise TargetError(
                    f"{self._target.name} raised {store.opened.exception} when called with an "
                    f"empty directory: {store.opened.text}"
                )
            check_store(self._target.name, store.object, self._target.capabilities)

    def _run_case(self, case: Case) -> CaseEnded:
        try:
            with self._directory() as directory:
                history = self._history(case.operations, directory)
                if any(map(_lacked_room, history)):
                    # No fault of the store's; and none of these cases makes a disk full.
                    raise HarnessError(f"no room left in {self._scratch}: set TMPDIR")
                judging = judge(history, self._target.capabilities)
                self._tally.add(judging, case.clauses)
        except HarnessError as error:
            self._tally.harness_error(f"{case.name}: {error}")
            return CaseEnded(case.name, case.clauses, 0)
        self._counts["cases"] += 1
        self._counts["operations"] += len(history)
        self._counts["judgements"] += len(judging.judgements)
        self._counts["damages"] += sum(isinstance(o.operation, Damage) for o in history)
        findings = tuple(self._new_findings(case, history, judging))
        return CaseEnded(case.name, case.clauses, len(judging.judgements), findings)

    def _history(self, operations: Sequence[Operation], directory: Path) -> History:
        history = run_history(
            self._target, operations, directory, self._onlooker, timeout=self._call_timeout
        )
        if any(hangs(observation.outcome) for observation in history):
            self._call_timeout = min(self._call_timeout, _IMPATIENT_SECONDS)
        return history

    # --- findings -------------------------------------------------------------------------------

    def _new_findings(self, case: Case, history: History, judging: Judging) -> Iterator[Finding]:
        for judgement in judging.judgements:
            if judgement.passed or not self._request.wants(judgement.clause):
                continue
            cause = _cause(judgement)
            if cause in self._findings:
                continue
            finding = self._finding(case, history, judgement, cause)
            self._findings[cause] = finding
            yield finding

    def _finding(self, case: Case, history: History, judgement: Judgement, cause: str) -> Finding:
        seen = case.operations[: judgement.index + 1]
        command = shlex.join([*self._command, "--only", judgement.clause])
        if hangs(history[judgement.index].outcome):
            # Seeing it again would mean waiting again.
            steps = describe_steps(seen, history)
            return Finding(judgement.clause, judgement.sentence, case.name, steps, cause, command)
        operations = self._smallest(seen, judgement)
        sentence = judgement.sentence
        witness = None
        with self._directory() as directory:
            smallest = self._history(operations, directory)
            again = _failure(judge(smallest, self._target.capabilities), judgement)
            if again is None:
                # It does not fail every time; what was seen is told.
                sentence += " (not every time)"
            else:
                sentence, history = again.sentence, smallest
            steps = describe_steps([observation.operation for observation in history], history)
            if self._runs is not None:
                witness = self._keep(judgement.clause, directory, history, sentence)
        return Finding(
            judgement.clause, sentence, case.name, steps, cause, command, witness=witness
        )

    def _smallest(self, operations: Sequence[Operation], found: Judgement) -> list[Operation]:
        """Drops operations, in halves and then one at a time, while the same fault shows."""
        smallest = list(operations)
        size = max(len(smallest) // 2, 1)
        left = _SHRINKING_OPERATIONS
        while size:
            start = 0
            while start < len(smallest) - 1 and left > 0:
                end = min(start + size, len(smallest) - 1)
                shorter = smallest[:start] + smallest[end:]
                left -= len(shorter)
                failing = self._still_failing(shorter, found)
                if failing is None:
                    start += size
                else:
                    smallest = shorter[:failing]
            size //= 2
        return smallest

    def _still_failing(self, operations: Sequence[Operation], found: Judgement) -> int | None:
        """After how many operations the same fault shows, if it does."""
        with self._directory() as directory:
            try:
                judging = judge(self._history(operations, directory), self._target.capabilities)
            except (HarnessError, LookupError, AssertionError):
                # Without the operation that was dropped, the plan makes no sense any more.
                return None
        failure = _failure(judging, found)
        return None if failure is None else failure.index + 1

    def _keep(self, clause: str, directory: Path, history: History, sentence: str) -> str:
        """Keeps storage and history of a violation where they can be looked at."""
        kept = self._run_path(clause)
        keep_storage(directory, kept / "storage")
        keep_history(kept, history, sentence)
        return kept.as_posix()

    def _run_path(self, clause: str) -> Path:
        """Where the next finding's witness is kept."""
        assert self._runs is not None
        if self._run_directory is None:
            stamp = time.strftime("%Y%m%d-%H%M%S")
            self._runs.mkdir(parents=True, exist_ok=True)
            ignore = self._runs.parent / ".gitignore"
            if not ignore.exists():
                ignore.write_text("*\n", encoding="utf-8")
            self._run_directory = Path(tempfile.mkdtemp(prefix=f"{stamp}-", dir=self._runs))
        return self._run_directory / f"{len(self._findings) + 1:02d}-{clause}"

    @contextmanager
    def _directory(self) -> Iterator[Path]:
        directory = Path(tempfile.mkdtemp(prefix="case-", dir=self._scratch))
        try:
            yield directory
        finally:
            shutil.rmtree(directory, ignore_errors=True)


def _loss_finding(loss: WorkerLoss) -> CrashFinding:
    """A store that ended or hung the process that loaded it."""
    clause = "DM-1" if loss.devices else "CR-3"
    return CrashFinding(
        clause=clause,
        session="",
        sentence=loss.reason,
        lost=(),
        plan=loss.plan,
        calls=(),
        chain=() if loss.devices else (Crash("kill", 0),),
        recovery_calls=(),
        files={},
        directories=(),
        submitted=0,
        acknowledged=0,
        cause=f"{clause} {loss.reason}",
        images_until_found=0,
    )


_IMPATIENT_SECONDS: Final = 5.0
"""How long a call may take once another one was seen to hang."""

_SHRINKING_OPERATIONS: Final = 3000
"""How many operations may be run to make one history small."""


def _failure(judging: Judging, found: Judgement) -> Judgement | None:
    """Where a history shows the fault that was found: the same clause, call, due and situation."""
    return next(
        (
            one
            for one in judging.judgements
            if not one.passed and one.due == found.due and _cause(one) == _cause(found)
        ),
        None,
    )


def _cause(judgement: Judgement) -> str:
    """The sentence without what differs between two sightings of one fault."""
    sentence = re.sub(r"\([^()]*\)", "…", judgement.sentence)
    sentence = re.sub(r"'[^']*'|\"[^\"]*\"|\S*[/.]\S+|\d+", "…", sentence)
    return f"{judgement.clause}: {sentence}"


def _lacked_room(observation: Observation) -> bool:
    outcome = observation.outcome
    return isinstance(outcome, Refused) and any(text in outcome.text for text in _FULL)


@contextmanager
def _scratch() -> Iterator[Path]:
    """A temporary directory in memory, if there is such a file system with room; then removed."""
    usable = _MEMORY.is_dir() and os.access(_MEMORY, os.W_OK | os.X_OK)
    # In a container it often has 64 MiB, the size of one line of RW-12.
    place = _MEMORY if usable and shutil.disk_usage(_MEMORY).free >= _ROOM_BYTES else None
    scratch = Path(tempfile.mkdtemp(prefix="torntail-", dir=place))
    try:
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
