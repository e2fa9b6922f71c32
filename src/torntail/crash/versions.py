"""The contents one file has had since it was last synced: the durable one, and all after it.

Decides what a write, a change of length and an fsync, failing or not, make of them. Does not decide
which of them a crash leaves (`choices`), or anything about names (`disk`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Literal

from torntail.crash.failed_sync import after_truncate, after_write, changed_pages, surviving

__all__ = ["PAGE_BYTES", "PENDING_VERSIONS", "SECTOR_BYTES", "FileVersions"]

PAGE_BYTES: Final = 4096
SECTOR_BYTES: Final = 512
PENDING_VERSIONS: Final = 48
"""How many unsynced versions of a file are told apart."""


@dataclass(frozen=True, slots=True)
class FileVersions:
    """The contents a file has had since it was last synced.

    `versions[0]` is durable, each further one is what an operation made of it, the last one is what
    programs see. `writes` holds for each version after the first the (offset, length) of the write
    that made it, or None for a truncate. Of more than PENDING_VERSIONS the older ones between are
    forgotten, which bounds memory for a store that never syncs; they were among the choices of
    earlier moments. `lost` are the pages that a failed fsync has marked clean: no later fsync makes
    them durable, until a write touches them.
    """

    versions: tuple[bytes, ...] = (b"",)
    writes: tuple[tuple[int, int] | None, ...] = ()
    lost: frozenset[int] = frozenset()

    @property
    def durable(self) -> bytes:
        """What is on the medium for certain."""
        return self.versions[0]

    @property
    def visible(self) -> bytes:
        """What programs see."""
        return self.versions[-1]

    @property
    def pending(self) -> bool:
        """Whether anything is not synced."""
        return len(self.versions) > 1

    @property
    def common_length(self) -> int:
        """How many bytes at the beginning are the same in all versions for certain."""
        common = len(self.versions[0])
        for index, written in enumerate(self.writes, start=1):
            if written is not None:
                common = min(common, written[0])
            elif index == 1:
                return 0  # It may stand for operations that are forgotten.
            else:
                common = min(common, len(self.versions[index]))
        return common

    def written(self, offset: int, data: bytes, *, synced: bool) -> FileVersions:
        """After a write; with `synced`, its pages and the length they need are durable at once."""
        content = self.visible
        padded = content.ljust(offset, b"\0")
        after = padded[:offset] + data + padded[offset + len(data) :]
        lost = after_write(self.lost, offset, len(data), PAGE_BYTES)
        if not synced:
            return self._followed_by(after, (offset, len(data)), lost)
        start = offset // PAGE_BYTES * PAGE_BYTES
        end = -(-(offset + len(data)) // PAGE_BYTES) * PAGE_BYTES
        settled = [
            _overlaid(version, after, start, min(end, len(after))) for version in self.versions
        ]
        settled[-1] = after
        if not self.pending:
            return FileVersions((after,))
        return FileVersions(tuple(settled), self.writes, lost)

    def truncated(self, length: int) -> FileVersions:
        """After a change of length."""
        after = self.visible[:length].ljust(length, b"\0")
        lost = after_truncate(self.lost, len(self.visible), length, PAGE_BYTES)
        return self._followed_by(after, None, lost)

    def _followed_by(
        self, after: bytes, write: tuple[int, int] | None, lost: frozenset[int]
    ) -> FileVersions:
        versions, writes = (*self.versions, after), (*self.writes, write)
        if len(writes) > PENDING_VERSIONS:
            # What is now second was made by more than one operation: no single write to tear.
            versions = (versions[0], *versions[2:])
            writes = (None, *writes[2:])
        return FileVersions(versions, writes, lost)

    def synced(self) -> FileVersions:
        """After an fsync: all is durable but the pages that an earlier one, failing, has lost."""
        if not self.pending:
            return self
        durable = surviving(self.durable, self.visible, self.lost, PAGE_BYTES)
        if durable == self.visible:
            return FileVersions((self.visible,))
        return FileVersions((durable, self.visible), (None,), self.lost)

    def sync_failed(
        self, pages: Literal["clean-new", "clean-old", "dirty"], content: bytes | None
    ) -> FileVersions:
        """After an fsync that failed; `content` is what the file was put back to, if it was."""
        if content is not None:
            return FileVersions((content,))
        if pages != "clean-new":
            return self
        return replace(self, lost=self.lost | changed_pages(self.durable, self.visible, PAGE_BYTES))


def _overlaid(version: bytes, source: bytes, start: int, end: int) -> bytes:
    """`version` with the range [start, end) taken from `source`, grown with zeros if need be."""
    padded = version.ljust(start, b"\0")
    return padded[:start] + source[start:end] + padded[end:]
