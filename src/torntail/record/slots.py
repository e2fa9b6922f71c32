"""A directory that holds one disk image after the other.

Decides how a directory becomes an image with the least work: by the difference from the image
before and from what a load left behind. What a load did is found by the status of each file and
directory: after each change the slot stamps a modification time of its own, in the past, so that
any later change shows, however coarse the clock of the file system is. The times of files are in
the order in which they were last written, as far as the image knows it, and none comes a second
time, so that a store which knows a file by its time and size sees that it has changed. Files get
mode 0600 and directories 0700; hard links of the image are hard links.

A file keeps its inode from image to image, and an earlier store that left it open could still write
to it, which shows only as a change by the load of that moment: `fresh_inodes` and `renew` are
against that. Files are kept open between images, and closing one drops the POSIX locks this process
has on it: a store of this process that locks so, SQLite among them, is to be closed before `hold`.

Does not decide which images are held, or whether a load may change anything.
"""

from __future__ import annotations

import os
import time
from types import TracebackType
from typing import Final, Self

from torntail.crash.disk import DiskImage
from torntail.record.held import DIRECTORY_MODE, FILE_MODE, Held, HeldEntry, above
from torntail.record.real import Real
from torntail.record.replay import first_difference
from torntail.record.scratch import FULL, Scratch, ScratchFull
from torntail.record.tree import read_tree, remove_tree

__all__ = ["Slot"]

_KEPT_OPEN: Final = 64
_WRITE_WHOLE_BYTES: Final = 1 << 16
_SECOND: Final = 10**9
_ORDER: Final = 1 << 20
"""How many places the order of writes has; what comes later has the last."""

_MAKE: Final = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
_CHANGE: Final = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW


