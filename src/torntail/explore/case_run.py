"""Running cases: each in a directory of its own, judged, and made small where it shows a violation.

Decides what the baseline is, how a history without crashes is made small, and what is kept of it.
Does not decide whether a clause was kept (`judge`) or which cases are run (`campaign`).
"""

from __future__ import annotations

import re
import shlex
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from torntail.drive.onlooker import HarnessError, Onlooker, StorageTooLarge
from torntail.drive.runner import Runner, hangs, keep_storage, run_history
from torntail.drive.target import Target, TargetError, check_store
from torntail.explore.room import lacks_room, no_room_in
from torntail.explore.script import Case, Script
from torntail.explore.sound_calls import created_sessions, strangers
from torntail.explore.witness import Runs, describe_steps, keep_history
from torntail.judge.history import History, Hung, Observation, Operation, Refused
from torntail.judge.oracle import Judgement, Judging, judge
from torntail.judge.verdict import Finding
from torntail.record.scratch import FULL

__all__ = ["CaseRunner", "cause_of", "check_opens"]

_IMPATIENT_SECONDS: Final = 5.0
"""How long a call may take once another one was seen to hang."""

_SHRINKING_OPERATIONS: Final = 3000
"""How many operations may be run to make one history small."""


class CaseRunner:
    """Runs operations on fresh stores of one target, below a scratch directory."""

    def __init__(
        self, target: Target, scratch: Path, onlooker: Onlooker, call_timeout: float
    ) -> None:
        self._target = target
        self._scratch = scratch
        self._onlooker = onlooker
        self.call_timeout = call_timeout  # Shorter once a call was seen to hang.

    def baseline_error(self, seed: int) -> str | None:
        """Why the baseline of VD-2 fails: create, append a closed turn, load, reopen, load."""
        script = Script(f"{seed}/baseline", self._target.capabilities)
        log = script.session()
        log.append("TS U SS A SE TE")
        log.load()
        script.reopen()
        log.load()
        with self._directory() as directory:
            check_opens(self._target, directory, self._onlooker, self.call_timeout)
            try:
                history = self._history(script.operations, directory)
            except StorageTooLarge as error:
                return str(error)
        judging = judge(history, self._target.capabilities)
        if judging.harness_error:
            raise HarnessError(judging.harness_error)
        return next((one.sentence for one in judging.judgements if not one.passed), None)

    def run(self, case: Case) -> tuple[History, Judging]:
        """A case and what the judge says of it; raises `HarnessError` if that proves nothing."""
        with self._directory() as directory:
            history = self._history(case.operations, directory)
            return history, judge(history, self._target.capabilities)

    def _history(self, operations: Sequence[Operation], directory: Path) -> History:
        history = run_history(
            self._target, operations, directory, self._onlooker, timeout=self.call_timeout
        )
        if any(map(self._lacked_room, history)):
            raise no_room_in(self._scratch)
        if any(hangs(observation.outcome) for observation in history):
            self.call_timeout = min(self.call_timeout, _IMPATIENT_SECONDS)
        return history

    # --- findings -------------------------------------------------------------------------------

    def finding(
        self,
        case: Case,
        history: History,
        judgement: Judgement,
        command: Sequence[str],
        runs: Runs | None,
    ) -> Finding:
        """A violation with the smallest history that shows it, and its storage kept in `runs`."""
        cause = cause_of(judgement)
        seen = case.operations[: judgement.index + 1]
        again = shlex.join([*command, "--only", judgement.clause])
        if hangs(history[judgement.index].outcome):
            # Seeing it again would mean waiting again.
            steps = describe_steps(seen, history)
            return Finding(judgement.clause, judgement.sentence, case.name, steps, cause, again)
        operations = self._smallest(seen, judgement)
        sentence = judgement.sentence
        witness = None
        with self._directory() as directory:
            smallest = self._history(operations, directory)
            failure = _failure(judge(smallest, self._target.capabilities), judgement)
            if failure is None:
                # It does not fail every time; what was seen is told.
                sentence += " (not every time)"
            else:
                sentence, history = failure.sentence, smallest
            steps = describe_steps([observation.operation for observation in history], history)
            if runs is not None:
                kept = runs.next_directory(judgement.clause)
                keep_storage(directory, kept / "storage")
                keep_history(kept, history, sentence, self._target.capabilities)
                witness = kept.as_posix()
        return Finding(judgement.clause, sentence, case.name, steps, cause, again, witness=witness)

    def _smallest(self, operations: Sequence[Operation], found: Judgement) -> list[Operation]:
        """Drops operations, in halves and then one at a time, while the same fault shows."""
        smallest = list(operations)
        size = max(len(smallest) // 2, 1)
        left = _SHRINKING_OPERATIONS
        while size:
            start = 0
            while start < len(smallest) - 1 and left > 0:
                end = min(start + size, len(smallest) - 1)
                shorter = smallest[:start] + smallest[end:]
                if _has_strangers(shorter) and not _has_strangers(operations):
                    start += size  # A session that nothing creates is another question.
                    continue
                left -= len(shorter)
                failing = self._still_failing(shorter, found)
                if failing is None:
                    start += size
                else:
                    smallest = shorter[:failing]
            size //= 2
        return smallest

    def _still_failing(self, operations: Sequence[Operation], found: Judgement) -> int | None:
        """After how many operations the same fault shows, if it does."""
        with self._directory() as directory:
            try:
                judging = judge(self._history(operations, directory), self._target.capabilities)
            except (HarnessError, LookupError, AssertionError):
                # Without the operation that was dropped, the plan makes no sense any more.
                return None
        failure = _failure(judging, found)
        return None if failure is None else failure.index + 1

    def _lacked_room(self, observation: Observation) -> bool:
        outcome = observation.outcome
        return isinstance(outcome, Refused) and lacks_room(self._scratch, outcome.text)

    @contextmanager
    def _directory(self) -> Iterator[Path]:
        try:
            directory = Path(tempfile.mkdtemp(prefix="case-", dir=self._scratch))
        except OSError as error:
            if error.errno not in FULL:
                raise
            raise no_room_in(self._scratch) from error
        try:
            yield directory
        finally:
            shutil.rmtree(directory, ignore_errors=True)


def check_opens(target: Target, directory: Path, onlooker: Onlooker, call_timeout: float) -> None:
    """Opens a store below `directory`; raises `TargetError` where the factory leads to none.

    That is a mistake of the caller, not a finding.
    """
    with Runner(target, directory / "factory", onlooker, timeout=call_timeout) as runner:
        store = runner.open(0)
        if isinstance(store.opened, Hung):
            raise TargetError(
                f"{target.name} had not returned after {store.opened.seconds:g} s when called "
                "with an empty directory"
            )
        if isinstance(store.opened, Refused):
            raise TargetError(
                f"{target.name} raised {store.opened.exception} when called with an empty "
                f"directory: {store.opened.text}"
            )
        check_store(target.name, store.object, target.capabilities)


def _has_strangers(operations: Sequence[Operation]) -> bool:
    return next(strangers(operations, created_sessions(operations)), None) is not None


def _failure(judging: Judging, found: Judgement) -> Judgement | None:
    """Where a history shows the fault that was found: the same clause, call, due and situation."""
    return next(
        (
            one
            for one in judging.judgements
            if not one.passed and one.due == found.due and cause_of(one) == cause_of(found)
        ),
        None,
    )


def cause_of(judgement: Judgement) -> str:
    """The sentence without what differs between two sightings of one fault."""
    sentence = re.sub(r"\([^()]*\)", "…", judgement.sentence)
    sentence = re.sub(r"'[^']*'|\"[^\"]*\"|\S*[/.]\S+|\d+", "…", sentence)
    return f"{judgement.clause}: {sentence}"
