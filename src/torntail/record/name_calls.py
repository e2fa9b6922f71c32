"""Wrappers over the calls that change names, and over those that sync.

Each does what the real function does, and logs it if it took place below the recorded directory and
succeeded. Renames into that directory, links to files outside it, symbolic links, pipes and devices
are noted as not modelled; a rename out of it is logged as the removal of the name.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from torntail.crash.disk import Name
from torntail.crash.oplog import (
    CreateFile,
    Link,
    MakeDirectory,
    Operation,
    RemoveDirectory,
    Rename,
    SyncAll,
    SyncDirectory,
    SyncFile,
    Truncate,
    Unlink,
)
from torntail.record.ledger import Ledger, Switch
from torntail.record.real import ORIGINALS, Real

__all__ = ["NameCalls"]

_CHANGES_ON_OPENING: Final = os.O_CREAT | os.O_TRUNC
_EXCLUSIVE: Final = os.O_CREAT | os.O_EXCL
_WRITES: Final = os.O_WRONLY | os.O_RDWR


class NameCalls(Switch):
    """The wrappers, with the signatures of `os`."""

    def open(self, path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        """`os.open`: logged if it makes a file or truncates one."""
        ledger = self.ledger
        if ledger is not None and ledger.opening is not None and flags & _WRITES:
            inode = ledger.inode_at(path, dir_fd)
            if inode is not None and flags & _EXCLUSIVE != _EXCLUSIVE:
                with ledger.lock:
                    ledger.opening(inode)
        if ledger is None or not flags & _CHANGES_ON_OPENING:
            return Real.open_descriptor(path, flags, mode, dir_fd=dir_fd)
        place = ledger.place(path, dir_fd) if flags & os.O_CREAT else None
        if place is not None or ledger.inode_at(path, dir_fd) is not None:
            with ledger.lock:
                operation = _on_opening(ledger, place, path, flags, dir_fd)
                if operation is not None:
                    ledger.consult(operation)
                    descriptor = Real.open_descriptor(path, flags, mode, dir_fd=dir_fd)
                    if isinstance(operation, CreateFile):
                        assert place is not None
                        ledger.made(operation, place, Real.fstat(descriptor))
                    else:
                        ledger.operations.append(operation)
                    return descriptor
        # Outside the lock, for the opening of a pipe may wait.
        return Real.open_descriptor(path, flags, mode, dir_fd=dir_fd)

    def mkdir(self, path: Any, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        """`os.mkdir`."""
        ledger = self.ledger
        place = None if ledger is None else ledger.place(path, dir_fd)
        if ledger is None or place is None:
            return Real.mkdir(path, mode, dir_fd=dir_fd)
        with ledger.lock:
            operation = MakeDirectory(*place, ledger.next_inode)
            if place not in ledger.names:
                ledger.consult(operation)
            Real.mkdir(path, mode, dir_fd=dir_fd)
            ledger.directories.add(operation.inode)
            ledger.made(operation, place, Real.stat(path, dir_fd=dir_fd))
        return None

    def rmdir(self, path: Any, *, dir_fd: int | None = None) -> None:
        """`os.rmdir`."""
        self._remove(RemoveDirectory, Real.rmdir, path, dir_fd)

    def unlink(self, path: Any, *, dir_fd: int | None = None) -> None:
        """`os.unlink`."""
        self._remove(Unlink, Real.unlink, path, dir_fd)

    def remove(self, path: Any, *, dir_fd: int | None = None) -> None:
        """`os.remove`."""
        self._remove(Unlink, ORIGINALS["remove"], path, dir_fd)

    def _remove(
        self,
        kind: type[Unlink] | type[RemoveDirectory],
        call: Callable[..., None],
        path: Any,
        directory: int | None,
    ) -> None:
        ledger = self.ledger
        place = None if ledger is None else ledger.place(path, directory)
        if ledger is None or place is None:
            return call(path, dir_fd=directory)
        with ledger.lock:
            operation = kind(*place)
            if place in ledger.names:
                ledger.consult(operation)
            call(path, dir_fd=directory)
            if place in ledger.names:
                ledger.operations.append(operation)
                ledger.unbind(place)
            else:
                ledger.unseen(place, "was made by a call that was not seen, and removed")
        return None

    def rename(
        self, src: Any, dst: Any, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None
    ) -> None:
        """`os.rename`."""
        self._rename(ORIGINALS["rename"], src, dst, src_dir_fd, dst_dir_fd)

    def replace(
        self, src: Any, dst: Any, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None
    ) -> None:
        """`os.replace`."""
        self._rename(ORIGINALS["replace"], src, dst, src_dir_fd, dst_dir_fd)

    def _rename(
        self,
        function: Callable[..., None],
        src: Any,
        dst: Any,
        src_dir_fd: int | None,
        dst_dir_fd: int | None,
    ) -> None:
        call = partial(function, src, dst, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)
        ledger = self.ledger
        if ledger is None:
            return call()
        source = ledger.place(src, src_dir_fd)
        target = ledger.place(dst, dst_dir_fd)
        if source is None and target is None:
            return call()
        with ledger.lock:
            if source is None:
                call()
                assert target is not None
                ledger.unmodelled(target, "was renamed in from outside the recorded directory")
            elif target is None:
                _move_out(ledger, source, call)
            else:
                _move(ledger, source, target, call)
        return None

    def link(
        self,
        src: Any,
        dst: Any,
        *,
        src_dir_fd: int | None = None,
        dst_dir_fd: int | None = None,
        follow_symlinks: bool = True,
    ) -> None:
        """`os.link`."""
        call = partial(
            Real.link,
            src,
            dst,
            src_dir_fd=src_dir_fd,
            dst_dir_fd=dst_dir_fd,
            follow_symlinks=follow_symlinks,
        )
        ledger = self.ledger
        place = None if ledger is None else ledger.place(dst, dst_dir_fd)
        if ledger is None or place is None:
            return call()
        with ledger.lock:
            inode = ledger.inode_at(src, src_dir_fd)
            if inode is None:
                call()
                ledger.unmodelled(place, "is a link to a file outside, or to one without a name")
                return None
            operation = Link(inode, *place)
            if place not in ledger.names:
                ledger.consult(operation)
            call()
            ledger.operations.append(operation)
            ledger.bind(place, inode)
        return None

    def symlink(
        self, src: Any, dst: Any, target_is_directory: bool = False, *, dir_fd: int | None = None
    ) -> None:
        """`os.symlink`: carried out, and noted as not modelled."""
        call = partial(ORIGINALS["symlink"], src, dst, target_is_directory, dir_fd=dir_fd)
        self._unmodelled(call, "is a symbolic link", dst, dir_fd)

    def mkfifo(self, path: Any, mode: int = 0o666, *, dir_fd: int | None = None) -> None:
        """`os.mkfifo`: carried out, and noted as not modelled."""
        call = partial(ORIGINALS["mkfifo"], path, mode, dir_fd=dir_fd)
        self._unmodelled(call, "is a pipe", path, dir_fd)

    def mknod(
        self, path: Any, mode: int = 0o600, device: int = 0, *, dir_fd: int | None = None
    ) -> None:
        """`os.mknod`: carried out, and noted as not modelled."""
        call = partial(ORIGINALS["mknod"], path, mode, device, dir_fd=dir_fd)
        self._unmodelled(call, "was made by mknod", path, dir_fd)

    def _unmodelled(
        self, call: Callable[[], None], reason: str, path: Any, directory: int | None
    ) -> None:
        ledger = self.ledger
        place = None if ledger is None else ledger.place(path, directory)
        call()
        if ledger is not None and place is not None:
            ledger.unmodelled(place, reason)

    # --- syncs ----------------------------------------------------------------------------------

    def fsync(self, fd: Any) -> None:
        """`os.fsync`."""
        self._sync(Real.fsync, fd)

    def fdatasync(self, fd: Any) -> None:
        """`os.fdatasync`: logged as an fsync, for the op log knows one kind."""
        self._sync(ORIGINALS["fdatasync"], fd)

    def control(self, fd: Any, cmd: int, arg: Any = 0, /) -> Any:
        """`fcntl.fcntl`, which on macOS has the sync that reaches the medium."""
        call = partial(Real.control, fd, cmd, arg)
        if cmd == Real.FULL_SYNC:
            return self._sync(lambda _: call(), fd)
        return call()

    def _sync(self, call: Callable[[Any], Any], target: Any) -> Any:
        ledger = self.ledger
        inode = None if ledger is None else ledger.inode_of(_descriptor(target))
        if ledger is None or inode is None:
            return call(target)
        with ledger.lock:
            operation: Operation = SyncFile(inode)
            if inode in ledger.directories:
                operation = SyncDirectory(inode)
            ledger.consult(operation)
            result = call(target)
            ledger.operations.append(operation)
        return result

    def sync(self) -> None:
        """`os.sync`."""
        ledger = self.ledger
        if ledger is None:
            return ORIGINALS["sync"]()  # type: ignore[no-any-return]
        with ledger.lock:
            ledger.consult(SyncAll())
            ORIGINALS["sync"]()
            ledger.operations.append(SyncAll())
        return None


def _on_opening(
    ledger: Ledger, place: Name | None, path: Any, flags: int, directory: int | None
) -> CreateFile | Truncate | None:
    """What opening a path would do to the recorded directory, if it succeeds."""
    try:
        status = Real.stat(path, dir_fd=directory)
    except FileNotFoundError:
        return None if place is None else CreateFile(*place, ledger.next_inode)
    except OSError:
        return None
    if not flags & os.O_TRUNC or flags & _EXCLUSIVE == _EXCLUSIVE:
        return None
    inode = ledger.inode_with(status)
    return None if inode is None else Truncate(inode, 0)


def _move(ledger: Ledger, source: Name, target: Name, call: Callable[[], None]) -> None:
    if source not in ledger.names:
        call()
        ledger.unseen(source, "was made by a call that was not seen, and renamed")
        return
    operation = Rename(*source, *target)
    ledger.consult(operation)
    call()
    ledger.operations.append(operation)
    inode = ledger.names[source]
    # Two names of one file: rename then does nothing.
    if ledger.names.get(target) != inode:
        ledger.unbind(source)
        ledger.bind(target, inode)


def _move_out(ledger: Ledger, source: Name, call: Callable[[], None]) -> None:
    inode = ledger.names.get(source)
    if inode in ledger.directories:
        call()
        ledger.unmodelled(source, "is a directory that was renamed out of the recorded one")
        return
    operation = Unlink(*source)
    if inode is not None:
        ledger.consult(operation)
    call()
    if inode is None:
        ledger.unseen(source, "was made by a call that was not seen, and renamed")
        return
    ledger.operations.append(operation)
    ledger.left(source)


def _descriptor(target: Any) -> Any:
    """The descriptor of what `fsync` takes: a number or a file object."""
    if isinstance(target, int):
        return target
    try:
        return target.fileno()
    except (AttributeError, OSError, ValueError):
        return None
