"""Stores that break one clause of group RW each; `ZOO` says which."""

# An animal is named as its factory is, which a target names like a function.

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from tests.zoo.bases import Rewriting, Sharing
from tests.zoo.plain import PlainStore, factory
from torntail.session import (
    LogScan,
    NotJson,
    Outcome,
    SessionEvent,
    SessionHeader,
    encode_event,
    encode_header,
)
from torntail.session.codec import encode_json
from torntail.stores.contract import (
    IdentityMismatch,
    ListEntry,
    LoadResult,
    NotSerializable,
    RepairReport,
    SequenceMismatch,
    SessionExists,
    SessionNotFound,
    StoreClosed,
)

ZOO: dict[str, str] = {}


def _animal(clause: str, **claims: Any) -> Any:
    """Enters a store under its own name."""

    def enter(store: Any) -> Any:
        ZOO[f"{__name__}:{store.__name__}"] = clause
        return factory(store, **claims)

    return enter


# --- RW-1 -----------------------------------------------------------------------------------------


@_animal("RW-1")
class loses_header_fields(PlainStore):
    def result(self, scan: LogScan, header: SessionHeader, *rest: Any) -> LoadResult:
        return super().result(scan, msgspec.structs.replace(header, parent_session=None), *rest)


@_animal("RW-1")
class drops_chunks(PlainStore):
    """Loses what a model streamed, and counts on without it."""

    def read(self, session_id: str) -> Any:
        path, scan, header, events = super().read(session_id)
        return path, scan, header, [event for event in events if event.type != "assistant/chunk"]


@_animal("RW-1")
class repairs_in_memory_only(PlainStore):
    def write_closers(self, path: Path, closers: list[SessionEvent]) -> None:
        pass


@_animal("RW-1")
class loads_the_first_hundred(PlainStore):
    def read(self, session_id: str) -> Any:
        path, scan, header, events = super().read(session_id)
        return path, scan, header, events[:100]


# --- RW-2, RW-3 -----------------------------------------------------------------------------------


@_animal("RW-2")
class accepts_any_first_seq(PlainStore):
    def check_sequence(self, session_id: str, batch: Sequence[SessionEvent], next_seq: int) -> None:
        super().check_sequence(session_id, batch, batch[0].seq)


@_animal("RW-2")
class looks_at_the_first_seq_only(PlainStore):
    def check_sequence(self, session_id: str, batch: Sequence[SessionEvent], next_seq: int) -> None:
        super().check_sequence(session_id, batch[:1], next_seq)


@_animal("RW-2")
class stores_a_batch_up_to_the_gap(PlainStore):
    def check_sequence(self, session_id: str, batch: Sequence[SessionEvent], next_seq: int) -> None:
        for index, event in enumerate(batch):
            if event.seq != next_seq + index:
                whole = [encode_event(one) + b"\n" for one in batch[:index]]
                if session_id not in self.announced:
                    self.write(self.find(session_id)[0], b"".join(whole))
                    self.next_seq[session_id] = next_seq + index
                raise SequenceMismatch(session_id, next_seq + index, event.seq, index)


class TellsNoNumbers(Exception):
    kind = "sequence"


@_animal("RW-2")
class refuses_without_telling_the_seqs(PlainStore):
    def check_sequence(self, session_id: str, batch: Sequence[SessionEvent], next_seq: int) -> None:
        try:
            super().check_sequence(session_id, batch, next_seq)
        except SequenceMismatch:
            raise TellsNoNumbers("the batch is out of order") from None


@_animal("RW-3")
class writes_nan_as_null(PlainStore):
    def encode(self, event: SessionEvent) -> bytes:
        try:
            return encode_event(event)
        except NotJson:
            text = json.dumps(event.to_json(), default=repr)
            return encode_event(
                SessionEvent.from_json(json.loads(text, parse_constant=lambda name: None))
            )


@_animal("RW-3")
class does_not_say_which_event(PlainStore):
    def encode_batch(self, session_id: str, batch: Sequence[SessionEvent]) -> list[bytes]:
        try:
            return super().encode_batch(session_id, batch)
        except NotSerializable as error:
            raise TypeError(error.reason) from None


