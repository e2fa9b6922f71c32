r"""The bytes of a file as pieces that a person can read and an editor can write.

Decides the pieces: an object is a line of canonical JSON with its newline; a string is text in
UTF-8, in which `\xff` stands for a byte that is none and `\\` for a backslash; a pair of a string
and a number is that string so many times. The pieces of given bytes are always the same ones.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final

from torntail.session.codec import join_surrogates

__all__ = ["BadContent", "bytes_of", "pieces_of"]

_SHORTEST_RUN: Final = 24
_RUN: Final = re.compile(rb"(.)\1{%d,}" % (_SHORTEST_RUN - 1), re.DOTALL)
_ESCAPE: Final = re.compile(r"\\(x[0-9a-f]{2}|\\)?")


class BadContent(ValueError):
    """A piece that stands for no bytes; `index` is its place, the text says what to change."""

    def __init__(self, index: int, what: str) -> None:
        super().__init__(what)
        self.index = index


def pieces_of(data: bytes) -> list[Any]:
    """The pieces that stand for `data`."""
    pieces: list[Any] = []
    start = 0
    while start < len(data):
        end = data.find(b"\n", start) + 1 or len(data)
        line = data[start:end]
        record = _record(line)
        pieces += [record] if record is not None else _texts(line)
        start = end
    return pieces


def bytes_of(pieces: list[Any], limit: int) -> bytes:
    """The bytes that pieces stand for, at most `limit`; raises `BadContent`."""
    data = bytearray()
    for index, piece in enumerate(pieces):
        match piece:
            case dict():
                more = _line(piece)
            case str():
                more = _unescaped(piece, index)
            case [str() as text, int() as times] if type(times) is int and times >= 1:
                more = _unescaped(text, index)
                if len(more) * times > limit:
                    raise BadContent(index, f"more than {limit} bytes: repeat it less often")
                more *= times
            case _:
                raise BadContent(
                    index,
                    "is neither an object (a line of JSON), a string, nor a pair of a string and "
                    "how often it is repeated",
                )
        data += more
        if len(data) > limit:
            raise BadContent(index, f"more than {limit} bytes: shorten the file")
    return bytes(data)


def _line(record: dict[str, Any]) -> bytes:
    text = join_surrogates(json.dumps(record, ensure_ascii=False, separators=(",", ":")))
    escaped = re.sub("[\ud800-\udfff]", lambda half: f"\\u{ord(half.group()):04x}", text)
    return escaped.encode("utf-8") + b"\n"


def _record(line: bytes) -> dict[str, Any] | None:
    """The object a line is the canonical text of."""
    if not line.startswith(b"{") or not line.endswith(b"}\n") or _RUN.search(line):
        return None
    try:
        record = json.loads(line, parse_constant=_no_number)
        if isinstance(record, dict) and _line(record) == line and _depth(record) <= 100:
            return record
    except (ValueError, RecursionError):
        pass
    return None


def _no_number(name: str) -> None:
    raise ValueError(name)


def _depth(value: Any) -> int:
    depth, level = 0, [value]
    while level and depth <= 100:
        depth += 1
        inner: list[Any] = []
        for one in level:
            if isinstance(one, dict):
                inner += one.values()
            elif isinstance(one, list):
                inner += one
        level = inner
    return depth


def _texts(line: bytes) -> Iterator[Any]:
    """A line that is no canonical record, as text and runs."""
    start = 0
    for run in _RUN.finditer(line):
        if run.start() > start:
            yield _escaped(line[start : run.start()])
        yield [_escaped(run.group(1)), len(run.group())]
        start = run.end()
    if start < len(line):
        yield _escaped(line[start:])


def _escaped(data: bytes) -> str:
    return data.replace(b"\\", b"\\\\").decode("utf-8", "backslashreplace")


def _unescaped(text: str, index: int) -> bytes:
    data = bytearray()
    start = 0
    for escape in _ESCAPE.finditer(text):
        data += _encoded(text[start : escape.start()], index)
        what = escape.group(1)
        if what is None:
            raise BadContent(index, r"a backslash stands alone: write \\, or \xff for a byte")
        data += b"\\" if what == "\\" else bytes([int(what[1:], 16)])
        start = escape.end()
    return bytes(data + _encoded(text[start:], index))


def _encoded(text: str, index: int) -> bytes:
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        half = ord(text[error.start])
        raise BadContent(
            index, f"U+{half:04X} has no bytes in UTF-8: write them as \\xed\\xa0\\x80 and the like"
        ) from None
