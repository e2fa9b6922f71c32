"""docs/faults.md says what the code's fault vocabulary says, and that names code that is there."""

from __future__ import annotations

import importlib

import pytest

from tests.docs.faults_page import OTHERS, PAGE, TOOLS, page
from torntail.crash.devices import DEVICE_FAULTS
from torntail.crash.faults import FAULTS, FaultRow


def test_the_page_is_made_from_the_table() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run python -m tests.docs.faults_page"


def test_the_rows_are_all_there() -> None:
    assert [row.number for row in FAULTS] == list(range(1, 37))
    assert OTHERS.keys() == {row.number for row in FAULTS}
    assert {len(cells.split("|")) for cells in OTHERS.values()} == {len(TOOLS)}


@pytest.mark.parametrize("row", FAULTS, ids=lambda row: str(row.number))
def test_what_is_covered_is_there(row: FaultRow) -> None:
    assert bool(row.where) == (row.state in ("covered", "partly"))
    if row.state in ("partly", "not planned"):
        assert row.note, "what is missing, or why"
    if row.where:
        module, _, name = row.where.rpartition(".")
        assert hasattr(importlib.import_module(module), name)


def test_every_device_fault_has_a_row() -> None:
    named = {row.where.rpartition(".")[2] for row in FAULTS}
    # A lost write shares the row of a misdirected one.
    assert {kind.__name__ for kind in DEVICE_FAULTS} - named == {"LostWrite"}
