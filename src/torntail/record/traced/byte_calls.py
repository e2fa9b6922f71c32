"""The calls that change the bytes of a file, or speak.

What landed is logged, where it landed: a short write short, an appended one at the place the file
system chose. Copies of ranges are logged as writes of their bytes, read back from the file; a
longer file by `fallocate` as a truncate, holes and zeroed ranges as writes of zeros.
"""

from __future__ import annotations

import os

from torntail.record.traced.linux import set_argument
from torntail.record.traced.planned import Planned, Spoken
from torntail.record.traced.thread import Thread

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Final

    from torntail.record.traced.book import Book

    Arguments = Sequence[int]
    Outputs = dict[tuple[int, int], int]
    Handler = Callable[[Book, Outputs, Thread, Arguments], Planned | Spoken | None]

__all__ = ["BYTE_CALLS"]

_SYNCHRONOUS: Final = os.O_DSYNC  # O_SYNC has this bit, too.
_WRITE_SYNCHRONOUS: Final = os.RWF_DSYNC | os.RWF_SYNC
_WRITE_APPENDS: Final = 0x10
_NO_OFFSET: Final = 0xFFFFFFFFFFFFFFFF

_KEEP_SIZE: Final = 0x01
_PUNCH_HOLE: Final = 0x02
_ZERO_RANGE: Final = 0x10
_KNOWN_MODES: Final = _KEEP_SIZE | _PUNCH_HOLE | _ZERO_RANGE

_ZEROS_BYTES: Final = 1 << 30
"""Zeros longer than this are not logged."""


def _write(
    book: Book, outputs: Outputs, thread: Thread, args: Arguments
) -> Planned | Spoken | None:
    status = thread.status(args[0])
    inode = book.inode_with(status)
    if inode is None:
        if status is None or (status.st_dev, status.st_ino) not in outputs:
            return None
        key = (status.st_dev, status.st_ino)
        return Spoken(outputs[key], key, thread.read(args[1], args[2]))
    return _plain_write(book, thread, args, inode, None)


def _pwrite(book: Book, outputs: Outputs, thread: Thread, args: Arguments) -> Planned | None:
    inode = book.inode_with(thread.status(args[0]))
    return None if inode is None else _plain_write(book, thread, args, inode, args[3])


def _plain_write(
    book: Book, thread: Thread, args: Arguments, inode: int, offset: int | None
) -> Planned | None:
    if not args[2]:
        return None

    def finish(count: int) -> None:
        data = thread.read(args[1], count)
        _log(book, thread, args[0], inode, data, count, offset, 0)

    def cut(length: int) -> None:
        set_argument(thread.pid, 2, length)

    return Planned("write", finish, inode, args[2], cut)


def _writev(
    book: Book, outputs: Outputs, thread: Thread, args: Arguments
) -> Planned | Spoken | None:
    status = thread.status(args[0])
    inode = book.inode_with(status)
    if inode is None:
        if status is None or (status.st_dev, status.st_ino) not in outputs:
            return None
        key = (status.st_dev, status.st_ino)
        vectors = thread.vectors(args[1], args[2])
        length = sum(length for _, length in vectors)
        return Spoken(outputs[key], key, thread.gather(vectors, length))
    return _vector_write(book, thread, args, inode, None, 0)


def _pwritev(book: Book, outputs: Outputs, thread: Thread, args: Arguments) -> Planned | None:
    inode = book.inode_with(thread.status(args[0]))
    return None if inode is None else _vector_write(book, thread, args, inode, args[3], 0)


def _pwritev2(
    book: Book, outputs: Outputs, thread: Thread, args: Arguments
) -> Planned | Spoken | None:
    offset = None if args[3] == _NO_OFFSET else args[3]
    if offset is None and book.inode_with(thread.status(args[0])) is None:
        return _writev(book, outputs, thread, args)
    inode = book.inode_with(thread.status(args[0]))
    return None if inode is None else _vector_write(book, thread, args, inode, offset, args[5])


