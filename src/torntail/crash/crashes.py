"""Crashes as values: which unsynced effects survived, and the disk image that leaves.

`moments` walks an op log; at each moment `crashes` gives the ways to crash there: all of them when
they are few, a seeded spread when they are many, always with the strictest (nothing unsynced), the
mildest (everything), each effect alone lost, each alone kept, and every tear that matters.
`Crash.image` is a pure function from a disk to an image. Does not decide which images are worth
loading twice (the campaign does) or what a device may do against its promises (`devices`).
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final, TypeVar

import msgspec

from torntail.crash.disk import (
    PAGE_BYTES,
    SECTOR_BYTES,
    Disk,
    DiskImage,
    FileVersions,
    Model,
    Name,
    Tree,
)
from torntail.crash.oplog import (
    Acknowledged,
    Inode,
    Invoked,
    Operation,
    SyncAll,
    SyncDirectory,
    SyncFile,
    Truncate,
    Write,
)

__all__ = [
    "GARBAGE",
    "Crash",
    "FileChoice",
    "Images",
    "Moment",
    "crashes",
    "moments",
    "tear_points",
]

GARBAGE: Final = -1
"""In the place of a version: bytes that never were in the file."""

_Item = TypeVar("_Item")

EXHAUSTIVE: Final = 48
_SAMPLES: Final = 12
_TEARS: Final = 24
_PIECES: Final = 8


class FileChoice(msgspec.Struct, frozen=True):
    """What became of a file's unsynced contents.

    The file has `length` bytes, taken from `version` but for `patches`, each (start, stop, version)
    from another one, zeros where that has none, or GARBAGE.
    """

    length: int
    version: int
    patches: tuple[tuple[int, int, int], ...] = ()

    def involves_last(self, file: FileVersions) -> bool:
        """Whether the newest version has a part in it, by its bytes or by its length."""
        last = len(file.versions) - 1
        return (
            self.version == last
            or self.length == len(file.visible) != len(file.versions[last - 1])
            or any(version == last for _, _, version in self.patches)
        )

    def content(self, file: FileVersions) -> bytes:
        """The bytes this choice leaves."""
        content = file.versions[self.version][: self.length]
        if len(content) < self.length:
            content = content.ljust(self.length, b"\0")
        for start, stop, version in self.patches:
            stop = min(stop, self.length)
            if start >= stop:
                continue
            if version == GARBAGE:
                piece = random.Random(start).randbytes(stop - start)
            else:
                piece = file.versions[version][start:stop].ljust(stop - start, b"\0")
            content = content[:start] + piece + content[stop:]
        return content


class Crash(msgspec.Struct, frozen=True):
    """One way to crash.

    After `position` operations, of which the last, a write, was cut after `torn` bytes if that is
    not None. Of the unsettled directory operations those bindings survive whose index is in
    `names`; each file in `files` is left as chosen. Under `kill`, both are None: all of it is
    there.
    """

    model: Model
    position: int
    torn: int | None = None
    names: tuple[int, ...] | None = None
    files: tuple[tuple[Inode, FileChoice], ...] | None = None

    def image(self, disk: Disk) -> DiskImage:
        """What this crash leaves of `disk`, which is the disk of its moment."""
        return disk.image(self._names(disk), self._contents(disk))

    def disk_after(self, disk: Disk) -> Disk:
        """The disk a program finds after this crash.

        After a kill the page cache is still there and what was unsynced is unsynced; after a power
        cut all that is left is durable.
        """
        if self.model == "kill":
            return disk
        names = self._names(disk)
        contents = self._contents(disk)
        files = {
            inode: FileVersions((contents.get(inode, file.visible),))
            for inode, file in disk.files.items()
        }
        return Disk(disk.model, files, names, names, (), disk.directories)

    def _names(self, disk: Disk) -> Mapping[Name, Inode]:
        if self.names is None:
            return disk.names
        kept = set(self.names)
        names = dict(disk.durable_names)
        bindings = (binding for change in disk.changes for binding in change)
        for index, (name, target) in enumerate(bindings):
            if index in kept:
                if target is None:
                    names.pop(name, None)
                else:
                    names[name] = target
        _keep_one_name_of_directories(names, disk)
        return names

    def _contents(self, disk: Disk) -> dict[Inode, bytes]:
        if self.files is None:
            return {}
        return {inode: choice.content(disk.files[inode]) for inode, choice in self.files}


class Images:
    """The images of one moment: each tree and each content is worked out once."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._trees: dict[tuple[int, ...] | None, Tree] = {}
        self._contents: dict[tuple[Inode, FileChoice], bytes] = {}

    def of(self, crash: Crash) -> DiskImage:
        """What a crash leaves; the same as `crash.image(disk)`."""
        tree = self._trees.get(crash.names)
        if tree is None:
            tree = self._trees[crash.names] = self._disk.tree(crash._names(self._disk))
        contents: dict[Inode, bytes] = {}
        for inode, choice in crash.files or ():
            content = self._contents.get((inode, choice))
            if content is None:
                content = choice.content(self._disk.files[inode])
                self._contents[inode, choice] = content
            contents[inode] = content
        return self._disk.filled(tree, contents)


