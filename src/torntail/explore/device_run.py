"""Device faults, apart from all crashes: record a plan, break its disk, load, count.

Decides which plans are struck and how the answers are added up: an image counts once, as the worst
answer any of its sessions gave. Does not decide what a fault leaves (`crash.devices`) or what an
answer is worth (`judge.devices`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from torntail.crash.devices import DeviceFault, Devices, fault_name
from torntail.crash.disk import EMPTY_IMAGE, Disk, DiskImage
from torntail.crash.oplog import Acknowledged, Invoked
from torntail.drive.target import Target
from torntail.explore.crash_calls import CrashCalls
from torntail.explore.crash_places import ledgers_of
from torntail.explore.script import Case
from torntail.explore.traced_calls import calls_on
from torntail.judge.devices import (
    DEVICE_OUTCOMES,
    DeviceOutcome,
    device_breach,
    device_outcome,
)
from torntail.judge.history import Operation
from torntail.judge.ledger import Ledger
from torntail.judge.recovery import Breach
from torntail.record.slots import Slot

__all__ = ["DEVICE_FAULTS_PER_PLAN", "DEVICE_PLANS", "DeviceRun", "DeviceViolation"]

DEVICE_PLANS: Final = 20
DEVICE_FAULTS_PER_PLAN: Final = 60


@dataclass(frozen=True, slots=True)
class DeviceViolation:
    """A breach under a device fault: the calls made by then, the disk, what was owed."""

    breach: Breach
    plan: str
    calls: tuple[Operation, ...]
    fault: DeviceFault
    image: DiskImage
    ledger: Ledger


@dataclass(slots=True)
class DeviceRun:
    """Strikes plans of one target; `counts` is kind of fault → outcome → images."""

    target: Target
    slot: Slot
    seed: int
    found: Callable[[DeviceViolation], None]
    tick: Callable[[], None] = lambda: None
    plans: int = 0
    counts: dict[str, dict[str, int]] = field(default_factory=dict)

    def run(self, plan: Case) -> None:
        """Records a plan and strikes it; raises what the recorder raises for an unseen write."""
        crash_calls = calls_on(self.target, self.slot)
        self.slot.hold(EMPTY_IMAGE)
        recording = crash_calls.record(plan.operations, None)
        self.plans += 1
        # The weaker promise of a disk would add what an honest one may lose already.
        devices = Devices(Disk("ordered"), recording.operations)
        ledgers = ledgers_of(recording, self.target.capabilities)
        for fault in devices.faults(f"{self.seed}/{plan.name}", DEVICE_FAULTS_PER_PLAN):
            before = recording.operations[: fault.position]
            step = sum(isinstance(operation, Invoked | Acknowledged) for operation in before)
            call = max((o.call for o in before if isinstance(o, Acknowledged)), default=-1)
            calls = plan.operations[: call + 1]
            self._strike(crash_calls, plan, devices, fault, ledgers[step], tuple(calls))
            self.tick()

    def _strike(
        self,
        crash_calls: CrashCalls,
        plan: Case,
        devices: Devices,
        fault: DeviceFault,
        ledger: Ledger,
        calls: tuple[Operation, ...],
    ) -> None:
        capabilities = self.target.capabilities
        image = devices.image(fault)
        struck = devices.path(fault)
        worst: DeviceOutcome | None = None
        for session, debt in ledger.sessions.items():
            if not debt.submitted:
                continue
            # Each session is loaded from the disk as the fault left it.
            self.slot.hold(image)
            answer = crash_calls.load_all([session])[session]
            outcome = device_outcome(answer, debt, capabilities)
            changed: tuple[str, ...] = ()
            if outcome == "refused" and struck in self.slot.changed():
                left = self.slot.image().files.get(struck)
                changed = () if left == image.files.get(struck) else (struck,)
            breach = device_breach(session, answer, outcome, capabilities, changed)
            if breach is not None:
                self.found(DeviceViolation(breach, plan.name, calls, fault, image, ledger))
            if worst is None or DEVICE_OUTCOMES.index(outcome) > DEVICE_OUTCOMES.index(worst):
                worst = outcome
        if worst is not None:
            outcomes = self.counts.setdefault(fault_name(fault), {})
            outcomes[worst] = outcomes.get(worst, 0) + 1
