"""What was done to a store and what came of it: the values that driver and judge exchange.

A plan is a sequence of operations; driving it gives a history, one observation per operation.
Everything here is a frozen value that JSON can carry, so that a history can be kept as a witness
and judged again. Damage is told in terms of records (the third event, its last byte), never in
bytes of one format: the driver finds where a record stands, the model knows what is left of it.
Does not decide what should have happened (`model`) or what follows from it (`oracle`).
"""

from __future__ import annotations

from typing import Any, Final, Literal, TypeAlias

import msgspec

from torntail.session import SessionEvent, SessionHeader

__all__ = [
    "MARK_KEY",
    "MARK_PATTERN",
    "Append",
    "ChangeCallersCopy",
    "Close",
    "Create",
    "Damage",
    "DamageKind",
    "Damaged",
    "History",
    "Hung",
    "Inspect",
    "ListSessions",
    "ListedSession",
    "Load",
    "LoadedSession",
    "NotPossible",
    "Observation",
    "Operation",
    "Outcome",
    "Refused",
    "Reopen",
    "RepairFacts",
    "Returned",
    "Spoiled",
    "Spoiling",
    "StrangeResult",
    "Together",
    "TogetherOutcome",
    "mark_of",
]

MARK_KEY: Final = "mark"
"""The member of an event's data that holds a text found nowhere else: how the driver finds it."""

MARK_PATTERN: Final = rb"mark-[0-9a-f]{8}-[0-9]{4}"
"""What every mark looks like, as a regular expression over bytes."""


def mark_of(event: SessionEvent) -> str | None:
    """The text by which an event is found in storage, or None."""
    mark = event.data.get(MARK_KEY) if isinstance(event.data, dict) else None
    return mark if isinstance(mark, str) else None


# --- operations -----------------------------------------------------------------------------------


class _Operation(msgspec.Struct, frozen=True, kw_only=True, tag_field="operation"):
    """What every operation has: which of several live store objects it is for, and its probes.

    `probes` are the clauses whose promise the outcome of this operation exercises; without any the
    operation only prepares what comes.
    """

    store: int = 0
    probes: tuple[str, ...] = ()


class Create(_Operation, frozen=True, kw_only=True, tag="create"):
    """`create(header)`."""

    header: SessionHeader


Spoiling: TypeAlias = Literal[
    "nan",
    "infinity",
    "minus-infinity",
    "bytes",
    "set",
    "date",
    "cycle",
    "integer-key",
    "object",
    "too-deep",
    "too-many-digits",
    "empty-type",
    "negative-seq",
    "boolean-seq",
    "float-seq",
    "text-time",
    "nan-time",
    "nan-in-a-further-key",
    "bytes-in-the-surface",
]
"""What JSON cannot carry, or `load` would refuse, by name: a history stays JSON."""


class Spoiled(msgspec.Struct, frozen=True):
    """Which event of a batch is given to the store with a value no store may accept (RW-3)."""

    index: int
    how: Spoiling


class Append(_Operation, frozen=True, kw_only=True, tag="append"):
    """`append(session, events)`."""

    session: str
    events: tuple[SessionEvent, ...]
    spoiled: Spoiled | None = None


class Load(_Operation, frozen=True, kw_only=True, tag="load"):
    """`load(session)`."""

    session: str


class Inspect(_Operation, frozen=True, kw_only=True, tag="inspect"):
    """`inspect(session)`."""

    session: str


class ListSessions(_Operation, frozen=True, kw_only=True, tag="list"):
    """`list()`."""


class Reopen(_Operation, frozen=True, kw_only=True, tag="reopen"):
    """Closes the store object, if it is open, and calls the factory again over the same storage."""


class Close(_Operation, frozen=True, kw_only=True, tag="close"):
    """`close()`; the object stays, so that calls after it can be made."""


class ChangeCallersCopy(_Operation, frozen=True, kw_only=True, tag="change"):
    """Changes, in place, what the caller gave to the last append or got from the last load."""

    what: Literal["appended", "loaded"]


class Together(_Operation, frozen=True, kw_only=True, tag="together"):
    """Calls made at the same time, each from a thread (or task) of its own."""

    operations: tuple[Create | Append | Load | Inspect, ...]


DamageKind: TypeAlias = Literal[
    "garble",
    "delete",
    "duplicate",
    "renumber",
    "cut",
    "trail",
    "rewrite",
    "add",
    "crlf",
    "flip",
    "cut-bytes",
    "header-version",
    "header-id",
    "header-only",
    "header-cut",
    "header-garble",
    "header-flip",
    "empty",
    "nul-file",
    "misplace",
    "second-place",
    "root-is-a-file",
    "restore",
]