def _vector_write(
    book: Book,
    thread: Thread,
    args: Arguments,
    inode: int,
    offset: int | None,
    write_flags: int,
) -> Planned | None:
    vectors = thread.vectors(args[1], args[2])
    whole = sum(length for _, length in vectors)
    if not whole:
        return None

    def finish(count: int) -> None:
        data = thread.gather(vectors, count)
        _log(book, thread, args[0], inode, data, count, offset, write_flags)

    return Planned("write", finish, inode, whole, _vector_cut(thread, args, vectors))


def _vector_cut(
    thread: Thread, args: Arguments, vectors: list[tuple[int, int]]
) -> Callable[[int], Callable[[], None]]:
    """Shortens the piece the end falls into, in the child's memory, and leaves the rest out."""

    def cut(length: int) -> Callable[[], None]:
        number = 0
        while length > vectors[number][1]:
            length -= vectors[number][1]
            number += 1
        place = args[1] + 16 * number + 8
        thread.write(place, length.to_bytes(8, "little"))
        set_argument(thread.pid, 2, number + 1)
        return lambda: thread.write(place, vectors[number][1].to_bytes(8, "little"))

    return cut


def _log(
    book: Book,
    thread: Thread,
    descriptor: int,
    inode: int,
    data: bytes,
    count: int,
    offset: int | None,
    write_flags: int,
) -> None:
    """Logs the `count` bytes that a call wrote to an open file; `offset` None: at its position.

    Raises OSError if the thread was killed right behind the call, or its descriptor was closed.
    """
    if len(data) != count:
        raise OSError("the memory that was written is gone")
    position, flags = thread.position_and_flags(descriptor)
    synced = bool(flags & _SYNCHRONOUS or write_flags & _WRITE_SYNCHRONOUS)
    if offset is None:
        offset = position - len(data)
    elif flags & os.O_APPEND or write_flags & _WRITE_APPENDS:
        # Linux appends on a descriptor opened so whatever offset a call names.
        offset = os.stat(thread.open_file(descriptor)).st_size - len(data)
    book.wrote(inode, offset, data, synced)


# --- copies of ranges ---------------------------------------------------------------------------


def _sendfile(book: Book, outputs: Outputs, thread: Thread, args: Arguments) -> Planned | None:
    return _copy(book, outputs, thread, args, args[0], 0, 3)


def _splice(book: Book, outputs: Outputs, thread: Thread, args: Arguments) -> Planned | None:
    return _copy(book, outputs, thread, args, args[2], args[3], 4)


def _copy(
    book: Book,
    outputs: Outputs,
    thread: Thread,
    args: Arguments,
    descriptor: int,
    offset_address: int,
    count_argument: int,
) -> Planned | None:
    status = thread.status(descriptor)
    inode = book.inode_with(status)
    if inode is None:
        if status is not None and (status.st_dev, status.st_ino) in outputs:
            book.problems.append(("unmodelled", "", "output was spliced into its pipe"))
        return None
    if not args[count_argument]:
        return None
    start = None
    if offset_address:
        start = int.from_bytes(thread.read(offset_address, 8), "little")

    def finish(count: int) -> None:
        if not count:
            return
        position, flags = thread.position_and_flags(descriptor)
        offset = position - count if start is None else start
        again = os.open(thread.open_file(descriptor), os.O_RDONLY | os.O_CLOEXEC)
        try:
            data = os.pread(again, count, offset)
        finally:
            os.close(again)
        book.wrote(inode, offset, data, bool(flags & _SYNCHRONOUS))

    def cut(length: int) -> None:
        set_argument(thread.pid, count_argument, length)

    return Planned("write", finish, inode, args[count_argument], cut)


