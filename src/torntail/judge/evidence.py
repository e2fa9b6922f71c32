"""All it takes to judge what came of a crash again: a value that a run keeps with its finding.

Decides what belongs to it: the claims, what was owed when the process died, and what the store made
of the disk. Does not decide what is a violation (`recovery`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

import msgspec

from torntail.judge.capabilities import Capabilities
from torntail.judge.first_calls import first_call_breaches
from torntail.judge.history import Returned
from torntail.judge.ledger import Debt, Ledger
from torntail.judge.recovery import Answer, Breach, Recovery, RecoveryJudge, same_events

__all__ = ["Evidence", "evidence_of", "recovery_breaches"]


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """What was owed after a crash and what was made of the disk that it left.

    `settled` is what the first load gave for a disk that no further crash may change (CR-7).
    """

    capabilities: Capabilities
    debts: dict[str, Debt]
    recovery: Recovery
    settled: dict[str, Answer] = {}

    def breaches(self) -> list[Breach]:
        """Every breach of the CR clauses, judged anew."""
        ledger = Ledger(MappingProxyType(self.debts))
        judge = RecoveryJudge(self.capabilities)
        return recovery_breaches(judge, self.recovery, ledger, self.settled)


def evidence_of(
    recovery: Recovery,
    ledger: Ledger,
    settled: Mapping[str, Answer],
    capabilities: Capabilities,
) -> Evidence:
    """The evidence of one recovery, in plain dicts, as JSON wants them."""
    return Evidence(
        capabilities=capabilities,
        debts=dict(ledger.sessions),
        recovery=msgspec.structs.replace(
            recovery,
            loads=dict(recovery.loads),
            again=dict(recovery.again),
            continued=dict(recovery.continued),
        ),
        settled=dict(settled),
    )


def recovery_breaches(
    judge: RecoveryJudge, recovery: Recovery, ledger: Ledger, settled: Mapping[str, Answer]
) -> list[Breach]:
    """Every breach of the CR clauses in a recovery; what shows only where another call comes first
    is looked at when there is no other.
    """
    breaches = [
        *judge.breaches(recovery, ledger),
        *_unsettled(recovery, ledger, settled, judge.capabilities),
    ]
    return breaches or [*first_call_breaches(recovery, ledger, judge.capabilities)]


def _unsettled(
    recovery: Recovery,
    ledger: Ledger,
    settled: Mapping[str, Answer],
    capabilities: Capabilities,
) -> Iterator[Breach]:
    """Crashes inside a repair that end in another log than the first load gave (CR-7)."""
    for session, first in settled.items():
        debt = ledger.sessions.get(session)
        if debt is None or debt.busy not in ("repair", "load"):
            continue
        if not isinstance(first, Returned) or first.session is None:
            continue
        answer = recovery.loads.get(session)
        if (
            not isinstance(answer, Returned)
            or answer.session is None
            or not same_events(answer.session.events, first.session.events, capabilities)
        ):
            yield Breach("CR-7", session, "after a crash inside the repair load differs")
