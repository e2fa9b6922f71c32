"""A plan of which calls were left out, made a plan again.

Decides which calls make no sense without those, and how the events are numbered anew. Does not
decide what is left out (`dropping`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import msgspec

from torntail.judge.capabilities import Capabilities
from torntail.judge.history import Append, Create, Load, Operation, Reopen
from torntail.session import SessionEvent, interrupted_turn_closers

__all__ = ["sound_calls"]


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
