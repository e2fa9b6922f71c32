"""A replay told step by step: what was called, what stood on the disk, what came back, the clause.

Decides the words. File contents are shown as text where they are text, else as a hex dump; both are
cut to what a person reads, and whatever a terminal would act upon is escaped.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from torntail.crash.crashes import Crash
from torntail.crash.disk import DiskImage
from torntail.crash.io_faults import IoFault, fault_told
from torntail.explore.crash_findings import crash_words
from torntail.explore.fuzz_finding import FuzzFinding
from torntail.explore.witness import describe_steps
from torntail.judge.clauses import clause
from torntail.judge.history import (
    History,
    Hung,
    LoadedSession,
    Observation,
    Refused,
    Returned,
    StrangeResult,
)
from torntail.judge.io_steps import IoStep, Revive, Take
from torntail.judge.ledger import Debt
from torntail.judge.recovery import Answer, Recovery
from torntail.scenarios.crash_replay import CrashSight
from torntail.scenarios.format import FileFault, Scenario
from torntail.scenarios.outcome import ReplayFinding, one_for_each_clause

__all__ = [
    "crash_story",
    "device_story",
    "error_story",
    "finding_story",
    "plan_story",
    "shown_file",
    "told_answer",
    "verdict",
]

_LINES: Final = 12
_LINE_CHARACTERS: Final = 110
_DUMP_BYTES: Final = 96


def plan_story(
    scenario: Scenario, history: History, findings: Sequence[ReplayFinding]
) -> tuple[str, ...]:
    """The story of a plan without a crash."""
    lines: list[str] = []
    for fault in scenario.faults:
        if isinstance(fault, FileFault):
            lines.append(f"in the store's directory stands {fault.path}")
            lines += shown_file(fault.data)
    steps = describe_steps([observation.operation for observation in history], history)
    return (*lines, *_numbered(steps), *verdict(findings, scenario))


def crash_story(
    scenario: Scenario, sight: CrashSight, findings: Sequence[ReplayFinding]
) -> tuple[str, ...]:
    """The story of one crashed disk."""
    steps: list[str] = []
    for number, (crash, recording) in enumerate(zip(sight.chain, sight.recordings, strict=True)):
        if number:
            steps.append("a new process opens the store")
        calls = [observation.operation for observation in recording.history]
        # The last call did not come to its end, unless the crash is after it.
        last = (describe_steps(calls, None) or ("before the first call",))[-1]
        steps += describe_steps(calls, recording.history)[:-1]
        steps.append(f"{last}: {crash_words(crash)}")
    lines = [*_numbered(steps), *_aftermath(sight.image, sight.recovery, sight.ledger.sessions)]
    return (*lines, *verdict(findings, scenario))


def finding_story(finding: FuzzFinding) -> tuple[str, ...]:
    """The story of what fuzzing found, as a replay tells it, but for the clause."""
    if finding.error is not None:
        error = finding.error
        image = DiskImage(error.files, frozenset(error.directories))
        return tuple(error_story(finding.fault, error.steps, error.crash, image))
    crash = finding.crash
    if crash is None or not crash.chain:
        return tuple(_numbered(describe_steps(finding.operations, finding.history or None)))
    *done, last = describe_steps(crash.calls, None) or ("before the first call",)
    steps = [*done, f"{last}: {crash_words(crash.chain[0])}"]
    for one in crash.chain[1:-1]:
        steps += ["a new process opens the store", f"while it loads: {crash_words(one)}"]
    if len(crash.chain) > 1:
        *between, inside = describe_steps(crash.recovery_calls, None) or ("while it opens",)
        steps += ["a new process opens the store", *between]
        steps.append(f"{inside}: {crash_words(crash.chain[-1])}")
    image = DiskImage(crash.files, frozenset(crash.directories))
    if crash.evidence is None:
        return (*_numbered(steps), "on the disk then:", *_disk(image))
    return (*_numbered(steps), *_aftermath(image, crash.evidence.recovery, crash.evidence.debts))


def error_story(
    fault: IoFault | None, steps: Sequence[IoStep], crash: Crash | None, image: DiskImage
) -> Iterator[str]:
    """The story of a run in which the disk said no, and perhaps of a crash after it."""
    if fault is not None:
        yield f"in call {fault.during + 1} of the plan {fault_told(fault)}"
    yield from _numbered([_error_step(step) for step in steps])
    if crash is not None:
        yield f"then {crash_words(crash)}"
    yield "on the disk then:"
    yield from _disk(image)


def _error_step(step: IoStep) -> str:
    call = step.call
    match call:
        case Revive(session=session):
            told = f"reopen {session!r} → {told_answer(step.outcome)}"
        case Take(session=session, how=how):
            told = f"the file of {session!r} is {how}"
        case _:
            told = describe_steps([call], (Observation(call, step.outcome),))[0]
    failed = ", ".join(
        f"{one.kind} {'came short' if one.error is None else f'failed with {one.error}'}"
        for one in step.struck
    )
    return f"{told} ({failed})" if failed else told


def device_story(
    scenario: Scenario,
    fault: str,
    image: DiskImage,
    answers: Mapping[str, Answer],
    findings: Sequence[ReplayFinding],
) -> tuple[str, ...]:
    """The story of one disk that a device fault struck."""
    steps = [*describe_steps(scenario.plan, None), fault]
    lines = [*_numbered(steps), "on the disk then:", *_disk(image)]
    lines.append("a new process opens the store and loads:")
    lines += [f"  {session!r}: {told_answer(answer)}" for session, answer in answers.items()]
    return (*lines, *verdict(findings, scenario))


def _aftermath(image: DiskImage, recovery: Recovery, debts: Mapping[str, Debt]) -> Iterator[str]:
    """What stood on a disk after a crash, and what the next process made of it."""
    yield "on the disk then:"
    yield from _disk(image)
    yield "a new process opens the store and loads:"
    for session, answer in recovery.loads.items():
        debt = debts.get(session)
        owed = ""
        if debt is not None:
            owed = f" ({debt.acknowledged} of {len(debt.submitted)} submitted events acknowledged)"
        yield f"  {session!r}{owed}: {told_answer(answer)}"
        yield from _further(session, recovery)


def _further(session: str, recovery: Recovery) -> Iterator[str]:
    again = recovery.again.get(session)
    if again is not None:
        wrote = ", ".join(recovery.changed_again)
        yield f"    loaded again: {told_answer(again)}{f', and wrote to {wrote}' if wrote else ''}"
    continued = recovery.continued.get(session)
    if continued is not None:
        if continued.created is not None:
            yield f"    created anew: {told_answer(continued.created)}"
        first = continued.events[0].seq
        yield f"    append from seq {first}: {told_answer(continued.appended)}"
        yield f"    loaded after that: {told_answer(continued.loaded)}"


def _numbered(steps: Sequence[str]) -> Iterator[str]:
    for number, step in enumerate(steps, 1):
        yield f"{number}. {step}"


def verdict(findings: Sequence[ReplayFinding], scenario: Scenario) -> Iterator[str]:
    """Which clauses are violated, or that those expected hold."""
    if not findings:
        for expected in scenario.expect:
            yield f"{expected.clause} holds: {expected.outcome}"
    for finding in one_for_each_clause(findings):
        where = f" in {finding.session!r}" if finding.session else ""
        yield f"{finding.clause} violated{where}: {finding.sentence[:400]}"
        yield f"  {clause(finding.clause).sentence}"


def told_answer(answer: Answer) -> str:
    """What a call came back with."""
    match answer:
        case Returned(session=LoadedSession(events=events)):
            last = f", the last {events[-1].seq} {events[-1].type}" if events else ""
            return f"{len(events)} events{last}"
        case Refused():
            return f"{answer.exception}: {answer.text}"
        case Hung(seconds):
            return f"not back after {seconds:g} s"
        case StrangeResult(reason):
            return f"returned {reason}"
    return "done"


# --- bytes ------------------------------------------------------------------------------------


def _disk(image: DiskImage) -> Iterator[str]:
    if not image.files and not image.directories:
        yield "  nothing"
    for path in sorted(image.files):
        content = image.files[path]
        yield f"  {path!r}, {len(content)} bytes"
        yield from shown_file(content)


def shown_file(content: bytes) -> Iterator[str]:
    """A file's content for a person: its lines escaped, or a dump of what is no text."""
    pieces = content.split(b"\n")
    ended = pieces[-1] == b""
    lines = pieces[:-1] if ended else pieces
    for number, line in enumerate(lines, 1):
        if _LINES - 3 < number <= len(lines) - 2 and len(lines) > _LINES:
            if number == _LINES - 2:
                yield f"      … {len(lines) - _LINES + 1} lines more …"
            continue
        yield from _shown_line(number, line)
    if content and not ended:
        yield "      (no newline at the end)"


def _shown_line(number: int, line: bytes) -> Iterator[str]:
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError:
        text = ""
    odd = sum(not character.isprintable() for character in text)
    if line and (not text or odd * 8 > len(text)):
        yield f"    {number:>3} | {len(line)} bytes that are no text:"
        for start in range(0, min(len(line), _DUMP_BYTES), 16):
            piece = line[start : start + 16]
            letters = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in piece)
            yield f"        | {start:06x}  {piece.hex(' '):<47}  {letters}"
        if len(line) > _DUMP_BYTES:
            yield f"        | … {len(line) - _DUMP_BYTES} bytes more"
        return
    shown = "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode("ascii")
        for character in text
    )
    if len(shown) > _LINE_CHARACTERS:
        shown = f"{shown[: _LINE_CHARACTERS - 24]} … {shown[-20:]}"
    yield f"    {number:>3} | {shown}"
