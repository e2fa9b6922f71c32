"""What a damage makes of one record or header: pure functions from bytes to bytes.

The same for a line of a file and for a cell of a database. Knows JSON records that carry the keys
of an event on their top level; of other formats only what needs no knowledge (garbling, cutting,
adding, flipping). Does not decide where a record stands (`layout`, `rows`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Final

from torntail.judge.history import Damage, NotPossible

__all__ = ["ADDITIONS", "STRICT_VARIANTS", "TRAILS", "addition", "damage_header", "damage_record"]


def damage_record(record: bytes, damage: Damage) -> bytes | NotPossible:
    """A record (without newline) after a damage that changes it and nothing around it."""
    match damage.kind:
        case "garble":
            return b"{" + b"#" * (len(record) - 2) + b"}"
        case "renumber":
            return _renumber(record, damage.amount)
        case "trail":
            return record + TRAILS[damage.variant]
        case "rewrite":
            return _rewrite(record, damage.variant)
        case "flip":
            return _flip(record, damage.amount)
    return NotPossible(f"a record has no {damage.kind}", moot=False)


def _flip(record: bytes, bit: int) -> bytes:
    position = bit // 8 % len(record)
    return record[:position] + bytes([record[position] ^ (1 << bit % 8)]) + record[position + 1 :]


TRAILS: Final[dict[str, bytes]] = {
    "rubbish": b"\0\0!rubbish",
    "no newline": b"\0\0!rubbish",
    "fragment": b'{"type":"user/mess',
}
"""What follows a record on its own line."""

ADDITIONS: Final[dict[str, Callable[[bytes], bytes]]] = {
    "fragment": lambda record: record[: len(record) // 2],
    "nul-run": lambda record: b"\0" * 64,
    "nul-line": lambda record: b"\0" * 64 + b"\n",
    "blank-line": lambda record: b"\n",
    "rubbish-line": lambda record: b"!rubbish!\n",
    "glued-line": lambda record: record[: len(record) // 2] + record + b"\n",
    "nul-glued-line": lambda record: b"\0" * 64 + record + b"\n",
}
"""What is added behind the end of a log; names that end in `line` end in a newline."""


def addition(record: bytes, variant: str) -> bytes:
    """The bytes that are added behind a log that ends with `record`."""
    return ADDITIONS[variant](record)


def _renumber(record: bytes, amount: int) -> bytes | NotPossible:
    seq = _seq_member(record)
    if seq is None:
        return NotPossible("the record has no member seq", moot=False)
    return record[: seq.start(1)] + b"%d" % (int(seq[1]) + amount) + record[seq.end(1) :]


def _seq_member(record: bytes) -> re.Match[bytes] | None:
    """The top-level seq of a record that is a JSON object, if it can be told from others."""
    try:
        value = json.loads(record)
    except ValueError:
        return None
    found = re.search(rb'"seq"\s*:\s*(\d+)', record)
    if not isinstance(value, dict) or found is None or value.get("seq") != int(found[1]):
        return None
    return found


def _member(text: bytes) -> Callable[[bytes], bytes]:
    return lambda record: record[:-1] + b',"note":' + text + b"}"


def _swap(pattern: bytes, replacement: bytes) -> Callable[[bytes], bytes]:
    return lambda record: re.sub(pattern, replacement, record, count=1)


STRICT_VARIANTS: Final[dict[str, Callable[[bytes], bytes]]] = {
    "repeated key": lambda record: record[:-1] + b',"time":0}',
    "repeated key, deep": _swap(rb'("mark"\s*:\s*"[^"]*")', rb"\1,\1"),
    "NaN": _member(b"NaN"),
    "Infinity": _member(b"-Infinity"),
    "1e999": _member(b"1e999"),
    "invalid UTF-8": _member(b'"\xff"'),
    "raw surrogate": _member(b'"\xed\xa0\x80"'),
    "raw control character": _member(b'"\x01"'),
    "byte order mark": lambda record: b"\xef\xbb\xbf" + record,
    "blank line": lambda record: b"",
    "array": lambda record: b"[" + record + b"]",
    "number": lambda record: b"7",
    "null": lambda record: b"null",
    "too deep": _member(b"[" * 200 + b"]" * 200),
    "boolean seq": _swap(rb'"seq"\s*:\s*\d+', b'"seq":true'),
    "text seq": _swap(rb'"seq"\s*:\s*(\d+)', rb'"seq":"\1"'),
    "float seq": _swap(rb'"seq"\s*:\s*(\d+)', rb'"seq":\1.0'),
    "empty type": _swap(rb'"type"\s*:\s*"[^"]*"', b'"type":""'),
    "no type": _swap(rb'"type"\s*:', b'"tipe":'),
    "text time": _swap(rb'"time"\s*:\s*[-0-9.e+]+', b'"time":"now"'),
    "no data": _swap(rb'"data"\s*:', b'"dada":'),
}
"""Ways to write a record that a strict reader takes for unparsable (DM-5)."""


def _rewrite(record: bytes, variant: str) -> bytes | NotPossible:
    try:
        lenient = json.loads(record)
    except ValueError:
        lenient = None
    if not isinstance(lenient, dict) or not {"type", "seq", "time", "data"} <= lenient.keys():
        return NotPossible("the record is not a JSON object with the keys of an event", moot=False)
    new = STRICT_VARIANTS[variant](record)
    if new == record:
        return NotPossible(f"the record could not be rewritten ({variant})", moot=False)
    return new


def damage_header(header: bytes, damage: Damage) -> bytes | NotPossible:
    """A header (without newline) after a damage that leaves something standing in its place."""
    match damage.kind:
        case "header-version":
            new = re.sub(rb'"version"\s*:\s*\d+', b'"version":%d' % damage.amount, header, count=1)
        case "header-id":
            name = json.dumps(damage.session).encode("ascii")
            new = header.replace(name, name[:-2] + b'!"', 1)
        case "header-flip":
            new = _flip(header, damage.amount)
        case "header-garble":
            new = b"{" + b"#" * (len(header) - 2) + b"}"
        case _:
            return NotPossible(f"a header has no {damage.kind}", moot=False)
    if new == header:
        return NotPossible(f"what {damage.kind} changes was not found in the header", moot=False)
    return new
