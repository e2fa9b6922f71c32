"""As much of JSON Schema as the schema of scenarios uses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

TYPES: dict[str, Any] = {
    "object": dict,
    "array": list,
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "null": type(None),
}
KNOWN = {
    "$ref", "additionalProperties", "anyOf", "default", "description", "discriminator", "enum",
    "items", "maxItems", "minItems", "minLength", "minimum", "prefixItems", "properties",
    "required", "title", "type", "uniqueItems",
}  # fmt: skip


def problems(schema: dict[str, Any], value: Any) -> list[str]:
    """What a value lacks of a schema; empty if it keeps it."""
    return list(_problems(schema["$defs"], {"$ref": schema["$ref"]}, value, "$"))


def _problems(parts: dict[str, Any], schema: Any, value: Any, where: str) -> Iterator[str]:
    if isinstance(schema, bool):
        if not schema:
            yield f"{where}: nothing is allowed here"
        return
    unknown = schema.keys() - KNOWN
    assert not unknown, f"the check does not know {unknown}"
    if "$ref" in schema:
        yield from _problems(parts, parts[schema["$ref"].rpartition("/")[2]], value, where)
    if "anyOf" in schema:
        every = [list(_problems(parts, one, value, where)) for one in schema["anyOf"]]
        if all(every):
            yield min(every, key=len)[0]
    if "enum" in schema and not any(
        type(one) is type(value) and one == value for one in schema["enum"]
    ):
        yield f"{where}: {value!r} is none of {schema['enum']}"
    if "type" in schema:
        names = [schema["type"]] if isinstance(schema["type"], str) else schema["type"]
        kinds = [TYPES[name] for name in names]
        if isinstance(value, bool) and bool not in kinds:
            yield f"{where}: a boolean, and no {names}"
            return
        if not any(isinstance(value, kind) for kind in kinds):
            yield f"{where}: {type(value).__name__}, and no {names}"
            return
    if isinstance(value, dict):
        yield from _members(parts, schema, value, where)
    elif isinstance(value, list):
        yield from _items(parts, schema, value, where)
    elif isinstance(value, str) and len(value) < schema.get("minLength", 0):
        yield f"{where}: too short"
    elif isinstance(value, int | float) and value < schema.get("minimum", value):
        yield f"{where}: too small"


def _members(
    parts: dict[str, Any], schema: dict[str, Any], value: dict[str, Any], where: str
) -> Iterator[str]:
    known = schema.get("properties", {})
    for name in schema.get("required", ()):
        if name not in value:
            yield f"{where}: {name} is missing"
    for name, member in value.items():
        if name in known:
            yield from _problems(parts, known[name], member, f"{where}.{name}")
        elif schema.get("additionalProperties", True) is False:
            yield f"{where}: {name} is not known"


def _items(
    parts: dict[str, Any], schema: dict[str, Any], value: list[Any], where: str
) -> Iterator[str]:
    if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
        yield f"{where}: {len(value)} items"
    first = schema.get("prefixItems", [])
    for index, member in enumerate(value):
        rule = first[index] if index < len(first) else schema.get("items", True)
        yield from _problems(parts, rule, member, f"{where}[{index}]")
