"""Stores that lose or spoil sessions in a crash, in one way each; `ZOO` says which clause knows.

Each is `CarefulStore` with one step left out, or done in the wrong order.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from tests.zoo.careful import CarefulStore, joined
from tests.zoo.plain import factory
from torntail.session import (
    LogScan,
    MalformedRecord,
    Outcome,
    SessionEvent,
    SessionHeader,
    TornTail,
    encode_event,
    parse_event,
)
from torntail.stores.contract import (
    ListEntry,
    SequenceMismatch,
    SessionExists,
    WriterConflict,
)

ZOO: dict[str, str] = {}


def _animal(clause: str, **claims: Any) -> Any:
    def enter(store: Any) -> Any:
        ZOO[f"{__name__}:{store.__name__}"] = clause
        return factory(store, **{"durability": "power", **claims})

    return enter


# --- fsyncs left out, or in the wrong place -----------------------------------------------------


@_animal("CR-1")
class no_fsync(CarefulStore):
    """Never syncs a file."""

    def sync(self, descriptor: int) -> None:
        pass


@_animal("CR-1")
class no_fsync_on_append(CarefulStore):
    """Syncs the first flush only."""

    def append_batch(
        self, path: Path, batch: Sequence[SessionEvent], lines: Sequence[bytes]
    ) -> None:
        with path.open("ab") as file:
            file.write(joined(lines))


@_animal("CR-1")
class no_directory_fsync(CarefulStore):
    """Never syncs a directory: the log may have no name."""

    def sync_directories(self, path: Path) -> None:
        pass


@_animal("CR-1")
class syncs_the_bucket_only(CarefulStore):
    """The name of the folder itself is never made durable."""

    def sync_directories(self, path: Path) -> None:
        descriptor = os.open(path.parent, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)


@_animal("CR-1")
class renames_before_fsync(CarefulStore):
    """The name may be durable before the bytes are; they are synced too late, under no name."""

    def first_flush(self, path: Path, header: bytes, lines: Sequence[bytes]) -> None:
        temporary = path.with_name(path.name + ".tmp")
        temporary.write_bytes(header + joined(lines))
        temporary.rename(path)
        self.sync_directories(path)


@_animal("CR-1")
class syncs_the_wrong_file(CarefulStore):
    """Opens the log a second time, writes to the one and syncs a file beside it."""

    def put(self, path: Path, content: bytes) -> None:
        with path.open("ab") as file:
            file.write(content)
        other = os.open(path.with_name("journal"), os.O_WRONLY | os.O_CREAT, 0o600)
        os.fsync(other)
        os.close(other)


@_animal("CR-1")
class syncs_before_it_writes(CarefulStore):
    """The fsync stands in front of the write."""

    def put(self, path: Path, content: bytes) -> None:
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.fsync(descriptor)
        os.write(descriptor, content)
        os.close(descriptor)


@_animal("CR-1")
class syncs_every_other_append(CarefulStore):
    """Groups commits, and acknowledges those it has not synced."""

    turn = 0

    def sync(self, descriptor: int) -> None:
        self.turn += 1
        if self.turn % 2:
            os.fsync(descriptor)


@_animal("CR-1")
class syncs_turn_ends_only(CarefulStore):
    """Whatever is appended inside a turn waits for its end."""

    def append_batch(
        self, path: Path, batch: Sequence[SessionEvent], lines: Sequence[bytes]
    ) -> None:
        if any(event.type == "turn/end" for event in batch):
            super().append_batch(path, batch, lines)
            return
        with path.open("ab") as file:
            file.write(joined(lines))


@_animal("CR-3")
class one_fsync_for_a_whole_batch(CarefulStore):
    """A turn/end may be durable where a page before it is not."""

    def append_batch(
        self, path: Path, batch: Sequence[SessionEvent], lines: Sequence[bytes]
    ) -> None:
        self.put(path, joined(lines))


@_animal("CR-1")
class does_not_settle_what_it_found(CarefulStore):
    """Goes on behind bytes that an earlier process left in the page cache."""

    def settle(self, path: Path) -> None:
        pass


@_animal("CR-7")
class cut_not_synced_before_closers(CarefulStore):
    """The torn bytes may come back behind the closers."""

    def cut(self, path: Path, length: int) -> None:
        os.truncate(path, length)

    def write_closers(self, path: Path, closers: list[SessionEvent]) -> None:
        if closers:
            self.put(path, joined(map(encode_event, closers)))


# --- acknowledged too early ---------------------------------------------------------------------


@_animal("CR-1")
class buffers_until_close(CarefulStore):
    """Appends are kept in memory and written at close."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.buffer: dict[Path, list[bytes]] = {}

    def append_batch(
        self, path: Path, batch: Sequence[SessionEvent], lines: Sequence[bytes]
    ) -> None:
        self.buffer.setdefault(path, []).extend(lines)

    def content(self, path: Path) -> bytes:
        return path.read_bytes() + joined(self.buffer.get(path, ()))

    def close(self) -> None:
        for path, lines in self.buffer.items():
            self.put(path, joined(lines))
        super().close()


