"""Stores in the layout of the JSONL store that read what they find in a wrong way each.

`ZOO` says which clause knows. For scenarios about files that someone found.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from tests.zoo.plain import Lines, PlainStore, factory
from torntail.session import LogScan, MalformedRecord, SessionEvent, encode_event, parse_event
from torntail.stores.contract import SessionNotFound
from torntail.stores.paths import bucket_name

ZOO: dict[str, str] = {}


def _animal(clause: str, **claims: Any) -> Any:
    def enter(store: Any) -> Any:
        ZOO[f"{__name__}:{store.__name__}"] = clause
        made = factory(store, **claims)
        made.layout = "jsonl"  # type: ignore[attr-defined]
        return made

    return enter


class _InJsonlLayout(PlainStore):
    """Keeps the contract, with its files where the JSONL store has them."""

    def bucket(self, cwd: str | None) -> str:
        return bucket_name(cwd)


sound = factory(_InJsonlLayout)
sound.layout = "jsonl"  # type: ignore[attr-defined]


def _is_record(line: bytes) -> bool:
    try:
        parse_event(line.removesuffix(b"\n"))
    except MalformedRecord:
        return False
    return True


@_animal("DM-1")
class leaves_out_bad_lines(_InJsonlLayout):
    """Leaves out every line that is no record, wherever it stands."""

    def scan(
        self, lines: Lines, accept: Callable[[SessionEvent], object], session_id: str
    ) -> LogScan:
        kept = [line for line in lines[1:] if _is_record(line)]
        return super().scan([*lines[:1], *kept], accept, session_id)


@_animal("DM-1")
class stops_at_the_first_bad_line(_InJsonlLayout):
    """Takes what stands before the first bad line for all there is."""

    def scan(
        self, lines: Lines, accept: Callable[[SessionEvent], object], session_id: str
    ) -> LogScan:
        kept = list(lines)
        for index, line in enumerate(lines[1:], 1):
            if not _is_record(line):
                kept = lines[:index]
                break
        return super().scan(kept, accept, session_id)


@_animal("DM-2")
class refuses_every_bad_line(_InJsonlLayout):
    """A torn tail makes a session unreadable."""

    def read(self, session_id: str) -> Any:
        path, scan, header, events = super().read(session_id)
        if scan.torn is not None:
            raise OSError(f"{path} is damaged")
        return path, scan, header, events


@_animal("RW-1")
class splits_lines_at_any_separator(_InJsonlLayout):
    """A generic line reader: U+2028 and the like end a line."""

    def lines(self, content: bytes) -> Lines:
        text = content.decode("utf-8", "surrogateescape")
        return [line.encode("utf-8", "surrogateescape") for line in text.splitlines(keepends=True)]


@_animal("DM-1")
class numbers_records_anew(_InJsonlLayout):
    """The place in the file counts, and the seq in the record does not."""

    def scan(
        self, lines: Lines, accept: Callable[[SessionEvent], object], session_id: str
    ) -> LogScan:
        counted = lines[:1]
        for line in lines[1:]:
            if _is_record(line):
                record = json.loads(line)
                record["seq"] = len(counted) - 1
                line = encode_event(SessionEvent.from_json(record)) + b"\n"
            counted.append(line)
        return super().scan(counted, accept, session_id)


@_animal("CL-4")
class leaves_open_turns_open(_InJsonlLayout):
    """Closes nothing."""

    def closers(self, events: list[SessionEvent]) -> list[SessionEvent]:
        return []


@_animal("RW-14")
class reads_every_version(_InJsonlLayout):
    """The version in the header is not looked at."""

    def lines(self, content: bytes) -> Lines:
        lines = super().lines(content)
        return [lines[0].replace(b'"version":1', b'"version":0'), *lines[1:]] if lines else lines


@_animal("RW-15")
class believes_every_header(_InJsonlLayout):
    """The id in the header is not held against the place of the file."""

    def scan(
        self, lines: Lines, accept: Callable[[SessionEvent], object], session_id: str
    ) -> LogScan:
        from torntail.session import parse_header

        try:
            session_id = parse_header(lines[0].removesuffix(b"\n")).id
        except (MalformedRecord, IndexError):
            pass
        return super().scan(lines, accept, session_id)


@_animal("DM-6")
class an_empty_file_is_no_file(_InJsonlLayout):
    """A file without a header is not found, and is in the way of the next."""

    def read(self, session_id: str) -> Any:
        path = self.find(session_id)[0]
        if b"\n" not in self.content(path):
            raise SessionNotFound(session_id)
        return super().read(session_id)


@_animal("RW-1")
class drops_long_lines(_InJsonlLayout):
    """A line longer than its buffer is taken for the end of the file."""

    def lines(self, content: bytes) -> Lines:
        kept: Lines = []
        for line in super().lines(content):
            if len(line) > 65_536:
                break
            kept.append(line)
        return kept


@_animal("RW-1")
class sorts_by_time(_InJsonlLayout):
    """Events are given in the order of their times."""

    def load(self, session_id: str) -> Any:
        result = super().load(session_id)
        result.events.sort(key=lambda event: event.time)
        return result
