"""The share of a campaign that strikes plans with device faults; see `crash_shard` for the others.

Decides which plans are struck and what is reported. Does not decide what a fault leaves
(`crash.devices`) or what an answer is worth (`judge.devices`).
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from torntail.crash.devices import fault_name
from torntail.drive.target import Target
from torntail.explore.crash_shard import CrashFinding, Share, ShareReport, finding_of
from torntail.explore.device_run import DeviceRun, DeviceViolation
from torntail.explore.plans import crash_plans
from torntail.explore.room import lacks_room, no_room_in
from torntail.record.inprocess import RecordingFailed
from torntail.record.slots import Slot

__all__ = ["device_share"]


def device_share(
    target: Target,
    share: Share,
    *,
    slot: Slot,
    found: Callable[[CrashFinding], None],
    tick: Callable[[ShareReport], None],
) -> ShareReport:
    """Strikes the first `share.devices` plans, or `share.plan`; `found` gets each cause once."""
    causes: set[str] = set()
    plan_name = ""

    def on_violation(violation: DeviceViolation) -> None:
        if lacks_room(slot.path, violation.breach.sentence):
            raise no_room_in(slot.path)
        finding = _finding(violation, sum(sum(kind.values()) for kind in run.counts.values()))
        if finding.cause not in causes:
            causes.add(finding.cause)
            found(finding)

    def report() -> ShareReport:
        counts = {kind: dict(outcomes) for kind, outcomes in run.counts.items()}
        return ShareReport(plan=plan_name, findings=len(causes), device_faults=counts)

    run = DeviceRun(target, slot, share.seed, on_violation, lambda: tick(report()))
    unseen = None
    for plan in crash_plans(share.seed, target.capabilities):
        if share.plan is not None and plan.name != share.plan:
            continue
        plan_name = plan.name
        tick(report())
        try:
            run.run(plan)
        except RecordingFailed as error:
            unseen = str(error)
            break
        if share.plan is not None or run.plans >= share.devices:
            break
    return msgspec.structs.replace(report(), done=True, unseen=unseen)


def _finding(violation: DeviceViolation, images: int) -> CrashFinding:
    return finding_of(
        violation.breach,
        violation.ledger,
        violation.image,
        plan=violation.plan,
        calls=violation.calls,
        chain=(),
        recovery_calls=(),
        cause=f"{violation.breach.clause} {fault_name(violation.fault)}",
        images_until_found=images,
        fault=violation.fault,
    )
