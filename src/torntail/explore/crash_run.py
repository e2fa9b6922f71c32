"""One plan, crashed everywhere: record it, expand its op log, load every disk, judge.

Decides which disks of a plan are tried and how far each is followed: every distinct image is
loaded; every distinct disk that a load left is loaded again, listed and continued; of these a
spread is recorded while it is loaded and continued, and crashed in turn, two levels deep (CR-5,
CR-7). Does not decide what a crash may leave (`crash`) or what a recovery should be
(`judge.recovery`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import msgspec

from torntail.crash.crashes import Crash, Images, Moment, crashes, is_mark, moments
from torntail.crash.disk import Disk, DiskImage, Model
from torntail.crash.oplog import Acknowledged, Invoked, Operation, Write
from torntail.drive.inline_store import InlineStore
from torntail.drive.target import Target
from torntail.explore.script import Case
from torntail.judge.history import (
    Append,
    Create,
    History,
    Load,
    Observation,
    Reopen,
    Returned,
)
from torntail.judge.history import Operation as Call
from torntail.judge.ledger import Ledger, ledger_steps
from torntail.judge.recovery import (
    Answer,
    Breach,
    Continuation,
    Recovery,
    RecoveryJudge,
    same_events,
)
from torntail.record.inprocess import Recorder
from torntail.record.slots import Slot
from torntail.session import SessionEvent, SessionHeader

__all__ = ["Counts", "CrashRun", "Limits", "Recording", "Violation"]

_EMPTY: Final = DiskImage({}, frozenset())


@dataclass(frozen=True, slots=True)
class Limits:
    """How far a plan is followed: images of it, images of each recovery, crashes in a row."""

    images: int = 4_000
    nested_images: int = 200
    depth: int = 2


@dataclass(slots=True)
class Counts:
    """How much was done; `share_seconds` are spent per stage where a clock is given."""

    plans: int = 0
    moments: int = 0
    images: int = 0
    distinct: int = 0
    recoveries: int = 0
    executed: dict[str, int] = field(default_factory=dict)
    situations: dict[str, int] = field(default_factory=dict)

    def met(self, situation: str) -> None:
        """A situation occurred."""
        self.situations[situation] = self.situations.get(situation, 0) + 1

    def ran(self, *clauses: str) -> None:
        """Clauses were put to the test."""
        for clause in clauses:
            self.executed[clause] = self.executed.get(clause, 0) + 1


@dataclass(frozen=True, slots=True)
class Violation:
    """A breach with all it takes to see it again.

    `chain` are the crashes one after the other, the last leaving `image`; `calls` the plan up to
    the first of them; `recovery_calls` what was called between two crashes.
    """

    breach: Breach
    plan: str
    calls: tuple[Call, ...]
    chain: tuple[Crash, ...]
    recovery_calls: tuple[Call, ...]
    image: DiskImage
    ledger: Ledger

    @property
    def model(self) -> Model:
        """The weakest promise of a disk that shows it."""
        return self.chain[-1].model


@dataclass(frozen=True, slots=True)
class Recording:
    """A history with the file operations it caused."""

    operations: tuple[Operation, ...]
    history: History


@dataclass(frozen=True, slots=True)
class _Root:
    """From where a recording is expanded: the disks it began on, and what was owed by then."""

    disks: Mapping[Model, Disk]
    ledger: Ledger
    plan: Case
    chain: tuple[Crash, ...] = ()
    before: tuple[Call, ...] = ()
    # What the first load gave for a disk that no further crash may change (CR-7).
    settled: Mapping[str, Answer] = field(default_factory=dict)
    # A store's answer depends on the disk alone, whatever led to it: one for the whole plan.
    recoveries: dict[int, Recovery] = field(default_factory=dict)
    followed: dict[int, Any] = field(default_factory=dict)


class CrashRun:
    """Crashes plans of one target; `found` is called with every violation, `tick` now and then."""

    def __init__(
        self,
        target: Target,
        slot: Slot,
        models: Sequence[Model],
        *,
        seed: int = 0,
        limits: Limits | None = None,
        found: Callable[[Violation], None],
        tick: Callable[[Counts], None] = lambda counts: None,
        began: Callable[[], object] = lambda: None,
    ) -> None:
        self.target = target
        self.capabilities = target.capabilities
        self.slot = slot
        self.root = Path(slot.path)
        self.models = tuple(models)
        self.seed = seed
        self.limits = limits or Limits()
        self.counts = Counts()
        self.found = found
        self.tick = tick
        self.began = began

    # --- a plan ---------------------------------------------------------------------------------

    def run(self, plan: Case) -> None:
        """Records a plan and crashes it; raises what the recorder raises for an unseen write."""
        self.slot.hold(_EMPTY)
        recording = self.record(plan.operations, None)
        self.counts.plans += 1
        root = _Root({model: Disk(model) for model in self.models}, Ledger(), plan)
        sessions = _sessions_of(plan.operations)
        _Expansion(self, recording, root, sessions, self.limits.images).expand()

    def record(self, calls: Sequence[Call], disk: Disk | None) -> Recording:
        """Makes calls on the store in the slot, recording its file operations."""
        self.began()
        history: list[Observation] = []
        store: InlineStore | None = None
        with Recorder(self.slot.path, disk) as recorder:
            for index, call in enumerate(calls):
                recorder.mark(Invoked(index))
                if isinstance(call, Reopen) and store is not None:
                    store.close()
                    store = None
                if store is None:
                    store = InlineStore(self.target.factory, self.root)
                outcome = self._call(store, call)
                history.append(Observation(call, outcome))
                recorder.mark(Acknowledged(index))
            if store is not None:
                store.close()
            recorder.check()
        return Recording(tuple(recorder.operations), tuple(history))

    def _call(self, store: InlineStore, call: Call) -> Any:
        if not isinstance(store.opened, Returned):
            return store.opened
        match call:
            case Create(header=header):
                if self.capabilities.creates == "implicit":
                    return Returned()
                return store.create(header)
            case Append(session=session, events=events):
                return store.append(session, events)
            case Load(session=session):
                return store.load(session)
        return Returned()

    # --- one disk -------------------------------------------------------------------------------

    def load_all(self, sessions: Sequence[str]) -> dict[str, Answer]:
        """A fresh store object's answers for each session of the disk in the slot."""
        self.began()
        store = InlineStore(self.target.factory, self.root)
        if not isinstance(store.opened, Returned):
            return dict.fromkeys(sessions, store.opened)
        answers: dict[str, Answer] = {session: store.load(session) for session in sessions}
        store.close()
        return answers

    def follow(
        self, answers: Mapping[str, Answer], headers: Mapping[str, SessionHeader]
    ) -> tuple[Mapping[str, Answer], tuple[str, ...], Answer | None, dict[str, Continuation]]:
        """What becomes of a recovered disk: loaded again, listed, and gone on with."""
        listed: Answer | None = None
        store = InlineStore(self.target.factory, self.root)
        again = {session: store.load(session) for session in answers}
        if self.capabilities.lists:
            listed = store.list()
        store.close()
        changed = self.slot.changed()
        continued = {
            session: self._continue(session, answer, headers[session])
            for session, answer in answers.items()
            if session in headers
        }
        return again, changed, listed, continued

    def _continue(self, session: str, answer: Answer, header: SessionHeader) -> Continuation:
        store = InlineStore(self.target.factory, self.root)
        created = wrong = None
        before: Sequence[SessionEvent] = ()
        if isinstance(answer, Returned) and answer.session is not None:
            before = answer.session.events
        elif self.capabilities.creates == "explicit":
            created = store.create(header)
        events = further_events(before)
        if self.capabilities.checks_seq and before:
            wrong = store.append(session, further_events(before[:-1]))
        appended = store.append(session, events)
        store.close()
        store = InlineStore(self.target.factory, self.root)
        loaded = store.load(session)
        store.close()
        return Continuation(events, appended, loaded, wrong, created)


