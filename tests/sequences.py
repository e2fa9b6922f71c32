"""Sequences of events for properties: lawful ones, as an agent writes them, and any others."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from torntail.session import SessionEvent
from torntail.session import vocabulary as words

# --- any sequence at all ------------------------------------------------------------------------

_CALL_IDS = ["a", "b", "", "a", None, 7, ["a"], {"id": 1}, "\ud800"]

call_ids = st.sampled_from(_CALL_IDS)
_small = st.integers(0, 3)
_blocks = st.lists(
    st.one_of(
        st.builds(lambda name: {"type": "tool-call", "id": name, "name": "f"}, call_ids),
        st.builds(lambda name: {"type": "tool-result", "toolCallId": name}, call_ids),
        st.sampled_from([{"type": "text", "text": "x"}, {"type": "tool-call"}, {}, None, 7, "x"]),
    ),
    max_size=3,
)
_odd_data = st.sampled_from(
    [None, 0, "", [], {}, {"turn": None}, {"turn": 1.5, "step": True}, {"content": 1}, [None]]
)
_members = {
    "turn": _small,
    "step": _small,
    "callId": call_ids,
    "content": st.one_of(_blocks, _blocks, st.none(), st.just("text")),
    "reason": st.just({"kind": "completed"}),
    "isError": st.booleans(),
}
_data = st.one_of(st.fixed_dictionaries({}, optional=_members), _odd_data)
_types = st.sampled_from(
    [
        "turn/start",
        "turn/start",
        "turn/end",
        "step/start",
        "step/start",
        "step/end",
        "user/message",
        "steering/message",
        "context/message",
        "assistant/chunk",
        "assistant/message",
        "assistant/message",
        "assistant/message",
        "tool/call",
        "tool/call",
        "tool/result",
        "tool/result",
        "compact/start",
        "note",
    ]
)


@st.composite
def any_sequence(draw: st.DrawFn, *, surface: bool = False) -> list[SessionEvent]:
    """Events in any order with any data, contiguous in seq; with surface operations if asked."""
    first = draw(st.integers(0, 2))
    found = []
    for offset, (kind, data) in enumerate(draw(st.lists(st.tuples(_types, _data), max_size=14))):
        operation = draw(st.sampled_from(["append", "append", "append", None])) if surface else None
        found.append(SessionEvent(kind, first + offset, draw(_small), data, operation))
    return found


# --- lawful sequences ---------------------------------------------------------------------------


class Scribe:
    """Writes a lawful session event by event, counting seqs, turns and steps."""

    def __init__(self) -> None:
        self.events: list[SessionEvent] = []
        self.turn = 0
        self.step = 0

    def write(self, builder: Any, **members: Any) -> int:
        seq = len(self.events)
        self.events.append(builder(seq=seq, time=1000 + seq, **members))
        return seq

    def place(self) -> dict[str, int]:
        return {"turn": self.turn, "step": self.step}


@st.composite
def lawful_sequence(draw: st.DrawFn, *, answered: bool = False) -> list[SessionEvent]:
    """A session as an agent writes it, cut anywhere.

    With `answered`, no closed step leaves a call without a result.
    """
    scribe = Scribe()
    for _ in range(draw(st.integers(0, 3))):
        _turn(draw, scribe, answered=answered)
        if draw(st.booleans()):
            scribe.write(words.user_message, content=[words.text("between turns")])
    return scribe.events[: draw(st.integers(0, len(scribe.events)))]


def _turn(draw: st.DrawFn, scribe: Scribe, *, answered: bool) -> None:
    scribe.turn, scribe.step = scribe.turn + 1, 0
    scribe.write(words.turn_start, turn=scribe.turn)
    scribe.write(words.user_message, content=[words.text("please")])
    if draw(st.booleans()):
        plugin: words.MessageSource = {"kind": "plugin", "plugin": "p"}
        scribe.write(words.context_message, content=[words.text("more")], source=plugin)
        scribe.write(words.compact_start, turn=scribe.turn)
    for _ in range(draw(st.integers(0, 2))):
        _step(draw, scribe, answered=answered)
    scribe.write(words.turn_end, turn=scribe.turn)


def _step(draw: st.DrawFn, scribe: Scribe, *, answered: bool) -> None:
    scribe.step += 1
    scribe.write(words.step_start, **scribe.place())
    chunk = {"type": "text-delta", "index": 0, "text": "x"}
    chunks = [
        scribe.write(words.assistant_chunk, chunk=chunk, **scribe.place())
        for _ in range(draw(st.integers(0, 2)))
    ]
    calls = draw(st.lists(st.sampled_from("abc"), max_size=3, unique=True))
    content = [words.text("on it"), *(words.tool_call_block(name, "f") for name in calls)]
    scribe.write(
        words.assistant_message,
        content=content,
        source_event_seqs=chunks or None,
        **scribe.place(),
    )
    for name in draw(st.permutations(calls)):
        if not answered and draw(st.booleans()):
            continue
        logged = scribe.write(words.tool_call, call_id=name, name="f", **scribe.place())
        scribe.write(
            words.tool_result,
            call_id=name,
            content=[words.text("done")],
            source_event_seqs=[logged],
            **scribe.place(),
        )
    scribe.write(words.step_end, **scribe.place())
