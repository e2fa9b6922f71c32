"""Two disks in one value: what programs see, and what of it is durable.

`Disk.after(operation)` folds an op log; at each point the disk knows the volatile state (what a
kill leaves) and, per file and per name, everything the page cache may or may not have written
back. Two persistence models differ only in what an fsync settles about names:

- `ordered`, a journaling file system: directory operations persist in order, so what is settled is
  a prefix of them; fsync of a file or directory settles everything up to the last operation on its
  own name or entries.
- `posix`: only what POSIX promises: a name is settled by the fsync of its directory alone.

What is chosen from a disk is in `crashes`. Not modelled: delayed metadata other than names and
lengths, and file systems that lose synced data (device faults run apart).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final, Literal, NamedTuple

from torntail.crash.oplog import (
    ROOT,
    Acknowledged,
    CreateFile,
    Exchange,
    Inode,
    Invoked,
    Link,
    MakeDirectory,
    Operation,
    RemoveDirectory,
    Rename,
    SyncAll,
    SyncDirectory,
    SyncFailed,
    SyncFile,
    Truncate,
    Unlink,
    Write,
)
from torntail.crash.versions import PAGE_BYTES, PENDING_VERSIONS, SECTOR_BYTES, FileVersions

__all__ = [
    "EMPTY_IMAGE",
    "MODELS",
    "PAGE_BYTES",
    "PENDING_VERSIONS",
    "SECTOR_BYTES",
    "Disk",
    "DiskImage",
    "FileVersions",
    "Model",
    "Name",
    "Tree",
]


Model = Literal["kill", "ordered", "posix"]

MODELS: Final[tuple[Model, ...]] = ("kill", "ordered", "posix")
"""From the strictest promise of a disk to the weakest."""


class Name(NamedTuple):
    """A place in a directory."""

    parent: Inode
    name: str


Binding = tuple[Name, Inode | None]
"""A name and what it stands for afterwards; None for nothing."""


@dataclass(frozen=True, slots=True)
class DiskImage:
    """A directory tree: paths relative to the recorded directory, with `/` between names.

    `files` maps a path to its bytes; `directories` holds the paths of directories. Two paths of
    one file (hard links) are listed with the same inode in `links`.
    """

    files: Mapping[str, bytes]
    directories: frozenset[str]
    links: tuple[tuple[str, ...], ...] = ()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, DiskImage):
            return NotImplemented
        return dict(self.files) == dict(other.files) and self.directories == other.directories

    def __hash__(self) -> int:
        return hash((frozenset(self.files.items()), self.directories))


EMPTY_IMAGE: Final = DiskImage({}, frozenset())


class Tree(NamedTuple):
    """Paths without contents, sorted: what names span."""

    files: tuple[tuple[str, Inode], ...]
    directories: frozenset[str]
    links: tuple[tuple[str, ...], ...]


_NO_FILES: Final[Mapping[Inode, FileVersions]] = MappingProxyType({})
_NO_NAMES: Final[Mapping[Name, Inode]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Disk:
    """The state of a recorded directory after some operations, under one persistence model.

    `names` is what programs see; `durable_names` what is settled; `changes` the directory
    operations that are not, in order, each as the bindings it makes. Directories are the inodes in
    `directories`.
    """

    model: Model
    files: Mapping[Inode, FileVersions] = field(default_factory=lambda: _NO_FILES)
    names: Mapping[Name, Inode] = field(default_factory=lambda: _NO_NAMES)
    durable_names: Mapping[Name, Inode] = field(default_factory=lambda: _NO_NAMES)
    changes: tuple[tuple[Binding, ...], ...] = ()
    directories: frozenset[Inode] = frozenset({ROOT})

    # --- folding the log ------------------------------------------------------------------------

    def after(self, operation: Operation) -> Disk:
        """The disk after one more operation."""
        match operation:
            case Write(inode, offset, data, synced):
                disk = self._with(inode, self.files[inode].written(offset, data, synced=synced))
                return disk._settle_names_of(inode) if synced else disk
            case Truncate(inode, length):
                return self._with(inode, self.files[inode].truncated(length))
            case SyncFile(inode):
                return self._with(inode, self.files[inode].synced())._settle_names_of(inode)
            case SyncDirectory(inode):
                return self._settle_entries_of(inode)
            case SyncFailed(inode, pages, content):
                file = self.files[inode].sync_failed(pages, content)
                return replace(self, files={**self.files, inode: file})
            case SyncAll():
                return self.settled()
            case Invoked() | Acknowledged():
                return self
            case CreateFile(parent, name, inode):
                disk = self._with(inode, FileVersions())
                return disk._rebound(((Name(parent, name), inode),))
            case MakeDirectory(parent, name, inode):
                disk = replace(self, directories=self.directories | {inode})
                return disk._rebound(((Name(parent, name), inode),))
            case Unlink(parent, name) | RemoveDirectory(parent, name):
                return self._rebound(((Name(parent, name), None),))
            case Link(inode, parent, name):
                return self._rebound(((Name(parent, name), inode),))
            case Rename(parent, name, new_parent, new_name):
                source, target = Name(parent, name), Name(new_parent, new_name)
                if source == target or self.names[source] == self.names.get(target):
                    return self
                return self._rebound(((target, self.names[source]), (source, None)))
            case Exchange(parent, name, other_parent, other_name):
                one, other = Name(parent, name), Name(other_parent, other_name)
                return self._rebound(((one, self.names[other]), (other, self.names[one])))

    def settled(self) -> Disk:
        """The disk after everything was synced."""
        return replace(
            self,
            files={inode: file.synced() for inode, file in self.files.items()},
            durable_names=self.names,
            changes=(),
        )

    def _with(self, inode: Inode, file: FileVersions) -> Disk:
        # Not `replace`, which takes several times as long: most operations come through here.
        return Disk(
            self.model,
            {**self.files, inode: file},
            self.names,
            self.durable_names,
            self.changes,
            self.directories,
        )

    def _rebound(self, bindings: tuple[Binding, ...]) -> Disk:
        return replace(self, names=_bound(self.names, bindings), changes=(*self.changes, bindings))

    def _settle_names_of(self, inode: Inode) -> Disk:
        """After an fsync of a file: a journal also persists its name, POSIX does not."""
        if self.model != "ordered" or not self.changes:
            return self
        concerned = [
            index
            for index, bindings in enumerate(self.changes)
            if any(
                target == inode or self._stood_for(name, index) == inode
                for name, target in bindings
            )
        ]
        return self._settle_prefix(concerned[-1] + 1) if concerned else self

    def _settle_entries_of(self, directory: Inode) -> Disk:
        """After an fsync of a directory: its entries are settled."""
        if not self.changes:
            return self
        if self.model == "ordered":
            concerned = [
                index
                for index, bindings in enumerate(self.changes)
                if any(name.parent == directory or target == directory for name, target in bindings)
            ]
            return self._settle_prefix(concerned[-1] + 1) if concerned else self
        durable = dict(self.durable_names)
        remaining = []
        for bindings in self.changes:
            for name, target in bindings:
                if name.parent == directory:
                    _bind(durable, name, target)
            kept = tuple(binding for binding in bindings if binding[0].parent != directory)
            if kept:
                remaining.append(kept)
        return replace(self, durable_names=durable, changes=tuple(remaining))

    def _settle_prefix(self, count: int) -> Disk:
        durable = dict(self.durable_names)
        for bindings in self.changes[:count]:
            for name, target in bindings:
                _bind(durable, name, target)
        return replace(self, durable_names=durable, changes=self.changes[count:])

    def _stood_for(self, name: Name, index: int) -> Inode | None:
        """What a name stood for before the change at `index`."""
        for bindings in reversed(self.changes[:index]):
            for changed, target in reversed(bindings):
                if changed == name:
                    return target
        return self.durable_names.get(name)

    # --- looking at it --------------------------------------------------------------------------

    @property
    def pending_files(self) -> list[Inode]:
        """The files with unsynced contents, in order of their making."""
        return sorted(inode for inode, file in self.files.items() if file.pending)

    def image(
        self,
        names: Mapping[Name, Inode] | None = None,
        contents: Mapping[Inode, bytes] | None = None,
    ) -> DiskImage:
        """The tree these names span, with `contents` where given and the visible bytes elsewhere.

        What hangs on a directory that has no name itself is lost with it.
        """
        return self.filled(self.tree(names), {} if contents is None else contents)

    def tree(self, names: Mapping[Name, Inode] | None = None) -> Tree:
        """The paths that these names span."""
        children: dict[Inode, list[tuple[str, Inode]]] = {}
        for (parent, name), inode in (self.names if names is None else names).items():
            children.setdefault(parent, []).append((name, inode))
        files: list[tuple[str, Inode]] = []
        directories: set[str] = set()
        places: dict[Inode, list[str]] = {}
        for path, inode in _walk(children, ROOT, "", frozenset({ROOT})):
            if inode in self.directories:
                directories.add(path)
            else:
                files.append((path, inode))
                places.setdefault(inode, []).append(path)
        links = tuple(tuple(sorted(paths)) for paths in places.values() if len(paths) > 1)
        return Tree(tuple(sorted(files)), frozenset(directories), tuple(sorted(links)))

    def filled(self, tree: Tree, contents: Mapping[Inode, bytes]) -> DiskImage:
        """A tree with `contents` where given and the visible bytes elsewhere."""
        files: dict[str, bytes] = {}
        for path, inode in tree.files:
            content = contents.get(inode)
            files[path] = self.files[inode].visible if content is None else content
        return DiskImage(files, tree.directories, tree.links)


def _walk(
    children: Mapping[Inode, list[tuple[str, Inode]]],
    directory: Inode,
    prefix: str,
    above: frozenset[Inode],
) -> Iterator[tuple[str, Inode]]:
    for name, inode in children.get(directory, ()):
        # A directory moved below itself by reordered renames hangs on nothing.
        if inode in above:
            continue
        yield prefix + name, inode
        yield from _walk(children, inode, f"{prefix}{name}/", above | {inode})


def _bound(names: Mapping[Name, Inode], bindings: tuple[Binding, ...]) -> dict[Name, Inode]:
    changed = dict(names)
    for name, target in bindings:
        _bind(changed, name, target)
    return changed


def _bind(names: dict[Name, Inode], name: Name, target: Inode | None) -> None:
    if target is None:
        names.pop(name, None)
    else:
        names[name] = target
