"""The disk says no in the midst of a drawn plan: some of the errors its file operations can have.

Decides which errors of a plan are tried, and how many. Does not decide which errors there are
(`io_trials`), what is done after one (`io_story`) or what is right (`judge.io`).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec

from torntail.crash.io_faults import IoFault
from torntail.explore.fuzz_bench import Bench
from torntail.explore.fuzz_finding import FuzzFinding, sentence_cause
from torntail.explore.io_run import IoRun, IoViolation
from torntail.explore.io_shard import io_finding_of
from torntail.explore.io_story import FOLLOWS
from torntail.explore.io_trials import Trial, plan_base, trials_of, well_spread
from torntail.explore.script import Case
from torntail.judge.history import Append, Create, Load, Operation, Reopen
from torntail.record.inprocess import RecordingFailed

__all__ = ["shows_error", "try_errors"]

_AT_STAKE: Final = 4
_ACKNOWLEDGED: Final = 2
"""How much likelier an error is drawn that strikes bytes, or an append behind acknowledged ones."""


def try_errors(bench: Bench, plan: Sequence[Operation], seed: int, count: int) -> None:
    """Strikes a plan with so many errors, each on its own."""
    calls = tuple(_driven(plan))
    if not calls:
        return
    run = _run(bench, lambda violation: bench.found(_finding(violation, run.counts.runs)))
    base = plan_base(Case("disk", (), calls))
    try:
        story = run.learn(base)
        if story.breaches:
            return  # Broken without any error: other clauses say how.
        for trial in _drawn(well_spread(trials_of(base, story), seed), seed, count):
            run.run(base, trial.fault, trial.follow)
            bench.counts.moments += 1
            bench.tick()
    except RecordingFailed as error:
        bench.unseen = str(error)
    counts = run.counts
    for clause, times in counts.executed.items():
        bench.counts.executed[clause] = bench.counts.executed.get(clause, 0) + times
    for situation, times in counts.situations.items():
        bench.counts.situations[situation] = bench.counts.situations.get(situation, 0) + times


def _drawn(trials: Sequence[Trial], seed: int, count: int) -> list[Trial]:
    """So many of the trials, one of each kind before a second one.

    Of the many kinds those are likelier in which bytes are at stake: of a write or an fsync, and in
    an append to what was acknowledged. Most others are about names, and alike.
    """
    chance = random.Random(f"{seed}/errors")
    firsts = {trial.kind: trial for trial in reversed(trials)}
    keys = {id(one): chance.random() ** (1 / _weight(one)) for one in firsts.values()}
    # What is no first of its kind comes last, in its order.
    return sorted(trials, key=lambda one: -keys.get(id(one), 0.0))[:count]


def _weight(trial: Trial) -> int:
    during, kind, *_ = trial.kind
    at_stake = _AT_STAKE if kind in ("write", "sync", "truncate") else 1
    return at_stake * (_ACKNOWLEDGED if str(during).startswith("append") else 1)


def shows_error(
    bench: Bench, finding: FuzzFinding, operations: Sequence[Operation]
) -> FuzzFinding | None:
    """The finding, if the same error in the last of these operations shows the same fault."""
    assert finding.fault is not None
    calls = tuple(_driven(operations))
    if not calls:
        return None
    shown: list[FuzzFinding] = []
    run = _run(bench, lambda violation: shown.append(_finding(violation, run.counts.runs)))
    base = plan_base(Case("disk", (), calls))
    fault = msgspec.structs.replace(finding.fault, during=len(calls) - 1)
    for follow in FOLLOWS:
        try:
            run.run(base, fault, follow)
        except RecordingFailed:
            return None
        for one in shown:
            if one.cause == finding.cause:
                return one
    return None


def _run(bench: Bench, found: Callable[[IoViolation], None]) -> IoRun:
    power = "posix" in bench.models
    return IoRun(
        bench.target, bench.slot, power=power, seed=bench.seed, found=found, began=bench.began
    )


def _driven(plan: Iterable[Operation]) -> Iterable[Operation]:
    """The calls of the first store object that write, or may."""
    for operation in plan:
        if operation.store == 0 and isinstance(operation, Create | Append | Load | Reopen):
            yield operation


def _finding(violation: IoViolation, runs: int) -> FuzzFinding:
    fault: IoFault | None = violation.fault
    calls = violation.base.calls
    seen = calls if fault is None else calls[: fault.during + 1]
    clause, sentence = violation.breach.clause, violation.breach.sentence
    return FuzzFinding(
        kind="disk",
        clause=clause,
        sentence=sentence,
        cause=sentence_cause(clause, sentence),
        operations=tuple(seen),
        fault=fault,
        error=io_finding_of(violation, runs),
    )
