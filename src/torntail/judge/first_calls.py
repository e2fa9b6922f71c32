"""Whether a recovery hangs on which call comes first: no call needs a load of all before it.

Pure checks over `recovery.FirstCalls`, by the clauses that the same fault breaks behind a load: a
session that only opens after another (CR-3, CR-4), an append glued to what only a load would have
mended (CR-5), a list that only a load puts right (CR-6), a name that only a load frees (CR-10).
Does not decide which disks are begun with otherwise (`explore`).
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from torntail.judge.capabilities import Capabilities
from torntail.judge.history import Refused, Returned
from torntail.judge.ledger import Ledger
from torntail.judge.recovery import (
    ABSENT,
    Breach,
    Recovery,
    judge_continuation,
    judge_list,
    same_events,
    told,
)

__all__ = ["first_call_breaches"]


def first_call_breaches(
    recovery: Recovery, ledger: Ledger, capabilities: Capabilities
) -> Iterator[Breach]:
    """Every breach that shows only when another call comes first after the crash."""
    first = recovery.first_calls
    if first is None:
        return
    for breach in judge_list(msgspec.structs.replace(recovery, listed=first.listed), ledger):
        yield _before(breach, "list as the first call")
    for session, answer in recovery.loads.items():
        debt = ledger.sessions.get(session)
        if debt is None:
            continue
        found = isinstance(answer, Returned) and answer.session is not None
        alone, created = first.alone.get(session), first.created.get(session)
        if isinstance(answer, Returned) and answer.session is not None and alone is not None:
            if not isinstance(alone, Returned) or alone.session is None:
                yield Breach("CR-3", session, f"load of this session alone {told(alone)}")
            elif not same_events(alone.session.events, answer.session.events, capabilities):
                yield Breach("CR-4", session, "load of this session alone gives other events")
        absent = isinstance(answer, Refused) and answer.kind in ABSENT
        if absent and created is not None and not isinstance(created, Returned):
            yield Breach("CR-10", session, f"create as the first call {told(created)}")
        if not found:
            continue
        for continued, how in (
            (first.appended, "append without a load"),
            (first.lasting, "load, append and load by one object"),
        ):
            begun = msgspec.structs.replace(recovery, continued=continued)
            for breach in judge_continuation(session, begun, debt, capabilities):
                yield _before(breach, how)


def _before(breach: Breach, how: str) -> Breach:
    return breach._replace(sentence=f"{how}: {breach.sentence}")
