"""The two values every room passes on: the header of a session and one event of its log.

Decides: which attributes an event and a header have, and how they stand on the wire (camelCase
keys, in the order the original system writes them). Does not decide: how JSON text is read and
written (`codec`), or what a sequence of events means (`turns`, `transcript`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

import msgspec

__all__ = ["FORMAT_VERSION", "Json", "MalformedRecord", "SessionEvent", "SessionHeader"]

type_ = type

Json = Any
"""Any JSON value: None, bool, int, float, str, list, dict with string keys."""

FORMAT_VERSION: Final = 0
"""The only format version this project reads and writes (RW-14)."""

MAXIMUM_SEQ: Final = 2**53 - 1
"""The largest seq; above it other languages cannot count exactly (DM-5)."""


EXTRA_KEY: Final = "~extra"
"""The wire name of `SessionEvent.extra` for msgspec, which wants one; nothing is ever written under
it, and a record that has such a key is read by `from_json`, where it is a further key like any.
"""


class MalformedRecord(ValueError):
    """A JSON value that is not the record it should be; `reason` says why in one phrase.

    `byte` is where in the line, if the reason names a place.
    """

    def __init__(self, reason: str, byte: int | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.byte = byte


def _is_number(value: object) -> bool:
    return type(value) is int or type(value) is float


# gc=False: an event only ever points at JSON values, which are trees; leaving it out of the cyclic
# garbage collector is worth a third of the time of a large load.
class SessionEvent(
    msgspec.Struct,
    frozen=True,
    gc=False,
    omit_defaults=True,
    forbid_unknown_fields=True,
    rename={
        "surface_op": "surfaceOp",
        "source_event_seqs": "sourceEventSeqs",
        "extra": EXTRA_KEY,
    },
):
    """One event of a session's log.

    `seq` is the event's index in its log; `time` is opaque (epoch milliseconds by convention, may
    repeat or go back); `data` is any JSON value. `surface_op` and `source_event_seqs` are None
    where the record has no such key. `extra` holds every further key of the record, verbatim, or
    None. Two events are the same event when `codec.same_json` says so of their `to_json()`; plain
    `==` follows Python, where `1 == True`.
    """

    type: Annotated[str, msgspec.Meta(min_length=1)]
    seq: Annotated[int, msgspec.Meta(ge=0, le=MAXIMUM_SEQ)]
    time: int | float
    data: Json
    surface_op: Json = None
    source_event_seqs: Json = None
    extra: dict[str, Json] | None = None

    def to_json(self) -> dict[str, Json]:
        """The record as it stands on the wire; nested values are shared, not copied."""
        record: dict[str, Json] = {
            "type": self.type,
            "seq": self.seq,
            "time": self.time,
            "data": self.data,
        }
        if self.surface_op is not None:
            record["surfaceOp"] = self.surface_op
        if self.source_event_seqs is not None:
            record["sourceEventSeqs"] = self.source_event_seqs
        if self.extra is not None:
            for key, value in self.extra.items():
                # A typed attribute wins over a stray entry of the same name.
                record.setdefault(key, value)
        return record

    @classmethod
    def from_json(cls, record: Json) -> SessionEvent:
        """The event a JSON value stands for (DM-5); raises `MalformedRecord` if it is none."""
        if type_(record) is not dict:
            raise MalformedRecord("record is not an object")
        missing = [key for key in ("type", "seq", "time", "data") if key not in record]
        if missing:
            raise MalformedRecord(f"record lacks {', '.join(missing)}")
        kind, seq, time = record["type"], record["seq"], record["time"]
        if type_(kind) is not str or not kind:
            raise MalformedRecord("type is not a non-empty string")
        if type_(seq) is not int or not 0 <= seq <= MAXIMUM_SEQ:
            raise MalformedRecord("seq is not an integer from 0 to 2^53-1")
        if not _is_number(time):
            raise MalformedRecord("time is not a number")
        data = record["data"]
        if len(record) == 4:
            return cls(kind, seq, time, data)
        surface_op = record.get("surfaceOp")
        if len(record) == 5 and surface_op is not None:
            return cls(kind, seq, time, data, surface_op)
        sources = record.get("sourceEventSeqs")
        typed = {"type", "seq", "time", "data"}
        # A null under a typed key is kept as a further key, so that absence stays distinct from it.
        if surface_op is not None:
            typed.add("surfaceOp")
        if sources is not None:
            typed.add("sourceEventSeqs")
        extra = {key: value for key, value in record.items() if key not in typed}
        return cls(kind, seq, time, data, surface_op, sources, extra or None)


class SessionHeader(msgspec.Struct, frozen=True):
    """The first line of a session's log.

    `created_at` is any number (epoch milliseconds by convention). `seed_length` is the number of
    events copied from the parent session of a fork (LV-4). `extra` holds further keys, verbatim.
    """

    id: str
    created_at: int | float
    cwd: str | None = None
    parent_session: str | None = None
    seed_length: int | None = None
    version: int = FORMAT_VERSION
    extra: dict[str, Json] | None = None

    def to_json(self) -> dict[str, Json]:
        """The header line's object as it stands on the wire."""
        record: dict[str, Json] = {
            "type": "session",
            "version": self.version,
            "id": self.id,
            "createdAt": self.created_at,
        }
        if self.cwd is not None:
            record["cwd"] = self.cwd
        if self.parent_session is not None:
            record["parentSession"] = self.parent_session
        if self.seed_length is not None:
            record["seedLength"] = self.seed_length
        for key, value in (self.extra or {}).items():
            record.setdefault(key, value)
        return record

    @classmethod
    def from_json(cls, record: Json) -> SessionHeader:
        """The header a JSON value stands for; raises `MalformedRecord` if it is none.

        A header of another version is returned with the fields found: it is refused for its
        version (RW-14), before its structure is looked at.
        """
        if type_(record) is not dict or record.get("type") != "session":
            raise MalformedRecord('not an object with type "session"')
        version = record.get("version")
        if type_(version) is not int:
            raise MalformedRecord("version is not an integer")
        problems = _header_problems(record)
        if version == FORMAT_VERSION and problems:
            raise MalformedRecord(problems[0][1])
        fields: dict[str, Any] = {}
        extra: dict[str, Json] = {}
        for key, value in record.items():
            name = _HEADER_FIELDS.get(key)
            if name is not None and value is not None:
                fields[name] = value
            elif key not in ("type", "version"):
                # A null under a key of the header's own is kept, so that absence stays distinct.
                extra[key] = value
        for name, _ in problems:
            fields[name] = {"id": "", "created_at": 0}.get(name)
        return cls(**fields, version=version, extra=extra or None)