def _keep_one_name_of_directories(names: dict[Name, Inode], disk: Disk) -> None:
    """No file system gives a directory two names: of a rename half done the visible one counts."""
    if len(disk.directories) < 2:
        return
    first: dict[Inode, Name] = {}
    for name, inode in list(names.items()):
        if inode in disk.directories:
            other = first.setdefault(inode, name)
            if other != name:
                stays = name if disk.names.get(name) == inode else other
                del names[other if stays == name else name]
                first[inode] = stays


@dataclass(frozen=True, slots=True)
class Moment:
    """A point at which a process can die: after `position` operations, the last perhaps cut.

    `operation` is that last one; None before the first.
    """

    position: int
    disk: Disk
    operation: Operation | None = None
    torn: int | None = None


def moments(
    disk: Disk, operations: Iterable[Operation], *, tears: bool = True, position: int = 0
) -> Iterator[Moment]:
    """Every moment of a log that begins on `disk`, in order; cut writes before the whole one."""
    yield Moment(position, disk)
    for operation in operations:
        position += 1
        if isinstance(operation, Write) and tears:
            for cut in tear_points(operation.offset, operation.data):
                partial = msgspec.structs.replace(operation, data=operation.data[:cut])
                yield Moment(position, disk.after(partial), operation, cut)
        disk = disk.after(operation)
        yield Moment(position, disk, operation)