@_animal("CR-1")
class acknowledges_before_the_write(CarefulStore):
    """Each append writes the one before it."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.waiting: dict[Path, list[bytes]] = {}

    def append_batch(
        self, path: Path, batch: Sequence[SessionEvent], lines: Sequence[bytes]
    ) -> None:
        earlier = self.waiting.get(path, [])
        self.waiting[path] = list(lines)
        if earlier:
            self.put(path, joined(earlier))

    def content(self, path: Path) -> bytes:
        return path.read_bytes() + joined(self.waiting.get(path, ()))

    def close(self) -> None:
        for path, lines in self.waiting.items():
            self.put(path, joined(lines))
        super().close()


@_animal("CR-1")
class keeps_the_last_event_back(CarefulStore):
    """The last event of a batch is written with the next one."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.back: dict[Path, bytes] = {}

    def append_batch(
        self, path: Path, batch: Sequence[SessionEvent], lines: Sequence[bytes]
    ) -> None:
        whole = [*([self.back.pop(path)] if path in self.back else []), *lines]
        self.back[path] = whole.pop()
        if whole:
            self.put(path, joined(whole))

    def content(self, path: Path) -> bytes:
        return path.read_bytes() + joined([self.back[path]] if path in self.back else [])

    def close(self) -> None:
        for path, line in self.back.items():
            self.put(path, line + b"\n")
        super().close()


# --- writing over what stands -------------------------------------------------------------------


@_animal("CR-1")
class rewrites_in_place(CarefulStore):
    """Each append writes the whole file anew."""

    def append_batch(
        self, path: Path, batch: Sequence[SessionEvent], lines: Sequence[bytes]
    ) -> None:
        content = path.read_bytes() + joined(lines)
        descriptor = os.open(path, os.O_WRONLY | os.O_TRUNC)
        os.write(descriptor, content)
        os.fsync(descriptor)
        os.close(descriptor)


@_animal("CR-1")
class rewrites_through_an_unsynced_file(CarefulStore):
    """Each append renames a new file over the log without syncing it first."""

    def append_batch(
        self, path: Path, batch: Sequence[SessionEvent], lines: Sequence[bytes]
    ) -> None:
        temporary = path.with_name(path.name + ".new")
        temporary.write_bytes(path.read_bytes() + joined(lines))
        temporary.rename(path)
        self.sync_directories(path)


@_animal("CR-1")
class unlinks_before_it_renames(CarefulStore):
    """For a moment the log has no name at all."""

    def append_batch(
        self, path: Path, batch: Sequence[SessionEvent], lines: Sequence[bytes]
    ) -> None:
        temporary = path.with_name(path.name + ".new")
        temporary.unlink(missing_ok=True)
        self.put(temporary, path.read_bytes() + joined(lines))
        path.unlink()
        temporary.rename(path)
        self.sync_directories(path)


