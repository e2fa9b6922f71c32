"""Calling a store that is a Python object, sync or async, and putting its answers into one form.

Every call runs in a thread that belongs to the store object, results that are awaited in an event
loop that belongs to it, too; a call that does not come back in time is an outcome, never a hang.
Decides which shapes of results are understood and by which word an exception is known. Does not
decide whether an answer is right (`judge`), nor what becomes of a store that ends the process by
itself (`exits`).
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import inspect
import queue
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path, PurePath
from types import GeneratorType
from typing import Any, Final

from torntail.judge.history import (
    Hung,
    ListedSession,
    LoadedSession,
    Refused,
    RepairFacts,
    Returned,
    StrangeResult,
)
from torntail.session import SessionEvent, SessionHeader

__all__ = ["KINDS", "CallOutcome", "PythonStore", "report_facts"]

CallOutcome = Returned | Refused | Hung | StrangeResult

KINDS: Final = frozenset(
    {
        "not_found",
        "exists",
        "sequence",
        "not_serializable",
        "corrupted",
        "version",
        "identity",
        "never_materialised",
        "conflict",
        "storage",
        "closed",
    }
)
"""The words by which refusals are known."""

_MOST: Final = 200_000
"""More events, or entries of a list, than any case has: a result that has no end ends here."""


class _StillRunning(BaseException):
    """A call has not come back in time."""


def _result(future: Future[Any], timeout: float) -> Any:
    try:
        return future.result(timeout)
    except TimeoutError:
        # The store may raise TimeoutError itself, which is an answer.
        if future.done():
            raise
        raise _StillRunning from None


class PythonStore:
    """One store object made by `factory(root)`; `opened` says how that went."""

    def __init__(
        self, factory: Callable[[Path], Any], root: Path, *, timeout: float = 30.0
    ) -> None:
        self._timeout = timeout
        self._root = str(root)
        self._kinds: Mapping[Any, str] = getattr(factory, "error_kinds", None) or {}
        self._requests: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = (
            queue.SimpleQueue()
        )
        self._loop: asyncio.AbstractEventLoop | None = None
        self._loop_lock = threading.Lock()
        # Set in the threads of `together`, which make their calls themselves.
        self._inline = threading.local()
        self._store: Any = None
        self._given: list[Any] = []
        self._received: Any = None
        self.hung = False
        threading.Thread(target=self._work, name="torntail store", daemon=True).start()
        self.opened: CallOutcome = self._outcome(
            lambda: self._keep(self._awaited(factory(root))), lambda _: Returned()
        )

    @property
    def object(self) -> Any:
        """What the factory returned."""
        return self._store

    def _keep(self, store: Any) -> None:
        self._store = store

    # --- calls ----------------------------------------------------------------------------------

    def create(self, header: SessionHeader) -> CallOutcome:
        """Calls `create(header)`."""
        given = copy.deepcopy(header)
        return self._outcome(lambda: self._awaited(self._store.create(given)), lambda _: Returned())

    def append(self, session: str, events: Iterable[SessionEvent]) -> CallOutcome:
        """Calls `append(session, events)` with a list that stays ours, to be changed later."""
        given = list(events)
        self._given = given
        return self._outcome(
            lambda: self._awaited(self._store.append(session, given)), lambda _: Returned()
        )

    def load(self, session: str) -> CallOutcome:
        """Calls `load(session)`."""
        return self._outcome(lambda: self._awaited(self._store.load(session)), self._loaded)

    def inspect(self, session: str) -> CallOutcome:
        """Calls `inspect(session)`."""
        return self._outcome(lambda: self._awaited(self._store.inspect(session)), self._loaded)

    def list(self) -> CallOutcome:
        """Calls `list()`."""
        return self._outcome(lambda: self._awaited(self._store.list()), self._listed)

    def close(self) -> CallOutcome:
        """Calls `close()`, or `aclose()`, or leaves the context; a store without either has
        nothing to close.
        """
        if self._store is None:
            return Returned()

        def close() -> None:
            for name in ("close", "aclose"):
                if callable(getattr(self._store, name, None)):
                    self._awaited(getattr(self._store, name)())
                    return
            for name in ("__exit__", "__aexit__"):
                if callable(getattr(self._store, name, None)):
                    self._awaited(getattr(self._store, name)(None, None, None))
                    return

        return self._outcome(close, lambda _: Returned())

    def together(self, calls: Sequence[Callable[[], CallOutcome]]) -> tuple[CallOutcome, ...]:
        """Makes calls at the same time, each from a thread of its own, all behind one barrier."""
        barrier = threading.Barrier(len(calls))
        outcomes: dict[int, CallOutcome] = {}

        def run(index: int) -> None:
            self._inline.on = True
            barrier.wait()
            outcomes[index] = calls[index]()

        threads = [
            threading.Thread(target=run, args=(index,), daemon=True) for index in range(len(calls))
        ]
        interval = sys.getswitchinterval()
        # Switching threads as often as can be makes a race that exists likely to show.
        sys.setswitchinterval(1e-6)
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(self._timeout)
        finally:
            sys.setswitchinterval(interval)
        self.hung = self.hung or any(thread.is_alive() for thread in threads)
        return tuple(outcomes.get(index, Hung(self._timeout)) for index in range(len(calls)))

    def change_given(self) -> None:
        """Changes, in place, every event given to the last append, and the list itself."""
        for event in self._given:
            _spoil(event)
        self._given.clear()

    def change_received(self) -> None:
        """Changes, in place, what the last load returned, as far as it can be changed."""
        _spoil(self._received)

    def end(self) -> None:
        """Ends the threads; the store has been closed before, or hangs and is left behind."""
        self._requests.put(None)
        loop = self._loop
        if loop is not None:
            loop.call_soon_threadsafe(loop.stop)

    # --- threads --------------------------------------------------------------------------------

    def _work(self) -> None:
        while (request := self._requests.get()) is not None:
            call, future = request
            try:
                future.set_result(call())
            except BaseException as error:
                future.set_exception(error)

    def _run(self, call: Callable[[], Any]) -> Any:
        if getattr(self._inline, "on", False):
            return call()
        future: Future[Any] = Future()
        self._requests.put((call, future))
        return _result(future, self._timeout)

    def _awaited(self, value: Any) -> Any:
        """The value, or what it comes to when it is awaited in the store's own event loop."""
        # What `await` takes has this, but for old coroutines made of generators; asking the
        # abstract class costs several times as much, for each call of a crash campaign.
        if not hasattr(type(value), "__await__") and not isinstance(value, GeneratorType):
            return value
        if not inspect.isawaitable(value):
            return value
        with self._loop_lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=_run_loop, args=(self._loop,), daemon=True).start()

        async def wait() -> Any:
            return await value

        return _result(asyncio.run_coroutine_threadsafe(wait(), self._loop), self._timeout)

    def _outcome(
        self, call: Callable[[], Any], understand: Callable[[Any], CallOutcome]
    ) -> CallOutcome:
        # What hung once holds the thread that every further call would need.
        if self.hung:
            return Hung(self._timeout)

        def answer() -> CallOutcome:
            result = call()
            # Understood in the store's thread as well: a lazy result may hang, or fail, by itself.
            try:
                return understand(result)
            except Exception as error:
                return StrangeResult(
                    f"{_describe(result)}, which is not understood: {_text(error)}"
                )

        try:
            outcome: CallOutcome = self._run(answer)
            return outcome
        except _StillRunning:
            self.hung = True
            return Hung(self._timeout)
        except KeyboardInterrupt as error:
            # Only one that came through the future, or in a thread of ours, was the store's.
            if getattr(self._inline, "on", False) or _raised_by_store(error):
                return self._refused(error)
            raise
        except BaseException as error:
            return self._refused(error)

    # --- answers --------------------------------------------------------------------------------

    def _refused(self, error: BaseException) -> Refused:
        facts: dict[str, Any] = {}
        for name, value in vars(error).items():
            if name.startswith("_"):
                continue
            if isinstance(value, list | tuple):
                value = ", ".join(map(_text, value))
            if isinstance(value, str | PurePath):
                facts[name] = self._without_root(str(value))
            elif isinstance(value, int | float):
                facts[name] = value
        text = self._without_root(_text(error))
        return Refused(self._kind(error), type(error).__name__, text, facts)

    def _without_root(self, text: str) -> str:
        """A text as it would be in any other temporary directory."""
        return text.replace(f"{self._root}/", "").replace(self._root, "the root")

    def _kind(self, error: BaseException) -> str:
        if not isinstance(error, Exception):
            return "exit"
        for known in type(error).__mro__:
            kind = self._kinds.get(known) or self._kinds.get(known.__name__)
            if kind is not None:
                return kind
        try:
            kind = getattr(error, "kind", None)
        except BaseException:
            kind = None
        if isinstance(kind, str) and kind in KINDS:
            return kind
        if isinstance(error, FileNotFoundError | KeyError):
            return "not_found"
        if isinstance(error, FileExistsError):
            return "exists"
        return "other"

    def _loaded(self, result: Any) -> CallOutcome:
        self._received = result
        report = None
        header: Any = None
        if isinstance(result, Mapping):
            header = result.get("header", result.get("meta"))
            events = result["events"]
        elif isinstance(result, tuple) and len(result) == 2:
            header, events = result
        elif hasattr(result, "events"):
            header = getattr(result, "header", None)
            events = result.events
            report = getattr(result, "repair", None)
        elif isinstance(result, list | tuple):
            events = result
        else:
            return StrangeResult(f"{_describe(result)}, which is no session")
        # Copied at once: the store may go on changing what it handed out.
        session = LoadedSession(
            None if header is None else _header(header),
            tuple(_event(event) for event in _finite(events)),
            None if report is None else report_facts(report),
        )
        return Returned(session=session)

    def _listed(self, result: Any) -> CallOutcome:
        if isinstance(result, str | bytes | Mapping) or not isinstance(result, Iterable):
            return StrangeResult(f"{_describe(result)}, which is no list")
        return Returned(entries=tuple(self._entry(entry) for entry in _finite(result)))

    def _entry(self, entry: Any) -> ListedSession:
        if isinstance(entry, str):
            return ListedSession(entry)
        if isinstance(entry, SessionHeader):
            return ListedSession(entry.id, entry)
        if isinstance(entry, Mapping):
            if "header" in entry or "error" in entry:
                session = entry.get("session_id") or entry.get("id")
                header, error = entry.get("header"), entry.get("error")
            else:
                session, header, error = entry["id"], entry, None
        else:
            session, header = entry.session_id, getattr(entry, "header", None)
            error = getattr(entry, "error", None)
        if session is None and header is not None:
            session = _header(header).id
        if not isinstance(session, str):
            raise TypeError(f"an entry without an id: {_describe(entry)}")
        kind = self._kind(error) if isinstance(error, BaseException) else error
        return ListedSession(session, None if header is None else _header(header), kind)


