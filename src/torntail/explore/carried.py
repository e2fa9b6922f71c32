"""What of a case a driver can be asked: its protocol carries JSON, and nothing else.

An append of what JSON has no words for, or holds as a number like another, cannot be made, so no
store behind a driver need refuse it. Does not decide what an append comes to that can be made.
"""

from __future__ import annotations

from typing import Final

from torntail.explore.script import Case
from torntail.judge.history import Append, Operation, Spoiling

__all__ = ["JSON_ONLY", "carried"]

JSON_ONLY: Final = "the driver protocol carries JSON only"
"""Why a clause on other values is not exercised."""

# To most languages 1.0 is 1, so that the float seq is not among them.
_IN_JSON: Final[frozenset[Spoiling]] = frozenset(
    {"too-deep", "empty-type", "negative-seq", "boolean-seq", "text-time"}
)


def carried(case: Case) -> Case | None:
    """The case without the appends that cannot be made; None where none but those were to be."""
    spoiled = [one for one in case.operations if _is_spoiled(one)]
    operations = tuple(one for one in case.operations if _goes_through(one))
    if spoiled and not any(map(_is_spoiled, operations)):
        return None
    return Case(case.name, case.clauses, operations)


def _is_spoiled(operation: Operation) -> bool:
    return isinstance(operation, Append) and operation.spoiled is not None


def _goes_through(operation: Operation) -> bool:
    if not isinstance(operation, Append) or operation.spoiled is None:
        return True
    return operation.spoiled.how in _IN_JSON
