"""What a fuzzing campaign came to: counts, findings, what was reached, and the exit code.

Decides which findings are told as one (after they were made small, the same calls and crashes under
one clause are one fault) and what makes a run without findings prove nothing. Does not decide where
anything is kept (`fuzz_files`) or how it is shown (`report`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

import torntail
from torntail.drive.target import Target
from torntail.explore.fuzz_finding import FuzzFinding
from torntail.explore.fuzz_messages import FuzzReport
from torntail.judge.capabilities import claims
from torntail.judge.clauses import CLAUSES
from torntail.judge.history import Append
from torntail.judge.obligations import missing_situations

__all__ = ["FuzzResult", "KeptFinding", "total_report"]


_AIMED_AT: Final = frozenset({"CL", "CR", "DM", "IO"})
"""The groups whose situations plans and faults are drawn for."""


@dataclass(slots=True)
class KeptFinding:
    """A finding with where its witness and its scenario are, if they were kept.

    `doubt` says why the scenario is not known to show it again, if it was replayed and did not.
    """

    finding: FuzzFinding
    witness: Path | None = None
    scenario: Path | None = None
    new: bool = True
    doubt: str = ""


@dataclass(slots=True)
class FuzzResult:
    """The whole of a campaign.

    `interrupted` is the exit code of an interrupt or a termination. `losses` says how often a
    worker was lost; `errors` what went wrong that was not the store's.
    """

    target: Target
    seed: int
    shard: tuple[int, int]
    level: str
    total: FuzzReport = field(default_factory=FuzzReport)
    findings: list[KeptFinding] = field(default_factory=list)
    seconds: float = 0.0
    corpus_plans: int = 0
    corpus_added: int = 0
    run: Path | None = None
    notes: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    losses: int = 0
    baseline_error: str | None = None
    interrupted: int | None = None

    @property
    def crashes(self) -> bool:
        """Whether crashes were asked for."""
        return self.level != "none"

    @property
    def unknown(self) -> str | None:
        """Why a run without findings proves nothing, if so."""
        if self.total.unseen is not None and self.crashes:
            return (
                "file operations of this store are not seen from inside Python, so it was not "
                f"crashed: {self.total.unseen}"
            )
        if not self.total.plans and not self.total.replayed:
            return "no plan was tried"
        if self.crashes and not self.total.distinct:
            return "no disk was loaded"
        if self.errors or self.total.harness_errors:
            return (*self.errors, *self.total.harness_errors)[0]
        return None

    @property
    def exit_code(self) -> int:
        """0 no finding, 1 findings, 3 unknown, 4 broken baseline, 130 or 143 interrupted."""
        if self.interrupted is not None:
            return self.interrupted
        if self.baseline_error is not None:
            return 4
        if self.findings:
            return 1
        return 3 if self.unknown is not None else 0

    @property
    def rate(self) -> float:
        """Distinct disks a second."""
        return self.total.distinct / max(self.seconds, 0.1)

    @property
    def drawing_share(self) -> float:
        """The part of the processor time that went into drawing plans, Hypothesis's own."""
        spent = self.total.trial_seconds + self.total.shrinking_seconds
        return max(1 - spent / self.total.seconds, 0.0) if self.total.seconds else 0.0

    def reached(self) -> tuple[str, ...]:
        """The situations that occurred."""
        return tuple(sorted(self.total.situations))

    def not_reached(self) -> dict[str, tuple[str, ...]]:
        """For each clause that was put to the test, or should have been, what it lacks."""
        capabilities = self.target.capabilities
        needs = {need for clause in CLAUSES.values() for need in clause.requires}
        claimed = frozenset(need for need in needs if claims(capabilities, need))
        occurred = frozenset(self.total.situations)
        missing: dict[str, tuple[str, ...]] = {}
        for clause in CLAUSES.values():
            due = clause.group == "CR" and self.crashes and self.total.unseen is None
            tried = clause.group in _AIMED_AT and clause.id in self.total.executed
            if not due and not tried:
                continue
            if not all(claims(capabilities, need) for need in clause.requires):
                continue
            lacks = missing_situations(clause.id, occurred, claimed=claimed, damage_moot=False)
            if lacks:
                missing[clause.id] = lacks
        return missing

    def known(self, finding: FuzzFinding) -> KeptFinding | None:
        """The finding that shows the same fault: of the same cause, or small and of one shape."""
        for kept in self.findings:
            other = kept.finding
            if other.cause == finding.cause:
                return kept
            if other.small and finding.small and _shape(other) == _shape(finding):
                return kept
        return None

    def to_json(self) -> dict[str, Any]:
        """The result as it stands in `run.json`."""
        return {
            "torntail": torntail.__version__,
            "run": 1,
            "target": self.target.name,
            "seed": self.seed,
            "shard": "/".join(map(str, self.shard)),
            "level": self.level,
            "capabilities": msgspec.to_builtins(self.target.capabilities),
            "seconds": round(self.seconds, 3),
            "exit_code": self.exit_code,
            "interrupted": self.interrupted is not None,
            "unknown": self.unknown,
            "baseline_error": self.baseline_error,
            "counts": {
                "plans": self.total.plans,
                "corpus_plans_tried": self.total.replayed,
                "corpus_plans_added": self.corpus_added,
                "calls": self.total.calls,
                "crash_positions": self.total.moments,
                "images": self.total.images,
                "distinct_images": self.total.distinct,
                "recoveries": self.total.recoveries,
                "workers_lost": self.losses,
            },
            "drawing_share": round(self.drawing_share, 3),
            "clauses": self.total.executed,
            "reached": self.total.situations,
            "not_reached": {clause: list(lacks) for clause, lacks in self.not_reached().items()},
            "findings": [
                {
                    "clause": kept.finding.clause,
                    "sentence": kept.finding.sentence,
                    "cause": kept.finding.cause,
                    "model": kept.finding.model,
                    "operations": len(kept.finding.operations),
                    "scenario": None if kept.scenario is None else kept.scenario.as_posix(),
                    "witness": None if kept.witness is None else kept.witness.name,
                }
                for kept in self.findings
            ],
            "notes": self.notes,
            "errors": [*self.errors, *self.total.harness_errors],
        }


def _shape(finding: FuzzFinding) -> tuple[object, ...]:
    """The clause, the kinds of calls and events, and the crashes."""
    calls = tuple(
        (type(one).__name__, *(event.type for event in one.events))
        if isinstance(one, Append)
        else type(one).__name__
        for one in finding.operations
    )
    return finding.clause, finding.model, calls


def total_report(reports: Iterable[FuzzReport]) -> FuzzReport:
    """The sum of the reports of workers, those that were lost included."""
    total = FuzzReport()
    for one in reports:
        total = FuzzReport(
            plans=total.plans + one.plans,
            replayed=total.replayed + one.replayed,
            calls=total.calls + one.calls,
            moments=total.moments + one.moments,
            images=total.images + one.images,
            distinct=total.distinct + one.distinct,
            recoveries=total.recoveries + one.recoveries,
            executed=_added(total.executed, one.executed),
            situations=_added(total.situations, one.situations),
            seconds=total.seconds + one.seconds,
            trial_seconds=total.trial_seconds + one.trial_seconds,
            shrinking_seconds=total.shrinking_seconds + one.shrinking_seconds,
            unseen=total.unseen or one.unseen,
            harness_errors=tuple(dict.fromkeys((*total.harness_errors, *one.harness_errors))),
        )
    return total


def _added(one: dict[str, int], other: dict[str, int]) -> dict[str, int]:
    return {key: one.get(key, 0) + other.get(key, 0) for key in {**one, **other}}