def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        # What hangs in the loop is given up with it.
        pending = asyncio.all_tasks(loop)
        for task in pending:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*pending, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


def _raised_by_store(error: BaseException) -> bool:
    """Whether an exception passed through the store's thread on its way here."""
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code is PythonStore._work.__code__:
            return True
        trace = trace.tb_next
    return False


def _event(event: Any) -> SessionEvent:
    if isinstance(event, SessionEvent):
        return copy.deepcopy(event)
    if isinstance(event, Mapping):
        return SessionEvent.from_json(copy.deepcopy(dict(event)))
    raise TypeError(f"an event that is {_describe(event)}")


def _header(header: Any) -> SessionHeader:
    if isinstance(header, SessionHeader):
        return copy.deepcopy(header)
    if isinstance(header, Mapping):
        record = copy.deepcopy(dict(header))
        record.setdefault("type", "session")
        return SessionHeader.from_json(record)
    raise TypeError(f"a header that is {_describe(header)}")


def report_facts(report: Any) -> RepairFacts:
    """What a repair report says, whether it is an object or a mapping."""
    fact: Callable[[str, Any], Any] = (
        report.get if isinstance(report, Mapping) else partial(getattr, report)
    )

    return RepairFacts(
        torn_from_line=fact("torn_from_line", None),
        torn_from_byte=fact("torn_from_byte", None),
        torn_bytes=fact("torn_bytes", 0),
        copy_kept=bool(fact("copy_kept", None)),
        newline_added=bool(fact("newline_added", False)),
        durable=bool(fact("durable", True)),
    )


