"""The book of a recording: which real file is which inode of the log, and the log itself.

Decides identity. A real file is known by device and inode number while it lives; a number that
comes back belongs to a new file. An open descriptor is asked for that pair at each call rather than
followed from its opening on, so descriptors that were duplicated, inherited, or opened before the
file's name changed need no rule of their own. A place is known by the identity of its directory,
so symbolic links, relative paths and directory descriptors need none either.

Does not decide which calls are seen (`calls`).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

from torntail.crash.disk import Disk, Name
from torntail.crash.oplog import ROOT, Inode, Operation
from torntail.record.problems import RecordingFailed, Unmodelled, UnseenWrite
from torntail.record.real import Real
from torntail.record.tree import LARGEST_FILE_BYTES, TooLarge

__all__ = ["Before", "CrashNow", "Cut", "Ledger", "Opening", "Switch"]


class CrashNow(BaseException):
    """Raised by a `before` hook to stand for the end of the process.

    No Exception, so that a store that forgives errors does not forgive its own death. What a store
    does in `except BaseException` and `finally` still runs: a hook that has raised this once must
    go on raising it, for a dead process changes no file.
    """


class Cut(NamedTuple):
    """A hook's answer for a write: only the first `length` bytes of it are carried out.

    Then `error` is raised if there is one; without, the store sees a short write.
    """

    length: int
    error: BaseException | None = None


Before = Callable[[Operation], Cut | None]
"""Called before an operation is carried out, with the recorder's lock held.

It may raise, and then nothing is done and nothing is logged; a `Cut` shortens a write and means
nothing for other operations. None lets the operation go on. The index that the operation will have
in the log is the length of `Recorder.operations` at that moment.
"""

Opening = Callable[[Inode], None]
"""Called before a file that is there is opened for writing, which is no operation of the log.

