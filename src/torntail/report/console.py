"""Where results are printed: a terminal of some width, or a file or pipe, in which no line is cut.

Decides that lines are wrapped for a terminal alone, so that a command or a path that somebody takes
from a log is whole. NO_COLOR and FORCE_COLOR are obeyed (by rich).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

__all__ = ["print_table", "result_console", "working"]

_ENDLESS: Final = 100_000
"""A width that no line has."""


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Leaves it to the command what becomes of it; rich would end the process with 1."""
        raise  # What rich has caught where it calls this.


def result_console(*, stderr: bool = False) -> Console:
    """A console for results, which shows text as it is."""
    console = _Console(stderr=stderr, highlight=False, emoji=False, markup=False)
    # Not `is_terminal`, which FORCE_COLOR sets, too.
    if not console.file.isatty():
        console.width = _ENDLESS
    return console


def print_table(console: Console, table: Table) -> None:
    """Prints a table, its rows without blanks at their ends."""
    with console.capture() as captured:
        console.print(table)
    for line in captured.get().splitlines():
        console.file.write(f"{line.rstrip(' ')}\n")


@contextmanager
def working(what: str) -> Iterator[None]:
    """Shows on a terminal that something takes time, and how much it took."""
    console = Console(stderr=True, markup=False)
    if not (console.is_terminal and sys.stderr.isatty()):
        yield
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        progress.add_task(what, total=None)
        yield
