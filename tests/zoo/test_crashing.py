"""Every store that loses work in a crash is caught by its clause; no careful one is accused."""

from __future__ import annotations

import pytest

from tests.zoo import crashing
from torntail import certify
from torntail.judge.clauses import clauses_in_group

IMAGES = 4_000


def test_every_crash_clause_has_a_store_that_breaks_it() -> None:
    broken = set(crashing.ZOO.values())
    assert broken == {clause.id for clause in clauses_in_group("CR")}
    assert len(crashing.ZOO) >= 40


@pytest.mark.parametrize(("target", "clause"), crashing.ZOO.items(), ids=[*crashing.ZOO])
def test_a_store_that_breaks_in_a_crash_is_caught(target: str, clause: str) -> None:
    certificate = certify(target, only=[clause], images=IMAGES, workers=0, runs=None)
    states = {result.clause: result.state for result in certificate.results}
    assert states == {clause: "fail"}
    assert certificate.harness_errors == ()
    assert certificate.exit_code == 1
    finding = certificate.findings[0]
    assert finding.clause == clause
    plan = f"--plan {finding.case}"
    assert finding.command == f"torntail certify {target} --seed 0 {plan} --only {clause}"
    assert len(finding.steps) <= 25


@pytest.mark.parametrize("target", ["jsonl", "tests.zoo.careful:careful"])
def test_a_store_that_survives_is_not_accused(target: str) -> None:
    certificate = certify(target, only=["CR"], images=2_500, workers=0, runs=None)
    assert certificate.findings == ()
    states = {result.clause: result.state for result in certificate.results}
    expected = {clause.id: "pass" for clause in clauses_in_group("CR")}
    assert states == {**expected, "CR-8": "not applicable"}
    assert certificate.exit_code == 0


def test_a_process_level_store_survives_kills_and_not_a_power_cut() -> None:
    kills = certify("jsonl", durability="process", only=["CR"], images=800, workers=0, runs=None)
    assert (kills.findings, kills.exit_code) == ((), 0)
    power = certify(
        "jsonl",
        durability="process",
        level="power",
        only=["CR-1"],
        images=800,
        workers=0,
        runs=None,
    )
    assert {finding.clause for finding in power.findings} == {"CR-1"}
    assert power.exit_code == 1
    assert "the level power is above what is claimed (durability process)" in power.notes


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_a_careful_store_is_never_accused(seed: int) -> None:
    certificate = certify("jsonl", level="power", only=["CR"], seed=seed, images=100_000, runs=None)
    assert certificate.findings == ()
    assert certificate.exit_code == 0
