"""I/O errors as values: at which operation of which call the disk says no, and how.

Decides the vocabulary only: what an error leaves of a file is in `failed_sync`, carrying one out on
a running store is in `record`, and what a store owes after it is in `judge`. EINTR is not here:
CPython retries it and no Python store can see it.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from torntail.crash.oplog import (
    CreateFile,
    Link,
    MakeDirectory,
    Operation,
    RemoveDirectory,
    Rename,
    SyncDirectory,
    SyncFile,
    Truncate,
    Unlink,
    Write,
)

__all__ = ["IoFault", "IoOperation", "SyncFailure", "fault_told", "operation_kind", "strikes"]

IoOperation = Literal[
    "any",
    "create",
    "open",
    "write",
    "truncate",
    "sync",
    "sync-directory",
    "rename",
    "link",
    "unlink",
    "mkdir",
]
"""Which file operations a fault strikes; `any` counts them all. `open` is the opening for writing
of a file that is there, which is no operation of the op log.
"""


class SyncFailure(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """What a failed fsync does to the pages it was for, and whether it is told again.

    `clean-new`: marked clean, and reads still give the new bytes until power goes (ext4, XFS).
    `clean-old`: marked clean and reverted to what is on the disk (btrfs). `dirty`: still to be
    written, so that a later fsync may succeed in earnest. `reported`: whether the next fsync on the
    file, although nothing further went wrong, fails once more.
    """

    pages: Literal["clean-new", "clean-old", "dirty"]
    reported: Literal["once", "again"] = "once"


class IoFault(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    tag_field="fault",
    tag="io-error",
    omit_defaults=True,
    forbid_unknown_fields=True,
):
    """An error of the disk in the call `during` of a plan (an index into its operations).

    It strikes the operation number `nth`, from 0, of those of kind `on` in that call; with `lasts`
    `on`, every one of that kind from then on, in later calls as well. Of a write `length` bytes are
    carried out first. Without `error` it is a short write, which is no error. `sync` tells what a
    failed fsync leaves, `dirty` pages if it is not given. EROFS and EACCES stand for storage that
    cannot be written: they pass over syncs, which succeed there.
    """

    during: int
    on: IoOperation = "any"
    nth: int = 0
    error: Literal["ENOSPC", "EIO", "EROFS", "EACCES"] | None = "EIO"
    length: int = 0
    lasts: Literal["once", "on"] = "once"
    sync: SyncFailure | None = None


def operation_kind(operation: Operation) -> IoOperation | None:
    """The word for a recorded operation; None for one that no fault strikes."""
    match operation:
        case CreateFile():
            return "create"
        case Write():
            return "write"
        case Truncate():
            return "truncate"
        case SyncFile():
            return "sync"
        case SyncDirectory():
            return "sync-directory"
        case Rename():
            return "rename"
        case Link():
            return "link"
        case Unlink() | RemoveDirectory():
            return "unlink"
        case MakeDirectory():
            return "mkdir"
    return None


def strikes(fault: IoFault, kind: IoOperation) -> bool:
    """Whether an operation of a kind is among those a fault counts."""
    if fault.error in ("EROFS", "EACCES") and kind in ("sync", "sync-directory"):
        return False
    return fault.on in ("any", kind)


def fault_told(fault: IoFault) -> str:
    """A fault in words, without the call it strikes."""
    what = "file operation" if fault.on == "any" else fault.on
    which = f"{what} {fault.nth + 1} of this call"
    if fault.error is None:
        return f"{which} is a write that comes short after {fault.length} bytes"
    told = f"{which} fails with {fault.error}"
    if fault.length:
        told += f" after {fault.length} bytes"
    if fault.lasts == "on":
        told += ", and so does every one after it"
    if fault.sync is not None:
        pages = {
            "clean-new": "its pages are marked clean and keep the new bytes",
            "clean-old": "its pages are marked clean and hold the old bytes again",
            "dirty": "its pages stay dirty",
        }
        told += f"; {pages[fault.sync.pages]}"
        if fault.sync.reported == "again":
            told += ", and the next fsync of the file fails once more"
    return told
