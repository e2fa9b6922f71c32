"""A small store that survives power cuts, made to be broken in one place at a time.

`PlainStore` with the order of writes and fsyncs that a crash cannot break. Every step that makes it
safe has one method that a member of the zoo can override.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.zoo.plain import PlainStore, factory
from torntail.session import LogScan, SessionEvent, encode_event
from torntail.stores.contract import SessionNotFound


class CarefulStore(PlainStore):
    """Claims durability `power`; one writer, unchecked."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.settled: set[Path] = set()

    # --- appending ------------------------------------------------------------------------------

    def append(self, session_id: str, events: Iterable[SessionEvent]) -> None:
        with self.mutex:
            self.check_open()
            batch = list(events)
            lines = self.encode_batch(session_id, batch)
            if not batch:
                return
            first_flush = session_id in self.announced
            if not first_flush and session_id not in self.next_seq:
                self.load(session_id)
            next_seq = 0 if first_flush else self.next_seq[session_id]
            self.check_sequence(session_id, batch, next_seq)
            if first_flush:
                header = self.announced[session_id]
                path = self.new_path(header)
                path.parent.mkdir(parents=True, exist_ok=True)
                self.first_flush(path, self.encode_header(header), lines)
                self.settled.add(path)
                del self.announced[session_id]
            else:
                path = self.find(session_id)[0]
                self.settle(path)
                self.append_batch(path, batch, lines)
            self.next_seq[session_id] = next_seq + len(batch)

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
            os.write(descriptor, content)
            self.sync(descriptor)
        finally:
            os.close(descriptor)

    # --- durability -----------------------------------------------------------------------------

    def sync(self, descriptor: int) -> None:
        os.fsync(descriptor)

    def sync_directories(self, path: Path) -> None:
        for directory in (path.parent, self.root, self.root.parent):
            descriptor = os.open(directory, os.O_RDONLY)
            try:
                os.fsync(descriptor)
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
