"""The part of a campaign in which several processes write: MW-1 to MW-5.

Decides when it is tried, how a history is made small, and what is kept of it. Does not decide which
histories there are (`writers_plans`), how they are made (`writers_run`) or what they prove
(`judge.writers`).
"""

from __future__ import annotations

import json
import shlex
import shutil
import tempfile
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from torntail.drive.conversation import DriverError
from torntail.drive.onlooker import HarnessError, Onlooker
from torntail.drive.runner import hangs, keep_storage
from torntail.drive.target import Durability, Target
from torntail.explore.case_run import cause_of
from torntail.explore.progress import CaseEnded
from torntail.explore.room import lacks_room, no_room_in
from torntail.explore.witness import Runs, describe_call
from torntail.explore.writers_plans import WritersPlan, writers_plans
from torntail.explore.writers_run import WriterProcesses, importable
from torntail.judge.capabilities import claims
from torntail.judge.clauses import clauses_in_group
from torntail.judge.history import Refused
from torntail.judge.oracle import Judgement, Judging
from torntail.judge.verdict import Finding, Request, Tally
from torntail.judge.writer_steps import (
    Age,
    Ask,
    AtOnce,
    Hear,
    Signal,
    Tell,
    WritersHistory,
    WriterStep,
)
from torntail.judge.writers import judge_writers

__all__ = ["WritersPart"]

_CALL_SECONDS: Final = 10.0
"""A call that waits for the other writer, which is idle or stopped, would wait for ever."""


class WritersPart:
    """Lets processes write to the stores of one target, below a scratch directory."""

    def __init__(
        self,
        target: Target,
        request: Request,
        *,
        seed: int,
        durability: Durability | None,
        call_timeout: float,
        scratch: Path,
        onlooker: Onlooker,
        tally: Tally,
        command: Sequence[str],
        runs: Runs | None,
    ) -> None:
        self._target = target
        self._request = request
        self._scratch = scratch
        self._tally = tally
        self._command = command
        self._runs = runs
        self._findings: dict[str, Finding] = {}
        self._processes = WriterProcesses(
            target, durability, onlooker, min(call_timeout, _CALL_SECONDS)
        )
        wanted = [
            clause.id
            for clause in clauses_in_group("MW")
            if request.requests(clause)
            and request.wants(clause.id)
            and all(claims(target.capabilities, need) for need in clause.requires)
        ]
        self.plans: list[WritersPlan] = []
        if not wanted:
            return
        if target.capabilities.durability == "none":
            for clause in wanted:
                tally.moot(clause, "a store without durability is not shared by processes")
        elif not importable(target):
            tally.not_shared(f"no other process can import {target.name}")
        else:
            # A load under a live writer, say, may go wrong in any of them.
            self.plans = [
                plan
                for plan in writers_plans(seed, target.capabilities)
                if plan.clause in wanted and not (plan.forks and target.driver is not None)
            ]
            tally.plan(plan.clause for plan in self.plans)

    @property
    def findings(self) -> dict[str, Finding]:
        """What was found, by cause."""
        return self._findings

    def run(self) -> Generator[tuple[CaseEnded, int], None, None]:
        """Makes the histories; gives each with the number of its steps. No process is left."""
        with self._processes:
            for plan in self.plans:
                try:
                    yield self._run(plan)
                except DriverError as error:
                    _, told, reason = str(error).rpartition("it wrote last: ")
                    who = "be its driver" if self._target.driver else f"serve {self._target.name}"
                    reason = reason if told else str(error)
                    self._tally.not_shared(f"no other process can {who}: {reason}")
                    return
                except HarnessError as error:
                    self._tally.harness_error(f"{plan.name}: {error}")
                    yield CaseEnded(plan.name, (plan.clause,), 0), 0

    def _run(self, plan: WritersPlan) -> tuple[CaseEnded, int]:
        with self._directory() as directory:
            history, judging = self._judged(plan.steps, plan.clause, directory)
        self._tally.add(judging, [plan.clause])
        findings = []
        for judgement in judging.judgements:
            if judgement.passed or not self._request.wants(judgement.clause):
                continue
            cause = cause_of(judgement)
            if cause not in self._findings:
                self._findings[cause] = self._finding(plan, history, judgement)
                findings.append(self._findings[cause])
        ended = CaseEnded(plan.name, (plan.clause,), len(judging.judgements), tuple(findings))
        return ended, len(history)

    def _judged(
        self, steps: Sequence[WriterStep], clause: str, directory: Path
    ) -> tuple[WritersHistory, Judging]:
        history = self._processes.run(steps, directory)
        for one in history:
            outcome = one.outcome
            if isinstance(outcome, Refused) and lacks_room(self._scratch, outcome.text):
                raise no_room_in(self._scratch)
        return history, judge_writers(history, clause, self._target.capabilities)

    # --- findings -------------------------------------------------------------------------------

    def _finding(self, plan: WritersPlan, history: WritersHistory, found: Judgement) -> Finding:
        """A violation, its storage kept, and of the first of a clause the smallest history."""
        history = history[: found.index + 1]
        sentence = found.sentence
        steps = [one.step for one in history]
        witness = None
        with self._directory() as directory:
            # To see a call hang again would mean waiting again.
            if not hangs(history[-1].outcome):
                if not any(one.clause == found.clause for one in self._findings.values()):
                    steps = self._smallest(steps, plan, found)
                smallest, judging = self._judged(steps, plan.clause, directory)
                again = _failure(judging, found)
                if again is None:
                    sentence += " (not every time)"
                else:
                    history, sentence = smallest, again.sentence
            told = _describe(history)
            if self._runs is not None:
                kept = self._runs.next_directory(found.clause)
                keep_storage(directory, kept / "storage")
                _keep(kept, history, told, sentence)
                witness = kept.as_posix()
        # The history is about one clause, and may have shown the violation of another.
        only = dict.fromkeys([plan.clause, found.clause])
        command = [*self._command, *(part for one in only for part in ("--only", one))]
        return Finding(
            found.clause,
            sentence,
            plan.name,
            told,
            cause_of(found),
            shlex.join(command),
            model="several writers",
            witness=witness,
        )

    def _smallest(
        self, steps: list[WriterStep], plan: WritersPlan, found: Judgement
    ) -> list[WriterStep]:
        """Drops steps, one at a time from the end, while the same fault shows."""
        for index in range(len(steps) - 2, -1, -1):
            shorter = steps[:index] + steps[index + 1 :]
            with self._directory() as directory:
                try:
                    _, judging = self._judged(shorter, plan.clause, directory)
                except (HarnessError, KeyError, AssertionError):
                    # Without that step the history makes no sense any more.
                    continue
            failure = _failure(judging, found)
            if failure is not None:
                steps = shorter[: failure.index + 1]
        return steps

    @contextmanager
    def _directory(self) -> Iterator[Path]:
        directory = Path(tempfile.mkdtemp(prefix="writers-", dir=self._scratch))
        try:
            yield directory
        finally:
            shutil.rmtree(directory, ignore_errors=True)