class Damage(_Operation, frozen=True, kw_only=True, tag="damage"):
    """A change made to the storage behind the store's back, all store objects being closed.

    `record` counts the session's events from 0. By kind:

    - `garble`: the record's bytes, not its newline, become something that does not parse.
    - `delete`, `duplicate`: the record is taken out, or stands twice.
    - `renumber`: `amount` is added to its seq.
    - `cut`: the log ends inside this record, `amount` bytes of which are left; negative amounts
      count from the end of its line, so that -1 takes the newline alone, and 0 all of the record.
    - `trail`: bytes that are no record follow the record on its own line.
    - `rewrite`: the record, read leniently, still says the same, but not strictly; `variant` says
      how: a key of `STRICT_VARIANTS` of the driver.
    - `add`: bytes behind the end of the log; `variant` says which.
    - `crlf`: every line end becomes CRLF.
    - `flip`: bit `amount` mod 8 of byte `amount` // 8 of the record (modulo its length) is flipped.
    - `cut-bytes`, for storage in which no record is found: the last file loses `amount` bytes.
    - `header-…`, `empty`, `nul-file`: what is left of the log's beginning.
    - `misplace`, `second-place`: the log also stands in the place of session `other`, or under its
      own name in the folder of `other`'s log.
    - `root-is-a-file`: the directory given to the factory is a regular file.
    - `restore`: the storage is again what it was before the first damage since the last restore.
    """

    session: str
    kind: DamageKind
    record: int = 0
    amount: int = 0
    variant: str = ""
    other: str = ""


Operation: TypeAlias = (
    Create
    | Append
    | Load
    | Inspect
    | ListSessions
    | Reopen
    | Close
    | ChangeCallersCopy
    | Together
    | Damage
)


# --- outcomes -------------------------------------------------------------------------------------


class RepairFacts(msgspec.Struct, frozen=True):
    """What a store reports that a load had to mend; see `stores.contract.RepairReport`."""

    torn_from_line: int | None = None
    torn_from_byte: int | None = None
    torn_bytes: int = 0
    copy_kept: bool = False
    newline_added: bool = False
    durable: bool = True


class LoadedSession(msgspec.Struct, frozen=True):
    """A session as a store returned it; None where the store keeps no header, or reports none."""

    header: SessionHeader | None
    events: tuple[SessionEvent, ...]
    repair: RepairFacts | None = None


class ListedSession(msgspec.Struct, frozen=True):
    """One entry of a list: the id, the header if it was given, the kind of error if one was."""

    session: str
    header: SessionHeader | None = None
    error: str | None = None


class Returned(msgspec.Struct, frozen=True, tag_field="outcome", tag="returned"):
    """The call returned."""

    session: LoadedSession | None = None
    entries: tuple[ListedSession, ...] | None = None


class Refused(msgspec.Struct, frozen=True, tag_field="outcome", tag="refused"):
    """The call raised.

    `kind` is the word the contract's errors are told apart by, or `other`; `exit` when the store
    tried to end the interpreter. `facts` are the exception's attributes that JSON can carry.
    """

    kind: str
    exception: str
    text: str
    facts: dict[str, Any] = {}


class Hung(msgspec.Struct, frozen=True, tag_field="outcome", tag="hung"):
    """The call had not come back after so many seconds."""

    seconds: float


class StrangeResult(msgspec.Struct, frozen=True, tag_field="outcome", tag="strange"):
    """The call returned something that is no result of this call."""

    reason: str


class TogetherOutcome(msgspec.Struct, frozen=True, tag_field="outcome", tag="together"):
    """The outcomes of calls made at the same time, in the order of the operations."""

    outcomes: tuple[Returned | Refused | Hung | StrangeResult, ...]


class Damaged(msgspec.Struct, frozen=True, tag_field="outcome", tag="damaged"):
    """Proof that a damage landed: the file, and where in it the damaged record begins.

    `line` counts from 1 (a database: the row's seq, and no `byte`); `size` is the file's size
    afterwards; `record_bytes` the length of the record itself, without newline and additions.
    """

    path: str
    before: str
    after: str
    line: int | None = None
    byte: int | None = None
    size: int | None = None
    record_bytes: int | None = None


class NotPossible(msgspec.Struct, frozen=True, tag_field="outcome", tag="not-possible"):
    """The damage could not be made.

    `moot`: because in this kind of storage the situation cannot arise at all; otherwise because
    the harness could not find the place.
    """

    reason: str
    moot: bool


Outcome: TypeAlias = (
    Returned | Refused | Hung | StrangeResult | TogetherOutcome | Damaged | NotPossible
)


class Observation(msgspec.Struct, frozen=True):
    """One operation, what came of it, and what it did to the storage.

    `changed` names the files whose bytes (for a database: rows) changed during the call and that
    hold, or held, data of a session; a path that begins with `..` lies outside the root. `marks`
    counts, for each mark found in storage after the call, the places it stands in; None where it
    was not looked.
    """

    operation: Operation
    outcome: Outcome
    changed: tuple[str, ...] = ()
    marks: dict[str, int] | None = None


History: TypeAlias = tuple[Observation, ...]
