"""What does not fit a scenario's types, in words that say where it is and what would fit.

Decides the words for what msgspec refuses: a word that is not in a list of words, a field that is
missing, a value of another type. Does not decide what is refused.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import Any, Final

from msgspec import inspect

__all__ = ["nearest", "refusal", "struct_of", "tags_of"]

_ENUM: Final = re.compile(r"Invalid enum value (.*)", re.DOTALL)
_MISSING: Final = re.compile(r"Object missing required field `(.*)`")
_OTHER_TYPE: Final = re.compile(r"Expected `([a-z| ]+)`, got `([a-z]+)`")
_STEP: Final = re.compile(r"\.([^.\[\]]+)|\[(\d+|\.\.\.)\]")
_KINDS: Final = {
    "str": "a text",
    "int": "an integer",
    "float": "a number",
    "bool": "true or false",
    "array": "a list",
    "object": "an object",
    "null": "null",
}


def refusal(error: str, tree: Any, kind: inspect.Type) -> tuple[str, str]:
    """The place and the words of a `msgspec.ValidationError` about `tree`, which was to be `kind`.

    The place is empty for the whole.
    """
    what, _, place = error.partition(" - at `$")
    place = place.removesuffix("`")
    where = place.lstrip(".")
    expected = _at(tree, kind, place)
    if match := _ENUM.fullmatch(what):
        words = [str(word) for word in _words(expected)]
        near = difflib.get_close_matches(match[1].strip("'"), words, n=1)
        meant = f"use {near[0]}, or another" if near else "use one"
        return where, f"{_cut(match[1])} is not known: {meant} of {', '.join(words)}"
    if match := _MISSING.fullmatch(what):
        struct = expected if isinstance(expected, inspect.StructType) else None
        needed = "" if struct is None else f": {_named(struct)} needs {_required(struct)}"
        return f"{where}.{match[1]}".lstrip("."), f"is missing{needed}"
    if match := _OTHER_TYPE.fullmatch(what):
        wanted = " or ".join(_KINDS.get(one, one) for one in match[1].split(" | "))
        return where, f"is to be {wanted}, not {_KINDS.get(match[2], match[2])}"
    return where, _cut(f"{what[:1].lower()}{what[1:]}", 200)


def _cut(text: str, length: int = 60) -> str:
    """What a file holds, as far as a line has room for it."""
    return text if len(text) <= length else f"{text[: length - 1]}…"


def nearest(name: Any, known: Iterable[str]) -> str:
    """The name that was meant, or all there are."""
    names = list(known)
    near = difflib.get_close_matches(str(name), names, n=1)
    return near[0] if near else f"one of {', '.join(names)}"


def tags_of(kind: inspect.Type) -> tuple[str, tuple[str, ...]] | None:
    """The field that tells the structs of a type apart, empty for one struct, and its words.

    None for a type without structs.
    """
    structs = _structs(kind)
    if not structs:
        return None
    return structs[0].tag_field or "", tuple(str(one.tag) for one in structs)


def struct_of(value: Any, kind: inspect.Type) -> inspect.StructType | None:
    """The struct that an object is to be: of several the one of its tag; None if it is of none."""
    structs = _structs(kind)
    if not structs or not isinstance(value, dict):
        return None
    tagged = structs[0].tag_field
    if tagged is None:
        return structs[0]
    return next((one for one in structs if one.tag == value.get(tagged)), None)


def _structs(kind: inspect.Type) -> tuple[inspect.StructType, ...]:
    match kind:
        case inspect.StructType():
            return (kind,)
        case inspect.UnionType(types=types):
            return tuple(struct for one in types for struct in _structs(one))
    return ()


def _at(tree: Any, kind: inspect.Type, place: str) -> inspect.Type | None:
    """The type that stands at a place, as far as it can be told."""
    found: inspect.Type | None = kind
    value = tree
    for name, index in _STEP.findall(place):
        if found is None:
            return None
        if name:
            struct = struct_of(value, found)
            fields = {} if struct is None else {one.encode_name: one.type for one in struct.fields}
            found = fields.get(name)
            value = value.get(name) if isinstance(value, dict) else None
        else:
            number = int(index) if index.isdigit() else 0
            found = _member(found, number)
            fits = isinstance(value, list) and number < len(value)
            value = value[number] if fits else None
    return None if found is None else struct_of(value, found) or found


def _member(kind: inspect.Type, number: int) -> inspect.Type | None:
    match kind:
        case inspect.TupleType(item_types=items):
            return items[number] if number < len(items) else None
        case (
            inspect.VarTupleType(item_type=item)
            | inspect.ListType(item_type=item)
            | inspect.FrozenSetType(item_type=item)
            | inspect.SetType(item_type=item)
        ):
            return item
        case inspect.UnionType(types=types):
            members = (_member(one, number) for one in types)
            return next((one for one in members if one is not None), None)
    return None


def _words(kind: inspect.Type | None) -> tuple[Any, ...]:
    match kind:
        case inspect.LiteralType(values=values):
            return tuple(value or '""' for value in values)
        case inspect.UnionType(types=types):
            return tuple(word for one in types for word in _words(one))
    return ()


def _named(struct: inspect.StructType) -> str:
    if struct.tag is not None:
        return str(struct.tag)
    words = re.findall(r"[A-Z][a-z]*", struct.cls.__name__)
    return "this " + " ".join(words).lower()


def _required(struct: inspect.StructType) -> str:
    return ", ".join(field.encode_name for field in struct.fields if field.required)
