"""A driver under the tracer: the calls of a history, recorded with what they did to files.

One process records many histories, of one directory after the other. A call is acknowledged where
the writing of its answer began, and the next is invoked there, too: it is asked for at once. Does
not decide which calls are made (`traced_calls`).
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Sequence
from typing import Final

from torntail.crash.disk import Disk
from torntail.crash.oplog import Acknowledged, Invoked, Operation
from torntail.drive.child_store import Driver, StoreCall, outcomes_of
from torntail.drive.conversation import (
    Broken,
    Conversation,
    DriverError,
    answer_id,
    gone,
    greeting,
    told,
)
from torntail.drive.lines import Lines
from torntail.drive.python_store import CallOutcome
from torntail.judge.history import Returned
from torntail.record.inprocess import RecordingFailed
from torntail.record.traced.log import Mark
from torntail.record.traced.process import Recording, TracedProcess
from torntail.record.traced.values import TracingUnavailable

__all__ = ["CannotTrace", "Take", "TracedDriver", "WroteOutside"]


class CannotTrace(RecordingFailed):
    """The driver cannot be recorded on this machine; `reason` says why."""

    def __init__(self, reason: str) -> None:
        super().__init__("", reason)

    def __str__(self) -> str:
        return self.reason


class WroteOutside(RecordingFailed):
    """The driver opened a file outside its root for writing: what it keeps there cannot crash with
    the rest.
    """

    def __init__(self, path: str) -> None:
        super().__init__(path, "was opened for writing, outside the root")


class TracedDriver:
    """The traced process of a driver, started when there is something to record."""

    def __init__(self, driver: Driver, *, seconds: float = 30.0) -> None:
        self._command = driver.command
        self._environment = driver.environment
        self._directory = driver.directory
        self.seconds = seconds
        self._process: TracedProcess | None = None
        self._conversation: Conversation | None = None
        self._stores = 0

    _known: Final[weakref.WeakKeyDictionary[Driver, TracedDriver]] = weakref.WeakKeyDictionary()

    @classmethod
    def of(cls, driver: Driver) -> TracedDriver:
        """The one that belongs to a driver: to start it anew for each history would cost most."""
        traced = cls._known.get(driver)
        if traced is None:
            traced = cls._known[driver] = cls(driver)
            weakref.finalize(driver, traced.close)
        return traced

    def take(self, root: str, disk: Disk | None, calls: int) -> Take:
        """Begins to record what so many calls do below `root`; raises `CannotTrace`."""
        if self._process is None or self._conversation is None or self._conversation.broken:
            self.close()
            self._start(root)
        assert self._process is not None
        assert self._conversation is not None
        return Take(self, self._process, self._conversation, root, disk, calls)

    def next_store(self) -> int:
        """A number that no store has had yet."""
        self._stores += 1
        return self._stores

    def _start(self, root: str) -> None:
        errors, end = os.pipe()
        try:
            process = TracedProcess(
                self._command,
                root=root,
                env=self._environment,
                cwd=self._directory,
                stderr=end,
            )
            try:
                process.start()
            except TracingUnavailable as error:
                raise CannotTrace(str(error)) from None
            except OSError as error:
                raise CannotTrace(f"the driver cannot be run: {error}") from None
        except BaseException:
            os.close(errors)
            raise
        finally:
            os.close(end)
        self._process = process
        self._errors = errors
        lines = Lines(process.stdin.fileno(), process.stdout.fileno(), errors)
        self._conversation = Conversation(lines)
        try:
            greeting(self._conversation, self.seconds)
        except (Broken, DriverError) as error:
            why = told(error.outcome) if isinstance(error, Broken) else str(error)
            self.close()
            raise CannotTrace(f"the driver does not greet when it is traced: {why}") from None

    def close(self) -> None:
        """Kills the process; again is harmless."""
        process, self._process = self._process, None
        if process is not None:
            if self._conversation is not None:
                self._conversation.lines.shut()
            self._conversation = None
            process.close()
            os.close(self._errors)


class Take:
    """One recording of calls on stores over one directory."""

    def __init__(
        self,
        driver: TracedDriver,
        process: TracedProcess,
        conversation: Conversation,
        root: str,
        disk: Disk | None,
        calls: int,
    ) -> None:
        self._calls = calls
        self._driver = driver
        self._process = process
        self._conversation = conversation
        self._root = root
        self._store: int | None = None
        self._answers: dict[int, int] = {}
        self.recording: Recording = process.record(root, disk)

    @property
    def broken(self) -> bool:
        """Whether the driver can be asked no further."""
        return self._conversation.broken is not None

    @property
    def gone(self) -> CallOutcome:
        """What calls come to after that."""
        assert self._conversation.broken is not None
        return gone(self._conversation.broken)

    def invoke(self, call: int) -> None:
        """Marks that a call is about to be made, unless the answer before is that mark."""
        if not self.broken and call - 1 not in self._answers.values():
            self.recording.mark(Invoked(call))

    @property
    def is_open(self) -> bool:
        """Whether a store is open."""
        return self._store is not None

    def open(self) -> CallOutcome:
        """Opens a store; none was open."""
        self._store = self._driver.next_store()
        return self._ask(None, [("open", {"store": self._store, "root": self._root})])[0]

    def plainly(self, request: StoreCall) -> CallOutcome:
        """One call on the open store, without a mark in the log."""
        name, fields = request
        return self._ask(None, [(name, {"store": self._store, **fields})])[0]

    def ask(self, call: int, requests: Sequence[StoreCall]) -> list[CallOutcome]:
        """Makes calls on the open store, opening one before if there is none; of the call number
        `call`, which is acknowledged when the last of them is answered.
        """
        everything: list[StoreCall] = []
        if self._store is None:
            self._store = self._driver.next_store()
            everything.append(("open", {"store": self._store, "root": self._root}))
        everything += [(name, {"store": self._store, **fields}) for name, fields in requests]
        if not everything:
            self.recording.mark(Acknowledged(call))
            return []
        return self._ask(call, everything)[len(everything) - len(requests) :]

    def close(self, call: int | None = None) -> list[CallOutcome]:
        """Closes the store, if one is open."""
        if self._store is None:
            return []
        store, self._store = self._store, None
        return self._ask(call, [("close", {"store": store})])

    def _ask(self, call: int | None, requests: Sequence[StoreCall]) -> list[CallOutcome]:
        if call is not None:
            self._answers[self._conversation.next_number + len(requests) - 1] = call
        outcomes = outcomes_of(self._conversation, requests, self._root, self._driver.seconds)
        if requests[0][0] == "open" and not isinstance(outcomes[0], Returned):
            self._store = None
            return [outcomes[0]] * len(outcomes)
        return outcomes

    def finish(self, *, check: bool = True) -> list[Operation]:
        """The log, with `check` held against the directory; raises what `Recording.check` does,
        `WroteOutside` besides.
        """
        if self.broken:
            self._process.kill()
        operations = list(self.recording.log(self._marks).operations)
        if check:
            self.recording.check()
        if self.recording.outside is not None:
            raise WroteOutside(self.recording.outside)
        if self.broken:
            self._driver.close()
        return operations

    def _marks(self, child: int, line: bytes) -> list[Mark]:
        call = self._answers.get(answer_id(line) or -1)
        if call is None:
            return []
        return [Acknowledged(call), *([Invoked(call + 1)] if call + 1 < self._calls else [])]
