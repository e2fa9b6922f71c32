"""The process that crashes a store: a share of the plans, in a process that may die of it.

Reads one JSON line on standard input that says what to do, writes JSON lines on what was standard
output: findings, and a beat with its counts, from a thread of its own, so that the campaign can
tell a slow store from one that hangs. Whatever the store prints goes to standard error. Decides
nothing; see `crash_shard`.
"""

from __future__ import annotations

import os
import sys
import threading
from typing import Literal

import msgspec

from torntail.explore.crash_shard import CrashFinding, Share, ShareReport, crash_share
from torntail.explore.device_shard import device_share
from torntail.judge.capabilities import Capabilities
from torntail.record.install import install
from torntail.record.scratch import Scratch
from torntail.record.slots import Slot

__all__ = ["Message", "WorkOrder", "main"]

_BEAT_SECONDS = 0.25


class WorkOrder(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker gets on its standard input."""

    target: str
    capabilities: Capabilities
    durability: Literal["none", "process", "power"] | None
    share: Share
    slot_parent: str | None = None


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """A line a worker writes: its state, a finding, or why it could not go on."""

    report: ShareReport | None = None
    finding: CrashFinding | None = None
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

    try:
        target = target_of(
            order.target, capabilities=order.capabilities, durability=order.durability
        )
        with Scratch() as scratch, Slot(scratch) as slot:
            run_share = device_share if order.share.devices else crash_share
            report = run_share(
                target,
                order.share,
                slot=slot,
                found=lambda finding: state.send(Message(finding=finding)),
                tick=state.update,
            )
        state.send(Message(report=report))
    except Exception as error:
        state.send(Message(error=f"{type(error).__name__}: {error}"))
        raise


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
        """Keeps the newest state for the next beat."""
        self._report = report

    def _beat(self) -> None:
        timer = threading.Event()
        while not timer.wait(_BEAT_SECONDS):
            report = self._report
            if report is not None:
                try:
                    self.send(Message(report=report))
                except OSError:
                    # Nobody listens any more: the campaign was killed, and this goes with it.
                    os._exit(1)


if __name__ == "__main__":
    main()
