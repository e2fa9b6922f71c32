"""The real file functions, taken before any of them is wrapped.

Decides what the wrappers call and what the harness itself uses on its directories: its own work is
never recorded. Holds no logic. Functions that a platform lacks are missing from `ORIGINALS`.
"""

from __future__ import annotations

import fcntl
import io
import os
from typing import Any, Final

__all__ = ["ORIGINALS", "Real"]

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


class Real:
    """The functions, for use as `Real.write(...)`.

    Not in the module itself: pyfakefs exchanges the functions of `os` and `io` that it finds in the
    globals of modules, and a wrapper would then call the fake that calls the wrapper.
    """

    FULL_SYNC: Final[int | None] = getattr(fcntl, "F_FULLFSYNC", None)
    """macOS: the command of `fcntl` that syncs down to the medium."""

    STATUS_FLAGS: Final = fcntl.F_GETFL

    FileIO = io.FileIO
    control = fcntl.fcntl
    fstat = os.fstat
    fsync = os.fsync
    ftruncate = os.ftruncate
    link = os.link
    lseek = os.lseek
    lstat = os.lstat
    mkdir = os.mkdir
    open_descriptor = os.open
    open_file = io.open
    pread = os.pread
    pwrite = os.pwrite
    replace = os.replace
    rmdir = os.rmdir
    stat = os.stat
    unlink = os.unlink
    write = os.write
