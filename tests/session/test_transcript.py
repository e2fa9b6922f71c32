"""The derived history (LV-5), the mending view, and what a provider refuses (CR-9)."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given

from tests.field_reports import CASES, Case
from tests.sequences import any_sequence, lawful_sequence
from tests.shapes import SYNTHETIC_TEXT, event_lines
from torntail.session import (
    SessionEvent,
    TranscriptError,
    derive_messages,
    interrupted_turn_closers,
    parse_event,
    provider_messages,
    scan_log,
    transcript_problems,
)
from torntail.session import vocabulary as words
from torntail.session.transcript import mend_messages

Message = dict[str, Any]


def shaped(shape: str) -> list[SessionEvent]:
    return [parse_event(line) for line in event_lines(shape)]


def user(*content: Any) -> Message:
    return {"role": "user", "content": list(content)}


def assistant(*content: Any) -> Message:
    return {"role": "assistant", "content": list(content)}


def call(call_id: Any) -> dict[str, Any]:
    return {"type": "tool-call", "id": call_id, "name": "read", "arguments": "{}"}


def result(call_id: Any, text: str = "done", *, is_error: bool = False) -> dict[str, Any]:
    content = [words.text(text)]
    return {"type": "tool-result", "toolCallId": call_id, "content": content, "isError": is_error}


LOST = SYNTHETIC_TEXT
LOOK = words.text("please look")
WORKING = words.text("working")

# --- derivation ---------------------------------------------------------------------------------


def test_messages_in_order_of_the_log() -> None:
    assert derive_messages(shaped("TS U SS C C A:c1 K:c1 R:c1 SE SS A SE TE X:note")) == [
        user(LOOK),
        assistant(WORKING, call("c1")),
        user(result("c1")),
        assistant(WORKING),
    ]


def test_context_and_steering_are_marked() -> None:
    plugin: words.MessageSource = {"kind": "plugin", "plugin": "p"}
    found = derive_messages(
        [
            words.context_message(seq=0, time=0, content=[words.text("a")], source=plugin),
            words.steering_message(seq=1, time=0, turn=1, content=[LOOK], source=words.USER),
        ]
    )
    assert found == [
        user(words.text('<context source="plugin">'), words.text("a"), words.text("</context>")),
        user(words.text('<steering source="user">'), LOOK, words.text("</steering>")),
    ]


def test_an_empty_assistant_message_is_left_out_and_an_empty_user_message_kept() -> None:
    events = [
        words.user_message(seq=0, time=0, content=[]),
        words.assistant_message(seq=1, time=0, turn=1, step=1, content=[]),
    ]
    assert derive_messages(events) == [user()]


def test_without_a_surface_operation_nothing_is_seen() -> None:
    events = [SessionEvent("user/message", 0, 0, {"content": [LOOK]})]
    assert derive_messages(events) == []
    assert derive_messages(shaped("TS SS C K:c1 SE TE X:anything")) == []


def test_the_history_is_a_deep_copy() -> None:
    events = shaped("U")
    before = copy.deepcopy(events)
    derive_messages(events)[0]["content"][0]["text"] = "changed"
    assert events == before


def summary(seq: int, start: Any, end: Any) -> SessionEvent:
    operation = {"op": "replace", "start": start, "end": end}
    data = {"content": [words.text(f"summary {seq}")], "source": words.USER}
    return SessionEvent("user/message", seq, 0, data, operation)


def said(messages: list[Message]) -> list[str]:
    return [message["content"][0]["text"] for message in messages]


def numbered(count: int) -> list[SessionEvent]:
    return [
        words.user_message(seq=seq, time=0, content=[words.text(str(seq))]) for seq in range(count)
    ]


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (0, 3, ["summary 4"]),
        (0, 1, ["summary 4", "2", "3"]),
        (1, 2, ["0", "summary 4", "3"]),
        (3, 3, ["0", "1", "2", "summary 4"]),
    ],
)
def test_replace_splices_the_inclusive_range(start: int, end: int, expected: list[str]) -> None:
    assert said(derive_messages([*numbered(4), summary(4, start, end)])) == expected


def test_a_summary_can_be_summarised() -> None:
    events = [*numbered(4), summary(4, 1, 2), summary(5, 0, 4)]
    assert said(derive_messages(events)) == ["summary 5", "3"]


def test_compaction_takes_a_call_and_its_result_away_together() -> None:
    events = shaped("TS U SS A:c1 K:c1 R:c1 SE TE")
    found = derive_messages([*events, summary(8, 3, 5)])
    assert found == [user(LOOK), user(words.text("summary 8"))]
    assert transcript_problems(found) == []


@pytest.mark.parametrize(
    ("start", "end"), [(2, 1), (0, 9), (9, 9), (-1, 0), ("0", 1), (None, 0), ([0], 1)]
)
def test_a_replace_that_cannot_be_applied_is_named(start: Any, end: Any) -> None:
    with pytest.raises(TranscriptError) as refusal:
        derive_messages([*numbered(3), summary(3, start, end)])
    assert refusal.value.seq == 3


def test_a_replaced_message_is_no_longer_on_the_surface() -> None:
    with pytest.raises(TranscriptError, match="not on the surface"):
        derive_messages([*numbered(3), summary(3, 0, 1), summary(4, 0, 2)])


@pytest.mark.parametrize("operation", ["prepend", 1, True, [], {}, {"op": "append"}])
def test_an_unknown_surface_operation_is_named(operation: Any) -> None:
    with pytest.raises(TranscriptError, match="neither append nor replace"):
        derive_messages([SessionEvent("user/message", 7, 0, {}, operation)])


# --- the mending view ---------------------------------------------------------------------------

MENDED: dict[str, tuple[list[Message], list[Message]]] = {
    "nothing to mend": (
        [user(LOOK), assistant(call("a")), user(result("a"))],
        [user(LOOK), assistant(call("a")), user(result("a"))],
    ),
    "call without result": (
        [assistant(call("a")), user(LOOK)],
        [assistant(call("a")), user(result("a", LOST, is_error=True)), user(LOOK)],
    ),
    "call at the end": (
        [assistant(call("a"))],
        [assistant(call("a")), user(result("a", LOST, is_error=True))],
    ),
    "result without call": ([user(LOOK), user(result("a"))], [user(LOOK)]),
    "result before its call": (
        [user(result("a")), assistant(call("a"))],
        [assistant(call("a")), user(result("a", LOST, is_error=True))],
    ),
    "second result": (
        [assistant(call("a")), user(result("a", "one")), user(result("a", "two"))],
        [assistant(call("a")), user(result("a", "one"))],
    ),
    "result further on": (
        [assistant(call("a")), user(LOOK), user(result("a"))],
        [assistant(call("a")), user(result("a")), user(LOOK)],
    ),
    "results in another order": (
        [assistant(call("a"), call("b")), user(result("b")), user(result("a"))],
        [assistant(call("a"), call("b")), user(result("a")), user(result("b"))],
    ),
    "id used again": (
        [
            assistant(call("a")),
            user(result("a", "one")),
            assistant(call("a")),
            user(result("a", "two")),
        ],
        [
            assistant(call("a")),
            user(result("a", "one")),
            assistant(call("a")),
            user(result("a", "two")),
        ],
    ),
    "id used again, first call unanswered": (
        [assistant(call("a")), assistant(call("a")), user(result("a", "two"))],
        [
            assistant(call("a")),
            user(result("a", LOST, is_error=True)),
            assistant(call("a")),
            user(result("a", "two")),
        ],
    ),
    "id twice in one message": (
        [assistant(call("a"), call("a")), user(result("a"))],
        [assistant(call("a")), user(result("a"))],
    ),
    "results packed into one message": (
        [assistant(call("a"), call("b")), user(result("a"), result("b"))],
        [assistant(call("a"), call("b")), user(result("a")), user(result("b"))],
    ),
    "result amid words": (
        [assistant(call("a")), user(LOOK, result("a"))],
        [assistant(call("a")), user(result("a")), user(LOOK)],
    ),
    "result without an id": ([user(result(None)), user(LOOK)], [user(LOOK)]),
    "result with an odd id": ([user(result(["a"])), user(result({}))], []),
    "call without an id": ([assistant(WORKING, call(None))], [assistant(WORKING)]),
    "only a call without an id": ([assistant(call(7))], []),
    "call of the user": ([user(LOOK, call("a"))], [user(LOOK)]),
    "result of the assistant": ([assistant(WORKING, result("a"))], [assistant(WORKING)]),
    "empty id": (
        [assistant(call("")), user(result(""))],
        [assistant(call("")), user(result(""))],
    ),
}


@pytest.mark.parametrize(("messages", "expected"), MENDED.values(), ids=MENDED.keys())
def test_mending(messages: list[Message], expected: list[Message]) -> None:
    before = copy.deepcopy(messages)
    assert mend_messages(messages) == expected
    assert messages == before
    assert transcript_problems(expected) == []
    assert mend_messages(expected) == expected
    valid_already = {"nothing to mend", "id used again", "empty id", "results in another order"}
    packed = {"results packed into one message"}
    name = next(name for name, case in MENDED.items() if case[0] is messages)
    assert bool(transcript_problems(messages)) == (name not in valid_already | packed)


@given(any_sequence(surface=True))
def test_the_provider_view_is_always_valid(events: list[SessionEvent]) -> None:
    view = provider_messages(events)
    assert transcript_problems(view) == []
    assert mend_messages(view) == view


@given(any_sequence(surface=True))
def test_words_are_never_lost_by_mending(events: list[SessionEvent]) -> None:
    def words_of(messages: list[Message]) -> list[Any]:
        return [
            block
            for message in messages
            for block in message["content"]
            if not (isinstance(block, dict) and str(block.get("type")).startswith("tool-"))
        ]

    assert words_of(provider_messages(events)) == words_of(derive_messages(events))


@given(lawful_sequence(answered=True))
def test_a_repaired_lawful_log_needs_no_mending(events: list[SessionEvent]) -> None:
    whole = events + interrupted_turn_closers(events)
    derived = derive_messages(whole)
    assert transcript_problems(derived) == []
    assert sorted(map(repr, provider_messages(whole))) == sorted(map(repr, derived))


@given(lawful_sequence())
def test_the_view_of_a_log_with_unanswered_calls_is_valid(events: list[SessionEvent]) -> None:
    whole = events + interrupted_turn_closers(events)
    assert transcript_problems(provider_messages(whole)) == []


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_view_of_every_field_report_is_valid(case: Case) -> None:
    events: list[SessionEvent] = []
    lines = [line + b"\n" for line in case.content.split(b"\n")[:-1]]
    scan_log(lines, events.append)
    whole = events + interrupted_turn_closers(events)
    assert transcript_problems(provider_messages(whole)) == []


# --- the checker --------------------------------------------------------------------------------

PROBLEMS: dict[str, tuple[list[Message], str]] = {
    "no result": ([assistant(call("a")), user(LOOK)], "message 1: call 'a' has no result"),
    "no result at the end": ([assistant(call("a"))], "end: call 'a' has no result"),
    "no call": ([user(result("a"))], "message 0: result for 'a' without its call"),
    "two results": (
        [assistant(call("a")), user(result("a")), user(result("a"))],
        "message 2: second result for call 'a'",
    ),
    "result too late": (
        [assistant(call("a")), user(LOOK), user(result("a"))],
        "message 2: result for 'a' without its call",
    ),
    "id twice": (
        [assistant(call("a"), call("a")), user(result("a"))],
        "message 0: call id 'a' is used twice",
    ),
    "amid words": (
        [assistant(call("a")), user(result("a"), LOOK)],
        "message 1: a result amid other content",
    ),
    "call of the user": ([user(call("a"))], "message 0: tool-call in a message of role user"),
    "result of the assistant": (
        [assistant(result("a"))],
        "message 0: tool-result in a message of role assistant",
    ),
    "call without an id": (
        [assistant(call(None))],
        "message 0: tool-call in a message of role assistant",
    ),
}


@pytest.mark.parametrize(("messages", "problem"), PROBLEMS.values(), ids=PROBLEMS.keys())
def test_problems(messages: list[Message], problem: str) -> None:
    assert problem in transcript_problems(messages)


def test_a_valid_history_has_no_problem() -> None:
    assert transcript_problems([]) == []
    assert transcript_problems(derive_messages(shaped("T Tt T"))) == []


def test_a_long_history_is_mended_in_linear_time() -> None:
    # Quadratic, this would take minutes: every call is unanswered.
    messages = [assistant(call(str(number))) for number in range(20_000)]
    assert len(mend_messages(messages)) == 40_000
