"""Telling others what was appended: in order, one event at a time, after the log has it.

An event that a subscriber appends in turn is told after the one it reacts to. What a subscriber
raises is logged and changes nothing: the event is in the log.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Final

from torntail.session import SessionEvent, parse_event

__all__ = ["Subscribers"]

_log: Final = logging.getLogger("torntail.runtime")


class Subscribers:
    """Those who want to be told; `lock` is the session's, held whenever the log grows."""

    def __init__(self, lock: threading.RLock) -> None:
        self._lock = lock
        self._functions: list[Callable[[SessionEvent], object]] = []
        self._untold: deque[bytes] = deque()
        self._telling = False

    def add(self, function: Callable[[SessionEvent], object]) -> Callable[[], None]:
        """Tells `function` from now on; gives what ends that."""
        with self._lock:
            self._functions = [*self._functions, function]

        def end() -> None:
            with self._lock:
                self._functions = [one for one in self._functions if one is not function]

        return end

    def note(self, line: bytes) -> bool:
        """Under the lock: an event is in the log; whether anybody is to be told."""
        if self._functions:
            self._untold.append(line)
        return bool(self._functions)

    def tell(self) -> None:
        """Outside the lock: tells what is untold, unless another call is doing so already."""
        with self._lock:
            if self._telling:
                return
            self._telling = True
        try:
            while (line := self._next()) is not None:
                # A copy for them: none can change what the caller of append was given.
                event = parse_event(line)
                for function in self._functions:
                    try:
                        function(event)
                    except Exception:
                        _log.exception("a subscriber failed at %s (seq %d)", event.type, event.seq)
        except BaseException:
            self._telling = False
            raise

    def _next(self) -> bytes | None:
        with self._lock:
            if not self._untold:
                self._telling = False
                return None
            return self._untold.popleft()
