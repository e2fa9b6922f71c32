"""Stores that do the wrong thing when the disk says no, in one way each; `ZOO` says which clause.

Each is `CarefulStore` with one answer to an error left out, or wrong.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.zoo.careful import CarefulStore, SyncFailed, joined
from tests.zoo.plain import factory
from torntail.session import SessionEvent
from torntail.stores.contract import LoadResult, SessionNotFound, StorageFailed

ZOO: dict[str, str] = {}


def _animal(clause: str, **claims: Any) -> Any:
    def enter(store: Any) -> Any:
        ZOO[f"{__name__}:{store.__name__}"] = clause
        return factory(store, **{"durability": "power", **claims})

    return enter


# --- IO-1: nothing is swallowed, nothing is queued ----------------------------------------------


@_animal("IO-1")
class swallows_a_write_error(CarefulStore):
    """Cuts the failed batch off again, and says nothing."""

    def fail(self, session_id: str, path: Path, error: OSError | SyncFailed) -> None:
        if isinstance(error, SyncFailed):
            super().fail(session_id, path, error)


@_animal("IO-1")
class swallows_a_failed_fsync(CarefulStore):
    """Takes an fsync for a hint."""

    def sync(self, descriptor: int) -> None:
        with contextlib.suppress(OSError):
            os.fsync(descriptor)


@_animal("IO-1")
class swallows_a_directory_fsync(CarefulStore):
    """Some file systems cannot sync a directory, so any error there is passed over."""

    def sync_directories(self, path: Path) -> None:
        with contextlib.suppress(SyncFailed):
            super().sync_directories(path)


@_animal("IO-1")
class copies_when_a_rename_fails(CarefulStore):
    """Writes the log under its own name where the rename failed, and says nothing."""

    def first_flush(self, path: Path, header: bytes, lines: Sequence[bytes]) -> None:
        try:
            super().first_flush(path, header, lines)
        except OSError:
            path.unlink(missing_ok=True)
            self.put(path, header + joined(lines))
            self.sync_directories(path)


class _Queueing(CarefulStore):
    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.queue: dict[Path, bytes] = {}

    def append_batch(
        self, path: Path, batch: Sequence[SessionEvent], lines: Sequence[bytes]
    ) -> None:
        try:
            super().append_batch(path, batch, lines)
        except OSError:
            self.queue[path] = joined(lines)
            raise


@_animal("IO-1")
class queues_until_it_is_closed(_Queueing):
    """Raises, keeps the batch, and writes it when it is closed."""

    def close(self) -> None:
        for path, content in self.queue.items():
            with contextlib.suppress(OSError, SyncFailed):
                self.put(path, content)
        super().close()


@_animal("IO-1")
class queues_for_the_next_append(_Queueing):
    """Raises, keeps the batch, and writes it in front of the next one."""

    def append_batch(
        self, path: Path, batch: Sequence[SessionEvent], lines: Sequence[bytes]
    ) -> None:
        queued = self.queue.pop(path, None)
        if queued is not None:
            self.put(path, queued)
        super().append_batch(path, batch, lines)


# --- IO-2: what is acknowledged still loads -----------------------------------------------------


@_animal("IO-2")
class leaves_a_partial_record(CarefulStore):
    """Raises, and writes the next batch behind what is left of this one."""

    def undo_append(self, session_id: str, path: Path, error: OSError | SyncFailed) -> None:
        self.note_file(session_id, path)
        self.fail(session_id, path, error)


@_animal("IO-2")
class cuts_without_sync(CarefulStore):
    """Cuts the failed batch off, but a power cut brings back what was synced of it."""

    def undo_append(self, session_id: str, path: Path, error: OSError | SyncFailed) -> None:
        try:
            os.truncate(path, self.cursors[session_id][2])
        except OSError:
            self.dead.add(session_id)
        self.fail(session_id, path, error)


@_animal("IO-2")
class cuts_too_much(CarefulStore):
    """Cuts off the last acknowledged record together with the failed ones."""

    def undo_append(self, session_id: str, path: Path, error: OSError | SyncFailed) -> None:
        kept = path.read_bytes()[: self.cursors[session_id][2] - 1]
        with contextlib.suppress(OSError, SyncFailed):
            self.cut(path, kept.rfind(b"\n") + 1)
        self.dead.add(session_id)
        self.fail(session_id, path, error)


@_animal("IO-2")
class removes_the_log(CarefulStore):
    """Takes a log that could not be written for worthless."""

    def undo_append(self, session_id: str, path: Path, error: OSError | SyncFailed) -> None:
        with contextlib.suppress(OSError):
            path.unlink()
        self.fail(session_id, path, error)


@_animal("IO-2")
class is_read_only_ever_after(CarefulStore):
    """Leaves a mark on storage after an error, and no later object appends any more."""

    def fail(self, session_id: str, path: Path, error: OSError | SyncFailed) -> None:
        with contextlib.suppress(OSError):
            (self.root / "failed").mkdir()
        super().fail(session_id, path, error)

    def check_alive(self, session_id: str) -> None:
        super().check_alive(session_id)
        if (self.root / "failed").exists():
            raise StorageFailed(session_id, self.root, "append", "storage had failed")


# --- IO-3: an fsync that failed is not made good by another -------------------------------------


@_animal("IO-3")
class syncs_again(CarefulStore):
    """Tries a failed fsync a second time, and takes its success for the truth."""

    def sync(self, descriptor: int) -> None:
        try:
            os.fsync(descriptor)
        except OSError:
            super().sync(descriptor)


@_animal("IO-3")
class goes_on_after_a_failed_fsync(CarefulStore):
    """Cuts back and raises, but takes the next append."""

    def fail(self, session_id: str, path: Path, error: OSError | SyncFailed) -> None:
        raise StorageFailed(session_id, path, "append", error) from error


@_animal("IO-3")
class a_load_revives_it(CarefulStore):
    """Dead after a failed fsync, until the session is loaded again."""

    def after_load(self, session_id: str) -> None:
        self.dead.discard(session_id)


@_animal("IO-3")
class leaves_what_it_could_not_sync(CarefulStore):
    """Dead after a failed fsync, but the next object finds the bytes and takes them for durable."""

    def undo_append(self, session_id: str, path: Path, error: OSError | SyncFailed) -> None:
        if isinstance(error, SyncFailed):
            self.fail(session_id, path, error)
        super().undo_append(session_id, path, error)


@_animal("IO-3")
class reopens_by_syncing_again(CarefulStore):
    """`reopen` keeps the bytes whose fsync had failed, and syncs them once more."""

    def undo_append(self, session_id: str, path: Path, error: OSError | SyncFailed) -> None:
        if isinstance(error, SyncFailed):
            self.fail(session_id, path, error)
        super().undo_append(session_id, path, error)

    def reopen(self, session_id: str) -> int:
        path, scan, _, events = self.read(session_id)
        self.dead.discard(session_id)
        self.settled.discard(path)
        self.settle(path)
        self.repair(path, scan)
        self.note_file(session_id, path)
        self.next_seq[session_id] = len(events)
        return len(events)


# --- IO-4: short writes, and room that comes back -----------------------------------------------


@_animal("IO-4")
class ignores_a_short_write(CarefulStore):
    """Does not look at how much was written."""

    def write_whole(self, descriptor: int, content: bytes) -> None:
        os.write(descriptor, content)


@_animal("IO-4")
class raises_on_a_short_write(CarefulStore):
    """Takes a short write for an error."""

    def write_whole(self, descriptor: int, content: bytes) -> None:
        if os.write(descriptor, content) != len(content):
            raise OSError(5, "short write")


@_animal("IO-4")
class repeats_after_no_space(CarefulStore):
    """Keeps the whole records of a batch that had no room, and takes them again with the retry."""

    def undo_append(self, session_id: str, path: Path, error: OSError | SyncFailed) -> None:
        if isinstance(error, OSError):
            with contextlib.suppress(OSError, SyncFailed):
                self.cut(path, path.read_bytes().rfind(b"\n") + 1)
                self.note_file(session_id, path)
                self.fail(session_id, path, error)
        super().undo_append(session_id, path, error)


@_animal("IO-4")
class leaves_a_gap_after_no_space(CarefulStore):
    """Counts the batch that had no room, and writes the next one where it would have ended."""

    def undo_append(self, session_id: str, path: Path, error: OSError | SyncFailed) -> None:
        if isinstance(error, OSError) and error.errno == 28:
            with contextlib.suppress(OSError, SyncFailed):
                length = self.cursors[session_id][2]
                self.cut(path, length)
                self.cut(path, length + 64)
                self.note_file(session_id, path)
                self.fail(session_id, path, error)
        super().undo_append(session_id, path, error)


@_animal("IO-4")
class counts_what_it_did_not_write(CarefulStore):
    """Its next seq goes on although append raised, and no load of its own corrects it."""

    ahead = 0

    def undo_append(self, session_id: str, path: Path, error: OSError | SyncFailed) -> None:
        self.ahead += 1
        super().undo_append(session_id, path, error)

    def check_sequence(self, session_id: str, batch: Sequence[SessionEvent], next_seq: int) -> None:
        super().check_sequence(session_id, batch, next_seq + self.ahead)


@_animal("IO-4")
class gives_up_when_there_is_no_space(CarefulStore):
    """Is dead after any error, and has no `reopen`."""

    def fail(self, session_id: str, path: Path, error: OSError | SyncFailed) -> None:
        self.dead.add(session_id)
        super().fail(session_id, path, error)


# --- IO-5: a repair that cannot be written ------------------------------------------------------


@_animal("IO-5")
class cannot_load_what_it_cannot_repair(CarefulStore):
    """`load` raises when its repair could not be written."""

    def not_repaired(self, session_id: str, error: OSError | SyncFailed) -> None:
        self.dead.add(session_id)
        raise StorageFailed(session_id, self.root, "repair", error) from error


@_animal("IO-5")
class says_it_is_durable(CarefulStore):
    """Returns the right events, and says they are stored."""

    def load(self, session_id: str) -> LoadResult:
        result = super().load(session_id)
        return replace(result, repair=replace(result.repair, durable=True, reason=None))


@_animal("IO-5")
class appends_to_what_is_not_repaired(CarefulStore):
    """Goes on behind closers that are shown and not stored."""

    def not_repaired(self, session_id: str, error: OSError | SyncFailed) -> None:
        with contextlib.suppress(OSError, SessionNotFound):
            self.note_file(session_id, self.find(session_id)[0])


@_animal("IO-5")
class shows_what_is_stored(CarefulStore):
    """Leaves the closers out when they cannot be written."""

    def load(self, session_id: str) -> LoadResult:
        result = super().load(session_id)
        if result.repair.durable or not result.repair.closers:
            return result
        return replace(result, events=result.events[: -len(result.repair.closers)])


@_animal("IO-5")
class needs_a_lock_file_to_load(CarefulStore):
    """Writes a file beside the log before it reads anything, and cannot without."""

    def load(self, session_id: str) -> LoadResult:
        path = self.find(session_id)[0].with_suffix(".lock")
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
        os.close(descriptor)
        return super().load(session_id)


# --- IO-6: the file is taken away ---------------------------------------------------------------


@_animal("IO-6")
class makes_the_log_anew(CarefulStore):
    """Opens the log for appending wherever it was, and makes it if it is gone: without a header."""

    def find(self, session_id: str) -> Any:
        try:
            return super().find(session_id)
        except SessionNotFound:
            if session_id not in self.next_seq:
                raise
            return [self.paths[session_id]]

    def check_file(self, session_id: str, path: Path) -> None:
        if path.exists():
            super().check_file(session_id, path)

    def note_file(self, session_id: str, path: Path) -> None:
        self.paths = {**getattr(self, "paths", {}), session_id: path}
        super().note_file(session_id, path)


@_animal("IO-6")
class appends_to_another_file(CarefulStore):
    """Looks at the length of the log, not at which file it is."""

    def check_file(self, session_id: str, path: Path) -> None:
        if self.cursor(path)[2] != self.cursors[session_id][2]:
            super().check_file(session_id, path)


@_animal("IO-6")
class appends_to_a_shorter_file(CarefulStore):
    """Looks at which file it is, not at its length."""

    def check_file(self, session_id: str, path: Path) -> None:
        if self.cursor(path)[:2] != self.cursors[session_id][:2]:
            super().check_file(session_id, path)


@_animal("IO-6")
class keeps_the_log_open(CarefulStore):
    """Writes through a descriptor that it opened once, whatever stands under the name."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.descriptors: dict[Path, int] = {}

    def check_file(self, session_id: str, path: Path) -> None:
        pass

    def find(self, session_id: str) -> Any:
        try:
            return super().find(session_id)
        except SessionNotFound:
            found = [path for path in self.descriptors if path.stem == self.name(session_id)]
            if not found:
                raise
            return found

    def append_batch(
        self, path: Path, batch: Sequence[SessionEvent], lines: Sequence[bytes]
    ) -> None:
        if path not in self.descriptors:
            self.descriptors[path] = os.open(path, os.O_WRONLY | os.O_APPEND)
        super().append_batch(path, batch, lines)

    def put(self, path: Path, content: bytes) -> None:
        descriptor = self.descriptors.get(path)
        if descriptor is None:
            super().put(path, content)
            return
        self.write_whole(descriptor, content)
        self.sync(descriptor)

    def note_file(self, session_id: str, path: Path) -> None:
        with contextlib.suppress(OSError):
            super().note_file(session_id, path)

    def close(self) -> None:
        for descriptor in self.descriptors.values():
            os.close(descriptor)
        self.descriptors.clear()
        super().close()


@_animal("IO-6")
class asks_afterwards(CarefulStore):
    """Notices that the log is another, when it has written to it."""

    def check_file(self, session_id: str, path: Path) -> None:
        try:
            super().check_file(session_id, path)
        except Exception:
            with path.open("ab") as file:
                file.write(b"\n")
            raise
