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
    "due_words",
    "outcome_words",
    "right_kind",
    "shorten",
    "tells",
    "wanted_words",
    "wrong_kind_words",
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
    return "it has to refuse"


def wrong_kind_words(operation: Operation, outcome: Refused, refusal: Refusal) -> str:
    """A refusal of a kind that says something untrue."""
    kind = outcome.kind.replace("_", " ")
    # That the store is closed is said by no store that is not, so that it need not be warned of.
    untrue = sorted({*refusal.wrong_kinds, outcome.kind} - ({"closed", "exit"} - {outcome.kind}))
    others = " or ".join(one.replace("_", " ") for one in untrue)
    return (
        f"{call_name(operation)} refused as {kind} ({outcome.exception}: {shorten(outcome.text)}); "
        f"an error other than {others} is due"
    )


def due_words(operation: Operation, branch: Branch | None) -> str:
    """Which call it was and what was wanted of it in which situation, to tell faults apart."""
    if branch is None:
        return call_name(operation)
    situations = ", ".join(sorted(set(branch.situations)))
    return f"{call_name(operation)}: {wanted_words(branch)} ({situations})"


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
