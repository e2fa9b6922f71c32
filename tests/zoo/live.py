"""Live layers that each break one clause of LV: the reference layer with one thing done wrong.

`LIVE_ZOO` names the clause that catches each. Every class says in its first line what is wrong.
"""

from __future__ import annotations

from typing import Any, Final

from tests.runtime.reference_layer import ReferenceLayer, Waiting
from torntail.runtime import Session, claims, resume
from torntail.runtime.claims import Claim
from torntail.runtime.store_calls import StoreCalls
from torntail.runtime.write_behind import WriteBehind
from torntail.session import (
    SessionEvent,
    SessionHeader,
    TurnGrammar,
    derive_messages,
    turn_grammar_problem,
)
from torntail.session import vocabulary as words
from torntail.session.transcript import Message
from torntail.stores.contract import SessionNotFound, StoreError


class Layer(ReferenceLayer):
    """The reference layer, with sessions of another class."""

    session: type[Waiting] = Waiting

    def start(self, store: Any, session_id: str) -> Waiting:
        return self.changed(super().start(store, session_id))

    def resume(self, store: Any, session_id: str) -> Waiting:
        return self.changed(super().resume(store, session_id))

    def fork(self, store: Any, session_id: str, new_id: str, at: int | None = None) -> Waiting:
        return self.changed(super().fork(store, session_id, new_id, at))

    def changed(self, waiting: Waiting) -> Waiting:
        return self.session(waiting.session)


def write_behind(waiting: Waiting) -> WriteBehind:
    found = waiting.session._write_behind
    assert found is not None
    return found


# --- LV-1 ---------------------------------------------------------------------------------------


class WaitsAtTurnEnd(Layer):
    """An append of turn/end waits until it is stored."""

    class session(Waiting):
        def append(self, event_type: str, data: Any, surface_op: Any = None) -> SessionEvent:
            event = super().append(event_type, data, surface_op)
            if event_type == "turn/end":
                self.flush()
            return event


class DrainsAtFlushOnly(Layer):
    """A turn that has ended stays in memory until somebody flushes."""

    def changed(self, waiting: Waiting) -> Waiting:
        behind = write_behind(waiting)
        took = behind.took
        behind.took = lambda size_bytes, *, turn_ended: took(size_bytes, turn_ended=False)  # type: ignore[method-assign]
        return waiting


class ClosesWithoutDraining(Layer):
    """Close ends the session and leaves its buffer in memory."""

    class session(Waiting):
        def close(self) -> None:
            self.session._closing = True
            write_behind(self).claim.free()


class FlushesLater(Layer):
    """A flush stores nothing; what it should have stored goes with the next turn/end or close."""

    class session(Waiting):
        def flush(self) -> None:
            return


class SwallowsAFailure(Layer):
    """A flush that failed is silent."""

    class session(Waiting):
        def flush(self) -> None:
            try:
                super().flush()
            except StoreError:
                pass


class ForgetsWhatFailed(Layer):
    """What a failed drain held is taken for stored."""

    class session(Waiting):
        def flush(self) -> None:
            behind = write_behind(self)
            length = len(self.session)
            try:
                super().flush()
            except StoreError:
                behind._advance(length)
                raise


class NeverReopens(Layer):
    """After a failure the append is made again, and nothing is asked of storage."""

    def changed(self, waiting: Waiting) -> Waiting:
        behind = write_behind(waiting)

        def settle() -> None:
            behind._in_doubt = False

        behind._settle = settle  # type: ignore[method-assign]
        return waiting


class LoadsAfterAFailure(Layer):
    """After a failure the session is loaded, which closes the turn that goes on."""

    def changed(self, waiting: Waiting) -> Waiting:
        behind = write_behind(waiting)
        settle = behind._settle

        def load_and_settle() -> None:
            try:
                behind.calls.call("load", waiting.session.id)
            except SessionNotFound:
                pass
            settle()

        behind._settle = load_and_settle  # type: ignore[method-assign]
        return waiting


class TrustsWhatIsStored(Layer):
    """What storage holds under a seq of the buffer is taken for its own unseen."""

    def changed(self, waiting: Waiting) -> Waiting:
        write_behind(waiting)._compare = lambda stored: None  # type: ignore[method-assign]
        return waiting


class SharesItsEvents(Layer):
    """Subscribers and callers are given the events of the log itself."""

    class session(Waiting):
        def __init__(self, session: Session) -> None:
            super().__init__(session)
            self._kept = session.events()
            self._told: list[Any] = []

        def append(self, event_type: str, data: Any, surface_op: Any = None) -> SessionEvent:
            event = super().append(event_type, data, surface_op)
            self._kept.append(event)
            for function in self._told:
                function(event)
            return event

        def events(self) -> list[SessionEvent]:
            return list(self._kept)

        def subscribe(self, function: Any) -> object:
            self._told.append(function)
            return None


