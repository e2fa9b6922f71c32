"""Crash faults carried out: the plan recorded, cut off where the scenario says, loaded, judged.

Decides which disks are tried: the very crash that was recorded, on a store whose file operations up
to it are the same, else every crash of that model in that call, the strictest first, up to a count.
Of several crashes each but the last is followed for a few disks only. Does not decide what a crash
may leave (`crash`) or what a recovery owes (`judge.recovery`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from torntail.crash.crashes import Crash, Images
from torntail.crash.disk import EMPTY_IMAGE, Disk, DiskImage, Model
from torntail.explore.crash_calls import CrashCalls, Followed, Recording, sessions_of
from torntail.explore.crash_places import Place, disk_after_crash, ledgers_of, places_of
from torntail.judge.evidence import recovery_breaches
from torntail.judge.history import Append, Create, Refused, Returned
from torntail.judge.history import Operation as Call
from torntail.judge.ledger import Ledger, after_crash
from torntail.judge.recovery import Answer, Breach, Recovery, RecoveryJudge
from torntail.scenarios.format import CrashFault
from torntail.scenarios.outcome import image_digest, operations_digest

__all__ = ["CrashLimits", "CrashReplay", "CrashSight", "NotLanded", "Stage", "Strike"]


class NotLanded(Exception):
    """A fault did not strike, so that nothing is proven; `index` is the fault's."""

    def __init__(self, index: int, reason: str) -> None:
        super().__init__(reason)
        self.index = index


@dataclass(frozen=True, slots=True)
class CrashLimits:
    """How many distinct disks are loaded, and how many are followed into a further crash."""

    images: int = 1_500
    followed: int = 6


@dataclass(frozen=True, slots=True)
class CrashSight:
    """One disk that was loaded: the crashes that left it, what was owed, what came, the breaches.

    `recordings` are those of the plan and of each recovery that was struck; `settled` is what the
    first load gave for a disk that no further crash may change.
    """

    chain: tuple[Crash, ...]
    image: DiskImage
    ledger: Ledger
    recovery: Recovery
    breaches: tuple[Breach, ...]
    recordings: tuple[Recording, ...]
    settled: Mapping[str, Answer]


@dataclass(frozen=True, slots=True)
class Stage:
    """Where a fault strikes: the image the process finds, its disks, what is owed, what was done.

    `settled` is what the first load gave for a disk that no further crash may change (CR-7).
    """

    image: DiskImage
    disks: Mapping[Model, Disk]
    ledger: Ledger
    chain: tuple[Crash, ...] = ()
    recordings: tuple[Recording, ...] = ()
    settled: Mapping[str, Answer] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Strike:
    """A crash that can happen, what it leaves, and what is owed then."""

    crash: Crash
    image: DiskImage
    place: Place


