"""Where a story of I/O errors is played: on a store in this process, or behind a driver.

Decides how calls reach the store, how the error is armed and lifted, and how what was struck is
told. Behind a driver an `open` that could fail is not seen beforehand, and there is no `reopen`.
Does not decide what is done in a story (`io_story`).
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from torntail.crash.disk import Disk
from torntail.crash.io_faults import IoFault, operation_kind
from torntail.crash.oplog import Inode, Operation, Write
from torntail.drive.child_store import Driver
from torntail.drive.inline_store import InlineStore
from torntail.drive.target import Target
from torntail.explore.crash_calls import answer_of
from torntail.explore.traced_calls import CALL_SECONDS, requests_of
from torntail.explore.traced_driver import TracedDriver, WroteOutside
from torntail.judge.history import Refused, Reopen, Returned
from torntail.judge.io_steps import IoCall, Struck
from torntail.judge.recovery import Answer
from torntail.record.injection import Injection, Seen
from torntail.record.inprocess import Recorder
from torntail.record.replay import replayed
from torntail.record.traced.values import Struck as Hit
from torntail.record.traced.values import refusal_of

__all__ = ["Stage", "stage_of"]


class Stage(ABC):
    """One recording of a store in a directory, under one error or none."""

    @property
    @abstractmethod
    def operations(self) -> Sequence[Operation]:
        """The op log up to now."""

    @property
    @abstractmethod
    def can_reopen(self) -> bool:
        """Whether the open store can be revived."""

    @abstractmethod
    def begin(self, call: int) -> None:
        """A call begins."""

    @abstractmethod
    def answer(self, call: IoCall) -> Answer:
        """Makes a call, on a new store object if none is open."""

    @abstractmethod
    def reopen(self, session: str) -> tuple[Answer, int | None]:
        """Revives a session's writer; what that returned, too, if it was a number."""

    @abstractmethod
    def struck(self) -> tuple[Struck, ...]:
        """What was struck since the call began."""

    @abstractmethod
    def lift(self) -> None:
        """The disk is well again."""

    @abstractmethod
    def close(self) -> None:
        """Closes the store object, unjudged."""

    @contextmanager
    def finishing(self, *, check: bool = True) -> Iterator[Self]:
        """Ends the recording when the block does, unchecked where that raises."""
        try:
            yield self
        except BaseException:
            self.finish(check=False)
            raise
        self.finish(check=check)

    @abstractmethod
    def finish(self, *, check: bool = True) -> None:
        """Ends the recording; with `check` raises what the recorder raises for an unseen write."""

    @abstractmethod
    def real_path(self, inode: Inode) -> str | None:
        """Where a file of the log stands."""

    @abstractmethod
    def seen(self, spans: Sequence[tuple[int, int]]) -> tuple[Seen, ...]:
        """What could have been struck; `spans` are the stretches of the log of the calls."""

    @property
    @abstractmethod
    def landed(self) -> bool:
        """Whether something was struck, and as much was done of it as was meant (VD-6)."""


def stage_of(target: Target, root: Path, disk: Disk, fault: IoFault | None) -> Stage:
    """The stage of a target, its recording begun."""
    driver = target.driver or target.recorder
    if driver is None:
        return _Here(target, root, disk, fault)
    return _Behind(target, driver, root, disk, fault)


class _Here(Stage):
    """A store in this process."""

    def __init__(self, target: Target, root: Path, disk: Disk, fault: IoFault | None) -> None:
        self._target = target
        self._root = root
        self._injection = Injection(fault)
        self._recorder = Recorder(
            root, disk, before=self._injection.before, opening=self._injection.opening
        )
        self._injection.attach(self._recorder)
        self._recorder.__enter__()
        self._store: InlineStore | None = None
        self._struck = 0

    @property
    def operations(self) -> Sequence[Operation]:
        return self._recorder.operations

    @property
    def can_reopen(self) -> bool:
        return self._store is not None and callable(getattr(self._store.object, "reopen", None))

    def begin(self, call: int) -> None:
        self._injection.begin(call)
        self._struck = len(self._injection.struck)

    def answer(self, call: IoCall) -> Answer:
        if isinstance(call, Reopen):
            self.close()
        if self._store is None:
            self._store = InlineStore(self._target.factory, self._root)
        if not isinstance(self._store.opened, Returned):
            opened = self._store.opened
            self._store = None
            return opened
        return answer_of(self._store, call, self._target.capabilities)

    def reopen(self, session: str) -> tuple[Answer, int | None]:
        if self._store is None:
            return Refused("other", "NoStore", "the store could not be opened"), None
        store = self._store
        got: list[Any] = []
        outcome = store._outcome(
            lambda: got.append(store._awaited(store.object.reopen(session))), lambda _: Returned()
        )
        return outcome, got[0] if got and type(got[0]) is int else None

    def struck(self) -> tuple[Struck, ...]:
        return tuple(
            Struck(one.kind, one.error, one.done, one.size, one.own, one.again)
            for one in self._injection.struck[self._struck :]
        )

    def lift(self) -> None:
        self._injection.lift()

    def close(self) -> None:
        if self._store is not None:
            self._store.close()
            self._store = None

    def finish(self, *, check: bool = True) -> None:
        try:
            if check:
                self._recorder.check()
        finally:
            self._recorder.__exit__(None, None, None)

    def real_path(self, inode: Inode) -> str | None:
        return self._recorder.real_path(inode)

    def seen(self, spans: Sequence[tuple[int, int]]) -> tuple[Seen, ...]:
        return tuple(self._injection.seen)

    @property
    def landed(self) -> bool:
        return self._injection.landed


