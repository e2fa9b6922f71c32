"""One run of a plan under one I/O error, and what is done afterwards.

The plan is driven until the error has struck; then the same store object is gone on with (or not),
the disk is made well again, and new objects load, append and load. Decides what is done, and in
which order; every call is judged as it returns, for what comes next depends on the answer. Does not
decide which errors are tried (`io_trials`) or what is right (`judge.io`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from torntail.crash.disk import Disk, DiskImage
from torntail.crash.io_faults import IoFault
from torntail.crash.oplog import Operation, Write
from torntail.drive.target import Target
from torntail.explore.io_stage import Stage, stage_of
from torntail.explore.traced_calls import calls_on
from torntail.judge.capabilities import Capabilities
from torntail.judge.history import (
    MARK_KEY,
    Append,
    Create,
    Load,
    Reopen,
    Returned,
    mark_of,
)
from torntail.judge.history import Operation as Call
from torntail.judge.io import IoJudge
from torntail.judge.io_steps import IoCall, IoStep, Revive, Standing, call_session
from torntail.judge.recovery import Answer, Breach
from torntail.record.injection import Seen
from torntail.record.slots import Slot
from torntail.session import SessionEvent

__all__ = ["FOLLOWS", "Base", "Follow", "Story", "StoryTeller"]

Follow: TypeAlias = Literal["stay", "retry", "leave"]

FOLLOWS: Final[tuple[Follow, ...]] = ("stay", "retry", "leave")
"""What the caller does after the error. `stay`: load by the same object, append behind it, `reopen`
and append if that is refused. `retry`: the same batch again at once, then as `stay`. `leave`: a new
store object straight away.
"""

EMPTY: Final = DiskImage({}, frozenset())


@dataclass(frozen=True, slots=True)
class Base:
    """From where a run starts: a disk, what is owed on it, and the calls to be made.

    `before` are the calls that led to the disk, after which the process was killed.
    """

    name: str
    calls: tuple[Call, ...]
    disk: Disk = field(default_factory=lambda: Disk("ordered"))
    image: DiskImage = EMPTY
    standings: Mapping[str, Standing] = field(default_factory=dict)
    before: tuple[Call, ...] = ()


@dataclass(slots=True)
class Story:
    """What happened: each call with the stretch of the op log that it made, and what it broke.

    `breaches` name the call that showed each; a story ends with one, unless it is of IO-1.
    `standings[i]` is what was owed after the call `i`, `during[i]` while it ran; `excused[i]`
    whether power cuts after it are judged. `strike` is the index of the call that was struck.
    """

    base: Base
    fault: IoFault | None
    follow: Follow
    steps: list[IoStep] = field(default_factory=list)
    spans: list[tuple[int, int]] = field(default_factory=list)
    standings: list[Mapping[str, Standing]] = field(default_factory=list)
    during: list[Mapping[str, Standing]] = field(default_factory=list)
    excused: list[bool] = field(default_factory=list)
    operations: tuple[Operation, ...] = ()
    seen: tuple[Seen, ...] = ()
    strike: int | None = None
    landed: bool = False
    breaches: list[tuple[int, Breach]] = field(default_factory=list)


class _Over(Exception):
    """A clause is broken, or the store left the process no answer: nothing more can be said."""


class StoryTeller:
    """Drives stories of one target in one slot; `began` is called before each."""

    def __init__(
        self, target: Target, slot: Slot, *, began: Callable[[], object] = lambda: None
    ) -> None:
        self.target = target
        self.capabilities: Capabilities = target.capabilities
        self.slot = slot
        self.root = Path(slot.path)
        self.began = began
        self.calls = calls_on(target, slot, began)

    def tell(self, base: Base, fault: IoFault | None, follow: Follow) -> Story:
        """Runs one story to its end; raises what the recorder raises for an unseen write."""
        self.began()
        self.slot.hold(base.image)
        story = Story(base, fault, follow)
        stage = stage_of(self.target, self.root, base.disk, fault)
        with stage.finishing():
            try:
                _Telling(self, story, stage).play()
            except _Over:
                pass
            finally:
                stage.close()
                story.operations = tuple(stage.operations)
        story.seen = stage.seen(story.spans)
        story.landed = stage.landed
        return story


class _Telling:
    """The making of one story."""

    def __init__(self, teller: StoryTeller, story: Story, stage: Stage) -> None:
        self.teller = teller
        self.story = story
        self.stage = stage
        self.judge = IoJudge(teller.capabilities, story.base.standings)
        self.lifted = False
        self.marks = 0

    # --- the story ------------------------------------------------------------------------------

    def play(self) -> None:
        """The plan until the error strikes, and what comes after."""
        struck: Call | None = None
        for call in self.story.base.calls:
            self.call(call)
            if self.story.strike is not None:
                struck = call
                break
        if struck is None:
            return
        session = call_session(struck) or next(iter(self.judge.standings), None)
        if session is None:
            return
        if self.story.follow != "leave" and session in self.judge.standings:
            lasts = self.story.fault is not None and self.story.fault.lasts == "on"
            again = struck if isinstance(struck, Append) and self.story.follow == "retry" else None
            going = self._go_on(session, again)
            if lasts:
                self._lift()
                going = self._go_on(session, again)
            if going:
                self._append_further(session)
        self._note(self.judge.finished())
        self._lift()
        self._new_objects(session)

    def _go_on(self, session: str, again: Append | None) -> bool:
        """Tries to append by the same object, in the ways it has; whether one was acknowledged."""
        if again is not None and self.judge.standings[session].refused:
            same = Append(session=session, events=again.events)
            if isinstance(self.call(same), Returned):
                return True
        if self._loads(session) and self._append_further(session):
            return True
        if not self.stage.can_reopen:
            return False
        revived = isinstance(self.call(Revive(session)), Returned)
        return revived and self._append_further(session)

    def _loads(self, session: str) -> bool:
        return isinstance(self.call(Load(session=session)), Returned)

    def _append_further(self, session: str) -> bool:
        """A little more work behind what the object has shown, or acknowledged."""
        standing = self.judge.standings[session]
        log = standing.alternatives[0] if standing.shown is None else standing.shown
        batch = self._further(log)
        return isinstance(self.call(Append(session=session, events=batch)), Returned)

    def _new_objects(self, session: str) -> None:
        """A new object loads everything and appends, and another one loads again."""
        self.call(Reopen())
        for other, standing in list(self.judge.standings.items()):
            found = self._loads(other)
            if other != session:
                continue
            if not found and self.teller.capabilities.creates == "explicit":
                self.call(Create(header=standing.header))
            self._append_further(session)
        self.call(Reopen())
        for other in list(self.judge.standings):
            if self.judge.standings[other].announced:
                self._loads(other)

    def _lift(self) -> None:
        self.stage.lift()
        self.lifted = True

    def _further(self, log: Sequence[SessionEvent]) -> tuple[SessionEvent, ...]:
        turn = sum(event.type == "turn/start" for event in log) + 1
        time = log[-1].time if log else 0
        shapes: list[tuple[str, dict[str, Any]]] = [
            ("turn/start", {"turn": turn, "trigger": {"kind": "injection"}}),
            ("turn/end", {"turn": turn, "reason": {"kind": "completed"}}),
            ("turn/start", {"turn": turn + 1, "trigger": {"kind": "injection"}}),
        ]
        self.marks += 1
        return tuple(
            SessionEvent(
                kind,
                len(log) + index,
                time,
                {**data, MARK_KEY: f"mark-000000io-{10 * self.marks + index:04d}"},
            )
            for index, (kind, data) in enumerate(shapes)
        )

    # --- one call -------------------------------------------------------------------------------

    def call(self, call: IoCall) -> Answer:
        """Makes a call, notes it, and has it judged."""
        story = self.story
        self.stage.begin(len(story.steps))
        start = len(self.stage.operations)
        next_seq = None
        outcome: Answer
        if isinstance(call, Revive):
            outcome, next_seq = self.stage.reopen(call.session)
        else:
            outcome = self.stage.answer(call)
        struck = self.stage.struck()
        queued = self._wrote_refused(call, start)
        step = IoStep(call, outcome, struck, next_seq, self.lifted, queued)
        if struck and story.strike is None:
            story.strike = len(story.steps)
        story.during.append(self.judge.during(step))
        story.steps.append(step)
        story.spans.append((start, len(self.stage.operations)))
        breach = self.judge.take(step)
        story.standings.append(dict(self.judge.standings))
        story.excused.append(self.judge.excused)
        self._note(breach)
        return outcome

    def _note(self, breach: Breach | None) -> None:
        if breach is not None:
            self.story.breaches.append((len(self.story.steps) - 1, breach))
            if breach.clause != "IO-1":
                raise _Over

    def _wrote_refused(self, call: IoCall, start: int) -> bool:
        """Whether an append that needed no load wrote what an earlier one had raised over."""
        if not isinstance(call, Append):
            return False
        standing = self.judge.standings.get(call.session)
        if standing is None or not standing.touched or standing.unrepaired:
            return False
        own = [mark_of(event) for event in call.events]
        refused = {mark_of(event) for event in standing.refused} - {None}
        written = b"".join(
            operation.data
            for operation in self.stage.operations[start:]
            if isinstance(operation, Write)
        )
        return any(written.count(str(mark).encode()) > own.count(mark) for mark in refused)