class CrashReplay:
    """Carries out the crash faults of one scenario; `seen` gets every disk that was loaded."""

    def __init__(
        self,
        plan: Sequence[Call],
        faults: Sequence[CrashFault],
        calls: CrashCalls,
        seen: Callable[[CrashSight], None],
        limits: CrashLimits | None = None,
    ) -> None:
        self.faults = list(faults)
        self.plan = plan
        self.calls = calls
        self.seen = seen
        self.limits = limits or CrashLimits()
        self.models: list[Model] = list(dict.fromkeys(fault.model for fault in self.faults))
        self.images = 0
        self.landed = [False] * len(self.faults)
        # The first recording of each call that is struck: a scenario saved anew refers to these.
        self.first_recordings: list[Recording] = []
        self._digest = hashlib.sha256()
        self._sessions = sessions_of((*self.plan, *(c for f in self.faults for c in f.recovery)))
        self._headers = {
            call.header.id: call.header for call in self.plan if isinstance(call, Create)
        }
        self._recoveries: dict[int, tuple[Recovery, DiskImage]] = {}
        self._followed: dict[int, Followed] = {}
        # The judge knows debts and answers by their identity, so that they are kept.
        self._judge = RecoveryJudge(calls.capabilities)
        self._kept: list[object] = []

    @property
    def digest(self) -> str:
        """That of all images loaded, in order."""
        return self._digest.hexdigest()

    def run(self) -> None:
        """Strikes with the first fault, and so on; raises `NotLanded` and `RecordingFailed`."""
        disks = {model: Disk(model) for model in self.models}
        self._strike(0, Stage(EMPTY_IMAGE, disks, Ledger()), self.plan)

    # --- one fault ------------------------------------------------------------------------------

    def _strike(self, index: int, stage: Stage, calls: Sequence[Call]) -> None:
        fault = self.faults[index]
        self.calls.hold(stage.image)
        first = stage.disks[self.models[0]] if index else None
        recording = self.calls.record(calls[: fault.during + 1], first)
        if len(self.first_recordings) == index:
            self.first_recordings.append(recording)
        self._check_calls(index, recording)
        strikes = self.strikes(fault, stage, recording)
        last = index == len(self.faults) - 1
        if not last:
            strikes = iter(_spread([*strikes], self.limits.followed))
        stage = replace(stage, recordings=(*stage.recordings, recording))
        struck = False
        for strike in strikes:
            if self.images >= self.limits.images:
                break
            struck = self.landed[index] = True
            recovery, answers = self._recover(strike.image)
            if last:
                self._look(strike, stage, recovery)
            else:
                disks = {
                    model: disk_after_crash(
                        strike.crash, strike.place.moment, model, begun, recording.operations
                    )
                    for model, begun in stage.disks.items()
                }
                settled = self._is_settled(index, strike)
                following = Stage(
                    strike.image,
                    disks,
                    after_crash(strike.place.ledger),
                    (*stage.chain, strike.crash),
                    stage.recordings,
                    answers if settled else {},
                )
                self._kept.append(following)
                self._strike(index + 1, following, self.recovery(index + 1, answers))
        if not struck and not any(self.landed[index:]):
            where = f"call {fault.during + 1}" if fault.during >= 0 else "the opening"
            raise NotLanded(index, f"no crash under {fault.model} is possible in {where}")

    def _check_calls(self, index: int, recording: Recording) -> None:
        """A call that was refused was not crashed inside."""
        fault = self.faults[index]
        if fault.during < 0:
            return
        outcome = recording.history[fault.during].outcome
        if isinstance(outcome, Refused):
            what = f"call {fault.during + 1}, in which the crash falls, was refused: {outcome.text}"
            if index == 0:
                raise NotLanded(index, what)

    def _is_settled(self, index: int, strike: Strike) -> bool:
        """Whether no later crash may take away what this disk holds."""
        later = {fault.model for fault in self.faults[index + 1 :]}
        return strike.crash.model != "kill" or later == {"kill"}

    # --- which crashes --------------------------------------------------------------------------

    def recovery(self, index: int, answers: Mapping[str, Answer]) -> tuple[Call, ...]:
        """What the process calls that the fault of that index strikes."""
        return _continued(self.faults[index].recovery, answers)

    def strikes(self, fault: CrashFault, stage: Stage, recording: Recording) -> Iterator[Strike]:
        """The crashes to be tried in the call that a fault strikes, the strictest first."""
        exact = self._exact(fault, stage, recording)
        if exact is not None:
            yield exact
            return
        seen: set[tuple[int, int]] = set()
        images = Images(fault.model)
        for place in self.places(fault.model, stage, recording):
            if place.call != fault.during:
                continue
            for left in images.at(place.moment):
                key = left.key, id(place.ledger)
                if key not in seen:
                    seen.add(key)
                    yield Strike(left.crash, left.image, place)

    def _exact(self, fault: CrashFault, stage: Stage, recording: Recording) -> Strike | None:
        """The crash that was recorded, if this store did the same up to it."""
        crash = fault.crash
        operations = recording.operations
        if crash is None or not 0 <= crash.position <= len(operations):
            return None
        if operations_digest(operations[: crash.position]) != fault.operations:
            return None
        for place in self.places(fault.model, stage, recording, begun=True):
            moment = place.moment
            if (moment.position, moment.torn) == (crash.position, crash.torn):
                if place.call != fault.during or not _possible(crash, moment.disk):
                    return None
                return Strike(crash, crash.image(moment.disk), place)
        return None

    def places(
        self, model: Model, stage: Stage, recording: Recording, *, begun: bool = False
    ) -> Iterator[Place]:
        """The moments worth a crash, each with what is owed by then and the call it is in.

        `begun`: also those at which a call has begun and done nothing, as a recorded crash may be.
        """
        ledgers = ledgers_of(recording, self.calls.capabilities, stage.ledger)
        self._kept.append(ledgers)
        return places_of(stage.disks[model], model, recording.operations, ledgers, begun=begun)

    # --- what comes of a disk -------------------------------------------------------------------

    def _recover(self, image: DiskImage) -> tuple[Recovery, Mapping[str, Answer]]:
        key = hash(image)
        known = self._recoveries.get(key)
        if known is not None:
            return known[0], known[0].loads
        self.images += 1
        self._digest.update(image_digest(image).encode("ascii"))
        self.calls.hold(image)
        answers = self.calls.load_all(self._sessions)
        left = self.calls.left()
        left_key = key if left is None else hash(left)
        followed = self._followed.get(left_key)
        if followed is None:
            if left is not None:
                self.calls.hold(left)
            followed = self._followed[left_key] = self.calls.follow(answers, self._headers)
        again, changed, listed, continued = followed
        first_calls = self.calls.first_calls(image, answers, self._headers)
        recovery = Recovery(answers, again, changed, listed, continued, first_calls)
        self._recoveries[key] = recovery, image
        return recovery, answers

    def _look(self, strike: Strike, stage: Stage, recovery: Recovery) -> None:
        ledger = strike.place.ledger
        breaches = recovery_breaches(self._judge, recovery, ledger, stage.settled)
        self.seen(
            CrashSight(
                (*stage.chain, strike.crash),
                strike.image,
                ledger,
                recovery,
                tuple(breaches),
                stage.recordings,
                stage.settled,
            )
        )


