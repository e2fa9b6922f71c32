"""What a slot remembers of each file and directory, and the names below a real directory."""

from __future__ import annotations

import os

__all__ = ["HeldEntry", "above", "all_below"]


class HeldEntry:
    """A file or directory as a slot left it.

    `target` is what it is looked at by: a descriptor kept open, or its path. `content` is None
    while it is not known, and of a directory. `paths` are its names, of which a file may have more
    than one.
    """

    __slots__ = ("content", "inode", "paths", "target")

    def __init__(self, target: int | str, path: str, inode: int) -> None:
        self.target = target
        self.paths = [path]
        self.inode = inode
        self.content: bytes | None = None


def above(path: str) -> str:
    """The path of the directory a path is in, "" for the root."""
    return path.rpartition("/")[0]


def all_below(directory: str) -> list[str]:
    """The names of everything below a real directory, relative to it."""
    below = []
    with os.scandir(directory) as entries:
        for entry in entries:
            below.append(entry.name)
            if entry.is_dir(follow_symlinks=False):
                below.extend(f"{entry.name}/{name}" for name in all_below(entry.path))
    return below
