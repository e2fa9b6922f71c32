"""Carrying an I/O error out on a running store, through the hooks of the recorder.

Decides which operation is struck, what is done of it all the same, and what a failed fsync leaves
of the real file; the op log is told of that. `struck` is the proof that the fault landed, `seen`
every operation that could have been struck. Holds no opinion on what a store should do.

Reads never fail here, and neither do calls past the wrappers.
"""

from __future__ import annotations

import errno
import os
from typing import NamedTuple

from torntail.crash.io_faults import IoFault, IoOperation, SyncFailure, operation_kind, strikes
from torntail.crash.oplog import Inode, Operation, SyncFailed, SyncFile, Write
from torntail.record.inprocess import Recorder
from torntail.record.ledger import Cut
from torntail.record.real import Real

__all__ = ["Injection", "Seen", "Strike"]

_DIRTY = SyncFailure(pages="dirty")


class Seen(NamedTuple):
    """An operation that could have been struck: in which call, its kind, of a write its size."""

    call: int
    kind: IoOperation
    inode: Inode | None
    size: int = 0


class Strike(NamedTuple):
    """An operation that was struck, when the op log had `position` operations.

    Of a write `done` bytes were to be carried out; `error` is None for a short write. `own`: an
    fsync of a file to which the same call had written. `again`: an error reported a second time.
    """

    call: int
    kind: IoOperation
    inode: Inode | None
    position: int
    error: str | None
    done: int = 0
    size: int = 0
    own: bool = False
    again: bool = False


class Injection:
    """One fault, or none, on one recording: give `before` and `opening` to the `Recorder`, then
    the recorder to `attach`, and say when each call begins.
    """

    def __init__(self, fault: IoFault | None) -> None:
        self.fault = fault
        self.seen: list[Seen] = []
        self.struck: list[Strike] = []
        self._recorder: Recorder | None = None
        self._call = -1
        self._counted = 0
        self._lifted = fault is None
        self._again: set[Inode] = set()
        self._written: set[Inode] = set()

    def attach(self, recorder: Recorder) -> None:
        """The recorder whose hooks these are."""
        self._recorder = recorder

    def begin(self, call: int) -> None:
        """A call begins; `during` of the fault counts these."""
        self._call = call
        self._counted = 0
        self._written.clear()

    def lift(self) -> None:
        """The disk is well again from here on."""
        self._lifted = True
        self._again.clear()

    @property
    def landed(self) -> bool:
        """Whether something was struck, and of each write as much was done as was meant (VD-6)."""
        assert self._recorder is not None
        log = self._recorder.operations
        for strike in self.struck:
            if strike.kind == "write" and strike.done:
                done = log[strike.position] if strike.position < len(log) else None
                if not isinstance(done, Write) or len(done.data) != strike.done:
                    return False
        return bool(self.struck)

    # --- the hooks ------------------------------------------------------------------------------

    def opening(self, inode: Inode) -> None:
        """Before a file that is there is opened for writing."""
        self._consider("open", inode, 0)

    def before(self, operation: Operation) -> Cut | None:
        """Before an operation is carried out."""
        kind = operation_kind(operation)
        if kind is None:
            return None
        inode = getattr(operation, "inode", None)
        if isinstance(operation, SyncFile) and inode in self._again:
            self._again.discard(inode)
            self._note(kind, inode, "EIO", again=True)
            raise _os_error("EIO")
        if isinstance(operation, Write):
            cut = self._consider(kind, inode, len(operation.data))
            self._written.add(operation.inode)
            return cut
        return self._consider(kind, inode, 0)

    def _consider(self, kind: IoOperation, inode: Inode | None, size: int) -> Cut | None:
        self.seen.append(Seen(self._call, kind, inode, size))
        fault = self.fault
        if fault is None or self._lifted or not strikes(fault, kind):
            return None
        if self.struck:
            if fault.lasts == "once":
                return None
        elif self._call != fault.during:
            return None
        else:
            self._counted += 1
            if self._counted <= fault.nth:
                return None
        return self._strike(fault, kind, inode, size)

    def _strike(
        self, fault: IoFault, kind: IoOperation, inode: Inode | None, size: int
    ) -> Cut | None:
        done = min(fault.length, size)
        if fault.error is None:
            if kind != "write" or not 0 < done < size:
                return None  # Nothing that could come short.
            self._note(kind, inode, None, done=done, size=size)
            return Cut(done)
        self._note(kind, inode, fault.error, done=done, size=size)
        error = _os_error(fault.error)
        if kind == "write" and done:
            return Cut(done, error)
        if kind == "sync" and inode is not None:
            self._fail_sync(fault.sync or _DIRTY, inode)
        raise error

    def _note(
        self,
        kind: IoOperation,
        inode: Inode | None,
        error: str | None,
        *,
        done: int = 0,
        size: int = 0,
        again: bool = False,
    ) -> None:
        assert self._recorder is not None
        position = len(self._recorder.operations)
        own = inode in self._written
        self.struck.append(Strike(self._call, kind, inode, position, error, done, size, own, again))

    # --- fsyncs ---------------------------------------------------------------------------------

    def _fail_sync(self, failure: SyncFailure, inode: Inode) -> None:
        recorder = self._recorder
        assert recorder is not None
        if failure.reported == "again":
            self._again.add(inode)
        content = None
        if failure.pages == "clean-old":
            content = self._durable(recorder, inode)
            path = recorder.real_path(inode)
            if path is not None:
                _put_back(path, content)
        recorder.operations.append(SyncFailed(inode, failure.pages, content))

    def _durable(self, recorder: Recorder, inode: Inode) -> bytes:
        disk = recorder.disk
        for operation in recorder.operations:
            disk = disk.after(operation)
        return disk.files[inode].durable


def _os_error(name: str) -> OSError:
    number: int = getattr(errno, name)
    return OSError(number, os.strerror(number))


def _put_back(path: str, content: bytes) -> None:
    descriptor = Real.open_descriptor(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        Real.ftruncate(descriptor, 0)
        done = 0
        while done < len(content):
            done += Real.pwrite(descriptor, content[done:], done)
    finally:
        os.close(descriptor)