def _continued(calls: Sequence[Call], answers: Mapping[str, Answer]) -> tuple[Call, ...]:
    """The calls of a recovery, what they append numbered on from what the session holds now."""
    lengths = {
        session: len(answer.session.events)
        for session, answer in answers.items()
        if isinstance(answer, Returned) and answer.session is not None
    }
    continued: list[Call] = []
    for call in calls:
        if isinstance(call, Append) and call.events and call.session in lengths:
            start = lengths[call.session]
            shift = start - call.events[0].seq
            events = tuple(
                msgspec.structs.replace(event, seq=max(event.seq + shift, 0))
                for event in call.events
            )
            lengths[call.session] = start + len(events)
            call = msgspec.structs.replace(call, events=events)
        continued.append(call)
    return tuple(continued)


def _possible(crash: Crash, disk: Disk) -> bool:
    """Whether a crash, perhaps written by hand, is one that this disk knows."""
    bindings = sum(map(len, disk.changes))
    if any(not 0 <= index < bindings for index in crash.names or ()):
        return False
    for inode, choice in crash.files or ():
        file = disk.files.get(inode)
        if file is None:
            return False
        longest = max(map(len, file.versions))
        versions = range(-1, len(file.versions))
        if choice.version not in versions[1:] or not 0 <= choice.length <= longest:
            return False
        for start, stop, version in choice.patches:
            if version not in versions or not 0 <= start <= stop:
                return False
    return True


def _spread(strikes: list[Strike], limit: int) -> list[Strike]:
    """At most `limit`, the first and the last among them."""
    if len(strikes) <= limit:
        return strikes
    step = (len(strikes) - 1) / (limit - 1)
    return [strikes[round(index * step)] for index in range(limit)]
