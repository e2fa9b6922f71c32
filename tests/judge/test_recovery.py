"""What a recovery is not accused of, and what it is, where the plan itself is out of the way."""

from __future__ import annotations

import pytest

from tests.shapes import event_lines
from torntail.judge.capabilities import Capabilities
from torntail.judge.history import LoadedSession, RepairFacts, Returned
from torntail.judge.ledger import Debt, Ledger
from torntail.judge.recovery import Recovery, RecoveryJudge
from torntail.session import SessionHeader, interrupted_turn_closers, parse_event

HEADER = SessionHeader("a", 0)


@pytest.mark.parametrize("calls", ["c1,c2", "c1,c1"])
def test_one_id_twice_in_a_message_is_no_fault_of_the_store(calls: str) -> None:
    """No provider takes such a message; the store that closes the turn is right all the same."""
    events = tuple(parse_event(line) for line in event_lines(f"TS U SS A:{calls}"))
    closers = tuple(interrupted_turn_closers(events))
    answer = Returned(session=LoadedSession(HEADER, events + closers, RepairFacts()))
    ledger = Ledger({"a": Debt(HEADER, events, len(events))})
    judge = RecoveryJudge(Capabilities())
    assert list(judge.breaches(Recovery({"a": answer}), ledger)) == []
