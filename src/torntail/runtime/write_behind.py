"""Write-behind: what a live session appended is drained to the store, in order, later (LV-1).

There is no queue beside the log: the buffer is the end of the log that storage has not acknowledged
yet, so it can neither lose an event nor reorder. One worker at a time drains, in a thread that
exists only while there is something to do: a flush is awaited, a turn has ended, a window runs.
A drain that fails keeps the buffer; the next one first asks storage what it holds.
"""

from __future__ import annotations

import _thread
import logging
import threading
import time
import traceback
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final

from torntail.runtime.claims import Claim
from torntail.runtime.errors import BufferFull, SessionClosed, StorageDiffers
from torntail.runtime.store_calls import StoreCalls
from torntail.session import SessionHeader, parse_event, same_json

__all__ = ["WriteBehind", "WritePolicy"]

_log: Final = logging.getLogger("torntail.runtime")

_MOST_FAILURES: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class WritePolicy:
    """When a session is drained besides at `flush`, at each `turn/end`, and at `close`.

    `window_seconds`: so long after the first event that waits (0.2 is a good one); None for never.
    `checkpoints`: whether `Session.checkpoint` drains. `maximum_unsaved_bytes`: how much may wait
    before `append` refuses; half of it makes the session `crowded`.
    """

    window_seconds: float | None = None
    checkpoints: bool = True
    maximum_unsaved_bytes: int = 64 * 2**20


