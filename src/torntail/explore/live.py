"""What the suite for live layers asks of one, and what it says when a clause is broken.

A live layer is what stands between an agent and a store: it keeps a session's log in memory and
drains it. The cases (`cases_lv`) use a layer through these calls alone, all of them synchronous.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar

from torntail.session import SessionEvent, SessionHeader
from torntail.session.transcript import Message

__all__ = [
    "LiveCase",
    "LiveFinding",
    "LiveLayer",
    "LiveSession",
    "expect",
    "happens",
    "in_time",
    "refused",
]

WATCHDOG_SECONDS: Final = 20.0
"""After so long a call is taken to hang."""

Result = TypeVar("Result")


class LiveSession(Protocol):
    """A running session."""

    @property
    def header(self) -> SessionHeader:
        """The header, which is no part of the log."""
        ...

    def append(self, event_type: str, data: Any, surface_op: Any = None) -> SessionEvent:
        """Appends an event, stamped with the next seq and the time; raises where it may not."""
        ...

    def events(self) -> Sequence[SessionEvent]:
        """The log."""
        ...

    def subscribe(self, function: Callable[[SessionEvent], object]) -> object:
        """Tells `function` of each event, once the log has it."""
        ...

    def derive_messages(self) -> list[Message]:
        """The message history."""
        ...

    def flush(self) -> None:
        """Returns when everything appended is stored; raises where that failed."""
        ...

    def close(self) -> None:
        """Flushes and ends the session; raises where that failed."""
        ...


class LiveLayer(Protocol):
    """What makes sessions; the store is a `TroubledStore` or, where it is to be missing, None.

    Sessions are drained at `flush`, at each `turn/end` and at `close`, and at no other time.
    """

    def start(self, store: Any, session_id: str) -> LiveSession:
        """A new session."""
        ...

    def resume(self, store: Any, session_id: str) -> LiveSession:
        """The stored session, running again."""
        ...

    def fork(self, store: Any, session_id: str, new_id: str, at: int | None = None) -> LiveSession:
        """A new session with the first `at` stored events of another, all if not given."""
        ...


class LiveFinding(AssertionError):
    """A clause is broken; `clause` says which."""

    def __init__(self, clause: str, sentence: str) -> None:
        super().__init__(f"{clause} violated: {sentence}")
        self.clause = clause


@dataclass(frozen=True, slots=True)
class LiveCase:
    """One case of a clause: `run` raises `LiveFinding` where the layer breaks it."""

    clause: str
    run: Callable[[LiveLayer], None]

    @property
    def name(self) -> str:
        """The case in words joined by underscores."""
        return self.run.__name__


def expect(clause: str, holds: bool, sentence: str) -> None:
    """Raises a `LiveFinding` with the sentence where something does not hold."""
    if not holds:
        raise LiveFinding(clause, sentence)


def refused(clause: str, call: Callable[[], object], sentence: str) -> Exception:
    """The error that a call must raise."""
    try:
        call()
    except Exception as error:
        return error
    raise LiveFinding(clause, sentence)


def happens(clause: str, event: threading.Event, sentence: str) -> None:
    """Raises a `LiveFinding` where an event is not set in time."""
    expect(clause, event.wait(WATCHDOG_SECONDS), sentence)


def in_time(clause: str, call: Callable[[], Result], sentence: str) -> Result:
    """What a call returns, which must not hang; it is made in a thread of its own."""
    outcome: list[Result] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            outcome.append(call())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(WATCHDOG_SECONDS)
    if errors:
        raise errors[0]
    if not outcome:
        raise LiveFinding(clause, sentence)
    return outcome[0]
