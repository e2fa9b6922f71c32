"""The process that crashes a store: a share of the plans, in a process that may die of it.

Reads one JSON line on standard input that says what to do, writes JSON lines on what was standard
output: findings, and a beat with its counts, from a thread of its own, so that the campaign can
tell a slow store from one that hangs. Whatever the store prints goes to standard error. Decides
nothing; see `crash_shard`, `device_shard`, `io_shard`, `crash_shrink` and `crash_loss`.
"""

from __future__ import annotations

import os
import sys
import threading
from typing import Literal

import msgspec

from torntail.drive.target import Target
from torntail.explore.crash_loss import CallCounter, FatalCall, counted, fatal_finding
from torntail.explore.crash_shard import CrashFinding, Share, ShareReport, crash_share
from torntail.explore.crash_shrink import smallest_history
from torntail.explore.device_shard import device_share
from torntail.explore.io_shard import IoFinding, io_share
from torntail.explore.room import told
from torntail.explore.surroundings import Outside, Surroundings
from torntail.judge.capabilities import Capabilities
from torntail.record.foreign import foreign_syncs
from torntail.record.install import install
from torntail.record.scratch import Scratch
from torntail.record.slots import Slot

__all__ = ["Message", "WorkOrder", "main"]

_BEAT_SECONDS = 0.25


class WorkOrder(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker gets on its standard input.

    It runs `share`, or makes the histories of the findings in `shrink` small. With `count` the
    calls on stores are counted in that file; with `fatal` that call is answered in the place of the
    store. Its scratch space is below `scratch`.
    """

    target: str
    capabilities: Capabilities
    durability: Literal["none", "process", "power"] | None
    share: Share
    scratch: str
    shrink: tuple[CrashFinding, ...] = ()
    count: str | None = None
    fatal: FatalCall | None = None


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """A line a worker writes: its state, a finding, or why it could not go on."""

    report: ShareReport | None = None
    finding: CrashFinding | None = None
    io_finding: IoFinding | None = None
    error: str | None = None


def main() -> None:
    """Runs one order to its end."""
    order = msgspec.json.decode(sys.stdin.buffer.readline(), type=WorkOrder)
    channel = os.dup(1)
    os.dup2(2, 1)
    state = _Channel(channel)
    # Before the store's module is imported, so that a name bound early is a wrapped one.
    install()
    from torntail.drive.target import target_of

    surroundings: Surroundings | None = None
    try:
        target = target_of(
            order.target, capabilities=order.capabilities, durability=order.durability
        )
        with (
            Scratch(order.scratch) as scratch,
            Slot(scratch) as slot,
            Surroundings() as surroundings,
        ):
            report = _run(target, order, slot, state, surroundings)
        state.send(Message(report=report))
    except Exception as error:
        habits = "".join(f"; {habit}" for habit in surroundings.habits) if surroundings else ""
        state.send(Message(error=told(error) + habits))
        raise


def _run(
    target: Target, order: WorkOrder, slot: Slot, state: _Channel, surroundings: Surroundings
) -> ShareReport:
    def found(finding: CrashFinding) -> None:
        state.send_report()
        state.send(Message(finding=finding))

    def found_io(finding: IoFinding) -> None:
        state.send(Message(io_finding=finding))

    def tick(report: ShareReport) -> None:
        surroundings.look()
        state.update(report)

    seed = order.share.seed
    if order.shrink:
        for finding in order.shrink:
            found(smallest_history(target, finding, seed=seed, slot=slot, tick=tick))
        return ShareReport(done=True)
    if order.fatal is not None:
        fatal = fatal_finding(target, order.share, order.fatal, slot=slot, tick=tick)
        if fatal is not None:
            found(fatal)
        return ShareReport(done=True)
    if order.count is not None:
        target = counted(target, CallCounter(order.count))
    with Outside(slot.path) as outside:
        if order.share.io_runs:
            report = io_share(target, order.share, slot=slot, found=found_io, tick=tick)
        else:
            run_share = device_share if order.share.devices else crash_share
            report = run_share(target, order.share, slot=slot, found=found, tick=tick)
    return msgspec.structs.replace(
        report,
        outside=outside.first,
        habits=tuple(surroundings.habits),
        foreign=foreign_syncs(),
    )


class _Channel:
    """Lines to the campaign, from the thread that works and the one that beats."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lock = threading.Lock()
        self._report: ShareReport | None = None
        self._write = os.write  # The recorder's wrapper is not for this.
        threading.Thread(target=self._beat, daemon=True).start()

    def send(self, message: Message) -> None:
        """Writes one line whole."""
        line = msgspec.json.encode(message) + b"\n"
        with self._lock:
            view = memoryview(line)
            while view:
                view = view[self._write(self._descriptor, view) :]

    def update(self, report: ShareReport) -> None:
        """Keeps the newest state for the next beat; a new plan is told at once."""
        before, self._report = self._report, report
        if before is None or before.plan != report.plan:
            self.send(Message(report=report))

    def send_report(self) -> None:
        """Sends the newest state, if there is one."""
        report = self._report
        if report is not None:
            self.send(Message(report=report))

    def _beat(self) -> None:
        timer = threading.Event()
        while not timer.wait(_BEAT_SECONDS):
            if self._report is not None:
                try:
                    self.send_report()
                except OSError:
                    # Nobody listens any more: the campaign was killed, and this goes with it.
                    os._exit(1)


if __name__ == "__main__":
    main()
