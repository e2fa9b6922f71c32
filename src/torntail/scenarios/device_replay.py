"""A device fault carried out: the plan recorded, its disk struck, every session loaded, judged.

Decides which disks are tried: the very fault that was recorded, on a store whose file operations up
to it are the same, else every fault of that kind from a fixed choice. Does not decide what a fault
leaves (`crash.devices`) or what an answer is worth (`judge.devices`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Final

from torntail.crash.devices import DeviceFault, Devices, fault_words
from torntail.crash.disk import EMPTY_IMAGE, Disk, DiskImage
from torntail.crash.oplog import Acknowledged, Invoked
from torntail.drive.target import Target
from torntail.explore.crash_calls import CrashCalls
from torntail.judge.devices import device_breach, device_outcome
from torntail.judge.ledger import Ledger, ledger_steps
from torntail.judge.recovery import Answer
from torntail.scenarios.format import DeviceStrike, Scenario
from torntail.scenarios.outcome import (
    Replay,
    ReplayFinding,
    cause_of,
    image_digest,
    operations_digest,
)
from torntail.scenarios.story import device_story

__all__ = ["replay_device"]

_FAULTS: Final = 60


def replay_device(
    scenario: Scenario, target: Target, calls: CrashCalls, explain: bool = False
) -> Replay:
    """What a scenario with a device fault comes to; raises what the recorder raises."""
    (strike,) = (fault for fault in scenario.faults if isinstance(fault, DeviceStrike))
    calls.hold(EMPTY_IMAGE)
    recording = calls.record(scenario.plan, None)
    devices = Devices(Disk("ordered"), recording.operations)
    marks = [
        (operation.call, isinstance(operation, Acknowledged))
        for operation in recording.operations
        if isinstance(operation, Invoked | Acknowledged)
    ]
    ledgers = ledger_steps(recording.history, marks, target.capabilities)
    findings: dict[str, ReplayFinding] = {}
    digest = hashlib.sha256()
    images = 0
    story: tuple[str, ...] = ()
    for fault, image in _strikes(strike, devices, recording.operations):
        before = recording.operations[: fault.position]
        step = sum(isinstance(operation, Invoked | Acknowledged) for operation in before)
        images += 1
        digest.update(image_digest(image).encode("ascii"))
        found, answers = _load(target, calls, image, devices.path(fault), ledgers[step])
        new = [one for one in found if one.cause not in findings]
        findings |= {one.cause: one for one in new}
        if explain and (not story or (new and len(findings) == len(new))):
            story = device_story(scenario, fault_words(fault), image, answers, tuple(found))
    return Replay(
        scenario=scenario.id,
        store=target.name,
        status="failed" if findings else "fixed" if images else "unknown",
        reason="" if images else "the fault did not land: this device fault changes no disk of it",
        findings=tuple(findings.values()),
        images=images,
        digest=digest.hexdigest(),
        landed=(bool(images),),
        story=story,
    )


def _strikes(
    strike: DeviceStrike, devices: Devices, operations: tuple[object, ...]
) -> Iterator[tuple[DeviceFault, DiskImage]]:
    wanted = strike.strike
    if 0 <= wanted.position <= len(operations):
        before = operations[: wanted.position]
        if operations_digest(before) == strike.operations:  # type: ignore[arg-type]
            try:
                image = devices.image(wanted)
            except (LookupError, ValueError, AttributeError):
                pass  # Written by hand, and no fault of this disk.
            else:
                if image != devices.whole(wanted.position):
                    yield wanted, image
                    return
    for fault in devices.faults("scenario", _FAULTS):
        if type(fault) is type(wanted):
            yield fault, devices.image(fault)


def _load(
    target: Target, calls: CrashCalls, image: DiskImage, struck: str | None, ledger: Ledger
) -> tuple[list[ReplayFinding], dict[str, Answer]]:
    """Every session loaded from the disk as the fault left it."""
    found = []
    answers: dict[str, Answer] = {}
    for session, debt in ledger.sessions.items():
        if not debt.submitted:
            continue
        calls.hold(image)
        answer = answers[session] = calls.load_all([session])[session]
        outcome = device_outcome(answer, debt, target.capabilities)
        changed: tuple[str, ...] = ()
        left = calls.left()
        if outcome == "refused" and struck is not None and left is not None:
            same = left.files.get(struck) == image.files.get(struck)
            changed = () if same else (struck,)
        breach = device_breach(session, answer, outcome, target.capabilities, changed)
        if breach is not None:
            found.append(
                ReplayFinding(
                    clause=breach.clause,
                    sentence=breach.sentence,
                    cause=cause_of(breach.clause, breach.sentence),
                    session=session,
                    model="device fault",
                )
            )
    return found, answers
