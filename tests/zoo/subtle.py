"""Stores that break a promise where a first look does not see it; see `test_subtle`.

Each was once certified: what catches it now must go on catching it.
"""

# An animal is named as its factory is, which a target names like a function.

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from tests.zoo.plain import Events, PlainStore, factory
from torntail.session import (
    LogScan,
    SessionEvent,
    SessionHeader,
    encode_event,
    encode_header,
    interrupted_turn_closers,
)
from torntail.stores.contract import (
    ListEntry,
    LoadResult,
    NotSerializable,
    RepairReport,
    SequenceMismatch,
    SessionCorrupted,
    SessionNotFound,
    StoreError,
)

ZOO: dict[str, str] = {}
"""Stores by target, with the clause that has to catch them."""


def _animal(clause: str, **claims: Any) -> Any:
    def enter(store: Any) -> Any:
        ZOO[f"{__name__}:{store.__name__}"] = clause
        return factory(store, **claims)

    return enter


# --- reading and writing --------------------------------------------------------------------------


@_animal("RW-1")
class loads_the_first_thousand(PlainStore):
    def read(self, session_id: str) -> tuple[Path, LogScan, SessionHeader, Events]:
        path, scan, header, events = super().read(session_id)
        return path, scan, header, events[:1000]


@_animal("RW-1")
class drops_what_it_has_just_read(PlainStore):
    def read(self, session_id: str) -> tuple[Path, LogScan, SessionHeader, Events]:
        path, scan, header, events = super().read(session_id)
        kept: Events = []
        for event in events:
            if not kept or msgspec.structs.replace(event, seq=kept[-1].seq) != kept[-1]:
                kept.append(event)
        return path, scan, header, kept


def _poor(header: SessionHeader) -> SessionHeader:
    return SessionHeader(header.id, header.created_at, cwd=header.cwd, version=header.version)


@_animal("RW-1")
class inspect_loses_header_fields(PlainStore):
    def inspect(self, session_id: str) -> LoadResult:
        result = super().inspect(session_id)
        return LoadResult(_poor(result.header), result.events, result.repair)


@_animal("RW-2")
class to_inspect_is_to_load(PlainStore):
    def inspect(self, session_id: str) -> LoadResult:
        result = super().inspect(session_id)
        stored = len(result.events) - len(result.repair.closers)
        self.next_seq.setdefault(session_id, stored)
        return result


@_animal("RW-2")
class a_refused_first_batch_leaves_its_header(PlainStore):
    def check_sequence(self, session_id: str, batch: Sequence[SessionEvent], next_seq: int) -> None:
        try:
            super().check_sequence(session_id, batch, next_seq)
        except SequenceMismatch:
            header = self.announced.pop(session_id, None)
            if header is not None:
                path = self.new_path(header)
                path.parent.mkdir(parents=True, exist_ok=True)
                self.write(path, self.encode_header(header))
                self.next_seq[session_id] = 0
            raise


@_animal("RW-3")
class counts_what_it_refused(PlainStore):
    def encode_batch(self, session_id: str, batch: Sequence[SessionEvent]) -> Any:
        try:
            return super().encode_batch(session_id, batch)
        except NotSerializable:
            if session_id in self.next_seq:
                self.next_seq[session_id] += 1
            raise


@_animal("RW-3")
class looks_at_the_data_only(PlainStore):
    def encode(self, event: SessionEvent) -> bytes:
        line = encode_event(SessionEvent(event.type, event.seq, event.time, event.data))
        if event.surface_op or event.source_event_seqs or event.extra:
            line = json.dumps(event.to_json(), default=str).encode()
        return line


@_animal("RW-4")
class inspect_hands_out_its_cache(PlainStore):
    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.cache: dict[tuple[str, int], LoadResult] = {}

    def inspect(self, session_id: str) -> LoadResult:
        result = super().inspect(session_id)
        return self.cache.setdefault((session_id, len(result.events)), result)


@_animal("RW-5")
class an_empty_batch_repairs(PlainStore):
    def append_nothing(self, session_id: str) -> None:
        if session_id not in self.announced and self.places(session_id):
            self.load(session_id)


@_animal("RW-6")
class create_takes_a_note(PlainStore):
    """In a file of another name, which neither `list` nor `load` looks at."""

    def create(self, header: SessionHeader) -> None:
        super().create(header)
        folder = self.root / "pending"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{self.name(header.id)}.json").write_bytes(encode_header(header))


@_animal("RW-6")
class inspect_finds_what_is_not_stored(PlainStore):
    def inspect(self, session_id: str) -> LoadResult:
        if session_id in self.announced:
            return LoadResult(self.announced[session_id], [], RepairReport())
        return super().inspect(session_id)


class _Replacing(PlainStore):
    """Creates over what it cannot load."""

    replaced: type[StoreError]

    def check_new(self, header: SessionHeader) -> None:
        for path in self.places(header.id):
            try:
                self.read(header.id)
            except self.replaced:
                path.unlink()
                return
            except StoreError:
                pass
        super().check_new(header)


@_animal("DM-1")
class creates_over_a_corrupt_log(_Replacing):
    replaced = SessionCorrupted


@_animal("RW-8")
class inspect_takes_trouble_for_absence(PlainStore):
    def inspect(self, session_id: str) -> LoadResult:
        try:
            return super().inspect(session_id)
        except OSError:
            raise SessionNotFound(session_id) from None


