"""Stores that break one clause of group DM each; `ZOO` says which."""

# An animal is named as its factory is, which a target names like a function.

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from tests.zoo.plain import PlainStore, factory
from torntail.session import (
    LogScan,
    MalformedRecord,
    NotJson,
    Outcome,
    SessionEvent,
    SessionHeader,
    encode_event,
    parse_event,
)
from torntail.session.codec import encode_json
from torntail.stores.contract import (
    ListEntry,
    LoadResult,
    RepairReport,
    SessionCorrupted,
    SessionExists,
    SessionNotFound,
)

ZOO: dict[str, str] = {}


def _animal(clause: str, **claims: Any) -> Any:
    def enter(store: Any) -> Any:
        ZOO[f"{__name__}:{store.__name__}"] = clause
        return factory(store, **claims)

    return enter


def _parses(line: bytes) -> bool:
    try:
        parse_event(line.removesuffix(b"\n"))
    except MalformedRecord:
        return False
    return True


Accept = Callable[[SessionEvent], object]


# --- DM-1 -----------------------------------------------------------------------------------------


@_animal("DM-1")
class cuts_at_the_last_valid_line(PlainStore):
    """Takes damage in the committed region for a torn tail."""

    def scan(self, lines: list[bytes], accept: Accept, session_id: str) -> LogScan:
        events: list[SessionEvent] = []
        scan = super().scan(lines, events.append, session_id)
        damage = scan.damage
        if scan.outcome is Outcome.CORRUPT and damage is not None and damage.line > 1:
            bad = next((i for i, line in enumerate(lines[1:], 1) if not _parses(line)), None)
            if bad is not None:
                events = []
                kept = super().scan(lines[:bad], events.append, session_id)
                if kept.outcome is Outcome.OK:
                    self.cut = sum(map(len, lines[:bad]))
                    scan = kept
        for event in events:
            accept(event)
        return scan

    cut: int | None = None

    def repair(self, path: Path, scan: LogScan) -> str | None:
        if self.cut is not None:
            path.write_bytes(path.read_bytes()[: self.cut])
            self.cut = None
        return super().repair(path, scan)


@_animal("DM-1")
class does_not_say_where(PlainStore):
    def check_outcome(self, session_id: str, path: Path, scan: LogScan) -> None:
        try:
            super().check_outcome(session_id, path, scan)
        except SessionCorrupted as error:
            if error.line == 1 or error.reason.startswith("seq"):
                raise
            raise ValueError("this session is corrupted") from None


@_animal("DM-1")
class moves_a_corrupt_log_away(PlainStore):
    def check_outcome(self, session_id: str, path: Path, scan: LogScan) -> None:
        try:
            super().check_outcome(session_id, path, scan)
        except SessionCorrupted as error:
            if error.line > 1 and not error.reason.startswith("seq"):
                path.rename(path.with_suffix(".corrupt"))
            raise


# --- DM-2, DM-3, DM-4 -----------------------------------------------------------------------------


@_animal("DM-2")
class keeps_no_copy(PlainStore):
    def repair(self, path: Path, scan: LogScan) -> str | None:
        if scan.torn is not None:
            path.write_bytes(path.read_bytes()[: scan.torn.byte])
        if scan.newline_missing:
            self.write(path, b"\n")
        return None


@_animal("DM-2")
class appends_behind_the_fragment(PlainStore):
    def repair(self, path: Path, scan: LogScan) -> str | None:
        return None if scan.torn is not None else super().repair(path, scan)


@_animal("DM-2")
class does_not_report_the_tail(PlainStore):
    def result(self, scan: LogScan, header: SessionHeader, events: Any, *rest: Any) -> LoadResult:
        return LoadResult(header, events, RepairReport())


@_animal("DM-2")
class refuses_a_torn_tail(PlainStore):
    def check_outcome(self, session_id: str, path: Path, scan: LogScan) -> None:
        super().check_outcome(session_id, path, scan)
        if scan.torn is not None and not scan.newline_missing:
            raise SessionCorrupted(session_id, path, scan.torn.line, "torn", scan.torn.byte)


@_animal("DM-3")
class a_wrong_seq_is_taken_as_it_is(PlainStore):
    """Counts events itself and never looks at the stored seq behind the last turn/end."""

    def scan(self, lines: list[bytes], accept: Accept, session_id: str) -> LogScan:
        ends = [i for i, line in enumerate(lines) if b'"turn/end"' in line]
        start = ends[-1] if ends else 0
        counted = list(lines)
        for index in range(start + 1, len(lines)):
            if not _parses(lines[index]):
                break
            event = parse_event(lines[index].removesuffix(b"\n"))
            counted[index] = encode_event(msgspec.structs.replace(event, seq=index - 1)) + b"\n"
        return super().scan(counted, accept, session_id)


