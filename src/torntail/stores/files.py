"""Durable file operations: the few system calls the stores rest on.

Decides how a file and a directory are made durable and how bytes are written whole. Every function
raises the plain OSError of the call that failed; the stores say what that means for a session.
"""

from __future__ import annotations

import contextlib
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
    "open_log_with_status",
    "sync_directories",
    "sync_directory",
    "sync_file",
    "unlink_if_there",
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


def sync_directory(directory: Path | str) -> None:
    """Makes the names in a directory durable."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_directories(directory: Path | str) -> None:
    """Makes a directory and the missing ones above it, private to the user."""
    try:
        os.mkdir(directory, DIRECTORY_MODE)
    except FileExistsError:
        if not os.path.isdir(directory):
            raise NotADirectoryError(20, "Not a directory", str(directory)) from None
    except FileNotFoundError:
        above = os.path.dirname(directory)
        if above in (directory, ""):
            raise
        make_directories(above)
        # Once more from the start: another process may make the same directories right now.
        make_directories(directory)


def sync_directories(directory: Path | str) -> None:
    """Makes the name of `directory` durable, and the name of each directory above it.

    A process killed earlier may have made any of them without syncing, so they are synced although
    they stood there already, up to the root of the file system they are on. A directory that this
    user can neither read nor write holds no name this user made, and is passed over.
    """
    device = None
    current = os.fspath(directory)
    if not current.startswith("/"):
        current = os.path.abspath(current)
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    while True:
        try:
            descriptor = os.open(current, flags)
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
        if current == "/":
            return
        current = current.rpartition("/")[0] or "/"


def unlink_if_there(path: Path | str) -> None:
    """Removes a name; does nothing when it is not there."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def write_all(descriptor: int, data: bytes) -> None:
    """Writes `data` whole, continuing short writes (IO-4); EINTR is retried by Python itself."""
    view = memoryview(data)
    while view:
        written = os.write(descriptor, view)
        if written == 0:
            # No file does this for long, but going on for ever would be worse than an error.
            raise OSError(errno.EIO, "write accepted no byte")
        view = view[written:]


def open_log(path: Path | str, flags: int) -> int:
    """Opens a regular file without following a link in its last place; raises OSError."""
    return open_log_with_status(path, flags)[0]


def open_log_with_status(path: Path | str, flags: int) -> tuple[int, os.stat_result]:
    """As `open_log`; also what the file was when it was opened."""
    descriptor = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        raise OSError(22, "Not a regular file", str(path))
    return descriptor, status