class WireHeader(
    msgspec.Struct,
    frozen=True,
    tag_field="type",
    tag="session",
    omit_defaults=True,
    forbid_unknown_fields=True,
    rename="camel",
):
    """A header of the common kind as it stands on the wire: of this version, without further keys.

    For the fast path of reading; what does not fit in here is for `SessionHeader.from_json`.
    """

    # No default, or it would be left out of what is written back.
    version: Literal[0]
    id: Annotated[str, msgspec.Meta(min_length=1)]
    created_at: int | float
    cwd: str | None = None
    parent_session: str | None = None
    seed_length: Annotated[int, msgspec.Meta(ge=0, le=MAXIMUM_SEQ)] | None = None

    def header(self) -> SessionHeader:
        """The header it is."""
        return SessionHeader(
            self.id, self.created_at, self.cwd, self.parent_session, self.seed_length
        )


_HEADER_FIELDS: Final[Mapping[str, str]] = {
    "id": "id",
    "createdAt": "created_at",
    "cwd": "cwd",
    "parentSession": "parent_session",
    "seedLength": "seed_length",
}


def _header_problems(record: dict[str, Json]) -> list[tuple[str, str]]:
    """The attributes of a header record with an unusable value, each with the reason."""
    problems = []
    if type(record.get("id")) is not str or not record["id"]:
        problems.append(("id", "id is not a non-empty string"))
    if not _is_number(record.get("createdAt")):
        problems.append(("created_at", "createdAt is not a number"))
    for key in ("cwd", "parentSession"):
        if record.get(key) is not None and type(record[key]) is not str:
            problems.append((_HEADER_FIELDS[key], f"{key} is not a string"))
    seed_length = record.get("seedLength")
    if seed_length is not None and (
        type(seed_length) is not int or not 0 <= seed_length <= MAXIMUM_SEQ
    ):
        problems.append(("seed_length", "seedLength is not a non-negative integer"))
    return problems
