"""What a slot holds, and how a real directory differs from that.

Decides what a load did: by the status of each file and directory, which the slot has stamped with a
time of its own, and by reading what that shows to be altered. Does not decide how a directory
becomes an image (`slots`).
"""

from __future__ import annotations

import os
import stat
from typing import Final

from torntail.crash.disk import DiskImage
from torntail.record.real import Real
from torntail.record.tree import (
    LARGEST_FILE_BYTES,
    ForeignEntry,
    TooLarge,
    read_descriptor,
    read_file,
    read_tree,
)

__all__ = ["DIRECTORY_MODE", "FILE_MODE", "Held", "HeldEntry", "above"]

FILE_MODE: Final = 0o600
DIRECTORY_MODE: Final = 0o700
_FILE_STATUS: Final = stat.S_IFREG | FILE_MODE
_DIRECTORY_STATUS: Final = stat.S_IFDIR | DIRECTORY_MODE


class HeldEntry:
    """A file or directory as a slot left it.

    `target` is what it is looked at by: a descriptor kept open, or its path. `content` is None
    while it is not known, and of a directory. `paths` are its names, of which a file may have more
    than one. `stamp` is the modification time it was given, `written` its place in the order in
    which the files were last written.
    """

    __slots__ = ("content", "inode", "paths", "stamp", "target", "written")

    def __init__(self, target: int | str, path: str, inode: int) -> None:
        self.target = target
        self.paths = [path]
        self.inode = inode
        self.content: bytes | None = None
        self.stamp = 0
        self.written = 0


class Held:
    """The files and directories that a slot put below `path`, the root among them as "".

    `links` are the groups of names of one file.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.files: dict[str, HeldEntry] = {}
        self.directories: dict[str, HeldEntry] = {}
        self.links: tuple[tuple[str, ...], ...] = ()
        # The bytes of the files that the last comparison read, by path.
        self._read: dict[str, bytes] = {}

    def full(self, path: str) -> str:
        """The real path of a name."""
        return f"{self.path}/{path}" if path else self.path

    def look(self) -> tuple[list[str], list[str]]:
        """The files and the directories that are not as the slot left them.

        A write, a truncation or a change of entries alters the time that the slot has stamped; a
        file or directory that was replaced or removed shows in the directory it stood in.
        """
        return (
            self._altered(self.files, _FILE_STATUS),
            self._altered(self.directories, _DIRECTORY_STATUS),
        )

    def compare(self, files: list[str], directories: list[str]) -> tuple[str, ...]:
        """The names made, removed or given other bytes, where a look found something altered."""
        self._read.clear()
        names: set[str] = set()
        for path in files:
            self._compare_file(path, self.files[path], names)
        for path in directories:
            self._compare_entries(path, names)
        return tuple(sorted(names))

    def image(self, changed: tuple[str, ...]) -> DiskImage:
        """What stands there now, when the last comparison found so many names changed."""
        if self.links:
            return read_tree(self.path)
        files = {path: entry.content for path, entry in self.files.items()}
        written = {path: entry.written for path, entry in self.files.items()}
        latest = 1 + max(written.values(), default=0)
        directories = set(self.directories)
        directories.discard("")
        for path in changed:
            files.pop(path, None)
            directories.discard(path)
            content = self._read.get(path)
            if content is None:
                try:
                    status = Real.lstat(self.full(path))
                except (FileNotFoundError, NotADirectoryError):
                    continue
                if stat.S_ISDIR(status.st_mode):
                    directories.add(path)
                    continue
                if not stat.S_ISREG(status.st_mode):
                    raise ForeignEntry(path)
                if status.st_nlink > 1:
                    return read_tree(self.path)
                if status.st_size > LARGEST_FILE_BYTES:
                    raise TooLarge(path, status.st_size)
                content, _ = read_file(self.full(path))
            files[path] = content
            written[path] = latest
        known = {path: content for path, content in files.items() if content is not None}
        return DiskImage(known, frozenset(directories), written=written)

    def versions(self, path: str) -> tuple[bytes, ...]:
        """What stood under a name before and after the last comparison found it changed."""
        entry = self.files.get(path)
        found = self._read.get(path)
        if found is None:
            try:
                found, _ = read_file(self.full(path))
            except (OSError, TooLarge):
                pass  # Removed, or a directory, or nothing that could be looked at.
        before = None if entry is None else entry.content
        return tuple(content for content in (before, found) if content is not None)

    # --- comparing ------------------------------------------------------------------------------

    def _altered(self, entries: dict[str, HeldEntry], status_mode: int) -> list[str]:
        altered = []
        for path, entry in entries.items():
            try:
                status = Real.stat(entry.target)
            except OSError:
                altered.append(path)
                continue
            if (
                status.st_mtime_ns != entry.stamp
                or status.st_mode != status_mode
                or status.st_ino != entry.inode
            ):
                altered.append(path)
        return altered

    def _compare_file(self, path: str, entry: HeldEntry, names: set[str]) -> None:
        """Adds a file whose bytes are not what they were."""
        content = None
        try:
            status = Real.lstat(self.full(path))
            if status.st_size > LARGEST_FILE_BYTES:
                raise TooLarge(path, status.st_size)
            if isinstance(entry.target, int) and status.st_ino == entry.inode:
                content = read_descriptor(entry.target, status.st_size)
            elif stat.S_ISREG(status.st_mode):
                content, _ = read_file(self.full(path))
        except (FileNotFoundError, NotADirectoryError):
            pass
        if content is None or content != entry.content:
            names.add(path)
            if content is not None:
                self._read[path] = content

    def _compare_entries(self, directory: str, names: set[str]) -> None:
        """Adds the names that came into a directory, and what was in directories that left it."""
        found = set()
        try:
            with os.scandir(self.full(directory)) as entries:
                for entry in entries:
                    path = f"{directory}/{entry.name}" if directory else entry.name
                    is_directory = entry.is_dir(follow_symlinks=False)
                    held = (self.directories if is_directory else self.files).get(path)
                    if held is None:
                        names.add(path)
                        if is_directory:
                            names.update(f"{path}/{name}" for name in _all_below(entry.path))
                    elif held.inode == entry.inode():
                        found.add(path)
                    elif is_directory:
                        # Another directory under the old name: all below is compared by its name.
                        found.add(path)
                        self._compare_below(path, names)
        except (FileNotFoundError, NotADirectoryError):
            pass  # Its own name is missed where it stood.
        for path in self.directories:
            if path and above(path) == directory and path not in found:
                names.add(path)
                self._compare_below(path, names)
        for path, file in self.files.items():
            if above(path) == directory and path not in found:
                self._compare_file(path, file, names)

    def _compare_below(self, directory: str, names: set[str]) -> None:
        self._compare_entries(directory, names)
        for path in self.directories:
            if path.startswith(directory + "/"):
                self._compare_entries(path, names)


def above(path: str) -> str:
    """The path of the directory a path is in, "" for the root."""
    return path.rpartition("/")[0]


def _all_below(directory: str) -> list[str]:
    """The names of everything below a real directory, relative to it."""
    below = []
    with os.scandir(directory) as entries:
        for entry in entries:
            below.append(entry.name)
            if entry.is_dir(follow_symlinks=False):
                below.extend(f"{entry.name}/{name}" for name in _all_below(entry.path))
    return below
