"""A violation under an I/O error as a finding: told step by step, its disk kept, its command given.

Decides how an error is put into words and what a witness directory holds. Does not decide what a
violation is (`judge.io`).
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from torntail.crash.io_faults import fault_told
from torntail.explore.crash_findings import crash_words, keep_record
from torntail.explore.io_shard import IoFinding
from torntail.explore.witness import describe_steps
from torntail.judge.history import Observation, Refused, Reopen
from torntail.judge.io_steps import IoStep, Revive, Struck, Take
from torntail.judge.verdict import Finding

__all__ = ["io_finding", "keep_io"]


def io_finding(finding: IoFinding, command: Sequence[str], witness: str | None) -> Finding:
    """The finding as it stands on a certificate."""
    steps = list(describe_steps(finding.before, None))
    if steps:
        steps[-1] += ": the process is killed inside this call"
        steps.append("a new process opens the store")
    struck = False
    for step in finding.steps:
        line = _told(step)
        if step.struck and not struck and finding.fault is not None:
            struck = True
            line += f" [{fault_told(finding.fault)}]"
        elif step.struck:
            line += f" [struck: {', '.join(map(_struck, step.struck[:4]))}]"
        steps.append(line)
    model = "I/O error" if finding.fault is not None else "file taken"
    if finding.crash is not None:
        model += f" then {finding.crash.model}"
        steps.append(f"then {crash_words(finding.crash)}")
        steps.append("a new process opens the store and loads")
    if finding.session:
        steps.append(f"{finding.session!r}: {finding.acknowledged} events were acknowledged")
    return Finding(
        clause=finding.clause,
        sentence=finding.sentence,
        case=finding.plan,
        steps=tuple(steps),
        cause=finding.cause,
        command=shlex.join([*command, "--plan", finding.plan, "--only", finding.clause]),
        model=model,
        witness=witness,
    )


def keep_io(directory: Path, finding: IoFinding) -> None:
    """Writes the disk as `disk/`, and `io.json` with the calls, the error and the crash."""
    keep_record(directory, "io.json", finding, finding.files, finding.directories)


def _told(step: IoStep) -> str:
    outcome = step.outcome
    refused = (
        f" → {outcome.exception}: {outcome.text[:160]}" if isinstance(outcome, Refused) else ""
    )
    match step.call:
        case Revive(session):
            back = f" → goes on at seq {step.next_seq}" if step.next_seq is not None else refused
            return f"reopen {session!r}{back}"
        case Take(session, how, path):
            return f"the file of {session!r}, {path!r}, is {how} from outside"
        case Reopen():
            return f"the store is closed and opened again{refused}"
        case call:
            return describe_steps([call], (Observation(call, outcome),))[0]


def _struck(struck: Struck) -> str:
    told = f"{struck.kind} {struck.error or 'short'}"
    return f"{told} after {struck.done} of {struck.size} bytes" if struck.done else told
