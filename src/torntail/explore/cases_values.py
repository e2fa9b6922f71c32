"""The cases of group RW that are about values: what an event may hold, and in which order.

What is asked of a store follows its claim `values`.
"""

from __future__ import annotations

from typing import Any, Final

from torntail.explore.script import CaseBook, Script
from torntail.session import SessionEvent, encode_event

__all__ = ["VALUES"]

VALUES: Final = CaseBook()
_case = VALUES.case

_TURN: Final = "TS U SS A SE TE"


# --- RW-12, RW-13 ---------------------------------------------------------------------------------

_EVERYWHERE: Final[dict[str, Any]] = {
    "separators": "left\u2028mid\u2029right\u0085end\x1c\x1d\x1e",
    "byte order mark": "\ufeffstart",
    "controls": "".join(map(chr, range(32))) + "\x7f",
    "quotes": 'a"b\\c/d\u2028',
    "not a character": "\ufffe\uffff",
    "doubles": [5e-324, 2.2250738585072014e-308, 1.7976931348623157e308, 0.1, 1e21, 1e-7, 1.5],
    "integers": [0, 1, -1, 2**53 - 1, -(2**53 - 1), 2**31],
    "constants": [None, True, False, [], {}, ""],
    "numbers that are no booleans": [1, 0, True, False, 1.0],
    "keys": {"": 1, " ": 2, "\u2028": 3, "é": 4, "e\u0301": 5, "__proto__": 6},
}
_JSON_ONLY: Final[dict[str, Any]] = {
    "lone surrogates": ["\ud800", "\udfff", "a\udc00b", "\udc00\ud800"],
    "a pair of halves": "\ud83d\ude00",
    "big integers": [2**53, 2**63, 2**64, -(2**64), 10**100, 10**4300 - 1, -(10**4300 - 1)],
    "the sign of zero": [-0.0, 0.0],
}


@_case("RW-12")
def odd_values_survive(script: Script) -> None:
    log = script.session()
    values = dict(_EVERYWHERE)
    if script.capabilities.values == "json":
        values |= _JSON_ONLY
    names = list(values)
    script.random.shuffle(names)
    log.append([log.event("note", {"value": values[names[0]]})], "RW-12")
    batch: list[SessionEvent] = []
    for name in names[1:]:
        batch.append(log.event("note", {"value": values[name]}, seq=1 + len(batch)))
    log.append(batch, "RW-12")
    log.load("RW-12")
    script.reopen()
    log.load("RW-12")


@_case("RW-12")
def every_code_point_survives(script: Script) -> None:
    log = script.session()
    text = "".join(map(chr, [*range(0xD800), *range(0xE000, 0x110000)]))
    log.append([log.event("note", {"text": text})], "RW-12")
    if script.capabilities.values == "json":
        halves = "".join(f"{chr(half)}." for half in range(0xD800, 0xE000))
        log.append([log.event("note", {"text": halves})], "RW-12")
    script.reopen()
    log.load("RW-12")


@_case("RW-12")
def deep_nesting_survives(script: Script) -> None:
    log = script.session()
    # The record's own brace is the first level, its data the second.
    for outermost, opened in (([], 197), ({}, 197)):
        value: Any = outermost
        for level in range(opened):
            value = [value] if level % 2 else {"k": value}
        log.append([log.event("note", {"value": value})], "RW-12")
    script.reopen()
    log.load("RW-12")


@_case("RW-12")
def a_line_of_64_mebibytes_survives(script: Script) -> None:
    log = script.session()
    short = log.event("note", {"text": ""})
    text = "z" * ((64 << 20) - len(encode_event(short)) - 1)
    log.append([SessionEvent(short.type, short.seq, short.time, {**short.data, "text": text})])
    script.reopen()
    log.load("RW-12")


@_case("RW-13")
def unknown_types_and_odd_times_are_kept(script: Script) -> None:
    log = script.session()
    types = ["plugin/any thing", "x", "turn/starts", "Tool/Call", "note é", "\u2028", "a\0b"]
    log.append(
        [log.event(kind, {"deep": {"k": [1, {}]}}, seq=seq) for seq, kind in enumerate(types)]
    )
    times = [5, 5, 4, 0, -1, 1.5, -2.5, 2**53 - 1, 1e300]
    first = len(log.events)
    log.append(
        [log.event("note", seq=first + index, time=time) for index, time in enumerate(times)]
    )
    datas: list[Any] = [None, 7, "text", [], True, 1.5, {}]
    first = len(log.events)
    log.append(
        [SessionEvent("note", first + index, log.time, data) for index, data in enumerate(datas)]
    )
    log.append([log.event("note", extra={"ignorable": True, "surfaceop": "x", "": None})])
    log.append([log.event("note", source_event_seqs=[0], surface_op={"op": "replace"})])
    log.load("RW-13")
    script.reopen()
    log.load("RW-13")


@_case("RW-16")
def order_is_by_seq_alone(script: Script) -> None:
    log = script.session()
    start = int(log.time)
    log.append([log.event("note", seq=seq, time=start - 1000 * seq) for seq in range(12)])
    mark = script.mark()
    same = [SessionEvent("note", 12 + index, start, {"mark": mark}) for index in range(5)]
    log.append(same[:2])
    log.append(same[2:])
    log.load("RW-16")
    script.reopen()
    log.load("RW-16")
