"""What is done to a child's calls, on the helper's side: which call is struck, and bookkeeping.

Decides the counting. A strike is a mapping, the fields of `values.Strike`; carrying it out is the
tracer's. For a failed fsync whose pages go back to what the disk holds, the contents at the last
successful sync are kept here, from the moment such a strike is known.
"""

from __future__ import annotations

import errno
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

    from torntail.record.traced.book import Book

__all__ = ["Strikes"]

_BESIDE: Final = frozenset({"read", "open"})
"""Kinds that change nothing, and that `any` does not mean."""

_READ_BYTES: Final = 1 << 24


class _Armed:
    """A strike and how many calls of its kind it has seen."""

    __slots__ = ("fields", "seen")

    def __init__(self, fields: dict[str, Any]) -> None:
        self.fields = fields
        self.seen = 0

    def hits(self, kind: str) -> bool:
        on: str = self.fields["on"]
        if on != kind and (on != "any" or kind in _BESIDE):
            return False
        number, self.seen = self.seen, self.seen + 1
        nth: int = self.fields["nth"]
        lasts: str = self.fields["lasts"]
        return number == nth or (number > nth and lasts == "on")


class Strikes:
    """The strikes of a recording; `struck` are those that hit: where in the log, number, kind."""

    __slots__ = ("_again", "_armed", "_durable", "struck")

    def __init__(self) -> None:
        self._armed: list[_Armed] = []
        self._again: dict[int, int] = {}
        self._durable: dict[int, bytes] | None = None
        self.struck: list[tuple[int, int, str]] = []

    def arm(self, strikes: list[dict[str, Any]], book: Book) -> int:
        """Adds strikes, which count calls from now on; gives the number of the first."""
        first = len(self._armed)
        self._armed += [_Armed(fields) for fields in strikes]
        if self._durable is None and any(one["pages"] == "clean-old" for one in strikes):
            self._durable = {}
            self.synced(None, book)
        return first

    def hit(self, kind: str, inode: int | None, book: Book) -> dict[str, Any] | None:
        """The strike for the call that is about to be made; the first armed goes first."""
        found = None
        for number, armed in enumerate(self._armed):
            if armed.hits(kind) and found is None:
                found = armed.fields
                self.struck.append((len(book.entries), number, kind))
        if kind == "sync" and inode is not None and found is None and inode in self._again:
            return {"act": "error", "error": self._again.pop(inode), "length": 0, "pages": None}
        return found

    def sync_failed(self, fields: dict[str, Any], inode: int, book: Book) -> None:
        """Does to a file what a failed fsync leaves, and logs it."""
        pages = fields["pages"]
        if fields["reported"] == "again":
            self._again[inode] = fields["error"] or errno.EIO
        book.entries.append(("failed-sync", inode, pages))
        path = book.path_to(inode)
        if pages != "clean-old" or self._durable is None or path is None:
            return
        durable = self._durable.get(inode, b"")
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            size = os.fstat(descriptor).st_size
            # The length stands in the inode, not in the pages: it stays.
            old = durable[:size].ljust(size, b"\0")
            if os.pread(descriptor, size, 0) != old:
                os.pwrite(descriptor, old, 0)
                book.wrote(inode, 0, old, False)
        finally:
            os.close(descriptor)

    def synced(self, inode: int | None, book: Book) -> None:
        """A file was synced, or all."""
        if self._durable is None:
            return
        for one in [inode] if inode is not None else set(book.names.values()) - book.directories:
            path = book.path_to(one)
            if path is not None:
                self._durable[one] = _content(path)


def _content(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        content = b""
        while more := os.pread(descriptor, _READ_BYTES, len(content)):
            content += more
        return content
    finally:
        os.close(descriptor)