def _spoil(value: Any) -> None:
    """Changes everything that can be changed in place, deepest first."""
    if isinstance(value, list):
        for member in value:
            _spoil(member)
        value.append("changed by the caller")
    elif isinstance(value, dict):
        for member in value.values():
            _spoil(member)
        value["changed"] = "by the caller"
    elif isinstance(value, tuple):
        for member in value:
            _spoil(member)
    elif isinstance(value, SessionEvent):
        _spoil(value.data)
        _spoil(value.surface_op)
        _spoil(value.source_event_seqs)
        _spoil(value.extra)
    elif isinstance(value, SessionHeader):
        _spoil(value.extra)
    else:
        for name in ("header", "events"):
            with contextlib.suppress(Exception):
                _spoil(getattr(value, name))


def _finite(values: Iterable[Any]) -> Iterator[Any]:
    for number, value in enumerate(values):
        if number == _MOST:
            raise ValueError(f"it goes on after {_MOST} members")
        yield value


def _text(value: Any) -> str:
    """A value as text; what a store hands out may refuse even that, or try to end the process."""
    try:
        return str(value)
    except BaseException:
        return f"(a {type(value).__name__} without text)"


def _describe(value: Any) -> str:
    try:
        text = repr(value)
    except BaseException:
        text = "without a repr"
    return f"{type(value).__name__} {text if len(text) <= 60 else text[:57] + '...'}"
