"""The share of a campaign that makes the disk say no; see `crash_shard` for the others.

Decides from which plans the I/O errors are drawn, when a share ends, and what is reported. Budgets
are counts of runs. Does not decide which errors a plan gives (`io_trials`) or what is right
(`judge.io`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final

import msgspec

from torntail.crash.crashes import Crash
from torntail.crash.io_faults import IoFault
from torntail.drive.target import Target
from torntail.explore.crash_shard import Share, ShareReport
from torntail.explore.io_run import IoRun, IoViolation
from torntail.explore.io_story import Base, Follow
from torntail.explore.io_takings import takings_of
from torntail.explore.io_trials import Trial, plan_base, repair_bases, trials_of, well_spread
from torntail.explore.plans import crash_plan, crash_plans
from torntail.explore.room import lacks_room, no_room_in
from torntail.explore.script import Case
from torntail.judge.history import Append, Operation, Returned
from torntail.judge.io_steps import IoStep, Taking
from torntail.record.inprocess import RecordingFailed
from torntail.record.slots import Slot

__all__ = ["IoFinding", "io_finding_of", "io_share"]

_PLANS: Final = 9
_TAKINGS: Final = 30
_CAUSES_PER_CLAUSE: Final = 3


class IoFinding(msgspec.Struct, frozen=True, kw_only=True):
    """A violation as it is reported: JSON-able, with the directory that the store left.

    `before` are the calls that led to the disk it began on, if it was not empty; `steps` those made
    since, with their answers. `files` are the disk after `crash`, if there was one, otherwise what
    the store left behind. `cause` is equal for violations that show the same fault.
    """

    clause: str
    session: str
    sentence: str
    plan: str
    before: tuple[Operation, ...]
    steps: tuple[IoStep, ...]
    follow: Follow
    fault: IoFault | None
    crash: Crash | None
    files: dict[str, bytes]
    directories: tuple[str, ...]
    acknowledged: int
    cause: str
    runs_until_found: int

    @property
    def calls(self) -> int:
        """How many calls it takes to show it."""
        return len(self.before) + len(self.steps)


class _Enough(Exception):
    """All that was sought is found."""


def io_share(
    target: Target,
    share: Share,
    *,
    slot: Slot,
    found: Callable[[IoFinding], None],
    tick: Callable[[ShareReport], None],
    began: Callable[[], object] = lambda: None,
) -> ShareReport:
    """Runs `share.io_runs` I/O errors of the first plans, or all of `share.plan`.

    `found` gets each cause once, and again when fewer calls show it.
    """
    causes: dict[str, IoFinding] = {}
    plan_name = ""

    def on_violation(violation: IoViolation) -> None:
        if lacks_room(slot.path, ""):  # What a store says of a full disk is our own doing here.
            raise no_room_in(slot.path)
        finding = io_finding_of(violation, run.counts.runs)
        known = causes.get(finding.cause)
        if known is not None and known.calls <= finding.calls:
            return
        same_clause = sum(one.clause == finding.clause for one in causes.values())
        if known is None and same_clause >= _CAUSES_PER_CLAUSE:
            return
        causes[finding.cause] = finding
        found(finding)
        if share.sought and share.sought <= {one.clause for one in causes.values()}:
            raise _Enough

    def report() -> ShareReport:
        counts = run.counts
        return ShareReport(
            executed=dict(counts.executed),
            situations=dict(counts.situations),
            plan=plan_name,
            findings=len(causes),
            io_runs=counts.runs,
            io_images=counts.images,
            io_struck=dict(counts.struck),
        )

    run = IoRun(target, slot, power=share.power, seed=share.seed, found=on_violation, began=began)
    unseen = None
    missed = 0
    moot: dict[str, str] = {}
    try:
        pool = _Pool(run, list(_plans(target, share)), share.seed)
        moot = pool.moot
        tick(report())
        for base, index, how in pool.takings[: min(_TAKINGS, max(1, share.io_runs // 8))]:
            plan_name = base.name
            run.take(base, index, how)
            tick(report())
        # What a campaign has found in a plan must show when that plan is looked at alone.
        for trial in pool.trials if share.plan is not None else pool.trials[: share.io_runs]:
            plan_name = trial.base.name
            missed += not run.run(trial.base, trial.fault, trial.follow)
            tick(report())
        if pool.takings and not run.counts.executed.get("IO-6"):
            moot["IO-6"] = "no file was found that an append writes to"
    except RecordingFailed as error:
        unseen = str(error)
    except _Enough:
        pass
    return msgspec.structs.replace(report(), done=True, unseen=unseen, moot=moot, io_missed=missed)


def _plans(target: Target, share: Share) -> Iterator[Case]:
    if share.plan is not None:
        return iter([crash_plan(share.seed, target.capabilities, share.plan)])
    plans = crash_plans(share.seed, target.capabilities)
    # To a disk that says no, a fork is an append like any other.
    return islice((one for one in plans if not one.crashed and one.name != "a-fork"), _PLANS)


class _Pool:
    """Every error that some plans give, in the order in which they are tried.

    `moot` are clauses about operations that this store never makes, with the reason.
    """

    def __init__(self, run: IoRun, plans: list[Case], seed: int) -> None:
        trials: list[Trial] = []
        takings: list[list[tuple[Base, int, Taking]]] = []
        kinds: set[str] = set()
        load_kinds: set[str] = set()
        for plan in plans:
            base = plan_base(plan)
            story = run.learn(base)
            if story.breaches:
                continue  # Broken without any error: other clauses say how.
            trials += trials_of(base, story)
            takings.append([(base, index, how) for index, how in takings_of(base, story)])
            for repair in repair_bases(plan, story, seed):
                repaired = run.learn(repair)
                if not repaired.breaches:
                    trials += trials_of(repair, repaired)
        for trial in trials:
            during, kind, *_ = trial.kind
            kinds.add(str(kind))
            if during == "load":
                load_kinds.add(str(kind))
        self.trials = well_spread(trials, seed)
        self.takings = _in_turn(takings)
        self.moot: dict[str, str] = {}
        if trials and "sync" not in kinds:
            self.moot["IO-3"] = "the store never calls fsync on a file: none can fail"
        if trials and not load_kinds:
            self.moot["IO-5"] = "no load was seen to write: no repair can fail"


def _in_turn(
    groups: list[list[tuple[Base, int, Taking]]],
) -> list[tuple[Base, int, Taking]]:
    """One of each group, then the next of each."""
    rounds = max(map(len, groups), default=0)
    return [group[turn] for turn in range(rounds) for group in groups if turn < len(group)]


def io_finding_of(violation: IoViolation, runs: int) -> IoFinding:
    """A violation as it is reported, found after so many runs."""
    breach, image = violation.breach, violation.image
    return IoFinding(
        clause=breach.clause,
        session=breach.session,
        sentence=breach.sentence,
        plan=violation.base.name,
        before=violation.base.before,
        steps=violation.steps,
        follow=violation.follow,
        fault=violation.fault,
        crash=violation.crash,
        files={_printable(path): content for path, content in image.files.items()},
        directories=tuple(sorted(map(_printable, image.directories))),
        acknowledged=_acknowledged(violation),
        cause=_cause(violation),
        runs_until_found=runs,
    )


def _acknowledged(violation: IoViolation) -> int:
    """How many events of the session were acknowledged by then."""
    if violation.standing is not None:
        return len(violation.standing.acknowledged)
    session = violation.breach.session
    before = violation.base.standings.get(session)
    return (0 if before is None else len(before.acknowledged)) + sum(
        len(step.call.events)
        for step in violation.steps
        if isinstance(step.call, Append)
        and step.call.session == session
        and isinstance(step.outcome, Returned)
    )


def _printable(path: str) -> str:
    """A path in which bytes that are no UTF-8 are escaped: it has to pass through JSON."""
    return path.encode("utf-8", "backslashreplace").decode("utf-8")


def _cause(violation: IoViolation) -> str:
    """The clause and the kind of sentence: numbers, names and errors left out."""
    breach = violation.breach
    sentence = re.sub(
        r"'[^']*'|\"[^\"]*\"|/[^ ,:;]*|\S*\.jsonl\S*|\d+|\bE[A-Z]+\b", "…", breach.sentence
    )
    after = "" if violation.crash is None else f" after {violation.crash.model}"
    return f"{breach.clause}{after} {sentence[:70]}"
