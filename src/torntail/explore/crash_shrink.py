"""Making the history of a crash finding small, so that a person can read it.

Drops sessions, calls, and events of a batch, and records and crashes what is left anew, as long as
a violation of the same clause with the same cause shows; the crash is then the earliest that shows
it. Bounded in runs and in disks. Does not decide what a violation is (`judge.recovery`), and leaves
a finding as it is that does not show a second time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from torntail.crash.disk import Model
from torntail.drive.target import Target
from torntail.explore.crash_run import Counts, CrashRun, Limits, Violation
from torntail.explore.crash_shard import CrashFinding, ShareReport, violation_finding
from torntail.explore.script import Case
from torntail.judge.capabilities import Capabilities
from torntail.judge.history import Append, Create, Load, Operation, Reopen
from torntail.record.inprocess import RecordingFailed
from torntail.record.slots import Slot
from torntail.session import SessionEvent, interrupted_turn_closers

__all__ = ["SHRINKING_IMAGES", "SHRINKING_RUNS", "smallest_history", "sound_calls"]

SHRINKING_RUNS: Final = 60
"""How many shorter histories of one finding are tried."""

SHRINKING_IMAGES: Final = 4_000
"""How many distinct disks are loaded for them all."""

_SLACK_IMAGES: Final = 50
_MODELS: Final[tuple[Model, ...]] = ("kill", "ordered", "posix")


def smallest_history(
    target: Target,
    finding: CrashFinding,
    *,
    seed: int,
    slot: Slot,
    tick: Callable[[ShareReport], None] = lambda report: None,
    began: Callable[[], object] = lambda: None,
) -> CrashFinding:
    """The finding with the smallest history found that shows its clause and its cause.

    `tick` gets the counts after each moment; `began` is called before the store is let loose on a
    disk, for a watchdog.
    """
    if finding.fault is not None or not finding.chain or not finding.calls:
        return finding
    return _Shrinking(target, finding, seed, slot, tick, began).smallest()


def sound_calls(calls: Iterable[Operation], capabilities: Capabilities) -> tuple[Operation, ...]:
    """The calls that make sense without those that were dropped, their events numbered anew.

    A call on a session that nobody creates is left out, as are a load where nothing was appended
    and an empty batch. What refers to an event by its seq still does, if the event is still there.
    """
    numbering = _Numbering(capabilities)
    kept = [numbering.next(call) for call in calls]
    return tuple(call for call in kept if call is not None)


@dataclass(slots=True)
class _Numbering:
    """What each session holds by now, and under which seq the events of the plan stand."""

    capabilities: Capabilities
    logs: dict[str, list[SessionEvent]] = field(default_factory=dict)
    seqs: dict[str, dict[int, int]] = field(default_factory=dict)
    touched: set[str] = field(default_factory=set)

    def next(self, call: Operation) -> Operation | None:
        match call:
            case Create(header=header):
                if header.id in self.logs:
                    return None
                self.logs[header.id] = []
                self.seqs[header.id] = {}
                self.touched.add(header.id)
            case Reopen():
                # What was announced only is gone with the process.
                self.logs = {session: log for session, log in self.logs.items() if log}
                self.touched.clear()
            case Load(session=session):
                if not self.logs.get(session):
                    return None
                self._close(session)
            case Append(session=session, events=events):
                if session not in self.logs or not events:
                    return None
                if session not in self.touched:
                    self._close(session)
                return msgspec.structs.replace(call, events=self._numbered(session, events))
        return call

    def _close(self, session: str) -> None:
        """What a load does to an interrupted turn."""
        self.touched.add(session)
        if self.capabilities.profile == "session":
            log = self.logs[session]
            log.extend(interrupted_turn_closers(log))

    def _numbered(self, session: str, events: Sequence[SessionEvent]) -> tuple[SessionEvent, ...]:
        log, seqs = self.logs[session], self.seqs[session]
        for event in events:
            seqs[event.seq] = len(log)
            sources = event.source_event_seqs
            if sources is not None:
                sources = [seqs[source] for source in sources if source in seqs]
            log.append(msgspec.structs.replace(event, seq=len(log), source_event_seqs=sources))
        return tuple(log[-len(events) :])


class _Shows(Exception):
    """A crash of the history shows what was found."""

    def __init__(self, finding: CrashFinding) -> None:
        super().__init__()
        self.finding = finding


class _TooFar(Exception):
    """More disks were loaded than it takes to see what was found."""


class _Shrinking:
    """The search for one finding; `best` is the smallest so far."""

    def __init__(
        self,
        target: Target,
        finding: CrashFinding,
        seed: int,
        slot: Slot,
        tick: Callable[[ShareReport], None],
        began: Callable[[], object],
    ) -> None:
        self.target = target
        self.seed = seed
        self.slot = slot
        self.tick = tick
        self.began = began
        self.best = finding
        used = {crash.model for crash in finding.chain}
        self.models = tuple(model for model in _MODELS if model in used)
        self.runs = 0
        self.images = 0
        self.needed = Limits().images * len(self.models)

    def smallest(self) -> CrashFinding:
        if not self._shows(self.best.calls):
            return self.best
        before = None
        while before != self.best.calls and self._may_go_on():
            before = self.best.calls
            self._drop_sessions()
            self._drop_calls()
            self._drop_events()
        return self.best

    def _may_go_on(self) -> bool:
        return self.runs < SHRINKING_RUNS and self.images < SHRINKING_IMAGES

    # --- what is dropped ------------------------------------------------------------------------

    def _drop_sessions(self) -> None:
        for session in dict.fromkeys(map(_session_of, self.best.calls)):
            if session is not None:
                self._try([call for call in self.best.calls if _session_of(call) != session])

    def _drop_calls(self) -> None:
        """Halves first, then ever smaller runs of calls, from the end: the last matter most."""
        size = max(len(self.best.calls) // 2, 1)
        while size:
            end = len(self.best.calls)
            while end > 0:
                calls = self.best.calls
                end = min(end, len(calls))
                self._try([*calls[: max(end - size, 0)], *calls[end:]])
                end -= size
            size //= 2

    def _drop_events(self) -> None:
        for index in reversed(range(len(self.best.calls))):
            size = len(self._events(index)) // 2
            while size:
                end = len(self._events(index))
                while end > 0:
                    events = self._events(index)
                    end = min(end, len(events))
                    self._try(
                        self._with_events(index, (*events[: max(end - size, 0)], *events[end:]))
                    )
                    end -= size
                size //= 2

    def _events(self, index: int) -> tuple[SessionEvent, ...]:
        """The events of a call, if it is still there and appends any."""
        call = self.best.calls[index] if index < len(self.best.calls) else None
        return call.events if isinstance(call, Append) else ()

    def _with_events(self, index: int, events: tuple[SessionEvent, ...]) -> list[Operation]:
        return [
            msgspec.structs.replace(call, events=events)
            if number == index and isinstance(call, Append)
            else call
            for number, call in enumerate(self.best.calls)
        ]

    # --- trying ---------------------------------------------------------------------------------

    def _try(self, calls: Iterable[Operation]) -> None:
        shorter = sound_calls(calls, self.target.capabilities)
        if shorter and self._may_go_on() and _size(shorter) < _size(self.best.calls):
            self._shows(shorter)

    def _shows(self, calls: tuple[Operation, ...]) -> bool:
        """Whether a crash of these calls shows the fault; then they are the best so far."""
        self.runs += 1
        before = self.images

        def found(violation: Violation) -> None:
            finding = violation_finding(violation, self.best.images_until_found)
            if (finding.clause, finding.cause) == (self.best.clause, self.best.cause):
                raise _Shows(finding)

        def tick(counts: Counts) -> None:
            self.images = before + counts.distinct
            self.tick(ShareReport(distinct=self.images, plan=self.best.plan))
            if counts.distinct > self.needed:
                raise _TooFar

        run = CrashRun(
            self.target,
            self.slot,
            self.models,
            seed=self.seed,
            # No crash more in a row than it took.
            limits=Limits(images=min(Limits().images, self.needed), depth=len(self.best.chain) - 1),
            found=found,
            tick=tick,
            began=self.began,
        )
        try:
            run.run(Case(self.best.plan, (), calls))
        except _Shows as shows:
            self.best = shows.finding
            # A shorter history has fewer disks before the one that shows it.
            self.needed = min(self.needed, run.counts.distinct + _SLACK_IMAGES)
            return True
        except (RecordingFailed, _TooFar):
            pass
        finally:
            self.images = before + run.counts.distinct
        return False


def _session_of(call: Operation) -> str | None:
    if isinstance(call, Create):
        return call.header.id
    return call.session if isinstance(call, Append | Load) else None


def _size(calls: Sequence[Operation]) -> tuple[int, int]:
    """What makes a history long: its calls, and then its events."""
    events = sum(len(call.events) for call in calls if isinstance(call, Append))
    return len(calls), events