class _Behind(Stage):
    """A store in the traced process of a driver."""

    def __init__(
        self, target: Target, driver: Driver, root: Path, disk: Disk, fault: IoFault | None
    ) -> None:
        self._capabilities = target.capabilities
        # SQLite's files are copied to a private place where they cannot be written (IO-5).
        self._may_copy = target.driver is None
        self._root = root
        self._disk = disk
        self._fault = fault
        self._is_armed = False
        traced = TracedDriver.of(driver)
        traced.seconds = CALL_SECONDS
        self._take = traced.take(str(root), disk, 0)
        self._recording = self._take.recording
        self._begun = 0
        self._struck = 0

    @property
    def operations(self) -> Sequence[Operation]:
        return self._recording.operations

    @property
    def can_reopen(self) -> bool:
        return False

    def begin(self, call: int) -> None:
        fault = self._fault
        self._struck = len(self._recording.struck)
        self._begun = len(self._recording.entries)
        if fault is not None and call == fault.during:
            self._is_armed = True
            self._recording.arm([refusal_of(fault)])
        elif self._is_armed and not self._struck:
            self.lift()  # It was meant for that call alone.

    def answer(self, call: IoCall) -> Answer:
        if isinstance(call, Reopen):
            self._take.close()
        if not self._take.is_open:
            opened = self._take.open()
            if not isinstance(opened, Returned):
                return opened
        for request in requests_of(call, self._capabilities):
            return self._take.plainly(request)
        return Returned()

    def reopen(self, session: str) -> tuple[Answer, int | None]:
        return Refused("other", "NoReopen", "the driver protocol has no reopen"), None

    def struck(self) -> tuple[Struck, ...]:
        return tuple(map(self._told, self._recording.struck[self._struck :]))

    def _told(self, hit: Hit) -> Struck:
        assert self._fault is not None
        # A call that changes nothing could not be told from one that was not made.
        before = self._recording.entries[self._begun : hit.position]
        own = any(isinstance(one, Write) and one.inode == hit.inode for one in before)
        size = hit.size if hit.kind == "write" else 0
        done = 0 if hit.again else min(self._fault.length, size)
        error = "EIO" if hit.again else self._fault.error
        return Struck(hit.kind, error, done, size, own, hit.again)

    def lift(self) -> None:
        self._recording.lift()

    def close(self) -> None:
        self._take.close()

    def finish(self, *, check: bool = True) -> None:
        try:
            self._take.finish(check=check)
        except WroteOutside:
            if not self._may_copy:
                raise

    def real_path(self, inode: Inode) -> str | None:
        for path, found in replayed(self._disk, self._recording.operations).tree().files:
            if found == inode:
                return os.path.join(self._root, path)
        return None

    def seen(self, spans: Sequence[tuple[int, int]]) -> tuple[Seen, ...]:
        operations = self._recording.operations
        seen = []
        for call, (start, end) in enumerate(spans):
            for operation in operations[start:end]:
                kind = operation_kind(operation)
                if kind is not None:
                    size = len(operation.data) if isinstance(operation, Write) else 0
                    seen.append(Seen(call, kind, getattr(operation, "inode", None), size))
        return tuple(seen)

    @property
    def landed(self) -> bool:
        hits = self._recording.struck
        entries = self._recording.entries
        for hit in hits:
            done = self._told(hit).done
            if hit.kind == "write" and done:
                found = entries[hit.position] if hit.position < len(entries) else None
                if not isinstance(found, Write) or len(found.data) != done:
                    return False
        return bool(hits)
