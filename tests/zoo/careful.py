"""A small store that survives power cuts and I/O errors, made to be broken in one place at a time.

`PlainStore` with the order of writes and fsyncs that a crash cannot break, and with an answer for
each of them that fails. Every step that makes it safe has one method that a member of the zoo can
override.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from tests.zoo.plain import PlainStore, factory
from torntail.session import LogScan, SessionEvent, encode_event
from torntail.stores.contract import LoadResult, SessionNotFound, StorageFailed, WriterConflict


class SyncFailed(Exception):
    """An fsync failed: what it was for must not be synced again."""

    def __init__(self, cause: OSError) -> None:
        super().__init__(str(cause))
        self.cause = cause


class CarefulStore(PlainStore):
    """Claims durability `power`; one writer, unchecked."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.settled: set[Path] = set()
        self.dead: set[str] = set()
        self.unrepaired: set[str] = set()
        self.cursors: dict[str, tuple[int, int, int]] = {}

    # --- appending ------------------------------------------------------------------------------

    def append(self, session_id: str, events: Iterable[SessionEvent]) -> None:
        with self.mutex:
            self.check_open()
            batch = list(events)
            lines = self.encode_batch(session_id, batch)
            if not batch:
                return
            self.check_alive(session_id)
            first_flush = session_id in self.announced
            if not first_flush and (
                session_id not in self.next_seq or session_id in self.unrepaired
            ):
                self.load(session_id)
                self.check_repaired(session_id)
            next_seq = 0 if first_flush else self.next_seq[session_id]
            self.check_sequence(session_id, batch, next_seq)
            if first_flush:
                header = self.announced[session_id]
                path = self.new_path(header)
                try:
                    path.parent.mkdir(parents=True, exist_ok=True)
                    self.first_flush(path, self.encode_header(header), lines)
                except (OSError, SyncFailed) as error:
                    self.undo_first_flush(session_id, path, error)
                self.settled.add(path)
                del self.announced[session_id]
            else:
                path = self.find(session_id)[0]
                self.check_file(session_id, path)
                try:
                    self.settle(path)
                    self.append_batch(path, batch, lines)
                except (OSError, SyncFailed) as error:
                    self.undo_append(session_id, path, error)
            self.next_seq[session_id] = next_seq + len(batch)
            self.note_file(session_id, path)

    def first_flush(self, path: Path, header: bytes, lines: Sequence[bytes]) -> None:
        """The log whole under another name, durable, before it gets its own."""
        temporary = path.with_name(path.name + ".tmp")
        temporary.unlink(missing_ok=True)
        self.put(temporary, header + joined(lines))
        temporary.rename(path)
        self.sync_directories(path)

    def append_batch(
        self, path: Path, batch: Sequence[SessionEvent], lines: Sequence[bytes]
    ) -> None:
        """A turn/end is written only when all before it is durable."""
        start = 0
        for index in range(1, len(lines) + 1):
            if index == len(lines) or batch[index].type == "turn/end":
                self.put(path, joined(lines[start:index]))
                start = index

    def put(self, path: Path, content: bytes) -> None:
        """Appends bytes and makes them durable."""
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            self.write_whole(descriptor, content)
            self.sync(descriptor)
        finally:
            os.close(descriptor)

    def write_whole(self, descriptor: int, content: bytes) -> None:
        """All of it, however short the writes come."""
        while content:
            content = content[os.write(descriptor, content) :]

    # --- when the disk says no ------------------------------------------------------------------

    def check_alive(self, session_id: str) -> None:
        """An object whose fsync or cut has failed appends no more."""
        if session_id in self.dead:
            raise StorageFailed(session_id, self.root, "append", "an earlier one failed")

    def check_repaired(self, session_id: str) -> None:
        """Nothing is appended behind what is not mended."""
        if session_id in self.unrepaired:
            raise StorageFailed(session_id, self.root, "repair", "it could not be written")

    def check_file(self, session_id: str, path: Path) -> None:
        """The same file, as long as this object has left it."""
        if self.cursors.get(session_id) != self.cursor(path):
            raise WriterConflict(session_id, path, "the log was replaced or changed")

    def note_file(self, session_id: str, path: Path) -> None:
        self.cursors[session_id] = self.cursor(path)

    def cursor(self, path: Path) -> tuple[int, int, int]:
        status = path.stat()
        return status.st_dev, status.st_ino, status.st_size

    def undo_first_flush(self, session_id: str, path: Path, error: OSError | SyncFailed) -> None:
        for left in (path, path.with_name(path.name + ".tmp")):
            with contextlib.suppress(OSError):
                left.unlink(missing_ok=True)
        self.fail(session_id, path, error)

    def undo_append(self, session_id: str, path: Path, error: OSError | SyncFailed) -> None:
        """Back to the acknowledged length, durably; what cannot be undone ends this writer."""
        try:
            self.cut(path, self.cursors[session_id][2])
        except (OSError, SyncFailed):
            self.dead.add(session_id)
        self.fail(session_id, path, error)

    def fail(self, session_id: str, path: Path, error: OSError | SyncFailed) -> None:
        if isinstance(error, SyncFailed):
            self.dead.add(session_id)
        raise StorageFailed(session_id, path, "append", error) from error

    # --- durability -----------------------------------------------------------------------------

    def sync(self, descriptor: int) -> None:
        try:
            os.fsync(descriptor)
        except OSError as error:
            raise SyncFailed(error) from error

    def sync_directories(self, path: Path) -> None:
        for directory in (path.parent, self.root, self.root.parent):
            descriptor = os.open(directory, os.O_RDONLY)
            try:
                self.sync(descriptor)
            finally:
                os.close(descriptor)

    def settle(self, path: Path) -> None:
        """Before the first write to a log that was found: what stands there is made durable."""
        if path in self.settled:
            return
        descriptor = os.open(path, os.O_WRONLY)
        try:
            self.sync(descriptor)
        finally:
            os.close(descriptor)
        self.sync_directories(path)
        self.settled.add(path)

    # --- repairing ------------------------------------------------------------------------------

    def load(self, session_id: str) -> LoadResult:
        """As `PlainStore`; what cannot be written is shown all the same, marked not durable."""
        with self.mutex:
            self.check_open()
            path, scan, header, events = self.read(session_id)
            closers = self.closers(events)
            copy = reason = None
            if session_id in self.dead:
                reason = "an earlier write failed"
            else:
                try:
                    copy = self.repair(path, scan)
                    self.write_closers(path, closers)
                    self.note_file(session_id, path)
                    self.unrepaired.discard(session_id)
                except (OSError, SyncFailed) as error:
                    reason = str(error)
                    self.not_repaired(session_id, error)
            self.next_seq[session_id] = len(events) + len(closers)
            result = self.result(scan, header, [*events, *closers], closers, copy)
            if reason is not None:
                repair = replace(result.repair, durable=False, reason=reason)
                result = replace(result, repair=repair)
            self.after_load(session_id)
            return result

    def not_repaired(self, session_id: str, error: OSError | SyncFailed) -> None:
        """The next append tries again, unless an fsync has failed."""
        self.unrepaired.add(session_id)
        if isinstance(error, SyncFailed):
            self.dead.add(session_id)

    def repair(self, path: Path, scan: LogScan) -> str | None:
        copy = None
        if scan.needs_repair:
            self.settle(path)
        if scan.torn is not None:
            if scan.torn.holds_record:
                copy = f"{path.stem}.{scan.torn.byte}.{scan.torn.digest[:16]}.torn"
                self.keep_copy(path, path.with_name(copy), scan.torn.byte)
            self.cut(path, scan.torn.byte)
        if scan.newline_missing:
            self.put(path, b"\n")
        return copy

    def keep_copy(self, path: Path, copy: Path, start: int) -> None:
        temporary = copy.with_name(copy.name + ".tmp")
        temporary.unlink(missing_ok=True)
        self.put(temporary, path.read_bytes()[start:])
        temporary.rename(copy)
        self.sync_directories(path)

    def cut(self, path: Path, length: int) -> None:
        descriptor = os.open(path, os.O_WRONLY)
        try:
            os.ftruncate(descriptor, length)
            self.sync(descriptor)
        finally:
            os.close(descriptor)

    def write_closers(self, path: Path, closers: list[SessionEvent]) -> None:
        if closers:
            self.settle(path)
            self.append_batch(path, closers, [encode_event(closer) for closer in closers])

    # --- what no animal needs -------------------------------------------------------------------

    def present(self, session_id: str) -> Path | None:
        """Where a log stands, if it does."""
        try:
            return self.find(session_id)[0]
        except SessionNotFound:
            return None


def joined(lines: Iterable[bytes]) -> bytes:
    """Lines with their newlines."""
    return b"".join(line + b"\n" for line in lines)


careful = factory(CarefulStore, durability="power")
