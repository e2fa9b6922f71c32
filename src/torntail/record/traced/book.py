"""The helper's book: which real file is which inode of the log, and the log, as plain tuples.

The same rules of identity as `record.ledger` has for this process, without its values, which are
slow to import. An entry is the tag of an `oplog` operation and its fields, or one of:
`("output", child, bytes)`; `("fsync-failed", inode, pages, content)`; `("unfinished", inode)`, a
write whose process was killed in it.
"""

from __future__ import annotations

import os

from torntail.record.traced.maps import Maps

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

    Place = tuple[int, str]
    Key = tuple[int, int]

__all__ = ["Book"]


_NO_STORAGE: Final = (b"/dev/", b"/proc/", b"/sys/")


class Book:
    """One recording of the directory `root`.

    `names` are its entries at the beginning, parents before children: parent, name, inode, and
    whether it is a directory.
    """

    __slots__ = (
        "_keys",
        "_links",
        "_nameless",
        "directories",
        "entries",
        "identities",
        "ignored",
        "maps",
        "names",
        "next_inode",
        "outside",
        "problems",
        "root",
    )

    def __init__(self, root: str, names: list[tuple[int, str, int, bool]], next_inode: int) -> None:
        self.root = root
        self.entries: list[tuple[Any, ...]] = []
        self.problems: list[tuple[str, str, str]] = []
        self.outside: str | None = None
        self.names: dict[Place, int] = {}
        self.directories = {0}
        self.ignored: set[int] = set()
        self.next_inode = next_inode
        self.identities: dict[Key, int] = {}
        self._keys: dict[int, Key] = {}
        self._links: dict[int, int] = {}
        self._nameless: set[int] = set()
        self.maps = Maps(self)
        self._identify(0, os.stat(root))
        for parent, name, inode, is_directory in names:
            if is_directory:
                self.directories.add(inode)
            place = (parent, name)
            status = os.lstat(f"{root}/{self.path_of(place)}")
            self._identify(inode, status)
            self.bind(place, inode)

    # --- identity -------------------------------------------------------------------------------

    def _identify(self, inode: int, status: os.stat_result) -> None:
        key = (status.st_dev, status.st_ino)
        former = self.identities.get(key)
        if former is not None and former != inode:
            self._forget(former)
        self.identities[key] = inode
        self._keys[inode] = key

    def _forget(self, inode: int) -> None:
        key = self._keys.pop(inode, None)
        if key is not None:
            del self.identities[key]
        self._nameless.discard(inode)

    def inode_with(self, status: os.stat_result | None) -> int | None:
        """The inode of a real file, None for one outside the recorded directory."""
        if status is None:
            return None
        inode = self.identities.get((status.st_dev, status.st_ino))
        if inode in self._nameless and status.st_nlink:
            # It had no name left, this one has: another file, outside, under the same number.
            assert inode is not None
            self._forget(inode)
            return None
        return inode

    def inode_at(self, path: bytes, *, follow: bool = True) -> int | None:
        """The inode a path leads to; None for nothing or something outside."""
        try:
            return self.inode_with(os.stat(path, follow_symlinks=follow))
        except (OSError, ValueError):
            return None

    def place(self, path: bytes) -> Place | None:
        """The place a path names, None if its directory is not in the recorded one."""
        if not path:
            return None
        above, slash, name = (path.rstrip(b"/") or path).rpartition(b"/")
        try:
            parent = self.inode_with(os.stat(above or slash))
        except (OSError, ValueError):
            return None
        return None if parent is None else (parent, os.fsdecode(name))

    # --- names ----------------------------------------------------------------------------------

    def bind(self, place: Place, inode: int) -> None:
        """A name stands for `inode` from now on."""
        self.unbind(place)
        self.names[place] = inode
        self._links[inode] = self._links.get(inode, 0) + 1
        self._nameless.discard(inode)
        # SQLite's index of its log: shared memory that is made anew after a crash.
        if place[1].endswith("-shm") and (place[0], place[1][:-4]) in self.names:
            self.ignored.add(inode)

    def unbind(self, place: Place) -> None:
        """A name stands for nothing any more."""
        inode = self.names.pop(place, None)
        if inode is not None:
            self._links[inode] -= 1
            if not self._links[inode]:
                self._nameless.add(inode)

    # --- the log --------------------------------------------------------------------------------

    def made(self, tag: str, place: Place, status: os.stat_result) -> None:
        """Logs the making of the file or directory that takes the next inode."""
        if place in self.names:
            self.problem("unseen", place, "was removed by a call that was not seen")
        inode = self.next_inode
        self.next_inode += 1
        if tag == "mkdir":
            self.directories.add(inode)
        self._identify(inode, status)
        self.bind(place, inode)
        self.entries.append((tag, *place, inode))

    def wrote(self, inode: int, offset: int, data: bytes, synced: bool) -> None:
        """Logs bytes that landed."""
        if data and inode not in self.ignored:
            self.entries.append(("write", inode, offset, data, synced))
            self.maps.wrote(inode, offset, data)

    def resized(self, inode: int, length: int) -> None:
        """Logs a new length."""
        if inode not in self.ignored:
            self.entries.append(("truncate", inode, length))
            self.maps.resized(inode, length)

    def moved_out(self, place: Place) -> None:
        """The file at `place` was renamed out of the recorded directory."""
        inode = self.names.get(place)
        self.unbind(place)
        if inode in self._nameless:
            assert inode is not None
            self._forget(inode)

    def strays(self, path: bytes) -> None:
        """A file outside the recorded directory was opened for writing; the first is kept."""
        if self.outside is None:
            found = os.path.realpath(path)
            if not found.startswith(_NO_STORAGE) and b"/__pycache__/" not in found:
                self.outside = os.fsdecode(found)

    def problem(self, kind: str, place: Place, reason: str) -> None:
        """Notes what makes the recording worthless: `unseen` or `unmodelled`."""
        self.problems.append((kind, self.path_of(place), reason))

    def problem_with(self, inode: int, reason: str) -> None:
        """Notes an operation on a file that the log has no word for."""
        path = self.path_to(inode) or self.root
        self.problems.append(("unmodelled", path[len(self.root) + 1 :], reason))

    def path_of(self, place: Place) -> str:
        """A path of a place, relative to the recorded directory."""
        parent, name = place
        parts = [name]
        above = {inode: place for place, inode in self.names.items() if inode in self.directories}
        while parent in above and len(parts) <= len(above):
            parent, name = above[parent]
            parts.append(name)
        return "/".join(reversed(parts))

    def real_path(self, place: Place) -> str:
        """Where a place is."""
        return f"{self.root}/{self.path_of(place)}"

    def path_to(self, inode: int) -> str | None:
        """Where a file is, None if it has no name."""
        for place, other in self.names.items():
            if other == inode:
                return self.real_path(place)
        return None

    def stands(self, place: Place) -> bool:
        """Whether there is anything at a place."""
        return os.path.lexists(self.real_path(place))
