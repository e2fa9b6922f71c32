"""A share of a crash campaign: which plans it runs, when it stops, what it reports.

The same function serves a worker process and a campaign in this one. Shares divide the plans by
their number, so that the plans, the images and the findings are the same however many share them;
only the order in which findings come differs. Budgets are counts, never times.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, Final

import msgspec

from torntail.crash.crashes import Crash
from torntail.crash.devices import DeviceFault
from torntail.crash.disk import DiskImage, Model
from torntail.drive.target import Target
from torntail.explore.crash_run import Counts, CrashRun, Limits, Recording, Violation
from torntail.explore.plans import crash_plan, crash_plans
from torntail.explore.room import lacks_room, no_room_in
from torntail.explore.script import Case
from torntail.judge.evidence import Evidence
from torntail.judge.history import Operation as Call
from torntail.judge.ledger import Ledger
from torntail.judge.oracle import Judgement, judge
from torntail.judge.recovery import Breach
from torntail.record.foreign import foreign_syncs
from torntail.record.inprocess import RecordingFailed
from torntail.record.slots import Slot

__all__ = [
    "CrashFinding",
    "Share",
    "ShareReport",
    "crash_share",
    "finding_of",
    "violation_finding",
]

_PLANS_AFTER_A_FINDING: Final = 4
_CAUSES_PER_CLAUSE: Final = 4


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """What one worker is to do.

    `images` distinct images, of the plans whose number is `shard` modulo `shards`, or of the plan
    `plan` alone. When each clause of `sought` is violated there is nothing more to learn. With
    `devices`, device faults on so many plans instead (`device_shard`); with `io_runs`, so many I/O
    errors, after which power is cut if `power` says so (`io_shard`).
    """

    models: tuple[Model, ...]
    seed: int
    images: int
    shard: int = 0
    shards: int = 1
    plan: str | None = None
    sought: frozenset[str] = frozenset()
    devices: int = 0
    io_runs: int = 0
    power: bool = False


class CrashFinding(msgspec.Struct, frozen=True, kw_only=True):
    """A violation as it is reported: JSON-able, with the disk image and the crashes that left it.

    `cause` is equal for violations that show the same fault. Under a device `fault` there is no
    chain of crashes, nor where a call of the plan itself went wrong `unprovoked`. `evidence` is
    what it was judged by.
    """

    clause: str
    session: str
    sentence: str
    lost: tuple[str, ...]
    plan: str
    calls: tuple[Call, ...]
    chain: tuple[Crash, ...]
    recovery_calls: tuple[Call, ...]
    files: dict[str, bytes]
    directories: tuple[str, ...]
    submitted: int
    acknowledged: int
    cause: str
    images_until_found: int
    fault: DeviceFault | None = None
    evidence: Evidence | None = None

    @property
    def unprovoked(self) -> bool:
        """Whether there was neither a crash nor a fault."""
        return self.clause.startswith(("RW-", "CL-"))

    @property
    def model(self) -> Model:
        """The model of the last crash: the promise of a disk that is not enough."""
        return self.chain[-1].model


class ShareReport(msgspec.Struct, frozen=True, kw_only=True):
    """Where a share stands.

    `unseen` says why in-process recording cannot see this store, `outside` names a file it wrote
    outside its directory, and `habits` are what else it did to its process. `syncs` were seen in
    plans; `foreign` are sync functions it has looked up where no call of them is seen, and
    `doubted` says that something was lost with power which these may have kept. Of the I/O errors
    `io_missed` did not strike; `moot` says of a clause why there was nothing to strike.
    """

    plans: int = 0
    moments: int = 0
    images: int = 0
    distinct: int = 0
    recoveries: int = 0
    executed: dict[str, int] = {}
    situations: dict[str, int] = {}
    plan: str = ""
    findings: int = 0
    done: bool = False
    device_faults: dict[str, dict[str, int]] = {}
    unseen: str | None = None
    outside: str | None = None
    habits: tuple[str, ...] = ()
    syncs: int = 0
    foreign: tuple[str, ...] = ()
    doubted: bool = False
    io_runs: int = 0
    io_images: int = 0
    io_struck: dict[str, int] = {}
    io_missed: int = 0
    moot: dict[str, str] = {}

    @property
    def moved(self) -> int:
        """A number that grows as long as disks are loaded."""
        struck = sum(sum(outcomes.values()) for outcomes in self.device_faults.values())
        return self.images + self.distinct + struck + self.io_runs + self.io_images


class _Enough(Exception):
    """All that was sought is found."""


def crash_share(
    target: Target,
    share: Share,
    *,
    slot: Slot,
    found: Callable[[CrashFinding], None],
    tick: Callable[[ShareReport], None],
    began: Callable[[], object] = lambda: None,
) -> ShareReport:
    """Runs a share to its end; `found` gets each cause once, `tick` the state after each moment.

    `began` is called before the store is let loose on a disk, for a watchdog.
    """
    causes: dict[str, CrashFinding] = {}
    plan_name = ""
    doubted = False

    def on_violation(violation: Violation) -> None:
        if lacks_room(slot.path, violation.breach.sentence):
            raise no_room_in(slot.path)
        nonlocal doubted
        if foreign_syncs() and any(crash.model != "kill" for crash in violation.chain):
            doubted = True
            return
        finding = violation_finding(violation, run.counts.distinct)
        same_clause = sum(known.clause == finding.clause for known in causes.values())
        if finding.cause not in causes and same_clause < _CAUSES_PER_CLAUSE:
            causes[finding.cause] = finding
            on_tick(run.counts)  # What is known of the store's syncs goes with it.
            found(finding)
            if share.sought and share.sought <= {known.clause for known in causes.values()}:
                raise _Enough

    def on_recording(recording: Recording) -> None:
        for judgement in judge(recording.history, target.capabilities).judgements:
            if judgement.passed:
                continue
            finding = _unprovoked(judgement, plan_name, recording, run.counts.distinct)
            if finding.cause not in causes:
                causes[finding.cause] = finding
                found(finding)

    def on_tick(counts: Counts) -> None:
        tick(report(counts))

    def report(counts: Counts) -> ShareReport:
        known = _report(counts, plan_name, len(causes))
        return msgspec.structs.replace(known, foreign=foreign_syncs(), doubted=doubted)

    run = CrashRun(
        target,
        slot,
        share.models,
        seed=share.seed,
        found=on_violation,
        tick=on_tick,
        began=began,
        recorded=on_recording,
    )
    plans_left: int | None = None
    unseen = None
    plans: Iterator[Case] = islice(
        crash_plans(share.seed, target.capabilities), share.shard, None, share.shards
    )
    if share.plan is not None:
        plans = iter([crash_plan(share.seed, target.capabilities, share.plan)])
    for plan in plans:
        plan_name = plan.name
        on_tick(run.counts)  # Said before it begins: it may take the process along.
        run.limits = _limits(plan, share)
        try:
            run.run(plan)
        except RecordingFailed as error:
            unseen = str(error)
            break
        except _Enough:
            break
        if plans_left is not None:
            plans_left -= 1
        elif causes:
            plans_left = _PLANS_AFTER_A_FINDING
        if plans_left == 0 or run.counts.distinct >= share.images:
            break
    return msgspec.structs.replace(report(run.counts), done=True, unseen=unseen)


def _limits(plan: Case, share: Share) -> Limits:
    if plan.crashed:  # What a recovery of many sessions or of a long log costs is for smaller ones.
        return Limits(depth=0, until=share.images)
    return Limits(until=share.images)


def _report(counts: Counts, plan: str, findings: int) -> ShareReport:
    return ShareReport(
        plans=counts.plans,
        moments=counts.moments,
        images=counts.images,
        distinct=counts.distinct,
        recoveries=counts.recoveries,
        syncs=counts.syncs,
        foreign=foreign_syncs(),
        executed=dict(counts.executed),
        situations=dict(counts.situations),
        plan=plan,
        findings=findings,
    )


def violation_finding(violation: Violation, images: int) -> CrashFinding:
    """A violation as it is reported, found after so many distinct images."""
    return finding_of(
        violation.breach,
        violation.ledger,
        violation.image,
        plan=violation.plan,
        calls=violation.calls,
        chain=violation.chain,
        recovery_calls=violation.recovery_calls,
        cause=_cause(violation),
        images_until_found=images,
        evidence=violation.evidence,
    )


def _unprovoked(judgement: Judgement, plan: str, recording: Recording, images: int) -> CrashFinding:
    """What went wrong in a plan before anything was crashed."""
    calls = tuple(one.operation for one in recording.history[: judgement.index + 1])
    return CrashFinding(
        clause=judgement.clause,
        session="",
        sentence=judgement.sentence,
        lost=(),
        plan=plan,
        calls=calls,
        chain=(),
        recovery_calls=(),
        files={},
        directories=(),
        submitted=0,
        acknowledged=0,
        cause=f"{judgement.clause} {_kind(judgement.sentence)}",
        images_until_found=images,
    )


def finding_of(breach: Breach, ledger: Ledger, image: DiskImage, **facts: Any) -> CrashFinding:
    """A breach as it is reported, with the disk that shows it; `facts` are the other attributes."""
    debt = ledger.sessions.get(breach.session)
    return CrashFinding(
        clause=breach.clause,
        session=breach.session,
        sentence=breach.sentence,
        lost=breach.lost,
        files={_printable(path): content for path, content in image.files.items()},
        directories=tuple(sorted(map(_printable, image.directories))),
        submitted=0 if debt is None else len(debt.submitted),
        acknowledged=0 if debt is None else debt.acknowledged,
        **facts,
    )


def _printable(path: str) -> str:
    """A path in which bytes that are no UTF-8 are escaped: it has to pass through JSON."""
    return path.encode("utf-8", "backslashreplace").decode("utf-8")


def _cause(violation: Violation) -> str:
    """The clause, the kind of sentence and the kind of crash: numbers and names left out."""
    debt = violation.ledger.sessions.get(violation.breach.session)
    # The models and how many crashes there were are left out: what shows under `kill`, or after one
    # crash, shows under the others, too, and comes first.
    busy = debt.busy if debt else ""
    return f"{violation.breach.clause} {busy} {_kind(violation.breach.sentence)}"


def _kind(sentence: str) -> str:
    """What is alike in sentences that tell of one fault."""
    return re.sub(r"'[^']*'|\"[^\"]*\"|/[^ ,:;]*|\d+", "…", sentence)[:80]
