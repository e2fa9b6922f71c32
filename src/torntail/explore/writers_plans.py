"""The histories of several writers: which process does what, one step after the other.

Each is about one clause (MW-1 to MW-5) and says so; processes are called `A` and `B`. Where two act
at once, either may be first. Does not decide what a step should come to (`judge.writers`) or how
processes are started and stopped (`writers_run`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from torntail.explore.script import Log, Script
from torntail.judge.capabilities import Capabilities
from torntail.judge.history import Append, Close, Create, Inspect, Load, Reopen
from torntail.judge.writer_steps import (
    Age,
    Ask,
    AtOnce,
    Hear,
    Signal,
    SignalKind,
    Tell,
    WriterCall,
    WriterStep,
)
from torntail.session import SessionEvent, interrupted_turn_closers

__all__ = ["WritersPlan", "writers_plans"]

_ROUNDS: Final = 5
"""How often two do the same at once: which of them is first is not in our hands."""

_CLOSED: Final = "TS U SS A SE TE"
_OPEN: Final = "TS U SS A:c1 K:c1"


class WritersPlan(msgspec.Struct, frozen=True):
    """A history to be made, and the clause it is about.

    `forks`: a process has to fork a child, which only one that serves a Python store does when told
    to.
    """

    name: str
    clause: str
    steps: tuple[WriterStep, ...]
    forks: bool = False


class _Plan:
    """A history while it is written."""

    def __init__(self, seed: str, capabilities: Capabilities) -> None:
        self.script = Script(seed, capabilities)
        self.steps: list[WriterStep] = []

    @property
    def capabilities(self) -> Capabilities:
        return self.script.capabilities

    @property
    def open_turn(self) -> str:
        """Events whose turn a load closes, if it closes any."""
        closes = self.capabilities.profile == "session" and self.capabilities.repairs == "load"
        return _OPEN if closes else _CLOSED

    def log(self, label: str = "a") -> Log:
        return self.script.session(label, create=False)

    def ask(self, writer: str, call: WriterCall) -> None:
        self.steps.append(Ask(writer, call))

    def create(self, writer: str, log: Log, cwd: str | None = None) -> None:
        header = log.header if cwd is None else msgspec.structs.replace(log.header, cwd=cwd)
        if self.capabilities.creates == "explicit":
            self.ask(writer, Create(header=header))

    def append(self, writer: str, log: Log, words: str = _CLOSED) -> None:
        """An append that has to come off."""
        self.ask(writer, self.batch(log, words, keep=True))

    def refused(self, writer: str, log: Log, words: str = _CLOSED) -> None:
        """An append at the end of the log that must not come off."""
        self.ask(writer, self.batch(log, words))

    def batch(self, log: Log, words: str = _CLOSED, *, keep: bool = False) -> Append:
        turn, step = log.turn, log.step
        events = log.write(words)
        if keep:
            log.events.extend(events)
        else:
            log.turn, log.step = turn, step
        return Append(session=log.id, events=tuple(events))

    def begun(self, words: str = _CLOSED) -> Log:
        """A session that A has begun and holds."""
        log = self.log()
        self.create("A", log)
        self.append("A", log, words)
        return log

    def load(self, writer: str, log: Log, *, repairs: bool = False) -> None:
        self.ask(writer, Load(session=log.id))
        if repairs:
            log.events.extend(self.closers(log.events))

    def closers(self, events: Iterable[SessionEvent]) -> list[SessionEvent]:
        stores = self.capabilities.profile == "session" and self.capabilities.repairs == "load"
        return interrupted_turn_closers(list(events)) if stores else []

    def inspect(self, writer: str, log: Log) -> None:
        if self.capabilities.inspects:
            self.ask(writer, Inspect(session=log.id))

    def signal(self, writer: str, kind: SignalKind) -> None:
        self.steps.append(Signal(writer, kind))

    def close(self, writer: str) -> None:
        self.ask(writer, Close())

    def reopen(self, writer: str) -> None:
        self.ask(writer, Reopen())

    def at_once(self, *asks: tuple[str, WriterCall]) -> None:
        self.steps.append(AtOnce(tuple(Ask(writer, call) for writer, call in asks)))

    def hand_over(self, log: Log) -> None:
        """A lets go; a new store object of B finds the log, and goes on with it."""
        self.close("A")
        self.reopen("B")
        self.load("B", log, repairs=True)
        self.append("B", log)
        self.load("B", log)


# --- one writer, locked ---------------------------------------------------------------------------


def _a_second_writer_comes(plan: _Plan) -> None:
    log = plan.begun()
    plan.refused("B", log)
    plan.load("B", log)
    plan.refused("B", log)
    # What reads its own log must not lose the lock over it.
    plan.load("A", log)
    plan.inspect("A", log)
    plan.refused("B", log)
    plan.append("A", log)
    plan.refused("B", log)
    plan.hand_over(log)
    plan.reopen("A")
    plan.refused("A", log)


def _the_first_is_stopped_and_continued(plan: _Plan) -> None:
    log = plan.begun()
    plan.signal("A", "stop")
    plan.refused("B", log)
    plan.load("B", log)
    plan.refused("B", log)
    plan.signal("A", "continue")
    plan.append("A", log)
    plan.refused("B", log)
    plan.hand_over(log)


def _the_first_is_stopped_for_long(plan: _Plan) -> None:
    log = plan.begun()
    plan.signal("A", "stop")
    plan.steps.append(Age())
    plan.refused("B", log)
    plan.signal("A", "continue")
    plan.close("A")
    plan.load("B", log)


def _the_first_is_stopped_with_an_append_to_make(plan: _Plan) -> None:
    log = plan.begun()
    plan.signal("A", "stop")
    rival = plan.batch(log)
    plan.steps.append(Tell("A", plan.batch(log, keep=True)))
    plan.ask("B", rival)
    plan.signal("A", "continue")
    plan.steps.append(Hear("A"))
    plan.refused("B", log)
    plan.hand_over(log)


def _two_first_flushes_one_after_the_other(plan: _Plan) -> None:
    log = plan.log()
    plan.create("A", log)
    plan.create("B", log, cwd="/elsewhere")
    rival = plan.batch(log)
    plan.append("A", log)
    plan.ask("B", rival)
    plan.close("A")
    plan.reopen("B")
    plan.load("B", log)


def _two_first_flushes_at_once(plan: _Plan) -> None:
    logs = []
    for number in range(_ROUNDS):
        log = plan.log(f"race-{number}")
        plan.create("A", log)
        plan.create("B", log, cwd="/elsewhere")
        rivals = plan.batch(log), plan.batch(log)
        order = ("A", "B") if number % 2 else ("B", "A")
        plan.at_once(*zip(order, rivals, strict=True))
        logs.append(log)
    plan.close("A")
    plan.close("B")
    plan.reopen("B")
    for log in logs:
        plan.load("B", log)


def _the_holder_is_killed(plan: _Plan) -> None:
    log = plan.begun(plan.open_turn)
    plan.load("B", log)
    plan.signal("A", "kill")
    plan.load("B", log, repairs=True)
    plan.append("B", log)
    plan.reopen("B")
    plan.load("B", log)


def _the_holder_is_killed_and_nobody_has_looked(plan: _Plan) -> None:
    log = plan.begun()
    plan.signal("A", "kill")
    plan.append("B", log)
    plan.reopen("B")
    plan.load("B", log)


def _the_holder_is_killed_and_its_child_lives_on(plan: _Plan) -> None:
    log = plan.begun(plan.open_turn)
    plan.signal("A", "fork")
    plan.refused("B", log)
    plan.signal("A", "kill")
    plan.load("B", log, repairs=True)
    plan.append("B", log)
    plan.reopen("B")
    plan.load("B", log)


def _a_load_under_a_live_writer(plan: _Plan) -> None:
    log = plan.begun(plan.open_turn)
    plan.load("B", log)
    plan.inspect("B", log)
    plan.load("B", log)
    plan.append("A", log, "R:c1 SE TE" if plan.open_turn is _OPEN else _CLOSED)
    plan.load("B", log)
    plan.append("A", log, plan.open_turn)
    plan.load("B", log)
    plan.hand_over(log)


def _a_load_under_a_stopped_writer(plan: _Plan) -> None:
    log = plan.begun(plan.open_turn)
    plan.signal("A", "stop")
    plan.load("B", log)
    plan.signal("A", "continue")
    plan.append("A", log, "R:c1 SE TE" if plan.open_turn is _OPEN else _CLOSED)
    plan.hand_over(log)


def _another_wrote_since_the_load(plan: _Plan) -> None:
    log = plan.begun()
    plan.load("B", log)
    stale = plan.batch(log)
    plan.append("A", log)
    plan.close("A")
    plan.ask("B", stale)
    plan.load("B", log)
    plan.append("B", log)
    plan.reopen("B")
    plan.load("B", log)


def _another_wrote_and_was_killed(plan: _Plan) -> None:
    log = plan.begun()
    plan.load("B", log)
    stale = plan.batch(log)
    plan.append("A", log)
    plan.signal("A", "kill")
    plan.ask("B", stale)
    plan.load("B", log)
    plan.append("B", log)


def _both_have_loaded(plan: _Plan) -> None:
    log = plan.begun()
    plan.reopen("A")
    plan.load("A", log)
    plan.load("B", log)
    # Whether a load takes the session is the store's affair; one of them has it, or either may.
    first, second = plan.batch(log), plan.batch(log)
    plan.ask("B", first)
    plan.close("B")
    plan.ask("A", second)
    plan.close("A")
    plan.reopen("B")
    plan.load("B", log)


# --- many -----------------------------------------------------------------------------------------


def _one_first_seq_twice(plan: _Plan) -> None:
    log = plan.begun()
    plan.load("B", log)
    stale = plan.batch(log)
    plan.append("A", log)
    plan.ask("B", stale)
    plan.load("B", log)
    plan.append("B", log)
    plan.load("A", log)
    plan.append("A", log)
    plan.close("A")
    plan.reopen("B")
    plan.load("B", log)


def _one_first_seq_at_once(plan: _Plan) -> None:
    log = plan.begun()
    for number in range(_ROUNDS):
        plan.load("A", log)
        plan.load("B", log)
        rivals = plan.batch(log), plan.batch(log)
        order = ("A", "B") if number % 2 else ("B", "A")
        plan.at_once(*zip(order, rivals, strict=True))
        # Which of the two came off is not known here, but they are of one length.
        log.events.extend(rivals[0].events)
        log.turn += 1
    plan.load("A", log)
    plan.append("A", log)
    plan.reopen("B")
    plan.load("B", log)


_PLANS: Final[dict[str, tuple[Callable[[_Plan], None], ...]]] = {
    "MW-1": (
        _a_second_writer_comes,
        _the_first_is_stopped_and_continued,
        _the_first_is_stopped_for_long,
        _the_first_is_stopped_with_an_append_to_make,
        _two_first_flushes_one_after_the_other,
        _two_first_flushes_at_once,
    ),
    "MW-2": (
        _the_holder_is_killed,
        _the_holder_is_killed_and_nobody_has_looked,
        _the_holder_is_killed_and_its_child_lives_on,
    ),
    "MW-3": (_a_load_under_a_live_writer, _a_load_under_a_stopped_writer),
    "MW-4": (_another_wrote_since_the_load, _another_wrote_and_was_killed, _both_have_loaded),
    "MW-5": (_one_first_seq_twice, _one_first_seq_at_once),
}


def writers_plans(seed: int, capabilities: Capabilities) -> list[WritersPlan]:
    """The histories for a store with these claims; the same seed makes the same ones."""
    locked = capabilities.writers == "one-locked"
    plans = []
    for clause, writings in _PLANS.items():
        if capabilities.writers == "one-unchecked" or (clause != "MW-5") != locked:
            continue
        for write in writings:
            name = write.__name__.strip("_").replace("_", "-")
            plan = _Plan(f"{seed}/{name}", capabilities)
            write(plan)
            forks = any(isinstance(one, Signal) and one.kind == "fork" for one in plan.steps)
            plans.append(WritersPlan(name, clause, tuple(plan.steps), forks))
    return plans
