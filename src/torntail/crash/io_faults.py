"""I/O errors as values: at which operation of which call the disk says no, and how.

Decides the vocabulary only: what an error leaves of a file is in `disk`, carrying one out on a
running store is in `record`, and what a store owes after it is in `judge`. EINTR is not here:
CPython retries it and no Python store can see it.
"""

from __future__ import annotations

from typing import Literal

import msgspec

__all__ = ["IoFault", "IoOperation", "SyncFailure"]

IoOperation = Literal[
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
]
"""Which file operations a fault strikes; `any` counts them all."""


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
    failed fsync leaves.
    """

    during: int
    on: IoOperation = "any"
    nth: int = 0
    error: Literal["ENOSPC", "EIO"] | None = "EIO"
    length: int = 0
    lasts: Literal["once", "on"] = "once"
    sync: SyncFailure | None = None
