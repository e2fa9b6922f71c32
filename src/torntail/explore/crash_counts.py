"""What a crash campaign counts: its work, the clauses it put to the test, the situations it met.

Decides which clauses a judged recovery has tested and which situations it was (VD-3). Counting is
done for many equal recoveries at once: whoever judges tells how often.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from torntail.judge.capabilities import Capabilities
from torntail.judge.history import LoadedSession, Returned
from torntail.judge.ledger import Debt, Ledger
from torntail.judge.recovery import Recovery, RecoveryJudge

__all__ = ["Counts", "count_recovery"]


@dataclass(slots=True)
class Counts:
    """How much was done, how often each clause was tested and each situation met.

    `syncs` are those that were seen while plans were recorded.
    """

    plans: int = 0
    moments: int = 0
    images: int = 0
    distinct: int = 0
    recoveries: int = 0
    syncs: int = 0
    executed: dict[str, int] = field(default_factory=dict)
    situations: dict[str, int] = field(default_factory=dict)


def count_recovery(
    counts: Counts,
    recovery: Recovery,
    ledger: Ledger,
    judge: RecoveryJudge,
    *,
    times: int,
    nested: bool,
) -> None:
    """Counts a recovery that `judge` judged by `ledger`, of so many images.

    `nested`: it follows a crash inside the recovery from another one.
    """
    for session, answer in recovery.loads.items():
        debt = ledger.sessions.get(session)
        if debt is None:
            continue
        loaded = answer.session if isinstance(answer, Returned) else None
        for clause in _tested(debt, loaded, judge.capabilities, nested):
            counts.executed[clause] = counts.executed.get(clause, 0) + times
        for situation in _met(session, recovery, debt, loaded, judge, nested):
            counts.situations[situation] = counts.situations.get(situation, 0) + times


def _tested(
    debt: Debt, loaded: LoadedSession | None, capabilities: Capabilities, nested: bool
) -> Iterator[str]:
    yield from ("CR-2", "CR-3", "CR-4", "CR-5", "CR-6", "CR-11")
    if debt.acknowledged:
        yield "CR-1"
    if nested and debt.busy == "repair":
        yield "CR-7"
    if capabilities.atomic_batch:
        yield "CR-8"
    if loaded is not None and capabilities.profile == "session":
        yield "CR-9"
    if debt.busy in ("create", "first flush"):
        yield "CR-10"


def _met(
    session: str,
    recovery: Recovery,
    debt: Debt,
    loaded: LoadedSession | None,
    judge: RecoveryJudge,
    nested: bool,
) -> Iterator[str]:
    if debt.acknowledged:
        yield "a crash after an acknowledgement"
    if debt.busy == "first flush":
        yield "a crash inside a first flush"
    if nested and debt.busy == "repair":
        yield "a crash inside a repair"
    if debt.busy in ("append", "first flush") and len(debt.submitted) - debt.acknowledged > 1:
        yield "a crash inside a batch"
    if session in recovery.again:
        yield "a recovered disk was loaded again"
    if session in recovery.continued:
        yield "a recovered session went on"
    if loaded is None:
        return
    if len(loaded.events) < len(debt.submitted):
        yield "a crash that lost what was not acknowledged"
    closers = judge.closers(debt.submitted, len(debt.submitted))
    if closers:
        yield "a turn was open at a crash"
    if len(closers) > 2:
        yield "a call was open at a crash"
    if loaded.repair is not None and loaded.repair.torn_bytes:
        yield "a torn tail was recovered"
