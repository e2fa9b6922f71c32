"""Making a history of several writers: processes that are told, heard, stopped and killed.

Every wait has a deadline, and a call that is not back by then is an outcome; nothing is slept
through. Each signal is seen to have landed before the next step. Decides which processes are kept
from one history to the next. Does not decide what is done in which order (`writers_plans`) or what
it proves (`judge.writers`).
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, assert_never

import msgspec

from torntail.drive.child_store import Driver, StoreCall, understand
from torntail.drive.conversation import Broken, gone
from torntail.drive.driver_process import DriverProcess
from torntail.drive.onlooker import HarnessError, Onlooker, Storage
from torntail.drive.python_store import CallOutcome
from torntail.drive.runner import hangs
from torntail.drive.target import BUILT_IN, Durability, Target
from torntail.explore.writer_process import FORK, WriterOrder
from torntail.judge.history import (
    Append,
    Close,
    Create,
    Inspect,
    Load,
    Outcome,
    Refused,
    Reopen,
    Returned,
    TogetherOutcome,
)
from torntail.judge.writer_steps import (
    Age,
    Ask,
    AtOnce,
    Hear,
    Signal,
    Tell,
    WriterCall,
    WriterObservation,
    WritersHistory,
    WriterStep,
)

__all__ = ["WriterProcesses", "importable"]

_SIGNAL_SECONDS: Final = 10.0
_AN_HOUR_SECONDS: Final = 3600


def importable(target: Target) -> bool:
    """Whether another process can have the store by its name."""
    if target.driver is not None or target.name in BUILT_IN or target.recorder is not None:
        return True
    module, _, attribute = target.name.partition(":")
    value: Any = sys.modules.get(module)
    for part in attribute.split("."):
        value = getattr(value, part, None)
    # An object that is called like a function has no name of its own, only its class has.
    return module != "__main__" and bool(value == target.factory)


class WriterProcesses:
    """The processes of one campaign, each by its name; a context manager that leaves none behind.

    `seconds` is how long a call may take, and less once one did not come back. Raises `DriverError`
    where a process cannot be had.
    """

    def __init__(
        self,
        target: Target,
        durability: Durability | None,
        onlooker: Onlooker,
        seconds: float,
    ) -> None:
        self._target = target
        self._durability = durability
        self._onlooker = onlooker
        self._drivers: dict[str, Driver] = {}
        self.seconds = seconds

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for driver in self._drivers.values():
            driver.close()

    def run(self, steps: Iterable[WriterStep], directory: Path) -> WritersHistory:
        """Makes a history in a fresh directory; the storage is left there.

        After a call that hangs nothing more is tried. Raises `HarnessError` where a signal did not
        land.
        """
        root = directory / "case" / "root"
        root.mkdir(parents=True)
        run = _Run(self, self._onlooker, root)
        try:
            return run.history(steps)
        finally:
            run.end()

    def driver(self, name: str) -> Driver:
        """The process of that name, and the one after it when it is gone."""
        if name not in self._drivers:
            self._drivers[name] = self._new_driver()
        return self._drivers[name]

    def _new_driver(self) -> Driver:
        given = self._target.driver
        if given is not None:
            return Driver(
                given.command,
                environment=given.environment,
                directory=given.directory,
                lingers=True,
            )
        order = WriterOrder(
            target=self._target.name,
            capabilities=self._target.capabilities,
            durability=self._durability,
        )
        command = [sys.executable, "-m", "torntail.explore.writer_process"]
        # The caller's modules must be found by name there, too.
        path = os.pathsep.join(filter(None, sys.path))
        return Driver(
            [*command, msgspec.json.encode(order).decode()],
            environment={**os.environ, "PYTHONPATH": path},
            lingers=True,
        )


class _Writer:
    """One process with one store object."""

    def __init__(self, driver: Driver, root: Path, seconds: float) -> None:
        self._driver = driver
        self._root = str(root)
        self._seconds = seconds
        self.process: DriverProcess = driver.process()
        self._store = 0
        self._told: tuple[str, range, list[StoreCall]] | None = None
        self.killed = False
        self.opened = self._open()

    def _open(self) -> CallOutcome:
        self._store = self._driver.next_store()
        return self._call("open", root=self._root)

    def ask(self, call: WriterCall) -> CallOutcome:
        """A call, and what it comes to."""
        if isinstance(call, Reopen):
            self._call("close")
            self.opened = self._open()
            return self.opened
        lost = self.tell(call)
        return lost or self.hear()

    def tell(self, call: WriterCall) -> CallOutcome | None:
        """Sends a call; what it comes to where it cannot even be sent."""
        if not isinstance(self.opened, Returned):
            return self.opened
        match call:
            case Create(header=header):
                return self._tell("create", header=header)
            case Append(session=session, events=events):
                return self._tell("append", session=session, events=list(events))
            case Load(session=session):
                return self._tell("load", session=session)
            case Inspect(session=session):
                return self._tell("inspect", session=session)
            case Close():
                return self._tell("close")
            case Reopen():
                raise AssertionError("a store is opened again in one go")
        assert_never(call)

    def _call(self, name: str, **fields: Any) -> CallOutcome:
        return self._tell(name, **fields) or self.hear()

    def _tell(self, name: str, **fields: Any) -> CallOutcome | None:
        requests: list[StoreCall] = [(name, {"store": self._store, **fields})]
        try:
            self._told = name, self.process.conversation.post(requests), requests
        except Broken as error:
            return error.outcome
        return None

    def hear(self) -> CallOutcome:
        """What it was told last, and came to."""
        assert self._told is not None
        name, numbers, requests = self._told
        self._told = None
        try:
            reply = next(self.process.hear(numbers, requests, self._seconds))
        except Broken as error:
            return error.outcome
        return understand(name, reply, self._root)

    def fork(self) -> None:
        """Has it fork a child; raises `HarnessError` if it does not."""
        try:
            reply = next(self.process.ask_all([(FORK, {})], _SIGNAL_SECONDS))
        except Broken as error:
            raise HarnessError(f"a writer did not fork: {gone(error.outcome).text}") from None
        if reply.error is not None:
            raise HarnessError(f"a writer did not fork: {reply.error.message}")
        if reply.result != b'{"lives":true}':
            raise HarnessError("the child that a writer forked did not live on")

    def end(self) -> None:
        """Closes the store; a process that is not fit for another history is ended."""
        if self.killed or not self.process.alive:
            self._driver.close()
            return
        # One that was left stopped can answer nothing.
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.process.pid, signal.SIGCONT)
        outcome = self._call("close") if self._told is None else None
        if not isinstance(outcome, Returned | Refused):
            self._driver.close()


class _Run:
    """One history while it is made."""

    def __init__(self, processes: WriterProcesses, onlooker: Onlooker, root: Path) -> None:
        self._processes = processes
        self._onlooker = onlooker
        self._root = root
        self._writers: dict[str, _Writer] = {}
        self._before: Storage = {}
        self._data_files: set[str] = set()

    def history(self, steps: Iterable[WriterStep]) -> WritersHistory:
        history: list[WriterObservation] = []
        for step in steps:
            outcome = self._outcome(step)
            looked = not isinstance(step, Tell | Age)
            changed = self._changed() if looked else ()
            history.append(WriterObservation(step, outcome, changed))
            if hangs(outcome):
                self._processes.seconds = min(self._processes.seconds, 5.0)
                break
        return tuple(history)

    def end(self) -> None:
        for writer in self._writers.values():
            writer.end()

    def _writer(self, name: str) -> _Writer:
        if name not in self._writers:
            driver = self._processes.driver(name)
            self._writers[name] = _Writer(driver, self._root, self._processes.seconds)
        return self._writers[name]

    def _outcome(self, step: WriterStep) -> Outcome:
        match step:
            case Ask(name, call):
                return self._writer(name).ask(call)
            case Tell(name, call):
                return self._writer(name).tell(call) or Returned()
            case Hear(name):
                return self._writer(name).hear()
            case AtOnce(asks):
                writers = [self._writer(ask.writer) for ask in asks]
                lost = [writer.tell(ask.call) for writer, ask in zip(writers, asks, strict=True)]
                heard = [one or writer.hear() for one, writer in zip(lost, writers, strict=True)]
                return TogetherOutcome(tuple(heard))
            case Signal(name, kind):
                writer = self._writer(name)
                if kind == "fork":
                    writer.fork()
                else:
                    _SENDING[kind](writer)
                return Returned()
            case Age():
                _put_back_times(self._root)
                self._changed()
                return Returned()
        assert_never(step)

    def _changed(self) -> tuple[str, ...]:
        """Which files changed that hold data of a session, or lie outside the root."""
        before, after = self._before, self._onlooker.snapshot(self._root)
        self._before = after
        self._data_files |= {name for name, file in after.items() if file.marks}
        return tuple(
            name
            for name in sorted(before.keys() | after.keys())
            if (name in self._data_files or name.startswith("../"))
            and _digest(before, name) != _digest(after, name)
        )


def _digest(storage: Storage, name: str) -> str | None:
    file = storage.get(name)
    return None if file is None else file.digest


# --- signals --------------------------------------------------------------------------------------


def _stop(writer: _Writer) -> None:
    os.kill(writer.process.pid, signal.SIGSTOP)
    _await_state(writer.process.pid, stopped=True)


def _continue(writer: _Writer) -> None:
    os.kill(writer.process.pid, signal.SIGCONT)
    _await_state(writer.process.pid, stopped=False)


def _kill(writer: _Writer) -> None:
    writer.killed = True
    os.kill(writer.process.pid, signal.SIGKILL)
    ended = writer.process.ended(_SIGNAL_SECONDS)
    if ended is None or ended.code != -signal.SIGKILL:
        raise HarnessError(f"a writer was not killed: it ended with {ended}")


_SENDING: Final = {"stop": _stop, "continue": _continue, "kill": _kill}


def _await_state(pid: int, *, stopped: bool) -> None:
    """Waits until every thread of a process is stopped, or none is."""
    until = time.monotonic() + _SIGNAL_SECONDS
    while sys.platform == "linux":
        states = set()
        for thread in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(FileNotFoundError):
                text = Path(f"/proc/{pid}/task/{thread}/stat").read_text("utf-8", "replace")
                states.add(text.rpartition(")")[2].split()[0] == "T")
        if states == {stopped}:
            return
        if time.monotonic() > until:
            raise HarnessError(f"a writer was not {'stopped' if stopped else 'continued'}")
        select.select([], [], [], 0.001)


def _put_back_times(root: Path) -> None:
    for folder, _, names in os.walk(root):
        for name in names:
            path = os.path.join(folder, name)
            with contextlib.suppress(FileNotFoundError):
                status = os.stat(path)
                times = status.st_atime - _AN_HOUR_SECONDS, status.st_mtime - _AN_HOUR_SECONDS
                os.utime(path, times)
