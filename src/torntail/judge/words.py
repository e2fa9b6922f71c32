"""Refusals understood and differences told: between outcomes and the sentences of a judgement.

Decides when a refusal is of the right kind and tells a fact, and how an operation, an outcome and
the difference between two records are put into words.
"""

from __future__ import annotations

import re
from typing import Any

from torntail.judge.expected import Branch, Refusal
from torntail.judge.history import (
    ChangeCallersCopy,
    Hung,
    ListSessions,
    LoadedSession,
    Operation,
    Refused,
    Reopen,
    Returned,
)
from torntail.session import same_json

__all__ = [
    "call_name",
    "differing",
    "outcome_words",
    "right_kind",
    "shorten",
    "tells",
    "wanted_words",
]


def right_kind(outcome: Refused, refusal: Refusal) -> bool:
    """Whether a refusal is one of those that are right here."""
    if outcome.kind in refusal.wrong_kinds or outcome.kind == "exit":
        return False
    if not refusal.kinds or outcome.kind in refusal.kinds:
        return True
    text = outcome.text.lower()
    return outcome.kind == "other" and (
        not refusal.words or any(word.lower() in text for word in refusal.words)
    )


def tells(outcome: Refused, value: Any) -> bool:
    """Whether a refusal tells a fact, as an attribute or in its text."""
    if value is None:
        return True
    if isinstance(value, int):
        if any(type(fact) is int and fact == value for fact in outcome.facts.values()):
            return True
        return re.search(rf"(?<![\d.]){value}(?![\d])", outcome.text) is not None
    return value in outcome.text or any(
        isinstance(fact, str) and value in fact for fact in outcome.facts.values()
    )


def call_name(operation: Operation) -> str:
    """What an operation is called in a sentence."""
    match operation:
        case ListSessions():
            return "list"
        case Reopen():
            return "opening the store again"
        case ChangeCallersCopy():
            return "changing the caller's copy"
    return type(operation).__name__.lower()


def wanted_words(branch: Branch) -> str:
    """What should have happened instead."""
    if branch.refusal is None:
        return "it has to succeed"
    if branch.refusal.kinds:
        kinds = " or ".join(sorted(branch.refusal.kinds)).replace("_", " ")
        return f"it has to refuse ({kinds})"
    if branch.refusal.wrong_kinds:
        return "it has to refuse, and not as absence"
    return "it has to refuse"


def outcome_words(outcome: Any) -> str:
    """What a call came to, in a few words."""
    match outcome:
        case Returned(session=LoadedSession(events=events)):
            return f"returned {len(events)} events"
        case Returned():
            return "returned"
        case Refused():
            return f"refused with {outcome.exception} ({shorten(outcome.text)})"
        case Hung():
            return "did not return"
    return f"returned {outcome.reason}"


def differing(expected: Any, got: Any, i_json: bool) -> str:
    """The first member in which two records differ."""
    one, other = expected.to_json(), got.to_json()
    for key in [*one, *(key for key in other if key not in one)]:
        if key not in other:
            return f"{key} is missing"
        if key not in one:
            return f"{key} is {shorten(repr(other[key]))}, which was never given"
        if not same_json(one[key], other[key], i_json=i_json):
            return f"{key} is {shorten(repr(other[key]))}, not {shorten(repr(one[key]))}"
    return "the same members"


def shorten(text: str) -> str:
    """A text short enough for a sentence."""
    return text if len(text) <= 160 else f"{text[:100]}…{text[-50:]}"
