"""Writes each command's help into its page: `python -m tests.docs.command_line_page`.

Between the marks of each command in docs/command-line.md stands its `--help`; the rest of the page
is written by hand.
"""

from __future__ import annotations

import re
from pathlib import Path

from click.testing import CliRunner

from torntail.cli import main

PAGE = Path(__file__).parents[2] / "docs" / "command-line.md"

_WIDTH = 88
_HELP = re.compile(
    r"(?P<head><!-- help: (?P<command>[a-z ]*?) ?-->\n).*?(?P<foot><!-- end -->)", re.S
)


def help_of(command: str) -> str:
    """What `torntail COMMAND --help` prints."""
    arguments = [*command.split(), "--help"]
    result = CliRunner().invoke(
        main, arguments, prog_name="torntail", terminal_width=_WIDTH, catch_exceptions=False
    )
    assert result.exit_code == 0, result.output
    return "\n".join(line.rstrip() for line in result.output.strip().splitlines())


def commands(page: str) -> list[str]:
    """The commands that have a place in the page; the empty name is `torntail` itself."""
    return [found["command"] for found in _HELP.finditer(page)]


def page(text: str) -> str:
    """The page with every help renewed."""

    def renewed(found: re.Match[str]) -> str:
        return f"{found['head']}```text\n{help_of(found['command'])}\n```\n{found['foot']}"

    return _HELP.sub(renewed, text)


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