It may raise, and then the file is not opened.
"""


class Ledger:
    """The state of one recording that begins on `disk`, which `root` really holds."""

    __slots__ = (
        "_keys",
        "_links",
        "_nameless",
        "before",
        "directories",
        "identities",
        "lock",
        "names",
        "next_inode",
        "opening",
        "operations",
        "problems",
        "root",
    )

    def __init__(
        self, root: str, disk: Disk, before: Before | None, opening: Opening | None = None
    ) -> None:
        self.root = root
        self.before = before
        self.opening = opening
        # Held around a call and its entry, so that the log's order is the order of effects.
        # Re-entrant: the cyclic garbage collector or a signal handler may close a file in between.
        self.lock = threading.RLock()
        self.operations: list[Operation] = []
        self.problems: list[RecordingFailed] = []
        self.names: dict[Name, Inode] = {}
        self.directories: set[Inode] = set(disk.directories)
        self.next_inode: Inode = 1 + max((ROOT, *disk.files, *disk.directories))
        self.identities: dict[tuple[int, int], Inode] = {}
        self._keys: dict[Inode, tuple[int, int]] = {}
        self._links: dict[Inode, int] = {}
        self._nameless: set[Inode] = set()
        self._adopt(disk)

    def _adopt(self, disk: Disk) -> None:
        """Finds the real file of every name of the disk that hangs on its root."""
        children: dict[Inode, list[Name]] = {}
        for place in disk.names:
            children.setdefault(place.parent, []).append(place)
        self._identify(ROOT, Real.stat(self.root))
        waiting = [(ROOT, self.root)]
        while waiting:
            directory, path = waiting.pop()
            for place in children.get(directory, ()):
                inode = disk.names[place]
                below = f"{path}/{place.name}"
                if inode in disk.directories and inode in self._keys:
                    raise Unmodelled(self.relative(below), "is a second name of one directory")
                self._identify(inode, Real.lstat(below))
                self.bind(place, inode)
                if inode in disk.directories:
                    waiting.append((inode, below))

    # --- identity -------------------------------------------------------------------------------

    def _identify(self, inode: Inode, status: os.stat_result) -> None:
        key = (status.st_dev, status.st_ino)
        former = self.identities.get(key)
        if former is not None and former != inode:
            self._forget(former)
        self.identities[key] = inode
        self._keys[inode] = key

    def _forget(self, inode: Inode) -> None:
        """The real file of `inode` is gone for good, or has left the recorded directory."""
        key = self._keys.pop(inode, None)
        if key is not None:
            del self.identities[key]
        self._nameless.discard(inode)

    def inode_with(self, status: os.stat_result) -> Inode | None:
        """The inode of a real file, or None for one outside the recorded directory."""
        inode = self.identities.get((status.st_dev, status.st_ino))
        if inode in self._nameless and status.st_nlink:
            # It had no name left, this one has: another file, outside, under the same number.
            assert inode is not None
            self._forget(inode)
            return None
        return inode

    def inode_of(self, descriptor: Any) -> Inode | None:
        """The inode of an open descriptor; None also for what is no open descriptor."""
        try:
            status = Real.fstat(descriptor)
        except (OSError, TypeError, OverflowError):
            return None
        return self.inode_with(status)

    def inode_at(self, path: Any, directory: int | None = None) -> Inode | None:
        """The inode a path leads to, links followed; None for nothing or something outside."""
        try:
            return self.inode_with(Real.stat(path, dir_fd=directory))
        except (OSError, TypeError, ValueError):
            return None

    def place(self, path: Any, directory: int | None = None) -> Name | None:
        """The place a path names, or None if its directory is not in the recorded one.

        None also for what is no path: the real call says so better.
        """
        try:
            text = os.fsdecode(path)
            above, slash, name = (text.rstrip("/") or text).rpartition("/")
            status = Real.stat(above or slash or ".", dir_fd=directory)
        except (OSError, TypeError, ValueError):
            return None
        parent = self.inode_with(status)
        return None if parent is None else Name(parent, name)

    # --- names ----------------------------------------------------------------------------------

    def bind(self, place: Name, inode: Inode) -> None:
        """A name stands for `inode` from now on."""
        self.unbind(place)
        self.names[place] = inode
        self._links[inode] = self._links.get(inode, 0) + 1
        self._nameless.discard(inode)

    def unbind(self, place: Name) -> None:
        """A name stands for nothing any more."""
        inode = self.names.pop(place, None)
        if inode is not None:
            self._links[inode] -= 1
            if not self._links[inode]:
                self._nameless.add(inode)

    # --- the log --------------------------------------------------------------------------------

    def consult(self, operation: Operation) -> Cut | None:
        """Asks the hook; raises what it raises."""
        return None if self.before is None else self.before(operation)

    def made(self, operation: Operation, place: Name, status: os.stat_result) -> None:
        """Logs the making of the file or directory that takes the next inode."""
        if place in self.names:
            self.unseen(place, "was removed by a call that was not seen")
        inode = self.next_inode
        self.next_inode += 1
        self._identify(inode, status)
        self.bind(place, inode)
        self.operations.append(operation)

    def left(self, place: Name) -> None:
        """The file at `place` was renamed out of the recorded directory."""
        inode = self.names.get(place)
        self.unbind(place)
        if inode in self._nameless:
            assert inode is not None
            self._forget(inode)

    def unseen(self, place: Name, reason: str) -> None:
        """Notes that something was done past the recorder."""
        self.problems.append(UnseenWrite(self.path_of(place), reason))

    def unmodelled(self, place: Name, reason: str) -> None:
        """Notes an operation the log has no word for."""
        self.problems.append(Unmodelled(self.path_of(place), reason))

    def check_length(self, inode: Inode, length: int) -> None:
        """Notes that a file has become longer than a disk image can hold."""
        if length > LARGEST_FILE_BYTES:
            places = [place for place, named in self.names.items() if named == inode]
            path = self.path_of(places[0]) if places else "a file without a name"
            self.problems.append(Unmodelled(path, TooLarge(path, length).reason))

    def path_of(self, place: Name) -> str:
        """A path of a place, relative to the recorded directory."""
        parts = [place.name]
        parent = place.parent
        above = {inode: name for name, inode in self.names.items()}
        while parent in above and len(parts) <= len(above):
            parts.append(above[parent].name)
            parent = above[parent].parent
        return "/".join(reversed(parts))

    def relative(self, path: str) -> str:
        """A path below the root, without the root."""
        return path.removeprefix(self.root).lstrip("/")


class Switch:
    """Base of the wrappers: `ledger` is the recording in progress, None while there is none.

    The wrappers are bound methods of such an object and no plain functions, because a plain
    function kept in a class attribute would turn into a method, which the built-in functions they
    replace do not.
    """

    ledger: Ledger | None = None
