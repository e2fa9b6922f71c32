"""What a replay comes to.

Decides the words and what makes two sightings the same finding. Does not decide what is a violation
(`judge`) or how it is shown (`cli_scenarios`).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from typing import Literal, TypeAlias

import msgspec

from torntail.crash.disk import DiskImage
from torntail.crash.oplog import (
    Acknowledged,
    CreateFile,
    Exchange,
    Invoked,
    Link,
    MakeDirectory,
    Operation,
    RemoveDirectory,
    Rename,
    SyncAll,
    Truncate,
    Unlink,
    Write,
)

__all__ = [
    "Replay",
    "ReplayFinding",
    "Status",
    "cause_of",
    "image_digest",
    "one_for_each_clause",
    "operations_digest",
]

Status: TypeAlias = Literal["fixed", "failed", "unknown", "skipped"]
"""`fixed`: every expectation holds. `failed`: a clause is violated. `unknown`: it could not be
decided, as when a fault did not land. `skipped`: it does not apply to this store.
"""


class ReplayFinding(msgspec.Struct, frozen=True, kw_only=True):
    """A violation that a replay saw; `model` is that of the last crash, if there was one."""

    clause: str
    sentence: str
    cause: str
    session: str = ""
    model: str = ""


class Replay(msgspec.Struct, frozen=True, kw_only=True):
    """What one scenario came to on one store.

    `reason` says why, where the status is unknown or skipped. `images` distinct disks were loaded;
    `digest` is that of all of them in their order. `landed` says of each fault whether it struck.
    `story` is what happened step by step, where it was asked for.
    """

    scenario: str
    store: str
    status: Status
    reason: str = ""
    findings: tuple[ReplayFinding, ...] = ()
    images: int = 0
    digest: str = ""
    landed: tuple[bool, ...] = ()
    story: tuple[str, ...] = ()


def one_for_each_clause(findings: Iterable[ReplayFinding]) -> list[ReplayFinding]:
    """The first finding of each clause, in the order given."""
    first: dict[str, ReplayFinding] = {}
    for finding in findings:
        first.setdefault(finding.clause, finding)
    return list(first.values())


_PARENTHESES = re.compile(r"\([^()]*\)")
_NAMES_AND_NUMBERS = re.compile(r"'[^']*'|\"[^\"]*\"|\S*[/.]\S+|\d+")


def cause_of(clause: str, sentence: str) -> str:
    """The sentence without what differs between two sightings of one fault."""
    return f"{clause}: {_NAMES_AND_NUMBERS.sub('…', _PARENTHESES.sub('…', sentence))[:120]}"


def image_digest(image: DiskImage) -> str:
    """A digest of every path and byte of an image."""
    digest = hashlib.sha256()
    for path in sorted(image.directories):
        digest.update(b"d%s\0" % path.encode("utf-8", "surrogatepass"))
    for path in sorted(image.files):
        content = image.files[path]
        digest.update(b"f%s\0%d\0" % (path.encode("utf-8", "surrogatepass"), len(content)))
        digest.update(content)
    return digest.hexdigest()


def operations_digest(operations: Sequence[Operation]) -> str:
    """A digest of what was done: kinds, identities, places and lengths.

    A name counts only as the same one again, and bytes only by their number: temporary names and
    contents of chance make no difference to what a crash may take away.
    """
    names: dict[str, int] = {}

    def number(name: str) -> int:
        return names.setdefault(name, len(names))

    digest = hashlib.sha256()
    for operation in operations:
        facts = " ".join(map(str, _facts(operation, number)))
        tag = operation.__struct_config__.tag
        digest.update(f"{tag} {facts}\n".encode())
    return digest.hexdigest()[:24]


def _facts(operation: Operation, number: object) -> Iterable[object]:
    name = number
    assert callable(name)
    match operation:
        case MakeDirectory() | CreateFile():
            return operation.parent, name(operation.name), operation.inode
        case Link():
            return operation.inode, operation.parent, name(operation.name)
        case RemoveDirectory() | Unlink():
            return operation.parent, name(operation.name)
        case Rename():
            old, new = name(operation.name), name(operation.new_name)
            return operation.parent, old, operation.new_parent, new
        case Exchange():
            one, other = name(operation.name), name(operation.other_name)
            return operation.parent, one, operation.other_parent, other
        case Write():
            return operation.inode, operation.offset, len(operation.data), operation.synced
        case Truncate():
            return operation.inode, operation.length
        case Invoked() | Acknowledged():
            return (operation.call,)
        case SyncAll():
            return ()
    return (operation.inode,)
