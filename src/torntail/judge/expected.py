"""What an operation has to come to: the patterns that outcomes are held against.

Decides how right an outcome must be (which kinds of refusal, which facts told, which bytes left
alone). Does not decide what is expected when (`model`) or whether it came true (`oracle`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal

from torntail.session import SessionEvent, SessionHeader

__all__ = [
    "ANY_REFUSAL",
    "CANNOT_LOOK",
    "CLOSED",
    "EXISTS",
    "EXISTS_DAMAGED",
    "IDENTITY",
    "NEVER",
    "NOT_FOUND",
    "NOT_THERE",
    "Branch",
    "ExpectedEntry",
    "ExpectedSession",
    "ExpectedTail",
    "Refusal",
]


@dataclass(frozen=True, slots=True)
class Refusal:
    """Which refusals are right.

    `kinds`: the words that are right; empty for any but those in `wrong_kinds`. A refusal of kind
    `other`, which a store without own error types raises, is right when its text holds one of
    `words` (any text, if there are none). `names` are facts that must be told, each under one of
    several spellings, and `names_clause` the clause that says so, if not the one probed.
    """

    kinds: frozenset[str] = frozenset()
    wrong_kinds: frozenset[str] = frozenset()
    words: tuple[str, ...] = ()
    names: tuple[tuple[str, tuple[Any, ...]], ...] = ()
    names_clause: str | None = None


@dataclass(frozen=True, slots=True)
class ExpectedTail:
    """The torn tail a load has to report; None where it is not known (a database has no bytes)."""

    line: int | None = None
    byte: int | None = None
    length: int | None = None
    copied_marks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ExpectedSession:
    """What a load has to return.

    `uncertain`: after a flip or a cut of unknown effect, any prefix of `events` with its closers.
    """

    header: SessionHeader | None
    events: tuple[SessionEvent, ...]
    tail: ExpectedTail | None = None
    uncertain: Literal["", "flip", "cut"] = ""


@dataclass(frozen=True, slots=True)
class ExpectedEntry:
    """One entry of a list: with this header, or with one of these kinds of error, or either.

    `optional`: it need not be there.
    """

    header: SessionHeader | None
    errors: frozenset[str] = frozenset()
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Branch:
    """One outcome the contract allows, and what the model does when it came true."""

    refusal: Refusal | None = None
    session: ExpectedSession | None = None
    entries: dict[str, ExpectedEntry] | None = None
    writes: bool = True
    situations: tuple[str, ...] = ()
    effect: Callable[[], None] | None = None


ANY_REFUSAL: Final = Refusal(wrong_kinds=frozenset({"not_found", "exists", "closed", "exit"}))
CLOSED: Final = Refusal(frozenset({"closed"}), words=("closed",))
NOT_FOUND: Final = Refusal(frozenset({"not_found"}), words=("not found", "no such", "unknown"))
EXISTS: Final = Refusal(frozenset({"exists"}), words=("exist", "already"))
EXISTS_DAMAGED: Final = Refusal(
    EXISTS.kinds | {"version", "identity", "corrupted"}, words=EXISTS.words
)
NEVER: Final = Refusal(frozenset({"never_materialised"}), words=("materiali",))
NOT_THERE: Final = Refusal(NOT_FOUND.kinds | NEVER.kinds, words=NOT_FOUND.words + NEVER.words)
CANNOT_LOOK: Final = Refusal(
    # That something exists in the way (`mkdir` of the root) tells of no absence.
    wrong_kinds=frozenset({"not_found", "never_materialised", "closed", "exit"})
)
IDENTITY: Final = Refusal(frozenset({"identity"}), words=("id",))