def tear_points(offset: int, data: bytes) -> list[int]:
    """After how many bytes a write is worth cutting.

    One byte, the middle, all but one, around each newline, at page and sector edges of the file; a
    spread of them when they are many.
    """
    length = len(data)
    points = {1, length // 2, length - 1}
    newline = data.find(b"\n")
    while newline >= 0:
        points.update((newline, newline + 1, newline + 2))
        newline = data.find(b"\n", newline + 1)
    for edge in (PAGE_BYTES, SECTOR_BYTES):
        first = edge - offset % edge
        points.update(range(first, length, edge))
    return _spread(sorted(point for point in points if 0 < point < length), _TEARS)


def crashes(
    moment: Moment,
    model: Model,
    seed: int = 0,
    *,
    exhaustive: int = EXHAUSTIVE,
    since: Disk | None = None,
) -> Iterator[Crash]:
    """The ways to crash at a moment under a model; `moment.disk` must be of that model, any model
    doing for `kill`. Up to `exhaustive` combinations are all given, of more a spread.

    With `since`, the disk one operation earlier, only those that leave something that could not be
    left then: what the last operation took part in.
    """
    if model == "kill":
        yield Crash("kill", moment.position, moment.torn)
        return
    operation = moment.operation
    if moment.torn is not None and not (isinstance(operation, Write) and operation.synced):
        return  # The tears of a write that is not synced are among the choices for its file.
    disk = moment.disk
    pending = disk.pending_files
    name_choices = _name_choices(disk)
    file_choices = [_file_choices(disk.files[inode], model) for inode in pending]
    if since is not None:
        if isinstance(operation, SyncFile | SyncDirectory | SyncAll):
            return  # It takes possibilities away and adds none.
        if isinstance(operation, Truncate) or (
            isinstance(operation, Write) and not operation.synced
        ):
            index = pending.index(operation.inode)
            file = disk.files[operation.inode]
            file_choices[index] = [one for one in file_choices[index] if one.involves_last(file)]
        elif not isinstance(operation, Write):
            old = sum(map(len, since.changes))
            name_choices = [names for names in name_choices if names and names[-1] >= old]
    if not name_choices or not all(file_choices):
        return

    def crash(names: tuple[int, ...], files: Iterable[FileChoice]) -> Crash:
        chosen = tuple(zip(pending, files, strict=True))
        return Crash(model, moment.position, moment.torn, names, chosen)

    combinations = len(name_choices)
    for choices in file_choices:
        combinations *= len(choices)
    if combinations <= exhaustive:
        for names in name_choices:
            for files in product(*file_choices):
                yield crash(names, files)
        return
    # Too many: each extreme with each single deviation, then a spread.
    nothing, everything = name_choices[0], name_choices[-1]
    strictest = [choices[0] for choices in file_choices]
    mildest = [choices[-1] for choices in file_choices]
    for names in name_choices:
        yield crash(names, strictest)
        yield crash(names, mildest)
    for names in dict.fromkeys((everything, nothing)):
        for index, choices in enumerate(file_choices):
            for choice in choices[1:-1]:
                yield crash(names, [*mildest[:index], choice, *mildest[index + 1 :]])
                if len(file_choices) > 1:
                    yield crash(names, [*strictest[:index], choice, *strictest[index + 1 :]])
    chance = random.Random(f"{seed}/{moment.position}")
    for _ in range(_SAMPLES):
        yield crash(chance.choice(name_choices), [chance.choice(c) for c in file_choices])


def _name_choices(disk: Disk) -> list[tuple[int, ...]]:
    """Which bindings may survive: nothing first, everything last."""
    ends: list[int] = [0]
    for change in disk.changes:
        ends.append(ends[-1] + len(change))
    total = ends[-1]
    if disk.model == "ordered":
        # A journal keeps the order, and the parts of one operation together.
        return [tuple(range(end)) for end in ends]
    if total <= 4:
        subsets = [
            tuple(index for index in range(total) if mask >> index & 1)
            for mask in range(1 << total)
        ]
        return sorted(subsets, key=lambda kept: (len(kept), kept))
    everything = tuple(range(total))
    middle = [tuple(range(end)) for end in range(1, total)]
    middle += [(index,) for index in everything]
    middle += [tuple(other for other in everything if other != index) for index in everything]
    return [(), *dict.fromkeys(_spread(middle, 4 * _TEARS)), everything]


def _file_choices(file: FileVersions, model: Model) -> list[FileChoice]:
    """What a file's contents may be: the durable ones first, the visible ones last."""
    last = len(file.versions) - 1
    choices = [FileChoice(len(version), index) for index, version in enumerate(file.versions)]
    visible = choices.pop()
    before, after = file.durable, file.visible
    for index, written in enumerate(file.writes, start=1):
        if written is None:
            continue
        offset, length = written
        data = file.versions[index][offset : offset + length]
        base = file.versions[index - 1]
        for cut in tear_points(offset, data):
            patches = ((offset, offset + cut, index),)
            choices.append(FileChoice(max(len(base), offset + cut), index - 1, patches))
    # The length before the data, and the data before a shorter length.
    choices += [FileChoice(len(version), 0) for version in file.versions[1:]]
    choices += [FileChoice(len(after), index) for index in range(last)]
    if len(before) > len(after):
        choices.append(FileChoice(len(before), last, ((len(after), len(before), 0),)))
    for edge in (PAGE_BYTES, SECTOR_BYTES):
        pieces = _changed_pieces(before, after, edge)
        if len(pieces) < 2 and edge == PAGE_BYTES:
            continue
        for start, stop in _spread(pieces, _PIECES):
            choices.append(FileChoice(len(after), last, ((start, stop, 0),)))
            choices.append(FileChoice(len(after), 0, ((start, stop, last),)))
            choices.append(FileChoice(min(stop, len(after)), 0, ((start, stop, last),)))
    if model == "posix":
        choices += _whole_writes(file)
    return [*dict.fromkeys(choices), visible]


def _whole_writes(file: FileVersions) -> list[FileChoice]:
    """Each write lost, kept alone, or turned to garbage on its own; and all of them garbage."""
    last = len(file.versions) - 1
    before, after = len(file.durable), len(file.visible)
    choices = []
    for index, written in enumerate(file.writes, start=1):
        if written is None:
            continue
        start, stop = written[0], written[0] + written[1]
        choices.append(FileChoice(after, last, ((start, stop, index - 1),)))
        choices.append(FileChoice(max(before, stop), 0, ((start, stop, index),)))
        choices.append(FileChoice(after, last, ((start, stop, GARBAGE),)))
        for cut in (written[1] // 3, 2 * written[1] // 3):
            choices.append(FileChoice(after, last, ((start + cut, stop, GARBAGE),)))
            choices.append(FileChoice(stop, index - 1, ((start, start + cut, index),)))
    if after > before and len(file.writes) > 1:
        choices.append(FileChoice(after, 0, ((before, after, GARBAGE),)))
    return _spread(choices, 3 * _TEARS)


def _changed_pieces(before: bytes, after: bytes, edge: int) -> list[tuple[int, int]]:
    """The pages or sectors in which two contents differ."""
    length = max(len(before), len(after))
    return [
        (start, start + edge)
        for start in range(0, length, edge)
        if before[start : start + edge] != after[start : start + edge]
    ]


def _spread(items: Sequence[_Item], limit: int) -> list[_Item]:
    """At most `limit` items, the first and the last among them, evenly in between."""
    if len(items) <= limit:
        return list(items)
    step = (len(items) - 1) / (limit - 1)
    return [items[round(index * step)] for index in range(limit)]


def is_mark(operation: Operation | None) -> bool:
    """Whether an entry of the log is a call's mark and no file operation."""
    return isinstance(operation, Invoked | Acknowledged)
