"""Calling a store in the thread of the caller: for the many short lives of a crash campaign.

Takes answers as they are, without private copies, because each store object is closed and
forgotten before its answers are looked at. A call that hangs is for the watchdog of the process
that runs it. Otherwise as `python_store`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from torntail.drive.python_store import CallOutcome, PythonStore, report_facts
from torntail.judge.history import LoadedSession, Returned
from torntail.session import SessionEvent, SessionHeader

__all__ = ["InlineStore"]


class InlineStore(PythonStore):
    """One store object made by `factory(root)`, called without a thread of its own."""

    def __init__(self, factory: Callable[[Path], Any], root: Path) -> None:
        # What hangs is for the watchdog of the whole process.
        self._timeout = threading.TIMEOUT_MAX
        self._root = str(root)
        self._kinds = getattr(factory, "error_kinds", None) or {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._loop_lock = threading.Lock()
        self._inline = threading.local()
        self._store: Any = None
        self.hung = False
        self.opened: CallOutcome = self._outcome(
            lambda: self._keep(self._awaited(factory(root))), lambda _: Returned()
        )

    def create(self, header: SessionHeader) -> CallOutcome:
        """Calls `create(header)`."""
        return self._outcome(
            lambda: self._awaited(self._store.create(header)), lambda _: Returned()
        )

    def append(self, session: str, events: Iterable[SessionEvent]) -> CallOutcome:
        """Calls `append(session, events)`."""
        return self._outcome(
            lambda: self._awaited(self._store.append(session, list(events))), lambda _: Returned()
        )

    def close(self) -> CallOutcome:
        """Closes the store, and the event loop it needed."""
        outcome = super().close()
        loop, self._loop = self._loop, None
        if loop is not None:
            loop.call_soon_threadsafe(loop.stop)
        return outcome

    def _run(self, call: Callable[[], Any]) -> Any:
        return call()

    def _loaded(self, result: Any) -> CallOutcome:
        events = getattr(result, "events", None)
        header = getattr(result, "header", None)
        if type(events) is list and all(type(event) is SessionEvent for event in events):
            report = getattr(result, "repair", None)
            if header is None or type(header) is SessionHeader:
                facts = None if report is None else report_facts(report)
                return Returned(session=LoadedSession(header, tuple(events), facts))
        return super()._loaded(result)
