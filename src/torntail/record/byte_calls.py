"""Wrappers over the calls that change the bytes of a file.

Each logs what landed, where it landed: a short write is logged short, an appended one at the place
the file system chose, a failed one and one of no bytes not at all. Copies of ranges are logged as
writes of their bytes, `posix_fallocate` as a truncate to the longer length.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from torntail.crash.oplog import Inode, Truncate, Write
from torntail.record.ledger import Ledger, Switch
from torntail.record.real import ORIGINALS, Real

__all__ = ["ByteCalls", "recorded_truncate", "recorded_write"]

_SYNCHRONOUS: Final = os.O_SYNC | os.O_DSYNC
_WRITE_SYNCHRONOUS: Final = getattr(os, "RWF_SYNC", 0) | getattr(os, "RWF_DSYNC", 0)
_WRITE_APPENDS: Final = getattr(os, "RWF_APPEND", 0)
# Linux appends on a descriptor opened so whatever offset a call names; POSIX says otherwise.
_APPENDS_AT_ANY_OFFSET: Final = os.O_APPEND if sys.platform == "linux" else 0
_STATUS_FLAGS: Final = Real.STATUS_FLAGS


class ByteCalls(Switch):
    """The wrappers, with the signatures of `os`."""

    def write(self, fd: int, data: Any, /) -> Any:
        """`os.write`."""
        ledger = self.ledger
        inode = None if ledger is None else ledger.inode_of(fd)
        if ledger is None or inode is None:
            return Real.write(fd, data)
        call = partial(Real.write, fd)
        return recorded_write(ledger, inode, fd, data, call)

    def writev(self, fd: int, buffers: Any, /) -> Any:
        """`os.writev`."""
        ledger = self.ledger
        inode = None if ledger is None else ledger.inode_of(fd)
        joined = None if inode is None else _joined(buffers)
        if ledger is None or inode is None or joined is None:
            return ORIGINALS["writev"](fd, buffers)
        function = ORIGINALS["writev"]
        return recorded_write(ledger, inode, fd, joined, lambda piece: function(fd, [piece]))

    def pwrite(self, fd: int, data: Any, offset: int, /) -> Any:
        """`os.pwrite`."""
        ledger = self.ledger
        inode = None if ledger is None else ledger.inode_of(fd)
        if ledger is None or inode is None:
            return Real.pwrite(fd, data, offset)
        return recorded_write(
            ledger, inode, fd, data, lambda piece: Real.pwrite(fd, piece, offset), offset
        )

    def pwritev(self, fd: int, buffers: Any, offset: int, flags: int = 0, /) -> Any:
        """`os.pwritev`."""
        function = ORIGINALS["pwritev"]
        ledger = self.ledger
        inode = None if ledger is None else ledger.inode_of(fd)
        joined = None if inode is None else _joined(buffers)
        if ledger is None or inode is None or joined is None:
            return function(fd, buffers, offset, flags)
        return recorded_write(
            ledger,
            inode,
            fd,
            joined,
            lambda piece: function(fd, [piece], offset, flags),
            None if offset == -1 else offset,
            flags,
        )

    def sendfile(self, out_fd: int, in_fd: int, offset: Any, count: int, *rest: Any) -> Any:
        """`os.sendfile`, to a file."""
        function = ORIGINALS["sendfile"]
        ledger = self.ledger
        inode = None if ledger is None else ledger.inode_of(out_fd)
        if ledger is None or inode is None:
            return function(out_fd, in_fd, offset, count, *rest)
        data = _range_of(in_fd, offset, count)

        def call(piece: bytes) -> Any:
            wanted = count if piece is data else len(piece)
            return function(out_fd, in_fd, offset, wanted, *rest)

        return recorded_write(ledger, inode, out_fd, data, call)

    def copy_file_range(
        self,
        src: int,
        dst: int,
        count: int,
        offset_src: int | None = None,
        offset_dst: int | None = None,
    ) -> Any:
        """`os.copy_file_range`."""
        function = ORIGINALS["copy_file_range"]
        ledger = self.ledger
        inode = None if ledger is None else ledger.inode_of(dst)
        if ledger is None or inode is None:
            return function(src, dst, count, offset_src, offset_dst)
        data = _range_of(src, offset_src, count)

        def call(piece: bytes) -> Any:
            wanted = count if piece is data else len(piece)
            return function(src, dst, wanted, offset_src, offset_dst)

        return recorded_write(ledger, inode, dst, data, call, offset_dst)

    def posix_fallocate(self, fd: int, offset: int, length: int, /) -> None:
        """`os.posix_fallocate`: logged only where it makes the file longer."""
        call: Callable[[], None] = partial(ORIGINALS["posix_fallocate"], fd, offset, length)
        ledger = self.ledger
        inode = None if ledger is None else ledger.inode_of(fd)
        if ledger is None or inode is None:
            return call()
        with ledger.lock:
            if offset + length > Real.fstat(fd).st_size:
                recorded_truncate(ledger, inode, offset + length, call)
            else:
                call()
        return None

    def ftruncate(self, fd: int, length: int, /) -> None:
        """`os.ftruncate`."""
        self._truncate(Real.ftruncate, fd, length)

    def truncate(self, path: Any, length: int) -> None:
        """`os.truncate`."""
        self._truncate(ORIGINALS["truncate"], path, length)

    def _truncate(self, function: Callable[..., None], target: Any, length: int) -> None:
        ledger = self.ledger
        inode = None
        if ledger is not None:
            find = ledger.inode_of if isinstance(target, int) else ledger.inode_at
            inode = find(target)
        if ledger is None or inode is None:
            return function(target, length)
        recorded_truncate(ledger, inode, length, partial(function, target, length))
        return None


def recorded_write(
    ledger: Ledger,
    inode: Inode,
    descriptor: int,
    data: Any,
    call: Callable[[Any], Any],
    offset: int | None = None,
    write_flags: int = 0,
) -> Any:
    """Carries a write out and logs what of it landed; gives what `call` gives.

    `call` takes the bytes to write and answers how many it wrote, None for not any. `offset` is
    None for a write at the descriptor's position.
    """
    with ledger.lock:
        flags = Real.control(descriptor, _STATUS_FLAGS)
        synced = bool(flags & _SYNCHRONOUS or write_flags & _WRITE_SYNCHRONOUS)
        appends = flags & _APPENDS_AT_ANY_OFFSET or write_flags & _WRITE_APPENDS
        error = None
        if ledger.before is not None:
            start = offset
            if appends or (flags & os.O_APPEND and offset is None):
                start = Real.fstat(descriptor).st_size
            elif offset is None:
                start = Real.lseek(descriptor, 0, os.SEEK_CUR)
            assert start is not None
            planned = Write(inode, start, _taken(data, None), synced)
            cut = ledger.consult(planned) if planned.data else None
            if cut is not None:
                data, error = planned.data[: cut.length], cut.error
        count = call(data)
        if count:
            if offset is None:
                landed = Real.lseek(descriptor, 0, os.SEEK_CUR) - count
            elif appends:
                landed = Real.fstat(descriptor).st_size - count
            else:
                landed = offset
            ledger.operations.append(Write(inode, landed, _taken(data, count), synced))
            ledger.check_length(inode, landed + count)
        if error is not None:
            raise error
    return count


def recorded_truncate(ledger: Ledger, inode: Inode, length: int, call: Callable[[], Any]) -> Any:
    """Carries a change of length out and logs it; gives what `call` gives."""
    with ledger.lock:
        operation = Truncate(inode, length)
        ledger.consult(operation)
        result = call()
        ledger.operations.append(operation)
        ledger.check_length(inode, length)
    return result


def _taken(data: Any, count: int | None) -> bytes:
    """The first `count` bytes of a bytes-like object, of its own."""
    if type(data) is bytes:
        taken = data
    else:
        with memoryview(data) as view:
            taken = view.tobytes()
    return taken if count is None else taken[:count]


def _joined(buffers: Any) -> bytes | None:
    """The bytes of several buffers, or None for what the real call will refuse."""
    try:
        return b"".join(buffers)
    except TypeError:
        return None


def _range_of(descriptor: int, offset: Any, count: int) -> bytes:
    """The bytes that a copy of `count` bytes from here will read; empty if it will fail."""
    try:
        if offset is None:
            offset = Real.lseek(descriptor, 0, os.SEEK_CUR)
        rest = Real.fstat(descriptor).st_size - offset
        return Real.pread(descriptor, max(0, min(count, rest)), offset)
    except (OSError, TypeError, ValueError):
        return b""
