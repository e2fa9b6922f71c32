"""A scenario from the bytes of its file, strictly: whatever is odd is an error that says where.

Decides what may stand in a file: JSON without repeated keys, unknown fields, NaN or absurd nesting,
of this version, within the limits of `format`, with a plan and faults that make sense together
(`checks`). Every error is one line that names the file, the field and what to change. Does not open
files (`files`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final, NoReturn

import msgspec
from msgspec import inspect

import torntail
from torntail.scenarios.checks import problem_of
from torntail.scenarios.content import BadContent, bytes_of
from torntail.scenarios.format import (
    MAXIMUM_DATA_BYTES,
    MAXIMUM_FILE_BYTES,
    MAXIMUM_OPERATIONS,
    SCENARIO_VERSION,
    FileFault,
    Scenario,
)
from torntail.scenarios.refusals import nearest, refusal, struct_of, tags_of
from torntail.session import MalformedRecord, SessionEvent, SessionHeader

__all__ = ["ScenarioError", "parse_scenario"]

_MAXIMUM_DEPTH: Final = 240
_MAXIMUM_DIGITS: Final = 4300
_MAXIMUM_COUNT: Final = 2**53
_SCENARIO: Final = inspect.type_info(Scenario)
_STRUCTURE: Final = re.compile(r'"(?:[^"\\]|\\.)*+"|[\[\]{}]', re.DOTALL)


class ScenarioError(ValueError):
    """A file that is no scenario: `where` is the field, the text names file, field and change."""

    def __init__(self, name: str, where: str, what: str) -> None:
        # One line, whatever the file holds.
        shown = " ".join(": ".join(filter(None, (name, where, what))).split())
        super().__init__(shown.encode("utf-8", "backslashreplace").decode("utf-8"))
        self.name = name
        self.where = where


class _Odd(Exception):
    """What is wrong at which place, before the file's name is known."""

    def __init__(self, where: str, what: str) -> None:
        super().__init__(what)
        self.where = where
        self.what = what


def parse_scenario(data: bytes, name: str) -> Scenario:
    """The scenario in a file's bytes; raises `ScenarioError`, which calls the file `name`."""
    try:
        return _scenario(data)
    except _Odd as odd:
        raise ScenarioError(name, odd.where, odd.what) from None


def _scenario(data: bytes) -> Scenario:
    tree = _json(data)
    if not isinstance(tree, dict):
        raise _Odd("", "is not an object: a scenario begins with {")
    version = tree.get("torntail")
    if type(version) is not int:
        raise _Odd("torntail", f'is missing or no number: write "torntail": {SCENARIO_VERSION}')
    if version != SCENARIO_VERSION:
        raise _Odd(
            "torntail",
            f"the format {_short(version)} is not known to torntail {torntail.__version__}, which "
            f"reads {SCENARIO_VERSION}: install the torntail that wrote it, or save it again",
        )
    _check_fields(tree, _SCENARIO, "")
    _check_count(tree)
    _make_operations(tree.get("plan"), "plan")
    room = MAXIMUM_DATA_BYTES
    for index, fault in enumerate(_listed(tree.get("faults"))):
        where = f"faults[{index}]"
        if isinstance(fault, dict):
            _make_operations(fault.get("recovery"), f"{where}.recovery")
            if fault.get("fault") == "file":
                fault["data"] = _content(fault.pop("content", []), f"{where}.content", room)
                room -= len(fault["data"])
    try:
        scenario = msgspec.convert(tree, Scenario)
    except msgspec.ValidationError as error:
        raise _Odd(*refusal(str(error), tree, _SCENARIO)) from None
    problem = problem_of(scenario)
    if problem is not None:
        raise _Odd(*problem)
    return scenario


# --- JSON -------------------------------------------------------------------------------------