def _failure(judging: Judging, found: Judgement) -> Judgement | None:
    """Where a history shows the fault that was found."""
    return next(
        (one for one in judging.judgements if not one.passed and cause_of(one) == cause_of(found)),
        None,
    )


# --- words and files ------------------------------------------------------------------------------

_SIGNALS: Final = {
    "stop": "is stopped (SIGSTOP)",
    "continue": "is continued (SIGCONT)",
    "kill": "is killed (SIGKILL), and not reaped",
    "fork": "forks a child, which does nothing and lives on",
}


def _describe(history: WritersHistory) -> tuple[str, ...]:
    """One line for each step."""
    return tuple(_words(one.step, one.outcome) for one in history)


def _words(step: WriterStep, outcome: object) -> str:
    match step:
        case Ask(writer, call):
            return f"process {writer}: {describe_call(call, outcome)}"
        case Tell(writer, call):
            return f"process {writer} is told, and not yet heard: {describe_call(call, None)}"
        case Hear(writer):
            return f"process {writer} answers{describe_call(None, outcome)}"
        case AtOnce(asks):
            told = "; ".join(
                f"process {ask.writer}: {describe_call(ask.call, None)}" for ask in asks
            )
            return f"at once, {told}{describe_call(None, outcome)}"
        case Signal(writer, kind):
            return f"process {writer} {_SIGNALS[kind]}"
        case Age():
            return "the times of all files are put back by an hour"


def _keep(directory: Path, history: WritersHistory, told: Sequence[str], sentence: str) -> None:
    """Writes `steps.txt` and `history.json` into a directory."""
    directory.mkdir(parents=True, exist_ok=True)
    text = "".join(f"{number}. {line}\n" for number, line in enumerate(told, 1))
    (directory / "steps.txt").write_text(
        f"{text}\n{sentence}\n", encoding="utf-8", errors="backslashreplace"
    )
    record = json.dumps(msgspec.to_builtins(history), indent=1, default=repr)
    (directory / "history.json").write_text(record + "\n", encoding="utf-8")
