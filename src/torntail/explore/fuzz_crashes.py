"""Crashing a recorded plan call by call, where a whole expansion would take too long.

Decides how many disks of one call are loaded, and that one may begin in the midst of a call: of a
long call its end is worth as much as its beginning. Does not decide which calls are crashed
(`fuzz_trial`) or what a crash may leave (`crash`).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import Final, Literal

from torntail.crash.crashes import Crash, moments
from torntail.crash.disk import Disk, DiskImage, Model
from torntail.crash.oplog import Acknowledged, Invoked
from torntail.explore.crash_calls import CrashCalls, Recording
from torntail.explore.crash_expansion import Expansion, Root
from torntail.explore.crash_places import Place
from torntail.explore.crash_search import Limits, PlanSearch, Violation
from torntail.explore.fuzz_bench import Bench
from torntail.explore.script import Case
from torntail.judge.history import Append, Create, History, Refused, Returned
from torntail.judge.ledger import Ledger
from torntail.judge.recovery import Answer, RecoveryJudge

__all__ = ["CallCrashes", "shapes"]

_IMAGES_A_CALL: Final = 100
_NESTED_IMAGES: Final = 60
_NESTS: Final = 5
_MOST_NESTS: Final = 24
_FOUND: Final = 6
"""How much likelier a recovery is crashed in turn that has found a session to go on with."""
_KILLED: Final = 3
"""How much likelier one after a kill is: what was not synced then may still be lost."""


class CallCrashes:
    """The crashes of one recorded plan; `found` is called with every violation."""

    def __init__(
        self,
        bench: Bench,
        plan: Case,
        recording: Recording,
        models: Sequence[Model],
        depth: int,
        found: Callable[[Violation], None],
    ) -> None:
        self._recording = recording
        self._search = PlanSearch(
            plan,
            _sessions(recording.history),
            CrashCalls(bench.target, bench.slot, bench.began),
            models,
            bench.seed,
            Limits(_IMAGES_A_CALL, _NESTED_IMAGES, depth),
            bench.counts,
            found,
            lambda counts: bench.tick(),
            RecoveryJudge(bench.target.capabilities),
        )
        self._root = Root({model: Disk(model) for model in models}, Ledger())
        # Kept, since the judge knows their debts by identity.
        self._expansions: list[_InsideACall] = []

    def inside(self, call: int, late: float = 0.0, *, thorough: bool = False) -> int:
        """Crashes one call, from that part of its moments on; how many repairs were crashed.

        `thorough`: every kind of recovery is crashed in turn.
        """
        expansion = _InsideACall(self._search, self._recording, self._root, call, late, thorough)
        self._expansions.append(expansion)
        expansion.expand()
        return expansion.repairs


def _sessions(history: History) -> list[str]:
    """The sessions of a plan, without those that the store never took (RW-10)."""
    created: dict[str, None] = {}
    taken: set[str] = set()
    refused: set[str] = set()
    for operation, outcome in ((one.operation, one.outcome) for one in history):
        if isinstance(operation, Create):
            created[operation.header.id] = None
            if isinstance(outcome, Refused):
                refused.add(operation.header.id)
        elif isinstance(operation, Append):
            (refused if isinstance(outcome, Refused) else taken).add(operation.session)
    return [session for session in created if session in taken or session not in refused]


class _InsideACall(Expansion):
    """Crashes inside one call of a recording, from any of its moments on."""

    def __init__(
        self,
        search: PlanSearch,
        recording: Recording,
        root: Root,
        call: int,
        late: float,
        thorough: bool,
    ) -> None:
        super().__init__(search, recording, root, search.limits.images)
        self._kinds: set[tuple[Model, bool, str, bool]] = set()
        self._nests = _MOST_NESTS if thorough else _NESTS
        self._drawn: list[tuple[float, bool, Callable[[], None]]] = []
        self._chance = random.Random(f"{search.plan.name}/{call}")
        self.call = call
        self._late = late

    @property
    def repairs(self) -> int:
        """How many repairs were crashed in turn."""
        return sum(repaired for _, repaired, _ in self._drawn[: self._nests])

    def _places(self, model: Model) -> Iterator[Place]:
        operations = self.recording.operations
        begin = operations.index(Invoked(self.call))
        end = begin + 1
        while end < len(operations) and not isinstance(operations[end], Invoked):
            end += 1
        *_, before = moments(self.root.disks[model], operations[:begin], tears="none")
        # The ledger after the marks up to and with this call's first.
        step = sum(isinstance(one, Invoked | Acknowledged) for one in operations[:begin]) + 1
        places = []
        tears: Literal["all", "synced"] = "all" if model == "kill" else "synced"
        inside = moments(before.disk, operations[begin + 1 : end], tears=tears, position=begin + 1)
        for moment in inside:
            if isinstance(moment.operation, Acknowledged):
                step += 1
            following = operations[moment.position] if moment.position < end else None
            if moment.torn is None and isinstance(following, Acknowledged):
                continue  # The debt is stricter once it was acknowledged, on the same disk.
            places.append(Place(moment, self.ledgers[step], self.call))
        yield from places[int(self._late * len(places)) :]

    def _plan_nesting(
        self,
        image: DiskImage,
        crash: Crash,
        place: Place,
        answers: Mapping[str, Answer],
        *,
        repaired: bool,
    ) -> None:
        """Puts some recoveries down to be crashed in turn: of each kind one, and of these some.

        More kinds than a whole expansion tells apart, since only few calls are looked at: what a
        kill leaves unsynced differs from one file operation to the next. Which of them are taken is
        drawn, so that the last in a call are as likely as the first.
        """
        last = place.moment.operation
        kind = crash.model, repaired, type(last).__name__, place.moment.torn is None
        owed = any(debt.submitted for debt in place.ledger.sessions.values())
        if not owed or not self.search.limits.depth or kind in self._kinds:
            return
        self._kinds.add(kind)
        weight = _FOUND if any(map(_is_found, answers.values())) else 1
        if crash.model == "kill":
            weight *= _KILLED
        job = partial(self._nest, image, crash, place, answers)
        self._drawn.append((self._chance.random() ** (1 / weight), repaired, job))
        self._drawn.sort(key=itemgetter(0), reverse=True)
        self.jobs = [job for _, _, job in self._drawn[: self._nests]]


def _is_found(answer: Answer) -> bool:
    return isinstance(answer, Returned) and answer.session is not None


def shapes(recording: Recording) -> set[str]:
    """Which file operations each kind of call made, in which order, runs of equal ones as one."""
    shapes: dict[int, list[str]] = {}
    call = -1
    for operation in recording.operations:
        if isinstance(operation, Invoked):
            call = operation.call
        elif not isinstance(operation, Acknowledged):
            kinds = shapes.setdefault(call, [])
            kind = type(operation).__name__
            if not kinds or kinds[-1] != kind:
                kinds.append(kind)
    return {
        f"{type(recording.history[call].operation).__name__}: {' '.join(kinds)}"
        for call, kinds in shapes.items()
        if call >= 0
    }
