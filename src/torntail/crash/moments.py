"""Where a process can die, and one way to: `Moment`, `moments` and `Crash`, all values.

`moments` walks an op log; `Crash.image` is a pure function from the disk of a moment to what is
left of it. Does not decide which crashes are worth trying at a moment (`crashes`) or what one file
may be left with (`choices`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

from torntail.crash.choices import FileChoice, tear_points
from torntail.crash.disk import Disk, DiskImage, FileVersions, Model, Name
from torntail.crash.oplog import Acknowledged, Inode, Invoked, Operation, Write

__all__ = ["Crash", "Moment", "is_mark", "moments", "surviving"]


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
        return Disk(
            disk.model, files, names, names, (), disk.directories, disk.written, disk.writes
        )

    def _names(self, disk: Disk) -> Mapping[Name, Inode]:
        return disk.names if self.names is None else surviving(self.names, disk)

    def _contents(self, disk: Disk) -> dict[Inode, bytes]:
        if self.files is None:
            return {}
        return {inode: choice.content(disk.files[inode]) for inode, choice in self.files}


def surviving(kept: Sequence[int], disk: Disk) -> dict[Name, Inode]:
    """The settled names, with those unsettled bindings whose index is in `kept`."""
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
    disk: Disk,
    operations: Iterable[Operation],
    *,
    tears: Literal["all", "synced", "none"] = "all",
    position: int = 0,
) -> Iterator[Moment]:
    """Every moment of a log that begins on `disk`, in order; cut writes before the whole one.

    `tears` are the writes of which each cut is a moment. Under `ordered` and `posix` the cuts of a
    write that is not synced are among the choices for its file, and `synced` is all that is needed.
    """
    yield Moment(position, disk)
    for operation in operations:
        position += 1
        if isinstance(operation, Write) and (
            tears == "all" or (tears == "synced" and operation.synced)
        ):
            for cut in tear_points(operation.offset, operation.data):
                partial = msgspec.structs.replace(operation, data=operation.data[:cut])
                yield Moment(position, disk.after(partial), operation, cut)
        disk = disk.after(operation)
        yield Moment(position, disk, operation)


def is_mark(operation: Operation | None) -> bool:
    """Whether an entry of the log is a call's mark and no file operation."""
    return isinstance(operation, Invoked | Acknowledged)
