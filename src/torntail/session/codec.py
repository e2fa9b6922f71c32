"""Strict JSON for records: the one place where bytes become events and events become bytes.

Decides what counts as a complete record (DM-5), what `append` must refuse (RW-3) and that values
survive unchanged (RW-12). Reading has a fast path: parse and dump again, and if the bytes are
equal the line is canonical, so it has no repeated key, no odd number, no invalid UTF-8; only
otherwise does the slow strict parser decide. Writing has the same shape: one fast round trip
compared with the input, any difference goes to the strict encoder. Lines are written as the
original system writes them (UTF-8, no spaces, key order kept, lone surrogates escaped), except
that floats keep their point and integers are exact. Does not cover: the order of records (`scan`),
when two values are the same (`comparing`).
"""

from __future__ import annotations

import json
import math
import re
import sys
from typing import Any, Final, NoReturn

import msgspec
import orjson

from torntail.session.events import (
    Json,
    MalformedRecord,
    SessionEvent,
    SessionHeader,
    WireHeader,
)

__all__ = [
    "MAXIMUM_DEPTH",
    "MAXIMUM_INTEGER_DIGITS",
    "MAXIMUM_RECORD_BYTES",
    "NotJson",
    "copy_event",
    "encode_and_copy",
    "encode_event",
    "encode_header",
    "encode_json",
    "join_surrogates",
    "leading_object_end",
    "parse_block",
    "parse_event",
    "parse_header",
    "parse_json",
]

MAXIMUM_DEPTH: Final = 200
"""Levels of nesting, the record's own brace being the first (DM-5)."""

MAXIMUM_INTEGER_DIGITS: Final = 4300
"""Digits of an integer, without its sign (RW-12)."""

MAXIMUM_RECORD_BYTES: Final = 256 * 1024 * 1024
"""A longer line is not a record: a bound on memory against hostile files."""

_INTEGER_BOUND: Final = 10**MAXIMUM_INTEGER_DIGITS
_LONE_SURROGATE: Final = re.compile("[\ud800-\udfff]")
# A string, a bracket, or a quote whose string never ends. Possessive, so that a hostile line costs
# linear time.
_STRUCTURE: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[\[\]{}]|"', re.DOTALL)
_STRING_OR_NUMBER: Final = re.compile(
    r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|-?[0-9]+(?:\.[0-9]+)?(?:e[-+][0-9]+)?', re.DOTALL
)
_ENVELOPE: Final = frozenset({"type", "seq", "time", "data"})
_BLANK: Final = b" \t\n\r"

_decode_any: Final = msgspec.json.Decoder().decode
_decode_event: Final = msgspec.json.Decoder(SessionEvent).decode
_decode_header: Final = msgspec.json.Decoder(WireHeader).decode
_decode_lines: Final = msgspec.json.Decoder(SessionEvent).decode_lines
_encode_typed: Final = msgspec.json.Encoder().encode
_encode_lines: Final = msgspec.json.Encoder().encode_lines


class NotJson(ValueError):
    """A value that JSON cannot carry; `where` is its place (`data.content[0]`), `reason` why."""

    def __init__(self, where: str, reason: str) -> None:
        super().__init__(f"{where or 'value'}: {reason}")
        self.where = where
        self.reason = reason


# --- reading ------------------------------------------------------------------------------------


def parse_event(line: bytes) -> SessionEvent:
    """The event a line (without its newline) holds; raises `MalformedRecord` if it holds none."""
    # The fast path: straight into the typed value and back. Equal bytes mean a record in the order
    # the original writes, without repeated keys, odd numbers or invalid text. A torn line, which
    # most often lacks its last brace, is not tried.
    try:
        if (
            line.endswith(b"}")
            and _encode_typed(event := _decode_event(line)) == line
            and event.extra is None
            and (len(line) <= MAXIMUM_DEPTH * 2 or _is_modest(line))
        ):
            return event
    except (ValueError, RecursionError, OverflowError):
        pass
    return SessionEvent.from_json(_parse_slowly(line))


def parse_block(block: bytes) -> list[SessionEvent] | None:
    """The events of a block of whole lines, or None where a line needs `parse_event` to decide.

    The fast path of a bulk load: all lines at once there and back.
    """
    try:
        events = _decode_lines(block)
        if _encode_lines(events) != block:
            return None
    except (ValueError, RecursionError, OverflowError):
        return None
    if [event for event in events if event.extra is not None]:
        return None
    long_lines = [line for line in block.split(b"\n") if len(line) > MAXIMUM_DEPTH * 2]
    if not all(map(_is_modest, long_lines)):
        return None
    return events


def _is_modest(line: bytes) -> bool:
    """Whether a long canonical line keeps the limits on nesting and digits."""
    if line.count(b"{") + line.count(b"[") > MAXIMUM_DEPTH and _depth(line) > MAXIMUM_DEPTH:
        return False
    if len(line) <= MAXIMUM_INTEGER_DIGITS:
        return True
    # The interpreter's own limit has been applied already; it may have been switched off.
    return (
        len(line) <= MAXIMUM_RECORD_BYTES
        and 0 < sys.get_int_max_str_digits() <= MAXIMUM_INTEGER_DIGITS
    )