class _Expansion:
    """All the disks one recording can leave, each loaded once."""

    def __init__(
        self, run: CrashRun, recording: Recording, root: _Root, sessions: Sequence[str], limit: int
    ) -> None:
        self.run = run
        self.recording = recording
        self.root = root
        self.sessions = sessions
        self.limit = limit
        self.recoveries = root.recoveries
        self.followed = root.followed
        self.nested: set[tuple[int, Model, bool]] = set()
        self.jobs: list[Callable[[], None]] = []
        self.judge = RecoveryJudge(run.capabilities)
        marks = [
            (operation.call, isinstance(operation, Acknowledged))
            for operation in recording.operations
            if isinstance(operation, Invoked | Acknowledged)
        ]
        self.ledgers = ledger_steps(recording.history, marks, run.capabilities, start=root.ledger)
        self.headers = {
            call.header.id: call.header
            for call in (*root.plan.operations, *root.before)
            if isinstance(call, Create)
        }

    def expand(self) -> None:
        """Visits every moment under every model."""
        for model in self.run.models:
            judged: set[tuple[int, int]] = set()
            budget = self.limit
            before: tuple[Disk, Ledger] | None = None
            for moment, ledger, call in self._moments(model):
                self.run.counts.moments += 1
                since = None
                if before is not None and ledger is before[1]:
                    if moment.disk is before[0]:
                        continue  # An operation that changed nothing, for the same debts.
                    since = before[0]
                if moment.torn is None:
                    before = moment.disk, ledger
                images = Images(moment.disk)
                for crash in crashes(moment, model, self.run.seed, since=since):
                    self.run.counts.images += 1
                    image = images.of(crash)
                    key = hash(image)
                    if (key, id(ledger)) in judged:
                        continue
                    judged.add((key, id(ledger)))
                    if key not in self.recoveries:
                        if budget <= 0:
                            continue
                        budget -= 1
                    self._judge(key, image, crash, moment, ledger, call)
                self.run.tick(self.run.counts)
        # Last, so that what a single crash shows is found before what takes two.
        for job in self.jobs:
            job()

    def _moments(self, model: Model) -> Iterator[tuple[Moment, Ledger, int]]:
        """The moments worth a crash, each with the strictest ledger its disk has, and the call.

        A mark changes no disk: an acknowledgement makes the debt stricter, so the moment before it
        is left out; an invocation makes it milder, so the moment after it is.
        """
        operations = self.recording.operations
        step = 0
        call = -1
        for moment in moments(self.root.disks[model], operations, tears=True):
            operation = moment.operation
            if is_mark(operation):
                step += 1
                if isinstance(operation, Invoked):
                    call = operation.call
                    continue
            following = operations[moment.position] if moment.position < len(operations) else None
            if moment.torn is None and isinstance(following, Acknowledged):
                continue
            yield moment, self.ledgers[step], call

    def _judge(
        self, key: int, image: DiskImage, crash: Crash, moment: Moment, ledger: Ledger, call: int
    ) -> None:
        recovery = self.recoveries.get(key)
        if recovery is None:
            recovery = self.recoveries[key] = self._recover(image, crash, moment, ledger, call)
        self._count(recovery, ledger)
        breaches = list(self.judge.breaches(recovery, ledger))
        breaches += self._unsettled(recovery, ledger)
        for breach in breaches:
            calls = self.root.plan.operations if not self.root.chain else self.root.before
            self.run.found(
                Violation(
                    breach,
                    self.root.plan.name,
                    tuple(calls[: call + 1]) if not self.root.chain else self.root.before,
                    (*self.root.chain, crash),
                    tuple(o.operation for o in self.recording.history[: call + 1])
                    if self.root.chain
                    else (),
                    image,
                    ledger,
                )
            )

    def _unsettled(self, recovery: Recovery, ledger: Ledger) -> Iterator[Breach]:
        """Crashes inside a repair that end in another log than the first load gave (CR-7)."""
        for session, settled in self.root.settled.items():
            debt = ledger.sessions.get(session)
            if debt is None or debt.busy not in ("repair", "load"):
                continue
            answer = recovery.loads.get(session)
            if not isinstance(settled, Returned) or settled.session is None:
                continue
            if (
                not isinstance(answer, Returned)
                or answer.session is None
                or not same_events(
                    answer.session.events, settled.session.events, self.run.capabilities
                )
            ):
                yield Breach("CR-7", session, "after a crash inside the repair load differs")

    def _recover(
        self, image: DiskImage, crash: Crash, moment: Moment, ledger: Ledger, call: int
    ) -> Recovery:
        run = self.run
        run.slot.hold(image)
        run.counts.distinct += 1
        answers = run.load_all(self.sessions)
        changed = run.slot.changed()
        recovered = run.slot.image() if changed else image
        key = hash(recovered)
        followed = self.followed.get(key)
        if followed is None:
            if changed:
                run.slot.hold(recovered)
            run.counts.recoveries += 1
            followed = self.followed[key] = (answers, *run.follow(answers, self.headers))
            self._plan_nesting(image, crash, moment, ledger, answers, call, repaired=bool(changed))
        first, again, changed_again, listed, continued = followed
        return Recovery(_sharing(answers, first), again, changed_again, listed, continued)

    def _plan_nesting(
        self,
        image: DiskImage,
        crash: Crash,
        moment: Moment,
        ledger: Ledger,
        answers: Mapping[str, Answer],
        call: int,
        *,
        repaired: bool,
    ) -> None:
        """Puts a recovery down to be crashed in turn, if it is one of those that are.

        Of the recoveries that follow a crash in one call under one model, the first that wrote and
        the first that did not are taken: they differ most.
        """
        run = self.run
        depth = len(self.root.chain) + 1
        kind = (call, crash.model, repaired)
        owed = any(debt.submitted for debt in ledger.sessions.values())
        if depth > run.limits.depth or kind in self.nested or not owed:
            return
        if depth > 1 and not repaired:
            return
        self.nested.add(kind)
        self.jobs.append(partial(self._nest, image, crash, moment, ledger, answers, call))

    def _nest(
        self,
        image: DiskImage,
        crash: Crash,
        moment: Moment,
        ledger: Ledger,
        answers: Mapping[str, Answer],
        call: int,
    ) -> None:
        """Records the recovery of a disk, and a further append, and crashes that in turn."""
        run = self.run
        depth = len(self.root.chain) + 1
        calls: list[Call] = [Load(session=session) for session in answers]
        for session, answer in answers.items():
            if isinstance(answer, Returned) and answer.session is not None and depth == 1:
                events = further_events(answer.session.events)
                calls.append(Append(session=session, events=events))
        disks = {model: _disk_for(model, crash, moment, self) for model in run.models}
        run.slot.hold(image)
        recording = run.record(calls, disks[run.models[0]])
        start = Ledger(
            MappingProxyType(
                {
                    session: replace(debt, touched=False, busy="")
                    for session, debt in ledger.sessions.items()
                    if debt.submitted
                }
            )
        )
        settled = answers if crash.model != "kill" or run.models == ("kill",) else {}
        before = tuple(self.root.plan.operations[: call + 1]) if depth == 1 else self.root.before
        root = _Root(
            disks,
            start,
            self.root.plan,
            (*self.root.chain, crash),
            before,
            settled,
            self.recoveries,
            self.followed,
        )
        _Expansion(run, recording, root, self.sessions, run.limits.nested_images).expand()

    def _count(self, recovery: Recovery, ledger: Ledger) -> None:
        counts = self.run.counts
        for session, answer in recovery.loads.items():
            debt = ledger.sessions.get(session)
            if debt is None:
                continue
            counts.ran("CR-2", "CR-3", "CR-4", "CR-5", "CR-6", "CR-11")
            if debt.acknowledged:
                counts.ran("CR-1")
                counts.met("a crash after an acknowledgement")
            if self.run.capabilities.atomic_batch:
                counts.ran("CR-8")
            if debt.busy in ("create", "first flush"):
                counts.ran("CR-10")
                if debt.busy == "first flush":
                    counts.met("a crash inside a first flush")
            if self.root.chain and debt.busy == "repair":
                counts.ran("CR-7")
                counts.met("a crash inside a repair")
            if debt.busy in ("append", "first flush"):
                begun = len(debt.submitted) - debt.acknowledged
                if begun > 1:
                    counts.met("a crash inside a batch")
            if session in recovery.again:
                counts.met("a recovered disk was loaded again")
            if session in recovery.continued:
                counts.met("a recovered session went on")
            if not isinstance(answer, Returned) or answer.session is None:
                continue
            events = answer.session.events
            if len(events) < len(debt.submitted):
                counts.met("a crash that lost what was not acknowledged")
            closers = self.judge.closers(debt.submitted, len(debt.submitted))
            if closers:
                counts.met("a turn was open at a crash")
            if len(closers) > 2:
                counts.met("a call was open at a crash")
            if self.run.capabilities.profile == "session":
                counts.ran("CR-9")
            repair = answer.session.repair
            if repair is not None and repair.torn_bytes:
                counts.met("a torn tail was recovered")


