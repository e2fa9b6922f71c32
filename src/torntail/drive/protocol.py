"""Driver protocol 1: what is said between torntail and the driver of a store in any language.

One JSON object a line, requests on the driver's standard input, answers on its standard output;
each answer bears the id of its request. Decides the shape of both, which error kinds there are and
how long a line may be. Does not decide how a process is started, waited for or ended
(`driver_process`), nor what an answer proves.
"""

from __future__ import annotations

import json
import re
from typing import Annotated, Any, Final, Literal, TypeAlias, get_args

import msgspec

from torntail.judge.capabilities import Capabilities
from torntail.session import SessionEvent, SessionHeader

__all__ = [
    "ANSWER_BYTES",
    "ERROR_KINDS",
    "PROTOCOL",
    "Answer",
    "AppendRequest",
    "CloseRequest",
    "CreateRequest",
    "Dialect",
    "ErrorKind",
    "HelloRequest",
    "HelloResult",
    "InspectRequest",
    "ListRequest",
    "ListResult",
    "LoadRequest",
    "LoadResult",
    "NotCarried",
    "OpenRequest",
    "Request",
    "WireEntry",
    "WireError",
    "WireEvent",
    "WireHeader",
    "WireRepair",
    "encode_request",
    "json_schema",
    "wire_text",
]

PROTOCOL: Final = 1

ANSWER_BYTES: Final = 80 * 1024 * 1024
"""The longest line that is read: a record of 64 MiB (RW-12) and room around it."""

ErrorKind = Literal[
    "not_found",
    "exists",
    "sequence",
    "not_serializable",
    "corrupted",
    "version",
    "identity",
    "conflict",
    "storage",
    "other",
    "never_materialised",
    "closed",
]
"""The words by which a driver tells why it refuses. A driver that knows no better says `other`."""

ERROR_KINDS: Final = frozenset(get_args(ErrorKind))

Dialect = Literal["torntail", "dsh-s", "dsh-rc1", "dsh-rc8"]
"""Whose event shapes and closers the store speaks (`session.dialects`)."""

_Id = Annotated[int, msgspec.Meta(ge=0)]


# --- what both sides say --------------------------------------------------------------------------


class WireEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """An event. Further keys are part of it and are kept verbatim, in every store that can."""

    type: Annotated[str, msgspec.Meta(min_length=1)]
    seq: Annotated[int, msgspec.Meta(ge=0)]
    time: int | float
    data: Any
    surface_op: Any = None
    source_event_seqs: Any = None


