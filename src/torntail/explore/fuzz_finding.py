"""What fuzzing finds: a violation with the plan and the crash, call or damage that shows it.

Decides which sightings are one fault (clause and cause) and what is told of them. Does not decide
what a violation is (`judge`) or how one is made small (`fuzz_shrink`) and saved.
"""

from __future__ import annotations

import re
from typing import Literal

import msgspec

from torntail.crash.io_faults import IoFault, fault_told
from torntail.explore.crash_findings import crash_finding
from torntail.explore.crash_shard import CrashFinding
from torntail.explore.io_findings import io_finding
from torntail.explore.io_shard import IoFinding
from torntail.explore.witness import describe_steps
from torntail.judge.history import History, Observation, Operation, Returned, StrangeResult

__all__ = ["FuzzFinding", "FuzzKind", "crash_finding_of", "loss_finding", "sentence_cause"]

FuzzKind = Literal["call", "damage", "crash", "disk", "lost"]
"""Where a fault showed: at a call, after damage, after a crash, after an error of the disk, or the
store took the process along.
"""


class FuzzFinding(msgspec.Struct, frozen=True, kw_only=True):
    """A violation of a clause.

    `operations` are the plan up to where it showed, damage included, and `history` what came of
    them; `crash` tells of the disk, where a crash showed it, and `late` from which part of the
    call's moments on it was sought; `fault` is the disk's error in the last call, and `error` what
    the store did with it. `small`: its history was made as small as could be.
    """

    kind: FuzzKind
    clause: str
    sentence: str
    cause: str
    operations: tuple[Operation, ...]
    history: History = ()
    crash: CrashFinding | None = None
    late: float = 0.0
    fault: IoFault | None = None
    error: IoFinding | None = None
    small: bool = False

    @property
    def steps(self) -> tuple[str, ...]:
        """What was done and what struck, a line each."""
        if self.error is not None:
            return io_finding(self.error, (), None).steps
        if self.crash is not None:
            return crash_finding(self.crash, (), None).steps
        return describe_steps(self.operations, self.history or None)

    @property
    def model(self) -> str:
        """The crashes that show it, or that it takes none."""
        if self.fault is not None:
            return fault_told(self.fault)
        if self.crash is None or not self.crash.chain:
            return "no fault" if self.kind == "call" else self.kind
        return " then ".join(crash.model for crash in self.crash.chain)


def sentence_cause(clause: str, sentence: str) -> str:
    """What is equal for sentences that differ in names and numbers, or in a store's own words."""
    sentence = re.sub(r"(refused \(\w+\)).*", r"\1", sentence, flags=re.DOTALL)
    sentence = re.sub(r"'[^']*'|\"[^\"]*\"|\S*[/.]\S+|\d+", "…", sentence)
    return f"{clause}: {sentence}"


def crash_finding_of(crash: CrashFinding, *, late: float = 0.0, small: bool = False) -> FuzzFinding:
    """The finding that a crash shows."""
    return FuzzFinding(
        kind="crash",
        clause=crash.clause,
        sentence=crash.sentence,
        cause=sentence_cause(crash.clause, crash.sentence),
        operations=crash.calls,
        crash=crash,
        late=late,
        small=small,
    )


def loss_finding(reason: str, operations: tuple[Operation, ...], crashing: bool) -> FuzzFinding:
    """The finding that a store ended or hung its process, at a call or at a crashed disk."""
    clause = "CR-3" if crashing else "RW-1"
    where = "after a crash" if crashing else "at the last call"
    # What the calls before the last one gave is lost with the process.
    history = tuple(Observation(one, Returned()) for one in operations[:-1])
    history += tuple(Observation(one, StrangeResult(reason)) for one in operations[-1:])
    return FuzzFinding(
        kind="lost",
        clause=clause,
        sentence=f"{reason}, {where}",
        cause=f"{clause} {reason}",
        operations=operations,
        history=history,
    )