def _sharing(answers: dict[str, Answer], earlier: Mapping[str, Answer]) -> dict[str, Answer]:
    """The answers, with the events of earlier ones where they are equal: many images of a plan
    recover to one log, which need not be kept for each.
    """
    shared: dict[str, Answer] = {}
    for session, answer in answers.items():
        other = earlier[session]
        if (
            isinstance(answer, Returned)
            and isinstance(other, Returned)
            and answer.session is not None
            and other.session is not None
            and answer.session.events == other.session.events
        ):
            kept = msgspec.structs.replace(answer.session, events=other.session.events)
            answer = Returned(session=kept)
        shared[session] = answer
    return shared


def further_events(before: Sequence[SessionEvent]) -> tuple[SessionEvent, ...]:
    """A little more work behind a log: a closed turn and the beginning of another."""
    turn = sum(event.type == "turn/start" for event in before) + 1
    time = before[-1].time if before else 0
    shapes: list[tuple[str, dict[str, Any]]] = [
        ("turn/start", {"turn": turn, "trigger": {"kind": "injection"}}),
        ("turn/end", {"turn": turn, "reason": {"kind": "completed"}}),
        ("turn/start", {"turn": turn + 1, "trigger": {"kind": "injection"}}),
    ]
    return tuple(
        SessionEvent(kind, len(before) + index, time, data)
        for index, (kind, data) in enumerate(shapes)
    )


def _disk_for(model: Model, crash: Crash, moment: Moment, expansion: _Expansion) -> Disk:
    """The disk a program finds after a crash, as another model sees it."""
    if crash.model == model:
        return crash.disk_after(moment.disk)
    if crash.model != "kill":
        # All that is left is durable, whichever model took the rest away.
        return replace(crash.disk_after(moment.disk), model=model)
    disk = expansion.root.disks[model]
    operations = expansion.recording.operations[: crash.position]
    *_, last = moments(disk, operations[:-1] if crash.torn else operations, tears=False)
    if crash.torn is None:
        return last.disk
    torn = operations[-1]
    assert isinstance(torn, Write)
    return last.disk.after(msgspec.structs.replace(torn, data=torn.data[: crash.torn]))


def _sessions_of(calls: Sequence[Call]) -> list[str]:
    return list(
        dict.fromkeys(
            call.header.id if isinstance(call, Create) else call.session
            for call in calls
            if isinstance(call, Create | Append | Load)
        )
    )
