"""torntail's own live layer as the suite wants it: every call waits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torntail.runtime import Session, fork, resume, start
from torntail.session import SessionEvent, SessionHeader
from torntail.session.transcript import Message


class Waiting:
    """A session whose calls wait."""

    def __init__(self, session: Session) -> None:
        self.session = session

    @property
    def header(self) -> SessionHeader:
        return self.session.header

    def append(self, event_type: str, data: Any, surface_op: Any = None) -> SessionEvent:
        return self.session.append(event_type, data, surface_op=surface_op)

    def events(self) -> list[SessionEvent]:
        return self.session.events()

    def subscribe(self, function: Callable[[SessionEvent], object]) -> object:
        return self.session.subscribe(function)

    def derive_messages(self) -> list[Message]:
        return self.session.derive_messages()

    def flush(self) -> None:
        self.session.flush().wait()

    def close(self) -> None:
        self.session.close().wait()


class ReferenceLayer:
    """Sessions of `torntail.runtime`."""

    def start(self, store: Any, session_id: str) -> Waiting:
        return Waiting(start(store, session_id))

    def resume(self, store: Any, session_id: str) -> Waiting:
        return Waiting(resume(store, session_id).wait())

    def fork(self, store: Any, session_id: str, new_id: str, at: int | None = None) -> Waiting:
        return Waiting(fork(store, session_id, at=at, new_id=new_id).wait())
