"""What the crash part of a campaign came to.

Adds up the shares of many workers. Decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from torntail.explore.crash_shard import CrashFinding, ShareReport
from torntail.explore.io_shard import IoFinding

__all__ = ["CrashResult", "WorkerLoss"]


@dataclass(frozen=True, slots=True)
class WorkerLoss:
    """A worker that hung or died: in which plan, how, and what else it was under at the time: a
    device fault, or an I/O error.
    """

    plan: str
    reason: str
    devices: bool = False
    io: bool = False


@dataclass(slots=True)
class CrashResult:
    """What the crash part of a campaign came to."""

    reports: dict[int, ShareReport] = field(default_factory=dict)
    findings: list[CrashFinding] = field(default_factory=list)
    io_findings: dict[str, IoFinding] = field(default_factory=dict)
    losses: list[WorkerLoss] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    seconds: float = 0.0
    # How many histories are to be made small, after the search, and how many are done.
    histories: int = 0
    shortened: int = 0

    @property
    def unseen(self) -> str | None:
        """Why this store cannot be recorded in this process, if so."""
        return next((report.unseen for report in self.reports.values() if report.unseen), None)

    @property
    def outside(self) -> str | None:
        """A file that the store wrote outside its directory, if it did."""
        return next((one.outside for one in self.reports.values() if one.outside), None)

    @property
    def habits(self) -> tuple[str, ...]:
        """What the store did to its processes, each once."""
        told = [habit for report in self.reports.values() for habit in report.habits]
        return tuple(dict.fromkeys(told))

    @property
    def foreign(self) -> tuple[str, ...]:
        """The sync functions that it has looked up where no call of them is seen."""
        names = [name for report in self.reports.values() for name in report.foreign]
        return tuple(dict.fromkeys(names))

    def grouped(self, findings: Iterable[CrashFinding]) -> dict[str, CrashFinding]:
        """The finding to show of each cause.

        Whatever a store loses with power that never syncs has that one cause, in every clause; of
        those the loss of what was acknowledged is shown. What needs no power loss is not among
        them, and where anything is synced nothing is sure.
        """
        shown: dict[str, CrashFinding] = {}
        never_syncs = not self.total().syncs
        for finding in findings:
            cause = finding.cause
            lost_with_power = any(crash.model != "kill" for crash in finding.chain)
            if never_syncs and lost_with_power:
                cause = "never syncs"
            known = shown.get(cause)
            if known is None or (known.clause != "CR-1" and finding.clause == "CR-1"):
                shown[cause] = finding
        return shown

    def keep_shortened(self, finding: CrashFinding) -> None:
        """Takes a finding whose history was made small in the place of the one with its cause."""
        self.shortened += 1
        for index, known in enumerate(self.findings):
            if known.cause == finding.cause:
                self.findings[index] = finding
                return

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
                syncs=sums.syncs + report.syncs,
                doubted=sums.doubted or report.doubted,
                executed=_added(sums.executed, report.executed),
                situations=_added(sums.situations, report.situations),
                plan=report.plan or sums.plan,
                device_faults=report.device_faults or sums.device_faults,
                io_runs=sums.io_runs + report.io_runs,
                io_images=sums.io_images + report.io_images,
                io_struck=_added(sums.io_struck, report.io_struck),
                io_missed=sums.io_missed + report.io_missed,
                moot={**sums.moot, **report.moot},
            )
        return sums


def _added(one: dict[str, int], other: dict[str, int]) -> dict[str, int]:
    return {key: one.get(key, 0) + other.get(key, 0) for key in {**one, **other}}
