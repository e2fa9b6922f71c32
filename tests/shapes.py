"""Session files written in one line: the shape language of the tests.

`log("H T TS U")` is the file of a header, a closed turn, and an open turn with one message. Decides
how each word becomes bytes; independent of the codec under test, so that both can be wrong only
apart. What a store makes of the file is for the tests to say.

Words, separated by spaces:

| word | meaning |
| --- | --- |
| `H`, `H:v1`, `H:id=x` | header; of version 1; of session x |
| `TS` `TE` `TEi` | turn/start, turn/end completed, turn/end interrupted |
| `SS` `SE` | step/start, step/end |
| `U` `C` | user/message, assistant/chunk |
| `A`, `A:c1,c2` | assistant/message; with calls |
| `K:c1` `R:c1` `Rs:c1` | tool/call, tool/result, the result that a repair writes |
| `X:type` | an event of any other type |
| `T` `Tt` | a closed turn of six events; one with a call, of ten |

Behind an event: `@7` makes its seq 7 (counting goes on from there), and `!mark` gives it an odd
value: see `MARKS`. Between events: `CUT:n` drops the last n bytes, `NONL` the last newline,
`DROP:k` deletes line k, `LF`, `NUL:n`, `RAW:hex` and `STALE` add bytes, `BOM` puts a byte order
mark in front, `CRLF` makes every line end CRLF.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

__all__ = ["MARKS", "SYNTHETIC_TEXT", "event_lines", "log"]

START: Final = 1_700_000_000_000
SYNTHETIC_TEXT: Final = "Tool call interrupted by a crash; no result was recorded."
STALE: Final = b'ld tail of a longer earlier version"}]}\n'

_TURN: Final = "TS U SS A SE TE"
_TURN_WITH_CALL: Final = "TS U SS A:k1 R:k1 SE SS A SE TE"
_SURFACE: Final = frozenset({"user/message", "assistant/message", "tool/result"})


def _noted(escaped: bytes) -> Callable[[bytes], bytes]:
    """A mark that adds a member `note` to the event's data, its text as it stands in the file."""

    def apply(line: bytes) -> bytes:
        head, brace, tail = line.rpartition(b'},"surfaceOp"')
        if not brace:
            head, brace, tail = line[:-2], b"}", b"}"
        comma = b"" if head.endswith(b"{") else b","
        return head + comma + b'"note":' + escaped + brace + tail

    return apply


MARKS: Final[dict[str, Callable[[bytes], bytes]]] = {
    "sep": _noted('"left\u2028mid\u2029right\u0085end"'.encode()),
    "sur": _noted(b'"half \\ud83d"'),
    "nul": _noted(b'"a\\u0000b"'),
    "rawnul": _noted(b'"a\x00b"'),
    "rawlf": _noted(b'"one\ntwo"'),
    "badutf": _noted(b'"cut \xe6\x87"'),
    "wtf8": _noted(b'"half \xed\xa0\xbd"'),
    "huge": _noted(b'"' + b"z" * (2 << 20) + b'"'),
    "nan": _noted(b"NaN"),
    "ovf": _noted(b"1e999"),
    "big": _noted(b"123456789012345678901234567890"),
    "int4300": _noted(b"9" * 4300),
    "int5000": _noted(b"9" * 5000),
    "deep": _noted(b"[" * 5000 + b"]" * 5000),
    "deep200": _noted(b"[" * 198 + b"]" * 198),
    "deep201": _noted(b"[" * 199 + b"]" * 199),
    "dup": lambda line: line[:-1] + b"," + _member(line, b"seq") + b"}",
    "dupdeep": _noted(b'{"a":1,"a":1}'),
    "boolseq": lambda line: line.replace(_member(line, b"seq"), b'"seq":true', 1),
    "strseq": lambda line: re.sub(rb'"seq":(\d+)', rb'"seq":"\1"', line, count=1),
    "floatseq": lambda line: re.sub(rb'"seq":(\d+)', rb'"seq":\1.0', line, count=1),
    "back": lambda line: re.sub(rb'"time":\d+', b'"time":5', line, count=1),
}
"""What `!mark` does to the line (without newline) of an event."""


def _member(line: bytes, key: bytes) -> bytes:
    found = re.search(rb'"' + key + rb'":\d+', line)
    assert found is not None
    return found.group()


