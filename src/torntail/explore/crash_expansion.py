"""All the disks a recording can leave, each loaded once and judged by what was owed.

Decides which disks of a plan are tried and how far each is followed: every distinct image is
loaded; every distinct disk that a load left is loaded again, listed and continued; of these a
spread is recorded while it is loaded and continued, and crashed in turn, two levels deep (CR-5,
CR-7). Does not decide what a crash may leave (`crash`) or what a recovery should be
(`judge.recovery`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

import msgspec

from torntail.crash.crashes import Crash, Images, Left, image_key
from torntail.crash.disk import Disk, DiskImage, Model
from torntail.explore.crash_calls import Recording, further_events
from torntail.explore.crash_counts import count_recovery
from torntail.explore.crash_places import (
    SPARSE_IMAGES,
    Place,
    disk_after_crash,
    ledgers_of,
    places_of,
    sparse_places,
    spread,
)
from torntail.explore.crash_search import PlanSearch, Violation
from torntail.judge.evidence import evidence_of, recovery_breaches
from torntail.judge.history import Append, Create, Load, Returned
from torntail.judge.history import Operation as Call
from torntail.judge.ledger import Ledger, after_crash
from torntail.judge.recovery import Answer, Recovery

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


class Expansion:
    """All the disks one recording can leave, at most `limit` new ones under each model."""

    def __init__(self, search: PlanSearch, recording: Recording, root: Root, limit: int) -> None:
        self.search = search
        self.recording = recording
        self.root = root
        self.limit = limit
        # The calls after a crash are few, and the plan does not number them.
        self.sparse = bool(search.plan.crashed) and not root.chain
        self.capabilities = search.calls.capabilities
        self.nested: set[tuple[object, ...]] = set()
        self.begun: set[tuple[object, ...]] = set()
        self.jobs: list[Callable[[], None]] = []
        # How many images came to a recovery that was judged by a ledger: by identity of both.
        self.judged: Counter[tuple[int, int]] = Counter()
        self.pairs: dict[tuple[int, int], tuple[Recovery, Ledger]] = {}
        self.ledgers = ledgers_of(recording, self.capabilities, root.ledger)
        self.headers = {
            call.header.id: call.header
            for call in (*search.plan.operations, *root.before)
            if isinstance(call, Create)
        }

    def expand(self) -> None:
        """Visits every moment under every model."""
        seen: set[tuple[int, int]] = set()
        try:
            # Where the search is about to end, each model gets a part of what is left, and so do
            # the crashes of recoveries.
            kept = self.search.left() // 3 if self.search.limits.depth else 0
            for number, model in enumerate(self.search.models):
                left = max(0, self.search.left() - kept)
                share = -(-left // (len(self.search.models) - number))
                self._expand_under(model, seen, min(self.limit, share))
        finally:
            self._count()
        # Last, so that what a single crash shows is found before what takes two.
        for job in self.jobs:
            if self.search.left():
                job()

    def _expand_under(self, model: Model, seen: set[tuple[int, int]], budget: int) -> None:
        """Visits every moment under a model; `seen` are the images, with ledgers, of all models:
        what shows under more than one is told of the strictest.
        """
        search = self.search
        counts, recoveries = search.counts, search.recoveries
        before: tuple[Disk, Ledger] | None = None
        images = Images(model, search.seed)
        for place in self._places(model):
            moment, ledger, _ = place
            counts.moments += 1
            since = None
            if before is not None and ledger is before[1] and not self.sparse:
                if moment.disk is before[0]:
                    continue  # An operation that changed nothing, for the same debts.
                since = before[0]
            if moment.torn is None:
                before = moment.disk, ledger
            found: Iterable[Left] = images.at(moment, since=since)
            for left in spread(found, SPARSE_IMAGES) if self.sparse else found:
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

    def _places(self, model: Model) -> Iterator[Place]:
        """The moments worth a crash."""
        places = places_of(self.root.disks[model], model, self.recording.operations, self.ledgers)
        return sparse_places(places, self.search.plan.crashed) if self.sparse else places

    # --- one disk -------------------------------------------------------------------------------

    def _recover(self, left: Left, place: Place) -> Recovery:
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
            headers = {
                session: header
                for session, header in self.headers.items()
                if session in answers and search.goes_on(session, answers[session])
            }
            followed = search.followed[key] = search.calls.follow(answers, headers)
            self._plan_nesting(image, left.crash, place, answers, repaired=recovered is not None)
        recovery = search.recovery(answers, key, followed)
        # As with nesting, the first of each kind; under whichever model it comes.
        kind = place.call, recovered is not None, _shape(answers)
        if not self.root.chain and kind not in self.begun:
            self.begun.add(kind)
            first_calls = search.calls.first_calls(image, answers, self.headers)
            recovery = msgspec.structs.replace(recovery, first_calls=first_calls)
        return recovery

    def _judge(self, recovery: Recovery, left: Left, place: Place) -> None:
        _, ledger, call = place
        pair = id(recovery), id(ledger)
        self.judged[pair] += 1
        if pair in self.pairs:
            return
        self.pairs[pair] = recovery, ledger
        root, plan = self.root, self.search.plan
        for breach in recovery_breaches(self.search.judge, recovery, ledger, root.settled):
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
        place: Place,
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
        self, image: DiskImage, crash: Crash, place: Place, answers: Mapping[str, Answer]
    ) -> None:
        """Records the recovery of a disk, and a further append, and crashes that in turn."""
        search = self.search
        depth = len(self.root.chain) + 1
        calls: list[Call] = [Load(session=session) for session in answers]
        for session, answer in answers.items():
            if isinstance(answer, Returned) and answer.session is not None and depth == 1:
                events = further_events(answer.session.events)
                calls.append(Append(session=session, events=events))
        operations = self.recording.operations
        disks = {
            model: disk_after_crash(crash, place.moment, model, begun, operations)
            for model, begun in self.root.disks.items()
        }
        search.calls.hold(image)
        recording = search.calls.record(calls, disks[search.models[0]])
        root = Root(
            disks,
            after_crash(place.ledger),
            (*self.root.chain, crash),
            tuple(search.plan.operations[: place.call + 1]) if depth == 1 else self.root.before,
            answers if crash.model != "kill" or tuple(search.models) == ("kill",) else {},
        )
        Expansion(search, recording, root, search.limits.nested_images).expand()


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