@_animal("RW-8")
class finds_by_the_beginning_of_an_id(PlainStore):
    def places(self, session_id: str) -> list[Path]:
        name = self.name(session_id)
        return (
            super().places(session_id)
            or [path for path in self.logs() if path.stem.startswith(name)][:1]
        )


@_animal("RW-9")
class lists_one_page(PlainStore):
    def list(self) -> list[ListEntry]:
        return super().list()[:100]


@_animal("RW-9")
class list_loses_header_fields(PlainStore):
    def entry(self, path: Path) -> ListEntry | None:
        entry = super().entry(path)
        if entry is None or entry.header is None or entry.error is not None:
            return entry
        return ListEntry(entry.session_id, _poor(entry.header))


@_animal("RW-10")
class an_absolute_id_is_a_path(PlainStore):
    def new_path(self, header: SessionHeader) -> Path:
        if header.id.startswith("/"):
            return Path(f"{header.id}.jsonl")
        return super().new_path(header)


@_animal("RW-17")
class two_creates_at_once(PlainStore):
    def create(self, header: SessionHeader) -> None:
        self.check_open()
        self.check_new(header)
        time.sleep(0.002)
        with self.mutex:
            self.announced.pop(header.id, None)
            super().create(header)


# --- closers --------------------------------------------------------------------------------------


def _closing(clause: str) -> Callable[[Callable[[Events], Events]], Any]:
    def enter(closers: Callable[[Events], Events]) -> Any:
        class Closing(PlainStore):
            def closers(self, events: Events) -> Events:
                return closers(events)

        Closing.__name__ = closers.__name__
        return _animal(clause)(Closing)

    return enter


def _renumbered(closers: Events) -> Events:
    first = min((closer.seq for closer in closers), default=0)
    return [
        msgspec.structs.replace(closer, seq=first + index) for index, closer in enumerate(closers)
    ]


@_closing("CL-5")
def counts_the_turns(events: Events) -> Events:
    turn = sum(event.type == "turn/start" for event in events)
    return [
        msgspec.structs.replace(closer, data={**closer.data, "turn": turn})
        for closer in interrupted_turn_closers(events)
    ]


@_closing("CL-2")
def answers_in_the_order_of_the_ids(events: Events) -> Events:
    closers = interrupted_turn_closers(events)
    results = [closer for closer in closers if closer.type == "tool/result"]
    results.sort(key=lambda closer: str(closer.data["callId"]))
    return _renumbered([*results, *closers[len(results) :]])


@_closing("CL-2")
def the_user_calls_tools(events: Events) -> Events:
    return interrupted_turn_closers(
        [
            msgspec.structs.replace(event, type="assistant/message")
            if event.type == "user/message"
            else event
            for event in events
        ]
    )


@_closing("CL-2")
def every_block_with_an_id_is_a_call(events: Events) -> Events:
    def called(event: SessionEvent) -> SessionEvent:
        if event.type != "assistant/message":
            return event
        blocks = [
            {**block, "type": "tool-call"} if "id" in block else block
            for block in event.data["content"]
        ]
        return msgspec.structs.replace(event, data={**event.data, "content": blocks})

    return interrupted_turn_closers(map(called, events))


@_closing("CL-4")
def answers_ten_calls(events: Events) -> Events:
    closers = interrupted_turn_closers(events)
    results = [closer for closer in closers if closer.type == "tool/result"]
    return _renumbered([*results[:10], *closers[len(results) :]])


# --- damage ---------------------------------------------------------------------------------------


@_animal("DM-2")
class copies_the_whole_records_only(PlainStore):
    def repair(self, path: Path, scan: LogScan) -> str | None:
        copy = super().repair(path, scan)
        if copy is not None:
            tail = path.with_name(copy).read_bytes()
            path.with_name(copy).write_bytes(b"".join(tail.splitlines(True)[1:]))
        return copy


@_animal("DM-2")
class leaves_the_tail_until_the_next_append(PlainStore):
    """Where no closers are to be written; and reports it at each load."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.left: dict[Path, LogScan] = {}

    def repair(self, path: Path, scan: LogScan) -> str | None:
        events: Events = []
        self.scan(self.lines(self.content(path)), events.append, path.stem)
        if scan.torn is None or scan.torn.holds_record or self.closers(events):
            return super().repair(path, scan)
        self.left[path] = scan
        return None

    def write(self, path: Path, content: bytes) -> None:
        scan = self.left.pop(path, None) if content else None
        if scan is not None and scan.torn is not None:
            os.truncate(path, scan.torn.byte)
        super().write(path, content)


# --- not broken, but of another make --------------------------------------------------------------


class MakesItsRoot(PlainStore):
    """Makes its directory at once; where a file is in the way, `mkdir` says that it exists."""

    def __init__(self, root: Path) -> None:
        root.mkdir(parents=True, exist_ok=True)
        super().__init__(root)


makes_its_root = factory(MakesItsRoot)


class Eager(PlainStore):
    """`create` writes the header at once."""

    def create(self, header: SessionHeader) -> None:
        with self.mutex:
            super().create(header)
            del self.announced[header.id]
            path = self.new_path(header)
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.exists():
                path.rename(path.with_suffix(".aside"))
            self.write(path, self.encode_header(header))
            self.next_seq[header.id] = 0


eager = factory(Eager, lazy=False)
