"""Something under way in another thread, for callers of both worlds: await it, or wait for it.

Decides how asynchronous code and plain threads use the same call. Does not decide what is done.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Generator
from concurrent.futures import Future
from typing import Generic, TypeVar

__all__ = ["Work", "begin", "done", "running_loop"]

Result = TypeVar("Result")


class Work(Generic[Result]):
    """A call that has begun: `await` it in a coroutine, or `wait()` for it in a thread.

    It goes on whether anybody waits or not; to cancel the waiting does not cancel the work. `loop`
    is the event loop that it needs itself, if any.
    """

    def __init__(
        self, future: Future[Result], loop: asyncio.AbstractEventLoop | None = None
    ) -> None:
        self._future = future
        # The loop that the work itself needs: to block it would be to wait for ever.
        self.loop = loop

    def __await__(self) -> Generator[None, None, Result]:
        # The future is running, so that a waiter which is cancelled cannot cancel it.
        return asyncio.wrap_future(self._future).__await__()

    def wait(self, timeout_seconds: float | None = None) -> Result:
        """Blocks until the work is done and gives its result, or raises its error.

        Raises `TimeoutError` after `timeout_seconds`, and `RuntimeError` in the event loop that the
        store needs to get on: there, await it.
        """
        if self.loop is not None and running_loop() is self.loop and not self._future.done():
            raise RuntimeError("this would block the event loop that the store needs: await it")
        return self._future.result(timeout_seconds)

    @property
    def done(self) -> bool:
        """Whether it has come to its end, well or not."""
        return self._future.done()


def running_loop() -> asyncio.AbstractEventLoop | None:
    """The event loop that runs in this thread, if one does."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def begin(
    call: Callable[[], Result], name: str, loop: asyncio.AbstractEventLoop | None = None
) -> Work[Result]:
    """Makes a call in a thread of its own."""
    future: Future[Result] = Future()
    future.set_running_or_notify_cancel()

    def run() -> None:
        try:
            result = call()
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(result)

    threading.Thread(target=run, name=name).start()
    return Work(future, loop)


def done(result: Result) -> Work[Result]:
    """Work that needs no doing."""
    future: Future[Result] = Future()
    future.set_result(result)
    return Work(future)
