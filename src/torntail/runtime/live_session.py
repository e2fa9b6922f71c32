"""The live session: an append-only log of typed events, the single source of truth.

Decides what may be appended (LV-2), what is told to whom, and how the message history grows with
the log (LV-5). The log is kept as encoded lines, so that nothing handed out or taken in is shared
with it. When and how it is stored is for `write_behind`; where a session comes from, for `opening`.
"""

from __future__ import annotations

import copy
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Final, Self

from torntail.runtime.claims import Claim
from torntail.runtime.errors import SessionClosed, TurnGrammarBroken
from torntail.runtime.store_calls import StoreCalls
from torntail.runtime.subscribers import Subscribers
from torntail.runtime.work import Work, begin, done
from torntail.runtime.write_behind import WriteBehind, WritePolicy
from torntail.session import (
    MessageHistory,
    NotJson,
    SessionEvent,
    SessionHeader,
    TranscriptError,
    TurnGrammar,
    encode_and_copy,
    encode_event,
    encode_header,
    parse_event,
    parse_header,
)
from torntail.session.events import Json
from torntail.session.transcript import SURFACE_TYPES, Message
from torntail.stores.contract import NotSerializable, RepairReport

__all__ = ["Session", "close_all", "epoch_milliseconds"]


def epoch_milliseconds() -> int:
    """The time an event is stamped with, unless the session is given another clock."""
    return time.time_ns() // 1_000_000


