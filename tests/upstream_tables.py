"""What the two eras of the DeepSeek Harness do, as data: measured on the published 0.1.0-rc.8, and
on the earlier design of theirs (S), whose results are the same where nothing else is said.

`CLOSERS`: events in short, and what closes them. `LOADS`: what stands in a log file, and what a
load of it comes to, there and in our own store. Where the two differ, the contract's clause says
why. Does not cover the texts and codes of closers (`tests/session/test_dialects.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from torntail.session import SessionEvent, SessionHeader

SESSION = "s"
HEADER = SessionHeader(SESSION, 1_700_000_000_000)


def events_of(words: str) -> list[SessionEvent]:
    """Events in short, numbered from 0: `TS1 U SS1 A1:a,b K:a R:a SE1 TE1`.

    A number is that of the turn (TS, TE) or step; tool events name a call. `R2:a` is of turn 2.
    """
    return [_event(word, seq) for seq, word in enumerate(words.split())]


def _event(word: str, seq: int) -> SessionEvent:
    head, _, names = word.partition(":")
    kind = head.rstrip("0123456789")
    number = int(head[len(kind) :] or 1)
    text = {"type": "text", "text": f"{word} größer"}
    calls = [
        {"type": "tool-call", "id": name, "name": "f", "arguments": "{}"}
        for name in filter(None, names.split(","))
    ]
    shapes: dict[str, tuple[str, dict[str, Any], bool]] = {
        "TS": ("turn/start", {"turn": number}, False),
        "TE": ("turn/end", {"turn": number, "reason": {"kind": "completed"}}, False),
        "U": ("user/message", {"content": [text, *calls], "source": {"kind": "user"}}, True),
        "SS": ("step/start", {"turn": 1, "step": number}, False),
        "SE": ("step/end", {"turn": 1, "step": number}, False),
        "A": ("assistant/message", {"turn": 1, "step": number, "content": [text, *calls]}, True),
        "K": ("tool/call", {"turn": 1, "step": 1, "callId": names, "name": "f"}, False),
        "R": (
            "tool/result",
            {"turn": number, "step": 1, "callId": names, "content": [text], "isError": False},
            True,
        ),
    }
    type_, data, surface = shapes[kind]
    return SessionEvent(type_, seq, 1_700_000_000_000 + seq, data, "append" if surface else None)


def in_short(closer: SessionEvent) -> str:
    """A closer in short: `R:a@1` (of step 1), `R:a@1<4` (which cites event 4), `SE1`, `TE1`."""
    data = closer.data
    match closer.type:
        case "tool/result":
            sources = closer.source_event_seqs
            cited = "" if sources is None else f"<{','.join(map(str, sources))}"
            return f"R:{data['callId']}@{data['step']}{cited}"
        case "step/end":
            return f"SE{data['step']}"
    return f"TE{data['turn']}"


CLOSERS: dict[str, tuple[str, str]] = {
    "a closed turn": ("TS1 U SS1 A1 SE1 TE1", ""),
    "a message outside any turn": ("U", ""),
    "a step without a turn": ("SS1", ""),
    "a turn's end with a wrong number": ("TS1 TE2", ""),
    "an open turn": ("TS1", "TE1"),
    "an open step": ("TS1 SS1", "SE1 TE1"),
    "one id twice in a message": ("TS1 SS1 A1:a,a", "R:a@1 SE1 TE1"),
    "one id twice, one result": ("TS1 SS1 A1:a,a K:a R:a", "SE1 TE1"),
    "an id asked for again": ("TS1 SS1 A1:a K:a R:a A1:a", "R:a@1 SE1 TE1"),
    "a result before its message": ("TS1 SS1 R:a A1:a", "R:a@1 SE1 TE1"),
    "two messages in a step": ("TS1 SS1 A1:a A1:b", "R:a@1 R:b@1 SE1 TE1"),
    "the middle one is answered": ("TS1 SS1 A1:a,b,c K:b R:b", "R:a@1 R:c@1 SE1 TE1"),
    "calls in another order": ("TS1 SS1 A1:a,b K:b K:a", "R:a@1<4 R:b@1<3 SE1 TE1"),
    "a call logged twice": ("TS1 SS1 A1:a K:a K:a", "R:a@1<4 SE1 TE1"),
    "a call before its message": ("TS1 SS1 K:a A1:a", "R:a@1 SE1 TE1"),
    "an orphan call": ("TS1 SS1 K:a", "SE1 TE1"),
    "a message of another step": ("TS1 SS5 A1:a", "R:a@1 SE5 TE1"),
    "a call in a closed step": ("TS1 SS1 A1:a SE1 SS2", "SE2 TE1"),
    "a result of another turn": ("TS1 SS1 A1:a R2:a", "SE1 TE1"),
    "two turns begun": ("TS1 SS1 A1:a TS2", "TE2"),
    "a step's end with a wrong number": ("TS1 SS1 A1:a SE7", "TE1"),
    "calls of a user": ("TS1 U:a", "TE1"),
}
"""Events, and their closers, in short."""


class Row(NamedTuple):
    """What a file holds, and what a load of it comes to.

    `change` makes the file of its lines, the first of which is the header. An outcome is the words
    of the events that come back after the log's own first ones (`closers`), with how many of these
    there are, or the kind of refusal. `clause`: why ours differs, where it does.
    """

    log: str
    change: Callable[[list[bytes]], bytes]
    theirs: str | tuple[int, str]
    ours: str | tuple[int, str]
    clause: str = ""


def _row(
    log: str,
    change: Callable[[list[bytes]], bytes],
    theirs: str | tuple[int, str],
    ours: str | tuple[int, str] | None = None,
    clause: str = "",
) -> Row:
    return Row(log, change, theirs, theirs if ours is None else ours, clause)


def _whole(lines: list[bytes]) -> bytes:
    return b"".join(lines)


def _plus(tail: bytes) -> Callable[[list[bytes]], bytes]:
    return lambda lines: b"".join(lines) + tail


def _line(index: int, *instead: bytes) -> Callable[[list[bytes]], bytes]:
    """Other lines in the place of one; the header is line 0, so record n is line n + 1."""
    return lambda lines: b"".join([*lines[:index], *instead, *lines[index + 1 :]])


def _twice(index: int) -> Callable[[list[bytes]], bytes]:
    return lambda lines: b"".join([*lines[:index], lines[index], *lines[index:]])


def _header(old: bytes, new: bytes) -> Callable[[list[bytes]], bytes]:
    return lambda lines: b"".join([lines[0].replace(old, new, 1), *lines[1:]])


T1 = "TS1 U SS1 A1 SE1 TE1"
OPEN = f"{T1} TS2 SS1 A1:a,b K:a K:b R:a"

LOADS: dict[str, Row] = {
    "a whole log": _row(T1, _whole, (6, "")),
    "half a record behind it": _row(T1, _plus(b'{"type":"turn/st'), (6, "")),
    "an open turn, one call answered": _row(OPEN, _whole, (12, "R:b@1<10 SE1 TE2")),
    "the same and half a record": _row(OPEN, _plus(b'{"ty'), (12, "R:b@1<10 SE1 TE2")),
    "an open first turn": _row("TS1", _whole, (1, "TE1")),
    "a record missing before a turn's end": _row(T1, _line(3), "corrupted"),
    "a record twice before a turn's end": _row(T1, _twice(3), "corrupted"),
    "rubbish before a turn's end": _row(T1, _line(3, b"{#}\n"), "corrupted"),
    "a blank line before a turn's end": _row(T1, _line(3, b"\n"), "corrupted"),
    "zeros before a turn's end": _row(T1, _line(3, b"\0\0\n"), "corrupted"),
    "a record missing in an open turn": _row(
        OPEN, _line(10), (9, "R:a@1 R:b@1 SE1 TE2"), "corrupted", "DM-3"
    ),
    "a record twice in an open turn": _row(
        OPEN, _twice(10), (10, "R:a@1<9 R:b@1 SE1 TE2"), "corrupted", "DM-3"
    ),
    "rubbish in an open turn": _row(OPEN, _line(10, b"{#}\n"), (9, "R:a@1 R:b@1 SE1 TE2")),
    "another version": _row(T1, _header(b'"version":0', b'"version":1'), "version"),
    "a version in words": _row(T1, _header(b'"version":0', b'"version":"0"'), "corrupted"),
    "no time of creation": _row(T1, _header(b'"createdAt"', b'"x"'), "corrupted"),
    "rubbish for a header": _row(T1, _line(0, b"{#}\n"), "corrupted"),
    "a byte order mark": _row(T1, lambda lines: b"\xef\xbb\xbf" + _whole(lines), "corrupted"),
    "an empty file": _row(T1, lambda lines: b"", "never_materialised"),
    "a header without its newline": _row(
        T1, lambda lines: lines[0].rstrip(b"\n"), "never_materialised", (0, ""), "DM-6"
    ),
    "a header alone": _row(T1, lambda lines: lines[0], (0, "")),
    "a header and half a record": _row(T1, lambda lines: lines[0] + b'{"ty', (0, "")),
    "zeros behind it": _row(T1, _plus(b"\0" * 64), (6, "")),
    "a line of zeros behind it": _row(T1, _plus(b"\0" * 64 + b"\n"), (6, "")),
    "a turn's end without its newline": _row(
        T1, lambda lines: _whole(lines)[:-1], (5, "TE1"), (6, ""), "DM-4"
    ),
    "a last record without its newline": _row(
        OPEN,
        lambda lines: _whole(lines)[:-1],
        (11, "R:a@1<9 R:b@1<10 SE1 TE2"),
        (12, "R:b@1<10 SE1 TE2"),
        "DM-4",
    ),
    "a blank line behind it": _row(T1, _plus(b"\n"), (6, "")),
    "carriage returns": _row(T1, lambda lines: _whole(lines).replace(b"\n", b"\r\n"), (6, "")),
    "null before a turn's end": _row(T1, _line(3, b"null\n"), "other", "corrupted", "DM-1"),
    "null behind it": _row(T1, _plus(b"null\n"), "other", (6, ""), "DM-2"),
    "a number behind it": _row(T1, _plus(b"7\n"), (6, "")),
    "a record without data behind it": _row(
        T1, _plus(b'{"type":"step/start","seq":6,"time":1}\n'), "corrupted", (6, ""), "DM-5"
    ),
    "a message behind a turn": _row(f"{T1} U", _whole, (7, "")),
    "an end without a start": _row("TE1", _whole, (1, "")),
    "a turn begun in a turn": _row("TS1 SS1 TS2", _whole, (3, "TE2")),
    "a call left in a closed step": _row("TS1 SS1 A1:a SE1", _whole, (4, "TE1")),
    "two records on a line": _row(
        f"{T1} TS2",
        lambda lines: _whole(lines[:-1]) + lines[-1][:-1] + lines[-1],
        (6, ""),
        (7, "TE2"),
        "DM-4",
    ),
    "a header with another id": _row(T1, _header(b'"id":"s"', b'"id":"z"'), "identity"),
}
"""Files, and what a load of them comes to."""
