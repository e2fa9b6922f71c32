"""What several animals are made of: each keeps the contract until a method is overridden.

Apart from the animals, so that whatever a module of the zoo can open is broken.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import msgspec

from tests.zoo.plain import PlainStore
from torntail.session import SessionEvent, encode_event
from torntail.session.turns import TurnTracker
from torntail.stores.contract import LoadResult, RepairReport
from torntail.stores.memory import MemoryStore


class Sharing(MemoryStore):
    """Keeps events as objects, and gives and takes them without a copy where told so."""

    def __init__(self) -> None:
        super().__init__()
        self.events: dict[str, list[SessionEvent]] = {}

    def append(self, session_id: str, events: Iterable[SessionEvent]) -> None:
        batch = list(events)
        super().append(session_id, batch)
        self.events.setdefault(session_id, []).extend(batch)

    def load(self, session_id: str) -> LoadResult:
        result = super().load(session_id)
        stored = self.events[session_id]
        stored.extend(result.events[len(stored) :])
        return LoadResult(result.header, list(stored), RepairReport())


class Rewriting(PlainStore):
    """Stores every event as `change` makes it."""

    def change(self, record: dict[str, Any]) -> dict[str, Any]:
        return record

    def encode(self, event: SessionEvent) -> bytes:
        encode_event(event)
        record = self.change(json.loads(encode_event(event)))
        return encode_event(SessionEvent.from_json(record))


def _closers(events: Iterable[SessionEvent], last: SessionEvent) -> list[SessionEvent]:
    """The closers as if these events were all there is, counted on from `last`."""
    tracker = TurnTracker()
    for event in events:
        tracker.feed(event)
    tracker.last = last
    return tracker.closers()


def _numbered(closers: list[SessionEvent], last: SessionEvent) -> list[SessionEvent]:
    return [
        msgspec.structs.replace(closer, seq=last.seq + index)
        for index, closer in enumerate(closers, 1)
    ]


class Filtering(PlainStore):
    """Computes the closers from some of the events only."""

    def counts(self, event: SessionEvent, before: list[SessionEvent]) -> bool:
        return True

    def closers(self, events: list[SessionEvent]) -> list[SessionEvent]:
        if not events:
            return []
        counted: list[SessionEvent] = []
        for event in events:
            if self.counts(event, counted):
                counted.append(event)
        return _closers(counted, events[-1])


class Changing(PlainStore):
    """Changes the closers."""

    def change(self, closers: list[SessionEvent]) -> list[SessionEvent]:
        return closers

    def closers(self, events: list[SessionEvent]) -> list[SessionEvent]:
        closers = super().closers(events)
        return _numbered(self.change(closers), events[-1]) if closers else []
