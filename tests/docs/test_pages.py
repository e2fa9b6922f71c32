"""Pages that are made from code say what the code says."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

from tests.docs import command_line_page, turns_page
from torntail.cli import main
from torntail.judge.verdict import Certificate, ClauseResult, Counts, Finding, State

PAGES = Path(__file__).parents[2] / "docs"


def test_the_grammar_of_turns_is_the_table() -> None:
    shown = turns_page.PAGE.read_text(encoding="utf-8")
    assert shown == turns_page.page(), "run python -m tests.docs.turns_page"


def test_the_command_line_shows_each_help() -> None:
    shown = command_line_page.PAGE.read_text(encoding="utf-8")
    # Where a line is broken may differ between versions of click.
    expected = command_line_page.page(shown).split()
    assert shown.split() == expected, "run python -m tests.docs.command_line_page"


def test_the_command_line_leaves_out_no_command() -> None:
    shown = command_line_page.PAGE.read_text(encoding="utf-8")
    assert sorted(command_line_page.commands(shown)) == sorted(["", *main.commands])


def test_the_certificate_page_names_every_state() -> None:
    shown = (PAGES / "certificate.md").read_text(encoding="utf-8")
    assert [state for state in get_args(State) if f"\n| {state} |" not in shown] == []
    readme = (PAGES.parent / "README.md").read_text(encoding="utf-8")
    assert [state for state in get_args(State) if f"\n| {state} |" not in readme] == []


def test_the_certificate_page_names_every_key_of_the_file() -> None:
    shown = (PAGES / "certificate.md").read_text(encoding="utf-8")
    keys = ["verdict", "not_claimed", *Certificate.__struct_fields__]
    assert [key for key in keys if f"\n| `{key}` |" not in shown] == []
    inner = [
        key
        for struct in (ClauseResult, Finding, Counts)
        for key in struct.__struct_fields__
        if f"`{key}`" not in shown
    ]
    assert inner == []
