"""Every store that is wrong when the disk says no is caught by its clause; no careful one is."""

from __future__ import annotations

import pytest

from tests.zoo import io_errors
from torntail import certify
from torntail.judge.clauses import clauses_in_group

CLAUSES = {clause.id for clause in clauses_in_group("IO")}


def test_every_io_clause_has_a_store_that_breaks_it() -> None:
    assert set(io_errors.ZOO.values()) == CLAUSES
    assert len(io_errors.ZOO) >= 25


@pytest.mark.parametrize(("target", "clause"), io_errors.ZOO.items(), ids=[*io_errors.ZOO])
def test_a_store_that_is_wrong_about_an_error_is_caught(target: str, clause: str) -> None:
    certificate = certify(target, only=[clause], workers=0, runs=None)
    states = {result.clause: result.state for result in certificate.results}
    assert states == {clause: "fail"}
    assert certificate.harness_errors == ()
    assert certificate.exit_code == 1
    finding = certificate.findings[0]
    assert finding.clause == clause
    plan = f"--plan {finding.case}"
    assert finding.command == f"torntail certify {target} --seed 0 {plan} --only {clause}"
    assert len(finding.steps) <= 30


@pytest.mark.parametrize("seed", range(3))
def test_a_careful_store_is_not_accused(seed: int) -> None:
    certificate = certify("tests.zoo.careful:careful", only=["IO"], seed=seed, workers=0, runs=None)
    assert certificate.findings == ()
    states = {result.clause: result.state for result in certificate.results}
    assert states == dict.fromkeys(sorted(CLAUSES), "pass")
    assert certificate.exit_code == 0


@pytest.mark.parametrize("seed", range(3))
def test_the_reference_store_is_not_accused(seed: int) -> None:
    certificate = certify("jsonl", only=["IO"], seed=seed, workers=0, runs=None)
    assert certificate.findings == ()
    assert {result.state for result in certificate.results} == {"pass"}


def test_a_store_that_never_syncs_has_no_fsync_to_fail() -> None:
    certificate = certify(
        "jsonl", durability="process", only=["IO-3"], io_runs=40, workers=0, runs=None
    )
    notes = {result.clause: (result.state, result.note) for result in certificate.results}
    why = "the store never calls fsync on a file: none can fail"
    assert notes == {"IO-3": ("not applicable", why)}


@pytest.mark.parametrize(("level", "state"), [(None, "not exercised yet"), ("power", "unknown")])
def test_what_cannot_be_seen_is_said(level: str | None, state: str) -> None:
    certificate = certify(
        "tests.zoo.unseen:unseen",
        only=["IO"],
        level=level,  # type: ignore[arg-type]
        io_runs=4,
        workers=0,
        runs=None,
    )
    assert {result.state for result in certificate.results} == {state}
    assert "not seen from inside Python" in certificate.results[0].note


def test_memory_is_not_asked() -> None:
    certificate = certify("memory", only=["IO"], runs=None)
    assert {result.state for result in certificate.results} == {"not requested"}


@pytest.mark.slow
@pytest.mark.parametrize("target", ["jsonl", "tests.zoo.careful:careful"])
@pytest.mark.parametrize("seed", range(5))
def test_a_careful_store_is_never_accused(target: str, seed: int) -> None:
    certificate = certify(target, level="power", only=["IO"], seed=seed, runs=None)
    assert certificate.findings == ()
    assert certificate.exit_code == 0
