"""One session in storage, in records: what damage leaves of it and what a reader may make of that.

The reading rule DM-1 to DM-4 stands here once more, over abstract records and independently of
`session.scan`, so that the two can be wrong only apart. Decides nothing about calls (`model`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import msgspec

from torntail.judge.expected import ExpectedTail
from torntail.judge.history import Damage, Damaged, mark_of
from torntail.session import SessionEvent, SessionHeader

__all__ = ["Line", "Reading", "Start", "StoredLog", "damage_log", "expected_tail", "read_log"]


@dataclass(frozen=True, slots=True)
class Line:
    """A record as a reader finds it: whole; or followed by rubbish (`event`, not whole); or bad.

    `mark`: what a bad one still holds of the event it was.
    """

    event: SessionEvent | None
    whole: bool = True
    mark: str | None = None


Start = Literal[
    "whole", "unterminated", "version", "identity", "two places", "garbled", "never materialised"
]


@dataclass(slots=True)
class StoredLog:
    """One session in storage.

    `acknowledged` counts its records before it was damaged; `place` is where its first bad record,
    the one of index `bad_record`, begins; `unknown` is set once the model cannot tell any more.
    `bare`: created without `lazy` and without events so far, in storage or not, as the store likes.
    """

    header: SessionHeader | None
    lines: list[Line]
    ended: bool = True
    start: Start = "whole"
    uncertain: Literal["", "flip", "cut"] = ""
    unknown: bool = False
    acknowledged: int = 0
    place: Damaged | None = None
    bad_record: int = 0
    bare: bool = False

    def copy(self) -> StoredLog:
        """The same log, on its own."""
        return replace(self, lines=list(self.lines))

    def events(self) -> list[SessionEvent]:
        """The events of a log without damage."""
        return [line.event for line in self.lines if line.event is not None]


@dataclass(frozen=True, slots=True)
class Reading:
    """What the reading rule makes of a log: kept events and torn tail, or the bad record."""

    events: tuple[SessionEvent, ...] = ()
    corrupt_at: int | None = None
    wrong_seq: tuple[int, int] | None = None
    committed: bool = False
    torn_from: int | None = None
    kept_leading: bool = False
    copied_marks: tuple[str, ...] = ()
    may_refuse: bool = False


def read_log(log: StoredLog, profile: str) -> Reading:
    """The reading rule (DM-1 to DM-4) over abstract records."""
    ends = [
        index
        for index, line in enumerate(log.lines)
        if line.whole and line.event is not None and line.event.type == "turn/end"
    ]
    committed = log.acknowledged if profile == "log" else (ends[-1] + 1 if ends else 0)
    kept: list[SessionEvent] = []
    for index, line in enumerate(log.lines):
        if line.whole and line.event is not None:
            if line.event.seq != index:
                return Reading(
                    tuple(kept),
                    corrupt_at=index,
                    wrong_seq=(index, line.event.seq),
                    committed=index < committed,
                )
            kept.append(line.event)
            continue
        behind = [later.event for later in log.lines[index + 1 :] if later.whole and later.event]
        # A store of opaque events cannot know what was acknowledged: a last bad record may have
        # been cut by a crash, so it may be dropped or refused; one with records behind it not.
        refuse = bool(behind) if profile == "log" else index < committed
        if refuse:
            return Reading(tuple(kept), corrupt_at=index, committed=True)
        leading = line.event if line.event is not None and line.event.seq == index else None
        if leading is not None:
            kept.append(leading)
        return Reading(
            tuple(kept),
            torn_from=index,
            kept_leading=leading is not None,
            # Without a whole record behind it no copy is asked for; with one, of all of the tail.
            copied_marks=tuple(filter(None, [line.mark, *map(mark_of, behind)])) if behind else (),
            may_refuse=profile == "log" and index < committed,
        )
    return Reading(tuple(kept))


def expected_tail(log: StoredLog, reading: Reading) -> ExpectedTail:
    """What a load has to report of the torn tail, as far as its place is known."""
    place = log.place
    if place is None or place.byte is None or place.size is None:
        return ExpectedTail(copied_marks=reading.copied_marks)
    kept = place.record_bytes or 0 if reading.kept_leading else 0
    byte = place.byte + kept
    return ExpectedTail(place.line, byte, place.size - byte, reading.copied_marks)


def damage_log(log: StoredLog, operation: Damage) -> None:
    """What a damage leaves of a log, in records."""
    lines, index = log.lines, operation.record
    bad = Line(None, whole=False)
    match operation.kind:
        case "garble":
            lines[index] = bad
        case "rewrite":
            event = lines[index].event
            gone = operation.variant in ("blank line", "number", "null")
            lines[index] = replace(bad, mark=None if gone or event is None else mark_of(event))
        case "delete":
            del lines[index]
        case "duplicate":
            lines.insert(index, lines[index])
        case "renumber":
            event = lines[index].event
            assert event is not None
            moved = msgspec.structs.replace(event, seq=event.seq + operation.amount)
            lines[index] = Line(moved)
        case "cut":
            if operation.amount == 0:
                del lines[index:]
            else:
                del lines[index + 1 :]
                log.ended = False
                if operation.amount != -1:
                    lines[index] = bad
        case "trail":
            lines[index] = replace(lines[index], whole=False)
            log.ended = log.ended and operation.variant != "no newline"
        case "add":
            lines.append(bad)
            log.ended = operation.variant.endswith("line")
        case "flip" | "header-flip":
            log.uncertain = "flip"
        case "cut-bytes":
            log.uncertain = "cut"
        case "header-version":
            log.start = "version"
            if log.header is not None:
                log.header = msgspec.structs.replace(log.header, version=operation.amount)
        case "header-id":
            log.start = "identity"
        case "second-place":
            log.start = "two places"
        case "header-only":
            log.start, log.lines = "unterminated", []
        case "header-garble":
            log.start = "garbled"
        case "header-cut" | "empty" | "nul-file":
            log.start, log.lines = "never materialised", []
