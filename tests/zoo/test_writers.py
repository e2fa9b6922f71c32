"""No clause on several writers without a store that breaks it, and no right store accused."""

from __future__ import annotations

import shlex

import pytest
from click.testing import CliRunner

from tests.zoo import writers
from torntail import certify
from torntail.cli import main
from torntail.judge.clauses import clauses_in_group
from torntail.judge.verdict import Certificate

# A call of a right store takes milliseconds; what waits for a lock waits for ever.
CALL_SECONDS = {"tests.zoo.writers:waits_for_the_lock": 4.0}


def states(certificate: Certificate) -> dict[str, str]:
    return {result.clause: result.state for result in certificate.results}


def test_every_clause_has_a_store_that_breaks_it() -> None:
    assert set(writers.ZOO.values()) == {clause.id for clause in clauses_in_group("MW")}


@pytest.mark.parametrize(("target", "clause"), writers.ZOO.items(), ids=[*writers.ZOO])
def test_a_broken_store_is_caught_by_its_clause(target: str, clause: str) -> None:
    seconds = CALL_SECONDS.get(target, 30.0)
    certificate = certify(target, only=[clause], runs=None, call_timeout=seconds)
    assert (certificate.verdict, certificate.exit_code) == ("fail", 1)
    assert states(certificate) == {clause: "fail"}
    assert certificate.harness_errors == ()
    finding = certificate.findings[0]
    assert (finding.clause, finding.model) == (clause, "several writers")
    assert finding.command == f"torntail certify {target} --seed 0 --only {clause}"
    # The fault itself and what leads up to it.
    assert 2 <= len(finding.steps) <= 8


@pytest.mark.parametrize(
    ("target", "clause"),
    [
        ("tests.zoo.writers:an_old_lock_is_taken_over", "MW-1"),
        ("tests.zoo.writers:a_child_keeps_the_lock", "MW-2"),
        ("tests.zoo.writers:says_that_all_is_durable", "MW-3"),
        ("tests.zoo.writers:goes_by_what_it_remembers", "MW-4"),
    ],
)
def test_neighbouring_clauses_are_not_accused(target: str, clause: str) -> None:
    found = states(certify(target, only=["MW"], runs=None))
    assert [one for one, state in found.items() if state == "fail"] == [clause]


@pytest.mark.parametrize(
    "target", ["jsonl", "sqlite", "tests.zoo.locked:locked", "tests.zoo.locked:opaque"]
)
def test_a_store_with_one_locked_writer_is_not_accused(target: str) -> None:
    certificate = certify(target, only=["MW"], runs=None)
    assert certificate.findings == ()
    assert certificate.harness_errors == ()
    passed = {f"MW-{number}": "pass" for number in range(1, 5)}
    assert states(certificate) == {**passed, "MW-5": "not applicable"}
    assert certificate.exit_code == 0


def test_a_store_whose_sessions_exist_once_they_are_created_is_not_accused() -> None:
    certificate = certify("tests.zoo.locked:eager", only=["MW-1"], runs=None)
    assert (certificate.findings, certificate.verdict) == ((), "pass")


def test_a_store_for_many_writers_is_not_accused() -> None:
    certificate = certify("tests.zoo.locked:many", only=["MW"], runs=None)
    assert certificate.findings == ()
    moot = {f"MW-{number}": "not applicable" for number in range(1, 5)}
    assert states(certificate) == {**moot, "MW-5": "pass"}
    assert certificate.exit_code == 0


def test_the_command_shows_it_again(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    monkeypatch.chdir(tmp_path)
    target = "tests.zoo.writers:a_lock_file_is_left_behind"
    result = CliRunner().invoke(main, ["certify", target, "--only", "MW-2", "--seed", "5"])
    assert result.exit_code == 1
    last = result.stdout.rstrip().splitlines()[-1]
    assert last == f"torntail certify {target} --seed 5 --only MW-2"
    again = CliRunner().invoke(main, shlex.split(last)[1:])
    assert again.exit_code == 1
    kept = next((tmp_path / ".torntail" / "runs").glob("*/01-MW-2"))
    steps = (kept / "steps.txt").read_text().splitlines()
    assert "3. process A is killed (SIGKILL), and not reaped" in steps
    assert list(kept.glob("storage/*/*.jsonl"))
    assert (kept / "history.json").stat().st_size > 0
