"""Replaying an op log: the disk it ends in, in time linear in the bytes written.

Gives what folding `Disk.after` and then `Disk.settled` gives, without keeping every version of
every file on the way: a recording is checked after each run, and a run may write thousands of times
to one long file. Tests hold the two against each other. Decides nothing about crashes.
"""

from __future__ import annotations

from collections.abc import Iterable

from torntail.crash.disk import Disk, FileVersions, Name
from torntail.crash.oplog import (
    CreateFile,
    Exchange,
    Inode,
    Link,
    MakeDirectory,
    Operation,
    RemoveDirectory,
    Rename,
    SyncFailed,
    Truncate,
    Unlink,
    Write,
)

__all__ = ["first_difference", "replayed"]


def replayed(disk: Disk, operations: Iterable[Operation]) -> Disk:
    """The disk after `operations`, all of it settled."""
    names = dict(disk.names)
    directories = set(disk.directories)
    contents: dict[Inode, bytes | bytearray] = {
        inode: file.visible for inode, file in disk.files.items()
    }
    for operation in operations:
        match operation:
            case Write(inode, offset, data):
                content = _changeable(contents, inode)
                if len(content) < offset:
                    content.extend(bytes(offset - len(content)))
                content[offset : offset + len(data)] = data
            case Truncate(inode, length):
                content = _changeable(contents, inode)
                if length < len(content):
                    del content[length:]
                else:
                    content.extend(bytes(length - len(content)))
            case SyncFailed(inode, _, content) if content is not None:
                contents[inode] = content
            case CreateFile(parent, name, inode):
                contents[inode] = b""
                names[Name(parent, name)] = inode
            case MakeDirectory(parent, name, inode):
                directories.add(inode)
                names[Name(parent, name)] = inode
            case Unlink(parent, name) | RemoveDirectory(parent, name):
                names.pop(Name(parent, name), None)
            case Link(inode, parent, name):
                names[Name(parent, name)] = inode
            case Rename(parent, name, new_parent, new_name):
                source, target = Name(parent, name), Name(new_parent, new_name)
                # Two names of one file: POSIX says that rename then does nothing.
                if names[source] != names.get(target):
                    names[target] = names.pop(source)
            case Exchange(parent, name, other_parent, other_name):
                one, other = Name(parent, name), Name(other_parent, other_name)
                names[one], names[other] = names[other], names[one]
            case _:
                pass  # A sync or a mark changes nothing that a program sees.
    files = {inode: FileVersions((bytes(content),)) for inode, content in contents.items()}
    return Disk(disk.model, files, names, names, (), frozenset(directories))


def _changeable(contents: dict[Inode, bytes | bytearray], inode: Inode) -> bytearray:
    content = contents[inode]
    if not isinstance(content, bytearray):
        content = contents[inode] = bytearray(content)
    return content


def first_difference(one: bytes, other: bytes) -> int:
    """The first offset at which two byte strings differ; their common length if one is longer."""
    start, stop = 0, min(len(one), len(other))
    if one[:stop] == other[:stop]:
        return stop
    while stop - start > 1:
        middle = (start + stop) // 2
        if one[start:middle] == other[start:middle]:
            start = middle
        else:
            stop = middle
    return start
