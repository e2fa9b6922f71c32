"""Calling a store in a process of its own, by the driver protocol.

Gives the same outcomes as `python_store`, and for what only a process can do those that
`conversation` names. Decides which results are understood. Many stores share a process; when one
breaks the protocol the process is ended, and the others with it.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec

from torntail.drive.conversation import Broken, DriverError, Reply, gone
from torntail.drive.driver_process import DriverProcess
from torntail.drive.protocol import ERROR_KINDS, HelloResult, WireRepair
from torntail.drive.python_store import CallOutcome
from torntail.judge.history import (
    Hung,
    ListedSession,
    LoadedSession,
    Refused,
    RepairFacts,
    Returned,
    StrangeResult,
)
from torntail.session import (
    MalformedRecord,
    SessionEvent,
    SessionHeader,
    parse_event,
    parse_header,
)
from torntail.session.codec import parse_block, parse_json
from torntail.session.dialects import Dialect

__all__ = [
    "ChildStore",
    "Driver",
    "StoreCall",
    "ask_each",
    "ask_store",
    "outcomes_of",
    "understand",
]

StoreCall = tuple[str, dict[str, Any]]
"""A call by its name, and the fields of its request but for the store."""

# Where a method is called `list`, no annotation can be.
_Calls = list[StoreCall]
_Some = list[CallOutcome | None]

_CACHED_LOADS: Final = 512
_CACHED_BYTES: Final = 1 << 16


class Driver:
    """A command that is a driver: the process that serves it now, or a new one after a breach.

    With `lingers`, what a process of it started outlives that process until `close`. Raises
    `DriverError` from `process` where there is none to be had. `close` ends it.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        seconds: float = 30.0,
        environment: Mapping[str, str] | None = None,
        directory: Path | str | None = None,
        lingers: bool = False,
    ) -> None:
        self.command = tuple(command)
        self._lingers = lingers
        self._seconds = seconds
        self.environment = environment
        self.directory = directory
        self._process: DriverProcess | None = None
        self._stores = 0
        self.started = 0
        self._holder: list[DriverProcess] = []
        weakref.finalize(self, _kill, self._holder)

    def process(self) -> DriverProcess:
        """A process that may be asked."""
        if self._process is None or not self._process.alive:
            self.close()
            self._process = DriverProcess(
                self.command,
                seconds=self._seconds,
                environment=self.environment,
                directory=self.directory,
                lingers=self._lingers,
            )
            self._holder.append(self._process)
            self.started += 1
        return self._process

    @property
    def hello(self) -> HelloResult:
        """What the driver says of itself."""
        return self.process().hello

    def next_store(self) -> int:
        """A number that no store has had yet."""
        self._stores += 1
        return self._stores

    def close(self) -> None:
        """Ends the process; again is harmless, and a further use starts another."""
        if self._process is not None:
            self._process.kill()
        self._process = None
        self._holder.clear()


def _kill(processes: list[DriverProcess]) -> None:
    for process in processes:
        process.kill()


class ChildStore:
    """A store over `root`, in the process of a driver; `opened` says how opening it went."""

    def __init__(self, driver: Driver, root: Path, *, timeout: float = 30.0) -> None:
        self._driver = driver
        self._timeout = timeout
        self._root = str(root)
        self._number = driver.next_store()
        self._batch: _Calls | None = None
        self._closed = False
        self.hung = False
        self._process: DriverProcess | None = None
        try:
            self._process = driver.process()
        except DriverError as error:
            self.opened: CallOutcome = Refused("exit", "DriverError", str(error))
        else:
            self.opened = self._call("open", root=self._root)

    @property
    def object(self) -> ChildStore:
        """What has the calls of the store."""
        return self

    # --- calls ----------------------------------------------------------------------------------

    def create(self, header: SessionHeader) -> CallOutcome:
        """Asks to `create` a session."""
        return self._call("create", header=header)

    def append(self, session: str, events: Iterable[SessionEvent]) -> CallOutcome:
        """Asks to `append` events. Raises `NotCarried` for what JSON has no words for."""
        return self._call("append", session=session, events=list(events))

    def load(self, session: str) -> CallOutcome:
        """Asks to `load` a session."""
        return self._call("load", session=session)

    def inspect(self, session: str) -> CallOutcome:
        """Asks to `inspect` a session."""
        return self._call("inspect", session=session)

    def list(self) -> CallOutcome:
        """Asks for the `list` of sessions."""
        return self._call("list")

    def close(self) -> CallOutcome:
        """Asks to `close` the store; one that was never opened has nothing to close."""
        if self._process is None:
            return Returned()
        self._closed = True
        return self._call("close")

    def together(self, calls: Sequence[Callable[[], CallOutcome]]) -> tuple[CallOutcome, ...]:
        """Sends the requests of several calls at once; each call makes at most one."""
        outcomes: _Some = []
        batch: _Calls = []
        self._batch = batch
        try:
            for call in calls:
                before = len(batch)
                answer = call()
                outcomes.append(answer if len(batch) == before else None)
        finally:
            self._batch = None
        answers = iter(self._ask(batch))
        return tuple(next(answers) if one is None else one for one in outcomes)

    def change_given(self) -> None:
        """Nothing that was given is shared with another process."""

    def change_received(self) -> None:
        """Nothing that was received is shared with another process."""

    def end(self) -> None:
        """Lets go of the store; the process serves others."""
        if not self._closed and self._process is not None and self._process.alive:
            self.close()

    # --- asking ---------------------------------------------------------------------------------

    def _call(self, call: str, **fields: Any) -> CallOutcome:
        request = call, {"store": self._number, **fields}
        if self._batch is not None:
            self._batch.append(request)
            return Returned()
        return self._ask([request])[0]

    def _ask(self, requests: Sequence[StoreCall]) -> Sequence[CallOutcome]:
        if self._process is None:
            return [self.opened] * len(requests)
        outcomes = outcomes_of(self._process, requests, self._root, self._timeout)
        self.hung = self.hung or any(isinstance(one, Hung) for one in outcomes)
        return outcomes


