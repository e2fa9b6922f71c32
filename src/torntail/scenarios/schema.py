"""The JSON Schema of scenario files, made from the values of `format`.

Written by `python -m torntail.scenarios.schema` to `schema.json` beside this module. It says what
an editor can help with; what else must hold is in `reading` and `checks`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import msgspec

from torntail.scenarios.format import MAXIMUM_OPERATIONS, Scenario

__all__ = ["SCHEMA_PATH", "schema", "schema_text"]

SCHEMA_PATH: Final = Path(__file__).with_name("schema.json")

_HEADER: Final[dict[str, Any]] = {
    "title": "SessionHeader",
    "description": "The first line of a log, as it stands there.",
    "type": "object",
    "properties": {
        "type": {"enum": ["session"]},
        "version": {"type": "integer"},
        "id": {"type": "string"},
        "createdAt": {"type": "number"},
        "cwd": {"type": ["string", "null"]},
        "parentSession": {"type": ["string", "null"]},
        "seedLength": {"type": ["integer", "null"]},
    },
    "required": ["type", "version", "id"],
}
_EVENT: Final[dict[str, Any]] = {
    "title": "SessionEvent",
    "description": "A record of a log, as it stands there.",
    "type": "object",
    "properties": {
        "type": {"type": "string", "minLength": 1},
        "seq": {"type": "integer", "minimum": 0},
        "time": {"type": "number"},
        "data": {},
        "surfaceOp": {},
        "sourceEventSeqs": {},
    },
    "required": ["type", "seq", "time", "data"],
}
_CONTENT: Final[dict[str, Any]] = {
    "description": "The bytes of the file: an object is a line of JSON, a string is text in which "
    "\\xff is a byte that is no UTF-8 and \\\\ a backslash, a pair is a text so many times.",
    "type": "array",
    "items": {
        "anyOf": [
            {"type": "object"},
            {"type": "string"},
            {
                "type": "array",
                "prefixItems": [{"type": "string"}, {"type": "integer", "minimum": 1}],
                "minItems": 2,
                "maxItems": 2,
            },
        ]
    },
}


def schema() -> dict[str, Any]:
    """The schema, as JSON values."""
    (root,), parts = msgspec.json.schema_components([Scenario])
    for part in parts.values():
        if part.get("type") == "object":
            part["additionalProperties"] = False
        for field in part.get("properties", {}).values():
            if isinstance(field.get("default"), list):
                field["default"] = sorted(field["default"])
    parts["SessionHeader"], parts["SessionEvent"] = _HEADER, _EVENT
    file = parts["FileFault"]["properties"]
    del file["data"]
    file["content"] = _CONTENT
    parts["Scenario"]["properties"]["plan"] |= {"minItems": 1, "maxItems": MAXIMUM_OPERATIONS}
    parts["Scenario"]["properties"]["expect"]["minItems"] = 1
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A torntail scenario, version 1",
        **root,
        "$defs": {name: parts[name] for name in sorted(parts)},
    }


def schema_text() -> str:
    """The text of the schema's file."""
    return json.dumps(schema(), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    SCHEMA_PATH.write_text(schema_text(), encoding="utf-8")
