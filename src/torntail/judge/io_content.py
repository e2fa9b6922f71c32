"""What a store may hold when the disk has said no, and which clause a wrong content breaks.

The parts of the rule in `io` that need no history of their own: one load, one append, one file that
was taken. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from torntail.judge.capabilities import Capabilities
from torntail.judge.history import Append, Hung, Load, Refused, Reopen, Returned
from torntail.judge.io_steps import Events, IoStep, Standing, Struck, Taking
from torntail.judge.recovery import Answer, Breach, common_prefix, same_events
from torntail.session import SessionEvent, interrupted_turn_closers

__all__ = [
    "Kept",
    "clause_of",
    "closers_of",
    "is_own_sync",
    "load_problem",
    "taking_breach",
    "told",
    "uncut_breach",
]

_ABSENT: Final = frozenset({"not_found", "never_materialised"})


class Kept(msgspec.Struct, frozen=True):
    """What of a session a load gave: how many events of an alternative; or what is wrong."""

    count: int = 0
    closers: int = 0
    problem: str | None = None


def load_problem(answer: Answer, standing: Standing, capabilities: Capabilities) -> Kept:
    """Whether a load gives what may be in storage."""
    if not isinstance(answer, Returned) or answer.session is None:
        if not standing.acknowledged and isinstance(answer, Refused):
            if answer.kind in _ABSENT:
                return Kept()
            if answer.kind == "storage":
                return Kept()
        return Kept(problem=f"load {told(answer)}")
    events = answer.session.events
    best = 0
    for log in standing.alternatives:
        kept = common_prefix(log, events, capabilities)
        if kept >= len(standing.acknowledged):
            closers = closers_of(log[:kept], capabilities)
            if same_events(events[kept:], closers, capabilities):
                return Kept(kept, len(closers))
        best = max(best, kept)
    owed = len(standing.acknowledged)
    if best < owed:
        return Kept(
            best, problem=f"load lacks {owed - best} acknowledged event(s) from seq {best} on"
        )
    marks = {_mark(event) for event in standing.refused} - {None}
    if any(_mark(event) in marks for event in events[best:]):
        return Kept(best, problem=_STORED_AFTER_ALL)
    return Kept(best, problem=f"load gives at seq {best} what was never submitted there")


_STORED_AFTER_ALL: Final = "load gives events of an append that had raised, and was settled"


def uncut_breach(session: str, step: IoStep, kept: int, standing: Standing) -> Breach | None:
    """What an append leaves whose own fsync failed: `kept` events, as a load after a kill says."""
    errors = step.errors
    failed = next((index for index, one in enumerate(errors) if is_own_sync(one)), None)
    if failed is None or not isinstance(step.outcome, Refused) or errors[failed + 1 :]:
        return None
    left = kept - len(standing.acknowledged)
    if left <= 0:
        return None
    sentence = f"an append raised over a failed fsync and left {left} of its events in storage"
    return Breach("IO-3", session, sentence)


def taking_breach(
    session: str, how: Taking, append: Answer, found: Answer | None, *, wrote: bool
) -> Breach | None:
    """What an append after a file was taken breaks (IO-6).

    `found` is what a new object loads when an unlinked file is there again, `wrote` whether the
    file is not what the driver had left.
    """
    if isinstance(append, Returned):
        return Breach("IO-6", session, f"append returned, though the session's file was {how}")
    if not isinstance(append, Refused):
        return Breach("IO-6", session, f"append {told(append)}, the session's file being {how}")
    if found is not None and not isinstance(found, Returned):
        sentence = "append raised, and left a file without a header where one had been unlinked"
        return Breach("IO-6", session, sentence)
    if wrote and how != "unlinked":
        return Breach("IO-6", session, f"append raised, and wrote to a file that had been {how}")
    return None


def clause_of(past: Sequence[IoStep], standing: Standing, problem: str, *, power: bool) -> str:
    """The clause that a wrong content breaks, by what struck and what the store did after it.

    `problem` as `load_problem` gives it; `power`: power was cut after the last call.
    """
    errors = [one for step in past for one in step.errors]
    if power and any(one.kind == "sync" for one in errors):
        return "IO-3"
    queued = problem is _STORED_AFTER_ALL or any(step.wrote_refused for step in past)
    if queued and not power:
        return "IO-1"
    if (
        any(step.struck and isinstance(step.call, Load | Reopen) for step in past)
        or standing.unrepaired
    ):
        return "IO-5"
    if any(step.struck for step in past) and not errors:
        return "IO-4"
    went_on = past and _acknowledged_since(past)
    if went_on and all(one.kind == "write" and one.error == "ENOSPC" for one in errors):
        return "IO-4"
    return "IO-2"


def _acknowledged_since(past: Sequence[IoStep]) -> bool:
    """Whether an append was acknowledged after the fault had struck."""
    struck = False
    for step in past:
        if struck and isinstance(step.call, Append) and isinstance(step.outcome, Returned):
            return True
        struck = struck or bool(step.struck)
    return False


def is_own_sync(struck: Struck) -> bool:
    """Whether an fsync failed of a file that the same call had written to."""
    return struck.kind == "sync" and struck.own


def closers_of(log: Events, capabilities: Capabilities) -> Events:
    """The closers of a log."""
    return tuple(interrupted_turn_closers(log)) if capabilities.profile == "session" else ()


def _mark(event: SessionEvent) -> str | None:
    mark = event.data.get("mark") if isinstance(event.data, dict) else None
    return mark if isinstance(mark, str) else None


def told(answer: Answer) -> str:
    """An answer that is not the right one, in words."""
    match answer:
        case Refused():
            return f"refused ({answer.exception}): {answer.text}"
        case Hung(seconds):
            return f"had not returned after {seconds:g} s"
    return "gave no session"
