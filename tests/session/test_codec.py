"""What is a record and what is not (DM-5), what may be written (RW-3), what survives (RW-12)."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import json
import math
import uuid
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.json_values import ODD_NUMBERS, ODD_TEXTS, events, values
from tests.shapes import MARKS, event_lines
from torntail.session import (
    MalformedRecord,
    NotJson,
    SessionEvent,
    SessionHeader,
    copy_event,
    encode_event,
    encode_header,
    parse_event,
    parse_header,
    same_json,
)
from torntail.session.codec import (
    _parse_slowly,
    encode_json,
    leading_object_end,
    parse_block,
    parse_json,
)
from torntail.session.events import MAXIMUM_SEQ

PLAIN = b'{"type":"note","seq":0,"time":1,"data":{}}'


def event(data: Any = None, **others: Any) -> SessionEvent:
    return SessionEvent(**{"type": "note", "seq": 0, "time": 1, "data": data, **others})


def record(data: str) -> bytes:
    return b'{"type":"note","seq":0,"time":1,"data":%b}' % data.encode("utf-8", "surrogatepass")


# --- round trips --------------------------------------------------------------------------------


@given(events)
@example(event("\ud83d\ude00"))
@example(event({"\ud83d\ude00": 1}))
@example(event(extra={"surfaceOp": None, "sourceEventSeqs": None}))
def test_what_is_written_is_read_back_equal(written: SessionEvent) -> None:
    line = encode_event(written)
    assert b"\n" not in line
    assert same_json(parse_event(line).to_json(), written.to_json())


@given(events)
def test_a_line_written_is_written_the_same_way_again(written: SessionEvent) -> None:
    line = encode_event(written)
    assert encode_event(parse_event(line)) == line


@pytest.mark.parametrize("number", [1e16, 1e21, 1e-5, 1e-7, 0.0001, 5e-324, -1.5e300, 1.0, -0.0])
def test_a_float_is_spelled_the_same_by_every_way_through_the_codec(number: float) -> None:
    plain, odd = encode_event(event([number, "1e+5"])), encode_event(event([number, "1e+5\ud800"]))
    assert odd.replace(b"\\ud800", b"") == plain
    assert encode_json([number, "1e+5"]) in plain


@given(values)
def test_the_json_parser_of_the_standard_library_agrees(value: Any) -> None:
    assert same_json(json.loads(encode_json(value)), value)


@pytest.mark.parametrize("text", ODD_TEXTS)
def test_odd_texts_survive_as_value_and_as_key(text: str) -> None:
    kept = copy_event(event({"value": text, "list": [text], "key" + text: 1}))
    assert same_json(kept.data, {"value": text, "list": [text], "key" + text: 1})


@pytest.mark.parametrize("number", ODD_NUMBERS, ids=lambda number: repr(number)[:24])
def test_odd_numbers_survive_with_their_kind_and_sign(number: float) -> None:
    kept = copy_event(event([number])).data[0]
    assert type(kept) is type(number)
    assert repr(kept) == repr(number)


def test_every_code_point_survives() -> None:
    for start in range(0, 0x110000, 0x1000):
        text = "".join(chr(code) + "x" for code in range(start, start + 0x1000))
        assert copy_event(event(text)).data == text


def test_lone_halves_are_escaped_and_pairs_joined() -> None:
    assert encode_json("\ud83d") == b'"\\ud83d"'
    assert encode_json("\ud83d\ude00") == "\U0001f600".encode().join([b'"', b'"'])
    assert encode_json("\\\ud83d") == b'"\\\\\\ud83d"'
    assert encode_json("\ude00\ud83d") == b'"\\ude00\\ud83d"'
    assert parse_event(record('"\\ud83d\\ude00"')).data == "\U0001f600"


def test_lines_look_as_the_original_writes_them() -> None:
    written = event(
        {"turn": 1, "text": "é\u2028", "half": 1.0, "zero": -0.0, "big": 2**64},
        surface_op="append",
        source_event_seqs=[0],
        extra={"ignorable": True},
    )
    assert (
        encode_event(written)
        == (
            '{"type":"note","seq":0,"time":1,"data":{"turn":1,"text":"é\u2028","half":1.0,'
            '"zero":-0.0,"big":18446744073709551616},"surfaceOp":"append","sourceEventSeqs":[0],'
            '"ignorable":true}'
        ).encode()
    )


def test_a_line_of_64_mebibytes_is_a_record() -> None:
    text = "x" * (64 << 20)
    line = encode_event(event(text))
    assert parse_event(line).data == text


def test_unknown_keys_and_nulls_under_known_keys_are_kept() -> None:
    line = b'{"type":"a","seq":0,"time":1,"data":null,"surfaceOp":null,"z":[1],"ignorable":true}'
    found = parse_event(line)
    assert found.surface_op is None
    assert found.extra == {"surfaceOp": None, "z": [1], "ignorable": True}
    assert same_json(json.loads(encode_event(found)), json.loads(line))


@pytest.mark.parametrize("data", [None, True, 0, "", [], {}, "text", 1.5])
def test_data_is_any_json_value(data: Any) -> None:
    assert same_json(copy_event(event(data)).data, data)


def test_a_copy_shares_nothing_with_its_original() -> None:
    original = event({"list": [1]}, extra={"more": {"a": 1}})
    kept = copy_event(original)
    original.data["list"].append(2)
    assert original.extra is not None
    original.extra["more"]["a"] = 2
    assert kept.data == {"list": [1]}
    assert kept.extra == {"more": {"a": 1}}


# --- nesting ------------------------------------------------------------------------------------


@pytest.mark.parametrize("opening, closing", [("[", "]"), ('{"a":', "}")])
def test_two_hundred_levels_are_read_and_the_next_is_not(opening: str, closing: str) -> None:
    # The record's own brace is the first level.
    inner = "1" if closing == "}" else ""
    deepest = record(opening * 199 + inner + closing * 199)
    assert encode_event(parse_event(deepest)) == deepest
    with pytest.raises(MalformedRecord, match="200 levels"):
        parse_event(record(opening * 200 + inner + closing * 200))


def nested(levels: int, kind: type = list) -> Any:
    value: Any = kind()
    for _ in range(levels - 1):
        value = [value] if kind is list else {"a": value}
    return value


@pytest.mark.parametrize("kind", [list, dict])
def test_two_hundred_levels_are_written_and_the_next_is_not(kind: type) -> None:
    line = encode_event(event(nested(199, kind)))
    assert parse_event(line).data == nested(199, kind)
    with pytest.raises(NotJson, match="200 levels"):
        encode_event(event(nested(200, kind)))


def test_depth_counts_nesting_not_brackets() -> None:
    wide = record("[" + ",".join(["[]"] * 5000) + ',"' + "[" * 5000 + '"]')
    assert len(parse_event(wide).data) == 5001
    assert encode_event(parse_event(wide)) == wide


def test_depth_holds_on_the_slow_path_too() -> None:
    half = '"\\ud800"'
    assert parse_event(record("[" * 199 + half + "]" * 199))
    with pytest.raises(MalformedRecord, match="200 levels"):
        parse_event(record("[" * 200 + half + "]" * 200))
    value: Any = "\ud800"
    for _ in range(200):
        value = [value]
    with pytest.raises(NotJson, match="200 levels"):
        encode_event(event(value))


@pytest.mark.parametrize(
    "hostile",
    [
        b"[" * 1_000_000,
        b'{"a":' * 1_000_000,
        b"[" * 1_000_000 + b"]" * 1_000_000,
        record("[" * 1_000_000),
        b'"' + b"\\" * 1_000_001,
        b'{"' + b'\\"' * 1_000_000,
        b'"' * 1_000_001,
        b"{" * 1_000_000 + b'"',
        b"\x00" * 1_000_000,
        b" " * 1_000_000,
        b"-" * 1_000_000,
        b"9" * 1_000_000,
        record("1" * 1_000_000),
        record("0." + "1" * 1_000_000 + "x"),
        b"}" * 1_000_000,
    ],
    ids=lambda text: repr(text[:12]),
)
def test_hostile_lines_are_refused_and_never_exhaust_the_interpreter(hostile: bytes) -> None:
    with pytest.raises(MalformedRecord):
        parse_event(hostile)
    with pytest.raises(MalformedRecord):
        parse_header(hostile)
    leading_object_end(hostile)


# --- what is not a record -----------------------------------------------------------------------

UNPARSABLE = {
    "empty": b"",
    "blank": b" \t\r",
    "null": b"null",
    "number": b"7",
    "string": b'"x"',
    "list": b"[]",
    "true": b"true",
    "object": b"{}",
    "cut": PLAIN[:-1],
    "two records": PLAIN + PLAIN,
    "trailing text": PLAIN + b" x",
    "trailing NUL": PLAIN + b"\x00",
    "leading NUL": b"\x00" + PLAIN,
    "NUL run": bytes(64),
    "byte order mark": b"\xef\xbb\xbf" + PLAIN,
    "UTF-16": PLAIN.decode().encode("utf-16"),
    "UTF-16 without mark": PLAIN.decode().encode("utf-16-le"),
    "UTF-32": PLAIN.decode().encode("utf-32-be"),
    "no type": b'{"seq":0,"time":1,"data":{}}',
    "no seq": b'{"type":"a","time":1,"data":{}}',
    "no time": b'{"type":"a","seq":0,"data":{}}',
    "no data": b'{"type":"a","seq":0,"time":1}',
    "no data, other keys": b'{"type":"a","seq":0,"time":1,"surfaceOp":"append"}',
    "empty type": b'{"type":"","seq":0,"time":1,"data":{}}',
    "null type": b'{"type":null,"seq":0,"time":1,"data":{}}',
    "number type": b'{"type":1,"seq":0,"time":1,"data":{}}',
    "bool seq": b'{"type":"a","seq":true,"time":1,"data":{}}',
    "string seq": b'{"type":"a","seq":"0","time":1,"data":{}}',
    "float seq": b'{"type":"a","seq":0.0,"time":1,"data":{}}',
    "exponent seq": b'{"type":"a","seq":1e0,"time":1,"data":{}}',
    "negative seq": b'{"type":"a","seq":-1,"time":1,"data":{}}',
    "null seq": b'{"type":"a","seq":null,"time":1,"data":{}}',
    "seq 2^53": b'{"type":"a","seq":9007199254740992,"time":1,"data":{}}',
    "seq of 30 digits": b'{"type":"a","seq":100000000000000000000000000000,"time":1,"data":{}}',
    "bool time": b'{"type":"a","seq":0,"time":false,"data":{}}',
    "string time": b'{"type":"a","seq":0,"time":"1","data":{}}',
    "null time": b'{"type":"a","seq":0,"time":null,"data":{}}',
    "repeated type": b'{"type":"a","type":"a","seq":0,"time":1,"data":{}}',
    "repeated key": b'{"type":"a","seq":0,"time":1,"data":{},"x":1,"x":1}',
    "repeated key in data": record('{"a":1,"a":1}'),
    "repeated key deep": record('[[{"b":{"a":1,"a":2}}]]'),
    "repeated key, escaped": record('{"a":1,"\\u0061":2}'),
    "repeated key, pair and character": record('{"\U0001f600":1,"\\ud83d\\ude00":2}'),
    "NaN": record("NaN"),
    "Infinity": record("[Infinity]"),
    "-Infinity": record("-Infinity"),
    "1e999": record("1e999"),
    "-1e999": record("[-1e999]"),
    "time 1e999": b'{"type":"a","seq":0,"time":1e999,"data":{}}',
    "integer of 4301 digits": record("1" + "0" * 4300),
    "negative integer of 4301 digits": record("-1" + "0" * 4300),
    "invalid UTF-8": record('"x"').replace(b"x", b"\xff"),
    "cut multibyte character": record('"x"').replace(b"x", b"\xe6\x87"),
    "overlong": record('"x"').replace(b"x", b"\xc0\xaf"),
    "raw surrogate (WTF-8)": record('"\ud83d"'),
    "raw surrogate pair (CESU-8)": record('"\ud83d\ude00"'),
    "beyond Unicode": record('"x"').replace(b"x", b"\xf4\x90\x80\x80"),
    "raw control character": record('"a\x01b"'),
    "raw NUL in a string": record('"a\x00b"'),
    "raw tab in a string": record('"a\tb"'),
    "raw newline in a string": record('"a\nb"'),
    "single quotes": b"{'type':'a','seq':0,'time':1,'data':{}}",
    "trailing comma": record("[1,]"),
    "comment": record("1/**/"),
    "leading zero": record("01"),
    "plus": record("+1"),
    "bare point": record("1."),
    "hexadecimal": record("0x1"),
    "bad escape": record('"\\x41"'),
    "short escape": record('"\\u12"'),
    "other space": b"\xc2\xa0" + PLAIN,
    "form feed": b"\x0c" + PLAIN,
    "unquoted key": record("{a:1}"),
}


@pytest.mark.parametrize("line", UNPARSABLE.values(), ids=UNPARSABLE.keys())
def test_not_a_record(line: bytes) -> None:
    with pytest.raises(MalformedRecord) as refusal:
        parse_event(line)
    assert refusal.value.reason


@pytest.mark.parametrize(
    "line",
    [
        PLAIN + b"\r",
        b" " + PLAIN + b" \t",
        b'{ "type" : "note" , "seq" : 0 , "time" : 1 , "data" : { } }',
        b'{"data":{},"time":1,"seq":0,"type":"note"}',
        b'{"\\u0074ype":"not\\u0065","seq":0,"time":1,"data":{}}',
        b'{"type":"note","seq":-0,"time":1,"data":{}}',
        b'{"type":"note","seq":0,"time":1.0,"data":{}}',
        b'{"type":"note","seq":0,"time":1e0,"data":{}}',
    ],
)
def test_the_same_record_written_another_way(line: bytes) -> None:
    assert same_json(parse_event(line).to_json(), parse_event(PLAIN).to_json())


def test_the_largest_seq_and_any_time() -> None:
    found = parse_event(b'{"type":"a","seq":9007199254740991,"time":-1.5e300,"data":{}}')
    assert (found.seq, found.time) == (MAXIMUM_SEQ, -1.5e300)


@pytest.mark.parametrize("mark", sorted(MARKS))
def test_marks_of_the_shape_language(mark: str) -> None:
    accepted = {"sep", "sur", "nul", "huge", "big", "int4300", "deep200", "back"}
    (line,) = event_lines(f"U!{mark}") if mark != "rawlf" else (b"\n".join(event_lines("U!rawlf")),)
    if mark in accepted:
        assert encode_event(parse_event(line)) == line
    else:
        with pytest.raises(MalformedRecord):
            parse_event(line)


@given(st.binary(max_size=60))
def test_any_bytes_are_a_record_or_refused(text: bytes) -> None:
    try:
        parse_event(text)
    except MalformedRecord:
        pass


def check_fast_paths(line: bytes) -> None:
    """A line means the same by every way through the codec, and is refused by all or none."""
    try:
        slow = SessionEvent.from_json(_parse_slowly(line))
    except MalformedRecord:
        with pytest.raises(MalformedRecord):
            parse_event(line)
        assert parse_block(line + b"\n") in (None, [])
        return
    assert repr(parse_event(line)) == repr(slow)
    assert repr(parse_block(line + b"\n")) in ("None", repr([slow]))


@pytest.mark.parametrize("line", UNPARSABLE.values(), ids=UNPARSABLE.keys())
def test_fast_paths_refuse_what_the_strict_parser_refuses(line: bytes) -> None:
    check_fast_paths(line)
    assert parse_block(PLAIN + b"\n" + line + b"\n") is None
    if line:
        assert parse_block(PLAIN + b"\n" + line) is None


@given(events)
def test_fast_paths_read_what_the_strict_parser_reads(written: SessionEvent) -> None:
    check_fast_paths(encode_event(written))


@settings(max_examples=50)
@given(st.lists(events, max_size=4))
def test_a_block_is_its_lines(written: list[SessionEvent]) -> None:
    lines = [encode_event(one) for one in written]
    found = parse_block(b"".join(line + b"\n" for line in lines))
    if found is not None:
        assert repr(found) == repr([parse_event(line) for line in lines])


@given(events, st.data())
def test_a_changed_line_is_refused_or_means_what_strict_json_says(
    written: SessionEvent, data: st.DataObject
) -> None:
    line = bytearray(encode_event(written))
    place = data.draw(st.integers(0, len(line) - 1))
    line[place] = data.draw(st.integers(0, 255))
    check_fast_paths(bytes(line))
    try:
        found = parse_event(bytes(line))
    except MalformedRecord:
        return
    assert same_json(found.to_json(), json.loads(bytes(line).decode("utf-8")))
    # What load accepts, append accepts, and it stays the same.
    assert same_json(parse_event(encode_event(found)).to_json(), found.to_json())


# --- what cannot be written ---------------------------------------------------------------------


class Plain(enum.Enum):
    A = "a"


@dataclasses.dataclass
class Record:
    a: int = 1


CYCLE: list[Any] = []
CYCLE.append(CYCLE)
DICT_CYCLE: dict[str, Any] = {}
DICT_CYCLE["self"] = [DICT_CYCLE]

NOT_JSON = {
    "NaN": math.nan,
    "Infinity": math.inf,
    "-Infinity": -math.inf,
    "bytes": b"x",
    "bytearray": bytearray(b"x"),
    "memoryview": memoryview(b"x"),
    "set": {1},
    "frozenset": frozenset(),
    "date": datetime.date(2026, 1, 1),
    "datetime": datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC),
    "time": datetime.time(1),
    "UUID": uuid.UUID(int=0),
    "Decimal": decimal.Decimal(1),
    "complex": 1j,
    "object": object(),
    "function": len,
    "class": int,
    "generator": (character for character in ""),
    "range": range(2),
    "enum": Plain.A,
    "dataclass": Record(),
    "event": SessionEvent("a", 0, 1, {}),
    "cycle": CYCLE,
    "dict cycle": DICT_CYCLE,
    "integer of 4301 digits": 10**4300,
    "negative integer of 4301 digits": -(10**4300),
    "integer key": {1: "a"},
    "None key": {None: "a"},
    "bool key": {True: "a"},
    "float key": {1.5: "a"},
    "bytes key": {b"a": "a"},
    "tuple key": {(): "a"},
    "UUID key": {uuid.UUID(int=0): 1},
    "date key": {datetime.date(2026, 1, 1): 1},
    "Ellipsis": ...,
}


@pytest.mark.parametrize("value", NOT_JSON.values(), ids=NOT_JSON.keys())
def test_what_json_lacks_is_refused_naming_its_place(value: Any) -> None:
    with pytest.raises(NotJson) as refusal:
        encode_event(event({"list": [0, {"deep": value}]}))
    assert refusal.value.where.startswith("data.list[1].deep")
    assert refusal.value.reason
    with pytest.raises(NotJson):
        copy_event(event(value))


@pytest.mark.parametrize("place", ["surface_op", "source_event_seqs", "time"])
def test_every_part_of_an_event_is_checked(place: str) -> None:
    with pytest.raises(NotJson):
        encode_event(event({}, **{place: math.nan}))
    with pytest.raises(NotJson):
        encode_event(event({}, extra={"more": math.nan}))


@pytest.mark.parametrize(
    "others",
    [
        {"type": ""},
        {"type": None},
        {"type": 1},
        {"seq": -1},
        {"seq": True},
        {"seq": 1.0},
        {"seq": "1"},
        {"seq": 2**53},
        {"time": None},
        {"time": "1"},
        {"time": True},
        {"extra": {"seq": 1}},
        {"extra": {1: 1}},
        {"extra": {"type": "b", "data": 1}},
    ],
    ids=str,
)
def test_append_refuses_what_load_would_refuse(others: dict[str, Any]) -> None:
    with pytest.raises(NotJson):
        encode_event(event({}, **others))


def test_keys_that_become_equal_when_halves_join_are_refused() -> None:
    with pytest.raises(NotJson, match="repeated key"):
        encode_event(event({"\ud83d\ude00": 1, "\U0001f600": 2}))


def test_a_tuple_is_a_list_and_subclasses_are_their_base() -> None:
    class Name(enum.StrEnum):
        A = "a"

    class Count(enum.IntEnum):
        ONE = 1

    value = (1, (), Name.A, Count.ONE, OrderedDict(a=1))
    kept = copy_event(event(value)).data
    assert kept == [1, [], "a", 1, {"a": 1}]
    assert [type(member) for member in kept] == [int, list, str, int, dict]
    assert same_json(kept, value)


def test_shared_values_are_not_cycles() -> None:
    shared = ["\ud800"]
    assert copy_event(event([shared, shared])).data == [shared, shared]


# --- headers ------------------------------------------------------------------------------------


def test_header_round_trip_keeps_further_keys() -> None:
    header = SessionHeader(
        "s\ud800", 1.5, "/w", "parent", 7, extra={"delegationDepth": 0, "origin": None}
    )
    assert parse_header(encode_header(header)) == header
    plain = SessionHeader("s-1", 0)
    assert encode_header(plain) == b'{"type":"session","version":0,"id":"s-1","createdAt":0}'
    assert parse_header(encode_header(plain) + b"\r") == plain


BAD_HEADERS = {
    "not an object": b"[]",
    "null": b"null",
    "no type": b'{"version":0,"id":"a","createdAt":1}',
    "an event": PLAIN,
    "no version": b'{"type":"session","id":"a","createdAt":1}',
    "string version": b'{"type":"session","version":"0","id":"a","createdAt":1}',
    "bool version": b'{"type":"session","version":false,"id":"a","createdAt":1}',
    "float version": b'{"type":"session","version":0.0,"id":"a","createdAt":1}',
    "no id": b'{"type":"session","version":0,"createdAt":1}',
    "empty id": b'{"type":"session","version":0,"id":"","createdAt":1}',
    "number id": b'{"type":"session","version":0,"id":1,"createdAt":1}',
    "no createdAt": b'{"type":"session","version":0,"id":"a"}',
    "string createdAt": b'{"type":"session","version":0,"id":"a","createdAt":"1"}',
    "number cwd": b'{"type":"session","version":0,"id":"a","createdAt":1,"cwd":1}',
    "list parent": b'{"type":"session","version":0,"id":"a","createdAt":1,"parentSession":[]}',
    "negative seed": b'{"type":"session","version":0,"id":"a","createdAt":1,"seedLength":-1}',
    "float seed": b'{"type":"session","version":0,"id":"a","createdAt":1,"seedLength":1.0}',
    "repeated id": b'{"type":"session","version":0,"id":"a","id":"a","createdAt":1}',
    "byte order mark": b'\xef\xbb\xbf{"type":"session","version":0,"id":"a","createdAt":1}',
}


@pytest.mark.parametrize("line", BAD_HEADERS.values(), ids=BAD_HEADERS.keys())
def test_not_a_header(line: bytes) -> None:
    with pytest.raises(MalformedRecord):
        parse_header(line)


_HEADER_VALUES: st.SearchStrategy[Any] = st.sampled_from(
    [None, True, 0, 1, -1, 1.0, 2**53, 2**70, 1e300, "", "s-1", "\u2028", "\ud800", [], {"a": 1}]
)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(
                ["version", "id", "createdAt", "cwd", "parentSession", "seedLength", "type", "more"]
            ),
            _HEADER_VALUES,
        ),
        max_size=4,
    ),
    st.booleans(),
)
def test_the_fast_path_of_headers_decides_as_the_slow_one(
    changes: list[tuple[str, Any]], ascii_only: bool
) -> None:
    record: dict[str, Any] = {"type": "session", "version": 0, "id": "s-1", "createdAt": 7}
    record |= dict(changes)
    line = json.dumps(record, separators=(",", ":"), ensure_ascii=ascii_only)
    found = header_or_reason(parse_header, line.encode("utf-8", "surrogatepass"))
    slow = header_or_reason(
        lambda text: SessionHeader.from_json(_parse_slowly(text)),
        line.encode("utf-8", "surrogatepass"),
    )
    assert found == slow


def header_or_reason(parse: Callable[[bytes], SessionHeader], line: bytes) -> str:
    """What a parser makes of a line; as text, which tells 1 from 1.0 from true."""
    try:
        return repr(parse(line))
    except MalformedRecord as error:
        return error.reason


@pytest.mark.parametrize("version", [1, -1, 7, 2**70])
def test_a_header_of_another_version_is_read_for_its_version(version: int) -> None:
    header = parse_header(b'{"type":"session","version":%d,"other":[]}' % version)
    assert header.version == version


@pytest.mark.parametrize(
    "header",
    [
        SessionHeader("", 1),
        SessionHeader("a", math.nan),
        SessionHeader("a", 1, seed_length=-1),
        SessionHeader("a", 1, extra={"x": {1}}),
        SessionHeader("a", "1"),  # type: ignore[arg-type]
        SessionHeader("a", 1, cwd=1),  # type: ignore[arg-type]
    ],
    ids=repr,
)
def test_a_header_load_would_refuse_is_not_written(header: SessionHeader) -> None:
    with pytest.raises(NotJson):
        encode_header(header)


# --- comparing ----------------------------------------------------------------------------------

SAME = [
    (1, 1.0),
    (-0.0, -0.0),
    ("\ud83d\ude00", "\U0001f600"),
    ({"\ud83d\ude00": 1}, {"\U0001f600": 1.0}),
    ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
    ((1, 2), [1, 2]),
    (None, None),
]
DIFFERENT = [
    (True, 1),
    (False, 0),
    (0, -0.0),
    (0.0, -0.0),
    (2**53, float(2**53) + 2),
    (2**53 + 1, float(2**53)),
    ("1", 1),
    (None, False),
    (None, 0),
    ([], {}),
    ([1], [1, 1]),
    ({"a": 1}, {"b": 1}),
    ({"a": None}, {}),
    ("\ud83d", "\ude00"),
    ("é", "e\u0301"),
    ("", None),
]


@pytest.mark.parametrize("left, right", SAME)
def test_same(left: Any, right: Any) -> None:
    assert same_json(left, right)
    assert same_json([left], [right])
    assert same_json({"a": right}, {"a": left})


@pytest.mark.parametrize("left, right", DIFFERENT)
def test_different(left: Any, right: Any) -> None:
    assert not same_json(left, right)
    assert not same_json(right, left)
    assert not same_json({"a": [left]}, {"a": [right]})


def test_i_json_may_lose_the_sign_of_zero() -> None:
    assert same_json([0, 0.0], [-0.0, -0.0], i_json=True)


@given(values, values)
def test_sameness_is_equality_of_canonical_text(left: Any, right: Any) -> None:
    assert same_json(left, left)
    assert same_json(left, right) == same_json(right, left)
    if encode_json(left) == encode_json(right):
        assert same_json(left, right)


# --- the object a damaged line begins with (DM-4) -----------------------------------------------


@given(events, st.binary(max_size=20))
def test_the_leading_object_ends_where_the_record_does(
    written: SessionEvent, behind: bytes
) -> None:
    line = encode_event(written)
    assert leading_object_end(line + behind) == len(line)
    assert leading_object_end(line[:-1]) is None


@pytest.mark.parametrize("text", [b"", b"   ", b"[1]", b'"{}"', b"x{}", b"{", b'{"a', b'{"}'])
def test_no_leading_object(text: bytes) -> None:
    assert leading_object_end(text) is None


def test_what_is_not_json_is_told_with_its_place() -> None:
    with pytest.raises(MalformedRecord) as refusal:
        parse_json('{"é":"open'.encode())
    assert refusal.value.reason == "not JSON: Unterminated string starting at character 5"
    assert refusal.value.byte == 6
    with pytest.raises(MalformedRecord) as refusal:
        parse_json(b'{"a":\xff}')
    assert refusal.value.byte == 5


def test_parse_json_takes_any_value() -> None:
    assert parse_json(b' [1, "a"] ') == [1, "a"]
    assert parse_json(b"null") is None
    with pytest.raises(MalformedRecord):
        parse_json(b"[1")
