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

_UNWRITABLE: Final = (errno.EROFS, errno.EACCES)
"""Errors of storage that cannot be written; syncs succeed there."""

_READ_BYTES: Final = 1 << 24


class _Armed:
    """A strike, how many calls of its kind it has seen, and whether it has hit."""

    __slots__ = ("fields", "has_hit", "lifted", "seen")

    def __init__(self, fields: dict[str, Any]) -> None:
        self.fields = fields
        self.has_hit = False
        self.lifted = False
        self.seen = 0

    def hits(self, kind: str, length: int) -> bool:
        """Whether it strikes the call that is about to be made; counts it if it is meant."""
        fields = self.fields
        if self.lifted or not self._means(kind):
            return False
        self.seen += 1
        if self.has_hit:
            lasts: str = fields["lasts"]
            return lasts == "on"
        if self.seen <= fields["nth"]:
            return False
        if fields["act"] == "refuse" and not fields["error"] and not 0 < fields["length"] < length:
            return False  # Nothing that could come short: the next one, then.
        self.has_hit = True
        return True

    def _means(self, kind: str) -> bool:
        on: str = self.fields["on"]
        if self.fields["error"] in _UNWRITABLE and kind in ("sync", "sync-directory"):
            return False
        if on == "any":
            # A kill counts what the log counts; the opening of a file is not in it.
            return kind != "read" and (kind != "open" or self.fields["act"] != "kill")
        return on == kind


class Strikes:
    """The strikes of a recording; `struck` are those that hit: where in the log, which one, on a
    call of which kind, on which inode, with how many bytes, and whether its error was told before.
    """

    __slots__ = ("_again", "_armed", "_durable", "struck")

    def __init__(self) -> None:
        self._armed: list[_Armed] = []
        self._again: dict[int, tuple[int, int]] = {}
        self._durable: dict[int, bytes] | None = None
        self.struck: list[tuple[int, int, str, int | None, int, bool]] = []

    def arm(self, strikes: list[dict[str, Any]], book: Book) -> int:
        """Adds strikes, which count calls from now on; gives the number of the first."""
        first = len(self._armed)
        self._armed += [_Armed(fields) for fields in strikes]
        if self._durable is None and any(one["pages"] == "clean-old" for one in strikes):
            self._durable = {}
            self.synced(None, book)
        return first

    def hit(self, kind: str, inode: int | None, length: int, book: Book) -> dict[str, Any] | None:
        """The strike for the call that is about to be made; the first armed goes first."""
        found = None
        for number, armed in enumerate(self._armed):
            if armed.hits(kind, length) and found is None:
                found = armed.fields
                self.struck.append((len(book.entries), number, kind, inode, length, False))
        if kind == "sync" and inode is not None and found is None and inode in self._again:
            error, number = self._again.pop(inode)
            self.struck.append((len(book.entries), number, kind, inode, length, True))
            return {"act": "refuse", "error": error, "length": 0, "pages": ""}
        return found

    def lift(self) -> None:
        """The disk is well again: nothing that is armed strikes any more."""
        for armed in self._armed:
            armed.lifted = True
        self._again.clear()

    def sync_failed(self, fields: dict[str, Any], inode: int, book: Book) -> None:
        """Does to a file what a failed fsync leaves, and logs it."""
        pages = fields["pages"] or "dirty"
        if fields["reported"] == "again":
            self._again[inode] = fields["error"], self.struck[-1][1]
        content = None
        path = book.path_to(inode)
        if pages == "clean-old" and self._durable is not None and path is not None:
            # The length, too; an open descriptor stays at its offset.
            content = self._durable.get(inode, b"")
            descriptor = os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
            try:
                done = 0
                while done < len(content):
                    done += os.pwrite(descriptor, content[done:], done)
            finally:
                os.close(descriptor)
            book.maps.resized(inode, 0)
            book.maps.wrote(inode, 0, content)
        book.entries.append(("fsync-failed", inode, pages, content))

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