@_animal("RW-3")
class stores_what_stands_before_the_bad_event(PlainStore):
    def encode_batch(self, session_id: str, batch: Sequence[SessionEvent]) -> list[bytes]:
        lines: list[bytes] = []
        for event in batch:
            try:
                lines.append(self.encode(event))
            except NotJson as error:
                if lines and session_id in self.next_seq:
                    self.append(session_id, batch[: len(lines)])
                raise NotSerializable(session_id, event.type, event.seq, str(error)) from None
        return lines


# --- RW-4, RW-5 -----------------------------------------------------------------------------------


def keeps_the_callers_events(root: Path) -> Sharing:
    return Sharing()


keeps_the_callers_events.capabilities = {"durability": "none"}  # type: ignore[attr-defined]
ZOO[f"{__name__}:keeps_the_callers_events"] = "RW-4"


@_animal("RW-4", repairs="none", inspects=False)
class hands_out_its_cache(PlainStore):
    """Loads once, and gives the same objects to everybody after."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.cache: dict[str, LoadResult] = {}

    def append(self, session_id: str, events: Iterable[SessionEvent]) -> None:
        super().append(session_id, events)
        self.cache.pop(session_id, None)

    def load(self, session_id: str) -> LoadResult:
        if session_id not in self.cache:
            self.cache[session_id] = super().load(session_id)
        return self.cache[session_id]


@_animal("RW-5")
class empty_batch_for_an_unknown_id_fails(PlainStore):
    def append_nothing(self, session_id: str) -> None:
        if session_id not in self.announced:
            self.find(session_id)


@_animal("RW-5")
class empty_batch_makes_a_file(PlainStore):
    def append_nothing(self, session_id: str) -> None:
        if session_id in self.announced:
            path = self.new_path(self.announced[session_id])
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(encode_header(self.announced[session_id]) + b"\n")


# --- RW-6, RW-7, RW-8 -----------------------------------------------------------------------------


@_animal("RW-6")
class create_writes_the_header(PlainStore):
    def create(self, header: SessionHeader) -> None:
        super().create(header)
        path = self.new_path(header)
        path.parent.mkdir(parents=True, exist_ok=True)
        self.write(path, encode_header(header) + b"\n")

    def append(self, session_id: str, events: Iterable[SessionEvent]) -> None:
        self.announced.pop(session_id, None)
        super().append(session_id, events)

    def check_new(self, header: SessionHeader) -> None:
        for path in self.places(header.id):
            if path.read_bytes().count(b"\n") > 1 or header.id in self.announced:
                raise SessionExists(header.id, path)
            path.unlink()


@_animal("RW-6")
class lists_what_has_no_event(PlainStore):
    def list(self) -> list[ListEntry]:
        created = [ListEntry(session, header) for session, header in self.announced.items()]
        return [*super().list(), *created]


@_animal("RW-7")
class create_forgets_other_folders(PlainStore):
    def check_new(self, header: SessionHeader) -> None:
        if header.id in self.announced:
            raise SessionExists(header.id)
        path = self.new_path(header)
        if path.exists() and b"\n" in path.read_bytes():
            raise SessionExists(header.id, path)


@_animal("RW-7")
class create_twice_before_the_first_event(PlainStore):
    def check_new(self, header: SessionHeader) -> None:
        self.announced.pop(header.id, None)
        super().check_new(header)


@_animal("RW-8")
class unknown_is_an_empty_session(PlainStore):
    def load(self, session_id: str) -> LoadResult:
        try:
            return super().load(session_id)
        except SessionNotFound:
            if session_id in self.announced:
                raise
            return LoadResult(SessionHeader(session_id, 0), [], RepairReport())


@_animal("RW-8")
class cannot_look_is_not_found(PlainStore):
    def find(self, session_id: str) -> list[Path]:
        try:
            return super().find(session_id)
        except OSError:
            raise SessionNotFound(session_id) from None


@_animal("RW-8", creates="explicit")
class append_to_unknown_creates(PlainStore):
    def append(self, session_id: str, events: Iterable[SessionEvent]) -> None:
        batch = list(events)
        if batch and session_id not in self.announced and not self.places(session_id):
            self.create(SessionHeader(session_id, 0))
        super().append(session_id, batch)


# --- RW-9, RW-10, RW-11 ---------------------------------------------------------------------------


@_animal("RW-9")
class one_bad_header_ends_the_list(PlainStore):
    def entry(self, path: Path) -> ListEntry | None:
        entry = super().entry(path)
        if entry is not None and entry.error is not None:
            raise entry.error
        return entry


@_animal("RW-9")
class damaged_sessions_are_not_listed(PlainStore):
    def entry(self, path: Path) -> ListEntry | None:
        entry = super().entry(path)
        return entry if entry is not None and entry.error is None else None


@_animal("RW-9")
class lists_what_never_was(PlainStore):
    def entry(self, path: Path) -> ListEntry | None:
        return super().entry(path) or ListEntry(path.stem, SessionHeader(path.stem, 0))


@_animal("RW-9")
class list_reads_the_bodies(PlainStore):
    def entry(self, path: Path) -> ListEntry | None:
        entry = super().entry(path)
        if entry is not None and entry.error is None:
            try:
                self.inspect(entry.session_id)
            except Exception as error:
                return ListEntry(entry.session_id, None, error)  # type: ignore[arg-type]
        return entry


@_animal("RW-10")
class names_that_run_together(PlainStore):
    def name(self, session_id: str) -> str:
        text = session_id.encode("ascii", "replace").decode()
        return "".join(one if one.isalnum() or one == "-" else "_" for one in text)

    def entry(self, path: Path) -> ListEntry | None:
        scan = self.scan(self.lines(path.read_bytes()), lambda event: None, "")
        entry = super().entry(path)
        return ListEntry(scan.header.id, scan.header) if scan.header is not None else entry


@_animal("RW-10")
class names_as_they_are(PlainStore):
    """An id with `..` in it leaves the folder."""

    def new_path(self, header: SessionHeader) -> Path:
        if "outside" in header.id:
            return self.root / self.bucket(header.cwd) / ".." / f"{header.id}.jsonl"
        return super().new_path(header)


@_animal("RW-10")
class takes_the_empty_id(PlainStore):
    def create(self, header: SessionHeader) -> None:
        if header.id:
            super().create(header)


@_animal("RW-11")
class load_closes_every_session(PlainStore):
    def after_load(self, session_id: str) -> None:
        for path in self.logs():
            other = path.stem
            if other not in self.next_seq:
                continue
            _, _, _, events = self.read(other)
            closers = self.closers(events)
            self.write_closers(path, closers)
            self.next_seq[other] = len(events) + len(closers)


@_animal("RW-11")
class one_next_seq_for_all(PlainStore):
    """Keeps the next seq by the first letter of the id, once two sessions are at work."""

    def check_sequence(self, session_id: str, batch: Sequence[SessionEvent], next_seq: int) -> None:
        alike = [seq for other, seq in self.next_seq.items() if other[0] == session_id[0]]
        if session_id.startswith("a") and len(alike) > 1:
            next_seq = max(alike)
        super().check_sequence(session_id, batch, next_seq)


# --- RW-12, RW-13 ---------------------------------------------------------------------------------


@_animal("RW-12")
class numbers_are_floats(Rewriting):
    def change(self, record: dict[str, Any]) -> dict[str, Any]:
        def floats(value: Any) -> Any:
            if type(value) is int and abs(value) > 2**53 and abs(value) < 10**300:
                return float(value)
            if isinstance(value, list):
                return [floats(member) for member in value]
            if isinstance(value, dict):
                return {key: floats(member) for key, member in value.items()}
            return value

        return {**record, "data": floats(record["data"])}


@_animal("RW-12")
class lone_surrogates_are_replaced(Rewriting):
    def change(self, record: dict[str, Any]) -> dict[str, Any]:
        text = json.dumps(record["data"], ensure_ascii=False)
        return {**record, "data": json.loads(text.encode("utf-8", "replace"))}


@_animal("RW-12")
class loses_the_sign_of_zero(Rewriting):
    def change(self, record: dict[str, Any]) -> dict[str, Any]:
        text = json.dumps(record["data"]).replace("-0.0", "0.0")
        return {**record, "data": json.loads(text)}


@_animal("RW-12")
class lines_end_at_a_line_separator(PlainStore):
    def lines(self, content: bytes) -> list[bytes]:
        parts = content.decode("utf-8", "surrogateescape").split("\u2028")
        return super().lines("".join(parts).encode("utf-8", "surrogateescape"))


@_animal("RW-13")
class unknown_types_are_dropped(PlainStore):
    def closers(self, events: list[SessionEvent]) -> list[SessionEvent]:
        known = ("note", "turn/", "step/", "user/", "assistant/", "tool/")
        events[:] = [event for event in events if event.type.startswith(known)]
        return super().closers(events)


@_animal("RW-13")
class time_never_goes_back(Rewriting):
    latest: Any = 0

    def change(self, record: dict[str, Any]) -> dict[str, Any]:
        if record["type"] == "note" and record["time"] in (5, 4, 0, -1):
            return {**record, "time": 5}
        return record


@_animal("RW-13")
class further_keys_are_lost(Rewriting):
    def change(self, record: dict[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in record.items() if key != "ignorable"}


# --- RW-14 … RW-17 --------------------------------------------------------------------------------


@_animal("RW-14")
class reads_any_version(PlainStore):
    def lines(self, content: bytes) -> list[bytes]:
        lines = super().lines(content)
        if lines and b'"version":' in lines[0] and b'"version":0' not in lines[0]:
            record = json.loads(lines[0])
            lines[0] = encode_json({**record, "version": 0}) + b"\n"
        return lines


@_animal("RW-14")
class another_version_is_corruption(PlainStore):
    def check_outcome(self, session_id: str, path: Path, scan: LogScan) -> None:
        if scan.outcome is Outcome.UNSUPPORTED_VERSION:
            raise SessionNotFound(session_id)
        super().check_outcome(session_id, path, scan)


@_animal("RW-15")
class takes_any_header(PlainStore):
    def check_outcome(self, session_id: str, path: Path, scan: LogScan) -> None:
        if scan.outcome is not Outcome.IDENTITY_MISMATCH:
            super().check_outcome(session_id, path, scan)


@_animal("RW-15")
class takes_the_first_of_two_places(PlainStore):
    def find(self, session_id: str) -> list[Path]:
        try:
            return super().find(session_id)
        except IdentityMismatch:
            return self.places(session_id)


@_animal("RW-16")
class orders_by_time(PlainStore):
    def result(self, scan: LogScan, header: SessionHeader, events: Any, *rest: Any) -> LoadResult:
        ordered = sorted(events, key=lambda event: event.time)
        first_notes = [event for event in events[:12] if event.type == "note"]
        falling = len(first_notes) == 12 and first_notes[0].time > first_notes[1].time
        return super().result(scan, header, ordered if falling else events, *rest)


@_animal("RW-16")
class equal_events_are_one(PlainStore):
    def result(self, scan: LogScan, header: SessionHeader, events: Any, *rest: Any) -> LoadResult:
        kept: list[SessionEvent] = []
        for event in events:
            if not kept or (kept[-1].type, kept[-1].data) != (event.type, event.data):
                kept.append(event)
        return super().result(scan, header, kept, *rest)


@_animal("RW-17")
class two_appends_at_once(PlainStore):
    """Looks at the next seq, lets the others look as well, then writes."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.mutex = _NoLock()  # type: ignore[assignment]
        self.meeting = threading.Barrier(2)

    def check_sequence(self, session_id: str, batch: Sequence[SessionEvent], next_seq: int) -> None:
        super().check_sequence(session_id, batch, next_seq)
        if threading.current_thread().name != "torntail store":
            try:
                self.meeting.wait(0.2)
            except threading.BrokenBarrierError:
                self.meeting.reset()


class _NoLock:
    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass


@_animal("RW-17")
class works_after_close(PlainStore):
    def close(self) -> None:
        pass


@_animal("RW-17")
class close_twice_fails(PlainStore):
    def close(self) -> None:
        if self.closed:
            raise StoreClosed
        super().close()
