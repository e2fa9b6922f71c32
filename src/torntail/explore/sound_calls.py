"""A plan of which calls were left out, made a plan again.

Decides which calls make no sense without those, and how the events are numbered anew. Does not
decide what is left out (`dropping`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from torntail.judge.capabilities import Capabilities
from torntail.judge.history import (
    Append,
    Create,
    Damage,
    Inspect,
    Load,
    Operation,
    Reopen,
    Together,
)
from torntail.session import SessionEvent, interrupted_turn_closers

__all__ = ["created_sessions", "sound_calls", "strangers"]

_TRY_THE_UNKNOWN: Final = frozenset({"RW-3", "RW-5", "RW-8"})
"""What an append to a session that there is not, or a load of it, may put to the test."""

_OF_ALL_STORAGE: Final = ("root-is-a-file", "restore")


def created_sessions(calls: Iterable[Operation]) -> tuple[str, ...]:
    """The names of the sessions that calls create, in their order."""
    names: dict[str, None] = {}
    for call in calls:
        if isinstance(call, Create):
            names[call.header.id] = None
        elif isinstance(call, Together):
            names |= dict.fromkeys(created_sessions(call.operations))
    return tuple(names)


def strangers(calls: Sequence[Operation], created: Collection[str]) -> Iterator[tuple[str, str]]:
    """The names that stand in calls and are not among those created, each with its place.

    Not where that is what the call tries, by its probes.
    """
    for index, call in enumerate(calls):
        match call:
            case Together(operations=operations):
                for place, session in strangers(operations, created):
                    yield f"[{index}].operations{place}", session
            case Damage(kind=kind, session=session, other=other) if kind not in _OF_ALL_STORAGE:
                for field, name in (("session", session), ("other", other)):
                    if name not in created and (name or field == "session"):
                        yield f"[{index}].{field}", name
            case Append(session=session) | Load(session=session) | Inspect(session=session):
                if session not in created and _TRY_THE_UNKNOWN.isdisjoint(call.probes):
                    yield f"[{index}].session", session


def sound_calls(calls: Iterable[Operation], capabilities: Capabilities) -> tuple[Operation, ...]:
    """The calls that make sense without those that were dropped, their events numbered anew.

    A call on a session that nobody creates is left out, as are a load where nothing was appended
    and an empty batch. What refers to an event by its seq still does, if the event is still there.
    """
    numbering = _Numbering(capabilities)
    kept = [numbering.next(call) for call in calls]
    return tuple(call for call in kept if call is not None)


@dataclass(slots=True)
class _Numbering:
    """What each session holds by now, and under which seq the events of the plan stand."""

    capabilities: Capabilities
    logs: dict[str, list[SessionEvent]] = field(default_factory=dict)
    seqs: dict[str, dict[int, int]] = field(default_factory=dict)
    touched: set[str] = field(default_factory=set)

    def next(self, call: Operation) -> Operation | None:
        match call:
            case Create(header=header):
                if header.id in self.logs:
                    return None
                self.logs[header.id] = []
                self.seqs[header.id] = {}
                self.touched.add(header.id)
            case Reopen():
                # What was announced only is gone with the process.
                self.logs = {session: log for session, log in self.logs.items() if log}
                self.touched.clear()
            case Load(session=session):
                if not self.logs.get(session):
                    return None
                self._close(session)
            case Inspect(session=session) | Damage(session=session):
                if session not in self.logs and next(strangers([call], self.logs), None):
                    return None
            case Append(session=session, events=events):
                if session not in self.logs or not events:
                    return None
                if session not in self.touched:
                    self._close(session)
                return msgspec.structs.replace(call, events=self._numbered(session, events))
        return call

    def _close(self, session: str) -> None:
        """What a load does to an interrupted turn."""
        self.touched.add(session)
        if self.capabilities.profile == "session":
            log = self.logs[session]
            log.extend(interrupted_turn_closers(log))

    def _numbered(self, session: str, events: Sequence[SessionEvent]) -> tuple[SessionEvent, ...]:
        log, seqs = self.logs[session], self.seqs[session]
        for event in events:
            seqs[event.seq] = len(log)
            sources = event.source_event_seqs
            if sources is not None:
                sources = [seqs[source] for source in sources if source in seqs]
            log.append(msgspec.structs.replace(event, seq=len(log), source_event_seqs=sources))
        return tuple(log[-len(events) :])
