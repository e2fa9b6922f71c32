"""The crash part of a campaign: what is asked for, and what comes of it in the certificate.

I/O errors are part of it. Decides how many disks and errors a level is worth, what the loss of a
worker proves, and which notes are made of the models. Does not decide how a store is crashed
(`crash_campaign`) or what a violation is (`judge.recovery`, `judge.io`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from torntail.crash.crashes import Crash
from torntail.crash.disk import MODELS
from torntail.drive.target import Target
from torntail.explore.crash_campaign import CrashResult, WorkerLoss, crash_campaign
from torntail.explore.crash_findings import crash_finding, keep_crash
from torntail.explore.crash_search import MODELS_OF_LEVEL
from torntail.explore.crash_shard import CrashFinding
from torntail.explore.device_run import DEVICE_PLANS
from torntail.explore.io_findings import io_finding, keep_io
from torntail.explore.io_shard import IoFinding
from torntail.explore.progress import CrashesWent
from torntail.explore.witness import Runs
from torntail.judge.clauses import CLAUSES
from torntail.judge.verdict import Finding, Request, Tally

__all__ = ["CrashOrder", "CrashOutcome", "crash_part"]

_IMAGES: Final = {"process": 6_000, "power": 10_000}
_IMAGES_ASKED_FOR: Final = {"process": 30_000, "power": 105_000}
_IO_RUNS: Final = 320
_IO_RUNS_ASKED_FOR: Final = 2_500


class CrashOrder(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for about crashes."""

    seed: int
    durability: Literal["none", "process", "power"] | None = None
    images: int | None = None
    plan: str | None = None
    workers: int | None = None
    device_faults: bool = False
    io_runs: int | None = None
    call_timeout: float = 30.0


class CrashOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What is new on the certificate; `interrupted` is what ended it before its time, if so."""

    findings: tuple[Finding, ...] = ()
    counts: Mapping[str, Any] = {}
    device_faults: dict[str, dict[str, int]] = {}
    notes: tuple[str, ...] = ()
    interrupted: KeyboardInterrupt | None = None


def crash_part(
    target: Target,
    request: Request,
    order: CrashOrder,
    *,
    tally: Tally,
    command: Sequence[str],
    runs: Runs | None,
    progress: Callable[[CrashesWent], None],
) -> CrashOutcome:
    """Crashes the store as far as the level asks; the tally takes what was proven.

    Nothing is done, and nothing comes of it, where neither crashes nor faults are asked for.
    """
    crashes, errors = (
        any(
            clause.group == group and request.requests(clause) and request.wants(name)
            for name, clause in CLAUSES.items()
        )
        for group in ("CR", "IO")
    )
    unstruck = errors and target.recorder is not None
    errors = errors and not unstruck
    # Without durability there is nothing for a device to strike.
    strikes = order.device_faults and target.capabilities.durability != "none"
    if unstruck:
        tally.not_struck("I/O errors are not tried on a store that is recorded from outside")
    if not crashes and not strikes and not errors:
        return CrashOutcome()
    thorough = request.explicit_level and order.images is None
    io_runs = order.io_runs or (_IO_RUNS_ASKED_FOR if thorough else _IO_RUNS)
    io_runs = io_runs if errors else 0
    asked = _IMAGES_ASKED_FOR if request.explicit_level else _IMAGES
    images = order.images or asked.get(request.level, 0)

    def went(result: CrashResult) -> None:
        total = result.total()
        progress(
            CrashesWent(
                plans=total.plans,
                moments=total.moments,
                images=total.images,
                distinct_images=total.distinct,
                wanted_images=images if crashes else 0,
                findings=len(result.findings) + len(result.io_findings),
                seconds=result.seconds,
                histories=result.histories,
                shortened=result.shortened,
                io_runs=total.io_runs,
                wanted_io_runs=io_runs,
            )
        )

    result = CrashResult()
    interrupted: KeyboardInterrupt | None = None
    try:
        crash_campaign(
            target,
            MODELS_OF_LEVEL[request.level] if crashes else (),
            seed=order.seed,
            images=images,
            durability=order.durability,
            plan=order.plan,
            # Asked for by their ids, clauses that are violated need no further search.
            sought=[name for name in request.only if name in CLAUSES],
            wanted=request.wants,
            workers=order.workers,
            progress=went,
            hang_seconds=order.call_timeout,
            device_plans=DEVICE_PLANS if strikes else 0,
            io_runs=io_runs,
            power=request.level == "power",
            result=result,
        )
    except KeyboardInterrupt as interrupt:
        interrupted = interrupt  # What was found by then is told.
    total = result.total()
    counts: dict[str, Any] = {
        "plans": total.plans,
        "moments": total.moments,
        "images": total.images,
        "distinct_images": total.distinct,
        "recoveries": total.recoveries,
        "crash_seconds": round(result.seconds, 1),
        "io_runs": total.io_runs,
        "io_images": total.io_images,
        "io_struck": total.io_struck,
    }
    for error in result.errors:
        tally.harness_error(f"crashing: {error}")
    if result.outside is not None:
        tally.harness_error(
            f"crashing: the store wrote {result.outside}, outside its directory: what it keeps "
            "there does not crash with the rest"
        )
    if result.unseen is not None:
        blind = "of this store are not seen from inside Python"
        if target.is_traced:
            blind = "cannot be recorded"
        tally.not_crashed(f"file operations {blind}: {result.unseen}")
        return CrashOutcome(counts=counts, interrupted=interrupted)
    doubted = _take_doubted(result)
    # What goes wrong without a crash is told once, and the cases have told it.
    told = [one for one in result.findings if not (one.unprovoked and tally.failed(one.clause))]
    found = [*told, *map(_loss_finding, result.losses)]
    wanted = [one for one in found if request.wants(one.clause)]
    for loss in result.losses:
        if not request.wants(_loss_finding(loss).clause):
            # What was asked for was looked at in part only: it may not pass.
            tally.harness_error(f"crashing: the search ended in plan {loss.plan}: {loss.reason}")
    for one in found:
        if one.unprovoked and not request.wants(one.clause):
            # The calls after it were made on a store that was not where the plan thinks it is.
            tally.harness_error(
                f"crashing: without any fault, plan {one.plan} breaks {one.clause}: {one.sentence}"
            )
    findings: dict[str, Finding] = {}
    for one in result.grouped(wanted).values():
        findings[one.cause] = _reported(one, command, runs)
    for struck in sorted(result.io_findings.values(), key=lambda one: (one.clause, one.calls)):
        if request.wants(struck.clause):
            findings[struck.cause] = _reported_error(struck, command, runs)
    for clause, reason in total.moot.items():
        tally.moot(clause, reason)
    if crashes or errors or findings:
        failed = [(finding.clause, finding.sentence) for finding in findings.values()]
        failed += [(breach.clause, breach.sentence) for breach in wanted]
        tally.add_crashes(total.executed, failed, total.situations)
    if doubted:
        tally.not_crashed(
            f"syncs of this store are not seen from inside Python: it calls "
            f"{', '.join(result.foreign)} through ctypes; what it loses with power proves nothing"
        )
    return CrashOutcome(
        findings=tuple(findings.values()),
        counts=counts,
        device_faults=total.device_faults,
        notes=_notes(request, result),
        interrupted=interrupted,
    )


def _take_doubted(result: CrashResult) -> bool:
    """Removes what a sync that is not seen may have prevented; gives whether there was any.

    Where nothing is lost, syncs that were missed would only have helped.
    """
    doubted = result.total().doubted
    for cause, struck in list(result.io_findings.items()):
        if result.foreign and struck.crash is not None and struck.crash.model != "kill":
            del result.io_findings[cause]
            doubted = True
    return doubted


def _reported(found: CrashFinding, command: Sequence[str], runs: Runs | None) -> Finding:
    witness = None
    if runs is not None:
        kept = runs.next_directory(found.clause)
        keep_crash(kept, found)
        witness = kept.as_posix()
    return crash_finding(found, command, witness)


def _reported_error(found: IoFinding, command: Sequence[str], runs: Runs | None) -> Finding:
    witness = None
    if runs is not None:
        kept = runs.next_directory(found.clause)
        keep_io(kept, found)
        witness = kept.as_posix()
    return io_finding(found, command, witness)


def _notes(request: Request, result: CrashResult) -> tuple[str, ...]:
    """What the store did to its processes, and, apart, whether power loss is survived on a
    journaling file system only (VD-7).
    """
    habits = tuple(f"while it was crashed, {habit}" for habit in result.habits)
    missed = result.total().io_missed
    if missed:
        habits += (f"{missed} I/O errors did not strike: the store does not always do the same",)
    # A chain needs the weakest of the promises that its crashes need.
    models = {
        max((crash.model for crash in found.chain), key=MODELS.index)
        for found in result.findings
        if found.chain
    }
    if request.level != "power" or not models:
        return habits
    if "kill" not in models and not result.total().syncs:
        habits += (
            "not one sync of this store was seen, so it loses what it acknowledged when power "
            "fails: shown once, whatever clauses that breaks; a sync made by foreign code (cffi, a "
            "C extension) would not be seen",
        )
    if models == {"posix"}:
        return (
            *habits,
            "power loss: holds on a journaling file system (model ordered), not on what POSIX "
            "alone promises (model posix)",
        )
    if "kill" not in models:
        return (*habits, "kills: no violation; the violations need a power loss")
    return habits


def _loss_finding(loss: WorkerLoss) -> CrashFinding:
    """A store that ended or hung the process that loaded it, where the disk is not known."""
    clause = "DM-1" if loss.devices else "IO-2" if loss.io else "CR-3"
    return CrashFinding(
        clause=clause,
        session="",
        sentence=loss.reason,
        lost=(),
        plan=loss.plan,
        calls=(),
        chain=() if loss.devices or loss.io else (Crash("kill", 0),),
        recovery_calls=(),
        files={},
        directories=(),
        submitted=0,
        acknowledged=0,
        cause=f"{clause} {loss.reason}",
        images_until_found=0,
    )
