"""Running a target under I/O errors: stories, and the crashes after each.

Decides which crashes follow a story: a kill when the struck call had returned and at some points
inside it, power cuts after what was acknowledged later, a bounded sample by the seed. Counts what
was exercised and what occurred. Does not decide which errors are tried (`io_trials`), what is done
in a story (`io_story`) or what is right (`judge.io`).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from torntail.crash.crashes import Crash, Moment, crashes, moments
from torntail.crash.disk import DiskImage
from torntail.crash.io_faults import IoFault
from torntail.crash.oplog import SyncFile
from torntail.drive.target import Target
from torntail.explore.io_story import Base, Follow, Story, StoryTeller
from torntail.explore.io_takings import NoFile, take
from torntail.judge.history import Append, Load, Returned
from torntail.judge.io_content import clause_of, load_problem, uncut_breach
from torntail.judge.io_steps import IoStep, Standing, Taking, call_session
from torntail.judge.recovery import Breach
from torntail.record.slots import Slot

__all__ = ["IoCounts", "IoRun", "IoViolation"]

_KILLS_INSIDE: Final = 1
_POWER_MOMENTS: Final = 3


@dataclass(slots=True)
class IoCounts:
    """How much was done: runs, operations struck by kind, disks loaded after crashes."""

    runs: int = 0
    images: int = 0
    struck: dict[str, int] = field(default_factory=dict)
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
class IoViolation:
    """A breach with all it takes to see it again: the story so far, perhaps a crash after it."""

    breach: Breach
    base: Base
    fault: IoFault | None
    follow: Follow
    steps: tuple[IoStep, ...]
    image: DiskImage
    crash: Crash | None = None
    standing: Standing | None = None


class IoRun:
    """Runs trials of one target; `found` is called with every violation."""

    def __init__(
        self,
        target: Target,
        slot: Slot,
        *,
        power: bool,
        seed: int = 0,
        found: Callable[[IoViolation], None],
        began: Callable[[], object] = lambda: None,
    ) -> None:
        self.target = target
        self.capabilities = target.capabilities
        self.slot = slot
        self.power = power
        self.seed = seed
        self.counts = IoCounts()
        self.found = found
        self.began = began
        self.teller = StoryTeller(target, slot, began=began)

    def learn(self, base: Base) -> Story:
        """A base without any error; raises what the recorder raises for an unseen write."""
        return self.teller.tell(base, None, "leave")

    def run(self, base: Base, fault: IoFault, follow: Follow) -> bool:
        """One story and the crashes after it; false when the error did not strike (VD-6)."""
        story = self.teller.tell(base, fault, follow)
        if not story.landed or story.strike is None:
            return False
        self.counts.runs += 1
        self._count(story)
        for step, breach in story.breaches:
            self._report(story, breach, step)
        if not story.breaches or story.breaches[-1][1].clause == "IO-1":
            self._crash(story)
        return True

    def take(self, base: Base, index: int, how: Taking) -> bool:
        """One file taken from under a live writer; false when none could be found."""
        try:
            story = take(self.teller, base, index, how)
        except NoFile:
            return False
        self.counts.runs += 1
        self.counts.ran("IO-6")
        self.counts.met("a file was taken from under a live writer")
        for _, breach in story.breaches:
            steps = tuple(story.steps)
            image = self.slot.image()
            self.found(IoViolation(breach, base, None, "leave", steps, image))
        return True

    # --- crashes --------------------------------------------------------------------------------

    def _crash(self, story: Story) -> None:
        """Kills and power cuts of one story; ends with the first violation."""
        assert story.strike is not None
        # By what is tried, not by how much was tried before it: it has to show again.
        base, place = story.base, len(story.base.before)
        chance = random.Random(f"{self.seed}/{base.name}/{place}/{story.fault}/{story.follow}")
        wanted = self._moments(story, chance)
        kept: dict[str, int] = {}
        for moment in moments(story.base.disk, story.operations, tears="none"):
            for step, inside in wanted.get(moment.position, ()):
                for crash in self._crashes(story, moment, step, chance):
                    if not self._survives(story, crash, moment, step, inside, kept):
                        return

    def _moments(self, story: Story, chance: random.Random) -> Mapping[int, list[tuple[int, bool]]]:
        """Where to crash: position in the log → (step, whether inside it)."""
        assert story.strike is not None
        start, end = story.spans[story.strike]
        first_error = start
        wanted: dict[int, list[tuple[int, bool]]] = {}
        inside = range(first_error + 1, end)
        for position in sorted(chance.sample(inside, min(_KILLS_INSIDE, len(inside)))):
            wanted.setdefault(position, []).append((story.strike, True))
        wanted.setdefault(end, []).append((story.strike, False))
        later = [
            index
            for index in range(story.strike + 1, len(story.steps))
            if isinstance(story.steps[index].call, Append | Load)
            and isinstance(story.steps[index].outcome, Returned)
        ]
        if self.power:
            if len(later) > _POWER_MOMENTS:
                # The first is where the same object has gone on, the last where all has.
                middle = later[1:-1]
                later = sorted({later[0], later[-1], *chance.sample(middle, _POWER_MOMENTS - 2)})
            for index in later:
                wanted.setdefault(story.spans[index][1], []).append((index, False))
        return wanted

    def _crashes(
        self, story: Story, moment: Moment, step: int, chance: random.Random
    ) -> list[Crash]:
        ways = []
        if step == story.strike:
            ways += list(crashes(moment, "kill"))
        if self.power and not story.excused[step]:
            cuts = list(crashes(moment, "ordered", self.seed))
            # The strictest, and another one.
            ways += cuts[:1] if len(cuts) == 1 else [cuts[0], chance.choice(cuts[1:])]
        return ways

    def _survives(
        self,
        story: Story,
        crash: Crash,
        moment: Moment,
        step: int,
        inside: bool,
        kept: dict[str, int],
    ) -> bool:
        standings = story.during[step] if inside else story.standings[step]
        image = crash.image(moment.disk)
        self.slot.hold(image)
        self.counts.images += 1
        answers = self.teller.calls.load_all(list(standings))
        power = crash.model != "kill"
        past = story.steps[: step + 1]
        for session, answer in answers.items():
            standing = standings[session]
            found = load_problem(answer, standing, self.capabilities)
            self.counts.ran("IO-3" if power and _sync_failed(past) else "IO-2")
            if found.problem is not None:
                clause = clause_of(past, standing, found.problem, power=power)
                self._report(story, Breach(clause, session, found.problem), step, crash, image)
                return False
            if not power and not inside and step == story.strike:
                kept[session] = found.count
                call = story.steps[step].call
                if isinstance(call, Append) and call.session == session:
                    left = uncut_breach(session, story.steps[step], found.count, standing)
                    if left is not None:
                        self._report(story, left, step, crash, image)
                        return False
        if not power and step == story.strike and not inside:
            return self._settled(story, step, crash, image) and self._not_queued(story, kept)
        return True

    def _settled(self, story: Story, step: int, crash: Crash, image: DiskImage) -> bool:
        """A load that was struck and says its repair is durable leaves nothing to be written."""
        struck = story.steps[step]
        outcome = struck.outcome
        if not isinstance(struck.call, Load) or not struck.errors:
            return True
        if not isinstance(outcome, Returned) or outcome.session is None:
            return True
        report = outcome.session.repair
        if report is None or not report.durable or self.capabilities.repairs != "load":
            return True
        changed = self.slot.changed()
        if not changed:
            return True
        sentence = (
            "a load that was struck says its repair is durable, but the next load writes to "
            + ", ".join(changed)
        )
        self._report(story, Breach("IO-5", struck.call.session, sentence), step, crash, image)
        return False

    def _not_queued(self, story: Story, kept: Mapping[str, int]) -> bool:
        """What an append that raised left behind does not grow by closing the store (IO-1)."""
        assert story.strike is not None
        if story.follow != "leave" or not isinstance(story.steps[story.strike].call, Append):
            return True
        for index in range(story.strike + 1, len(story.steps)):
            step = story.steps[index]
            if not isinstance(step.call, Load):
                continue
            session = step.call.session
            before = story.standings[index - 1].get(session)
            if before is None or session not in kept:
                continue
            found = load_problem(step.outcome, before, self.capabilities)
            if found.problem is None and found.count > kept[session]:
                sentence = (
                    f"{found.count - kept[session]} event(s) of an append that had raised came to "
                    "light when the store was closed"
                )
                self._report(story, Breach("IO-1", session, sentence), index)
                return False
            return True
        return True

    def _report(
        self,
        story: Story,
        breach: Breach,
        step: int,
        crash: Crash | None = None,
        image: DiskImage | None = None,
    ) -> None:
        standing = story.standings[step].get(breach.session)
        image = self.slot.image() if image is None else image
        steps = tuple(story.steps[: step + 1])
        self.found(
            IoViolation(
                breach, story.base, story.fault, story.follow, steps, image, crash, standing
            )
        )

    # --- counts ---------------------------------------------------------------------------------

    def _count(self, story: Story) -> None:
        counts = self.counts
        assert story.strike is not None
        struck = story.steps[story.strike]
        for one in struck.struck:
            counts.struck[one.kind] = counts.struck.get(one.kind, 0) + 1
        errors = struck.errors
        if isinstance(struck.call, Append):
            if errors:
                counts.ran("IO-1")
                counts.met("an append was struck")
            if any(one.kind == "sync" and one.own for one in errors):
                counts.ran("IO-3")
                counts.met("an fsync failed")
            if not errors:
                counts.ran("IO-4")
                counts.met("a write came short")
            if all(one.kind == "write" and one.error == "ENOSPC" for one in errors):
                counts.ran("IO-4")
                if self._same_object_went_on(story):
                    counts.met("space came back")
        if isinstance(struck.call, Load) and errors and self.capabilities.repairs == "load":
            counts.ran("IO-5")
            counts.met("a repair could not be written")
        for step in story.steps[story.strike + 1 :]:
            if isinstance(step.call, Load):
                counts.ran("IO-2")
                counts.met("a load after an error")
        failed = {one.kind for one in errors}
        if "sync" in failed and any(
            isinstance(operation, SyncFile)
            for operation in story.operations[story.spans[story.strike][1] :]
        ):
            counts.met("an fsync failed and a later one worked")

    def _same_object_went_on(self, story: Story) -> bool:
        assert story.strike is not None
        session = call_session(story.steps[story.strike].call)
        for step in story.steps[story.strike + 1 :]:
            if call_session(step.call) is None:
                return False
            same = isinstance(step.call, Append) and step.call.session == session
            if same and isinstance(step.outcome, Returned):
                return True
        return False


def _sync_failed(past: Sequence[IoStep]) -> bool:
    return any(one.kind == "sync" for step in past for one in step.errors)