def parse_header(line: bytes) -> SessionHeader:
    """The header a line (without its newline) holds; raises `MalformedRecord` if it holds none."""
    # The fast path, as for events.
    try:
        wire = _decode_header(line)
        if _encode_typed(wire) == line and (len(line) <= MAXIMUM_DEPTH * 2 or _is_modest(line)):
            return wire.header()
    except (ValueError, RecursionError, OverflowError):
        pass
    return SessionHeader.from_json(parse_json(line))


def parse_json(line: bytes, *, maximum_depth: int = MAXIMUM_DEPTH) -> Json:
    """The value of a strict JSON text; raises `MalformedRecord` saying what is wrong with it."""
    try:
        value = orjson.loads(line)
        if orjson.dumps(value) == line and (
            line.count(b"{") + line.count(b"[") <= maximum_depth
            or _depth(line, maximum_depth) <= maximum_depth
        ):
            return value
    except (ValueError, TypeError):
        pass
    return _parse_slowly(line, maximum_depth)


def leading_object_end(text: bytes) -> int | None:
    """Where the JSON object that `text` begins with ends, or None if it does not end in `text`.

    Only brackets and strings are looked at: whether the object is a record is for `parse_event`.
    An object nested too deeply to be one is not followed to its end.
    """
    if not text.lstrip(_BLANK).startswith(b"{") or b"}" not in text:
        return None
    depth = 0
    for token in _STRUCTURE.finditer(text):
        match token.group():
            case b"{" | b"[":
                depth += 1
                if depth > MAXIMUM_DEPTH:
                    return None
            case b"}" | b"]":
                depth -= 1
                if depth == 0:
                    return token.end()
            case b'"':
                return None
    return None


def _depth(text: bytes, maximum_depth: int = MAXIMUM_DEPTH) -> int:
    """The deepest level of nesting of the value `text` begins with, as far as it matters.

    Looks no further than to the end of that value, a string that never ends, or the first level
    that is too deep, so that a hostile line costs no more than an honest one.
    """
    depth = deepest = 0
    for token in _STRUCTURE.finditer(text):
        match token.group():
            case b"{" | b"[":
                depth += 1
                deepest = max(deepest, depth)
                if depth > maximum_depth:
                    break
            case b"}" | b"]":
                depth -= 1
                if depth <= 0:
                    break
            case b'"':
                break
    return deepest


def _parse_slowly(line: bytes, maximum_depth: int = MAXIMUM_DEPTH) -> Json:
    if len(line) > MAXIMUM_RECORD_BYTES:
        raise MalformedRecord(f"longer than {MAXIMUM_RECORD_BYTES} bytes")
    if not line.strip(_BLANK):
        raise MalformedRecord("blank line")
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as error:
        reason = f"invalid UTF-8 at byte {error.start} of the line"
        raise MalformedRecord(reason, error.start) from None
    if text.startswith("\ufeff"):
        raise MalformedRecord("byte order mark")
    # Before the recursive parser runs, so that a line of a million brackets cannot exhaust the
    # interpreter's stack.
    brackets = line.count(b"{") + line.count(b"[")
    if brackets > maximum_depth and _depth(line, maximum_depth) > maximum_depth:
        raise MalformedRecord(f"more than {maximum_depth} levels of nesting")
    try:
        return _STRICT.decode(text)
    except json.JSONDecodeError as error:
        # Some of the parser's messages end in the "at" that its own numbers follow.
        what = error.msg.removesuffix(" at")
        reason = f"not JSON: {what} at character {error.pos}"
        raise MalformedRecord(reason, len(text[: error.pos].encode())) from None


