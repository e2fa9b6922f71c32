"""A fuzzing campaign on a terminal: progress while it runs, then what was reached and found.

Progress goes to standard error, and only where that is a terminal; results go to standard output.
The last line of a run with findings is the command that shows the first of them again. Everything a
store under test could have chosen is shown with its control characters escaped.
"""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Callable, Sequence
from typing import Final, Self

from rich.console import Console
from rich.live import Live
from rich.text import Text

from torntail.explore.fuzz_finding import FuzzFinding
from torntail.explore.fuzz_result import FuzzResult, KeptFinding
from torntail.judge.clauses import CLAUSES
from torntail.report.console import result_console
from torntail.report.inspection import printable

__all__ = ["FuzzProgress", "print_fuzz", "replay_command"]

_FIRST_LINES: Final = 25
_LAST_LINES: Final = 35

Story = Callable[[FuzzFinding], Sequence[str]]
"""Tells a finding, a line each."""


class FuzzProgress:
    """Shows where a campaign is; a context manager, and called with its state."""

    def __init__(self, max_time: float | None, max_examples: int | None) -> None:
        self._console = Console(stderr=True)
        self._live: Live | None = None
        self._max_time = max_time
        self._max_examples = max_examples
        self._shown_at = 0.0

    def __enter__(self) -> Self:
        if self._console.is_terminal and sys.stderr.isatty():
            self._live = Live(console=self._console, transient=True, auto_refresh=False)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def __call__(self, result: FuzzResult) -> None:
        """Takes the state of the campaign."""
        if self._live is None or time.monotonic() - self._shown_at < 0.2:
            return
        self._shown_at = time.monotonic()
        total = result.total
        until = f" of {self._max_time:g}" if self._max_time is not None else ""
        plans = f" of {self._max_examples}" if self._max_examples is not None else ""
        found = len(result.findings)
        self._live.update(
            Text(
                f"fuzz {printable(result.target.name)} · {result.seconds:.0f}{until} s · "
                f"{total.plans}{plans} plans · {total.distinct} distinct images "
                f"({result.rate:.0f}/s) · {len(total.situations)} situations · "
                f"{found} finding{'' if found == 1 else 's'}"
            ),
            refresh=True,
        )


def replay_command(result: FuzzResult, kept: KeptFinding) -> str | None:
    """The command that shows a finding again; None if it was not saved, or does not show so."""
    if kept.scenario is None or kept.doubt:
        return None
    words = ["torntail", "replay", kept.scenario.as_posix(), "--store", result.target.name]
    return shlex.join(words)


def print_fuzz(result: FuzzResult, again: str, story: Story) -> None:
    """Prints counts, what was reached, the findings, and the command that shows the first, last.

    `again` is the command that repeats the run, `story` tells a finding.
    """
    console = result_console()
    head = f"{result.target.name} · level {result.level} · seed {result.seed}"
    if result.shard != (1, 1):
        head += f" · shard {result.shard[0]}/{result.shard[1]}"
    console.print(Text(printable(head), "bold"))
    if result.baseline_error is not None:
        console.print(Text(f"broken baseline: {printable(result.baseline_error)}", "bold red"))
        console.print("Nothing was tried: a store has to create, append, load and reopen first.")
        console.out(f"torntail certify {shlex.quote(result.target.name)}", highlight=False)
        return
    _print_counts(console, result)
    _print_reached(console, result)
    for note in result.notes:
        console.print(Text(f"note: {printable(note, 400)}", "yellow"))
    for error in dict.fromkeys((*result.errors, *result.total.harness_errors)):
        console.print(Text(f"error: {printable(error, 400)}", "bold red"))
    for kept in result.findings:
        _print_finding(console, result, kept, story)
    _print_verdict(console, result, again)


def _print_counts(console: Console, result: FuzzResult) -> None:
    total = result.total
    corpus = f" and {total.replayed} of the corpus" if total.replayed else ""
    drawn = total.plans - total.replayed
    console.print(
        f"{drawn} plans drawn{corpus}, {total.calls} calls, in {result.seconds:.1f} s; crashed at "
        f"{total.moments} positions: {total.images} images, {total.distinct} of them distinct and "
        f"loaded ({result.rate:.0f} a second), {total.recoveries} distinct recoveries gone on with"
    )
    told = f"drawing plans took {result.drawing_share:.0%} of the processor time"
    if result.corpus_plans or result.corpus_added:
        told += f" · corpus: {result.corpus_plans} plans found, {result.corpus_added} added"
    if result.losses:
        told += f" · the store took its process along {result.losses} times"
    console.print(Text(told, "dim"))


def _print_reached(console: Console, result: FuzzResult) -> None:
    reached = result.reached()
    if reached:
        console.print(Text(f"reached: {printable('; '.join(reached), 4000)}", "dim"))
    missing = result.not_reached()
    if missing:
        told = "; ".join(f"{clause} {', '.join(lacks)}" for clause, lacks in missing.items())
        console.print(Text(f"not reached: {printable(told, 4000)}", "yellow"))


def _print_finding(console: Console, result: FuzzResult, kept: KeptFinding, story: Story) -> None:
    finding = kept.finding
    console.print()
    sentence = printable(finding.sentence, 1000)
    console.print(Text(f"{finding.clause} violated: {sentence}", "bold red"))
    console.print(Text(f"  {CLAUSES[finding.clause].sentence}", "dim"))
    small = "" if finding.small else " (not made small)"
    console.print(Text(f"  model: {finding.model}{small}"))
    lines = list(story(finding))
    left_out = len(lines) - _FIRST_LINES - _LAST_LINES
    if left_out > 0:
        lines[_FIRST_LINES : _FIRST_LINES + left_out] = [f"… {left_out} more"]
    for line in lines:
        console.print(Text(f"  {printable(line, 1000)}"))
    if kept.witness is not None:
        console.out(f"  witness: {printable(kept.witness.as_posix())}", highlight=False)
    if kept.scenario is not None:
        known = "" if kept.new else " (was saved before)"
        console.out(f"  saved: {printable(str(kept.scenario))}{known}", highlight=False)
    if kept.doubt:
        console.print(Text(f"  {printable(kept.doubt, 1000)}", "yellow"))
    command = replay_command(result, kept)
    if command is not None:
        console.out(f"  {command}", highlight=False)


def _print_verdict(console: Console, result: FuzzResult, again: str) -> None:
    found = len(result.findings)
    console.print()
    if result.interrupted is not None:
        console.print(Text("interrupted: what was found by then is kept", "yellow"))
    if not found:
        unknown = result.unknown
        if unknown is not None:
            console.print(Text(f"unknown: {printable(unknown, 1000)}", "yellow"))
            console.out(again, highlight=False)
        else:
            console.print(Text("no finding", "green"))
        return
    console.print(Text(f"{found} finding{'' if found == 1 else 's'}", "bold red"))
    commands = [replay_command(result, kept) for kept in result.findings]
    shown = [command for command in commands if command is not None]
    if shown and found > 1:
        console.print(f"(the first of {found})")
    console.out(shown[0] if shown else again, highlight=False)
