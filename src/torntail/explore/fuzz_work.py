"""Sessions at work, step by step: what the rules of the machine and the strategies of plans share.

Each step writes lawful events of one session into its buffer, as a live session does (LV-1), and a
flush appends the buffer as one batch. The bookkeeping knows what each session should hold by now,
so that seqs, turns and steps are right and closers are counted in. Decides how a step is written.
Does not decide which step comes next (`machine`, `strategies`) or what should come of it (`judge`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import msgspec

from torntail.explore.script import Log, Script
from torntail.judge.history import (
    MARK_KEY,
    Append,
    Create,
    Inspect,
    ListSessions,
    Load,
    Reopen,
    mark_of,
)
from torntail.session import SessionEvent, interrupted_turn_closers
from torntail.session.turns import State, TurnTracker

__all__ = ["MOST_SESSIONS", "Desk", "Note", "Work"]

MOST_SESSIONS: Final = 3
"""How many sessions one plan works on, but for those with odd ids."""


class Note(NamedTuple):
    """An event beside the turn grammar: its type, its data, and its surface operation."""

    type: str
    data: Any
    surface: Any = None


@dataclass(slots=True)
class Desk:
    """One session at work; `buffer` is written and not yet flushed.

    `touched`: the store object that owns it has created or loaded it. `waiting` are the calls of
    the open step that have no result.
    """

    log: Log
    store: int = 0
    buffer: list[SessionEvent] = field(default_factory=list)
    waiting: list[str] = field(default_factory=list)
    touched: bool = True
    tracker: TurnTracker = field(default_factory=TurnTracker)

    @property
    def stored(self) -> bool:
        """Whether anything of it was appended."""
        return bool(self.log.events)


class Work:
    """All the sessions of a plan; each method is a step and adds its operations to the script.

    A buffer is flushed when it holds `batch` events. `odd` is the odd id that was tried, if any.
    """

    def __init__(self, script: Script, *, batch: int = 1) -> None:
        self.script = script
        self.batch = batch
        self.desks: list[Desk] = []
        self.stores = 1
        self._calls = 0
        self.odd: str | None = None

    # --- sessions -------------------------------------------------------------------------------

    def create(self, cwd: str | None, *, store: int = 0) -> Desk:
        """A session is announced."""
        return self._begin(cwd=cwd, store=store)

    def create_odd(self, session: str) -> None:
        """A session with an odd id: announced, written once, loaded; a store may refuse it (RW-10).

        It is left alone after that, since nobody can tell whether it is there.
        """
        self.odd = session
        log = self.script.session("odd", create=False, id=session)
        events = tuple(log.write("TS U SS A SE TE"))
        for operation in (
            Create(header=log.header, probes=("RW-10",)),
            Append(session=session, events=events, probes=("RW-10",)),
            Load(session=session, probes=("RW-10",)),
        ):
            self.script.add(operation)

    def fork(self, source: Desk) -> Desk | None:
        """A child with the source's prefix, flushed before, and its closers (LV-4)."""
        self.flush(source)
        if not source.stored or len(self.desks) >= MOST_SESSIONS:
            return None
        prefix = list(source.log.events)
        child = self._begin(
            cwd=source.log.header.cwd,
            store=source.store,
            parent_session=source.log.id,
            seed_length=len(prefix),
        )
        child.log.turn = source.log.turn
        copied = [self._marked(event) for event in prefix]
        child.log.append([*copied, *self._closers(copied)])
        self._follow(child)
        return child

    def second_store(self) -> None:
        """From here on a second store object of the same process works on sessions of its own."""
        self.stores = 2

    def _begin(self, *, store: int, **fields: Any) -> Desk:
        log = self.script.session("abcdefgh"[len(self.desks)], create=False, **fields)
        self.script.add(Create(header=log.header, store=store))
        desk = Desk(log, store)
        self.desks.append(desk)
        return desk

    # --- steps of a session ---------------------------------------------------------------------

    def turn(self, desk: Desk, *, answered: bool = True) -> None:
        """The open turn ends, or one begins; with `answered`, waiting calls get their results."""
        self._arrive(desk)
        if desk.tracker.state is State.IDLE:
            self._write(desk, "TS U")
            return
        if answered:
            self._answer(desk, len(desk.waiting))
        self._write(desk, "SE TE" if desk.tracker.state is State.STEP else "TE")
        desk.waiting.clear()

    def step(self, desk: Desk, *, answered: bool = True) -> None:
        """The open step ends, or one begins."""
        self._arrive(desk)
        if desk.tracker.state is not State.STEP:
            self._enter_step(desk)
            return
        if answered:
            self._answer(desk, len(desk.waiting))
        self._write(desk, "SE")
        desk.waiting.clear()

    def message(self, desk: Desk, calls: int) -> None:
        """A message of the assistant, with so many tool calls at once.

        Calls that wait are answered before: a provider wants results directly after their message.
        """
        self._enter_step(desk)
        self._answer(desk, len(desk.waiting))
        names = [f"c{self._calls + index}" for index in range(calls)]
        self._calls += calls
        desk.waiting += names
        self._write(desk, "A:" + ",".join(names) if names else "A")

    def answer(self, desk: Desk, count: int, *, backwards: bool = False) -> None:
        """Up to `count` waiting calls are handed to their tools and answered."""
        self._arrive(desk)
        if backwards:
            desk.waiting.reverse()
        self._answer(desk, count)

    def chunks(self, desk: Desk, count: int) -> None:
        """Pieces of the stream; of three the last two are equal, but for seq."""
        self._enter_step(desk)
        events = desk.log.write(" ".join(["C"] * count))
        if count > 2:
            events[-1] = events[-2]
        self._put(desk, events)

    def note(self, desk: Desk, note: Note) -> None:
        """An event of another type, or with odd data."""
        self._arrive(desk)
        if note.type == "steering/message" and desk.tracker.state is State.IDLE:
            self._write(desk, "TS U")
        if note.surface is not None:
            self._answer(desk, len(desk.waiting))
        data = note.data
        if isinstance(data, dict):
            if note.type in _OF_A_TURN:
                data = {"turn": desk.log.turn, **data}
            event = desk.log.event(note.type, data)
        else:
            event = msgspec.structs.replace(desk.log.event(note.type), data=data)
        self._put(desk, [msgspec.structs.replace(event, surface_op=note.surface)])

    def flush(self, desk: Desk) -> None:
        """What is buffered is appended as one batch."""
        batch, desk.buffer = desk.buffer, []
        if batch:
            desk.log.events.extend(batch)
            self.script.add(
                Append(session=desk.log.id, events=tuple(batch), store=desk.store, probes=("RW-1",))
            )

    # --- the store ------------------------------------------------------------------------------

    def reopen(self) -> None:
        """All is flushed and closed, and the store is opened again."""
        for desk in self.desks:
            self.flush(desk)
        for store in range(self.stores):
            self.script.add(Reopen(store=store))
        for desk in self.desks:
            if desk.stored:
                desk.touched = False
            else:
                # Announced only, and gone with the process.
                self.script.add(Create(header=desk.log.header, store=desk.store))

    def load(self, desk: Desk) -> None:
        """Loads; an open turn is closed from here on."""
        self.flush(desk)
        if desk.stored:
            self._perform_load(desk)

    def look(self, desk: Desk | None, *, store: int = 0) -> None:
        """Inspects a session, or lists them all; by any store object, since it writes nothing."""
        capabilities = self.script.capabilities
        if desk is None and capabilities.lists:
            self.script.add(ListSessions(store=store, probes=("RW-9",)))
        elif desk is not None and desk.stored and capabilities.inspects:
            self.script.add(Inspect(session=desk.log.id, store=store, probes=("DM-8",)))

    def finish(self) -> None:
        """All buffers are flushed, as a close does."""
        for desk in self.desks:
            self.flush(desk)

    # --- writing --------------------------------------------------------------------------------

    def _arrive(self, desk: Desk) -> None:
        """Before the first event after a reopen: an append does what a load does (RW-2)."""
        if desk.touched:
            return
        if self.script.capabilities.repairs == "none":
            self._perform_load(desk)
            return
        desk.log.events.extend(self._closers(desk.log.events))
        desk.touched = True
        self._follow(desk)

    def _perform_load(self, desk: Desk) -> None:
        self.script.add(Load(session=desk.log.id, store=desk.store, probes=("RW-1",)))
        if self.script.capabilities.repairs == "load":
            desk.log.events.extend(self._closers(desk.log.events))
        desk.touched = True
        self._follow(desk)

    def _enter_step(self, desk: Desk) -> None:
        self._arrive(desk)
        if desk.tracker.state is State.IDLE:
            self._write(desk, "TS U SS")
        elif desk.tracker.state is State.TURN:
            self._write(desk, "SS")

    def _answer(self, desk: Desk, count: int) -> None:
        answered, desk.waiting = desk.waiting[:count], desk.waiting[count:]
        if answered:
            self._write(desk, " ".join(f"K:{name} R:{name}" for name in answered))

    def _write(self, desk: Desk, words: str) -> None:
        self._put(desk, desk.log.write(words))

    def _put(self, desk: Desk, events: Sequence[SessionEvent]) -> None:
        for event in events:
            seq = len(desk.log.events) + len(desk.buffer)
            numbered = msgspec.structs.replace(event, seq=seq)
            desk.tracker.feed(numbered)
            desk.buffer.append(numbered)
        if len(desk.buffer) >= self.batch:
            self.flush(desk)

    def _follow(self, desk: Desk) -> None:
        """Where the log stands, after events that were not written here."""
        desk.tracker = TurnTracker()
        for event in desk.log.events:
            desk.tracker.feed(event)
        if desk.tracker.state is State.IDLE:
            desk.waiting.clear()

    def _marked(self, event: SessionEvent) -> SessionEvent:
        """A copy with a mark of its own: by its mark a record is found in storage."""
        if mark_of(event) is None:
            return event
        return msgspec.structs.replace(event, data={**event.data, MARK_KEY: self.script.mark()})

    def _closers(self, events: Sequence[SessionEvent]) -> list[SessionEvent]:
        if self.script.capabilities.profile != "session":
            return []
        return interrupted_turn_closers(events)


_OF_A_TURN: Final = frozenset(
    {"steering/message", "compact/start", "compact/end", "hook/invoked", "hook/result"}
)
