"""Writable shared mappings: what a child stores into a file without a call.

Decides when such stores enter the log: at the next call that stops, at a sync, and at the end, as
writes of whole pages, in order of the file. A file is watched from the first such mapping on for as
long as it is recorded, so that unmapping needs no stop. Which of two stores came first between two
stops is not known; a crash model may order unsynced pages as it likes anyway.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

    from torntail.record.traced.book import Book
    from torntail.record.traced.thread import Thread

__all__ = ["Maps"]

_PAGE_BYTES: Final = 4096
_BLOCK_BYTES: Final = 1 << 24


class _Watched:
    """A mapped file: a descriptor of it, what it is known to hold, and its pages not synced."""

    __slots__ = ("content", "descriptor", "dirty")

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.content = bytearray(_all_of(descriptor))
        self.dirty: set[int] = set()


class Maps:
    """The mapped files of a book."""

    __slots__ = ("_book", "_watched")

    def __init__(self, book: Book) -> None:
        self._book = book
        self._watched: dict[int, _Watched] = {}

    def __bool__(self) -> bool:
        return bool(self._watched)

    def watch(self, inode: int, thread: Thread, descriptor: int) -> None:
        """A thread has mapped a file of the book so that it can store into it."""
        if inode not in self._watched and inode not in self._book.ignored:
            path = thread.open_file(descriptor)
            self._watched[inode] = _Watched(os.open(path, os.O_RDONLY | os.O_CLOEXEC))

    def look(self) -> None:
        """Logs what was stored since the last look."""
        for inode, watched in self._watched.items():
            found = _all_of(watched.descriptor)
            known = watched.content
            if found == known:
                continue
            if len(found) != len(known):
                # Its length changed past the tracer: left to the acceptance check.
                known = known[: len(found)].ljust(len(found), b"\0")
            for start in range(0, len(found), _PAGE_BYTES):
                page = found[start : start + _PAGE_BYTES]
                if page != known[start : start + _PAGE_BYTES]:
                    self._book.entries.append(("write", inode, start, page, False))
                    watched.dirty.add(start)
            watched.content = bytearray(found)

    def wrote(self, inode: int, offset: int, data: bytes) -> None:
        """A call wrote to a file."""
        watched = self._watched.get(inode)
        if watched is not None:
            content = watched.content
            if len(content) < offset:
                content.extend(bytes(offset - len(content)))
            content[offset : offset + len(data)] = data
            end = offset + len(data)
            watched.dirty.update(range(offset // _PAGE_BYTES * _PAGE_BYTES, end, _PAGE_BYTES))

    def resized(self, inode: int, length: int) -> None:
        """A call changed the length of a file."""
        watched = self._watched.get(inode)
        if watched is not None:
            content = watched.content
            del content[length:]
            content.extend(bytes(length - len(content)))

    def synced(self, inode: int | None) -> None:
        """A file, or all, was synced as a whole."""
        for other, watched in self._watched.items():
            if inode is None or other == inode:
                watched.dirty.clear()

    def synced_range(self, inode: int, start: int, end: int) -> None:
        """Logs that some pages are durable: as synced writes, or as an fsync if that is all."""
        watched = self._watched.get(inode)
        if watched is None or (start == 0 and end >= len(watched.content)):
            self._book.entries.append(("fsync", inode))
            self.synced(inode)
            return
        for page in sorted(watched.dirty):
            if start <= page < end:
                data = bytes(watched.content[page : page + _PAGE_BYTES])
                if data:
                    self._book.entries.append(("write", inode, page, data, True))
                watched.dirty.discard(page)

    def close(self) -> None:
        """Lets go of the files."""
        for watched in self._watched.values():
            os.close(watched.descriptor)
        self._watched.clear()


def _all_of(descriptor: int) -> bytes:
    size = os.fstat(descriptor).st_size
    content = os.pread(descriptor, size, 0)
    while len(content) < size:
        more = os.pread(descriptor, _BLOCK_BYTES, len(content))
        if not more:
            break
        content += more
    return content