def outcomes_of(
    process: Asked, requests: Sequence[StoreCall], root: str, seconds: float
) -> list[CallOutcome]:
    """What requests come to that are sent all at once."""
    outcomes, further = _until_broken(process, requests, root, seconds)
    return outcomes + [further] * (len(requests) - len(outcomes))


def _until_broken(
    process: Asked, requests: Sequence[StoreCall], root: str, seconds: float
) -> tuple[list[CallOutcome], CallOutcome]:
    """What requests come to that are sent all at once, up to the one that broke the protocol, and
    what that makes of those behind it.
    """
    outcomes: list[CallOutcome] = []
    further: CallOutcome = Returned()
    try:
        for (call, _), reply in zip(requests, process.ask_all(requests, seconds), strict=True):
            outcomes.append(understand(call, reply, root))
    except Broken as error:
        outcomes.append(error.outcome)
        further = error.outcome if isinstance(error.outcome, Hung) else gone(error.outcome)
    return outcomes, further


class Asked(Protocol):
    """What answers requests: a process, or a conversation with one."""

    def ask_all(self, requests: Sequence[StoreCall], seconds: float) -> Iterator[Reply]:
        """Sends requests at once and gives their answers in order; raises `Broken`."""
        ...


def ask_store(
    driver: Driver, root: str, calls: Sequence[StoreCall], seconds: float
) -> list[CallOutcome]:
    """Opens a store, makes calls and closes it, all sent at once; what each call came to.

    Where the store cannot be opened, that is what all of them came to.
    """
    try:
        process = driver.process()
    except DriverError as error:
        return [_no_process(error)] * len(calls)
    requests = _life_of_a_store(driver, root, calls)
    opened, *outcomes, _ = outcomes_of(process, requests, root, seconds)
    return outcomes if isinstance(opened, Returned) else [opened] * len(calls)


def ask_each(
    driver: Driver, root: str, calls: Sequence[StoreCall], seconds: float
) -> tuple[CallOutcome, list[CallOutcome]]:
    """As `ask_store`, of calls that have nothing to do with each other: those behind one that ends
    the process are made on a store in the next one. First what opening the last store came to.
    """
    outcomes: list[CallOutcome] = []
    while True:
        try:
            process = driver.process()
        except DriverError as error:
            return _no_process(error), outcomes + [_no_process(error)] * len(calls)
        requests = _life_of_a_store(driver, root, calls)
        (opened, *given), further = _until_broken(process, requests, root, seconds)
        if not isinstance(opened, Returned):
            return opened, outcomes + [opened] * len(calls)
        outcomes += given[: len(calls)]
        calls = calls[len(given) :]
        if not calls or isinstance(further, Hung):
            # Another wait as long might be too long for who waits for this process.
            return opened, outcomes + [further] * len(calls)


def _life_of_a_store(driver: Driver, root: str, calls: Sequence[StoreCall]) -> list[StoreCall]:
    store = {"store": driver.next_store()}
    requests: list[StoreCall] = [("open", {**store, "root": root})]
    requests += [(call, {**store, **fields}) for call, fields in calls]
    return [*requests, ("close", store)]


