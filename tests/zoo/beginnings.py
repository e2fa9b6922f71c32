"""Stores that are right as long as every session is loaded first; `ZOO` says which clause knows.

What a load of all puts in order hides what an append, a list, a create or the load of one session
would have met as the first call after a crash, or what the object that repaired does next.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.zoo.careful import CarefulStore
from tests.zoo.plain import factory
from torntail.session import LogScan, SessionEvent, SessionHeader
from torntail.stores.contract import ListEntry, SessionExists

ZOO: dict[str, str] = {}


def _animal(clause: str) -> Any:
    def enter(store: Any) -> Any:
        ZOO[f"{__name__}:{store.__name__}"] = clause
        return factory(store, durability="power")

    return enter


@_animal("CR-6")
class lists_an_index_that_a_load_mends(CarefulStore):
    """Lists by a file that is written without fsync behind each first flush."""

    @property
    def index(self) -> Path:
        return self.root / "index.json"

    def noted(self) -> set[str]:
        try:
            return set(json.loads(self.index.read_bytes()))
        except (OSError, ValueError):
            return set()

    def note(self, session_id: str) -> None:
        if session_id not in self.noted():
            self.root.mkdir(exist_ok=True)
            self.index.write_text(json.dumps(sorted(self.noted() | {session_id})))

    def append(self, session_id: str, events: Iterable[SessionEvent]) -> None:
        super().append(session_id, events)
        if self.present(session_id):
            self.note(session_id)

    def after_load(self, session_id: str) -> None:
        self.note(session_id)

    def list(self) -> list[ListEntry]:
        noted = self.noted()
        return [entry for entry in super().list() if entry.session_id in noted]


@_animal("CR-5")
class append_repairs_nothing(CarefulStore):
    """An append to a log found on disk counts its whole lines; only a load cuts a torn tail."""

    def append(self, session_id: str, events: Iterable[SessionEvent]) -> None:
        events = list(events)
        if events and session_id not in self.announced and session_id not in self.next_seq:
            path, scan, _, found = self.read(session_id)
            if scan.needs_repair:
                self.next_seq[session_id] = len(found)
                self.note_file(session_id, path)
        super().append(session_id, events)


@_animal("CR-10")
class create_trips_over_a_temporary_file(CarefulStore):
    """A left-over temporary file is an existing session, until something looks for sessions."""

    def check_new(self, header: SessionHeader) -> None:
        path = self.new_path(header)
        if path.with_name(path.name + ".tmp").exists():
            raise SessionExists(header.id, path)
        super().check_new(header)

    def find(self, session_id: str) -> Any:
        for left in self.root.glob("*/*.tmp"):
            left.unlink()
        return super().find(session_id)


@_animal("CR-5")
class cuts_again_where_it_cut_once(CarefulStore):
    """Remembers where a torn tail began, and cuts there once more at its next load."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.cuts: dict[Path, int] = {}

    def load(self, session_id: str) -> Any:
        path = self.present(session_id)
        if path in self.cuts:
            self.cut(path, self.cuts.pop(path))
        return super().load(session_id)

    def repair(self, path: Path, scan: LogScan) -> Any:
        if scan.torn is not None:
            self.cuts[path] = scan.torn.byte
        return super().repair(path, scan)


@_animal("CR-1")
class a_loaded_log_is_taken_for_settled(CarefulStore):
    """Appends behind what a load has found whole without syncing its name."""

    def load(self, session_id: str) -> Any:
        result = super().load(session_id)
        path = self.present(session_id)
        assert path is not None
        self.settled.add(path)
        return result