def _json(data: bytes) -> Any:
    if len(data) > MAXIMUM_FILE_BYTES:
        raise _Odd("", f"is longer than {MAXIMUM_FILE_BYTES} bytes: shorten it (torntail shrink)")
    if not data.strip():
        raise _Odd("", "is empty")
    if data.startswith((b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")):
        raise _Odd("", "begins with a byte order mark: save it as plain UTF-8")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise _Odd(f"line {line}", "is not UTF-8: save the file as UTF-8") from None
    depth = 0
    for token in _STRUCTURE.finditer(text):
        bracket = token.group()
        depth += (bracket in ("[", "{")) - (bracket in ("]", "}"))
        if depth > _MAXIMUM_DEPTH:
            line = text.count("\n", 0, token.start()) + 1
            raise _Odd(f"line {line}", f"nests deeper than {_MAXIMUM_DEPTH} levels: flatten it")
    try:
        return _STRICT.decode(text)
    except json.JSONDecodeError as error:
        what = f"is not JSON: {error.msg} at column {error.colno}"
        if error.pos >= len(text.rstrip()):
            what += "; the file seems to be cut off"
        raise _Odd(f"line {error.lineno}", what) from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise _Odd(_short(key), "stands twice in one object: leave one out")
            seen.add(key)
    return members


def _integer(digits: str) -> int:
    try:
        if len(digits.lstrip("-")) <= _MAXIMUM_DIGITS:
            return int(digits)
    except ValueError:
        pass  # The interpreter was started with a lower limit of its own.
    raise _Odd("", f"the number {digits[:12]}… has more than {_MAXIMUM_DIGITS} digits: shorten it")


def _float(digits: str) -> float:
    number = float(digits)
    if number in (float("inf"), float("-inf")):
        raise _Odd("", f"the number {digits[:20]} is out of range: write a smaller one")
    return number


def _constant(name: str) -> NoReturn:
    raise _Odd("", f"{name} is not JSON: leave it out (an append is spoiled by name)")


_STRICT: Final = json.JSONDecoder(
    object_pairs_hook=_object,
    parse_int=_integer,
    parse_float=_float,
    parse_constant=_constant,
)


# --- fields -----------------------------------------------------------------------------------


def _item(kind: inspect.Type) -> inspect.Type | None:
    """The type of the members of a list of this type."""
    match kind:
        case inspect.VarTupleType(item_type=item) | inspect.ListType(item_type=item):
            return item
        case inspect.UnionType(types=types):
            return next((found for one in types if (found := _item(one)) is not None), None)
    return None


def _check_fields(value: Any, kind: inspect.Type, where: str) -> None:
    """Looks for fields that no value of this type has; what else is wrong, the conversion finds."""
    if isinstance(value, list):
        item = _item(kind)
        if item is not None:
            for index, member in enumerate(value):
                _check_fields(member, item, f"{where}[{index}]")
        return
    tags = tags_of(kind)
    if not isinstance(value, dict) or tags is None:
        return
    tagged, known_tags = tags
    struct = struct_of(value, kind)
    if struct is None:
        tag = value.get(tagged)
        what = "is missing" if tag is None else f"{_short(tag)} is not known"
        raise _Odd(_joined(where, tagged), f"{what}: use {nearest(tag, known_tags)}")
    if struct.cls in (SessionEvent, SessionHeader):
        return  # Any key may stand there.
    fields: dict[str, inspect.Type] = {field.encode_name: field.type for field in struct.fields}
    if struct.cls is FileFault:
        fields["content"] = fields.pop("data")
    known = [*fields, *filter(None, [tagged])]
    for key, member in value.items():
        if key in fields:
            _check_fields(member, fields[key], _joined(where, key))
        elif key != tagged:
            raise _Odd(_joined(where, key), f"unknown field: use {nearest(key, known)}")


def _joined(where: str, key: str) -> str:
    return f"{where}.{_short(key)}" if where else _short(key)


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 40 else f"{text[:36]}…"


# --- operations, headers, events --------------------------------------------------------------


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _check_count(tree: Mapping[str, Any]) -> None:
    count = len(_listed(tree.get("plan")))
    for fault in _listed(tree.get("faults")):
        count += len(_listed(fault.get("recovery"))) if isinstance(fault, dict) else 0
    if count > MAXIMUM_OPERATIONS or len(_listed(tree.get("faults"))) > MAXIMUM_OPERATIONS:
        raise _Odd("plan", f"has {count} operations, more than {MAXIMUM_OPERATIONS}: shorten it")


def _make_operations(operations: Any, where: str) -> None:
    """Puts values in the places of headers and events, whose wire form is their own matter."""
    for index, operation in enumerate(_listed(operations)):
        place = f"{where}[{index}]"
        if not isinstance(operation, dict):
            continue
        for key, number in operation.items():
            if type(number) is int and abs(number) > _MAXIMUM_COUNT:
                raise _Odd(f"{place}.{key}", "is absurdly large: write a smaller number")
        if isinstance(operation.get("header"), dict):
            operation["header"] = _header(operation["header"], f"{place}.header")
        events = operation.get("events")
        if isinstance(events, list):
            operation["events"] = [
                _event(event, f"{place}.events[{number}]") for number, event in enumerate(events)
            ]
        _make_operations(operation.get("operations"), f"{place}.operations")


def _header(record: dict[str, Any], where: str) -> SessionHeader:
    nameless = record.get("id") == ""  # Which no store may take (RW-10), so a plan tries it.
    try:
        header = SessionHeader.from_json({**record, "id": "-"} if nameless else record)
    except MalformedRecord as error:
        raise _Odd(where, f"{error.reason}; it is a header line as it stands in a log") from None
    return msgspec.structs.replace(header, id="") if nameless else header


def _event(record: Any, where: str) -> SessionEvent:
    try:
        return SessionEvent.from_json(record)
    except MalformedRecord as error:
        raise _Odd(where, f"{error.reason}; an event stands as it does in a log") from None


def _content(pieces: Any, where: str, limit: int) -> bytes:
    if not isinstance(pieces, list):
        raise _Odd(where, "is not a list: give the file's lines and pieces of text")
    try:
        return bytes_of(pieces, limit)
    except BadContent as error:
        raise _Odd(f"{where}[{error.index}]", str(error)) from None
