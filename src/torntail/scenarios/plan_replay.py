"""Plans without a crash carried out: every call made, the storage looked at, the history judged.

Damages are operations of the plan; files that someone found are put there before it. Calls that a
store does not claim (`inspect`, `list`) are left out. Decides when such a run proves something.
Does not decide what should happen (`judge.model`, `found_files`).
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable
from pathlib import Path

import msgspec

from torntail.drive.onlooker import HarnessError, Onlooker, Storage
from torntail.drive.runner import Runner, hangs
from torntail.drive.target import Target
from torntail.judge.history import (
    Damage,
    History,
    Hung,
    Inspect,
    ListSessions,
    NotPossible,
    Observation,
    Operation,
)
from torntail.judge.oracle import Judging, judge
from torntail.scenarios.format import FileFault, Scenario
from torntail.scenarios.found_files import judge_found_files
from torntail.scenarios.outcome import ReplayFinding, cause_of

__all__ = ["PlanRun", "run_plan"]


class PlanRun(msgspec.Struct, frozen=True):
    """What a plan came to: its history, what was not kept, why it proves nothing if so.

    `tested` are the clauses that were put to the test; `digest` is that of the storage at the end
    or, with files that were found, after each operation; `skipped`, where set, says why the
    scenario does not apply to this kind of storage.
    """

    history: History
    findings: tuple[ReplayFinding, ...]
    tested: frozenset[str]
    digest: str
    unknown: str = ""
    skipped: str = ""


def run_plan(
    scenario: Scenario,
    target: Target,
    scratch: Path,
    onlooker: Onlooker,
    *,
    timeout: float,
    tick: Callable[[], object],
) -> PlanRun:
    """Runs a scenario's plan in a fresh directory; `tick` is called before each call."""
    files = [fault for fault in scenario.faults if isinstance(fault, FileFault)]
    operations = _claimed(scenario.plan, target)
    history: list[Observation] = []
    storage: list[Storage] = []
    directory = Path(tempfile.mkdtemp(prefix="scenario-", dir=scratch))
    try:
        with Runner(target, directory, onlooker, timeout=timeout) as runner:
            root = directory / "case" / "root"
            for fault in files:
                path = root / fault.path
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(fault.data)
            stuck = False
            if files:
                storage.append(onlooker.snapshot(root))
            for operation in operations:
                tick()
                if stuck and not isinstance(operation, Damage):
                    history.append(Observation(operation, Hung(timeout)))
                else:
                    observation = runner.run(operation)
                    stuck = stuck or hangs(observation.outcome)
                    history.append(observation)
                if files:
                    storage.append(onlooker.snapshot(root))
            if not files:
                storage.append(onlooker.snapshot(root))
    except (HarnessError, LookupError, AssertionError) as error:
        return PlanRun(tuple(history), (), frozenset(), "", f"the plan makes no sense: {error}")
    digests = [{name: file.digest for name, file in one.items()} for one in storage]
    if files:
        failures, judging = judge_found_files(
            scenario, tuple(history), digests, target.capabilities
        )
        findings = [_finding(one.clause, one.sentence, one.session) for one in failures]
        tested = {one.clause for one in scenario.expect if one.loads}
    else:
        judging = judge(tuple(history), target.capabilities)
        findings, tested = [], set()
    if judging is not None:
        findings += [
            _finding(one.clause, one.sentence) for one in judging.judgements if not one.passed
        ]
        tested |= {one.clause for one in judging.judgements}
    unknown, skipped = _undecided(judging, tuple(history)) if judging is not None else ("", "")
    digest = hashlib.sha256(repr([sorted(one.items()) for one in digests]).encode()).hexdigest()
    return PlanRun(
        tuple(history),
        tuple(dict.fromkeys(findings)),
        frozenset(tested),
        digest,
        unknown,
        skipped,
    )


def _claimed(operations: tuple[Operation, ...], target: Target) -> list[Operation]:
    capabilities = target.capabilities
    return [
        operation
        for operation in operations
        if (capabilities.inspects or not isinstance(operation, Inspect))
        and (capabilities.lists or not isinstance(operation, ListSessions))
    ]


def _finding(clause: str, sentence: str, session: str = "") -> ReplayFinding:
    return ReplayFinding(
        clause=clause, sentence=sentence, cause=cause_of(clause, sentence), session=session
    )


def _undecided(judging: Judging, history: History) -> tuple[str, str]:
    """Why nothing is proven, and why the scenario does not apply; empty where that is not so."""
    if judging.harness_error:
        return judging.harness_error, ""
    for observation in history:
        outcome = observation.outcome
        if isinstance(outcome, NotPossible):
            reason = f"the damage is not possible: {outcome.reason}"
            return ("", reason) if outcome.moot else (reason, "")
    return "", ""
