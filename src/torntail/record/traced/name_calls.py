"""The calls that change names, and those that sync.

Each is logged if it succeeds below the recorded directory. Renames into that directory, links to
files outside it or without a name, symbolic links, pipes and devices are noted as not modelled; a
rename out of it is the removal of the name. `sync_file_range` promises nothing and is not seen.
"""

from __future__ import annotations

import os
import stat

from torntail.record.traced.planned import Planned
from torntail.record.traced.thread import Thread

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Final

    from torntail.record.traced.book import Book, Place

    Arguments = Sequence[int]
    Outputs = dict[tuple[int, int], int]
    Handler = Callable[[Book, Outputs, Thread, Arguments], Planned | None]

__all__ = ["NAME_CALLS"]

_TMPFILE_BIT: Final = os.O_TMPFILE & ~os.O_DIRECTORY
_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
_EXCLUSIVE: Final = os.O_CREAT | os.O_EXCL
_REMOVE_DIRECTORY: Final = 0x200
_FOLLOW_LINK: Final = 0x400
_EMPTY_PATH: Final = 0x1000
_EXCHANGE: Final = 2
_WHITEOUT: Final = 4
_MS_SYNC: Final = 4
_PAGE_BYTES: Final = 4096


# --- opening ------------------------------------------------------------------------------------


def _open(book: Book, outputs: Outputs, thread: Thread, args: Arguments) -> Planned | None:
    return _opening(book, thread.path(args[0]), args[1])


def _creat(book: Book, outputs: Outputs, thread: Thread, args: Arguments) -> Planned | None:
    return _opening(book, thread.path(args[0]), _CREATE)


def _openat(book: Book, outputs: Outputs, thread: Thread, args: Arguments) -> Planned | None:
    return _opening(book, thread.path(args[1], args[0]), args[2])


def _openat2(book: Book, outputs: Outputs, thread: Thread, args: Arguments) -> Planned | None:
    flags = int.from_bytes(thread.read(args[2], 8), "little")
    return _opening(book, thread.path(args[1], args[0]), flags)


def _opening(book: Book, path: bytes, flags: int) -> Planned | None:
    if not path or flags & _TMPFILE_BIT or flags & os.O_PATH:
        return None
    try:
        status = os.stat(path)
    except FileNotFoundError:
        place = book.place(path) if flags & os.O_CREAT else None
        if place is None and flags & os.O_CREAT and os.path.isdir(os.path.dirname(path)):
            book.strays(path)
        if place is None or place[1] in (".", ".."):
            return None
        made = place

        def finish(_: int) -> None:
            book.made("create", made, _status(book, path, made))

        return Planned("create", finish, happened=lambda: book.stands(made))
    except (OSError, ValueError):
        return None
    inode = book.inode_with(status)
    if inode is None and flags & os.O_ACCMODE != os.O_RDONLY and stat.S_ISREG(status.st_mode):
        book.strays(path)
    if inode is None or flags & _EXCLUSIVE == _EXCLUSIVE:
        return None
    if not flags & os.O_TRUNC or inode in book.directories:
        writes = flags & os.O_ACCMODE != os.O_RDONLY
        return Planned("open", lambda _: None, inode) if writes else None
    return Planned("truncate", lambda _: book.resized(inode, 0), inode)


# --- making and removing ------------------------------------------------------------------------


def _mkdir(book: Book, outputs: Outputs, thread: Thread, args: Arguments) -> Planned | None:
    return _making(book, "mkdir", "mkdir", thread.path(args[0]))


def _mkdirat(book: Book, outputs: Outputs, thread: Thread, args: Arguments) -> Planned | None:
    return _making(book, "mkdir", "mkdir", thread.path(args[1], args[0]))


def _making(book: Book, kind: str, tag: str, path: bytes) -> Planned | None:
    place = book.place(path)
    if place is None or place in book.names:
        return None

    def finish(_: int) -> None:
        book.made(tag, place, _status(book, path.rstrip(b"/"), place))

    return Planned(kind, finish, happened=lambda: book.stands(place))


def _status(book: Book, path: bytes, place: Place) -> os.stat_result:
    """The status of what was just made; by its place if the child that named it is dead."""
    try:
        return os.stat(path)
    except FileNotFoundError:
        return os.lstat(book.real_path(place))


def _mknod(book: Book, outputs: Outputs, thread: Thread, args: Arguments) -> Planned | None:
    return _making_node(book, thread.path(args[0]), args[1])