def _clone(book: Book, outputs: Outputs, thread: Thread, args: Arguments) -> Planned | None:
    inode = book.inode_with(thread.status(args[0]))
    if inode is None:
        return None
    return Planned(
        "write", lambda _: book.problem_with(inode, "shares the blocks of another file"), inode
    )


# --- lengths ------------------------------------------------------------------------------------


def _ftruncate(book: Book, outputs: Outputs, thread: Thread, args: Arguments) -> Planned | None:
    inode = book.inode_with(thread.status(args[0]))
    if inode is None:
        return None
    return Planned("truncate", lambda _: book.resized(inode, args[1]), inode)


def _truncate(book: Book, outputs: Outputs, thread: Thread, args: Arguments) -> Planned | None:
    inode = book.inode_at(thread.path(args[0]))
    if inode is None:
        return None
    return Planned("truncate", lambda _: book.resized(inode, args[1]), inode)


def _fallocate(book: Book, outputs: Outputs, thread: Thread, args: Arguments) -> Planned | None:
    status = thread.status(args[0])
    inode = book.inode_with(status)
    if inode is None or status is None:
        return None
    mode, offset, length = args[1] & 0xFFFFFFFF, args[2], args[3]
    size = status.st_size
    grows = not mode & _KEEP_SIZE and offset + length > size
    zeros = mode & (_PUNCH_HOLE | _ZERO_RANGE)
    end = offset + length if grows else min(offset + length, size)
    if mode & ~_KNOWN_MODES or (zeros and end - offset > _ZEROS_BYTES):
        reason = f"had its space changed by fallocate, mode {mode:#x}"
        return Planned("truncate", lambda _: book.problem_with(inode, reason), inode)
    if not grows and not (zeros and end > offset):
        return None

    def finish(_: int) -> None:
        if grows:
            book.resized(inode, offset + length)
        if zeros and min(end, size) > offset:
            book.wrote(inode, offset, bytes(min(end, size) - offset), False)

    return Planned("truncate" if grows else "write", finish, inode)


# --- mappings and reads -------------------------------------------------------------------------


def _mmap(book: Book, outputs: Outputs, thread: Thread, args: Arguments) -> Planned | None:
    inode = book.inode_with(thread.status(args[4]))
    if inode is None or inode in book.ignored:
        return None
    _, flags = thread.position_and_flags(args[4])
    if flags & os.O_ACCMODE == os.O_RDWR:
        # Whatever it is mapped for at first: `mprotect` may make it writable later. Before the
        # call, for its threads may store as soon as it is there.
        book.maps.watch(inode, thread, args[4])
    return None


def _read(book: Book, outputs: Outputs, thread: Thread, args: Arguments) -> Planned | None:
    inode = book.inode_with(thread.status(args[0]))
    if inode is None or inode in book.directories:
        return None

    def cut(length: int) -> None:
        set_argument(thread.pid, 2, length)

    return Planned("read", lambda _: None, inode, args[2], cut)


def _readv(book: Book, outputs: Outputs, thread: Thread, args: Arguments) -> Planned | None:
    inode = book.inode_with(thread.status(args[0]))
    if inode is None or inode in book.directories:
        return None
    vectors = thread.vectors(args[1], args[2])
    whole = sum(length for _, length in vectors)
    return Planned("read", lambda _: None, inode, whole, _vector_cut(thread, args, vectors))


BYTE_CALLS: dict[str, Handler] = {
    "write": _write,
    "pwrite64": _pwrite,
    "writev": _writev,
    "pwritev": _pwritev,
    "pwritev2": _pwritev2,
    "sendfile": _sendfile,
    "splice": _splice,
    "copy_file_range": _splice,
    "ioctl": _clone,
    "ftruncate": _ftruncate,
    "truncate": _truncate,
    "fallocate": _fallocate,
    "mmap": _mmap,
    "read": _read,
    "pread64": _read,
    "readv": _readv,
    "preadv": _readv,
    "preadv2": _readv,
}
"""What to make of each call, by its name."""
