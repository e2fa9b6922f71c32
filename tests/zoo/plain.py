"""A small store that keeps RW, CL and DM, made to be broken in one place at a time.

One file a session, `<root>/<hash of cwd>/<encoded id>.jsonl`, no lock and no fsync: it is not meant
to survive anything but being closed. Every promise has one method that a member of the zoo can
override. Kept apart from the reference stores, so that a change there breaks no animal.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from torntail.judge.capabilities import Capabilities
from torntail.session import (
    LogScan,
    NotJson,
    Outcome,
    SessionEvent,
    SessionHeader,
    encode_event,
    encode_header,
    interrupted_turn_closers,
    parse_header,
    scan_log,
)
from torntail.stores.contract import (
    IdentityMismatch,
    InvalidSessionId,
    ListEntry,
    LoadResult,
    NeverMaterialised,
    NotSerializable,
    RepairReport,
    SequenceMismatch,
    SessionCorrupted,
    SessionExists,
    SessionNotFound,
    StoreClosed,
    StoreError,
    UnsupportedVersion,
)
from torntail.stores.paths import decode_segment, encode_segment

# Spelled here: inside the class, `list` is the call.
Lines = list[bytes]
Paths = list[Path]
Events = list[SessionEvent]

CLAIMS = Capabilities(durability="process", writers="one-unchecked")


def factory(store: type[PlainStore], **claims: Any) -> Callable[[Path], PlainStore]:
    """A factory of that store, with other claims if told so."""

    def make(root: Path) -> PlainStore:
        return store(root)

    make.__name__ = store.__name__
    make.capabilities = Capabilities(  # type: ignore[attr-defined]
        **{"durability": "process", "writers": "one-unchecked", **claims}
    )
    return make


class PlainStore:
    """Sessions as files; what one object knows of them is in `announced` and `next_seq`."""

    capabilities = CLAIMS

    def __init__(self, root: Path) -> None:
        self.root = root
        self.announced: dict[str, SessionHeader] = {}
        self.next_seq: dict[str, int] = {}
        self.mutex = threading.RLock()
        self.closed = False

    # --- the calls ------------------------------------------------------------------------------

    def create(self, header: SessionHeader) -> None:
        with self.mutex:
            self.check_open()
            if not header.id or len(encode_segment(header.id)) > 200:
                raise InvalidSessionId(header.id, "is empty or too long")
            if header.version != 0:
                raise UnsupportedVersion(header.id, "the header given", header.version)
            header = parse_header(encode_header(header))
            self.check_new(header)
            self.announced[header.id] = header

    def append(self, session_id: str, events: Iterable[SessionEvent]) -> None:
        with self.mutex:
            self.check_open()
            batch = list(events)
            lines = self.encode_batch(session_id, batch)
            if not batch:
                self.append_nothing(session_id)
                return
            first_flush = session_id in self.announced
            if first_flush:
                next_seq = 0
            else:
                if session_id not in self.next_seq:
                    self.load(session_id)
                next_seq = self.next_seq[session_id]
            self.check_sequence(session_id, batch, next_seq)
            if first_flush:
                header = self.announced.pop(session_id)
                path = self.new_path(header)
                path.parent.mkdir(parents=True, exist_ok=True)
                if path.exists():
                    path.rename(path.with_suffix(".aside"))
                self.write(path, self.encode_header(header))
            self.write(self.find(session_id)[0], b"".join(line + b"\n" for line in lines))
            self.next_seq[session_id] = next_seq + len(batch)

    def load(self, session_id: str) -> LoadResult:
        with self.mutex:
            self.check_open()
            path, scan, header, events = self.read(session_id)
            closers = self.closers(events)
            copy = self.repair(path, scan)
            self.write_closers(path, closers)
            self.next_seq[session_id] = len(events) + len(closers)
            result = self.result(scan, header, [*events, *closers], closers, copy)
            self.after_load(session_id)
            return result

    def inspect(self, session_id: str) -> LoadResult:
        with self.mutex:
            self.check_open()
            _, scan, header, events = self.read(session_id)
            closers = self.closers(events)
            return self.result(scan, header, [*events, *closers], closers, None)

    def list(self) -> list[ListEntry]:
        with self.mutex:
            self.check_open()
            entries = []
            for path in self.logs():
                entry = self.entry(path)
                if entry is not None:
                    entries.append(entry)
            return entries

    def close(self) -> None:
        self.closed = True

    # --- what the animals break -----------------------------------------------------------------

    def check_open(self) -> None:
        if self.closed:
            raise StoreClosed

    def check_new(self, header: SessionHeader) -> None:
        if header.id in self.announced:
            raise SessionExists(header.id)
        for path in self.places(header.id):
            if b"\n" in self.content(path):
                raise SessionExists(header.id, path)

    def encode_batch(self, session_id: str, batch: Sequence[SessionEvent]) -> Lines:
        lines = []
        for event in batch:
            try:
                lines.append(self.encode(event))
            except NotJson as error:
                raise NotSerializable(session_id, event.type, event.seq, str(error)) from None
        return lines

    def encode(self, event: SessionEvent) -> bytes:
        return encode_event(event)

    def encode_header(self, header: SessionHeader) -> bytes:
        return encode_header(header) + b"\n"

    def append_nothing(self, session_id: str) -> None:
        pass

    def check_sequence(self, session_id: str, batch: Sequence[SessionEvent], next_seq: int) -> None:
        for index, event in enumerate(batch):
            if event.seq != next_seq + index:
                raise SequenceMismatch(session_id, next_seq + index, event.seq, index)

    def write(self, path: Path, content: bytes) -> None:
        with path.open("ab") as file:
            file.write(content)

    def content(self, path: Path) -> bytes:
        return path.read_bytes()

    def bucket(self, cwd: str | None) -> str:
        return hashlib.sha256(repr(cwd).encode()).hexdigest()[:12]

    def name(self, session_id: str) -> str:
        return encode_segment(session_id)

    def new_path(self, header: SessionHeader) -> Path:
        return self.root / self.bucket(header.cwd) / f"{self.name(header.id)}.jsonl"

    def logs(self) -> Paths:
        if not self.root.exists():
            return []
        return sorted(
            path
            for folder in sorted(self.root.iterdir())
            if folder.is_dir()
            for path in folder.glob("*.jsonl")
        )

    def places(self, session_id: str) -> Paths:
        return [path for path in self.logs() if path.stem == self.name(session_id)]

    def find(self, session_id: str) -> Paths:
        places = self.places(session_id)
        if not places:
            raise SessionNotFound(session_id)
        if len(places) > 1:
            raise IdentityMismatch(session_id, places)
        return places

    def lines(self, content: bytes) -> Lines:
        lines = content.split(b"\n")
        ended = [line + b"\n" for line in lines[:-1]]
        return [*ended, lines[-1]] if lines[-1] else ended

    def scan(
        self, lines: Lines, accept: Callable[[SessionEvent], object], session_id: str
    ) -> LogScan:
        return scan_log(lines, accept, session_id=session_id)

    def read(self, session_id: str) -> tuple[Path, LogScan, SessionHeader, Events]:
        path = self.find(session_id)[0]
        events: Events = []
        content = self.content(path)
        scan = self.scan(self.lines(content), events.append, session_id)
        self.check_outcome(session_id, path, scan)
        assert scan.header is not None
        return path, scan, scan.header, events

    def check_outcome(self, session_id: str, path: Path, scan: LogScan) -> None:
        match scan.outcome:
            case Outcome.UNSUPPORTED_VERSION:
                assert scan.header is not None
                raise UnsupportedVersion(session_id, path, scan.header.version)
            case Outcome.IDENTITY_MISMATCH:
                assert scan.header is not None
                raise IdentityMismatch(session_id, [path], scan.header.id)
            case Outcome.NEVER_MATERIALISED:
                raise NeverMaterialised(session_id, path, scan.size)
            case Outcome.CORRUPT:
                assert scan.damage is not None
                damage = scan.damage
                raise SessionCorrupted(session_id, path, damage.line, damage.reason, damage.byte)

    def closers(self, events: Events) -> Events:
        return interrupted_turn_closers(events)

    def repair(self, path: Path, scan: LogScan) -> str | None:
        copy = None
        content = self.content(path)
        if scan.torn is not None:
            if scan.torn.holds_record:
                copy = f"{path.stem}.{scan.torn.byte}.{scan.torn.digest[:16]}.torn"
                path.with_name(copy).write_bytes(content[scan.torn.byte :])
            content = content[: scan.torn.byte]
            path.unlink()
            self.write(path, content)
        if scan.newline_missing:
            self.write(path, b"\n")
        return copy

    def write_closers(self, path: Path, closers: Events) -> None:
        self.write(path, b"".join(encode_event(closer) + b"\n" for closer in closers))

    def after_load(self, session_id: str) -> None:
        pass

    def result(
        self,
        scan: LogScan,
        header: SessionHeader,
        events: Events,
        closers: Events,
        copy: str | None,
    ) -> LoadResult:
        torn = scan.torn
        report = RepairReport(
            None if torn is None else torn.line,
            None if torn is None else torn.byte,
            0 if torn is None else torn.length,
            copy,
            scan.newline_missing,
            tuple(closers),
        )
        return LoadResult(header, events, report)

    def entry(self, path: Path) -> ListEntry | None:
        session_id = decode_segment(path.stem) or path.stem
        header: SessionHeader | None = None
        try:
            first = self.lines(self.content(path))[:1]
            scan = scan_log(first, lambda event: None, session_id=session_id)
            header = scan.header
            if scan.outcome is Outcome.NEVER_MATERIALISED:
                return None
            if scan.outcome is not Outcome.UNSUPPORTED_VERSION:
                self.check_outcome(session_id, path, scan)
            if len(self.places(session_id)) > 1:
                raise IdentityMismatch(session_id, self.places(session_id))
        except StoreError as error:
            return ListEntry(session_id, header, error)
        return ListEntry(session_id, header)


plain = factory(PlainStore)
