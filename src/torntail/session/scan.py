"""The reading rule: which records of a log are kept, what is a torn tail, what is corruption.

A pure function over the log's bytes, so that a store, `inspect` and a judge give the same answer
to the same bytes. Decides DM-1 to DM-6 and RW-14, RW-15. Does not cover: repairing, which is the
store's; closing the interrupted turn, which is `turns`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from itertools import chain
from typing import Final

import msgspec

from torntail.session.codec import (
    leading_object_end,
    parse_block,
    parse_event,
    parse_header,
)
from torntail.session.events import FORMAT_VERSION, MalformedRecord, SessionEvent, SessionHeader

_SMALL_BLOCK_BYTES: Final = 1024

__all__ = ["Damage", "LogScan", "Outcome", "TornTail", "scan_events", "scan_log"]


class Outcome(StrEnum):
    """What a load of the log comes to."""

    OK = "ok"
    CORRUPT = "corrupt"
    UNSUPPORTED_VERSION = "unsupported_version"
    IDENTITY_MISMATCH = "identity_mismatch"
    NEVER_MATERIALISED = "never_materialised"


class Damage(msgspec.Struct, frozen=True):
    """A place where a log is damaged.

    `line` counts from 1, the header being line 1; `byte` is the offset of that line's first byte;
    `excerpt` holds up to 80 bytes found there, `around` as many around the place in the line that
    the reason names, if it names one.
    """

    line: int
    byte: int
    reason: str
    excerpt: bytes
    around: bytes = b""


class TornTail(msgspec.Struct, frozen=True):
    """What a load drops: everything from `byte` (on `line`) to the end, `length` bytes.

    `digest` is the SHA-256 of these bytes in hex. `holds_record` is true when a line in it is a
    complete record, in which case a copy is kept before it is dropped (DM-2). `excerpt` and
    `around` are as in `Damage`.
    """

    line: int
    byte: int
    length: int
    digest: str
    holds_record: bool
    reason: str
    excerpt: bytes
    around: bytes = b""


class LogScan(msgspec.Struct, frozen=True):
    """The result of reading a log once.

    `events` is the number of events kept; `kept_bytes` the length of the log that is kept, without
    the newline that `newline_missing` says must be added; `size` the bytes read. `committed` is the
    number of events up to the last complete turn/end. `damage` is set when `outcome` is CORRUPT.
    Where the outcome is decided early, the rest of the log is not read.
    """

    outcome: Outcome
    header: SessionHeader | None = None
    events: int = 0
    committed: int = 0
    kept_bytes: int = 0
    size: int = 0
    torn: TornTail | None = None
    newline_missing: bool = False
    damage: Damage | None = None

    @property
    def needs_repair(self) -> bool:
        """Whether bytes must be cut or a newline added before the log can grow."""
        return self.torn is not None or self.newline_missing


def scan_log(
    blocks: Iterable[bytes],
    accept: Callable[[SessionEvent], object],
    *,
    session_id: str | None = None,
) -> LogScan:
    """Reads a whole log: header line, then events, each passed to `accept` in order.

    `blocks` are the log's bytes, cut behind newlines: each block is one line or many, and only the
    last may lack its newline. Large blocks are faster. The header's id is held against `session_id`
    when that is given (RW-15). Events passed to `accept` belong to the log only when the outcome
    turns out OK.
    """
    rest = iter(blocks)
    block = next(rest, b"")
    first = block[: block.find(b"\n") + 1] or block
    size = len(first)
    terminated = first.endswith(b"\n")
    try:
        header = parse_header(first[:-1] if terminated else first)
    except MalformedRecord as error:
        if not terminated:
            return LogScan(Outcome.NEVER_MATERIALISED, size=size)
        around = _around(first, error.byte)
        damage = Damage(1, 0, f"header: {error.reason}", first[:80], around)
        return LogScan(Outcome.CORRUPT, size=size, damage=damage)
    if header.version != FORMAT_VERSION:
        return LogScan(Outcome.UNSUPPORTED_VERSION, header, size=size)
    if session_id is not None and header.id != session_id:
        return LogScan(Outcome.IDENTITY_MISMATCH, header, size=size)
    if not terminated:
        return LogScan(Outcome.OK, header, kept_bytes=size, size=size, newline_missing=True)
    return scan_events(chain([block[size:]], rest), accept, header=header, line=2, byte=size)


def scan_events(
    blocks: Iterable[bytes],
    accept: Callable[[SessionEvent], object],
    *,
    header: SessionHeader | None = None,
    line: int = 1,
    byte: int = 0,
    seq: int = 0,
) -> LogScan:
    """Reads the events of a log, the first of them on `line` at offset `byte` with `seq`."""
    rest = iter(blocks)
    committed = seq
    terminated = True
    # Parts of a block that is not canonical as a whole, the next one last.
    parts: list[bytes] = []
    while True:
        block = parts.pop() if parts else next(rest, None)
        if block is None:
            break
        # A crash takes the end of the last line, which then is no block for the fast path.
        events = parse_block(block) if block.endswith(b"\n") else None
        if events is not None and [event.seq for event in events] == list(
            range(seq, seq + len(events))
        ):
            for event in events:
                accept(event)
            # Looked for from the end, where a turn most often ends.
            ends = (event.seq for event in reversed(events) if event.type == "turn/end")
            committed = next(ends, committed - 1) + 1
            seq += len(events)
            line += len(events)
            byte += len(block)
            continue
        middle = block.find(b"\n", len(block) // 2) + 1
        if 0 < middle < len(block) and len(block) > _SMALL_BLOCK_BYTES:
            parts += [block[middle:], block[:middle]]
            continue
        # Some line here is not in the canonical form, or not in sequence: one by one.
        lines = _lines(block)
        for text in lines:
            terminated = text.endswith(b"\n")
            try:
                event = parse_event(text[:-1] if terminated else text)
            except MalformedRecord as error:
                around = _around(text, error.byte)
                unparsable = Damage(line, byte, error.reason, text[:80], around)
                tail = chain(lines, chain.from_iterable(map(_lines, chain(parts[::-1], rest))))
                return _decide_tail(
                    text, tail, accept, unparsable, header=header, seq=seq, committed=committed
                )
            if event.seq != seq:
                # A crash destroys bytes, it does not forge good records: also in the tail (DM-3).
                damage = Damage(line, byte, f"seq: expected {seq}, got {event.seq}", text[:80])
                return LogScan(
                    Outcome.CORRUPT, header, seq, committed, byte, byte + len(text), damage=damage
                )
            accept(event)
            seq += 1
            line += 1
            byte += len(text)
            if event.type == "turn/end":
                committed = seq
    return LogScan(Outcome.OK, header, seq, committed, byte, byte, newline_missing=not terminated)


def _around(line: bytes, place: int | None) -> bytes:
    """Up to 80 bytes of a line around a place in it, not begun inside a character."""
    if place is None:
        return b""
    start = max(place - 40, 0)
    while start < place and line[start] & 0xC0 == 0x80:
        start += 1
    return line[start : start + 80]


def _lines(block: bytes) -> Iterator[bytes]:
    """The lines of a block with their newlines; the last may lack one."""
    start = 0
    while start < len(block):
        end = block.find(b"\n", start) + 1 or len(block)
        yield block[start:end]
        start = end


def _decide_tail(
    text: bytes,
    rest: Iterator[bytes],
    accept: Callable[[SessionEvent], object],
    unparsable: Damage,
    *,
    header: SessionHeader | None,
    seq: int,
    committed: int,
) -> LogScan:
    """Decides over a line that does not parse and everything behind it (DM-1, DM-2, DM-4)."""
    start = unparsable.byte
    kept = _leading_record(text, seq)
    end = 0 if kept is None else kept[1]
    remainder = text[end:]
    digest = hashlib.sha256(remainder)
    length = len(remainder)
    # The whole line is known not to parse.
    holds_record = kept is not None and _type_of(remainder) is not None
    for later in rest:
        digest.update(later)
        length += len(later)
        kind = _type_of(later)
        if kind == "turn/end":
            # What stands before a complete turn/end was committed: no crash does this (DM-1).
            return LogScan(
                Outcome.CORRUPT,
                header,
                seq,
                committed,
                start,
                start + end + length,
                damage=unparsable,
            )
        holds_record = holds_record or kind is not None
    if kept is not None:
        accept(kept[0])
        seq += 1
        if kept[0].type == "turn/end":
            committed = seq
    torn = TornTail(
        unparsable.line,
        start + end,
        length,
        digest.hexdigest(),
        holds_record,
        unparsable.reason,
        remainder[:80],
        unparsable.around,
    )
    return LogScan(
        Outcome.OK,
        header,
        seq,
        committed,
        start + end,
        start + end + length,
        torn=torn,
        newline_missing=kept is not None,
    )


def _leading_record(text: bytes, seq: int) -> tuple[SessionEvent, int] | None:
    """The complete record with the expected seq that a bad line begins with, and its end (DM-4)."""
    end = leading_object_end(text)
    if end is None:
        return None
    try:
        event = parse_event(text[:end])
    except MalformedRecord:
        return None
    return (event, end) if event.seq == seq else None


def _type_of(line: bytes) -> str | None:
    """The type of the complete record a line holds, or None."""
    try:
        return parse_event(line.removesuffix(b"\n")).type
    except MalformedRecord:
        return None