class WireHeader(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """The header of a session. Further keys are part of it."""

    type: Literal["session"]
    version: int
    id: str
    created_at: int | float
    cwd: str | None = None
    parent_session: str | None = None
    seed_length: int | None = None


class WireError(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A refusal.

    `message` is for people and should tell the facts (the seq expected and got, the line that is
    damaged); `name` is what the error is called in its own language. `facts` may tell them apart.
    """

    kind: ErrorKind
    message: str
    name: str = ""
    facts: dict[str, Any] = {}


class WireRepair(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """What a load mended: the torn tail it dropped, and whether the repair is in storage."""

    torn_from_line: int | None = None
    torn_from_byte: int | None = None
    torn_bytes: int = 0
    copy_kept: bool = False
    newline_added: bool = False
    durable: bool = True


class WireEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A session in storage: its id, its header if that can be read, else the kind of error."""

    session: str
    header: WireHeader | None = None
    error: ErrorKind | None = None


# --- requests -------------------------------------------------------------------------------------


class _Request(msgspec.Struct, frozen=True, kw_only=True, tag_field="call"):
    id: _Id


class HelloRequest(_Request, frozen=True, kw_only=True, tag="hello"):
    """The first request of all."""

    protocol: int = PROTOCOL


class OpenRequest(_Request, frozen=True, kw_only=True, tag="open"):
    """Open a store over a directory, which exists; it is called `store` from then on.

    A number is used for one store only. Several stores may be open at once, over one root even.
    """

    store: _Id
    root: str


class CreateRequest(_Request, frozen=True, kw_only=True, tag="create"):
    """Announce a session; nothing need be stored before its first event."""

    store: _Id
    header: WireHeader


class AppendRequest(_Request, frozen=True, kw_only=True, tag="append"):
    """Store a batch; answered when it is as durable as the store claims."""

    store: _Id
    session: str
    events: list[WireEvent]


class LoadRequest(_Request, frozen=True, kw_only=True, tag="load"):
    """Give a session back, mended."""

    store: _Id
    session: str


class InspectRequest(_Request, frozen=True, kw_only=True, tag="inspect"):
    """Give what `load` would give, and write nothing."""

    store: _Id
    session: str


class ListRequest(_Request, frozen=True, kw_only=True, tag="list"):
    """Give the sessions in storage."""

    store: _Id


class CloseRequest(_Request, frozen=True, kw_only=True, tag="close"):
    """Free all that the store holds, locks above all."""

    store: _Id


Request: TypeAlias = (
    HelloRequest
    | OpenRequest
    | CreateRequest
    | AppendRequest
    | LoadRequest
    | InspectRequest
    | ListRequest
    | CloseRequest
)


# --- results --------------------------------------------------------------------------------------


class HelloResult(msgspec.Struct, frozen=True, kw_only=True):
    """Who the driver is, and what its store claims; a claim left out has its default."""

    protocol: int
    name: str
    version: str
    capabilities: Capabilities = Capabilities()
    dialect: Dialect = "torntail"


class LoadResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A session: its header (null where the store keeps none), its events, closers included."""

    header: WireHeader | None
    events: list[WireEvent]
    repair: WireRepair | None = None


class ListResult(msgspec.Struct, frozen=True, kw_only=True):
    """The sessions in storage, each once."""

    sessions: list[WireEntry]


class Answer(msgspec.Struct, frozen=True):
    """An answer as it is read first: the id, and one of result and error, not yet looked into."""

    id: _Id
    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    error: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


# --- writing requests -----------------------------------------------------------------------------


class NotCarried(ValueError):
    """A value that no JSON text carries, so that no driver can be given it."""


_LONE_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_fast: Final = msgspec.json.Encoder().encode


def wire_text(value: Any) -> bytes:
    """JSON of a value, leniently: also of what a store has to refuse, if JSON has words for it.

    Raises `NotCarried` where it has none (NaN, bytes, a cycle, a key that is no string).
    """
    try:
        text = json.dumps(
            _strict(value, 0), ensure_ascii=False, allow_nan=False, separators=(",", ":")
        )
    except (TypeError, ValueError, RecursionError) as error:
        raise NotCarried(str(error)) from None
    # Halves that form a pair become the character; what is left alone is escaped.
    escaped = _LONE_SURROGATE.sub(lambda half: f"\\u{ord(half.group()):04x}", _joined(text))
    return escaped.encode("utf-8")


_DEEPEST: Final = 400


def _strict(value: Any, depth: int) -> Any:
    """The value, if `json` would neither change nor refuse it; raises ValueError otherwise."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if depth > _DEEPEST:
        raise ValueError("nested too deeply, or a cycle")
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise ValueError("a key that is no string")
        return {key: _strict(member, depth + 1) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(member, depth + 1) for member in value]
    raise ValueError(f"{type(value).__name__} is not JSON")


def _joined(text: str) -> str:
    if not _LONE_SURROGATE.search(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def encode_request(call: str, number: int, **fields: Any) -> bytes:
    """The line of a request, newline included; events and headers are the values of `session`."""
    parts = [b'{"id":%d,"call":"%s"' % (number, call.encode("ascii"))]
    for name, value in fields.items():
        parts.append(b',"%s":%s' % (name.encode("ascii"), _value(value)))
    parts.append(b"}\n")
    return b"".join(parts)


def _value(value: Any) -> bytes:
    if isinstance(value, int):
        return b"%d" % value
    if isinstance(value, SessionHeader):
        return wire_text(value.to_json())
    if isinstance(value, str):
        return wire_text(value)
    return b"[" + b",".join(map(_event_text, value)) + b"]"


def _event_text(event: SessionEvent) -> bytes:
    if event.extra is None:
        # The fast path, where the encoder's leniency changes nothing.
        try:
            text = _fast(event)
            if _decode_event(text) == event:
                return text
        except (TypeError, ValueError, RecursionError, OverflowError):
            pass
    return wire_text(event.to_json())


_decode_event: Final = msgspec.json.Decoder(SessionEvent).decode


# --- the schema -----------------------------------------------------------------------------------


def _settled(schema: Any) -> Any:
    """A schema in which names stand in one order, those of sets as well."""
    if isinstance(schema, dict):
        return {key: _settled(value) for key, value in schema.items()}
    if isinstance(schema, list | tuple | set | frozenset):
        members = [_settled(member) for member in schema]
        return sorted(members) if all(isinstance(one, str) for one in members) else members
    return schema


_ROOTS: Final = (
    ("request", Request),
    ("hello result", HelloResult),
    ("load and inspect result", LoadResult),
    ("list result", ListResult),
    ("error", WireError),
)


def json_schema() -> dict[str, Any]:
    """The JSON Schema of the protocol, made from the types above.

    The result of `open`, `create`, `append` and `close` may be anything; `{}` is usual.
    """
    schemas, components = msgspec.json.schema_components(
        [kind for _, kind in _ROOTS], ref_template="#/$defs/{name}"
    )
    answers = {"type": "object", "required": ["id"], "properties": {"id": {"type": "integer"}}}
    refusal = {
        **answers,
        "required": ["id", "error"],
        "properties": {**answers["properties"], "error": {"$ref": "#/$defs/WireError"}},  # type: ignore[dict-item]
    }
    result = {
        **answers,
        "required": ["id", "result"],
        "properties": {**answers["properties"], "result": {}},  # type: ignore[dict-item]
    }
    named = {title: schema for (title, _), schema in zip(_ROOTS, schemas, strict=True)}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"torntail driver protocol {PROTOCOL}",
        "description": "One line on standard input is a request, one on standard output an answer.",
        "anyOf": [{"$ref": "#/$defs/request"}, {"$ref": "#/$defs/answer"}],
        "$defs": {
            "request": named["request"],
            "answer": {"anyOf": [result, refusal]},
            **{name: _settled(schema) for name, schema in sorted(components.items())},
        },
    }
