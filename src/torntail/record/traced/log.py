"""From the helper's entries to values, and holding a recording against the real directory."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Final, get_args

from torntail.crash.disk import Disk, DiskImage
from torntail.crash.oplog import (
    Acknowledged,
    Invoked,
    Operation,
    Truncate,
    Write,
)
from torntail.record.replay import first_difference, replayed
from torntail.record.traced.values import Entry, Output
from torntail.record.tree import read_file

__all__ = [
    "LineMarks",
    "Mark",
    "beginning",
    "entries_of",
    "marked",
    "operations_in",
    "without_shared",
]

_KINDS: Final[dict[str, Callable[..., Operation]]] = {
    kind.__struct_config__.tag: kind for kind in get_args(Operation)
}

Mark = Invoked | Acknowledged

LineMarks = Callable[[int, bytes], Iterable[Mark]]
"""Given the number of a command and a line it has written, the marks that stand for it."""


def beginning(disk: Disk) -> tuple[list[tuple[int, str, int, bool]], int]:
    """What the helper needs of a disk: the names that hang on its root, and the next inode."""
    children: dict[int, list[tuple[str, int]]] = {}
    for place, inode in disk.names.items():
        children.setdefault(place.parent, []).append((place.name, inode))
    names = []
    waiting = [0]
    for directory in waiting:
        for name, inode in children.get(directory, ()):
            is_directory = inode in disk.directories
            names.append((directory, name, inode, is_directory))
            if is_directory:
                waiting.append(inode)
    return names, 1 + max((0, *disk.files, *disk.directories))


def entries_of(
    disk: Disk, root: str, known: list[Entry], raw: Iterable[tuple[Any, ...]]
) -> list[Entry]:
    """The values of further entries of the helper, which follow `known`."""
    entries: list[Entry] = []
    for tag, *fields in raw:
        if tag == "output":
            child, data = fields
            entries.append(Output(data, child))
        elif tag == "unfinished":
            entries += _what_landed(disk, root, operations_in([*known, *entries]), *fields)
        else:
            entries.append(_KINDS[tag](*fields))
    return entries


def _what_landed(
    disk: Disk, root: str, operations: list[Operation], inode: int
) -> Iterable[Operation]:
    """What a write or truncate whose process died in it did to its file."""
    after = replayed(disk, operations)
    tree = {inode: path for path, inode in after.tree().files}
    path = tree.get(inode)
    if path is None:
        return
    known = after.files[inode].visible
    try:
        found, _ = read_file(os.path.join(root, path))
    except FileNotFoundError:
        return
    if len(found) < len(known):
        yield Truncate(inode, len(found))
        known = known[: len(found)]
    start = first_difference(known, found)
    if start < len(found):
        rest = first_difference(known[start:][::-1], found[start:][::-1])
        end = len(found) if len(known) != len(found) else len(found) - rest
        yield Write(inode, start, found[start:end])


def operations_in(entries: Iterable[Entry]) -> list[Operation]:
    """The operations alone."""
    return [entry for entry in entries if not isinstance(entry, Output)]


def marked(entries: Iterable[Entry], marks: LineMarks) -> list[Operation]:
    """The operations, with a mark where a command has written the end of a line that calls for one.

    It stands where the writing of that piece began: whoever reads the line may have it from then
    on, and what the command does later is later.
    """
    operations: list[Operation] = []
    begun: dict[int, bytes] = {}
    for entry in entries:
        if isinstance(entry, Output):
            *lines, begun[entry.child] = (begun.get(entry.child, b"") + entry.data).split(b"\n")
            for line in lines:
                operations += marks(entry.child, line)
        else:
            operations.append(entry)
    return operations


def without_shared(image: DiskImage) -> DiskImage:
    """An image without the bytes of SQLite's shared memory, which no log holds."""
    ignored = {path for path in image.files if path.endswith("-shm") and path[:-4] in image.files}
    if not ignored:
        return image
    files = {path: b"" if path in ignored else data for path, data in image.files.items()}
    return replace(image, files=files)
