"""The store protocol: the calls, what they return, and the errors they raise.

Decides the shape of a session store, not how one is built. Every error is its own type and carries
the facts as attributes; `kind` is the word by which drivers in other languages name it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Protocol, Self, runtime_checkable

from torntail.session import SessionEvent, SessionHeader

__all__ = [
    "IdentityMismatch",
    "InvalidSessionId",
    "ListEntry",
    "LoadResult",
    "NeverMaterialised",
    "NotSerializable",
    "RepairReport",
    "SequenceMismatch",
    "SessionCorrupted",
    "SessionExists",
    "SessionNotFound",
    "SessionStore",
    "StorageFailed",
    "StoreClosed",
    "StoreError",
    "UnsupportedVersion",
    "WriterConflict",
]


@dataclass(frozen=True, slots=True)
class RepairReport:
    """What a load had to mend, or what it would mend if it could.

    `torn_from_line` and `torn_from_byte` say where the torn tail began (row and offset in the
    session's rows for a database), `torn_bytes` how much was dropped; None, None, 0 without one.
    `copy_kept` names the durable copy of a torn tail that held whole records (a file, or table and
    key). `newline_added`: the last record lacked its newline. `closers` are the synthetic events
    that close the interrupted turn. `durable` is false when any of this is not in storage: after
    `inspect`, under another writer's lock, or on a medium that cannot be written (IO-5, MW-3);
    `reason` then says why.
    """

    torn_from_line: int | None = None
    torn_from_byte: int | None = None
    torn_bytes: int = 0
    copy_kept: str | None = None
    newline_added: bool = False
    closers: tuple[SessionEvent, ...] = ()
    durable: bool = True
    reason: str | None = None

    @property
    def empty(self) -> bool:
        """Whether there was nothing to mend."""
        return self.torn_from_line is None and not self.newline_added and not self.closers


@dataclass(frozen=True, slots=True)
class LoadResult:
    """A session as `load` and `inspect` return it: header, events (closers included), report.

    The caller owns it: changing it changes nothing stored (RW-4).
    """

    header: SessionHeader
    events: list[SessionEvent]
    repair: RepairReport


@dataclass(frozen=True, slots=True)
class ListEntry:
    """One log in storage, under the id its place names (RW-9).

    `header` is the header as stored (also one of another version); where it cannot be read or
    contradicts its place, `header` is None or contradicting and `error` says which kind.
    """

    session_id: str
    header: SessionHeader | None = None
    error: StoreError | None = None


class StoreError(Exception):
    """Any refusal or failure of a store; `session_id` names the session concerned, if one is."""

    kind: ClassVar[str] = "other"

    def __init__(self, message: str, *, session_id: str | None = None) -> None:
        super().__init__(message)
        self.session_id = session_id

    def __str__(self) -> str:
        # Ids and file names are not trusted to be printable.
        return str(self.args[0]).encode("utf-8", "backslashreplace").decode("utf-8")


class SessionNotFound(StoreError):
    """No such session in storage (RW-8)."""

    kind = "not_found"

    def __init__(self, session_id: str) -> None:
        super().__init__(f"session {session_id!r} not found", session_id=session_id)


class SessionExists(StoreError):
    """`create` of an id that exists, in memory or in storage (RW-7)."""

    kind = "exists"

    def __init__(self, session_id: str, path: Path | str | None = None) -> None:
        where = f" at {path}" if path is not None else " in this store, not yet written"
        super().__init__(
            f"session {session_id!r} already exists{where}; load it instead of creating it",
            session_id=session_id,
        )
        self.path = path


class InvalidSessionId(StoreError):
    """An id that cannot be stored faithfully: empty, or too long for a file name (RW-10)."""

    kind = "other"

    def __init__(self, session_id: str, reason: str) -> None:
        super().__init__(f"session id {session_id!r:.80} {reason}", session_id=session_id)
        self.reason = reason


class SequenceMismatch(StoreError):
    """A batch that does not begin at the stored next seq, or is not contiguous (RW-2)."""

    kind = "sequence"

    def __init__(self, session_id: str, expected: int, got: int, index: int = 0) -> None:
        super().__init__(
            f"session {session_id!r}: expected seq {expected} at index {index} of the batch, "
            f"got {got}",
            session_id=session_id,
        )
        self.expected = expected
        self.got = got
        self.index = index


class NotSerializable(StoreError):
    """An event JSON cannot carry (RW-3)."""

    kind = "not_serializable"

    def __init__(self, session_id: str, event_type: str, seq: int, reason: str) -> None:
        super().__init__(
            f"session {session_id!r}: event {event_type!r} (seq {seq}) is not JSON: {reason}",
            session_id=session_id,
        )
        self.event_type = event_type
        self.seq = seq
        self.reason = reason


class SessionCorrupted(StoreError):
    """Damage no crash explains; nothing was changed (DM-1, DM-3, DM-6).

    `line` is the line of the file or, for a database, the row's seq; `byte` the offset of that
    line's first byte, None for a database.
    """

    kind = "corrupted"

    def __init__(
        self, session_id: str, path: Path | str, line: int, reason: str, byte: int | None = None
    ) -> None:
        place = f"line {line} (byte {byte})" if byte is not None else f"row {line}"
        super().__init__(
            f"session {session_id!r} is corrupted at {place} of {path}: {reason}; nothing was "
            "changed",
            session_id=session_id,
        )
        self.path = path
        self.line = line
        self.byte = byte
        self.reason = reason


class UnsupportedVersion(StoreError):
    """A log of another format version; the file is untouched (RW-14)."""

    kind = "version"

    def __init__(self, session_id: str, path: Path | str, version: int) -> None:
        super().__init__(
            f"session {session_id!r} has format version {version}, only 0 is supported: {path}",
            session_id=session_id,
        )
        self.path = path
        self.version = version


class IdentityMismatch(StoreError):
    """A header whose id is not the one its place names, or an id found in two places (RW-15)."""

    kind = "identity"

    def __init__(
        self, session_id: str, paths: Sequence[Path | str], found: str | None = None
    ) -> None:
        if found is None:
            what = f"is found in {len(paths)} places: {', '.join(map(str, paths))}"
        else:
            what = f"is not the id in the header of {paths[0]}: {found!r}"
        super().__init__(f"session id {session_id!r} {what}", session_id=session_id)
        self.paths = tuple(paths)
        self.found = found


class NeverMaterialised(StoreError):
    """A file without a complete header line: its first flush never ended (DM-6)."""

    kind = "never_materialised"

    def __init__(self, session_id: str, path: Path | str, size: int) -> None:
        super().__init__(
            f"session {session_id!r} was never materialised: {path} ({size} bytes) holds no "
            "complete header",
            session_id=session_id,
        )
        self.path = path
        self.size = size


class WriterConflict(StoreError):
    """Another writer holds the session, or has changed its log (MW-1, MW-4, IO-6)."""

    kind = "conflict"

    def __init__(self, session_id: str, path: Path | str, reason: str) -> None:
        super().__init__(f"session {session_id!r}: {reason}: {path}", session_id=session_id)
        self.path = path
        self.reason = reason


class StorageFailed(StoreError):
    """The operating system refused a file operation; the cause is chained (IO-1 to IO-3).

    `writer_dead` says that this writer accepts no further append until `reopen`, or a new store.
    """

    kind = "storage"

    def __init__(
        self,
        session_id: str | None,
        path: Path | str,
        operation: str,
        cause: BaseException | str,
        *,
        writer_dead: bool = False,
    ) -> None:
        who = "store" if session_id is None else f"session {session_id!r}"
        advice = "; call reopen() before appending again" if writer_dead else ""
        super().__init__(
            f"{who}: {operation} of {path} failed: {cause}{advice}", session_id=session_id
        )
        self.path = path
        self.operation = operation
        self.cause = cause
        self.writer_dead = writer_dead


class StoreClosed(StoreError):
    """A call after `close` (RW-17)."""

    kind = "closed"

    def __init__(self) -> None:
        super().__init__("the store is closed")


@runtime_checkable
class SessionStore(Protocol):
    """What torntail calls a session store.

    One object may be used from several threads; calls on one session are serialised (RW-17).
    """

    def create(self, header: SessionHeader) -> None:
        """Announces a new session; lazy: nothing is stored before the first non-empty append.

        Raises `SessionExists`, `InvalidSessionId`, `UnsupportedVersion`, `NotSerializable`,
        `StoreClosed`.
        """
        ...

    def append(self, session_id: str, events: Iterable[SessionEvent]) -> None:
        """Stores a contiguous batch that begins at the stored next seq; durable on return.

        An empty batch does nothing. Appending to a session that this object neither created nor
        loaded does what `load` does first. Raises `SequenceMismatch`, `NotSerializable`,
        `SessionNotFound`, `WriterConflict`, `StorageFailed`, and what `load` raises.
        """
        ...

    def load(self, session_id: str) -> LoadResult:
        """The session with its interrupted turn closed; the repair is durable before it returns.

        Raises `SessionNotFound`, `NeverMaterialised`, `SessionCorrupted`, `UnsupportedVersion`,
        `IdentityMismatch`, `StorageFailed`.
        """
        ...

    def inspect(self, session_id: str) -> LoadResult:
        """What `load` would return; never writes. Raises what `load` raises."""
        ...

    def list(self) -> list[ListEntry]:
        """One entry per log in storage; reads headers only and never writes (RW-9, DM-8)."""
        ...

    def reopen(self, session_id: str) -> int:
        """For the holder of the writer lock after a storage error: revives the writer.

        Drops the torn tail, writes no closers, returns the next seq.
        """
        ...

    def close(self) -> None:
        """Frees the locks; every later call raises `StoreClosed`, except `close` itself."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...
