"""Durable file operations: the few system calls the stores rest on.

Decides how a file and a directory are made durable and how bytes are written whole. Every function
raises the plain OSError of the call that failed; the stores say what that means for a session.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

try:
    from fcntl import F_FULLFSYNC, fcntl  # type: ignore[attr-defined,unused-ignore]
except ImportError:  # Everywhere but on macOS.
    F_FULLFSYNC = None

__all__ = [
    "make_directories",
    "open_log",
    "sync_directories",
    "sync_directory",
    "sync_file",
    "write_all",
]

DIRECTORY_MODE = 0o700
FILE_MODE = 0o600


def sync_file(descriptor: int) -> None:
    """Makes an open file's bytes and length durable; on macOS down to the medium."""
    if F_FULLFSYNC is not None:
        fcntl(descriptor, F_FULLFSYNC)
    else:
        os.fsync(descriptor)


def sync_directory(directory: Path) -> None:
    """Makes the names in a directory durable."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_directories(directory: Path) -> None:
    """Makes a directory and the missing ones above it, private to the user."""
    try:
        os.mkdir(directory, DIRECTORY_MODE)
    except FileExistsError:
        if not directory.is_dir():
            raise NotADirectoryError(20, "Not a directory", str(directory)) from None
    except FileNotFoundError:
        if directory.parent == directory:
            raise
        make_directories(directory.parent)
        # Once more from the start: another process may make the same directories right now.
        make_directories(directory)


def sync_directories(directory: Path) -> None:
    """Makes the name of `directory` durable, and the name of each directory above it.

    A process killed earlier may have made any of them without syncing, so they are synced although
    they stood there already, up to the root of the file system they are on. A directory that this
    user can neither read nor write holds no name this user made, and is passed over.
    """
    device = None
    current = os.path.abspath(directory)
    while True:
        try:
            descriptor = os.open(current, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except PermissionError:
            if device is None or os.access(current, os.W_OK):
                raise
        else:
            try:
                here = os.fstat(descriptor).st_dev
                if device not in (None, here):
                    return
                device = here
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        above = os.path.dirname(current)
        if above == current:
            return
        current = above


def write_all(descriptor: int, data: bytes) -> None:
    """Writes `data` whole, continuing short writes (IO-4); EINTR is retried by Python itself."""
    view = memoryview(data)
    while view:
        written = os.write(descriptor, view)
        if written == 0:
            # No file does this for long, but going on for ever would be worse than an error.
            raise OSError(errno.EIO, "write accepted no byte")
        view = view[written:]


def open_log(path: Path, flags: int) -> int:
    """Opens a regular file without following a link in its last place; raises OSError."""
    descriptor = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(22, "Not a regular file", str(path))
    return descriptor
