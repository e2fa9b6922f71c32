"""A scenario as text: JSON laid out for a person, the same text for the same scenario.

Decides the layout: one operation, event or fault a line where it fits, defaults left out, headers
and events as they stand on the wire, what cannot be seen as escapes. Does not decide what may stand
in a file (`reading`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from torntail.scenarios.content import pieces_of
from torntail.scenarios.format import FileFault, Scenario
from torntail.session import SessionEvent, SessionHeader
from torntail.session.codec import join_surrogates

__all__ = ["scenario_text"]

_WIDTH: Final = 100
# What an editor does not show, shows as a line's end, or turns the text around with.
_UNSEEN: Final = re.compile(
    "[\x7f-\xa0\xad\u0600-\u0605\u061c\u180e\u200b-\u200f\u2028-\u202f\u205f-\u206f\u3000"
    "\ud800-\udfff\ue000-\uf8ff\ufeff\ufff0-\uffff]"
)
_LAST: Final = ("events", "content", "recovery")
"""Fields that may be long stand at the end."""


class _Line(dict[str, Any]):
    """An object that is written on one line, however long that is."""


def scenario_text(scenario: Scenario) -> str:
    """The text of a scenario's file."""
    fields = _tree(scenario)
    lines = [f"{_flat(key)}: {_laid_out(value, 2, key)}" for key, value in fields.items()]
    return "{\n  " + ",\n  ".join(lines) + "\n}\n"


# --- values as JSON ---------------------------------------------------------------------------


def _tree(value: Any) -> Any:
    if isinstance(value, SessionHeader | SessionEvent):
        return _Line(value.to_json())
    if isinstance(value, msgspec.Struct):
        return _fields(value)
    if isinstance(value, Mapping):
        return {key: _tree(member) for key, member in value.items()}
    if isinstance(value, frozenset):
        return sorted(value)
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [_tree(member) for member in value]
    return value


def _fields(value: msgspec.Struct) -> dict[str, Any]:
    config = value.__struct_config__
    fields: dict[str, Any] = {}
    if config.tag_field is not None:
        fields[config.tag_field] = config.tag
    for field in msgspec.structs.fields(value):
        member = getattr(value, field.name)
        if field.name == "data" and isinstance(value, FileFault):
            fields["content"] = [
                _Line(piece) if isinstance(piece, dict) else piece for piece in pieces_of(member)
            ]
        elif not _is_default(field, member):
            fields[field.encode_name] = _tree(member)
    for name in _LAST:
        if name in fields:
            fields[name] = fields.pop(name)
    return fields


def _is_default(field: msgspec.structs.FieldInfo, member: Any) -> bool:
    if field.default is not msgspec.NODEFAULT:
        default = field.default
    elif field.default_factory is not msgspec.NODEFAULT:
        default = field.default_factory()
    else:
        return False
    return type(member) is type(default) and bool(member == default)


# --- JSON as text -----------------------------------------------------------------------------


def _laid_out(value: Any, indent: int, key: str = "") -> str:
    """`value` as it stands behind `indent` spaces and, in an object, behind its key."""
    flat = _flat(value)
    inner = " " * (indent + 2)
    outer = " " * indent
    if isinstance(value, _Line) or not isinstance(value, dict | list) or not value:
        return flat
    listed = key in ("plan", "faults", "expect", *_LAST) and isinstance(value, list)
    if not listed and indent + len(key) + len(flat) + 5 <= _WIDTH:
        return flat
    if isinstance(value, list):
        lines = [inner + _laid_out(member, indent + 2) for member in value]
        return "[\n" + ",\n".join(lines) + f"\n{outer}]"
    *first, last = value
    head = _flat({name: value[name] for name in first})
    if first and isinstance(value[last], list) and indent + len(head) + len(last) + 6 <= _WIDTH:
        tail = _laid_out(value[last], indent, last)
        return f"{head[:-1]}, {_flat(last)}: {tail}}}"
    lines = [f"{inner}{_flat(name)}: {_laid_out(value[name], indent + 2, name)}" for name in value]
    return "{\n" + ",\n".join(lines) + f"\n{outer}}}"


def _flat(value: Any) -> str:
    text = join_surrogates(json.dumps(value, ensure_ascii=False, allow_nan=False))
    return _UNSEEN.sub(lambda found: f"\\u{ord(found.group()):04x}", text)
