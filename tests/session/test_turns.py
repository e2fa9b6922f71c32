"""The turn grammar as a table, the closers of an interrupted turn (CL-1 to CL-7), LV-2."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.json_values import events as odd_events
from tests.sequences import any_sequence, lawful_sequence
from tests.shapes import event_lines
from torntail.session import (
    SessionEvent,
    TurnGrammar,
    TurnTracker,
    encode_event,
    interrupted_turn_closers,
    parse_event,
    same_json,
    turn_grammar_problem,
)
from torntail.session.turns import EVENT_KINDS, TRANSITIONS, Effect, State

# --- a short way to write events ----------------------------------------------------------------

Part = tuple[str, Any]


def turn_start(turn: int = 1) -> Part:
    return "turn/start", {"turn": turn}


def turn_end(turn: int = 1, kind: str = "completed") -> Part:
    return "turn/end", {"turn": turn, "reason": {"kind": kind}}


def step_start(step: int = 1, turn: int = 1) -> Part:
    return "step/start", {"turn": turn, "step": step}


def step_end(step: int = 1, turn: int = 1) -> Part:
    return "step/end", {"turn": turn, "step": step}


def message(*calls: Any, step: int = 1, turn: int = 1) -> Part:
    blocks = [{"type": "tool-call", "id": call, "name": "f", "arguments": "{}"} for call in calls]
    return "assistant/message", {"turn": turn, "step": step, "content": blocks}


def call(call_id: Any, step: int = 1, turn: int = 1) -> Part:
    return "tool/call", {"turn": turn, "step": step, "callId": call_id, "name": "f"}


def result(call_id: Any, step: int = 1, turn: int = 1, **others: Any) -> Part:
    return "tool/result", {"turn": turn, "step": step, "callId": call_id, **others}


def user(content: Any = ()) -> Part:
    return "user/message", {"content": list(content), "source": {"kind": "user"}}


def sequence(*parts: Part, first: int = 0) -> list[SessionEvent]:
    return [
        SessionEvent(kind, first + place, 100 + place, data)
        for place, (kind, data) in enumerate(parts)
    ]


def shaped(shape: str) -> list[SessionEvent]:
    return [parse_event(line) for line in event_lines(shape)]


def summary(closers: list[SessionEvent]) -> list[tuple[Any, ...]]:
    """Closers in short: result of (id, step, sources), step, turn."""
    short: list[tuple[Any, ...]] = []
    for closer in closers:
        match closer.type:
            case "tool/result":
                step = closer.data.get("step")
                short.append(("result", closer.data["callId"], step, closer.source_event_seqs))
            case "step/end":
                short.append(("step", closer.data.get("step")))
            case kind:
                assert kind == "turn/end"
                short.append(("turn", closer.data.get("turn")))
    return short


# --- the closers table --------------------------------------------------------------------------

OPEN = (turn_start(), user(), step_start())
END: list[tuple[Any, ...]] = [("step", 1), ("turn", 1)]

CLOSERS: dict[str, tuple[tuple[Part, ...], list[tuple[Any, ...]]]] = {
    "empty log": ((), []),
    "closed turn": ((turn_start(), turn_end()), []),
    "closed aborted turn": ((turn_start(), turn_end(kind="aborted")), []),
    "closed interrupted turn (CL-7)": ((turn_start(), turn_end(kind="interrupted")), []),
    "message outside any turn": ((message("a"),), []),
    "user message outside any turn": ((user(),), []),
    "step without turn": ((step_start(),), []),
    "turn/end with a wrong number": ((*OPEN, message("a"), turn_end(9)), []),
    "turn/end without a start": ((turn_end(),), []),
    "open turn only": ((turn_start(),), [("turn", 1)]),
    "open step": ((turn_start(), step_start()), END),
    "step opened before its turn": ((step_start(4), turn_start()), [("turn", 1)]),
    "call without result": ((*OPEN, message("a")), [("result", "a", 1, None), *END]),
    "same id twice in one message": ((*OPEN, message("a", "a")), [("result", "a", 1, None), *END]),
    "same id twice, one result": ((*OPEN, message("a", "a"), result("a")), END),
    "id asked for again after its result": (
        (*OPEN, message("a"), result("a"), message("a")),
        [("result", "a", 1, None), *END],
    ),
    "result before its message": (
        (*OPEN, result("a"), message("a")),
        [("result", "a", 1, None), *END],
    ),
    "two messages in one step": (
        (*OPEN, message("b"), message("a")),
        [("result", "b", 1, None), ("result", "a", 1, None), *END],
    ),
    "a, b, c with b answered": (
        (*OPEN, message("a", "b", "c"), result("b")),
        [("result", "a", 1, None), ("result", "c", 1, None), *END],
    ),
    "tool/call in another order": (
        (*OPEN, message("a", "b"), call("b"), call("a")),
        [("result", "a", 1, [5]), ("result", "b", 1, [4]), *END],
    ),
    "tool/call twice": (
        (*OPEN, message("a"), call("a"), call("a")),
        [("result", "a", 1, [5]), *END],
    ),
    "tool/call before its message": (
        (*OPEN, call("a"), message("a")),
        [("result", "a", 1, None), *END],
    ),
    "orphan tool/call": ((*OPEN, call("a")), END),
    "asked for again after tool/call: the seq is forgotten, the place kept": (
        (*OPEN, message("a", "b"), call("a"), message("a", step=3)),
        [("result", "a", 3, None), ("result", "b", 1, None), *END],
    ),
    "step of the message, step of the end": (
        (turn_start(), step_start(5), message("a", step=1)),
        [("result", "a", 1, None), ("step", 5), ("turn", 1)],
    ),
    "call left in a closed step": (
        (*OPEN, message("a"), step_end(), step_start(2)),
        [("step", 2), ("turn", 1)],
    ),
    "step/end then crash with an unanswered call": (
        (*OPEN, message("a"), step_end()),
        [("turn", 1)],
    ),
    "result that carries another turn and step": (
        (*OPEN, message("a"), result("a", step=7, turn=9)),
        END,
    ),
    "turn/start twice": ((turn_start(1), turn_start(2)), [("turn", 2)]),
    "turn/start over an open step with a call": (
        (*OPEN, message("a"), turn_start(2)),
        [("turn", 2)],
    ),
    "step/end with a wrong number": ((*OPEN, message("a"), step_end(9)), [("turn", 1)]),
    "call block in a user message": (
        (*OPEN, user([{"type": "tool-call", "id": "a"}])),
        END,
    ),
    "call asked for in an open turn without a step": (
        (turn_start(), message("a")),
        [("result", "a", 1, None), ("turn", 1)],
    ),
    "data of another kind": (
        (("turn/start", None), ("step/start", 7), ("assistant/message", "x"), ("tool/result", [])),
        [("step", None), ("turn", None)],
    ),
}


@pytest.mark.parametrize(("parts", "expected"), CLOSERS.values(), ids=CLOSERS.keys())
def test_closers_table(parts: tuple[Part, ...], expected: list[tuple[Any, ...]]) -> None:
    assert summary(interrupted_turn_closers(sequence(*parts))) == expected


def test_closers_in_full() -> None:
    open_log = sequence(turn_start(4), step_start(2, 4), message("a", step=2, turn=4), call("a"))
    last = open_log[-1].time
    assert [closer.to_json() for closer in interrupted_turn_closers(open_log)] == [
        {
            "type": "tool/result",
            "seq": 4,
            "time": last,
            "data": {
                "turn": 4,
                "step": 2,
                "callId": "a",
                "content": [
                    {
                        "type": "text",
                        "text": "Tool call interrupted by a crash; no result was recorded.",
                    }
                ],
                "isError": True,
                "error": {"name": "InterruptedError", "code": "interrupted"},
            },
            "surfaceOp": "append",
            "sourceEventSeqs": [3],
        },
        {"type": "step/end", "seq": 5, "time": last, "data": {"turn": 4, "step": 2}},
        {
            "type": "turn/end",
            "seq": 6,
            "time": last,
            "data": {"turn": 4, "reason": {"kind": "interrupted"}},
        },
    ]


def test_seq_and_time_continue_from_the_last_event_whatever_its_index() -> None:
    events = [SessionEvent("turn/start", 3, 50, {"turn": 1}), SessionEvent("note", 10, 7.5, {})]
    (closer,) = interrupted_turn_closers(events)
    assert (closer.seq, closer.time) == (11, 7.5)


@given(any_sequence())
def test_closers_converge_whatever_the_log(events: list[SessionEvent]) -> None:
    closers = interrupted_turn_closers(events)
    for done in range(len(closers) + 1):
        assert interrupted_turn_closers(events + closers[:done]) == closers[done:]


@given(lawful_sequence())
def test_closers_converge_on_lawful_logs(events: list[SessionEvent]) -> None:
    closers = interrupted_turn_closers(events)
    for done in range(len(closers) + 1):
        assert interrupted_turn_closers(events + closers[:done]) == closers[done:]


@given(any_sequence())
def test_closers_can_be_written_and_end_the_turn(events: list[SessionEvent]) -> None:
    closers = interrupted_turn_closers(events)
    for closer in closers:
        assert same_json(parse_event(encode_event(closer)).to_json(), closer.to_json())
    tracker = TurnTracker()
    for event in events + closers:
        tracker.feed(event)
    assert tracker.state in (State.IDLE, State.LOOSE_STEP)
    if closers:
        assert (tracker.state, tracker.open_calls) == (State.IDLE, 0)


@settings(max_examples=50)
@given(st.lists(odd_events, max_size=6))
def test_closers_are_total(events: list[SessionEvent]) -> None:
    interrupted_turn_closers(events)
    turn_grammar_problem(events)


def test_tracker_does_not_change_what_it_is_asked() -> None:
    tracker = TurnTracker()
    for event in sequence(*OPEN, message("a", "b")):
        tracker.feed(event)
    assert tracker.closers() == tracker.closers()
    assert tracker.open_calls == 2


# --- the table ----------------------------------------------------------------------------------


def test_the_table_is_complete() -> None:
    assert set(TRANSITIONS) == {(state, kind) for state in State for kind in EVENT_KINDS}


def test_every_state_can_be_reached_and_left() -> None:
    reached = {transition.next_state for transition in TRANSITIONS.values()}
    assert reached == set(State)
    for state in State:
        assert any(TRANSITIONS[state, kind].next_state is not state for kind in EVENT_KINDS)


def test_lawful_moves_never_lead_to_a_step_without_a_turn() -> None:
    lawful = [transition for transition in TRANSITIONS.values() if transition.lawful]
    assert State.LOOSE_STEP not in {
        TRANSITIONS[state, kind].next_state
        for (state, kind) in TRANSITIONS
        if TRANSITIONS[state, kind].lawful and state is not State.LOOSE_STEP
    }
    assert {transition.effect for transition in lawful} == set(Effect)


# --- the live grammar (LV-2) --------------------------------------------------------------------


@given(lawful_sequence())
def test_what_an_agent_writes_is_lawful(events: list[SessionEvent]) -> None:
    assert turn_grammar_problem(events) is None


@given(lawful_sequence())
def test_what_a_repair_writes_is_lawful(events: list[SessionEvent]) -> None:
    assert turn_grammar_problem(events + interrupted_turn_closers(events)) is None


@pytest.mark.parametrize(
    "shape", ["T", "T T", "TS U TE", "TS U SS C C A:c1 K:c1 R:c1 SE TE", "U T"]
)
def test_lawful_shapes(shape: str) -> None:
    assert turn_grammar_problem(shaped(shape)) is None


IN_STEP = (turn_start(), step_start())
AFTER_CALL = (*IN_STEP, message("a"), call("a"))
BREACHES: dict[str, tuple[tuple[Part, ...], str]] = {
    "nested turn": ((turn_start(1), turn_start(2)), "turn/start is not allowed"),
    "turn inside a step": ((*IN_STEP, turn_start(2)), "turn/start is not allowed"),
    "nested step": ((*IN_STEP, step_start(2)), "step/start is not allowed"),
    "step outside a turn": ((step_start(),), "step/start is not allowed"),
    "turn/end inside a step": ((*IN_STEP, turn_end()), "turn/end is not allowed"),
    "turn/end outside a turn": ((turn_end(),), "turn/end is not allowed"),
    "step/end outside a step": ((turn_start(), step_end()), "step/end is not allowed"),
    "first turn is not 1": ((turn_start(2),), "expected turn 1"),
    "turn number skipped": ((turn_start(), turn_end(), turn_start(3)), "expected turn 2"),
    "turn number repeated": ((turn_start(), turn_end(), turn_start(1)), "expected turn 2"),
    "turn is not a number": ((("turn/start", {"turn": True}),), "expected turn 1"),
    "turn missing": ((("turn/start", None),), "expected turn 1"),
    "first step is not 1": ((turn_start(), step_start(2)), "expected step 1"),
    "step number skipped": ((*IN_STEP, step_end(), step_start(3)), "expected step 2"),
    "steps do not restart": (
        (*IN_STEP, step_end(), turn_end(), turn_start(2), step_start(2, 2)),
        "expected step 1",
    ),
    "turn/end of another turn": ((turn_start(), turn_end(2)), "names turn 2"),
    "step/start of another turn": ((turn_start(), step_start(1, 2)), "names turn 2"),
    "step/end of another step": ((*IN_STEP, step_end(2)), "names step 2"),
    "message of another step": ((*IN_STEP, message(step=2)), "names step 2"),
    "message of another turn": ((*IN_STEP, message(turn=2)), "names turn 2"),
    "message outside a step": ((turn_start(), message()), "assistant/message is not allowed"),
    "message outside a turn": ((message(),), "assistant/message is not allowed"),
    "chunk outside a step": (
        (turn_start(), ("assistant/chunk", {"turn": 1, "step": 1})),
        "assistant/chunk is not allowed",
    ),
    "chunk of another step": (
        (*IN_STEP, ("assistant/chunk", {"turn": 1, "step": 2})),
        "names step 2",
    ),
    "steering outside a turn": (
        (("steering/message", {"turn": 1}),),
        "steering/message is not allowed",
    ),
    "steering of another turn": (
        (turn_start(), ("steering/message", {"turn": 2})),
        "names turn 2",
    ),
    "call outside a step": ((turn_start(), call("a")), "tool/call is not allowed"),
    "call of another step": ((*IN_STEP, call("a", step=2)), "names step 2"),
    "result without a call": ((*IN_STEP, message("a"), result("a")), "without an earlier"),
    "result of a call in an earlier step": (
        (*AFTER_CALL, step_end(), step_start(2), result("a", step=2)),
        "without an earlier",
    ),
    "result of another call": ((*AFTER_CALL, result("b")), "without an earlier"),
    "result outside a step": ((*AFTER_CALL, step_end(), result("a")), "tool/result is not allowed"),
    "result of another step": ((*AFTER_CALL, result("a", step=2)), "names step 2"),
}


@pytest.mark.parametrize(("parts", "reason"), BREACHES.values(), ids=BREACHES.keys())
def test_a_breach_is_named_and_is_the_last_event(parts: tuple[Part, ...], reason: str) -> None:
    events = sequence(*parts)
    assert turn_grammar_problem(events[:-1]) is None
    problem = turn_grammar_problem(events)
    assert problem is not None
    assert problem.startswith(f"seq {len(events) - 1}: ")
    assert reason in problem


def test_an_interrupted_result_needs_no_call() -> None:
    error = {"name": "InterruptedError", "code": "interrupted"}
    events = sequence(*IN_STEP, message("a"), result("a", error=error))
    assert turn_grammar_problem(events) is None


def test_the_grammar_goes_on_from_loaded_events_as_they_are() -> None:
    grammar = TurnGrammar()
    for event in sequence(turn_start(7), step_start(3, 7), message("a", step=3, turn=7)):
        grammar.feed(event)
    assert grammar.state is State.STEP
    (end,) = sequence(step_end(3, 7))
    assert grammar.problem(end) is None
    grammar.feed(end)
    (following,) = sequence(step_start(4, 7))
    assert grammar.problem(following) is None
