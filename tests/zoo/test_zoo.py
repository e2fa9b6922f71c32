"""No check without a store that breaks it (VD-5), and no store that keeps the contract accused."""

from __future__ import annotations

from types import ModuleType

import pytest
from click.testing import CliRunner

from tests.zoo import closing, crashing, damage, reading
from torntail import certify
from torntail.cli import main
from torntail.judge.clauses import clauses_in_group

ZOO = {**reading.ZOO, **closing.ZOO, **damage.ZOO}
GROUPS = ("RW", "CL", "DM")

# Everything but the values, whose 64 MiB line is the same for every seed.
WITHOUT_VALUES = [
    *(clause.id for clause in clauses_in_group("RW") if clause.id != "RW-12"),
    "CL",
    "DM",
]


def test_every_clause_has_a_store_that_breaks_it() -> None:
    broken = set(ZOO.values())
    assert broken == {clause.id for group in GROUPS for clause in clauses_in_group(group)}


@pytest.mark.parametrize(("target", "clause"), ZOO.items(), ids=[*ZOO])
def test_a_broken_store_is_caught_by_its_clause(target: str, clause: str) -> None:
    certificate = certify(target, only=[clause], runs=None)
    states = {result.clause: result.state for result in certificate.results}
    assert (certificate.verdict, certificate.exit_code) == ("fail", 1)
    assert states == {clause: "fail"}
    assert certificate.harness_errors == ()
    finding = certificate.findings[0]
    assert finding.clause == clause
    assert finding.command == f"torntail certify {target} --seed 0 --only {clause}"
    # Small enough to be read: the fault itself and what leads up to it.
    assert 1 <= len(finding.steps) <= 40


@pytest.mark.parametrize(
    ("target", "caught"),
    [
        ("tests.zoo.reading:cannot_look_is_not_found", {"RW-8"}),
        ("tests.zoo.reading:loads_the_first_hundred", {"RW-1"}),
        ("tests.zoo.closing:a_synthetic_result_answers_nothing", {"CL-6"}),
        ("tests.zoo.damage:drops_a_record_without_newline", {"DM-4"}),
        ("tests.zoo.damage:does_not_say_where", {"DM-1"}),
    ],
)
def test_neighbouring_clauses_are_not_accused(target: str, caught: set[str]) -> None:
    group = next(iter(caught))[:2]
    certificate = certify(target, only=[group], runs=None)
    failed = {result.clause for result in certificate.results if result.state == "fail"}
    assert failed == caught


def test_the_command_says_the_same(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    monkeypatch.chdir(tmp_path)
    target = "tests.zoo.damage:keeps_no_copy"
    result = CliRunner().invoke(main, ["certify", target, "--only", "DM-2"])
    assert result.exit_code == 1
    assert "DM-2 violated: the torn tail held a whole record" in result.stdout
    last = result.stdout.rstrip().splitlines()[-1]
    assert last == f"torntail certify {target} --seed 0 --only DM-2"


def test_the_store_the_zoo_is_made_of_keeps_the_contract() -> None:
    certificate = certify("tests.zoo.plain:plain", only=GROUPS, runs=None)
    assert certificate.findings == ()
    assert certificate.verdict == "pass"


@pytest.mark.parametrize("name", ["eager", "lazy_unclaimed"])
def test_a_store_that_is_not_lazy_may_show_a_session_without_events_or_not(name: str) -> None:
    certificate = certify(f"tests.zoo.strangers:{name}", only=GROUPS, runs=None)
    assert certificate.findings == ()
    assert certificate.verdict == "pass"
    others = {one.clause: one.state for one in certificate.results if one.state != "pass"}
    assert others == {"RW-6": "not applicable", "DM-7": "counted"}


@pytest.mark.parametrize("module", [reading, closing, damage, crashing])
def test_a_module_of_broken_stores_can_open_no_other(module: ModuleType) -> None:
    classes = [
        name
        for name, value in vars(module).items()
        if isinstance(value, type) and value.__module__ == module.__name__
        if hasattr(value, "append")
    ]
    assert classes == []


@pytest.mark.parametrize("target", ["memory", "jsonl", "sqlite"])
def test_a_reference_store_passes_every_clause(target: str) -> None:
    certificate = certify(target, only=GROUPS, runs=None)
    assert certificate.findings == ()
    assert certificate.verdict == "pass"
    if target != "memory":
        states = {result.clause: result.state for result in certificate.results}
        # Which flips come back is counted for a store that does not claim to see them.
        assert states.pop("DM-7") == "counted"
        assert set(states.values()) == {"pass"}


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("target", ["memory", "jsonl", "sqlite"])
def test_a_reference_store_is_never_accused(target: str, seed: int) -> None:
    certificate = certify(target, seed=seed, only=WITHOUT_VALUES, runs=None)
    assert certificate.findings == ()
    assert certificate.verdict == "pass"