def _object(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise MalformedRecord("repeated key")
    return members


def _integer(digits: str) -> int:
    if len(digits.lstrip("-")) > MAXIMUM_INTEGER_DIGITS:
        raise MalformedRecord(f"integer of more than {MAXIMUM_INTEGER_DIGITS} digits")
    try:
        return int(digits)
    except ValueError:
        # The interpreter was started with a lower limit of its own.
        raise MalformedRecord("integer beyond the interpreter's digit limit") from None


def _float(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise MalformedRecord("number out of range")
    return number


def _constant(name: str) -> NoReturn:
    raise MalformedRecord(f"{name} is not JSON")


_STRICT: Final = json.JSONDecoder(
    object_pairs_hook=_object,
    parse_int=_integer,
    parse_float=_float,
    parse_constant=_constant,
)


# --- writing ------------------------------------------------------------------------------------


def encode_event(event: SessionEvent) -> bytes:
    """The line (without newline) of an event; raises `NotJson` for what `load` would refuse."""
    both = _there_and_back(event)
    return both[0] if both is not None else _encode_event_slowly(event)


def encode_and_copy(event: SessionEvent) -> tuple[bytes, SessionEvent]:
    """The line of an event and a private copy of it, for one round trip; raises `NotJson`."""
    both = _there_and_back(event)
    if both is not None:
        return both
    line = _encode_event_slowly(event)
    return line, parse_event(line)


def _there_and_back(event: SessionEvent) -> tuple[bytes, SessionEvent] | None:
    # The fast path: what comes back equal is what load will give. The encoder is lenient (NaN
    # becomes null, a set a list, a date a string), and the comparison finds each of these.
    try:
        line = _encode_typed(event)
        copy = _decode_event(line)
        if (
            event.extra is None
            and copy == event
            and (len(line) <= MAXIMUM_DEPTH * 2 or _is_modest(line))
        ):
            return line, copy
    except (TypeError, ValueError, RecursionError, OverflowError):
        pass
    return None


def _encode_event_slowly(event: SessionEvent) -> bytes:
    if event.extra is not None and not _ENVELOPE.isdisjoint(event.extra):
        stray = ", ".join(sorted(_ENVELOPE.intersection(event.extra)))
        raise NotJson("extra", f"names a key of the envelope: {stray}")
    record = event.to_json()
    try:
        SessionEvent.from_json(record)
    except MalformedRecord as error:
        raise NotJson("", error.reason) from None
    return encode_json(record)


def encode_header(header: SessionHeader) -> bytes:
    """The line (without newline) of a header; raises `NotJson` for what `load` would refuse."""
    record = header.to_json()
    try:
        SessionHeader.from_json(record)
    except MalformedRecord as error:
        raise NotJson("header", error.reason) from None
    return encode_json(record)


def copy_event(event: SessionEvent) -> SessionEvent:
    """A private copy that shares nothing mutable with `event` (RW-4); raises `NotJson`."""
    return encode_and_copy(event)[1]


def encode_json(value: Json) -> bytes:
    """Strict JSON text of `value`; raises `NotJson` with the place of what cannot be carried."""
    try:
        text = _encode_typed(value)
        # NaN became null, a UUID a string: the comparison finds what the encoder was lenient about.
        if _decode_any(text) == value and (len(text) <= MAXIMUM_DEPTH * 2 or _is_modest(text)):
            return text
    except (TypeError, ValueError, RecursionError, OverflowError):
        pass
    text = _encode_slowly(value)
    if len(text) > MAXIMUM_RECORD_BYTES:
        raise NotJson("", f"longer than {MAXIMUM_RECORD_BYTES} bytes as JSON")
    return text


def _encode_slowly(value: Json) -> bytes:
    _refuse_what_json_lacks(value, "", [])
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError) as error:
        raise NotJson("", str(error)) from None
    text = _STRING_OR_NUMBER.sub(_spelled, text)
    # Halves that form a pair are the character they stand for; what is left alone is escaped, since
    # UTF-8 has no bytes for it.
    joined = join_surrogates(text)
    escaped = _LONE_SURROGATE.sub(lambda half: f"\\u{ord(half.group()):04x}", joined)
    encoded = escaped.encode("utf-8")
    try:
        # Joined halves can make two keys equal, which load would refuse.
        _parse_slowly(encoded)
    except MalformedRecord as error:
        raise NotJson("", error.reason) from None
    return encoded


def _spelled(token: re.Match[str]) -> str:
    """A number as the fast path spells it, so that equal events always have equal lines."""
    text = token.group()
    is_float = text[0] != '"' and ("." in text or "e" in text)
    return _encode_typed(float(text)).decode() if is_float else text


def _refuse_what_json_lacks(value: Any, where: str, ancestors: list[int]) -> None:
    if value is None or isinstance(value, bool | str):
        return
    if isinstance(value, int):
        if abs(value) >= _INTEGER_BOUND:
            raise NotJson(where, f"integer of more than {MAXIMUM_INTEGER_DIGITS} digits")
        return
    if isinstance(value, float):
        if not math.isfinite(value):
            raise NotJson(where, f"{value} is not JSON")
        return
    if not isinstance(value, dict | list | tuple):
        raise NotJson(where, f"{type(value).__name__} is not JSON")
    if id(value) in ancestors:
        raise NotJson(where, "contains itself")
    if len(ancestors) >= MAXIMUM_DEPTH:
        raise NotJson(where, f"more than {MAXIMUM_DEPTH} levels of nesting")
    ancestors.append(id(value))
    if isinstance(value, dict):
        for key, member in value.items():
            if not isinstance(key, str):
                raise NotJson(where, f"key {key!r:.40} is not a string")
            _refuse_what_json_lacks(member, f"{where}.{key:.40}" if where else key[:40], ancestors)
    else:
        for index, member in enumerate(value):
            _refuse_what_json_lacks(member, f"{where}[{index}]", ancestors)
    ancestors.pop()


def join_surrogates(text: str) -> str:
    """`text` with each pair of adjacent surrogate halves made the character it stands for."""
    if not _LONE_SURROGATE.search(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