@dataclass
class _Writer:
    """The file so far, and where in the session it stands."""

    seq: int = 0
    turn: int = 0
    step: int = 0
    written: bytearray = field(default_factory=bytearray)
    noted: dict[str, int] = field(default_factory=dict)

    def event(self, word: str, argument: str | None) -> bytes:
        """The line of the event a word stands for, without newline."""
        kind, data = self._content(word, argument)
        record = {"type": kind, "seq": self.seq, "time": START + self.seq, "data": data}
        if kind in _SURFACE:
            record["surfaceOp"] = "append"
        if word == "Rs" and argument in self.noted:
            record["sourceEventSeqs"] = [self.noted[argument]]
        if word == "K" and argument is not None:
            self.noted[argument] = self.seq
        self.seq += 1
        return json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode()

    def _content(self, word: str, argument: str | None) -> tuple[str, dict[str, Any]]:
        user = {"kind": "user"}
        match word:
            case "TS":
                self.turn, self.step = self.turn + 1, 0
                trigger = {"kind": "message", "source": user}
                return "turn/start", {"turn": self.turn, "trigger": trigger}
            case "TE" | "TEi":
                reason = "completed" if word == "TE" else "interrupted"
                return "turn/end", {"turn": self.turn, "reason": {"kind": reason}}
            case "U":
                return "user/message", {"content": [_text("please look")], "source": user}
            case "X":
                return argument or "other", {"note": "x"}
            case "SS":
                self.step += 1
                return "step/start", self._place()
            case "SE":
                return "step/end", self._place()
            case "C":
                chunk = {"type": "text-delta", "index": 0, "text": "word "}
                return "assistant/chunk", {**self._place(), "chunk": chunk}
            case "A":
                ids = [] if argument is None else argument.split(",")
                calls = [
                    {"type": "tool-call", "id": call, "name": "read", "arguments": "{}"}
                    for call in ids
                ]
                return "assistant/message", {**self._place(), "content": [_text("working"), *calls]}
            case "K":
                call = {"callId": argument, "name": "read", "arguments": "{}"}
                return "tool/call", {**self._place(), **call}
            case "R":
                result = {"callId": argument, "content": [_text("done")], "isError": False}
                return "tool/result", {**self._place(), **result}
            case "Rs":
                error = {"name": "InterruptedError", "code": "interrupted"}
                result = {"callId": argument, "content": [_text(SYNTHETIC_TEXT)], "isError": True}
                return "tool/result", {**self._place(), **result, "error": error}
        raise ValueError(f"unknown word {word!r}")

    def _place(self) -> dict[str, Any]:
        return {"turn": self.turn, "step": self.step}


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _header(argument: str | None) -> bytes:
    version, session_id = 0, "s-1"
    if argument is not None and argument.startswith("v"):
        version = int(argument[1:])
    elif argument is not None:
        session_id = argument.removeprefix("id=")
    record = {"type": "session", "version": version, "id": session_id, "createdAt": START}
    return json.dumps({**record, "cwd": "/w"}, ensure_ascii=False, separators=(",", ":")).encode()


def log(shape: str) -> bytes:
    """The bytes of the file that `shape` describes."""
    writer = _Writer()
    text = writer.written
    for word in shape.split():
        match re.split("[:@!]", word)[0], word.partition(":")[2]:
            case "T", _:
                text += b"".join(line + b"\n" for line in _lines(writer, _TURN))
            case "Tt", _:
                text += b"".join(line + b"\n" for line in _lines(writer, _TURN_WITH_CALL))
            case "H", argument:
                text += _header(argument or None) + b"\n"
            case "CUT", count:
                del text[len(text) - int(count) :]
            case "NONL", _:
                del text[-1:]
            case "DROP", number:
                lines = text.split(b"\n")
                del lines[int(number) - 1]
                text[:] = b"\n".join(lines)
            case "LF", _:
                text += b"\n"
            case "NUL", count:
                text += bytes(int(count))
            case "RAW", digits:
                text += bytes.fromhex(digits)
            case "STALE", _:
                text += STALE
            case "BOM", _:
                text[:0] = b"\xef\xbb\xbf"
            case "CRLF", _:
                text[:] = text.replace(b"\n", b"\r\n")
            case _:
                text += _lines(writer, word)[0] + b"\n"
    return bytes(text)


def event_lines(shape: str) -> list[bytes]:
    """The lines, without newline, of a shape that consists of events only."""
    return log(shape).split(b"\n")[:-1]


def _lines(writer: _Writer, words: str) -> list[bytes]:
    lines = []
    for word in words.split():
        head, *marks = word.split("!")
        head, at, number = head.partition("@")
        if at:
            writer.seq = int(number)
        name, colon, argument = head.partition(":")
        line = writer.event(name, argument if colon else None)
        for mark in marks:
            line = MARKS[mark](line)
        lines.append(line)
    return lines
