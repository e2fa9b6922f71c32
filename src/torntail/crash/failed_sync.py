"""What a failed fsync leaves of a file's pages, as pure functions over bytes.

Decides which pages a later fsync passes over. After Rebello and others, "Can Applications Recover
from fsync Failures?" (2020): ext4 and XFS mark the pages clean and keep the new bytes in memory, so
that the next fsync returns success without writing them; Btrfs puts the file back to what its tree
durably says, its length too, while the offset of an open descriptor stays, so that a writer which
does not append leaves a hole. On the medium a page that was marked clean is taken to hold what it
held before; that it may have arrived all the same is among the choices of a crash, as for every
unsynced write.

Not modelled: names (a journal that fails stops the file system), and pages of another size than
4096 bytes.
"""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["after_truncate", "after_write", "changed_pages", "surviving"]


def changed_pages(before: bytes, after: bytes, page_bytes: int) -> frozenset[int]:
    """The pages of `after` that are not what they are in `before`: the dirty ones."""
    count = -(-len(after) // page_bytes)
    return frozenset(
        page
        for page in range(count)
        if before[page * page_bytes : (page + 1) * page_bytes]
        != after[page * page_bytes : (page + 1) * page_bytes]
    )


def surviving(durable: bytes, visible: bytes, lost: Iterable[int], page_bytes: int) -> bytes:
    """What an fsync that returns success makes durable when the pages `lost` are marked clean.

    The length is the visible one; what a lost page has beyond the durable bytes reads as zeros.
    """
    length = len(visible)
    content = bytearray(visible)
    for page in lost:
        start, stop = page * page_bytes, min((page + 1) * page_bytes, length)
        if start < stop:
            content[start:stop] = durable[start:stop].ljust(stop - start, b"\0")
    return bytes(content)


def after_write(lost: frozenset[int], offset: int, length: int, page_bytes: int) -> frozenset[int]:
    """The lost pages that are left when a write made those it touched dirty again, whole."""
    if not lost or not length:
        return lost
    return lost - set(range(offset // page_bytes, -(-(offset + length) // page_bytes)))


def after_truncate(
    lost: frozenset[int], before: int, after: int, page_bytes: int
) -> frozenset[int]:
    """The lost pages that are left when a length changed.

    Shorter, what is cut is gone and the page at the cut, whose rest the kernel fills with zeros, is
    dirty again.
    """
    if not lost or after >= before:
        return lost
    return frozenset(page for page in lost if page < after // page_bytes)
