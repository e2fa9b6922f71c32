"""A share of a fuzzing campaign: plans drawn round after round, tried, and findings made small.

The same function serves a worker process and a campaign in this one. Decides how rounds get their
seeds, so that shards and workers need not speak to each other, the settings Hypothesis runs with,
and what makes a plan interesting. Hypothesis only draws: its own shrinking works on the choices
behind a plan, where ours drops operations of the plan itself and keeps the clause and the cause, so
the phases are `generate` and `target` alone; the database is off, since the corpus holds plans and
not choices; and every setting is given, since a CI profile would derandomise what is not.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import msgspec
from hypothesis import HealthCheck, Phase, Verbosity, configuration, seed, settings
from hypothesis.errors import Flaky
from hypothesis.stateful import run_state_machine_as_test

from torntail.explore.fuzz_bench import Bench
from torntail.explore.fuzz_finding import FuzzFinding
from torntail.explore.fuzz_messages import CORPUS_FORMAT, CorpusPlan, FuzzReport, FuzzShare
from torntail.explore.fuzz_shrink import smaller
from torntail.explore.fuzz_trial import Reach, Trial
from torntail.explore.machine import STEPS, SessionMachine
from torntail.explore.room import case_scratch, lacks_room, no_room_in

__all__ = ["ROUND_EXAMPLES", "TimeIsUp", "fuzz_share", "round_seed"]

ROUND_EXAMPLES: Final = 25
"""Plans drawn from one seed."""

_CAUSES_PER_CLAUSE: Final = 3
_CORPUS_SHARE_OF_TIME: Final = 0.25
_LATE_SHRINKING_SECONDS: Final = 10.0
_MOST_OPERATIONS_KEPT: Final = 60


class TimeIsUp(BaseException):
    """No further plan is to be drawn."""


def round_seed(share: FuzzShare, number: int) -> int:
    """The seed of a round; no two rounds of any shards have the same."""
    text = f"{share.seed} {share.shard}/{share.shards} {number}"
    return int.from_bytes(hashlib.sha256(text.encode("ascii")).digest()[:8], "big")


class _Share:
    """One share at work."""

    def __init__(
        self,
        bench: Bench,
        share: FuzzShare,
        found: Callable[[FuzzFinding], None],
        interesting: Callable[[CorpusPlan], None],
        tick: Callable[[FuzzReport], None],
        note: Callable[[str], None],
    ) -> None:
        self.bench = bench
        self.share = share
        self.tell = found
        self.interesting = interesting
        self.tick = tick
        self.note = note
        self.known = set(share.features)
        self.causes = dict.fromkeys(share.causes)
        self.waiting: list[FuzzFinding] = []
        self.round = share.first_round - 1
        self.replayed = 0
        self.begun = time.process_time()
        self.shrinking_seconds = 0.0
        self.end = None if share.seconds is None else time.monotonic() + share.seconds
        bench.found = self.heard
        bench.tick = self.ticked

    # --- reports --------------------------------------------------------------------------------

    def report(self, *, done: bool = False) -> FuzzReport:
        bench, counts = self.bench, self.bench.counts
        return FuzzReport(
            plans=counts.plans,
            replayed=self.replayed,
            calls=bench.calls,
            moments=counts.moments,
            images=counts.images,
            distinct=counts.distinct,
            recoveries=counts.recoveries,
            executed=dict(counts.executed),
            situations=dict(counts.situations),
            seconds=time.process_time() - self.begun,
            trial_seconds=bench.seconds,
            shrinking_seconds=self.shrinking_seconds,
            round=self.round,
            done=done,
            unseen=bench.unseen,
            harness_errors=tuple(dict.fromkeys(bench.harness_errors))[:5],
        )

    def ticked(self) -> None:
        self.tick(self.report())

    def heard(self, finding: FuzzFinding) -> None:
        """A fault was seen; the first of its cause is told now and made small after the plan."""
        if finding.cause in self.causes:
            return
        path = self.bench.live_slot.path
        if finding.fault is None and lacks_room(path, finding.sentence):
            # The scratch space is full, and the store is not to blame for what comes of that.
            told = str(no_room_in(path))
            if told not in self.bench.harness_errors:
                self.bench.harness_errors.append(told)
            return
        of_clause = sum(cause.startswith(f"{finding.clause}") for cause in self.causes)
        if of_clause >= _CAUSES_PER_CLAUSE:
            return
        self.causes[finding.cause] = None
        self.waiting.append(finding)
        self.tell(finding)

    def reached(self, trial: Trial, reach: Reach) -> None:
        """After each plan: findings are made small, and what is new is kept."""
        waiting, self.waiting = self.waiting, []
        for finding in waiting:
            begun = time.process_time()
            self.tell(smaller(self.bench, finding, self.still_time))
            self.shrinking_seconds += time.process_time() - begun
        new = reach.features - self.known
        self.known |= new
        if new and len(trial.plan) <= _MOST_OPERATIONS_KEPT:
            plan = CorpusPlan(
                torntail=CORPUS_FORMAT,
                target=self.bench.target.name,
                features=tuple(sorted(new)),
                plan=tuple(trial.plan),
            )
            self.interesting(plan)
        self.ticked()

    def still_time(self) -> bool:
        """Whether a finding may be made smaller still: a little longer than plans are drawn."""
        return self.end is None or time.monotonic() < self.end + _LATE_SHRINKING_SECONDS

    def over(self) -> bool:
        return self.end is not None and time.monotonic() >= self.end

    # --- plans ----------------------------------------------------------------------------------

    def run(self) -> FuzzReport:
        try:
            self.replay_corpus()
            self.draw_rounds()
        except TimeIsUp:
            pass
        return self.report(done=True)

    def replay_corpus(self) -> None:
        """Plans that once reached something are crashed elsewhere than then."""
        share = self.share
        end = None
        if share.seconds is not None:
            end = time.monotonic() + share.seconds * _CORPUS_SHARE_OF_TIME
        for number, kept in enumerate(share.corpus):
            if end is not None and time.monotonic() >= end:
                return
            trial = Trial(self.bench, f"corpus-{number}", round_seed(share, -1 - number) % 2**32)
            try:
                for operation in kept.plan:
                    if not trial.judge.lost:
                        trial.perform(operation)
            except (LookupError, AssertionError, TypeError, ValueError) as error:
                # A plan that someone changed by hand may make no sense.
                trial.abandon()
                self.note(f"a plan of the corpus makes no sense: {type(error).__name__}: {error}")
                continue
            except BaseException:
                trial.abandon()
                raise
            self.replayed += 1
            self.reached(trial, trial.finish())

    def draw_rounds(self) -> None:
        share = self.share
        number = share.first_round
        while number % share.workers != share.worker:
            number += 1
        while True:
            left = ROUND_EXAMPLES
            if share.examples is not None:
                left = min(left, share.examples - number * ROUND_EXAMPLES)
            if left <= 0 or self.over():
                return
            self.round = number
            self.draw(round_seed(share, number), left)
            number += share.workers

    def draw(self, round_seed: int, examples: int) -> None:
        """One round: Hypothesis drives the machine so many times."""
        share = self

        def bench() -> Bench:
            if share.over():
                raise TimeIsUp
            return share.bench

        attributes: dict[str, Any] = {
            "bench": staticmethod(bench),
            "reached": staticmethod(self.reached),
        }
        machine = seed(round_seed)(type("FuzzMachine", (SessionMachine,), attributes))
        try:
            run_state_machine_as_test(machine, settings=_settings(examples))
        except Flaky as error:
            if self.over():
                # Plans that end because the time is up look like this to Hypothesis.
                raise TimeIsUp from error
            self.note(f"the store does not do the same twice (round {self.round})")


def _settings(examples: int) -> settings:
    return settings(
        max_examples=examples,
        stateful_step_count=STEPS,
        phases=[Phase.generate, Phase.target],
        database=None,
        derandomize=False,
        deadline=None,
        verbosity=Verbosity.quiet,
        report_multiple_bugs=False,
        print_blob=False,
        suppress_health_check=list(HealthCheck),
        backend="hypothesis",
    )


def fuzz_share(
    bench: Bench,
    share: FuzzShare,
    *,
    found: Callable[[FuzzFinding], None],
    interesting: Callable[[CorpusPlan], None] = lambda plan: None,
    tick: Callable[[FuzzReport], None] = lambda report: None,
    note: Callable[[str], None] = lambda text: None,
) -> FuzzReport:
    """Runs a share to its end.

    `found` gets each cause twice: when it is seen, and when its history was made small.
    `interesting` gets plans that reached something new, `tick` the state after each call and
    moment, `note` what a person should know.
    """
    if lacks_room(bench.live_slot.path, ""):
        # Stores would refuse what is asked of them, and nothing would come of it.
        bench.harness_errors.append(str(no_room_in(bench.live_slot.path)))
    with _nothing_kept_by_hypothesis():
        report = _Share(bench, share, found, interesting, tick, note).run()
    return msgspec.structs.replace(report, done=True)


@contextmanager
def _nothing_kept_by_hypothesis() -> Iterator[None]:
    """What it writes down of the sources it reads goes to scratch space, then away.

    Otherwise a folder `.hypothesis` would be left where the command was called.
    """
    before = getattr(configuration, "__hypothesis_home_directory", None)
    with case_scratch() as folder:
        configuration.set_hypothesis_home_dir(folder)
        try:
            yield
        finally:
            configuration.set_hypothesis_home_dir(before)