class WriteBehind:
    """The way of one session's log to its store.

    `lock` guards the log, `lines`, and all that is said of it here; `saved` is how many lines
    storage has acknowledged. `created` says that the store knows the session already.
    """

    def __init__(
        self,
        header: SessionHeader,
        lines: list[bytes],
        *,
        lock: threading.RLock,
        calls: StoreCalls,
        claim: Claim,
        policy: WritePolicy,
        created: bool,
    ) -> None:
        self.claim = claim
        self.policy = policy
        self.calls = calls
        self.saved = len(lines)
        self.unsaved_bytes = 0
        self.failures: list[BaseException] = []
        self._header = header
        self._lines = lines
        self._changed = threading.Condition(lock)
        self._created = created
        self._in_doubt = False
        # A window that runs out does not try what has just failed; a flush or a turn/end does.
        self._failing = False
        self._refusal: BaseException | None = None
        self._abandoned = False
        self._requests: list[Future[None]] = []
        self._wanted = False
        self._due: float | None = None
        self._worker: threading.Thread | None = None

    # --- for the session, under its lock --------------------------------------------------------

    def check_room(self, size_bytes: int) -> None:
        """Raises `BufferFull` when so many more bytes would be too many."""
        maximum = self.policy.maximum_unsaved_bytes
        # What is larger than the whole buffer passes alone, or it never could.
        if self.unsaved_bytes and self.unsaved_bytes + size_bytes > maximum:
            raise BufferFull(self._header.id, self.unsaved_bytes, maximum)

    def took(self, size_bytes: int, *, turn_ended: bool) -> None:
        """A line was added to the log."""
        self.unsaved_bytes += size_bytes
        if turn_ended:
            self._want()
        elif self.policy.window_seconds is not None and self._due is None and not self._failing:
            self._due = time.monotonic() + self.policy.window_seconds
            self._wake()

    # --- for anybody ----------------------------------------------------------------------------

    def flush(self) -> Future[None]:
        """Done when all that is in the log now is stored, or when that has failed."""
        future: Future[None] = Future()
        future.set_running_or_notify_cancel()
        with self._changed:
            if self.saved == len(self._lines):
                future.set_result(None)
            else:
                self._requests.append(future)
                self._want()
        return future

    def forgotten(self) -> None:
        """The session is gone without having been closed: what waits is stored all the same.

        Its id is free when that has been tried; a failure is logged, for there is nobody to tell.
        """
        if self.saved < len(self._lines) and self._refusal is None:
            # Called by the collector of garbage, which may interrupt anything, the start of a
            # thread and the holding of a lock included: neither may happen in here.
            _thread.start_new_thread(self._store_what_waits, ())

    def _store_what_waits(self) -> None:
        with self._changed:
            if self.saved < len(self._lines) and not self._abandoned:
                self._want()

    def abandon(self) -> int:
        """Gives up what waits, says how many events that was, and frees the id."""
        with self._changed:
            given_up = len(self._lines) - self.saved
            self._abandoned = True
            requests, self._requests = self._requests, []
            self.claim.free()
        for request in requests:
            request.set_exception(SessionClosed(self._header.id))
        return given_up

    # --- the worker -----------------------------------------------------------------------------

    def _want(self) -> None:
        self._wanted = True
        self._wake()

    def _wake(self) -> None:
        # In a forked child the thread is gone, and only then not alive while it is noted.
        if self._worker is not None and self._worker.is_alive():
            self._changed.notify()
            return
        name = f"torntail session {self._header.id!r:.40}"
        # Not a daemon: the interpreter lets a drain that has begun come to its end.
        worker = threading.Thread(target=self._work, name=name)
        try:
            worker.start()
        except RuntimeError as error:
            # No thread is to be had: a drain that failed, like any other. The event is appended.
            requests, self._requests = self._requests, []
            self._wanted, self._due = False, None
            self._failed(error, requests)
        else:
            self._worker = worker

    def _work(self) -> None:
        while self._something_to_do():
            with self._changed:
                requests, self._requests = self._requests, []
                self._wanted, self._due = False, None
            try:
                self._drain()
            except BaseException as error:
                self._failed(error, requests)
            else:
                self._failing = False
                self.failures.clear()
                for request in requests:
                    request.set_result(None)
                del requests

    def _something_to_do(self) -> bool:
        """Waits until there is; False when the thread may end."""
        with self._changed:
            while not self._wanted:
                if self._due is None:
                    self._worker = None
                    return False
                remaining = self._due - time.monotonic()
                if remaining <= 0:
                    break
                self._changed.wait(remaining)
            return True

    def _failed(self, error: BaseException, requests: list[Future[None]]) -> None:
        self._failing = True
        if not requests:
            # Nobody awaits it. The buffer is kept, and the next flush tells if it fails again.
            _log.warning("session %r could not be stored yet: %s", self._header.id, error)
            # Without the batches that its frames hold, and not without end.
            traceback.clear_frames(error.__traceback__)
            self.failures = [*self.failures[1 - _MOST_FAILURES :], error]
        for request in requests:
            request.set_exception(error)

    def _drain(self) -> None:
        if self._abandoned:
            raise SessionClosed(self._header.id)
        if self._refusal is not None:
            raise self._refusal
        if not self._created:
            self.calls.call("create", self._header)
            self._created = True
        if self._in_doubt:
            try:
                self._settle()
            except StorageDiffers as error:
                # Two logs under one id do not become one again.
                self._refusal = error
                raise
        with self._changed:
            lines = self._lines[self.saved :]
        if not lines:
            return
        # Parsed anew: what the store is given is nobody else's.
        batch = [parse_event(line) for line in lines]
        try:
            self.calls.call("append", self._header.id, batch)
        except BaseException as error:
            self._in_doubt = True
            if getattr(error, "kind", None) == "exists":
                # Another session of this id: nothing of it may be taken for ours.
                self._refusal = error
            raise
        self._advance(self.saved + len(lines))

    def _advance(self, saved: int) -> None:
        with self._changed:
            self.unsaved_bytes -= sum(map(len, self._lines[self.saved : saved]))
            self.saved = saved

    # --- after a failure ------------------------------------------------------------------------

    def _settle(self) -> None:
        """Revives the writer and passes over what storage holds already with equal content."""
        if not self.calls.has("reopen"):
            self._in_doubt = False
            return
        session_id = self._header.id
        try:
            stored = self.calls.call("reopen", session_id)
        except Exception as error:
            if self.saved or getattr(error, "kind", None) != "not_found":
                raise
            # A first append that failed took the announcement with it.
            self.calls.call("create", self._header)
            stored = 0
        if stored < self.saved:
            reason = f"storage holds {stored} events where {self.saved} were acknowledged"
            raise StorageDiffers(session_id, stored, reason)
        if stored > self.saved:
            self._compare(stored)
            self._advance(stored)
        self._in_doubt = False

    def _compare(self, stored: int) -> None:
        session_id = self._header.id
        found = self.calls.call("inspect", session_id)
        if not same_json(found.header.to_json(), self._header.to_json()):
            raise StorageDiffers(session_id, 0, "storage holds another session of this id")
        for seq in range(self.saved, stored):
            if seq >= len(self._lines):
                raise StorageDiffers(session_id, seq, "storage holds an event never appended here")
            ours = parse_event(self._lines[seq])
            if not same_json(found.events[seq].to_json(), ours.to_json()):
                raise StorageDiffers(session_id, seq, "storage holds another event at this seq")