class Session:
    """A running session; made by `start`, `resume` and `fork`. Use it from any thread or task.

    `repair` says what `resume` had to mend, None for a session that was not resumed. Leaving `with`
    or `async with` closes it.
    """

    def __init__(
        self,
        header: SessionHeader,
        events: Iterable[SessionEvent] = (),
        *,
        clock: Callable[[], int | float] = epoch_milliseconds,
        calls: StoreCalls | None = None,
        claim: Claim | None = None,
        policy: WritePolicy | None = None,
        created: bool = False,
        repair: RepairReport | None = None,
    ) -> None:
        self._header_line = encode_header(header)
        self._clock = clock
        self.repair: Final = repair
        # Reentrant: a builder or a clock may look at the session.
        self._lock = threading.RLock()
        self._lines: list[bytes] = []
        self._grammar = TurnGrammar()
        self._history = MessageHistory()
        # Seqs on the surface that the history has not been fed yet.
        self._underived: deque[int] = deque()
        self._subscribers = Subscribers(self._lock)
        self._closing = False
        for event in events:
            self._lines.append(encode_event(event))
            self._grammar.feed(event)
            if event.type in SURFACE_TYPES:
                self._underived.append(event.seq)
        self._write_behind: WriteBehind | None = None
        if calls is not None and claim is not None:
            self._write_behind = WriteBehind(
                header,
                self._lines,
                lock=self._lock,
                calls=calls,
                claim=claim,
                policy=policy if policy is not None else WritePolicy(),
                created=created,
            )
            # What is lost at the end of the process was never flushed; see `close`.
            weakref.finalize(self, self._write_behind.forgotten).atexit = False

    # --- what it is -----------------------------------------------------------------------------

    @property
    def id(self) -> str:
        """The session's id."""
        return self.header.id

    @property
    def header(self) -> SessionHeader:
        """The header, which is no part of the log and never changes."""
        return parse_header(self._header_line)

    def __len__(self) -> int:
        """How many events the log has, which is the next seq."""
        return len(self._lines)

    def events(self, start: int = 0, stop: int | None = None) -> list[SessionEvent]:
        """The events with seqs from `start` to before `stop`, private copies."""
        return [parse_event(line) for line in self._lines[start:stop]]

    @property
    def turn(self) -> int:
        """The number of the last turn, open or not; 0 before the first."""
        return self._grammar.turn

    @property
    def step(self) -> int:
        """The number of the last step of the last turn; 0 before its first."""
        return self._grammar.step

    @property
    def saved(self) -> int:
        """How many events storage has acknowledged; 0 without a store."""
        return 0 if self._write_behind is None else self._write_behind.saved

    @property
    def crowded(self) -> bool:
        """Whether so much waits to be stored that it is time to flush."""
        write_behind = self._write_behind
        if write_behind is None:
            return False
        return write_behind.unsaved_bytes * 2 > write_behind.policy.maximum_unsaved_bytes

    def derive_messages(self, *, private: bool = True) -> list[Message]:
        """The message history (LV-5), as a deep copy unless `private` is false.

        Costs what the events since the last call cost. A deep copy costs the whole history; without
        it the messages are the session's own, to be read and not to be changed.
        """
        with self._lock:
            self._derive()
            messages = self._history.messages()
        return copy.deepcopy(messages) if private else messages

    def _derive(self) -> None:
        while self._underived:
            # Off the list once it is fed: one that cannot be fed is told each time.
            self._history.feed(parse_event(self._lines[self._underived[0]]))
            self._underived.popleft()

    # --- appending ------------------------------------------------------------------------------

    def append(
        self,
        event_type: str,
        data: Json,
        *,
        surface_op: Json = None,
        source_event_seqs: Sequence[int] | None = None,
    ) -> SessionEvent:
        """Appends an event of any type, stamped with seq and time; never waits for I/O.

        Types that become messages are given the surface operation `append` where none is named.
        Gives the event as the log has it, a copy of the caller's own. Raises `TurnGrammarBroken`,
        `NotSerializable`, `TranscriptError` for a surface operation that cannot be applied,
        `BufferFull`, `SessionClosed`; then nothing was appended.
        """
        if surface_op is None and event_type in SURFACE_TYPES:
            surface_op = "append"
        with self._lock:
            event = SessionEvent(
                event_type,
                len(self._lines),
                self._clock(),
                data,
                surface_op,
                None if source_event_seqs is None else list(source_event_seqs),
            )
            event, tell = self._take(event)
        if tell:
            self._subscribers.tell()
        return event

    def add(self, build: Callable[..., SessionEvent], **members: Any) -> SessionEvent:
        """Appends what a builder of `torntail.session.vocabulary` makes of `members`.

        As `append`: `session.add(vocabulary.turn_start, turn=1)`.
        """
        with self._lock:
            seq, now = len(self._lines), self._clock()
            event = build(seq=seq, time=now, **members)
            if event.seq != seq:
                raise ValueError(f"the builder made seq {event.seq} of seq {seq}")
            event, tell = self._take(event)
        if tell:
            self._subscribers.tell()
        return event

    def _take(self, event: SessionEvent) -> tuple[SessionEvent, bool]:
        """Under the lock: into the log with it, if nothing speaks against it."""
        if self._closing:
            raise SessionClosed(self.id)
        try:
            line, event = encode_and_copy(event)
        except NotJson as error:
            raise NotSerializable(self.id, event.type, event.seq, str(error)) from None
        problem = self._grammar.problem(event)
        if problem is not None:
            raise TurnGrammarBroken(self.id, event.type, event.seq, problem)
        if event.surface_op is not None:
            self._check_surface(event)
        write_behind = self._write_behind
        if write_behind is not None:
            write_behind.check_room(len(line))
        self._lines.append(line)
        self._grammar.feed(event)
        if event.surface_op is not None:
            self._underived.append(event.seq)
        if write_behind is not None:
            write_behind.took(len(line), turn_ended=event.type == "turn/end")
        return event, self._subscribers.note(line)

    def _check_surface(self, event: SessionEvent) -> None:
        if event.type not in SURFACE_TYPES:
            raise TranscriptError(event.seq, f"{event.type} cannot stand on the surface")
        if event.surface_op != "append":
            self._derive()
            problem = self._history.problem(event)
            if problem is not None:
                raise TranscriptError(event.seq, problem)

    def subscribe(self, function: Callable[[SessionEvent], object]) -> Callable[[], None]:
        """Tells `function` each event from now on, once the log has it; gives what ends that.

        In order and one at a time, in the thread of an append. What it raises is logged.
        """
        return self._subscribers.add(function)

    # --- storing --------------------------------------------------------------------------------

    def flush(self) -> Work[None]:
        """Stores what is in the log now: `await` it, or `wait()` for it.

        Raises what the store raises; the events then stay in order for the next flush. Raises
        `StorageDiffers` where storage holds something else under one of their seqs. Without a store
        there is nothing to do.
        """
        if self._write_behind is None:
            return done(None)
        return Work(self._write_behind.flush(), self._write_behind.calls.loop)

    def checkpoint(self) -> Work[None]:
        """As `flush`, where the policy asks for checkpoints; else does nothing."""
        if self._write_behind is None or not self._write_behind.policy.checkpoints:
            return done(None)
        return self.flush()

    def close(self) -> Work[None]:
        """Flushes and ends the session; appends are refused from here on.

        An open turn stays open: the next load closes it. Where the flush fails, the session keeps
        its events and `close` may be tried again; if earlier drains had failed as well, all of it
        comes as an `ExceptionGroup`. The store stays open: it is the caller's.
        """
        with self._lock:
            self._closing = True
        write_behind = self._write_behind
        if write_behind is None:
            return done(None)
        closed: Future[None] = Future()
        closed.set_running_or_notify_cancel()

        def finish(flushed: Future[None]) -> None:
            error = flushed.exception()
            if error is None:
                write_behind.claim.free()
                closed.set_result(None)
            elif write_behind.failures:
                errors = [*write_behind.failures, error]
                told = f"session {self.id!r} could not be stored"
                closed.set_exception(BaseExceptionGroup(told, errors))
            else:
                closed.set_exception(error)

        write_behind.flush().add_done_callback(finish)
        return Work(closed, write_behind.calls.loop)

    def abandon(self) -> int:
        """Ends the session without storing what waits; gives the number of events given up.

        For a session that cannot be stored any more, as after `StorageDiffers`: its id is free, and
        what storage holds can be resumed. A drain that is under way may still store its events.
        """
        with self._lock:
            self._closing = True
            return 0 if self._write_behind is None else self._write_behind.abandon()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close().wait()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()


def close_all(sessions: Iterable[Session]) -> Work[None]:
    """Closes each of the sessions, whatever becomes of the others.

    Raises an `ExceptionGroup` of everything that failed.
    """
    works = [session.close() for session in sessions]

    def wait_for_all() -> None:
        failures: list[BaseException] = []
        for work in works:
            try:
                work.wait()
            except BaseException as error:
                failures.append(error)
        if failures:
            raise BaseExceptionGroup("sessions could not be stored", failures)

    loop = next((work.loop for work in works if work.loop is not None), None)
    return begin(wait_for_all, "torntail close", loop)
