"""Smaller values: which calls are tried, and that a fault which hangs on a value keeps it."""

from __future__ import annotations

import msgspec

from torntail.explore.smaller_values import renamed, short_names, smaller_values, volume
from torntail.judge.history import MARK_KEY, Append, Create, Damage, Load, Operation
from torntail.session import SessionEvent, SessionHeader

MARKED = {MARK_KEY: "mark-00000000-0001", "turn": 3}
HEADER = SessionHeader("first-0123", 1_700_000_000_000, "/projects/x", extra={"more": 1})
CHILD = SessionHeader("second-0123", 7, None, parent_session="first-0123", seed_length=1)
CALLS: tuple[Operation, ...] = (
    Create(header=HEADER),
    Create(header=CHILD),
    Append(
        session="first-0123",
        events=(
            SessionEvent("user/message", 0, 12.5, {**MARKED, "text": "long text", "n": 40}),
            SessionEvent("note", 1, 9, {**MARKED, "payload": ["x" * 99]}, extra={"k": "v"}),
            SessionEvent("odd", 2, 9, "a text alone"),
        ),
    ),
    Load(session="second-0123"),
    Damage(session="first-0123", kind="misplace", other="second-0123"),
)


def test_all_at_once_comes_first() -> None:
    boldest = next(smaller_values(CALLS))
    assert boldest == (
        Create(header=SessionHeader("a", 0, "/p")),
        Create(header=SessionHeader("b", 0, None, parent_session="a", seed_length=1)),
        Append(
            session="a",
            events=(
                SessionEvent("user/message", 0, 0, {**MARKED, "text": "l", "n": 1}),
                SessionEvent("note", 1, 0, {MARK_KEY: "mark-00000000-0001"}),
                SessionEvent("odd", 2, 0, None),
            ),
        ),
        Load(session="b"),
        Damage(session="a", kind="misplace", other="b"),
    )
    assert volume(boldest) < volume(CALLS)
    # What is small already stays, so that the search ends.
    assert all(volume(calls) >= volume(boldest) for calls in smaller_values(boldest))


def test_names_are_letters_in_the_order_of_creation() -> None:
    names = short_names(CALLS)
    assert names == {"first-0123": "a", "second-0123": "b"}
    assert renamed(renamed(CALLS, names), {"a": "first-0123", "b": "second-0123"}) == CALLS


def smallest(needed: str) -> str:
    """The data of the last event once nothing smaller still holds a text."""
    event = SessionEvent("user/message", 0, 0, {"text": f"before {needed} behind", "other": "long"})
    calls: tuple[Operation, ...] = (
        Create(header=SessionHeader("a", 0)),
        Append(session="a", events=(event,)),
    )
    taken = True
    while taken:
        taken = False
        for smaller in smaller_values(calls):
            if volume(smaller) < volume(calls) and needed in repr(msgspec.to_builtins(smaller)):
                calls, taken = smaller, True
                break
    _, append = calls
    assert isinstance(append, Append)
    return str(append.events[0].data["text"])


def test_a_value_that_the_fault_hangs_on_is_kept() -> None:
    kept = smallest("NEEDLE")
    assert "NEEDLE" in kept
    assert len(kept) < len("before NEEDLE behind")
