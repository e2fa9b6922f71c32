"""All the disks a recording can leave, each loaded once and judged by what was owed.

Decides which disks of a plan are tried and how far each is followed: every distinct image is
loaded; every distinct disk that a load left is loaded again, listed and continued; of these a
spread is recorded while it is loaded and continued, and crashed in turn, two levels deep (CR-5,
CR-7). Does not decide what a crash may leave (`crash`) or what a recovery should be
(`judge.recovery`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import Literal, NamedTuple

import msgspec

from torntail.crash.crashes import Crash, Images, Left, Moment, image_key, is_mark, moments
from torntail.crash.disk import Disk, DiskImage, Model
from torntail.crash.oplog import Acknowledged, Invoked, Write
from torntail.explore.crash_calls import Recording, further_events
from torntail.explore.crash_counts import count_recovery
from torntail.explore.crash_search import PlanSearch, Violation
from torntail.judge.evidence import evidence_of
from torntail.judge.first_calls import first_call_breaches
from torntail.judge.history import Append, Create, Load, Returned
from torntail.judge.history import Operation as Call
from torntail.judge.ledger import Ledger, ledger_steps
from torntail.judge.recovery import Answer, Breach, Recovery, same_events

__all__ = ["Expansion", "Root"]


@dataclass(frozen=True, slots=True)
class Root:
    """From where a recording is expanded: the disks it began on, and what was owed by then.

    `chain` are the crashes that led there, `before` the calls up to the first of them. `settled` is
    what the first load gave for a disk that no further crash may change (CR-7).
    """

    disks: Mapping[Model, Disk]
    ledger: Ledger
    chain: tuple[Crash, ...] = ()
    before: tuple[Call, ...] = ()
    settled: Mapping[str, Answer] = field(default_factory=dict)


class _Place(NamedTuple):
    """Where in a recording a crash is: its moment, what was owed, the call last begun."""

    moment: Moment
    ledger: Ledger
    call: int


class Expansion:
    """All the disks one recording can leave, at most `limit` new ones under each model."""

    def __init__(self, search: PlanSearch, recording: Recording, root: Root, limit: int) -> None:
        self.search = search
        self.recording = recording
        self.root = root
        self.limit = limit
        self.capabilities = search.calls.capabilities
        self.nested: set[tuple[object, ...]] = set()
        self.begun: set[tuple[object, ...]] = set()
        self.jobs: list[Callable[[], None]] = []
        # How many images came to a recovery that was judged by a ledger: by identity of both.
        self.judged: Counter[tuple[int, int]] = Counter()
        self.pairs: dict[tuple[int, int], tuple[Recovery, Ledger]] = {}
        marks = [
            (operation.call, isinstance(operation, Acknowledged))
            for operation in recording.operations
            if isinstance(operation, Invoked | Acknowledged)
        ]
        self.ledgers = ledger_steps(recording.history, marks, self.capabilities, start=root.ledger)
        self.headers = {
            call.header.id: call.header
            for call in (*search.plan.operations, *root.before)
            if isinstance(call, Create)
        }

    def expand(self) -> None:
        """Visits every moment under every model."""
        seen: set[tuple[int, int]] = set()
        try:
            for model in self.search.models:
                self._expand_under(model, seen)
        finally:
            self._count()
        # Last, so that what a single crash shows is found before what takes two.
        for job in self.jobs:
            job()

    def _expand_under(self, model: Model, seen: set[tuple[int, int]]) -> None:
        """Visits every moment under a model; `seen` are the images, with ledgers, of all models:
        what shows under more than one is told of the strictest.
        """
        search = self.search
        counts, recoveries = search.counts, search.recoveries
        budget = self.limit
        before: tuple[Disk, Ledger] | None = None
        images = Images(model, search.seed)
        for place in self._places(model):
            moment, ledger, _ = place
            counts.moments += 1
            since = None
            if before is not None and ledger is before[1]:
                if moment.disk is before[0]:
                    continue  # An operation that changed nothing, for the same debts.
                since = before[0]
            if moment.torn is None:
                before = moment.disk, ledger
            for left in images.at(moment, since=since):
                counts.images += 1
                key = left.key
                if (key, id(ledger)) in seen:
                    continue
                recovery = recoveries.get(key)
                if recovery is None:
                    if budget <= 0:
                        continue
                    budget -= 1
                    recovery = recoveries[key] = self._recover(left, place)
                seen.add((key, id(ledger)))
                self._judge(recovery, left, place)
            search.tick(counts)

    def _places(self, model: Model) -> Iterator[_Place]:
        """The moments worth a crash, each with the strictest ledger its disk has, and the call.

        A mark changes no disk: an acknowledgement makes the debt stricter, so the moment before it
        is left out; an invocation makes it milder, so the moment after it is.
        """
        operations = self.recording.operations
        step = 0
        call = -1
        tears: Literal["all", "synced"] = "all" if model == "kill" else "synced"
        for moment in moments(self.root.disks[model], operations, tears=tears):
            operation = moment.operation
            if is_mark(operation):
                step += 1
                if isinstance(operation, Invoked):
                    call = operation.call
                    continue
            following = operations[moment.position] if moment.position < len(operations) else None
            if moment.torn is None and isinstance(following, Acknowledged):
                continue
            yield _Place(moment, self.ledgers[step], call)

    # --- one disk -------------------------------------------------------------------------------

    def _recover(self, left: Left, place: _Place) -> Recovery:
        search = self.search
        key, image = left.key, left.image
        search.calls.hold(image)
        search.counts.distinct += 1
        found = search.calls.load_all(search.sessions)
        recovered = search.calls.left()
        if recovered is not None:
            key = image_key(recovered)
        answers = {session: search.one(session, answer, key) for session, answer in found.items()}
        followed = search.followed.get(key)
        if followed is None:
            if recovered is not None:
                search.calls.hold(recovered)
            search.counts.recoveries += 1
            followed = search.followed[key] = search.calls.follow(answers, self.headers)
            self._plan_nesting(image, left.crash, place, answers, repaired=recovered is not None)
        recovery = search.recovery(answers, key, followed)
        # As with nesting, the first of each kind; under whichever model it comes.
        kind = place.call, recovered is not None, _shape(answers)
        if not self.root.chain and kind not in self.begun:
            self.begun.add(kind)
            first_calls = search.calls.first_calls(image, answers, self.headers)
            recovery = msgspec.structs.replace(recovery, first_calls=first_calls)
        return recovery

    def _judge(self, recovery: Recovery, left: Left, place: _Place) -> None:
        _, ledger, call = place
        pair = id(recovery), id(ledger)
        self.judged[pair] += 1
        if pair in self.pairs:
            return
        self.pairs[pair] = recovery, ledger
        root, plan = self.root, self.search.plan
        breaches = [
            *self.search.judge.breaches(recovery, ledger),
            *self._unsettled(recovery, ledger),
        ]
        for breach in breaches or first_call_breaches(recovery, ledger, self.capabilities):
            calls = self.recording.history[: call + 1]
            self.search.found(
                Violation(
                    breach,
                    plan.name,
                    root.before if root.chain else tuple(plan.operations[: call + 1]),
                    (*root.chain, left.crash),
                    tuple(one.operation for one in calls) if root.chain else (),
                    left.image,
                    ledger,
                    evidence_of(recovery, ledger, root.settled, self.capabilities),
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
                or not same_events(answer.session.events, settled.session.events, self.capabilities)
            ):
                yield Breach("CR-7", session, "after a crash inside the repair load differs")

    def _count(self) -> None:
        for pair, times in self.judged.items():
            count_recovery(
                self.search.counts,
                *self.pairs[pair],
                self.search.judge,
                times=times,
                nested=bool(self.root.chain),
            )

    # --- crashing a recovery --------------------------------------------------------------------

    def _plan_nesting(
        self,
        image: DiskImage,
        crash: Crash,
        place: _Place,
        answers: Mapping[str, Answer],
        *,
        repaired: bool,
    ) -> None:
        """Puts a recovery down to be crashed in turn, if it is one of those that are.

        Of the recoveries that follow a crash in one call under one model, the first of each kind is
        taken, by what was found and whether a tail was cut or anything written: they differ most.
        """
        depth = len(self.root.chain) + 1
        kind = (place.call, crash.model, repaired, _shape(answers))
        owed = any(debt.submitted for debt in place.ledger.sessions.values())
        if depth > self.search.limits.depth or kind in self.nested or not owed:
            return
        if depth > 1 and not repaired:
            return
        self.nested.add(kind)
        self.jobs.append(partial(self._nest, image, crash, place, answers))

    def _nest(
        self, image: DiskImage, crash: Crash, place: _Place, answers: Mapping[str, Answer]
    ) -> None:
        """Records the recovery of a disk, and a further append, and crashes that in turn."""
        search = self.search
        depth = len(self.root.chain) + 1
        calls: list[Call] = [Load(session=session) for session in answers]
        for session, answer in answers.items():
            if isinstance(answer, Returned) and answer.session is not None and depth == 1:
                events = further_events(answer.session.events)
                calls.append(Append(session=session, events=events))
        disks = {model: self._disk_for(model, crash, place.moment) for model in search.models}
        search.calls.hold(image)
        recording = search.calls.record(calls, disks[search.models[0]])
        start = Ledger(
            MappingProxyType(
                {
                    session: replace(debt, touched=False, busy="")
                    for session, debt in place.ledger.sessions.items()
                    if debt.submitted
                }
            )
        )
        root = Root(
            disks,
            start,
            (*self.root.chain, crash),
            tuple(search.plan.operations[: place.call + 1]) if depth == 1 else self.root.before,
            answers if crash.model != "kill" or tuple(search.models) == ("kill",) else {},
        )
        Expansion(search, recording, root, search.limits.nested_images).expand()

    def _disk_for(self, model: Model, crash: Crash, moment: Moment) -> Disk:
        """The disk a program finds after a crash, as another model sees it."""
        if crash.model == model:
            return crash.disk_after(moment.disk)
        if crash.model != "kill":
            # All that is left is durable, whichever model took the rest away.
            return replace(crash.disk_after(moment.disk), model=model)
        disk = self.root.disks[model]
        operations = self.recording.operations[: crash.position]
        whole = operations[:-1] if crash.torn else operations
        *_, last = moments(disk, whole, tears="none")
        if crash.torn is None:
            return last.disk
        torn = operations[-1]
        assert isinstance(torn, Write)
        return last.disk.after(msgspec.structs.replace(torn, data=torn.data[: crash.torn]))


def _shape(answers: Mapping[str, Answer]) -> tuple[tuple[bool, bool], ...]:
    """Of each session, whether it was found and whether a tail was cut."""
    return tuple(
        (
            isinstance(answer, Returned) and answer.session is not None,
            isinstance(answer, Returned)
            and answer.session is not None
            and answer.session.repair is not None
            and bool(answer.session.repair.torn_bytes),
        )
        for answer in answers.values()
    )