class Slot:
    """One directory, `path`, made in `scratch` and removed when the slot is closed.

    With `fresh_inodes`, a file that a load changed is replaced by a new one at the next `hold`
    instead of being written over.
    """

    def __init__(self, scratch: Scratch, *, fresh_inodes: bool = False) -> None:
        self.fresh_inodes = fresh_inodes
        self._scratch = scratch
        # Whole seconds, which every file system keeps, for the order; never a time to come.
        self._begin = (time.time_ns() // _SECOND - _ORDER - 1) * _SECOND
        self._changes = 0
        # The directories as the image named them, or None when some may be missing.
        self._shape: frozenset[str] | None = None
        # What the last look found, until the next image is held.
        self._seen: tuple[list[str], list[str]] | None = None
        self._changed: tuple[str, ...] = ()
        self._descriptors = 0
        self._known = False
        self._closed = False
        self.path = scratch.new_directory()
        self._held = Held(self.path)

    # --- holding images -------------------------------------------------------------------------

    def hold(self, image: DiskImage, *, renew: bool = False, untouched: bool = False) -> None:
        """Makes the directory hold `image`; with `renew`, in files and directories all new.

        `untouched`: nothing was done in it since the last `changed`, which need not look again.
        Raises `ScratchFull`; the slot can be used again when there is room.
        """
        if self._closed:
            raise ValueError("the slot is closed")
        try:
            try:
                if renew or not self._known:
                    self._start_over()
                else:
                    self._find_what_was_left(untouched)
                self._become(image)
            except OSError as error:
                if error.errno in FULL:
                    raise
                # A load may have left anything, such as a directory that cannot be written.
                self._start_over()
                self._become(image)
        except BaseException as error:
            self._known = False
            if isinstance(error, OSError) and error.errno in FULL:
                raise ScratchFull(self._scratch.path, error) from error
            raise

    def _become(self, image: DiskImage) -> None:
        files = self._held.files
        wanted = image.files
        touched: set[str] = set()
        if image.links != self._held.links:
            # A group of names that comes or goes: its files are made anew.
            for paths in set(self._held.links) ^ set(image.links):
                for path in paths:
                    if path in files:
                        self._remove_file(path, touched)
            self._held.links = image.links
        if not files.keys() <= wanted.keys():
            for path in [path for path in files if path not in wanted]:
                self._remove_file(path, touched)
        if self._shape is not image.directories:
            if self._shape != image.directories:
                self._change_directories(image.directories, touched)
            self._shape = image.directories
        written = image.written
        for path, content in wanted.items():
            entry = files.get(path)
            place = written.get(path, 0)
            if entry is None:
                self._make_file(path, _first_path(image, path), content, place, touched)
                continue
            if entry.content is not content:
                if entry.content != content:
                    entry.written = place
                    self._write(entry, content)
                entry.content = content
            if entry.written != place:
                entry.written = place
                self._stamp(entry, entry.target)
        for path in touched:
            self._stamp_directory(path)

    def _change_directories(self, wanted: frozenset[str], touched: set[str]) -> None:
        for path in sorted(self._held.directories.keys() - wanted - {""}, reverse=True):
            Real.rmdir(self._held.full(path))
            self._drop(self._held.directories.pop(path))
            touched.discard(path)
            touched.add(above(path))
        for path in sorted(wanted - self._held.directories.keys()):
            Real.mkdir(self._held.full(path), DIRECTORY_MODE)
            touched.update((path, above(path)))

    def _make_file(
        self, path: str, first: str, content: bytes, written: int, touched: set[str]
    ) -> None:
        touched.add(above(path))
        if first != path:
            if first not in self._held.files:
                self._make_file(first, first, content, written, touched)
            entry = self._held.files[first]
            Real.link(self._held.full(first), self._held.full(path))
            entry.paths.append(path)
            self._held.files[path] = entry
            return
        descriptor = Real.open_descriptor(self._held.full(path), _MAKE, FILE_MODE)
        keep = self._descriptors < _KEPT_OPEN
        self._descriptors += keep
        entry = HeldEntry(descriptor, path, 0)
        self._held.files[path] = entry
        os.fchmod(descriptor, FILE_MODE)
        entry.inode = Real.fstat(descriptor).st_ino
        entry.content = b""
        entry.written = written
        try:
            self._write(entry, content)
            entry.content = content
        finally:
            if not keep:
                os.close(descriptor)
                entry.target = self._held.full(path)

    def _write(self, entry: HeldEntry, content: bytes) -> None:
        """Writes what differs; afterwards the file has the bytes and length of `content`."""
        before = entry.content
        entry.content = None
        descriptor = entry.target
        if isinstance(descriptor, str):
            descriptor = Real.open_descriptor(descriptor, _CHANGE)
        try:
            start = 0
            if before is None:
                Real.ftruncate(descriptor, len(content))
            elif len(before) > len(content):
                Real.ftruncate(descriptor, len(content))
                if before.startswith(content):
                    start = len(content)
            if before and len(content) > _WRITE_WHOLE_BYTES:
                start = first_difference(before, content)
            while start < len(content):
                start += Real.pwrite(descriptor, content[start:] if start else content, start)
            self._stamp(entry, descriptor)
        finally:
            if descriptor != entry.target:
                os.close(descriptor)

    def _stamp(self, entry: HeldEntry, target: int | str) -> None:
        """Gives a file or directory a time that it never had before."""
        self._changes = (self._changes + 1) % _SECOND
        stamp = self._begin + min(entry.written, _ORDER) * _SECOND + self._changes
        entry.stamp = stamp
        os.utime(target, ns=(stamp, stamp))

    def _stamp_directory(self, path: str) -> None:
        entry = self._held.directories.get(path)
        if entry is None:
            full_path = self._held.full(path)
            entry = HeldEntry(full_path, path, 0)
            self._held.directories[path] = entry
            # The root by its path, for a load may put another directory in its place.
            if path and self._descriptors < _KEPT_OPEN:
                entry.target = Real.open_descriptor(full_path, _DIRECTORY)
                self._descriptors += 1
            os.chmod(entry.target, DIRECTORY_MODE)
            entry.inode = Real.stat(entry.target).st_ino
        self._stamp(entry, entry.target)

    def _remove_file(self, path: str, touched: set[str]) -> None:
        Real.unlink(self._held.full(path))
        touched.add(above(path))
        self._lose_file(path)

    def _lose_file(self, path: str) -> None:
        entry = self._held.files.pop(path)
        entry.paths.remove(path)
        if not entry.paths:
            self._drop(entry)

    def _drop(self, entry: HeldEntry) -> None:
        if isinstance(entry.target, int):
            os.close(entry.target)
            self._descriptors -= 1

    def _start_over(self) -> None:
        """An empty directory, of which everything is known."""
        self._forget_all()
        remove_tree(self.path)
        Real.mkdir(self.path, DIRECTORY_MODE)
        self._stamp_directory("")
        self._shape = frozenset()
        self._known = True

    def _forget_all(self) -> None:
        for entry in {*self._held.files.values(), *self._held.directories.values()}:
            self._drop(entry)
        self._held.files.clear()
        self._held.directories.clear()
        self._held.links = ()

    # --- what a load did ------------------------------------------------------------------------

    def changed(self) -> tuple[str, ...]:
        """The names made, removed or given other bytes since `hold`, sorted.

        A file that was only touched, or replaced by one of equal bytes, is not among them.
        """
        if self._closed or not self._known:
            raise ValueError("the slot holds no image")
        self._seen = files, directories = self._held.look()
        self._changed = ()
        if files or directories:
            self._changed = self._held.compare(files, directories)
        return self._changed

    def versions(self, path: str) -> tuple[bytes, ...]:
        """What a file among the last `changed` holds and held, as far as there was such a file."""
        return self._held.versions(path)

    def image(self, *, untouched: bool = False) -> DiskImage:
        """What the directory holds now, read back; raises `tree.ForeignEntry`.

        `untouched`: nothing was done in it since the last `changed`; only what that found is read.
        """
        # Where the root itself is altered, it may be gone, or another.
        if untouched and self._known and self._seen is not None and "" not in self._seen[1]:
            return self._held.image(self._changed)
        return read_tree(self.path)

    def _find_what_was_left(self, untouched: bool) -> None:
        """Removes what a load made, and finds out what it changed or removed."""
        files, directories = self._seen if untouched and self._seen else self._held.look()
        self._seen = None
        if not files and not directories:
            return
        for path in sorted(directories):
            if path in self._held.directories:
                self._clean(path)
        touched: set[str] = set()
        for path in files:
            entry = self._held.files.get(path)
            if entry is None:
                continue
            if self.fresh_inodes or len(entry.paths) > 1 or isinstance(entry.target, str):
                for name in list(entry.paths):
                    self._remove_file(name, touched)
            else:
                entry.content = None
                os.fchmod(entry.target, FILE_MODE)
        if self._held.links:
            self._dissolve_broken_groups(touched)
        for path in touched:
            self._stamp_directory(path)

    def _dissolve_broken_groups(self, touched: set[str]) -> None:
        """Removes what is left of a file that lost one of its names."""
        kept = []
        for paths in self._held.links:
            left = [path for path in paths if path in self._held.files]
            if len(left) == len(paths):
                kept.append(paths)
                continue
            for path in left:
                self._remove_file(path, touched)
        self._held.links = tuple(kept)

    def _clean(self, directory: str) -> None:
        """Removes from a directory what the slot did not put there, and forgets what is gone."""
        found = set()
        with os.scandir(self._held.full(directory)) as entries:
            left = list(entries)
        for entry in left:
            path = f"{directory}/{entry.name}" if directory else entry.name
            is_directory = entry.is_dir(follow_symlinks=False)
            held = (self._held.directories if is_directory else self._held.files).get(path)
            if held is not None and held.inode == entry.inode():
                found.add(path)
            elif is_directory:
                remove_tree(entry.path)
            else:
                Real.unlink(entry.path)
        for path in [path for path in self._held.directories if path and above(path) == directory]:
            if path not in found:
                self._lose_directory(path)
        for path in [path for path in self._held.files if above(path) == directory]:
            if path not in found:
                self._lose_file(path)
        os.chmod(self._held.directories[directory].target, DIRECTORY_MODE)
        self._stamp_directory(directory)

    def _lose_directory(self, path: str) -> None:
        self._shape = None
        below = path + "/"
        for name in [name for name in self._held.files if name.startswith(below)]:
            self._lose_file(name)
        for name in [
            name for name in self._held.directories if name == path or name.startswith(below)
        ]:
            self._drop(self._held.directories.pop(name))

    # --- the end --------------------------------------------------------------------------------

    def close(self) -> None:
        """Removes the directory; again is harmless."""
        if not self._closed:
            self._closed = True
            self._forget_all()
            remove_tree(self.path)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _first_path(image: DiskImage, path: str) -> str:
    """The name under which a file is made; its other names are linked to that."""
    for paths in image.links:
        if path in paths:
            return paths[0]
    return path
