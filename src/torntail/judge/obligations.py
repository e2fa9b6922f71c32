"""The situations that must have occurred before a clause may pass (VD-3).

Situations are named by the model from what really happened, not by the case from what it meant to
happen, so that a campaign that only believed it made a torn tail ends unknown. Does not decide how
a situation comes about (`explore`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

__all__ = ["OBLIGATIONS", "Obligation", "missing_situations"]


class Obligation(NamedTuple):
    """One situation, or one of several, that must have occurred.

    `requires` as in the clause table; `damage`: the situation takes a damage, and is not asked for
    where the storage has no form for that damage.
    """

    any_of: tuple[str, ...]
    requires: tuple[str, ...] = ()
    damage: bool = False


def _met(*situations: str) -> tuple[Obligation, ...]:
    return tuple(Obligation((situation,)) for situation in situations)


def _damaged(*situations: str) -> tuple[Obligation, ...]:
    return tuple(Obligation((situation,), damage=True) for situation in situations)


_CLOSED_TURN = Obligation(("an open turn was closed",), ("profile=session",))

OBLIGATIONS: Final[Mapping[str, tuple[Obligation, ...]]] = {
    "RW-1": (*_met("append", "a load"), _CLOSED_TURN),
    "RW-2": _met("a first seq too low", "a first seq too high", "a seq inside a batch too low",
                 "a seq inside a batch too high"),
    "RW-3": _met("nan", "infinity", "minus-infinity", "bytes", "set", "date", "cycle",
                 "integer-key"),
    "RW-4": _met("a load"),
    "RW-5": _met("an empty batch", "an empty batch for an unknown id"),
    "RW-6": _met("load of a created, empty session"),
    "RW-7": _met("exists in memory", "exists in storage"),
    "RW-8": (*_met("load of an unknown id"),
             Obligation(("append to an unknown id",), ("creates=explicit",)),
             *_damaged("storage cannot be looked at")),
    "RW-9": (*_met("a list"), *_damaged("a log with a damaged body was listed"),
             Obligation(("a log was listed with its error: garbled",), ("header",), damage=True),
             Obligation(("a never materialised log was left out",), ("header",), damage=True)),
    "RW-10": _met("a load"),
    "RW-11": _met("a load"),
    "RW-12": _met("a load"),
    "RW-13": _met("a load"),
    "RW-14": (Obligation(("start: version", "another version refused at create")),),
    "RW-15": _damaged("start: identity"),
    "RW-16": _met("a load"),
    "RW-17": _met("calls at the same time", "a call after close"),
    "CL-1": (_CLOSED_TURN,),
    "CL-2": _met("an open call was answered"),
    "CL-3": _met("an open call was answered"),
    "CL-4": _met("an open call was answered"),
    "CL-5": _met("an open call was answered"),
    "CL-6": _met("an open call was answered"),
    "CL-7": _damaged("a bad record in the committed region", "a torn tail was dropped"),
    "DM-1": _damaged("a bad record in the committed region"),
    "DM-2": _damaged("a torn tail was dropped", "a torn tail with whole records was copied"),
    "DM-3": (Obligation(("a wrong seq in the tail", "the tail was cut at a wrong seq"),
                        damage=True),),
    "DM-4": (Obligation(("a record without newline was kept",
                         "a record followed by rubbish was kept"), damage=True),),
    "DM-5": (*_met("too-deep"),
             Obligation(("a torn tail was dropped",), ("detects=torn",), damage=True),
             Obligation(("a bad record in the committed region",), ("detects=torn",), damage=True)),
    "DM-6": _damaged("start: never materialised", "a header without newline was kept",
                     "start: garbled"),
    "DM-7": _damaged("a flipped bit"),
    "DM-8": _met("an open turn was closed"),
    "CR-1": _met("a crash after an acknowledgement", "a crash that lost what was not acknowledged"),
    "CR-2": (*_met("a crash that lost what was not acknowledged"),
             Obligation(("a turn was open at a crash",), ("profile=session",))),
    "CR-3": _met("a crash after an acknowledgement"),
    "CR-4": _met("a recovered disk was loaded again"),
    "CR-5": _met("a recovered session went on"),
    "CR-6": _met("a crash after an acknowledgement"),
    "CR-7": _met("a crash inside a repair"),
    "CR-8": _met("a crash inside a batch"),
    "CR-9": _met("a call was open at a crash"),
    "CR-10": _met("a crash inside a first flush"),
    "CR-11": _met("a recovered disk was loaded again"),
    "IO-1": _met("an append was struck"),
    "IO-2": _met("a load after an error"),
    "IO-3": _met("an fsync failed", "an fsync failed and a later one worked"),
    "IO-4": _met("a write came short", "space came back"),
    "IO-5": _met("a repair could not be written"),
    "IO-6": _met("a file was taken from under a live writer"),
    "MW-1": _met("an append under another's lock", "a stopped writer went on",
                 "two appends at once"),
    "MW-2": _met("a writer was killed that held the session"),
    "MW-3": (*_met("a load under a live writer"),
             Obligation(("an open turn was shown closed",), ("profile=session", "repairs=load"))),
    "MW-4": _met("a stale cursor"),
    "MW-5": _met("another had the first seq", "an append went on", "two appends at once"),
}  # fmt: skip
"""Each clause that is exercised so far, with what must have occurred."""


def missing_situations(
    clause: str, occurred: frozenset[str], *, claimed: frozenset[str], damage_moot: bool
) -> tuple[str, ...]:
    """The obligations of a clause that were not met; `claimed` are the requirements that hold."""
    return tuple(
        " or ".join(obligation.any_of)
        for obligation in OBLIGATIONS.get(clause, ())
        if not (obligation.damage and damage_moot)
        and claimed.issuperset(obligation.requires)
        and occurred.isdisjoint(obligation.any_of)
    )
