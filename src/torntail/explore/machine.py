"""A Hypothesis state machine over any store: the steps of sessions, and faults that strike them.

    from torntail.explore.machine import session_machine

    TestMyStore = session_machine(open_store).TestCase

Its rules are a session's own steps (create, turn, step, a message with parallel tool calls,
results, chunks, flush, fork, reopen, load, a second store object) and the faults (kill, power cut,
a crash inside the repair, an error of the disk, torn tail, a log cut amid tool calls, seq gap, bit
flip, splice). Each call is made on the store at once and held against a model; at the end the plan
is crashed on some hundreds of disks, so that drawing it is the lesser part of the work. In each run
some kinds of steps and faults are off, so that the others come in more unusual company. Does not
decide how a step is written (`fuzz_work`) or how a plan is tried (`fuzz_trial`).
"""

from __future__ import annotations

import atexit
import sys
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, ClassVar, Final, cast

from hypothesis import HealthCheck, event, settings, target
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from torntail.drive.target import Durability, Factory, Target, target_of
from torntail.explore.fuzz_bench import IMAGES_A_TRIAL, Bench, new_bench
from torntail.explore.fuzz_finding import FuzzFinding
from torntail.explore.fuzz_trial import Reach, Trial
from torntail.explore.fuzz_work import MOST_SESSIONS, Desk, Work
from torntail.explore.script import Script
from torntail.explore.strategies import damages, notes, odd_ids, working_directories
from torntail.explore.witness import describe_steps
from torntail.judge.capabilities import Capabilities
from torntail.judge.history import Damage, Load, Operation, Reopen
from torntail.session import turn_grammar_problem

__all__ = ["KINDS", "SessionMachine", "StoreViolation", "session_machine"]

KINDS: Final = (
    "chunk",
    "crash inside the repair",
    "damage",
    "disk error",
    "fork",
    "kill",
    "load",
    "look",
    "note",
    "odd id",
    "power cut",
    "reopen",
    "second store",
)
"""Kinds of steps and faults of which some are off in each run."""

STEPS: Final = 20
"""How many steps a run has."""

_MOST_DAMAGES: Final = 2
_which = st.integers(0, MOST_SESSIONS - 1)


class StoreViolation(AssertionError):
    """The store broke a clause of the contract; the text tells how."""


class _LiveScript(Script):
    """A script whose operations are carried out as they are written."""

    def __init__(self, seed: str, trial: Trial) -> None:
        super().__init__(seed, trial.bench.target.capabilities)
        self._trial = trial

    def add(self, operation: Operation) -> None:
        super().add(operation)
        self._trial.perform(operation)