class TellsBeforeTheLog(Layer):
    """Subscribers are told of an event before it is in the log."""

    class session(Waiting):
        def __init__(self, session: Session) -> None:
            super().__init__(session)
            self._told: list[Any] = []

        def append(self, event_type: str, data: Any, surface_op: Any = None) -> SessionEvent:
            for function in self._told:
                told = {"content": [{"type": "text", "text": ""}]}
                function(SessionEvent(event_type, len(self.session), 1, told))
            return super().append(event_type, data, surface_op)

        def subscribe(self, function: Any) -> object:
            self._told.append(function)
            return None


# --- LV-2 ---------------------------------------------------------------------------------------


class Blind(TurnGrammar):
    """A grammar that refuses nothing that `blind_to` names."""

    blind_to: tuple[str, ...] = ("",)

    def problem(self, event: SessionEvent) -> str | None:
        problem = super().problem(event)
        if problem is not None and any(one in problem for one in self.blind_to):
            return None
        return problem


def blind_to(waiting: Waiting, *words: str) -> Waiting:
    grammar = Blind()
    grammar.blind_to = words
    for event in waiting.events():
        grammar.feed(event)
    waiting.session._grammar = grammar
    return waiting


class AcceptsAnything(Layer):
    """Events of any type are accepted anywhere."""

    def changed(self, waiting: Waiting) -> Waiting:
        return blind_to(waiting, "")


class LooksAtNoNumbers(Layer):
    """Turns and steps may carry any number."""

    def changed(self, waiting: Waiting) -> Waiting:
        return blind_to(waiting, "expected", "names")


class TakesResultsWithoutCalls(Layer):
    """A result needs no call."""

    def changed(self, waiting: Waiting) -> Waiting:
        return blind_to(waiting, "without an earlier tool/call")


class RefusesOtherTypes(Layer):
    """A type that is not in the vocabulary is refused."""

    class session(Waiting):
        def append(self, event_type: str, data: Any, surface_op: Any = None) -> SessionEvent:
            if event_type not in words.EVENT_TYPES:
                raise ValueError(f"unknown type {event_type!r}")
            return super().append(event_type, data, surface_op)


class RefusesLoadedLogs(Layer):
    """A stored log that breaks the grammar cannot be resumed."""

    def changed(self, waiting: Waiting) -> Waiting:
        problem = turn_grammar_problem(waiting.events())
        if problem is not None:
            waiting.close()
            raise ValueError(problem)
        return waiting


# --- LV-3 ---------------------------------------------------------------------------------------


class BeginsAgainAtTurnOne(Layer):
    """A resumed session counts its turns from 1."""

    def resume(self, store: Any, session_id: str) -> Waiting:
        waiting = super().resume(store, session_id)
        waiting.session._grammar = TurnGrammar()
        return waiting


class AppendsItsSeedAgain(Layer):
    """What was loaded is taken for new, and drained once more."""

    def resume(self, store: Any, session_id: str) -> Waiting:
        waiting = super().resume(store, session_id)
        write_behind(waiting).saved = 0
        return waiting


class ResumesWithoutRepair(Layer):
    """An interrupted turn is left open when its session is resumed."""

    def resume(self, store: Any, session_id: str) -> Waiting:
        if store is None:
            return super().resume(store, session_id)
        Claim(store, session_id).free()
        found = store.inspect(session_id)
        stored = found.events[: len(found.events) - len(found.repair.closers)]
        if not found.repair.closers:
            return super().resume(store, session_id)
        claim = Claim(store, session_id)
        calls = StoreCalls(store)
        return Waiting(Session(found.header, stored, calls=calls, claim=claim, created=True))


class ResumesWhatIsRunning(Layer):
    """A running session is resumed, its turn closed under its feet."""

    def resume(self, store: Any, session_id: str) -> Waiting:
        if store is not None:
            claims._claims.pop((id(store), session_id), None)
        return super().resume(store, session_id)


class NeverFreesItsId(Layer):
    """A session that was closed counts as running for ever."""

    class session(Waiting):
        kept: list[Claim] = []  # noqa: RUF012

        def __init__(self, session: Session) -> None:
            super().__init__(session)
            claim = write_behind(self).claim
            self.kept.append(claim)
            if session.turn == 0:
                claim.free = lambda: None  # type: ignore[method-assign]


class ResumesNothing(Layer):
    """Without a store an empty session is resumed."""

    def resume(self, store: Any, session_id: str) -> Waiting:
        if store is None:
            return Waiting(Session(SessionHeader(session_id, 1)))
        return super().resume(store, session_id)


# --- LV-4 ---------------------------------------------------------------------------------------


def forked(store: Any, source: str, header: SessionHeader, events: list[SessionEvent]) -> Waiting:
    store.create(header)
    store.append(header.id, events)
    return Waiting(resume(store, header.id).wait())


class LoadsItsSource(Layer):
    """A fork loads its source, which closes the turn that is open there."""

    def fork(self, store: Any, session_id: str, new_id: str, at: int | None = None) -> Waiting:
        store.load(session_id)
        return super().fork(store, session_id, new_id, at)


class CountsTheClosers(Layer):
    """A fork's seedLength counts the closers, too."""

    def fork(self, store: Any, session_id: str, new_id: str, at: int | None = None) -> Waiting:
        found = store.inspect(session_id)
        if at is not None or not found.repair.closers:
            return super().fork(store, session_id, new_id, at)
        events = found.events
        header = SessionHeader(new_id, 1, None, session_id, len(events))
        return forked(store, session_id, header, events)


