"""The write path of one JSONL log: the order of writes and fsyncs that a crash cannot break.

One rule holds for every write: when a `turn/end` is written, every earlier byte of the log is
already synced, because a `turn/end` that survives behind a hole would make the session corrupt
(DM-1). Decides IO-1 to IO-4 for the log: an error cuts back to the acknowledged length, a failed
fsync ends the writer. Does not decide what is written (`jsonl`) or who may write (`lock`).
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple, Self

from torntail.stores.contract import SessionExists, StorageFailed, WriterConflict
from torntail.stores.entrance import Record
from torntail.stores.files import (
    FILE_MODE,
    make_directories,
    open_log,
    open_log_with_status,
    sync_directories,
    sync_file,
    unlink_if_there,
    write_all,
)
from torntail.stores.paths import LOG_SUFFIX, companion_name

__all__ = ["Cursor", "LogWriter"]

_CHUNK_BYTES: Final = 1 << 20
_NO_HARD_LINKS: Final = frozenset(
    {errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK}
)


class Cursor(NamedTuple):
    """Which file was read, and up to where; held against the file before each write (MW-4)."""

    device: int
    inode: int
    length: int


class LogWriter:
    """The open log of a session whose lock the caller holds.

    `length` is the acknowledged length in bytes. `dead` is set after a failed fsync, or a failed
    write that could not be cut back: nothing is written until the log is opened anew (IO-3).
    `uncut`: more than `length` may stand in storage, or come back to it.
    """

    def __init__(
        self, session_id: str, path: str, descriptor: int, cursor: Cursor, *, durable: bool
    ) -> None:
        self.session_id = session_id
        self.path = path
        self.dead = False
        self.uncut = False
        self._descriptor = descriptor
        self._device = cursor.device
        self._inode = cursor.inode
        self.length = cursor.length
        self._durable = durable
        # Bytes found on opening may stand in the page cache only.
        self._all_synced = False

    # --- opening --------------------------------------------------------------------------------

    @classmethod
    def open(
        cls,
        session_id: str,
        path: str,
        cursor: Cursor,
        *,
        durable: bool,
        write_again: bool = False,
    ) -> Self:
        """Opens a log that was read up to `cursor`, and makes what stands in it, and its name,
        durable: this object's first write to a log that it did not make itself.

        `write_again`: an fsync of it has failed, and the kernel may take its pages for clean; only
        what is written once more is written at all (IO-3).

        Raises `WriterConflict` if the log changed since it was read, `StorageFailed` otherwise.
        """
        try:
            descriptor, status = open_log_with_status(path, os.O_WRONLY | os.O_APPEND)
        except FileNotFoundError:
            raise WriterConflict(session_id, Path(path), "the log is gone") from None
        except OSError as error:
            raise StorageFailed(session_id, Path(path), "open", error) from error
        writer = cls(session_id, path, descriptor, cursor, durable=durable)
        try:
            if (status.st_dev, status.st_ino) != (cursor.device, cursor.inode):
                raise WriterConflict(session_id, Path(path), "the log was replaced")
            writer.check_unchanged()
            if durable:
                if write_again:
                    _write_again(path)
                sync_file(descriptor)
                sync_directories(os.path.dirname(path))
        except BaseException as error:
            writer.close()
            if isinstance(error, OSError):
                raise StorageFailed(
                    session_id, Path(path), "fsync", error, writer_dead=True
                ) from error
            raise
        writer._all_synced = True
        return writer

    @classmethod
    def create(
        cls, session_id: str, path: str, header: bytes, batch: Sequence[Record], *, durable: bool
    ) -> Self:
        """Makes a log whole with its first batch, and only then gives it its name (CR-10).

        Raises `SessionExists` when the name is taken, `StorageFailed` otherwise; then nothing is
        left under the final name unless removing it failed, too.
        """
        temporary = _temporary_path(path)
        operation = "mkdir"
        try:
            make_directories(os.path.dirname(path))
            operation = "open of the temporary file"
            unlink_if_there(temporary)
            descriptor = _create_exclusive(temporary)
        except OSError as error:
            raise StorageFailed(session_id, Path(path), operation, error) from error
        named = False
        sync_failed = False
        try:
            operation = "write"
            lines = [header, *(record.line for record in batch), b""]
            write_all(descriptor, b"\n".join(lines))
            if durable:
                operation, sync_failed = "fsync", True
                sync_file(descriptor)
                sync_failed = False
            operation = "link"
            os.link(temporary, path)
            named = True
            # Before the directory is synced, so that one fsync settles both names.
            operation = "unlink of the temporary file"
            unlink_if_there(temporary)
            if durable:
                operation, sync_failed = "fsync of the directories", True
                sync_directories(os.path.dirname(path))
        except BaseException as error:
            os.close(descriptor)
            _unlink_quietly(temporary)
            if named:
                _unlink_quietly(path)
            if isinstance(error, FileExistsError) and operation == "link":
                raise SessionExists(session_id, Path(path)) from None
            if not isinstance(error, OSError):
                raise
            if operation == "link" and error.errno in _NO_HARD_LINKS:
                return cls._create_in_place(session_id, path, header, batch, durable=durable)
            raise StorageFailed(
                session_id, Path(path), operation, error, writer_dead=sync_failed
            ) from error
        writer = cls(session_id, path, descriptor, _cursor(descriptor), durable=durable)
        writer._all_synced = True
        return writer

    @classmethod
    def _create_in_place(
        cls, session_id: str, path: str, header: bytes, batch: Sequence[Record], *, durable: bool
    ) -> Self:
        """For file systems without hard links: under its final name at once, with DM-6.

        The header is settled alone, and then its newline alone: a first line that ends in a newline
        and is no header would be corruption, and a crash must not leave that (CR-3, CR-10).
        """
        try:
            descriptor = _create_exclusive(path)
        except FileExistsError:
            raise SessionExists(session_id, Path(path)) from None
        except OSError as error:
            raise StorageFailed(session_id, Path(path), "open", error) from error
        writer = cls(session_id, path, descriptor, _cursor(descriptor), durable=durable)
        operation = "write"
        try:
            for piece in (header, b"\n"):
                operation = "write"
                write_all(descriptor, piece)
                operation = "fsync"
                writer._sync()
            writer.length = len(header) + 1
            writer.append(batch)
            if durable:
                operation = "fsync of the directories"
                sync_directories(os.path.dirname(path))
        except BaseException as error:
            writer.close()
            _unlink_quietly(path)
            if isinstance(error, OSError):
                raise StorageFailed(
                    session_id, Path(path), operation, error, writer_dead=operation != "write"
                ) from error
            raise
        return writer

    @property
    def cursor(self) -> Cursor:
        """The log as this writer left it."""
        return Cursor(self._device, self._inode, self.length)

    # --- writing --------------------------------------------------------------------------------

    def check_unchanged(self) -> None:
        """Looks at the storage, not at memory (MW-4): the same file, of the acknowledged length."""
        try:
            named = os.stat(self.path, follow_symlinks=False)
        except FileNotFoundError:
            raise WriterConflict(self.session_id, Path(self.path), "the log is gone") from None
        except OSError as error:
            raise self._failed("stat", error) from error
        if (named.st_dev, named.st_ino) != (self._device, self._inode):
            raise WriterConflict(self.session_id, Path(self.path), "the log was replaced")
        # The name leads to the file that is open here, so that its size is that file's.
        if named.st_size != self.length:
            raise WriterConflict(
                self.session_id,
                Path(self.path),
                f"the log has {named.st_size} bytes where {self.length} were expected: another "
                "writer changed it; load it again",
            )

    def append(self, batch: Sequence[Record]) -> None:
        """Writes a batch and makes it durable; on any error cuts it off again (IO-1 to IO-3)."""
        self.check_alive()
        self.check_unchanged()
        operation = "write"
        written = 0
        try:
            for piece, is_turn_end in _cut_before_turn_ends(batch):
                if is_turn_end and not self._all_synced:
                    operation = "fsync"
                    self._sync()
                    operation = "write"
                self._all_synced = not self._durable
                write_all(self._descriptor, piece)
                written += len(piece)
            operation = "fsync"
            self._sync()
        except BaseException as error:
            self._cut_back(sync_failed=operation == "fsync")
            if isinstance(error, OSError):
                raise self._failed(operation, error) from error
            raise
        self.length += written

    def add_newline(self) -> None:
        """Ends the last record, whose newline a crash took (DM-4)."""
        self.append([Record(b"", "", -1)])

    def cut(self, length: int) -> None:
        """Drops everything behind `length`, durably; raises `StorageFailed`."""
        self.check_alive()
        self.check_unchanged()
        operation = "truncate"
        try:
            os.ftruncate(self._descriptor, length)
            self.length = length
            self._all_synced = False
            operation = "fsync"
            self._sync()
        except OSError as error:
            self.dead = operation == "fsync"
            raise self._failed(operation, error) from error

    def revive(self) -> None:
        """Starts over after a storage error: back to the acknowledged length, durably.

        What stands behind it was never acknowledged, and an fsync that failed may have left it
        marked clean without being on disk, so it is dropped rather than synced again. A writer that
        is not dead left nothing there: such bytes are another's, and are not touched.
        """
        if not self.dead:
            self.check_unchanged()
            return
        try:
            named = os.stat(self.path, follow_symlinks=False)
            size = os.fstat(self._descriptor).st_size
            if (named.st_dev, named.st_ino) != (self._device, self._inode) or size < self.length:
                raise WriterConflict(
                    self.session_id, Path(self.path), "the log was replaced or cut"
                )
            os.ftruncate(self._descriptor, self.length)
            self._all_synced = False
            self._sync()
            if self._durable:
                sync_directories(os.path.dirname(self.path))
        except FileNotFoundError:
            raise WriterConflict(self.session_id, Path(self.path), "the log is gone") from None
        except OSError as error:
            self.dead = True
            raise self._failed("reopen", error) from error
        self.dead = self.uncut = False

    def check_alive(self) -> None:
        """Raises `StorageFailed` when this writer may not write any more (IO-3)."""
        if self.dead:
            raise self._failed("append", "an earlier write or fsync failed")

    def close(self) -> None:
        """Closes the file; does nothing when it is closed already."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __del__(self) -> None:
        if self._descriptor >= 0:
            with contextlib.suppress(OSError):
                self.close()

    def _sync(self) -> None:
        if self._durable:
            sync_file(self._descriptor)
        self._all_synced = True

    def _cut_back(self, *, sync_failed: bool) -> None:
        self.dead = sync_failed
        try:
            os.ftruncate(self._descriptor, self.length)
            self._sync()
        except OSError:
            self.dead = self.uncut = True

    def _failed(self, operation: str, cause: BaseException | str) -> StorageFailed:
        return StorageFailed(
            self.session_id, Path(self.path), operation, cause, writer_dead=self.dead
        )


