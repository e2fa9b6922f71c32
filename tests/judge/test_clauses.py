"""The clause table and the contract people read say the same."""

import dataclasses
import pathlib
import re

import pytest

from torntail.judge import clauses
from torntail.judge.clauses import CLAUSES, GROUPS, clause, clauses_in_group

CONTRACT = pathlib.Path(__file__).parents[2] / "docs" / "contract.md"
CLAUSE_LINE = re.compile(r"^- ([A-Z]{2}-\d+) (.*)$")

# The numbers are part of the contract: a clause is retired, never renumbered.
COUNTS = {"RW": 17, "CR": 11, "CL": 7, "DM": 8, "IO": 6, "MW": 5, "LV": 5, "VD": 7}

YES_NO = {"atomic_batch", "checks_seq", "forks", "header", "inspects", "lazy", "lists"}
VALUES = {
    "creates": {"explicit"},
    "detects": {"torn", "gap", "bitflip"},
    "profile": {"session"},
    "repairs": {"load"},
    "writers": {"one-locked", "many"},
}


@pytest.fixture(scope="module")
def contract_lines() -> list[str]:
    return CONTRACT.read_text(encoding="utf-8").split("\n")


@pytest.mark.parametrize("clause_id", CLAUSES)
def test_the_document_has_each_sentence_verbatim(clause_id: str, contract_lines: list[str]) -> None:
    assert f"- {clause_id} {CLAUSES[clause_id].sentence}" in contract_lines


def test_document_and_table_have_the_same_ids_in_the_same_order(
    contract_lines: list[str],
) -> None:
    documented = [match[1] for line in contract_lines if (match := CLAUSE_LINE.match(line))]
    assert documented == list(CLAUSES)


def test_each_group_stands_under_its_heading(contract_lines: list[str]) -> None:
    heading = ""
    for line in contract_lines:
        if line.startswith("## "):
            heading = line.removeprefix("## ")
        elif match := CLAUSE_LINE.match(line):
            assert heading == GROUPS[CLAUSES[match[1]].group], match[1]


def test_no_row_was_swallowed_by_another_of_the_same_id() -> None:
    assert len(CLAUSES) == len(clauses._ROWS) == sum(COUNTS.values())


@pytest.mark.parametrize("group", GROUPS)
def test_numbers_are_contiguous_within_a_group(group: str) -> None:
    expected = [f"{group}-{number}" for number in range(1, COUNTS[group] + 1)]
    assert [entry.id for entry in clauses_in_group(group)] == expected


@pytest.mark.parametrize("entry", CLAUSES.values(), ids=list(CLAUSES))
def test_each_clause_is_well_formed(entry: clauses.Clause) -> None:
    assert entry.id.startswith(f"{entry.group}-")
    assert 0 < len(entry.summary) <= 70
    assert entry.sentence.strip() == entry.sentence
    assert "\n" not in entry.sentence
    assert "  " not in entry.sentence
    for requirement in entry.requires:
        name, equals, value = requirement.partition("=")
        assert value in VALUES[name] if equals else name in YES_NO


def test_the_capabilities_the_document_names_are_required() -> None:
    assert clause("RW-6").requires == ("lazy",)
    assert clause("RW-9").requires == ("lists",)
    assert clause("RW-14").requires == clause("RW-15").requires == ("header",)
    assert clause("DM-8").requires == ("inspects",)
    for number in range(1, 5):
        assert clause(f"MW-{number}").requires == ("writers=one-locked",)
    assert clause("MW-5").requires == ("writers=many",)
    for entry in (*clauses_in_group("CL"), clause("CR-9")):
        assert entry.requires == ("profile=session",)


def test_a_store_without_bitflip_detection_is_still_exercised() -> None:
    assert clause("DM-7").requires == ()


def test_levels_follow_the_groups() -> None:
    levels = {group: {entry.level for entry in clauses_in_group(group)} for group in GROUPS}
    assert levels == {
        "RW": {"none"},
        "CR": {"process"},
        "CL": {"none"},
        "DM": {"none"},
        "IO": {"process"},
        "MW": {"process"},
        "LV": {"runtime"},
        "VD": {"harness"},
    }


def test_table_and_clauses_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        CLAUSES["RW-1"] = clause("RW-2")  # type: ignore[index]
    with pytest.raises(dataclasses.FrozenInstanceError):
        clause("RW-1").summary = "anything"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("wrong", "near"), [("rw-1", "RW-1"), ("RW1", "RW-1"), ("CR-12", "CR-1"), (" dm-8", "DM-8")]
)
def test_an_unknown_id_names_the_nearest(wrong: str, near: str) -> None:
    with pytest.raises(KeyError) as caught:
        clause(wrong)
    assert isinstance(caught.value, clauses.UnknownClauseError)
    assert near in caught.value.close_matches
    assert str(caught.value).startswith(f"no clause {wrong!r} in the contract; did you mean ")


def test_an_unknown_id_like_no_other_gets_no_suggestion() -> None:
    with pytest.raises(clauses.UnknownClauseError, match=r"no clause 'zebra' in the contract$"):
        clause("zebra")


def test_an_unknown_group_names_the_groups() -> None:
    with pytest.raises(KeyError, match="RW, CR, CL, DM, IO, MW, LV, VD"):
        clauses_in_group("XX")