class ForgetsItsParent(Layer):
    """A fork's header does not name the source."""

    def fork(self, store: Any, session_id: str, new_id: str, at: int | None = None) -> Waiting:
        found = store.inspect(session_id)
        stored = found.events[: len(found.events) - len(found.repair.closers)][:at]
        header = SessionHeader(new_id, 1, None, None, len(stored))
        return forked(store, session_id, header, stored)


class AnnouncesTooEarly(Layer):
    """A fork is given back before it is stored."""

    def fork(self, store: Any, session_id: str, new_id: str, at: int | None = None) -> Waiting:
        try:
            return super().fork(store, session_id, new_id, at)
        except StoreError:
            found = store.inspect(session_id)
            header = SessionHeader(new_id, 1, None, session_id, len(found.events))
            return Waiting(Session(header, found.events))


class CopiesTheBuffer(Layer):
    """A fork takes what its source holds in memory only."""

    def __init__(self) -> None:
        self._sources: dict[tuple[int, str], Waiting] = {}

    def start(self, store: Any, session_id: str) -> Waiting:
        waiting = super().start(store, session_id)
        self._sources[id(store), session_id] = waiting
        return waiting

    def fork(self, store: Any, session_id: str, new_id: str, at: int | None = None) -> Waiting:
        source = self._sources.get((id(store), session_id))
        if source is None:
            return super().fork(store, session_id, new_id, at)
        events = source.events()
        header = SessionHeader(new_id, 1, None, session_id, len(events))
        return forked(store, session_id, header, events)


# --- LV-5 ---------------------------------------------------------------------------------------


class IgnoresCompactions(Layer):
    """A message that replaces others is put behind them."""

    class session(Waiting):
        def derive_messages(self) -> list[Message]:
            return derive_messages(
                SessionEvent(one.type, one.seq, one.time, one.data, one.surface_op and "append")
                for one in self.events()
            )


class RemembersItsHistory(Layer):
    """The history is derived once in ten events, and shown as it was in between."""

    class session(Waiting):
        def __init__(self, session: Session) -> None:
            super().__init__(session)
            self._shown: list[Message] = []
            self._at = -10

        def derive_messages(self) -> list[Message]:
            if len(self.session) >= self._at + 10:
                self._at = len(self.session)
                self._shown = super().derive_messages()
            return [{**message, "content": list(message["content"])} for message in self._shown]


class SharesItsHistory(Layer):
    """The messages handed out are the session's own."""

    class session(Waiting):
        def derive_messages(self) -> list[Message]:
            return self.session.derive_messages(private=False)


class ShowsChunks(Layer):
    """A piece of the stream counts as a message."""

    class session(Waiting):
        def derive_messages(self) -> list[Message]:
            events = [
                SessionEvent(
                    "assistant/message",
                    one.seq,
                    one.time,
                    {"content": [{"type": "text", "text": one.data["chunk"]["text"]}]},
                    "append",
                )
                if one.type == "assistant/chunk"
                else one
                for one in self.events()
            ]
            return derive_messages(events)


class ReplacesAnything(Layer):
    """A compaction of a range that is not on the surface is accepted."""

    def changed(self, waiting: Waiting) -> Waiting:
        waiting.session._check_surface = lambda event: None  # type: ignore[method-assign]
        return waiting


LIVE_ZOO: Final[dict[type[Layer], str]] = {
    WaitsAtTurnEnd: "LV-1",
    DrainsAtFlushOnly: "LV-1",
    ClosesWithoutDraining: "LV-1",
    FlushesLater: "LV-1",
    SwallowsAFailure: "LV-1",
    ForgetsWhatFailed: "LV-1",
    NeverReopens: "LV-1",
    LoadsAfterAFailure: "LV-1",
    TrustsWhatIsStored: "LV-1",
    SharesItsEvents: "LV-1",
    TellsBeforeTheLog: "LV-1",
    AcceptsAnything: "LV-2",
    LooksAtNoNumbers: "LV-2",
    TakesResultsWithoutCalls: "LV-2",
    RefusesOtherTypes: "LV-2",
    RefusesLoadedLogs: "LV-2",
    BeginsAgainAtTurnOne: "LV-3",
    AppendsItsSeedAgain: "LV-3",
    ResumesWithoutRepair: "LV-3",
    ResumesWhatIsRunning: "LV-3",
    NeverFreesItsId: "LV-3",
    ResumesNothing: "LV-3",
    LoadsItsSource: "LV-4",
    CountsTheClosers: "LV-4",
    ForgetsItsParent: "LV-4",
    AnnouncesTooEarly: "LV-4",
    CopiesTheBuffer: "LV-4",
    IgnoresCompactions: "LV-5",
    RemembersItsHistory: "LV-5",
    SharesItsHistory: "LV-5",
    ShowsChunks: "LV-5",
    ReplacesAnything: "LV-5",
}
"""The broken layers, each with the clause that catches it."""
