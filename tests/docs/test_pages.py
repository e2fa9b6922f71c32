"""Pages that are made from code say what the code says."""

from __future__ import annotations

from tests.docs import command_line_page, turns_page
from torntail.cli import main


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