@_animal("CR-3")
class header_after_the_events(CarefulStore):
    """The events of the first flush come first, the header is put in front of them."""

    def first_flush(self, path: Path, header: bytes, lines: Sequence[bytes]) -> None:
        self.put(path, joined(lines))
        self.sync_directories(path)
        path.write_bytes(header + joined(lines))
        with path.open("rb") as file:
            os.fsync(file.fileno())


@_animal("CR-10")
class first_flush_under_its_own_name(CarefulStore):
    """A crash leaves a part of the first write, and this store refuses what has no whole header."""

    def first_flush(self, path: Path, header: bytes, lines: Sequence[bytes]) -> None:
        self.put(path, header + joined(lines))
        self.sync_directories(path)

    def check_new(self, header: SessionHeader) -> None:
        if header.id in self.announced or self.places(header.id):
            raise SessionExists(header.id)


# --- repairs ------------------------------------------------------------------------------------


@_animal("CR-1")
class truncates_the_interrupted_turn(CarefulStore):
    """Goes back to the last turn/end instead of closing what is open."""

    def read(self, session_id: str) -> tuple[Path, LogScan, SessionHeader, list[SessionEvent]]:
        path, scan, header, events = super().read(session_id)
        if scan.committed < len(events):
            kept = self.lines(self.content(path))[: 1 + scan.committed]
            start = sum(map(len, kept))
            torn = TornTail(2 + scan.committed, start, scan.size - start, "0" * 64, False, "", b"")
            scan = msgspec.structs.replace(scan, torn=torn, newline_missing=False)
            events = events[: scan.committed]
        return path, scan, header, events


@_animal("CR-2")
class no_closers(CarefulStore):
    """Leaves the interrupted turn open."""

    def closers(self, events: list[SessionEvent]) -> list[SessionEvent]:
        return []


@_animal("CR-5")
class closers_not_written(CarefulStore):
    """Returns closers and stores none, so that the next event stands where the first of them is."""

    def write_closers(self, path: Path, closers: list[SessionEvent]) -> None:
        pass


@_animal("CR-5")
class repairs_in_memory_only(CarefulStore):
    """What load returns is not what is stored."""

    def repair(self, path: Path, scan: LogScan) -> str | None:
        return None

    def write_closers(self, path: Path, closers: list[SessionEvent]) -> None:
        pass


@_animal("CR-2")
class closers_written_twice(CarefulStore):
    """Every closer stands twice."""

    def closers(self, events: list[SessionEvent]) -> list[SessionEvent]:
        closers = super().closers(events)
        doubled = [closer for closer in closers for _ in range(2)]
        return [
            msgspec.structs.replace(closer, seq=len(events) + index)
            for index, closer in enumerate(doubled)
        ]


@_animal("CR-2")
class closers_in_the_wrong_order(CarefulStore):
    """The step ends before its calls are answered."""

    def closers(self, events: list[SessionEvent]) -> list[SessionEvent]:
        closers = super().closers(events)
        swapped = [*closers[:-2][::-1], *closers[-2:]] if len(closers) > 3 else closers
        if len(closers) > 2:
            swapped = [closers[-2], *closers[:-2], closers[-1]]
        return [
            msgspec.structs.replace(closer, seq=len(events) + index)
            for index, closer in enumerate(swapped)
        ]


@_animal("CR-2")
class closers_with_a_wrong_seq(CarefulStore):
    """Numbers its closers from one too high."""

    def closers(self, events: list[SessionEvent]) -> list[SessionEvent]:
        return [
            msgspec.structs.replace(closer, seq=closer.seq + 1)
            for closer in super().closers(events)
        ]


@_animal("CR-2")
class forgets_open_calls(CarefulStore):
    """Ends step and turn, and leaves the calls without a result."""

    def closers(self, events: list[SessionEvent]) -> list[SessionEvent]:
        kept = [closer for closer in super().closers(events) if closer.type != "tool/result"]
        return [
            msgspec.structs.replace(closer, seq=len(events) + index)
            for index, closer in enumerate(kept)
        ]


