"""Deciding, and nothing else: what the contract says and whether a store kept it.

Pure: no file, clock, randomness or screen. What happened to a store is handed in as values, and
what follows from it is handed out as values.
"""

from torntail.judge.clauses import (
    CLAUSES,
    GROUPS,
    Clause,
    Level,
    UnknownClauseError,
    clause,
    clauses_in_group,
)

__all__ = [
    "CLAUSES",
    "GROUPS",
    "Clause",
    "Level",
    "UnknownClauseError",
    "clause",
    "clauses_in_group",
]
