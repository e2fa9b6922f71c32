"""What a crash may leave of one file, and of the names of one disk: the choices, one by one.

Decides which of the endlessly many partial states of a file are worth a choice (each version, each
tear that matters, pages and sectors alone, lengths without data, garbage) and which sets of names.
Every choice is a value; `FileChoice.content` gives its bytes. Does not decide how choices are
combined or where a process dies (`crashes`).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, TypeVar

import msgspec

from torntail.crash.disk import PAGE_BYTES, SECTOR_BYTES, Disk, FileVersions, Model

__all__ = ["GARBAGE", "FileChoice", "file_choices", "name_choices", "newest_choices", "tear_points"]

GARBAGE: Final = -1
"""In the place of a version: bytes that never were in the file."""

_Item = TypeVar("_Item")

_TEARS: Final = 24
_PIECES: Final = 8


class FileChoice(msgspec.Struct, frozen=True):
    """What became of a file's unsynced contents.

    The file has `length` bytes, taken from `version` but for `patches`, each (start, stop, version)
    from another one, zeros where that has none, or GARBAGE.
    """

    length: int
    version: int
    patches: tuple[tuple[int, int, int], ...] = ()

    def content(self, file: FileVersions, begin: int = 0) -> bytes:
        """The bytes this choice leaves from `begin` on, up to where all versions are the same."""
        content = file.versions[self.version][begin : self.length]
        if len(content) < self.length - begin:
            content = content.ljust(self.length - begin, b"\0")
        for start, stop, version in self.patches:
            stop = min(stop, self.length)
            start = max(start, begin)
            if start >= stop:
                continue
            if version == GARBAGE:
                piece = _garbage(start, stop - start)
            else:
                piece = file.versions[version][start:stop].ljust(stop - start, b"\0")
            content = content[: start - begin] + piece + content[stop - begin :]
        return content


@lru_cache(maxsize=512)
def _garbage(seed: int, length: int) -> bytes:
    return random.Random(seed).randbytes(length)


def tear_points(offset: int, data: bytes) -> list[int]:
    """After how many bytes a write is worth cutting.

    One byte, the middle, all but one, around each newline, at page and sector edges of the file; a
    spread of them when they are many.
    """
    length = len(data)
    points = {1, length // 2, length - 1}
    newline = data.find(b"\n")
    while newline >= 0:
        points.update((newline, newline + 1, newline + 2))
        newline = data.find(b"\n", newline + 1)
    for edge in (PAGE_BYTES, SECTOR_BYTES):
        first = edge - offset % edge
        points.update(range(first, length, edge))
    return _spread(sorted(point for point in points if 0 < point < length), _TEARS)


def newest_choices(file: FileVersions, model: Model) -> list[FileChoice]:
    """Those of the choices that there were not before the newest version.

    It has a part in them by its bytes or its length, or they take two writes and it is the second.
    """
    last = len(file.versions) - 1
    length = len(file.visible)
    other_length = length != len(file.versions[last - 1])
    parts = {last, GARBAGE} if len(file.writes) == 2 else {last}
    return [
        choice
        for choice in file_choices(file, model)
        if choice.version == last
        or (other_length and choice.length == length)
        or not parts.isdisjoint([version for _, _, version in choice.patches])
    ]


def name_choices(disk: Disk) -> list[tuple[int, ...]]:
    """Which bindings may survive: nothing first, everything last."""
    ends: list[int] = [0]
    for change in disk.changes:
        ends.append(ends[-1] + len(change))
    total = ends[-1]
    if disk.model == "ordered":
        # A journal keeps the order, and the parts of one operation together.
        return [tuple(range(end)) for end in ends]
    if total <= 4:
        subsets = [
            tuple(index for index in range(total) if mask >> index & 1)
            for mask in range(1 << total)
        ]
        return sorted(subsets, key=lambda kept: (len(kept), kept))
    everything = tuple(range(total))
    middle = [tuple(range(end)) for end in range(1, total)]
    middle += [(index,) for index in everything]
    middle += [tuple(other for other in everything if other != index) for index in everything]
    return [(), *dict.fromkeys(_spread(middle, 4 * _TEARS)), everything]


def file_choices(file: FileVersions, model: Model) -> list[FileChoice]:
    """What a file's contents may be: the durable ones first, the visible ones last."""
    last = len(file.versions) - 1
    choices = [FileChoice(len(version), index) for index, version in enumerate(file.versions)]
    visible = choices.pop()
    before, after = file.durable, file.visible
    for index, written in enumerate(file.writes, start=1):
        if written is None:
            continue
        offset, length = written
        data = file.versions[index][offset : offset + length]
        base = file.versions[index - 1]
        for cut in tear_points(offset, data):
            patches = ((offset, offset + cut, index),)
            choices.append(FileChoice(max(len(base), offset + cut), index - 1, patches))
    # The length before the data, and the data before a shorter length.
    choices += [FileChoice(len(version), 0) for version in file.versions[1:]]
    choices += [FileChoice(len(after), index) for index in range(last)]
    if len(before) > len(after):
        choices.append(FileChoice(len(before), last, ((len(after), len(before), 0),)))
    for edge in (PAGE_BYTES, SECTOR_BYTES):
        pieces = _changed_pieces(before, after, edge, file.common_length)
        if len(pieces) < 2 and edge == PAGE_BYTES:
            continue
        for start, stop in _spread(pieces, _PIECES):
            choices.append(FileChoice(len(after), last, ((start, stop, 0),)))
            choices.append(FileChoice(len(after), 0, ((start, stop, last),)))
            # Alone, with the length it needs: no write makes a file shorter.
            length = max(min(len(before), len(after)), min(stop, len(after)))
            choices.append(FileChoice(length, 0, ((start, stop, last),)))
    if model == "posix":
        choices += _whole_writes(file)
    return [*dict.fromkeys(choices), visible]


def _whole_writes(file: FileVersions) -> list[FileChoice]:
    """Each write lost, kept alone, or turned to garbage on its own; and all of them garbage."""
    last = len(file.versions) - 1
    before, after = len(file.durable), len(file.visible)
    choices = []
    for index, written in enumerate(file.writes, start=1):
        if written is None:
            continue
        start, stop = written[0], written[0] + written[1]
        choices.append(FileChoice(after, last, ((start, stop, index - 1),)))
        choices.append(FileChoice(max(before, stop), 0, ((start, stop, index),)))
        choices.append(FileChoice(after, last, ((start, stop, GARBAGE),)))
        for cut in (written[1] // 3, 2 * written[1] // 3):
            choices.append(FileChoice(after, last, ((start + cut, stop, GARBAGE),)))
            length = max(len(file.versions[index - 1]), stop)
            choices.append(FileChoice(length, index - 1, ((start, start + cut, index),)))
    if after > before and len(file.writes) > 1:
        choices.append(FileChoice(after, 0, ((before, after, GARBAGE),)))
    return _spread(choices, 3 * _TEARS)


def _changed_pieces(before: bytes, after: bytes, edge: int, common: int) -> list[tuple[int, int]]:
    """The pages or sectors in which two contents differ, which the first `common` bytes do not."""
    length = max(len(before), len(after))
    return [
        (start, start + edge)
        for start in range(common // edge * edge, length, edge)
        if before[start : start + edge] != after[start : start + edge]
    ]


def _spread(items: Sequence[_Item], limit: int) -> list[_Item]:
    """At most `limit` items, the first and the last among them, evenly in between."""
    if len(items) <= limit:
        return list(items)
    step = (len(items) - 1) / (limit - 1)
    return [items[round(index * step)] for index in range(limit)]
