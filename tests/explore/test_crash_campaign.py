"""Crash campaigns: the same for any number of workers, and ended by no store."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from torntail import certify
from torntail.cli import main
from torntail.crash.disk import Model
from torntail.drive.target import target_of
from torntail.explore.crash_campaign import CrashResult, crash_campaign
from torntail.explore.plans import UnknownPlanError, crash_plans
from torntail.judge.capabilities import Capabilities
from torntail.judge.history import Append
from torntail.session import SessionEvent

KILL: tuple[Model, ...] = ("kill",)


def crashed(
    target: str, *, workers: int, images: int = 250, hang_seconds: float = 60
) -> CrashResult:
    return crash_campaign(
        target_of(target),
        KILL,
        seed=0,
        images=images,
        workers=workers,
        hang_seconds=hang_seconds,
    )


def test_a_worker_finds_what_this_process_finds() -> None:
    here = crashed("tests.zoo.crashing:no_closers", workers=0)
    there = crashed("tests.zoo.crashing:no_closers", workers=1)
    assert here.findings == there.findings
    assert here.total() == there.total()
    assert {finding.clause for finding in here.findings} >= {"CR-2"}


def test_the_same_seed_gives_the_same_campaign() -> None:
    first, second = (crashed("jsonl", workers=0) for _ in range(2))
    assert first.total() == second.total()
    assert first.total().distinct >= 250
    assert first.findings == second.findings == []


def test_a_store_that_ends_the_process_is_a_finding() -> None:
    result = crashed("tests.zoo.hostile:ends_the_process", workers=1)
    assert [loss.reason for loss in result.losses] == [
        "the store's process was ended with exit code 0"
    ]
    assert result.errors == []
    certificate = certify(
        "tests.zoo.hostile:ends_the_process", level="process", only=["CR-3"], workers=1, runs=None
    )
    assert [result.state for result in certificate.results] == ["fail"]


@pytest.mark.parametrize("workers", [0, 1])
def test_a_store_that_hangs_is_a_finding(workers: int) -> None:
    result = crashed("tests.zoo.hostile:hangs", workers=workers, hang_seconds=2)
    told = [loss.reason for loss in result.losses]
    told += [finding.sentence for finding in result.findings if finding.clause == "CR-3"]
    assert any("a call had not returned after 2 s" in reason for reason in told)
    assert result.errors == []


@pytest.mark.parametrize("name", ["exits", "raises_oddly"])
def test_an_exception_that_is_no_error_is_a_finding(name: str) -> None:
    result = crashed(f"tests.zoo.hostile:{name}", workers=0)
    assert "CR-3" in {finding.clause for finding in result.findings}
    assert (result.losses, result.errors) == ([], [])


@pytest.mark.parametrize("name", ["prints", "lazy", "keeps_open", "threads"])
def test_an_odd_store_that_keeps_its_promises_is_not_accused(name: str) -> None:
    result = crashed(f"tests.zoo.hostile:{name}", workers=1, images=120)
    assert (result.findings, result.losses, result.errors) == ([], [], [])
    assert result.unseen is None
    assert result.total().distinct >= 120


def test_a_store_that_writes_past_python_is_not_judged() -> None:
    by_default = certify("tests.zoo.unseen:unseen", only=["CR-1"], workers=0, runs=None)
    assert [result.state for result in by_default.results] == ["not exercised yet"]
    asked_for = certify(
        "tests.zoo.unseen:unseen", level="power", only=["CR-1"], workers=0, runs=None
    )
    assert [result.state for result in asked_for.results] == ["unknown"]
    assert "sessions.db" in asked_for.results[0].note
    assert asked_for.exit_code == 3


def test_plans_hold_equal_neighbours_alone_and_in_a_batch() -> None:
    alone, inside = 0, 0
    for case in islice(crash_plans(0, Capabilities()), 80):
        last: dict[str, SessionEvent] = {}
        for call in case.operations:
            if not isinstance(call, Append):
                continue
            for index, event in enumerate(call.events):
                before = last.get(call.session)
                if before is not None and event == msgspec.structs.replace(before, seq=event.seq):
                    alone, inside = alone + (not index), inside + bool(index)
                last[call.session] = event
    assert alone > 0
    assert inside > alone


def test_a_plan_that_is_none_is_refused() -> None:
    with pytest.raises(UnknownPlanError):
        certify("jsonl", plan="nonsense", runs=None)
    result = CliRunner().invoke(main, ["certify", "jsonl", "--plan", "small-3"])
    assert result.exit_code == 2
    assert "no plan is named 'small-3'" in result.stderr


def test_a_finding_keeps_its_disk_and_its_command_shows_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    target = "tests.zoo.crashing:first_flush_under_its_own_name"
    command = ["certify", target, "--only", "CR-10", "--workers", "0"]
    result = CliRunner().invoke(main, command)
    assert result.exit_code == 1
    last = result.stdout.rstrip().splitlines()[-1]
    assert last.startswith(f"torntail certify {target} --seed 0 --plan ")
    (witness,) = Path(".torntail/runs").glob("*/01-CR-10")
    kept = json.loads((witness / "crash.json").read_text())
    assert kept["clause"] == "CR-10"
    assert [path.suffix for path in (witness / "disk").rglob("*") if path.is_file()] == [".jsonl"]
    again = CliRunner().invoke(main, [*last.split()[1:], "--workers", "0"])
    assert again.exit_code == 1
    assert again.stdout.rstrip().splitlines()[-1] == last
