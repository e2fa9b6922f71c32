"""What a sequence of events means: turns, steps, pending calls, and how an open turn is closed.

One table, `TRANSITIONS`, holds the grammar: for each state and kind of event the next state, the
effect on the pending calls, and whether a live session may write that event there (LV-2). The
closers (CL-1 to CL-7) follow the table for any log, lawful or not, since a load takes events as
they are; `TurnGrammar` adds the numbering and refuses what is not lawful. Documentation and diagram
are generated from the table. Does not cover: message history (`transcript`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from torntail.session.codec import encode_json
from torntail.session.events import Json, SessionEvent

__all__ = [
    "EVENT_KINDS",
    "INTERRUPTED_CALL_TEXT",
    "TRANSITIONS",
    "Effect",
    "State",
    "Transition",
    "TurnGrammar",
    "TurnTracker",
    "interrupted_turn_closers",
    "turn_grammar_problem",
]

INTERRUPTED_CALL_TEXT: Final = "Tool call interrupted by a crash; no result was recorded."
"""The text of a synthetic result (CL-5)."""


class State(StrEnum):
    """Where in a turn a log stands."""

    IDLE = "idle"
    TURN = "in turn"
    STEP = "in step"
    LOOSE_STEP = "in a step without a turn"


class Effect(StrEnum):
    """What an event does to the calls that wait for a result."""

    NONE = "none"
    FORGET_CALLS = "forget calls"
    ADD_CALLS = "add calls"
    NOTE_CALL = "note the call's seq"
    ANSWER_CALL = "answer a call"


@dataclass(frozen=True, slots=True)
class Transition:
    """One cell of the grammar: the next state, the effect, and whether it is lawful to write."""

    next_state: State
    effect: Effect
    lawful: bool


EVENT_KINDS: Final[tuple[str, ...]] = (
    "turn/start",
    "turn/end",
    "step/start",
    "step/end",
    "user/message",
    "steering/message",
    "assistant/chunk",
    "assistant/message",
    "tool/call",
    "tool/result",
    "other",
)
"""The columns of the grammar; every type not named here is `other`."""


def _row(state: State) -> dict[str, Transition]:
    in_turn = state in (State.TURN, State.STEP)
    in_step = state is State.STEP
    keep = Effect.NONE
    return {
        "turn/start": Transition(State.TURN, Effect.FORGET_CALLS, lawful=state is State.IDLE),
        "turn/end": Transition(State.IDLE, Effect.FORGET_CALLS, lawful=state is State.TURN),
        "step/start": Transition(
            State.STEP if in_turn else State.LOOSE_STEP, keep, lawful=state is State.TURN
        ),
        "step/end": Transition(
            State.TURN if in_turn else State.IDLE, Effect.FORGET_CALLS, lawful=in_step
        ),
        "user/message": Transition(state, keep, lawful=state is not State.LOOSE_STEP),
        "steering/message": Transition(state, keep, lawful=in_turn),
        "assistant/chunk": Transition(state, keep, lawful=in_step),
        "assistant/message": Transition(state, Effect.ADD_CALLS, lawful=in_step),
        "tool/call": Transition(state, Effect.NOTE_CALL, lawful=in_step),
        "tool/result": Transition(state, Effect.ANSWER_CALL, lawful=in_step),
        "other": Transition(state, keep, lawful=True),
    }


TRANSITIONS: Final[Mapping[tuple[State, str], Transition]] = {
    (state, kind): transition for state in State for kind, transition in _row(state).items()
}
"""The turn grammar: (state, kind of event) to what happens."""

# Types that change nothing in any state need no look at the table: most events are chunks.
_INERT: Final = frozenset(
    kind
    for kind in EVENT_KINDS
    if all(
        TRANSITIONS[state, kind].next_state is state
        and TRANSITIONS[state, kind].effect is Effect.NONE
        for state in State
    )
)
_MOVING: Final = frozenset(EVENT_KINDS) - _INERT
_IN_TURN: Final = frozenset({State.TURN, State.STEP})


@dataclass(slots=True)
class _Call:
    """A call that waits for its result."""

    call_id: Json
    step: dict[str, Json]
    logged_seq: int | None = None


@dataclass(slots=True)
class TurnTracker:
    """Follows a log event by event and knows, at each point, the closers it would need.

    `open_calls` is the number of calls without a result. Feeding is cheap and keeps no event but
    the last, so that a log of any length can be followed in bounded memory.
    """

    state: State = State.IDLE
    last: SessionEvent | None = None
    _turn: dict[str, Json] = field(default_factory=dict)
    _step: dict[str, Json] = field(default_factory=dict)
    _pending: dict[str | bytes, _Call] = field(default_factory=dict)

    @property
    def open_calls(self) -> int:
        """How many calls of the open turn have no result yet."""
        return len(self._pending)

    def feed(self, event: SessionEvent) -> None:
        """Takes the next event into account, lawful or not."""
        self.last = event
        if event.type not in _MOVING:
            return
        transition = TRANSITIONS[self.state, event.type]
        apply = _APPLY.get(transition.effect)
        if apply is not None:
            apply(self, event)
        if event.type == "turn/start":
            self._turn = _pick(event.data, "turn")
        elif event.type == "step/start":
            self._step = _pick(event.data, "step")
        self.state = transition.next_state

    def _forget_calls(self, event: SessionEvent) -> None:
        self._pending.clear()

    def _note_call(self, event: SessionEvent) -> None:
        call = self._pending.get(_key(_member(event.data, "callId")))
        if call is not None:
            call.logged_seq = event.seq

    def _answer_call(self, event: SessionEvent) -> None:
        self._pending.pop(_key(_member(event.data, "callId")), None)

    def _add_calls(self, event: SessionEvent) -> None:
        step = _pick(event.data, "step")
        content = _member(event.data, "content")
        for block in content if isinstance(content, list | tuple) else ():
            if _member(block, "type") == "tool-call" and "id" in block:
                # A dict keeps the first place of a key that is set again (CL-2).
                self._pending[_key(block["id"])] = _Call(block["id"], step)

    def closers(self) -> list[SessionEvent]:
        """The events that close the open turn (CL-4, CL-5); empty when no turn is open."""
        if self.last is None or self.state not in _IN_TURN:
            return []
        closers: list[SessionEvent] = []
        time = self.last.time

        def add(kind: str, data: dict[str, Json], *surface: Any) -> None:
            assert self.last is not None
            closers.append(
                SessionEvent(kind, self.last.seq + 1 + len(closers), time, data, *surface)
            )

        for call in self._pending.values():
            data: dict[str, Json] = {
                **self._turn,
                **call.step,
                "callId": call.call_id,
                "content": [{"type": "text", "text": INTERRUPTED_CALL_TEXT}],
                "isError": True,
                "error": {"name": "InterruptedError", "code": "interrupted"},
            }
            sources = None if call.logged_seq is None else [call.logged_seq]
            add("tool/result", data, "append", sources)
        if self.state is State.STEP:
            add("step/end", {**self._turn, **self._step})
        add("turn/end", {**self._turn, "reason": {"kind": "interrupted"}})
        return closers


# A table and not a match: naming members of an enumeration one by one for each event would be half
# of the cost of following a log.
_APPLY: Final[Mapping[Effect, Callable[[TurnTracker, SessionEvent], None]]] = {
    Effect.FORGET_CALLS: TurnTracker._forget_calls,
    Effect.ADD_CALLS: TurnTracker._add_calls,
    Effect.NOTE_CALL: TurnTracker._note_call,
    Effect.ANSWER_CALL: TurnTracker._answer_call,
}


def interrupted_turn_closers(events: Iterable[SessionEvent]) -> list[SessionEvent]:
    """The synthetic events that close the turn `events` leave open, if any (CL-1 to CL-7).

    Pure and idempotent: `closers(e + k[:i]) == k[i:]` for `k = closers(e)` and every `i`.
    """
    tracker = TurnTracker()
    for event in events:
        tracker.feed(event)
    return tracker.closers()


class TurnGrammar:
    """The grammar a live session keeps (LV-2): lawful places, contiguous numbers, answered calls.

    `problem(event)` says why the event may not come next, or None; `feed(event)` takes it. Loaded
    events are fed as they are: the grammar binds new ones.
    """

    def __init__(self) -> None:
        self._tracker = TurnTracker()
        self._turn = 0
        self._step = 0
        self._calls: set[str | bytes] = set()

    @property
    def state(self) -> State:
        """Where the log stands."""
        return self._tracker.state

    @property
    def turn(self) -> int:
        """The number of the last turn, open or not; 0 before the first."""
        return self._turn

    @property
    def step(self) -> int:
        """The number of the last step of the last turn; 0 before its first."""
        return self._step

    def problem(self, event: SessionEvent) -> str | None:
        """Why `event` may not be appended here, in one phrase; None when it may."""
        kind = event.type if event.type in EVENT_KINDS else "other"
        if not TRANSITIONS[self.state, kind].lawful:
            return f"{event.type} is not allowed {self.state.value}"
        turn, step = _member(event.data, "turn"), _member(event.data, "step")
        if kind == "turn/start" and not _is_number(turn, self._turn + 1):
            return f"expected turn {self._turn + 1}, got {turn!r}"
        if kind == "step/start" and not _is_number(step, self._step + 1):
            return f"expected step {self._step + 1}, got {step!r}"
        if kind in _TURN_BOUND and not _is_number(turn, self._turn):
            return f"{event.type} names turn {turn!r} inside turn {self._turn}"
        if kind in _STEP_BOUND and not _is_number(step, self._step):
            return f"{event.type} names step {step!r} inside step {self._step}"
        if kind == "tool/result" and _key(_member(event.data, "callId")) not in self._calls:
            error = _member(event.data, "error")
            if _member(error, "code") != "interrupted":
                return "tool/result without an earlier tool/call in its step"
        return None

    def feed(self, event: SessionEvent) -> None:
        """Takes `event` into account, lawful or not."""
        self._tracker.feed(event)
        if event.type == "turn/start":
            self._turn, self._step = _number(event.data, "turn", self._turn + 1), 0
        elif event.type == "step/start":
            self._step = _number(event.data, "step", self._step + 1)
            self._calls.clear()
        elif event.type == "tool/call":
            self._calls.add(_key(_member(event.data, "callId")))
        elif event.type in ("step/end", "turn/end"):
            self._calls.clear()


_STEP_BOUND: Final = frozenset(
    {"step/end", "assistant/chunk", "assistant/message", "tool/call", "tool/result"}
)
_TURN_BOUND: Final = _STEP_BOUND | {"turn/end", "step/start", "steering/message"}


def turn_grammar_problem(events: Iterable[SessionEvent]) -> str | None:
    """The first breach of the grammar in `events`, as `seq N: why`, or None."""
    grammar = TurnGrammar()
    for event in events:
        problem = grammar.problem(event)
        if problem is not None:
            return f"seq {event.seq}: {problem}"
        grammar.feed(event)
    return None


def _member(value: Json, key: str) -> Json:
    return value.get(key) if isinstance(value, dict) else None


def _pick(data: Json, key: str) -> dict[str, Json]:
    """`{key: data[key]}`, or nothing where the event does not say: closers then leave it out."""
    return {key: data[key]} if isinstance(data, dict) and key in data else {}


def _is_number(value: Json, expected: int) -> bool:
    """Whether a JSON value is that number; Python alone would take True for 1."""
    return not isinstance(value, bool) and bool(value == expected)


def _number(data: Json, key: str, otherwise: int) -> int:
    value = _member(data, key)
    return value if type(value) is int else otherwise


def _key(call_id: Json) -> str | bytes:
    """A dictionary key for a call id; ids are strings, but a log may hold any JSON value."""
    return call_id if isinstance(call_id, str) else encode_json(call_id)
