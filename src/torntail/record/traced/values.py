"""What a traced recording says beyond the operations, and what may be done to a child's calls.

Values only: `process` hands them over, the helper carries them out.
"""

from __future__ import annotations

import errno
from typing import Any, Literal

import msgspec

from torntail.crash.io_faults import IoFault, SyncFailure
from torntail.crash.oplog import Inode, Operation

__all__ = [
    "Delay",
    "Ended",
    "Entry",
    "Kill",
    "Output",
    "Refuse",
    "Strike",
    "Struck",
    "StruckKind",
    "TracingUnavailable",
    "refusal_of",
]

StruckKind = Literal[
    "any",
    "create",
    "write",
    "truncate",
    "sync",
    "sync-directory",
    "rename",
    "link",
    "unlink",
    "mkdir",
    "read",
    "open",
]
"""Which calls a strike counts. `unlink` is `rmdir`, too, `sync` also `msync`, `sync` and `syncfs`,
`open` the opening for writing of a file that is there. `any` means all that change something, and
for a refusal `open` as well."""


class TracingUnavailable(Exception):
    """This machine cannot trace, or forbids it; the message is the reason, in a line."""


class Output(msgspec.Struct, frozen=True):
    """Bytes that a child wrote to its standard output, where the writing began.

    `child` is the number of the command, from 0, among those traced together. Of a command that
    was killed while it wrote, all that it meant to write: only its reader knows how much came.
    """

    data: bytes
    child: int = 0


Entry = Operation | Output
"""What a traced recording consists of."""


class Kill(msgspec.Struct, frozen=True, kw_only=True):
    """SIGKILL for the whole tree before the call number `nth`, from 0, of those of kind `on`.

    Of a write, `length` bytes are really carried out first: a torn write.
    """

    on: StruckKind = "any"
    nth: int = 0
    length: int = 0


class Refuse(msgspec.Struct, frozen=True, kw_only=True):
    """An error instead of the call number `nth` of kind `on`; with `lasts` `on`, of all later ones.

    Of a write, `length` bytes are carried out first; without `error` (a name such as `EIO`) that is
    a short write, and of a read a short read; one too short for that is passed over for the next.
    `sync` tells what a failed fsync leaves, `dirty` pages if it is not given. EROFS and EACCES pass
    over syncs, which succeed on storage that cannot be written.
    """

    on: StruckKind = "any"
    nth: int = 0
    error: str | None = "EIO"
    length: int = 0
    lasts: Literal["once", "on"] = "once"
    sync: SyncFailure | None = None


class Delay(msgspec.Struct, frozen=True, kw_only=True):
    """A slow disk: the call number `nth` of kind `on`, and later ones, take `seconds` longer."""

    seconds: float
    on: StruckKind = "sync"
    nth: int = 0
    lasts: Literal["once", "on"] = "on"


Strike = Kill | Refuse | Delay
"""What may be done to a call."""


class Struck(msgspec.Struct, frozen=True):
    """A strike that hit: it stood before entry `position` of the log, on a call of kind `kind`.

    `inode` is the file it was about, if it was about one; of a write or read, `size` is how many
    bytes it was for. `again`: a failed fsync that was reported a second time.
    """

    position: int
    strike: Strike
    kind: str
    inode: Inode | None = None
    size: int = 0
    again: bool = False


class Ended(msgspec.Struct, frozen=True):
    """How a command ended.

    `code` is its exit code, or the negative number of the signal that ended it. `reason` is empty
    if it ended by itself, else `killed` (by a strike), `killed by the harness` or `deadline`.
    `left_running` counts the threads and processes that a command which ended by itself left
    behind; they were killed.
    """

    code: int
    reason: str = ""
    left_running: int = 0


def refusal_of(fault: IoFault) -> Refuse:
    """The strike that does what an I/O error does, from the call on that it is armed before."""
    return Refuse(
        on=fault.on,
        nth=fault.nth,
        error=fault.error,
        length=fault.length,
        lasts=fault.lasts,
        sync=fault.sync,
    )


def fields_of(strike: Strike) -> dict[str, Any]:
    """A strike as the helper takes it; raises ValueError for an unknown error name."""
    fields: dict[str, Any] = {
        "on": strike.on,
        "nth": strike.nth,
        "act": "kill",
        "error": 0,
        "length": 0,
        "lasts": "once",
        "pages": None,
        "reported": "once",
        "seconds": 0.0,
    }
    match strike:
        case Kill():
            fields["length"] = strike.length
        case Delay():
            fields |= {"act": "delay", "seconds": strike.seconds, "lasts": strike.lasts}
        case Refuse():
            fields |= {"act": "refuse", "length": strike.length, "lasts": strike.lasts}
            if strike.error is not None:
                number = getattr(errno, strike.error, None)
                if number is None:
                    raise ValueError(f"there is no error {strike.error!r}")
                fields["error"] = number
            if strike.sync is not None:
                fields |= {"pages": strike.sync.pages, "reported": strike.sync.reported}
    return fields
