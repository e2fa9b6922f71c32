"""A real directory as a disk image, and its removal.

Decides what counts as the content of a directory: names, bytes, and which names are one file. Modes
and times are left out, as in the op log. Reads with the real functions, never with wrapped ones.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from typing import Final

from torntail.crash.disk import DiskImage
from torntail.record.real import Real

__all__ = [
    "LARGEST_FILE_BYTES",
    "ForeignEntry",
    "TooLarge",
    "read_descriptor",
    "read_file",
    "read_tree",
    "remove_tree",
]

LARGEST_FILE_BYTES: Final = 1 << 28
"""No longer file is held in memory, of which an image needs several versions."""

_BLOCK_BYTES: Final = 1 << 20
_READ: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


class ForeignEntry(Exception):
    """A directory holds something a disk image cannot: a link, a pipe, a socket or a device."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path

    def __str__(self) -> str:
        return f"{self.path!r} is neither a regular file nor a directory"


class TooLarge(ForeignEntry):
    """A file is longer than a disk image can hold; most of it may be a hole."""

    def __init__(self, path: str, size_bytes: int) -> None:
        super().__init__(path)
        self.size_bytes = size_bytes

    @property
    def reason(self) -> str:
        """What is wrong with it."""
        return f"is {self.size_bytes:,} bytes long: {LARGEST_FILE_BYTES:,} are looked at at most"

    def __str__(self) -> str:
        return f"{self.path!r} {self.reason}"


def read_tree(root: str) -> DiskImage:
    """What stands below `root`; raises `ForeignEntry`, or OSError for what cannot be read."""
    files: dict[str, bytes] = {}
    directories: set[str] = set()
    places: dict[int, list[str]] = {}
    waiting = [(root, "")]
    while waiting:
        directory, prefix = waiting.pop()
        with os.scandir(directory) as entries:
            for entry in entries:
                path = prefix + entry.name
                if entry.is_file(follow_symlinks=False):
                    try:
                        files[path], status = read_file(entry.path)
                    except TooLarge as error:
                        raise TooLarge(path, error.size_bytes) from None
                    if status.st_nlink > 1:
                        places.setdefault(status.st_ino, []).append(path)
                elif entry.is_dir(follow_symlinks=False):
                    directories.add(path)
                    waiting.append((entry.path, path + "/"))
                else:
                    raise ForeignEntry(path)
    links = tuple(sorted(tuple(sorted(paths)) for paths in places.values() if len(paths) > 1))
    return DiskImage(files, frozenset(directories), links)


def read_file(path: str) -> tuple[bytes, os.stat_result]:
    """A file's bytes, and its status before they were read."""
    descriptor = Real.open_descriptor(path, _READ)
    try:
        status = Real.stat(descriptor)
        if status.st_size > LARGEST_FILE_BYTES:
            raise TooLarge(path, status.st_size)
        return read_descriptor(descriptor, status.st_size), status
    finally:
        os.close(descriptor)


def read_descriptor(descriptor: int, size: int) -> bytes:
    """The bytes of an open file, which is about `size` long; its position stays where it is."""
    content = Real.pread(descriptor, size + 1, 0)
    if len(content) != size:  # It changed meanwhile, or is longer than one read goes.
        while more := Real.pread(descriptor, _BLOCK_BYTES, len(content)):
            content += more
    return content


def remove_tree(path: str) -> None:
    """Removes a directory and all below it, also what a store made unwritable.

    What is gone already is no error.
    """
    try:
        os.chmod(path, stat.S_IRWXU)
        with os.scandir(path) as found:
            entries = list(found)
    except FileNotFoundError:
        return
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            remove_tree(entry.path)
        else:
            _quietly(Real.unlink, entry.path)
    _quietly(Real.rmdir, path)


def _quietly(remove: Callable[[str], None], path: str) -> None:
    try:
        remove(path)
    except OSError as error:
        if error.errno != errno.ENOENT:
            raise
