"""A careful store without `create`: the first append makes the session, and no header is kept."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from tests.zoo.careful import CarefulStore
from torntail.judge.capabilities import Capabilities
from torntail.session import SessionEvent, SessionHeader
from torntail.stores.contract import LoadResult


class ImplicitStore:
    """A careful store behind fewer calls."""

    def __init__(self, root: Path) -> None:
        self._inner = CarefulStore(root)

    def append(self, session_id: str, events: Iterable[SessionEvent]) -> None:
        inner = self._inner
        with inner.mutex:
            inner.check_open()
            batch = list(events)
            known = session_id in inner.next_seq or inner.places(session_id)
            if batch and not known:
                inner.create(SessionHeader(session_id, 0))
            try:
                inner.append(session_id, batch)
            finally:
                # What was refused has not made the session.
                inner.announced.pop(session_id, None)

    def load(self, session_id: str) -> LoadResult:
        return self._inner.load(session_id)

    def inspect(self, session_id: str) -> LoadResult:
        return self._inner.inspect(session_id)

    def list(self) -> list[str]:
        return [entry.session_id for entry in self._inner.list()]

    def close(self) -> None:
        self._inner.close()


class EagerImplicitStore(ImplicitStore):
    """Makes the log before it looks at the events, and leaves it where it refuses them."""

    def append(self, session_id: str, events: Iterable[SessionEvent]) -> None:
        inner = self._inner
        with inner.mutex:
            inner.check_open()
            batch = list(events)
            if batch and not inner.places(session_id):
                header = SessionHeader(session_id, 0)
                path = inner.new_path(header)
                path.parent.mkdir(parents=True, exist_ok=True)
                inner.first_flush(path, inner.encode_header(header), [])
                inner.load(session_id)
            inner.append(session_id, batch)


def implicit(root: Path) -> ImplicitStore:
    return ImplicitStore(root)


def implicit_unlisted(root: Path) -> ImplicitStore:
    return ImplicitStore(root)


def implicit_eager(root: Path) -> EagerImplicitStore:
    return EagerImplicitStore(root)


CLAIMS = Capabilities(
    durability="power", writers="one-unchecked", creates="implicit", lazy=False, header=False
)
implicit.capabilities = CLAIMS  # type: ignore[attr-defined]
implicit_eager.capabilities = CLAIMS  # type: ignore[attr-defined]
implicit_unlisted.capabilities = msgspec.structs.replace(CLAIMS, lists=False)  # type: ignore[attr-defined]