def _no_process(error: DriverError) -> Refused:
    return Refused("exit", "DriverError", str(error))


# --- answers --------------------------------------------------------------------------------------


def understand(call: str, reply: Reply, root: str) -> CallOutcome:
    """What an answer to a call says."""
    if reply.error is not None:
        error = reply.error
        facts = {
            name: _without(root, value) if isinstance(value, str) else value
            for name, value in error.facts.items()
            if isinstance(value, str | int | float)
        }
        text = _without(root, error.message)
        return Refused(error.kind, error.name or error.kind, text, facts)
    assert reply.result is not None
    try:
        match call:
            case "load" | "inspect":
                if reply.value is not None:
                    return _session_of(reply.value, reply.dialect)
                if len(reply.result) <= _CACHED_BYTES:
                    return _known_session(reply.result, reply.dialect)
                return _session(reply.result, reply.dialect)
            case "list":
                value = parse_json(reply.result) if reply.value is None else reply.value
                return _listed(value, reply.dialect)
    except (ValueError, RecursionError) as error:
        shown = reply.result[:60].decode("utf-8", "backslashreplace") or str(reply.value)[:60]
        return StrangeResult(f"{shown!r}, which is not understood: {error}")
    return Returned()


def _without(root: str, text: str) -> str:
    """A text as it would be in any other temporary directory."""
    return text.replace(f"{root}/", "").replace(root, "the root") if root else text


class _Session(msgspec.Struct, frozen=True):
    events: list[msgspec.Raw]
    header: msgspec.Raw = msgspec.Raw(b"null")
    repair: WireRepair | None = None


_decode_session: Final = msgspec.json.Decoder(_Session).decode


def _session(text: bytes, dialect: Dialect) -> CallOutcome:
    result = _decode_session(text)
    # All events at once, where the text is as torntail itself would write it.
    events = parse_block(b"\n".join(map(bytes, result.events))) if result.events else []
    if events is None or len(events) != len(result.events):
        events = [_event(index, bytes(raw)) for index, raw in enumerate(result.events)]
    header = None
    if bytes(result.header) != b"null":
        try:
            header = parse_header(bytes(result.header))
        except MalformedRecord as error:
            raise ValueError(f"its header: {error.reason}") from None
    return _returned(header, events, result.repair, dialect)


# Equal answers are one value: after a crash most of them are.
_known_session: Final = lru_cache(_CACHED_LOADS)(_session)


def _event(index: int, text: bytes) -> SessionEvent:
    try:
        return parse_event(text)
    except MalformedRecord as error:
        raise ValueError(f"event {index}: {error.reason}") from None


def _returned(
    header: SessionHeader | None,
    events: Iterable[SessionEvent],
    repair: WireRepair | None,
    dialect: Dialect,
) -> CallOutcome:
    if dialect.wraps:
        header = None if header is None else dialect.heard_header(header)
        events = map(dialect.heard, events)
    return Returned(session=LoadedSession(header, tuple(events), _facts(repair)))


def _facts(repair: WireRepair | None) -> RepairFacts | None:
    if repair is None:
        return None
    return RepairFacts(**msgspec.structs.asdict(repair))


def _session_of(value: Any, dialect: Dialect) -> CallOutcome:
    """As `_session`, of a result that the fast parser could not read."""
    if not isinstance(value, dict) or not isinstance(value.get("events"), list):
        raise ValueError("it is no object with events")
    events = tuple(map(SessionEvent.from_json, value["events"]))
    header = value.get("header")
    repair = msgspec.convert(value.get("repair"), WireRepair | None)
    known = None if header is None else SessionHeader.from_json(header)
    return _returned(known, events, repair, dialect)


def _listed(value: Any, dialect: Dialect) -> CallOutcome:
    if not isinstance(value, dict) or not isinstance(value.get("sessions"), list):
        raise ValueError("it is no object with sessions")
    return Returned(entries=tuple(_entry(entry, dialect) for entry in value["sessions"]))


def _entry(entry: Any, dialect: Dialect) -> ListedSession:
    if not isinstance(entry, dict) or not isinstance(entry.get("session"), str):
        raise ValueError(f"an entry without session: {str(entry)[:60]}")
    error, header = entry.get("error"), entry.get("header")
    if error is not None and error not in ERROR_KINDS:
        raise ValueError(f"an entry with the error {error!r:.40}, which is no kind")
    known = None if header is None else dialect.heard_header(SessionHeader.from_json(header))
    return ListedSession(entry["session"], known, error)
