"""Leaving out of a history what its fault does not need: sessions, calls, events of a batch.

Decides what is left out, and in which order. Does not decide whether what is left still shows the
fault, or how long it is sought (`crash_shrink`, `fuzz_shrink`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence

import msgspec

from torntail.explore.sound_calls import sound_calls
from torntail.judge.capabilities import Capabilities
from torntail.judge.history import Append, Create, Inspect, Load, Operation
from torntail.session import SessionEvent

__all__ = ["Dropping"]


class Dropping(ABC):
    """The search for one finding; `calls` are the fewest so far."""

    capabilities: Capabilities

    @property
    @abstractmethod
    def calls(self) -> tuple[Operation, ...]:
        """The smallest history that showed the fault."""

    @abstractmethod
    def shows(self, calls: tuple[Operation, ...]) -> bool:
        """Whether these calls show the fault; then they are the smallest so far."""

    @abstractmethod
    def may_go_on(self) -> bool:
        """Whether another history may be tried."""

    def drop(self) -> None:
        """Leaves out all that can be, until nothing more can."""
        before = None
        while before != self.calls and self.may_go_on():
            before = self.calls
            self._drop_sessions()
            self._drop_calls()
            self._drop_events()

    def _drop_sessions(self) -> None:
        for session in dict.fromkeys(map(_session_of, self.calls)):
            if session is not None:
                self._try([call for call in self.calls if _session_of(call) != session])

    def _drop_calls(self) -> None:
        """Halves first, then ever smaller runs of calls, from the end: the last matter most."""
        size = max(len(self.calls) // 2, 1)
        while size:
            end = len(self.calls)
            while end > 0:
                calls = self.calls
                end = min(end, len(calls))
                self._try([*calls[: max(end - size, 0)], *calls[end:]])
                end -= size
            size //= 2

    def _drop_events(self) -> None:
        for index in reversed(range(len(self.calls))):
            size = len(self._events(index)) // 2
            while size:
                end = len(self._events(index))
                while end > 0:
                    events = self._events(index)
                    end = min(end, len(events))
                    self._try(
                        self._with_events(index, (*events[: max(end - size, 0)], *events[end:]))
                    )
                    end -= size
                size //= 2

    def _events(self, index: int) -> tuple[SessionEvent, ...]:
        """The events of a call, if it is still there and appends any."""
        call = self.calls[index] if index < len(self.calls) else None
        return call.events if isinstance(call, Append) else ()

    def _with_events(self, index: int, events: tuple[SessionEvent, ...]) -> list[Operation]:
        return [
            msgspec.structs.replace(call, events=events)
            if number == index and isinstance(call, Append)
            else call
            for number, call in enumerate(self.calls)
        ]

    def _try(self, calls: Iterable[Operation]) -> None:
        shorter = sound_calls(calls, self.capabilities)
        if shorter and self.may_go_on() and _size(shorter) < _size(self.calls):
            self.shows(shorter)


def _session_of(call: Operation) -> str | None:
    if isinstance(call, Create):
        return call.header.id
    return call.session if isinstance(call, Append | Load | Inspect) else None


def _size(calls: Sequence[Operation]) -> tuple[int, int]:
    """What makes a history long: its calls, and then its events."""
    events = sum(len(call.events) for call in calls if isinstance(call, Append))
    return len(calls), events
