"""Calling a store that is synchronous or asynchronous, from a thread that may block.

Decides in which event loop an asynchronous store runs: the one that ran where the session was made,
since pools and locks belong to a loop; else one that all sessions of the process share.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
import threading
from collections.abc import Awaitable
from typing import Any

from torntail.runtime.work import running_loop

__all__ = ["StoreCalls"]

_LOOK_SECONDS = 1.0

_shared_lock = threading.Lock()
_shared_loop: asyncio.AbstractEventLoop | None = None


class StoreCalls:
    """The calls of one store; made in the thread, and the event loop, of its user."""

    def __init__(self, store: Any) -> None:
        self.store = store
        self._loop = running_loop()

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The caller's event loop, if the store needs it to get on."""
        return self._loop if inspect.iscoroutinefunction(self.store.append) else None

    def has(self, name: str) -> bool:
        """Whether the store has such a call."""
        return callable(getattr(self.store, name, None))

    def call(self, name: str, *arguments: Any) -> Any:
        """Makes a call and waits for its answer; raises what the store raises."""
        method = getattr(self.store, name)
        if not inspect.iscoroutinefunction(method):
            answer = method(*arguments)
            if not inspect.isawaitable(answer):
                return answer
        else:
            answer = method(*arguments)
        return self._awaited(answer)

    def _awaited(self, answer: Awaitable[Any]) -> Any:
        loop = self._loop if self._loop is not None else _loop_of_the_process()
        waiting = _wait_for(answer)
        try:
            future = asyncio.run_coroutine_threadsafe(waiting, loop)
        except RuntimeError:
            # The loop is closed. What will never run is ended, or Python would complain of it.
            waiting.close()
            if inspect.iscoroutine(answer):
                answer.close()
            raise
        while True:
            try:
                return future.result(_LOOK_SECONDS)
            except concurrent.futures.TimeoutError:
                # The store may raise TimeoutError itself, which is an answer.
                if future.done():
                    raise
                if not loop.is_running():
                    future.cancel()
                    raise RuntimeError(
                        "the event loop in which the session was made has ended"
                    ) from None


async def _wait_for(answer: Awaitable[Any]) -> Any:
    return await answer


def _loop_of_the_process() -> asyncio.AbstractEventLoop:
    global _shared_loop
    with _shared_lock:
        if _shared_loop is None:
            _shared_loop = asyncio.new_event_loop()
            threading.Thread(
                target=_shared_loop.run_forever, name="torntail event loop", daemon=True
            ).start()
        return _shared_loop
