"""The op log: what a store did to its directory, as values.

Decides the vocabulary of recorded file operations and their total order, in which the calls' marks
stand too. Identity is an inode generation: a number given to a file or directory when it is made
and never again, so that a name that is taken twice means two files. Says nothing about what
survives a crash (`disk`) or how operations are seen (the `record` room).

Not modelled: ownership, modes, times, extended attributes, sparse extents, symbolic links, special
files, and anything outside the recorded directory.
"""

from __future__ import annotations

import json
from typing import Final, Literal

import msgspec

__all__ = [
    "ROOT",
    "Acknowledged",
    "CreateFile",
    "Exchange",
    "Inode",
    "Invoked",
    "Link",
    "MakeDirectory",
    "OpLog",
    "Operation",
    "RemoveDirectory",
    "Rename",
    "SyncAll",
    "SyncDirectory",
    "SyncFailed",
    "SyncFile",
    "Truncate",
    "Unlink",
    "Write",
    "is_sync",
]

Inode = int
"""The identity of a file or directory: an inode generation, never reused."""

ROOT: Final[Inode] = 0
"""The recorded directory itself; it exists, durably, before the first operation."""


class _Operation(msgspec.Struct, frozen=True, tag_field="op", gc=False):
    """Base of all recorded operations."""


class MakeDirectory(_Operation, frozen=True, tag="mkdir", gc=False):
    """`mkdir`: a new directory under `name` in `parent`."""

    parent: Inode
    name: str
    inode: Inode


class RemoveDirectory(_Operation, frozen=True, tag="rmdir", gc=False):
    """`rmdir` of an empty directory."""

    parent: Inode
    name: str


class CreateFile(_Operation, frozen=True, tag="create", gc=False):
    """`open` with O_CREAT that made a new, empty file."""

    parent: Inode
    name: str
    inode: Inode


class Write(_Operation, frozen=True, tag="write", gc=False):
    """Bytes put at `offset` (for O_APPEND: where they landed).

    `synced`: the descriptor was opened with O_SYNC or O_DSYNC, or the call carried RWF_SYNC or
    RWF_DSYNC: the bytes, and the length they need, are durable when the call returns.
    """

    inode: Inode
    offset: int
    data: bytes
    synced: bool = False


class Truncate(_Operation, frozen=True, tag="truncate", gc=False):
    """A new length: shorter drops bytes, longer adds zeros. O_TRUNC is a truncate to 0."""

    inode: Inode
    length: int


class Rename(_Operation, frozen=True, tag="rename", gc=False):
    """`rename`, replacing what the new name stood for."""

    parent: Inode
    name: str
    new_parent: Inode
    new_name: str


class Exchange(_Operation, frozen=True, tag="exchange", gc=False):
    """`renameat2` with RENAME_EXCHANGE: two names swap what they stand for."""

    parent: Inode
    name: str
    other_parent: Inode
    other_name: str


class Link(_Operation, frozen=True, tag="link", gc=False):
    """A further name for a file."""

    inode: Inode
    parent: Inode
    name: str


class Unlink(_Operation, frozen=True, tag="unlink", gc=False):
    """Removal of one name of a file."""

    parent: Inode
    name: str


class SyncFile(_Operation, frozen=True, tag="fsync", gc=False):
    """`fsync` or `fdatasync` of a file that returned success."""

    inode: Inode


class SyncDirectory(_Operation, frozen=True, tag="fsync-directory", gc=False):
    """`fsync` of a directory that returned success."""

    inode: Inode


class SyncFailed(_Operation, frozen=True, tag="fsync-failed", gc=False):
    """`fsync` or `fdatasync` of a file that returned an error, and what it did to the dirty pages.

    `dirty`: nothing, they are still to be written. `clean-new`: they are marked clean and keep what
    was written, so that no later fsync writes them, until a write into the page makes it dirty
    again. `clean-old`: the file is what it durably was, its length too; `content` then holds that.
    """

    inode: Inode
    pages: Literal["clean-new", "clean-old", "dirty"]
    content: bytes | None = None


class SyncAll(_Operation, frozen=True, tag="sync", gc=False):
    """`sync` or `syncfs`."""


class Invoked(_Operation, frozen=True, tag="invoked", gc=False):
    """A call on the store began; `call` is its index in the history."""

    call: int


class Acknowledged(_Operation, frozen=True, tag="acknowledged", gc=False):
    """A call on the store returned without an error."""

    call: int


Operation = (
    MakeDirectory
    | RemoveDirectory
    | CreateFile
    | Write
    | Truncate
    | Rename
    | Exchange
    | Link
    | Unlink
    | SyncFile
    | SyncDirectory
    | SyncFailed
    | SyncAll
    | Invoked
    | Acknowledged
)


def is_sync(operation: Operation) -> bool:
    """Whether an entry of the log made something durable."""
    if isinstance(operation, Write):
        return operation.synced
    return isinstance(operation, SyncFile | SyncDirectory | SyncAll)


class OpLog(msgspec.Struct, frozen=True):
    """A recording: operations in the order in which they took effect.

    Zero-range and hole punching are recorded as a `Write` of zeros, a copy of a range as the
    `Write` of its bytes: what a crash may do to them is the same.
    """

    operations: tuple[Operation, ...] = ()

    def to_json(self) -> str:
        """JSON text; bytes stand in it as base64, names that are not UTF-8 with escapes."""
        return json.dumps(msgspec.to_builtins(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | bytes) -> OpLog:
        """The log a text of `to_json` stands for; raises ValueError."""
        try:
            return msgspec.convert(json.loads(text), cls)
        except msgspec.ValidationError as error:
            raise ValueError(str(error)) from error