def _mknodat(book: Book, outputs: Outputs, thread: Thread, args: Arguments) -> Planned | None:
    return _making_node(book, thread.path(args[1], args[0]), args[2])


def _making_node(book: Book, path: bytes, mode: int) -> Planned | None:
    if stat.S_IFMT(mode) in (0, stat.S_IFREG):
        return _making(book, "create", "create", path)
    return _foreign(book, book.place(path), "was made by mknod and is no regular file")


def _symlink(book: Book, outputs: Outputs, thread: Thread, args: Arguments) -> Planned | None:
    return _foreign(book, book.place(thread.path(args[1])), "is a symbolic link")


def _symlinkat(book: Book, outputs: Outputs, thread: Thread, args: Arguments) -> Planned | None:
    return _foreign(book, book.place(thread.path(args[2], args[1])), "is a symbolic link")


def _foreign(book: Book, place: Place | None, reason: str) -> Planned | None:
    if place is None:
        return None
    return Planned("create", lambda _: book.problem("unmodelled", place, reason))


def _unlink(book: Book, outputs: Outputs, thread: Thread, args: Arguments) -> Planned | None:
    return _removing(book, "unlink", thread.path(args[0]))


def _rmdir(book: Book, outputs: Outputs, thread: Thread, args: Arguments) -> Planned | None:
    return _removing(book, "rmdir", thread.path(args[0]))


def _unlinkat(book: Book, outputs: Outputs, thread: Thread, args: Arguments) -> Planned | None:
    tag = "rmdir" if args[2] & _REMOVE_DIRECTORY else "unlink"
    return _removing(book, tag, thread.path(args[1], args[0]))


def _removing(book: Book, tag: str, path: bytes) -> Planned | None:
    place = book.place(path)
    if place is None:
        return None
    known = place in book.names
    if not known and not os.path.lexists(path):
        return None

    def finish(_: int) -> None:
        if not known:
            reason = "was made by a call that was not seen, and removed"
            return book.problem("unseen", place, reason)
        book.entries.append((tag, *place))
        return book.unbind(place)

    inode = book.names.get(place)
    return Planned("unlink", finish, inode, happened=lambda: not book.stands(place))


# --- moving and linking -------------------------------------------------------------------------


def _rename(book: Book, outputs: Outputs, thread: Thread, args: Arguments) -> Planned | None:
    return _renaming(book, thread.path(args[0]), thread.path(args[1]), 0)


def _renameat(book: Book, outputs: Outputs, thread: Thread, args: Arguments) -> Planned | None:
    source, target = thread.path(args[1], args[0]), thread.path(args[3], args[2])
    return _renaming(book, source, target, 0)


def _renameat2(book: Book, outputs: Outputs, thread: Thread, args: Arguments) -> Planned | None:
    source, target = thread.path(args[1], args[0]), thread.path(args[3], args[2])
    return _renaming(book, source, target, args[4])


def _renaming(book: Book, source_path: bytes, target_path: bytes, flags: int) -> Planned | None:
    source, target = book.place(source_path), book.place(target_path)
    if source is None and target is None:
        return None
    if not os.path.lexists(source_path):
        return None

    def finish(_: int) -> None:
        if source is None:
            assert target is not None
            book.problem("unmodelled", target, "was renamed in from outside the recorded directory")
        elif flags & _WHITEOUT or (flags & _EXCHANGE and target is None):
            book.problem("unmodelled", source, f"was renamed with flags {flags:#x}")
        elif source not in book.names:
            book.problem("unseen", source, "was made by a call that was not seen, and renamed")
        elif target is None:
            _moved_out(book, source)
        elif flags & _EXCHANGE:
            book.entries.append(("exchange", *source, *target))
            one, other = book.names[source], book.names[target]
            book.names[source], book.names[target] = other, one
        else:
            book.entries.append(("rename", *source, *target))
            inode = book.names[source]
            # Two names of one file: rename then does nothing.
            if book.names.get(target) != inode:
                book.unbind(source)
                book.bind(target, inode)

    inode = None if source is None else book.names.get(source)
    return Planned(
        "rename", finish, inode, happened=lambda: source is not None and not book.stands(source)
    )


def _moved_out(book: Book, source: Place) -> None:
    if book.names[source] in book.directories:
        reason = "is a directory that was renamed out of the recorded one"
        book.problem("unmodelled", source, reason)
    else:
        book.entries.append(("unlink", *source))
        book.moved_out(source)


