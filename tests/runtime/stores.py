"""Stores for the tests of the live layer: one that is asynchronous, one that is broken."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from torntail.session import SessionEvent, SessionHeader
from torntail.stores.contract import LoadResult
from torntail.stores.jsonl import JsonlStore
from torntail.stores.memory import MemoryStore


class AsyncStore:
    """A store whose calls are coroutines of one event loop, which `loops` collects."""

    def __init__(self, inner: Any = None) -> None:
        self.inner = MemoryStore() if inner is None else inner
        self.loops: set[asyncio.AbstractEventLoop] = set()

    async def _turn_of_the_loop(self) -> None:
        self.loops.add(asyncio.get_running_loop())
        await asyncio.sleep(0)

    async def create(self, header: SessionHeader) -> None:
        await self._turn_of_the_loop()
        self.inner.create(header)

    async def append(self, session_id: str, events: Iterable[SessionEvent]) -> None:
        await self._turn_of_the_loop()
        self.inner.append(session_id, events)

    async def load(self, session_id: str) -> LoadResult:
        await self._turn_of_the_loop()
        return self.inner.load(session_id)

    async def inspect(self, session_id: str) -> LoadResult:
        await self._turn_of_the_loop()
        return self.inner.inspect(session_id)

    async def reopen(self, session_id: str) -> int:
        await self._turn_of_the_loop()
        return self.inner.reopen(session_id)


class HastyStore(JsonlStore):
    """Broken: acknowledges events before it writes them, which it does at the next call."""

    _waiting: tuple[str, list[SessionEvent]] | None = None

    def _catch_up(self) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            super().append(*waiting)

    def append(self, session_id: str, events: Iterable[SessionEvent]) -> None:
        self._catch_up()
        self._waiting = (session_id, list(events))

    def close(self) -> None:
        self._catch_up()
        super().close()
