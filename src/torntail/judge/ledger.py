"""What a store owes after a crash: for each session the submitted and the acknowledged events.

Folds a recorded history along the marks of its op log into *A* and *S* of the contract (CONTRACT,
"Words"). Does not look at any disk, and does not decide whether a recovery is right (`recovery`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from torntail.judge.capabilities import Capabilities
from torntail.judge.history import (
    Append,
    Create,
    History,
    Load,
    Observation,
    Refused,
    Reopen,
    Returned,
)
from torntail.session import SessionEvent, SessionHeader, interrupted_turn_closers

__all__ = ["Debt", "Ledger", "after_crash", "ledger_steps"]


@dataclass(frozen=True, slots=True)
class Debt:
    """What a store owes of one session.

    `submitted` is S; the first `acknowledged` of them are A; `boundaries` are the lengths of S at
    which a batch ends (CR-8). `touched`: the store object has created or loaded it.
    `busy` names the call on it that has not returned: `create`, `first flush`, `append`, `repair`,
    `load`, or nothing.
    """

    header: SessionHeader
    submitted: tuple[SessionEvent, ...] = ()
    acknowledged: int = 0
    boundaries: frozenset[int] = frozenset({0})
    touched: bool = True
    busy: str = ""


@dataclass(frozen=True, slots=True)
class Ledger:
    """The debts of all sessions a plan has announced, at one moment."""

    sessions: Mapping[str, Debt] = field(default_factory=lambda: MappingProxyType({}))

    def _with(self, session: str, debt: Debt) -> Ledger:
        return Ledger(MappingProxyType({**self.sessions, session: debt}))

    def invoked(self, observation: Observation, capabilities: Capabilities) -> Ledger:
        """After a call began: what it submits is owed to nobody yet, and allowed from here on."""
        operation = observation.operation
        match operation:
            case Create(header=header):
                if isinstance(observation.outcome, Refused) or header.id in self.sessions:
                    return self
                return self._with(header.id, Debt(header, busy="create"))
            case Append(session=session, events=events):
                debt = self.sessions.get(session)
                if debt is None and capabilities.creates == "implicit" and events:
                    debt = Debt(SessionHeader(session, 0))
                if debt is None or not events:
                    return self
                submitted, boundaries = debt.submitted, debt.boundaries
                if not debt.touched and capabilities.profile == "session":
                    submitted += tuple(interrupted_turn_closers(submitted))
                    boundaries |= {len(submitted)}
                busy = "append" if debt.acknowledged else "first flush"
                if isinstance(observation.outcome, Refused):
                    return self._with(session, replace(debt, submitted=submitted, busy="repair"))
                submitted += events
                return self._with(
                    session,
                    replace(
                        debt,
                        submitted=submitted,
                        boundaries=boundaries | {len(submitted)},
                        busy=busy,
                    ),
                )
            case Load(session=session):
                debt = self.sessions.get(session)
                if debt is None:
                    return self
                open_turn = bool(interrupted_turn_closers(debt.submitted))
                busy = "repair" if open_turn and capabilities.profile == "session" else "load"
                return self._with(session, replace(debt, busy=busy))
            case Reopen():
                return Ledger(
                    MappingProxyType(
                        {
                            session: replace(debt, touched=False)
                            for session, debt in self.sessions.items()
                            if debt.submitted
                        }
                    )
                )
        return self

    def ended(self, observation: Observation) -> Ledger:
        """After a call returned or was refused."""
        operation, outcome = observation.operation, observation.outcome
        match operation:
            case Create(header=header) if header.id in self.sessions:
                return self._with(header.id, replace(self.sessions[header.id], busy=""))
            case Append(session=session) if session in self.sessions:
                debt = replace(self.sessions[session], busy="", touched=True)
                if isinstance(outcome, Returned):
                    debt = replace(debt, acknowledged=len(debt.submitted))
                return self._with(session, debt)
            case Load(session=session) if session in self.sessions:
                debt = replace(self.sessions[session], busy="")
                if isinstance(outcome, Returned) and outcome.session is not None:
                    events = outcome.session.events
                    repair = outcome.session.repair
                    repaired = len(events) > len(debt.submitted)
                    durable = repair is not None and repair.durable and repaired
                    debt = replace(
                        debt,
                        submitted=events,
                        boundaries=debt.boundaries | {len(events)},
                        acknowledged=len(events) if durable else debt.acknowledged,
                        touched=True,
                    )
                return self._with(session, debt)
        return self


def after_crash(ledger: Ledger) -> Ledger:
    """What is still owed when a new process begins: no call is under way, nothing was touched."""
    return Ledger(
        MappingProxyType(
            {
                session: replace(debt, touched=False, busy="")
                for session, debt in ledger.sessions.items()
                if debt.submitted
            }
        )
    )


def ledger_steps(
    history: History,
    marks: Iterable[tuple[int, bool]],
    capabilities: Capabilities,
    start: Ledger | None = None,
) -> list[Ledger]:
    """The ledger before the first mark and after each; a mark is (call, whether it ended).

    `start` is what was owed before the history began, after an earlier crash.
    """
    ledger = start or Ledger()
    steps = [ledger]
    for call, ended in marks:
        observation = history[call]
        ledger = ledger.ended(observation) if ended else ledger.invoked(observation, capabilities)
        steps.append(ledger)
    return steps