def _link(book: Book, outputs: Outputs, thread: Thread, args: Arguments) -> Planned | None:
    return _linking(book, thread.path(args[0]), thread.path(args[1]), follow=False)


def _linkat(book: Book, outputs: Outputs, thread: Thread, args: Arguments) -> Planned | None:
    flags = args[4]
    source = thread.path(args[1], args[0])
    if not source and flags & _EMPTY_PATH:
        source = thread.directory(args[0]).rstrip(b"/")
        flags |= _FOLLOW_LINK
    target = thread.path(args[3], args[2])
    return _linking(book, source, target, follow=bool(flags & _FOLLOW_LINK))


def _linking(book: Book, source: bytes, target: bytes, *, follow: bool) -> Planned | None:
    place = book.place(target)
    if place is None or os.path.lexists(target):
        return None
    inode = book.inode_at(source, follow=follow)

    def finish(_: int) -> None:
        if inode is None:
            reason = "is a link to a file outside, or to one without a name"
            return book.problem("unmodelled", place, reason)
        book.entries.append(("link", inode, *place))
        return book.bind(place, inode)

    return Planned("link", finish, inode, happened=lambda: book.stands(place))


# --- syncs --------------------------------------------------------------------------------------


def _fsync(book: Book, outputs: Outputs, thread: Thread, args: Arguments) -> Planned | None:
    inode = book.inode_with(thread.status(args[0]))
    if inode is None:
        return None
    if inode in book.directories:
        tag = "fsync-directory"
        return Planned("sync-directory", lambda _: book.entries.append((tag, inode)), inode)

    def finish(_: int) -> None:
        book.entries.append(("fsync", inode))
        book.maps.synced(inode)

    return Planned("sync", finish, inode)


def _sync(book: Book, outputs: Outputs, thread: Thread, args: Arguments) -> Planned | None:
    def finish(_: int) -> None:
        book.entries.append(("sync",))
        book.maps.synced(None)

    return Planned("sync", finish)


def _syncfs(book: Book, outputs: Outputs, thread: Thread, args: Arguments) -> Planned | None:
    status = thread.status(args[0])
    if status is None or status.st_dev != os.stat(book.root).st_dev:
        return None
    return _sync(book, outputs, thread, args)


def _msync(book: Book, outputs: Outputs, thread: Thread, args: Arguments) -> Planned | None:
    if not book.maps or not args[2] & _MS_SYNC:
        return None
    ranges = _mapped_ranges(book, thread, args[0], args[0] + args[1])
    if not ranges:
        return None

    def finish(_: int) -> None:
        for inode, start, end in ranges:
            book.maps.synced_range(inode, start, end)

    return Planned("sync", finish, ranges[0][0])


def _mapped_ranges(book: Book, thread: Thread, start: int, end: int) -> list[tuple[int, int, int]]:
    """Which pages of which recorded files are mapped shared between two addresses."""
    ranges = []
    with open(f"/proc/{thread.pid}/maps", "rb") as lines:
        for line in lines:
            words = line.split(None, 5)
            low, high = (int(word, 16) for word in words[0].split(b"-"))
            if high <= start or low >= end or not words[1].endswith(b"s"):
                continue
            major, minor = (int(word, 16) for word in words[3].split(b":"))
            inode = book.identities.get((os.makedev(major, minor), int(words[4])))
            if inode is None:
                continue
            offset = int(words[2], 16)
            first = offset + max(start, low) - low
            last = offset + min(end, high) - low
            ranges.append((inode, first, -(-last // _PAGE_BYTES) * _PAGE_BYTES))
    return ranges


NAME_CALLS: dict[str, Handler] = {
    "open": _open,
    "creat": _creat,
    "openat": _openat,
    "openat2": _openat2,
    "mkdir": _mkdir,
    "mkdirat": _mkdirat,
    "mknod": _mknod,
    "mknodat": _mknodat,
    "symlink": _symlink,
    "symlinkat": _symlinkat,
    "unlink": _unlink,
    "rmdir": _rmdir,
    "unlinkat": _unlinkat,
    "rename": _rename,
    "renameat": _renameat,
    "renameat2": _renameat2,
    "link": _link,
    "linkat": _linkat,
    "fsync": _fsync,
    "fdatasync": _fsync,
    "sync": _sync,
    "syncfs": _syncfs,
    "msync": _msync,
}
"""What to make of each call, by its name."""