class SessionMachine(RuleBasedStateMachine):
    """The machine of one bench; `session_machine` makes a class of it for a store."""

    bench: ClassVar[Callable[[], Bench]]
    reached: ClassVar[Callable[[Trial, Reach], None]] = staticmethod(lambda trial, reach: None)

    def __init__(self) -> None:
        super().__init__()
        self.trial: Trial | None = None
        self.work: Work
        self.off: frozenset[str] = frozenset()
        self.sessions = 1

    @initialize(
        number=st.integers(0, 2**32 - 1),
        off=st.frozensets(st.sampled_from(KINDS), max_size=len(KINDS) // 2),
        batch=st.sampled_from([1, 2, 5, 100]),
        sessions=st.sampled_from([1, 1, 1, 2, MOST_SESSIONS]),
        cwd=working_directories(),
    )
    def begin(
        self, number: int, off: frozenset[str], batch: int, sessions: int, cwd: str | None
    ) -> None:
        """The kinds that are off are chosen, and the first session is announced."""
        bench = type(self).bench()
        self.off = off
        self.sessions = sessions
        self.trial = Trial(bench, f"plan-{number:08x}", number)
        self.work = Work(_LiveScript(f"fuzz/{number}", self.trial), batch=batch)
        self.work.create(cwd)

    # --- what is on -----------------------------------------------------------------------------

    @property
    def capabilities(self) -> Capabilities:
        """What the store claims."""
        assert self.trial is not None
        return self.trial.bench.target.capabilities

    def goes_on(self) -> bool:
        """Whether store and model are still the same, so that more can be asked of the store."""
        return self.trial is not None and not self.trial.judge.lost

    def allows(self, kind: str) -> bool:
        """Whether this kind of step or fault is on in this run, and makes sense for this store."""
        if kind in self.off or not self.goes_on():
            return False
        assert self.trial is not None
        durable = self.capabilities.durability != "none"
        match kind:
            case "reopen" | "damage":
                return durable
            case "second store":
                return durable and bool(self.trial.bench.models)
            case "fork":
                return self.capabilities.forks
            case "kill":
                return "kill" in self.trial.bench.models
            case "power cut":
                return "posix" in self.trial.bench.models
            case "crash inside the repair" | "disk error":
                return bool(self.trial.bench.models)
        return True

    def desk(self, which: int) -> Desk:
        """One of the sessions."""
        return self.work.desks[which % len(self.work.desks)]

    # --- steps of a session ---------------------------------------------------------------------

    @precondition(lambda self: self.goes_on() and len(self.work.desks) < self.sessions)
    @rule(cwd=working_directories())
    def create(self, cwd: str | None) -> None:
        """Another session is announced."""
        self.work.create(cwd)

    @precondition(lambda self: self.allows("second store") and len(self.work.desks) < self.sessions)
    @rule(cwd=working_directories())
    def create_in_a_second_store(self, cwd: str | None) -> None:
        """A second store object of this process announces a session of its own."""
        self.work.second_store()
        self.work.create(cwd, store=1)

    @precondition(goes_on)
    @rule(which=_which, answered=st.booleans())
    def turn(self, which: int, answered: bool) -> None:
        """A turn begins or ends."""
        self.work.turn(self.desk(which), answered=answered)

    @precondition(goes_on)
    @rule(which=_which, answered=st.booleans())
    def step(self, which: int, answered: bool) -> None:
        """A step begins or ends."""
        self.work.step(self.desk(which), answered=answered)

    @precondition(goes_on)
    @rule(which=_which, calls=st.integers(0, 3))
    def message(self, which: int, calls: int) -> None:
        """The assistant says something and asks for tools."""
        self.work.message(self.desk(which), calls)

    @precondition(goes_on)
    @rule(which=_which, count=st.integers(1, 3), backwards=st.booleans())
    def result(self, which: int, count: int, backwards: bool) -> None:
        """Tools answer."""
        self.work.answer(self.desk(which), count, backwards=backwards)

    @precondition(lambda self: self.allows("chunk"))
    @rule(which=_which, count=st.integers(1, 4))
    def chunk(self, which: int, count: int) -> None:
        """Pieces of a stream come."""
        self.work.chunks(self.desk(which), count)

    @precondition(lambda self: self.allows("note"))
    @rule(which=_which, data=st.data())
    def note(self, which: int, data: st.DataObject) -> None:
        """An event of another type, or with odd values."""
        self.work.note(self.desk(which), data.draw(notes(self.capabilities)))

    @precondition(goes_on)
    @rule(which=_which)
    def flush(self, which: int) -> None:
        """What is buffered is appended."""
        self.work.flush(self.desk(which))

    @precondition(lambda self: self.allows("fork") and len(self.work.desks) < MOST_SESSIONS)
    @rule(which=_which)
    def fork(self, which: int) -> None:
        """A child is made of what is stored."""
        self.work.fork(self.desk(which))

    @precondition(lambda self: self.allows("reopen"))
    @rule()
    def reopen(self) -> None:
        """The store is closed and opened again."""
        self.work.reopen()

    @precondition(lambda self: self.allows("load"))
    @rule(which=_which)
    def load(self, which: int) -> None:
        """A session is loaded."""
        self.work.load(self.desk(which))

    @precondition(lambda self: self.allows("look"))
    @rule(which=st.none() | _which, store=st.integers(0, 1))
    def look(self, which: int | None, store: int) -> None:
        """The sessions are listed, or one is inspected, by any store object."""
        desk = None if which is None else self.desk(which)
        self.work.look(desk, store=store % self.work.stores)

    @precondition(lambda self: self.allows("odd id") and not self.work.odd)
    @rule(data=st.data())
    def odd_id(self, data: st.DataObject) -> None:
        """A session whose id has led stores astray."""
        self.work.create_odd(data.draw(odd_ids(self.capabilities)))

    @precondition(lambda self: not self.goes_on())
    @rule()
    def stand_still(self) -> None:
        """The store is not where the model is; nothing further can be asked of it."""

    # --- faults ---------------------------------------------------------------------------------

    @precondition(lambda self: self.allows("kill") or self.allows("power cut"))
    @rule()
    def crash(self) -> None:
        """The process is killed, or power fails, inside the latest call."""
        assert self.trial is not None
        self.trial.points.append(len(self.trial.plan) - 1)

    @precondition(lambda self: self.allows("disk error"))
    @rule()
    def disk_error(self) -> None:
        """The disk says no in some of the calls: full, failing, short writes, failed syncs."""
        assert self.trial is not None
        self.trial.errors += 1

    @precondition(lambda self: self.allows("damage"))
    @rule(which=_which, data=st.data())
    def damage(self, which: int, data: st.DataObject) -> None:
        """Torn tail, cut amid tool calls, gap, flip or splice, after all that is stored by now."""
        assert self.trial is not None
        desk = self.desk(which)
        events = desk.log.events
        if not desk.stored or desk.log.events != self.stored(desk):
            return
        if len(self.trial.damage) < _MOST_DAMAGES:
            amid = tuple(
                index
                for index, one in enumerate(events)
                if one.type in ("tool/call", "tool/result")
            )
            strategy = damages(self.capabilities, desk.log.id, len(events), amid)
            self.trial.strike(_episode(data.draw(strategy), desk))

    def stored(self, desk: Desk) -> list[Any]:
        """The events the model has of a session."""
        assert self.trial is not None
        log = self.trial.judge.model.logs.get(desk.log.id)
        return [] if log is None else log.events()

    # --- what always holds ----------------------------------------------------------------------

    @invariant()
    def what_is_written_is_lawful(self) -> None:
        """The plan itself keeps the turn grammar, so that CR-9 may be asked of its recoveries."""
        if self.trial is not None and self.trial.bench.checks_plans:
            for desk in self.work.desks:
                problem = turn_grammar_problem([*desk.log.events, *desk.buffer])
                assert problem is None, problem

    def teardown(self) -> None:
        """The plan is crashed and damaged, and what it reached is told."""
        trial = self.trial
        if trial is None:
            return
        if isinstance(sys.exc_info()[1], BaseException):
            trial.abandon()
            return
        if self.goes_on():
            self.work.finish()
        if "kill" in self.off:
            trial.models = tuple(model for model in trial.models if model != "kill")
        if "power cut" in self.off:
            trial.models = tuple(model for model in trial.models if model == "kill")
        trial.depth = 0 if "crash inside the repair" in self.off else 2
        reach = trial.finish()
        event(f"sessions: {len(self.work.desks)}")
        event(f"crash depth: {reach.crash_depth // 4 * 4} calls or more")
        event(f"repairs crashed: {reach.repair_depth}")
        target(float(reach.crash_depth), label="crash depth")
        target(float(reach.repair_depth), label="repair depth")
        type(self).reached(trial, reach)


def _episode(damage: Damage, desk: Desk) -> tuple[Operation, ...]:
    """A damage and the loads after it, each load held against the clause it is about."""
    ends = [index for index, one in enumerate(desk.log.events) if one.type == "turn/end"]
    committed = bool(ends) and damage.record <= ends[-1]
    clause = {
        "flip": "DM-7",
        "trail": "DM-4",
        "delete": "DM-1" if committed else "DM-3",
        "duplicate": "DM-1" if committed else "DM-3",
        "renumber": "DM-1" if committed else "DM-3",
        "add": "DM-2",
    }.get(damage.kind, "DM-1" if committed else "DM-2")
    session = desk.log.id
    return (
        damage,
        Load(session=session, probes=(clause,)),
        Load(session=session, probes=(clause,)),
        Reopen(),
        Load(session=session, probes=(clause,)),
    )


def session_machine(
    factory: Factory | Target | str,
    *,
    capabilities: Capabilities | None = None,
    durability: Durability | None = None,
    images: int = IMAGES_A_TRIAL,
) -> type[SessionMachine]:
    """A state machine for a store, which fails with `StoreViolation` where it breaks a clause.

    Its `TestCase` is a test for pytest or unittest, with settings of its own: no deadline, no
    health checks, and `derandomize` as the profile in force says. `images` is about how many
    distinct disks each example loads.

    Raises:
        TargetError: the factory does not lead to a store.
    """
    if isinstance(factory, Target):
        named = factory
    else:
        named = target_of(factory, capabilities=capabilities, durability=durability)
    benches: list[Bench] = []

    def raised(finding: FuzzFinding) -> None:
        raise StoreViolation(_told(finding))

    def bench() -> Bench:
        if not benches:
            stack = ExitStack()
            atexit.register(stack.close)
            benches.append(new_bench(named, stack, found=raised, images=images))
        return benches[0]

    machine: Any = type("StoreMachine", (SessionMachine,), {"bench": staticmethod(bench)})
    machine.TestCase.settings = settings(
        deadline=None,
        suppress_health_check=list(HealthCheck),
        stateful_step_count=STEPS,
        max_examples=100,
    )
    return cast("type[SessionMachine]", machine)


def _told(finding: FuzzFinding) -> str:
    steps = describe_steps(finding.operations, None)
    lines = [f"{finding.clause} violated: {finding.sentence} (model: {finding.model})"]
    lines += [f"  {number}. {step}" for number, step in enumerate(steps, 1)]
    return "\n".join(lines)