@_animal("CR-2")
class drops_chunks_when_it_repairs(CarefulStore):
    """A load that repairs leaves the chunks out, renumbering what follows."""

    def read(self, session_id: str) -> tuple[Path, LogScan, SessionHeader, list[SessionEvent]]:
        path, scan, header, events = super().read(session_id)
        if scan.needs_repair or self.closers(events):
            kept = [event for event in events if event.type != "assistant/chunk"]
            events = [msgspec.structs.replace(event, seq=index) for index, event in enumerate(kept)]
        return path, scan, header, events


@_animal("CR-5")
class append_glued_to_a_torn_fragment(CarefulStore):
    """Sees the torn tail, leaves it where it is, and appends behind it."""

    def repair(self, path: Path, scan: LogScan) -> str | None:
        return None


@_animal("CR-4")
class a_repair_that_never_ends(CarefulStore):
    """Each load of a log that a crash once interrupted appends a note."""

    def after_load(self, session_id: str) -> None:
        path = self.find(session_id)[0]
        if b'"interrupted"' in path.read_bytes():
            event = SessionEvent("note", self.next_seq[session_id], 0, {})
            self.put(path, encode_event(event) + b"\n")
            self.next_seq[session_id] += 1


@_animal("CR-4")
class skips_bad_lines(CarefulStore):
    """Leaves out every line that does not parse, in silence, and goes on with the next."""

    def scan(self, lines: list[bytes], accept: Any, session_id: str) -> LogScan:
        good = [lines[0]] if lines else []
        for line in lines[1:]:
            try:
                event = parse_event(line.removesuffix(b"\n"))
            except MalformedRecord:
                continue
            renumbered = msgspec.structs.replace(event, seq=len(good) - 1)
            good.append(encode_event(renumbered) + b"\n")
        return super().scan(good, accept, session_id)

    def append_batch(
        self, path: Path, batch: Sequence[SessionEvent], lines: Sequence[bytes]
    ) -> None:
        self.put(path, joined(lines))


@_animal("CR-1")
class cuts_at_the_last_turn_end_of_a_corrupt_log(CarefulStore):
    """Takes any damage for a torn tail and cuts there, whatever was committed behind it."""

    def append_batch(
        self, path: Path, batch: Sequence[SessionEvent], lines: Sequence[bytes]
    ) -> None:
        with path.open("ab") as file:
            file.write(joined(lines))

    def check_outcome(self, session_id: str, path: Path, scan: LogScan) -> None:
        if scan.outcome is Outcome.CORRUPT and scan.damage is not None and scan.damage.line > 1:
            self.cut(path, scan.damage.byte)
            return
        super().check_outcome(session_id, path, scan)


