"""What `inspect` found, as JSON and as words for a person.

Decides names of keys and wording, and that nothing taken from a file reaches a terminal as it is:
control characters, escape sequences and directions of text are spelled out. Does not decide what
was found (`stores.inspection`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, Final

from torntail.session import Damage, Outcome, SessionEvent, TornTail
from torntail.stores.inspection import Inspection

__all__ = ["as_json", "as_table", "as_text", "printable", "printable_bytes"]

_UNREAD: Final = frozenset({Outcome.UNSUPPORTED_VERSION, Outcome.IDENTITY_MISMATCH})
"""Outcomes decided by the header alone: the events behind it were not looked at."""
_RUN: Final = re.compile(r"(\\x[0-9a-f]{2})\1{7,}")
_TYPES_SHOWN: Final = 12


# --- safe text ----------------------------------------------------------------------------------


def printable(text: str, limit: int = 300) -> str:
    """Text from a file, with everything spelled out that a terminal could take for an order."""
    shown = "".join(
        character if character.isprintable() else _escaped(character) for character in text[:limit]
    )
    return shown + ("…" if len(text) > limit else "")


def printable_bytes(found: bytes) -> str:
    r"""Bytes from a file: text where they are text, `\xNN` elsewhere, long runs counted."""
    text = found.decode("utf-8", "backslashreplace").replace("\x00", "\\x00")
    return _RUN.sub(lambda run: f"{run[1]}(×{len(run[0]) // 4})", printable(text, 2000))


def _escaped(character: str) -> str:
    code = ord(character)
    if code <= 0xFF:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


# --- JSON ---------------------------------------------------------------------------------------


def as_json(found: Inspection) -> str:
    """One line of JSON, in ASCII, so that it is safe on a terminal, too."""
    return json.dumps(_record(found), ensure_ascii=True, separators=(",", ":"))


def _record(found: Inspection) -> dict[str, Any]:
    record: dict[str, Any] = {
        "path": str(found.path),
        "session_id": found.session_id,
        "expected_id": found.expected_id,
        "outcome": str(found.outcome),
    }
    if found.problem is not None:
        record["why"] = found.problem
    if found.outcome is Outcome.UNSUPPORTED_VERSION and found.header is not None:
        record["version"] = found.header.version
    if found.damage is not None:
        record["line"] = found.damage.line
        if not found.database:
            record["byte"] = found.damage.byte
            record["excerpt"] = printable_bytes(found.damage.around or found.damage.excerpt)
        record["events_before"] = found.kept
    if found.loads:
        record["events"] = found.kept
        record["closers"] = [_closer(closer) for closer in found.closers]
        record["total"] = found.kept + len(found.closers)
        if found.torn is not None:
            record["torn_from_line"] = found.torn.line
            record["torn_from_byte"] = found.torn.byte
            record["torn_bytes"] = found.torn.length
            if not found.database:
                record["copy_kept"] = found.torn.holds_record
                record["torn_why"] = found.torn.reason
                record["torn_excerpt"] = printable_bytes(found.torn.around or found.torn.excerpt)
        if found.newline_missing:
            record["newline_added"] = True
    record["size"] = found.size
    record["header"] = None if found.header is None else found.header.to_json()
    record["types"] = found.types
    record["turns"] = found.turns
    record["turn_open"] = found.turn_open
    record["open_calls"] = found.open_calls
    record["notes"] = list(found.notes)
    return record


def _closer(closer: SessionEvent) -> list[Any]:
    data = closer.data
    more: list[Any]
    match closer.type:
        case "tool/result":
            more = [data["callId"], data.get("step"), closer.source_event_seqs]
        case "step/end":
            more = [data.get("step")]
        case _:
            more = [data["reason"]["kind"]]
    return [closer.type, closer.seq, *more]


# --- words --------------------------------------------------------------------------------------


def as_text(found: Inspection) -> list[str]:
    """The lines a person reads."""
    lines = [printable(str(found.path), 4000), *_header_lines(found)]
    if found.header is not None and found.outcome not in _UNREAD:
        lines.append(f"  events   {_events(found)}")
        lines.append(f"  turns    {_turns(found)}")
    verdict = "a load succeeds" if found.loads else "a load refuses it"
    lines.append(f"  outcome  {found.outcome}: {verdict}")
    lines += [f"           {line}" for line in _details(found)]
    lines += [f"  note     {printable(note, 4000)}" for note in found.notes]
    return lines


def _header_lines(found: Inspection) -> list[str]:
    header = found.header
    if header is None:
        return ["  header   none that can be read"]
    parts = [f"session {header.id!r}", f"version {header.version}"]
    if header.cwd is not None:
        parts.append(f"cwd {header.cwd!r}")
    if header.parent_session is not None:
        parts.append(f"forked from {header.parent_session!r}")
    if header.seed_length is not None:
        parts.append(f"seed of {header.seed_length}")
    parts.append(f"created {header.created_at!r:.40}")
    if header.extra:
        parts.append(f"further keys {', '.join(map(repr, header.extra))}")
    return [f"  header   {printable(', '.join(parts), 1000)}"]


def _events(found: Inspection) -> str:
    if not found.kept:
        return "0"
    ranked = sorted(found.types.items(), key=lambda entry: (-entry[1], entry[0]))
    shown = [f"{count} {printable(kind, 60)}" for kind, count in ranked[:_TYPES_SHOWN]]
    if len(ranked) > _TYPES_SHOWN:
        shown.append(f"{len(ranked) - _TYPES_SHOWN} more types")
    return f"{found.kept}: {', '.join(shown)}"


def _turns(found: Inspection) -> str:
    state = ", the last one open" if found.turn_open else ""
    calls = f" with {found.open_calls} unanswered call(s)" if found.open_calls else ""
    return f"{found.turns}{state}{calls}"


def _details(found: Inspection) -> list[str]:
    lines: list[str] = []
    if found.problem is not None:
        lines.append(f"why: {printable(found.problem, 1000)}")
    damage = found.damage
    if damage is not None and found.database:
        lines.append(f"at row {damage.line}")
    elif damage is not None:
        lines.append(f"at line {damage.line}, byte {damage.byte}; {found.kept} whole events before")
        lines.append(_found(damage))
        if damage.line == 1:
            lines.append('a session file begins with a line {"type":"session","version":0,…}')
    torn = found.torn
    if torn is not None:
        place = "row" if found.database else "line"
        lines.append(
            f"torn tail from {place} {torn.line}, byte {torn.byte}: {torn.length} bytes are dropped"
        )
        if not found.database:
            lines.append(f"because: {printable(torn.reason)}")
            lines.append(_found(torn))
            if torn.holds_record:
                lines.append("whole records stand in it: a copy is kept beside the file")
    if found.newline_missing:
        lines.append("the last record lacks its newline: it is kept and the newline added")
    lines += [f"adds {_closer_in_words(closer)}" for closer in found.closers[:20]]
    if len(found.closers) > 20:
        lines.append(f"adds {len(found.closers) - 20} more closers")
    if found.loads and found.closers:
        lines.append(f"{found.kept + len(found.closers)} events in total")
    if found.loads and not found.needs_repair:
        lines.append("nothing to repair")
    return lines


def _found(place: Damage | TornTail) -> str:
    """What stands at a bad place: around the byte that the reason names, or from its beginning."""
    if not place.around:
        return f"found: {printable_bytes(place.excerpt)}"
    begun = "" if place.excerpt.startswith(place.around[:40]) else "…"
    return f"found: {begun}{printable_bytes(place.around)}"


def _closer_in_words(closer: SessionEvent) -> str:
    if closer.type == "tool/result":
        call = printable(repr(closer.data["callId"]), 80)
        return f"seq {closer.seq} tool/result (error) for call {call}"
    kind = " (interrupted)" if closer.type == "turn/end" else ""
    return f"seq {closer.seq} {closer.type}{kind}"


# --- tables -------------------------------------------------------------------------------------


def as_table(rows: Sequence[tuple[str, Inspection | str]]) -> list[str]:
    """One line for each session of a folder: name, events, turns, outcome, where; aligned.

    A row is a name with what was found, or with why nothing could be.
    """
    cells = [("session", "events", "turns", "outcome", "where")]
    for name, found in rows:
        if isinstance(found, str):
            cells.append((printable(name), "-", "-", "unreadable", printable(found)))
            continue
        events, turns = "-", "-"
        if found.header is not None and found.outcome not in _UNREAD:
            events = str(found.kept)
            turns = f"{found.turns}{' open' if found.turn_open else ''}"
        cells.append((printable(name), events, turns, str(found.outcome), _where(found)))
    widths = [max(len(row[column]) for row in cells) for column in range(4)]
    return [
        "  ".join([*(row[column].ljust(widths[column]) for column in range(4)), row[4]]).rstrip()
        for row in cells
    ]


def _where(found: Inspection) -> str:
    if found.damage is not None:
        at = f"row {found.damage.line}"
        if not found.database:
            at = f"line {found.damage.line}, byte {found.damage.byte}"
        return f"{at}: {printable(found.damage.reason, 120)}"
    if found.problem is not None:
        return printable(found.problem, 200)
    parts = []
    if found.torn is not None:
        parts.append(f"torn from line {found.torn.line}, byte {found.torn.byte}")
    if found.newline_missing:
        parts.append("newline missing")
    if found.closers:
        parts.append(f"{len(found.closers)} closer(s) to add")
    return ", ".join(parts)
