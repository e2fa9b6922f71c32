"""Campaigns of I/O errors: the same on every run, spread over all kinds, and ended by no store."""

from __future__ import annotations

import json
from collections import Counter
from itertools import islice
from pathlib import Path

import pytest

from torntail import certify
from torntail.crash.io_faults import IoFault
from torntail.drive.target import target_of
from torntail.explore.crash_campaign import CrashResult, crash_campaign
from torntail.explore.io_findings import io_finding
from torntail.explore.io_run import IoRun, IoViolation
from torntail.explore.io_trials import Trial, plan_base, repair_bases, trials_of, well_spread
from torntail.explore.plans import crash_plan, crash_plans
from torntail.judge.history import Append, Returned
from torntail.judge.obligations import OBLIGATIONS
from torntail.record.install import install
from torntail.record.scratch import Scratch
from torntail.record.slots import Slot

install()


def struck(target: str, *, workers: int, runs: int = 60, hang_seconds: float = 60) -> CrashResult:
    return crash_campaign(
        target_of(target),
        (),
        seed=0,
        images=0,
        workers=workers,
        hang_seconds=hang_seconds,
        io_runs=runs,
        power=True,
    )


def test_a_worker_finds_what_this_process_finds() -> None:
    here, there = (struck("tests.zoo.io_errors:cuts_too_much", workers=count) for count in (0, 1))
    assert here.io_findings == there.io_findings
    assert here.total() == there.total()
    assert {finding.clause for finding in here.io_findings.values()} >= {"IO-2"}


def test_the_same_seed_gives_the_same_campaign() -> None:
    first, second = (struck("tests.zoo.careful:careful", workers=0) for _ in range(2))
    assert first.total() == second.total()
    total = first.total()
    # Files taken away are counted with the errors.
    assert (total.io_runs, total.io_missed) == (67, 0)
    assert first.io_findings == second.io_findings == {}


def test_a_quick_look_meets_every_situation() -> None:
    total = struck("tests.zoo.careful:careful", workers=0, runs=320).total()
    asked = {
        situation
        for clause, obligations in OBLIGATIONS.items()
        if clause.startswith("IO-")
        for obligation in obligations
        for situation in obligation.any_of
    }
    assert asked <= total.situations.keys()


@pytest.fixture(scope="module")
def trials() -> list[Trial]:
    target = target_of("tests.zoo.careful:careful")
    found: list[IoViolation] = []
    with Scratch() as scratch, Slot(scratch) as slot:
        run = IoRun(target, slot, power=True, found=found.append)
        trials: list[Trial] = []
        for plan in islice(crash_plans(0, target.capabilities), 6):
            base = plan_base(plan)
            story = run.learn(base)
            assert story.breaches == []
            trials += trials_of(base, story)
            for repair in repair_bases(plan, story, 0):
                trials += trials_of(repair, run.learn(repair))
    return trials


def test_each_kind_comes_once_before_any_comes_twice(trials: list[Trial]) -> None:
    order = well_spread(trials, 0)
    assert Counter(map(id, order)) == Counter(map(id, trials))
    kinds = {trial.kind for trial in trials}
    assert {trial.kind for trial in order[: len(kinds)]} == kinds
    assert {trial.follow for trial in order[:100]} == {"stay", "retry", "leave"}


def test_what_is_struck_and_when(trials: list[Trial]) -> None:
    struck_at = {trial.kind[:2] for trial in trials}
    assert struck_at >= {
        ("first flush", "mkdir"),
        ("first flush", "create"),
        ("first flush", "write"),
        ("first flush", "sync"),
        ("first flush", "rename"),
        ("first flush", "sync-directory"),
        ("append", "open"),
        ("append", "write"),
        ("append", "sync"),
        ("append without load", "write"),
        ("load", "open"),
        ("load", "truncate"),
        ("load", "sync"),
        ("load", "write"),
    }
    failures = {
        (trial.fault.sync.pages, trial.fault.sync.reported)
        for trial in trials
        if trial.fault.sync is not None
    }
    assert len(failures) == 6


def test_an_error_that_does_not_strike_is_not_counted() -> None:
    target = target_of("tests.zoo.careful:careful")
    with Scratch() as scratch, Slot(scratch) as slot:
        run = IoRun(target, slot, power=True, found=lambda violation: None)
        base = plan_base(crash_plan(0, target.capabilities, "first-turn"))
        assert not run.run(base, IoFault(during=1, on="write", nth=99), "stay")
        assert run.run(base, IoFault(during=1, on="write"), "stay")
        assert run.counts.runs == 1


def test_a_finding_is_told_and_kept(tmp_path: Path) -> None:
    certificate = certify(
        "tests.zoo.io_errors:ignores_a_short_write", only=["IO-4"], workers=0, runs=tmp_path
    )
    finding = certificate.findings[0]
    assert finding.model.startswith("I/O error")
    assert any("comes short" in step for step in finding.steps)
    assert finding.witness is not None
    kept = Path(finding.witness)
    record = json.loads((kept / "io.json").read_text(encoding="utf-8"))
    assert record["clause"] == "IO-4"
    assert record["fault"]["fault"] == "io-error"
    assert (kept / "disk").is_dir()
    assert certificate.counts.io_runs > 0
    assert certificate.to_json()["counts"]["io_struck"].keys() >= {"write"}


def test_a_file_that_was_taken_is_told_with_what_was_acknowledged() -> None:
    target = target_of("tests.zoo.io_errors:makes_the_log_anew")
    found = struck(target.name, workers=0).io_findings.values()
    finding = next(one for one in found if one.clause == "IO-6")
    count = sum(
        len(step.call.events)
        for step in finding.steps
        if isinstance(step.call, Append) and isinstance(step.outcome, Returned)
    )
    assert count > 1
    steps = io_finding(finding, (), None).steps
    assert steps[-1] == f"{finding.session!r}: {count} events were acknowledged"


def test_the_command_of_a_finding_shows_it_again() -> None:
    target = "tests.zoo.io_errors:goes_on_after_a_failed_fsync"
    finding = certify(target, only=["IO-3"], workers=0, runs=None).findings[0]
    again = certify(target, only=["IO-3"], plan=finding.case, workers=0, runs=None)
    assert [one.clause for one in again.findings] == ["IO-3"]


@pytest.mark.parametrize("workers", [0, 1])
def test_a_store_that_hangs_under_an_error_is_a_finding(workers: int) -> None:
    result = struck("tests.zoo.io_hostile:hangs", workers=workers, hang_seconds=2)
    assert [loss.reason for loss in result.losses] == ["a call had not returned after 2 s"]
    assert [loss.io for loss in result.losses] == [True]
    assert result.errors == []


def test_a_store_that_ends_the_process_over_an_error_is_a_finding() -> None:
    certificate = certify(
        "tests.zoo.io_hostile:ends_the_process", only=["IO-2"], workers=1, runs=None
    )
    assert [result.state for result in certificate.results] == ["fail"]
    assert "ended with exit code" in certificate.findings[0].sentence
    assert certificate.findings[0].model == "I/O error"
