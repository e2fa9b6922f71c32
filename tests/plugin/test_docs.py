"""The store and its test in docs/pytest.md do what the page says; the page names what there is."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields
from pathlib import Path

import pytest

from tests.plugin.support import FAILED, Project, section
from torntail import contract_suite
from torntail.settings import Settings

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "pytest.md").read_text(encoding="utf-8")
SYNCED = "            os.fsync(file.fileno())\n"


@pytest.fixture
def example(project: Project) -> Project:
    for name in ("tiny_store.py", "test_tiny_store.py"):
        project.write(name, (DOCS / "examples" / name).read_bytes())
    return project


def test_the_example_keeps_what_it_claims(example: Project) -> None:
    result = example.run("--torntail-images=300")
    passed, skipped = re.findall(r"^(\d+) passed, (\d+) skipped in …$", PAGE, re.MULTILINE)[0]
    result.assert_outcomes(passed=int(passed), skipped=int(skipped))


def test_without_the_step_that_the_page_names_one_test_fails(example: Project) -> None:
    source = (example.path / "tiny_store.py").read_text()
    assert source.count(SYNCED) == 1
    example.write("tiny_store.py", source.replace(SYNCED, ""))
    result = example.run("--torntail-images=60", "-k", "test_cr_1 or test_cr_2 or test_rw_1")
    assert result.ret == FAILED
    *_, command = section(result.outlines, "torntail")
    # The page has it without the budget.
    shown = command.strip().removesuffix(" --torntail-images=60")
    assert f"\n{shown}\n" in PAGE
    sentence = re.findall(r"^(CR-1 violated: .*)$", PAGE, re.MULTILINE)[0]
    assert sentence in result.outlines


def test_the_page_names_every_argument_and_key() -> None:
    arguments = inspect.signature(contract_suite).parameters
    rows = re.findall(r"^\| (`.*) \|.*\|$", PAGE, re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert set(arguments) <= named
    keys = set(re.findall(r"^\|[^|]* \| `(\w+)` \| .* \|$", PAGE, re.MULTILINE))
    assert keys == {field.name for field in fields(Settings)}
