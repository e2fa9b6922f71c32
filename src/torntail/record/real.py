"""The real file functions, taken before any of them is wrapped.

Decides what the wrappers call and what the harness itself uses on its directories: its own work is
never recorded. Holds no logic. Functions that a platform lacks are missing from `ORIGINALS`.
"""

from __future__ import annotations

import fcntl as _fcntl
import io
import os
from typing import Any, Final

__all__ = [
    "FULL_SYNC",
    "ORIGINALS",
    "STATUS_FLAGS",
    "FileIO",
    "control",
    "fstat",
    "fsync",
    "ftruncate",
    "link",
    "lseek",
    "lstat",
    "mkdir",
    "open_descriptor",
    "open_file",
    "pread",
    "pwrite",
    "rmdir",
    "stat",
    "unlink",
    "write",
]

_WRAPPED: Final = (
    "copy_file_range",
    "fdatasync",
    "fsync",
    "ftruncate",
    "link",
    "mkdir",
    "mkfifo",
    "mknod",
    "open",
    "posix_fallocate",
    "pwrite",
    "pwritev",
    "remove",
    "rename",
    "replace",
    "rmdir",
    "sendfile",
    "symlink",
    "sync",
    "truncate",
    "unlink",
    "write",
    "writev",
)

ORIGINALS: Final[dict[str, Any]] = {
    name: getattr(os, name) for name in _WRAPPED if hasattr(os, name)
}
"""The functions of `os` that are wrapped, by name."""

FULL_SYNC: Final[int | None] = getattr(_fcntl, "F_FULLFSYNC", None)
"""macOS: the command of `fcntl` that syncs down to the medium."""

STATUS_FLAGS: Final = _fcntl.F_GETFL

control: Final = _fcntl.fcntl
FileIO = io.FileIO
fstat: Final = os.fstat
fsync: Final = os.fsync
ftruncate: Final = os.ftruncate
link: Final = os.link
lseek: Final = os.lseek
lstat: Final = os.lstat
mkdir: Final = os.mkdir
open_descriptor: Final = os.open
open_file: Final = io.open
pread: Final = os.pread
pwrite: Final = os.pwrite
rmdir: Final = os.rmdir
stat: Final = os.stat
unlink: Final = os.unlink
write: Final = os.write