def _cut_before_turn_ends(batch: Sequence[Record]) -> Iterator[tuple[bytes, bool]]:
    """The batch in pieces, each from one `turn/end` up to the next, and whether it begins so."""
    start = 0
    for index in range(1, len(batch) + 1):
        if index == len(batch) or batch[index].type == "turn/end":
            lines = [record.line for record in batch[start:index]]
            yield b"\n".join([*lines, b""]), batch[start].type == "turn/end"
            start = index


def _create_exclusive(path: str) -> int:
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    return os.open(path, flags, FILE_MODE)


def _write_again(path: str) -> None:
    """Writes over a log what stands in it, so that every page of it is dirty."""
    # Not through the writer's descriptor, on which every write appends.
    descriptor = open_log(path, os.O_RDWR)
    try:
        offset = 0
        while chunk := os.pread(descriptor, _CHUNK_BYTES, offset):
            offset += os.pwrite(descriptor, chunk, offset)
    finally:
        os.close(descriptor)


def _temporary_path(path: str) -> str:
    """A fixed name per log: it is only ever made under the lock."""
    folder, name = os.path.split(path)
    return os.path.join(folder, companion_name(name.removesuffix(LOG_SUFFIX), f"{LOG_SUFFIX}.tmp"))


def _cursor(descriptor: int) -> Cursor:
    status = os.fstat(descriptor)
    return Cursor(status.st_dev, status.st_ino, status.st_size)


def _unlink_quietly(path: str) -> None:
    # Best effort, on the way out of another error, which is the one to report.
    with contextlib.suppress(OSError):
        os.unlink(path)