@_animal("CR-5")
class takes_any_seq_after_a_crash(CarefulStore):
    """Once it has repaired a log it does not look at seqs any more."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.repaired = False

    def repair(self, path: Path, scan: LogScan) -> str | None:
        self.repaired = True
        return super().repair(path, scan)

    def check_sequence(self, session_id: str, batch: Sequence[SessionEvent], next_seq: int) -> None:
        if not self.repaired:
            super().check_sequence(session_id, batch, next_seq)


@_animal("CR-5")
class a_cursor_that_forgets_the_closers(CarefulStore):
    """Goes on at the seq the log had before its turn was closed."""

    def after_load(self, session_id: str) -> None:
        _, _, _, events = self.read(session_id)
        closed = [e for e in events if e.data == {"turn": 1, "reason": {"kind": "interrupted"}}]
        if closed and closed[-1] is events[-1]:
            self.next_seq[session_id] -= 1


# --- other sessions, lists, left-overs ----------------------------------------------------------


@_animal("CR-6")
class list_creates(CarefulStore):
    """A list makes an entry for every left-over temporary file."""

    def list(self) -> list[ListEntry]:
        entries = super().list()
        shown = {entry.session_id for entry in entries}
        for path in self.root.glob("*/*.tmp"):
            name = path.name.removesuffix(".jsonl.tmp")
            if name not in shown:
                entries.append(ListEntry(name))
        return entries


@_animal("CR-6")
class list_hides_interrupted_sessions(CarefulStore):
    """Shows only sessions whose last turn came to its end by itself."""

    def entry(self, path: Path) -> ListEntry | None:
        return None if b'"interrupted"}' in path.read_bytes()[-40:] else super().entry(path)


@_animal("CR-6")
class loses_header_fields_in_a_repair(CarefulStore):
    """Writes the header anew when it repairs, without the working directory."""

    def read(self, session_id: str) -> tuple[Path, LogScan, SessionHeader, list[SessionEvent]]:
        path, scan, header, events = super().read(session_id)
        if scan.needs_repair:
            header = msgspec.structs.replace(header, created_at=0)
        return path, scan, header, events


@_animal("CR-11")
class adopts_temporary_files(CarefulStore):
    """A left-over temporary file is taken for a session of that name."""

    def logs(self) -> list[Path]:
        left = sorted(self.root.glob("*/*.tmp")) if self.root.exists() else []
        return [*super().logs(), *left]


@_animal("CR-10")
class a_lock_file_by_pid(CarefulStore):
    """A lock file is made for each writer and removed at close: a crash leaves it."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.held: list[Path] = []

    def append(self, session_id: str, events: Iterable[SessionEvent]) -> None:
        lock = self.root / f"{self.name(session_id)}.pid"
        if lock not in self.held:
            self.root.mkdir(exist_ok=True)
            try:
                descriptor = os.open(lock, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
            except FileExistsError:
                raise WriterConflict(session_id, lock, "another process writes it") from None
            os.write(descriptor, b"%d" % os.getpid())
            os.close(descriptor)
            self.held.append(lock)
        super().append(session_id, events)

    def close(self) -> None:
        for lock in self.held:
            lock.unlink(missing_ok=True)
        self.held.clear()
        super().close()


@_animal("CR-5")
class sessions_share_a_cursor(CarefulStore):
    """The next seq is kept in one file for all sessions, and believed after a crash."""

    def append(self, session_id: str, events: Iterable[SessionEvent]) -> None:
        super().append(session_id, events)
        (self.root / "next").write_text(str(self.next_seq[session_id]))

    def after_load(self, session_id: str) -> None:
        cursor = self.root / "next"
        if cursor.exists() and cursor.read_text():
            self.next_seq[session_id] = int(cursor.read_text())


@_animal("CR-8", atomic_batch=True)
class claims_whole_batches(CarefulStore):
    """Says that a batch is there whole or not at all, and writes it line by line."""


# --- processes and promises ---------------------------------------------------------------------


@_animal("CR-3")
class refuses_a_torn_tail(CarefulStore):
    """Any line that does not parse is corruption."""

    def check_outcome(self, session_id: str, path: Path, scan: LogScan) -> None:
        if scan.torn is not None:
            raise SequenceMismatch(session_id, 0, 1)
        super().check_outcome(session_id, path, scan)


@_animal("CR-3")
class refuses_an_open_turn(CarefulStore):
    """Raises instead of closing what a crash interrupted."""

    def closers(self, events: list[SessionEvent]) -> list[SessionEvent]:
        if super().closers(events):
            raise RuntimeError("the last turn was not finished")
        return []


@_animal("CR-9", repairs="load")
class answers_a_call_twice(CarefulStore):
    """A log that ends a step with an open call gets a second result when it is loaded."""

    def closers(self, events: list[SessionEvent]) -> list[SessionEvent]:
        closers = super().closers(events)
        results = [closer for closer in closers if closer.type == "tool/result"]
        if not results:
            return closers
        again = [*results, results[0], *closers[len(results) :]]
        return [
            msgspec.structs.replace(closer, seq=len(events) + index)
            for index, closer in enumerate(again)
        ]