@_animal("DM-3")
class looks_at_seqs_behind_a_bad_line(PlainStore):
    def scan(self, lines: list[bytes], accept: Accept, session_id: str) -> LogScan:
        scan = super().scan(lines, accept, session_id)
        if scan.torn is not None:
            expected = scan.torn.line - 1
            for line in lines[scan.torn.line :]:
                if _parses(line) and parse_event(line.removesuffix(b"\n")).seq != expected:
                    damage = "seq behind a bad line"
                    raise SessionCorrupted(session_id, "log", scan.torn.line, damage, 0)
                expected += 1
        return scan


@_animal("DM-4")
class drops_a_record_without_newline(PlainStore):
    """What the original does: the last fragment is dropped, even if it is a whole record."""

    dropped: bytes | None = None

    def lines(self, content: bytes) -> list[bytes]:
        lines = super().lines(content)
        self.dropped = None
        if len(lines) > 1 and not lines[-1].endswith(b"\n") and _parses(lines[-1]):
            self.dropped = lines.pop()
        return lines

    def repair(self, path: Path, scan: LogScan) -> str | None:
        if self.dropped is not None:
            path.write_bytes(path.read_bytes().removesuffix(self.dropped))
        return super().repair(path, scan)


@_animal("DM-4")
class drops_a_record_followed_by_rubbish(PlainStore):
    def lines(self, content: bytes) -> list[bytes]:
        lines = super().lines(content)
        return [
            b"#" * (len(line) - 1) + b"\n" if b"!rubbish" in line[12:] else line for line in lines
        ]


# --- DM-5 -----------------------------------------------------------------------------------------


@_animal("DM-5")
class reads_leniently(PlainStore):
    def lines(self, content: bytes) -> list[bytes]:
        return [self.lenient(line) for line in super().lines(content)]

    def lenient(self, line: bytes) -> bytes:
        if _parses(line) or not line.endswith(b"\n"):
            return line
        try:
            record = json.loads(line.decode("utf-8-sig", "replace"), parse_constant=lambda _: None)
            if isinstance(record, dict):
                return encode_event(SessionEvent.from_json(record)) + b"\n"
        except (ValueError, NotJson):
            pass
        return line


@_animal("DM-5")
class writes_carriage_returns(PlainStore):
    def lines(self, content: bytes) -> list[bytes]:
        if b"\r\n" in content:
            raise SessionCorrupted("?", "log", 1, "carriage return", 0)
        return super().lines(content)


@_animal("DM-5")
class appends_what_it_cannot_read(PlainStore):
    def encode(self, event: SessionEvent) -> bytes:
        try:
            return encode_event(event)
        except NotJson:
            if type(event.seq) is bool or isinstance(event.time, str):
                return encode_json(event.to_json())
            raise


# --- DM-6, DM-7, DM-8 -----------------------------------------------------------------------------


@_animal("DM-6")
class an_empty_file_is_not_found(PlainStore):
    def check_outcome(self, session_id: str, path: Path, scan: LogScan) -> None:
        if scan.outcome is Outcome.NEVER_MATERIALISED:
            raise SessionNotFound(session_id)
        super().check_outcome(session_id, path, scan)


@_animal("DM-6")
class an_empty_file_blocks_its_id(PlainStore):
    def check_new(self, header: SessionHeader) -> None:
        super().check_new(header)
        for path in self.places(header.id):
            raise SessionExists(header.id, path)


@_animal("DM-6")
class overwrites_what_is_no_header(PlainStore):
    def check_new(self, header: SessionHeader) -> None:
        for path in self.places(header.id):
            if path.read_bytes().startswith(b"{##"):
                path.unlink()
        super().check_new(header)


@_animal("DM-6")
class a_header_needs_its_newline(PlainStore):
    def check_outcome(self, session_id: str, path: Path, scan: LogScan) -> None:
        super().check_outcome(session_id, path, scan)
        if scan.newline_missing and scan.events == 0:
            raise SessionCorrupted(session_id, path, 1, "no newline", 0)


@_animal("DM-7", detects=frozenset({"torn", "gap", "bitflip"}))
class claims_to_see_flips(PlainStore):
    pass


@_animal("DM-8")
class inspect_repairs(PlainStore):
    def inspect(self, session_id: str) -> LoadResult:
        return self.load(session_id)


@_animal("DM-8")
class list_mends_the_end(PlainStore):
    def list(self) -> list[ListEntry]:
        for path in self.logs():
            content = path.read_bytes()
            if content and not content.endswith(b"\n") and b"\n" in content:
                path.write_bytes(content + b"\n")
        return super().list()
