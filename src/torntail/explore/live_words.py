"""The words that the cases of live layers are made of: events without seq and time, and checks.

Decides how an event of each type looks, and what "storage holds the log" means.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from torntail.explore.live import LiveFinding, LiveSession, expect
from torntail.explore.live_store import TroubledStore
from torntail.session import SessionEvent, SessionHeader, same_json
from torntail.session import vocabulary as words

__all__ = [
    "HEADER",
    "OPEN",
    "TURN",
    "Word",
    "again",
    "assistant",
    "chunk",
    "events_of",
    "expect_kept",
    "expect_stored",
    "flush",
    "same",
    "say",
    "step",
    "tool_call",
    "tool_result",
    "turn_end",
    "turn_start",
    "user",
]

Word = tuple[str, Any]
"""An event's type and data."""

HEADER: Final = SessionHeader("a", 1_700_000_000_000)

# --- events, without seq and time ---------------------------------------------------------------


def turn_start(turn: int = 1) -> Word:
    """A turn begins."""
    return "turn/start", words.turn_start(seq=0, time=0, turn=turn).data


def turn_end(turn: int = 1) -> Word:
    """A turn ends."""
    return "turn/end", words.turn_end(seq=0, time=0, turn=turn).data


def step(kind: str, step: int = 1, turn: int = 1) -> Word:
    """A step begins or ends."""
    return f"step/{kind}", {"turn": turn, "step": step}


def user(told: str = "Hello") -> Word:
    """The user says something."""
    return "user/message", words.user_message(seq=0, time=0, content=[words.text(told)]).data


def chunk(step: int = 1, turn: int = 1) -> Word:
    """A piece of the stream."""
    piece = {"type": "text-delta", "index": 0, "text": "Hel"}
    return "assistant/chunk", {"turn": turn, "step": step, "chunk": piece}


def assistant(*calls: str, step: int = 1, turn: int = 1) -> Word:
    """The model's message, with calls."""
    content = [words.text("Yes."), *(words.tool_call_block(call, "read") for call in calls)]
    return "assistant/message", {"turn": turn, "step": step, "content": content}


def tool_call(call: str, step: int = 1, turn: int = 1) -> Word:
    """A call is handed to its tool."""
    data = {"turn": turn, "step": step, "callId": call, "name": "read", "arguments": "{}"}
    return "tool/call", data


def tool_result(call: str, step: int = 1, turn: int = 1) -> Word:
    """A tool has answered."""
    data = {"callId": call, "content": [words.text("done")], "isError": False}
    return "tool/result", {"turn": turn, "step": step, **data}


_SURFACE: Final = {"user/message", "assistant/message", "tool/result"}
TURN: Final = (turn_start(), user(), step("start"), chunk(), assistant(), step("end"), turn_end())
OPEN: Final = (turn_start(), user(), step("start"), assistant("c1"), tool_call("c1"))


def say(session: LiveSession, *said: Word) -> None:
    """Appends events one after the other."""
    for kind, data in said:
        session.append(kind, data, "append" if kind in _SURFACE else None)


def events_of(*said: Word) -> list[SessionEvent]:
    """The events as a store holds them."""
    return [
        SessionEvent(kind, seq, 1_700_000_000_000, data, "append" if kind in _SURFACE else None)
        for seq, (kind, data) in enumerate(said)
    ]


def same(left: Iterable[SessionEvent], right: Iterable[SessionEvent]) -> bool:
    """Whether two logs are equal as JSON."""
    return same_json([one.to_json() for one in left], [one.to_json() for one in right])


# --- what is expected -----------------------------------------------------------------------------


def again(word: Word) -> Word:
    """A word of turn 1 in turn 2."""
    kind, data = word
    return kind, {**data, "turn": 2} if "turn" in data else data


def flush(clause: str, session: LiveSession, what: str) -> None:
    """Flushes where nothing stands in the way; an error is a finding."""
    try:
        session.flush()
    except Exception as error:
        raise LiveFinding(clause, f"{what} raises {error!r}") from error


def expect_kept(
    clause: str, store: TroubledStore, session: LiveSession, whose: str, session_id: str = "a"
) -> None:
    """Ends a session: storage must hold its log, if not after the flush then after the close.

    For the clauses that do not say which of the two drains.
    """
    flush(clause, session, f"the flush {whose}")
    session.close()
    expect_stored(clause, store, session, f"after the end {whose}", session_id)


def expect_stored(
    clause: str, store: TroubledStore, session: LiveSession, where: str, session_id: str = "a"
) -> None:
    """Storage must hold the log of a session, and nothing else."""
    stored = store.stored(session_id)
    log = session.events()
    sentence = f"{where} storage holds {len(stored)} events that are not the log of {len(log)}"
    expect(clause, same(stored, log), sentence)
