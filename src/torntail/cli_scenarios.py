"""The commands that carry scenario files out and list them: `replay` and `scenarios`.

Decides options, exit codes and what is printed; the work is in the room `scenarios`.
"""

from __future__ import annotations

import json
import shlex
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import click
import msgspec
from rich.table import Table
from rich.text import Text

from torntail import __version__
from torntail.cli_output import stores_may_print
from torntail.cli_runs import fail, recheck_command, shrink_command
from torntail.cli_seconds import Seconds
from torntail.drive.target import TargetError, target_of
from torntail.report.console import print_table, result_console
from torntail.report.inspection import printable
from torntail.scenarios.batch import FileResult, replay_files
from torntail.scenarios.crash_replay import CrashLimits
from torntail.scenarios.files import ScenarioError, find_scenarios, load_scenario, odd_place
from torntail.scenarios.outcome import Replay, one_for_each_clause
from torntail.scenarios.worker import ReplayOrder

__all__ = ["SCENARIO_COMMANDS"]

PASS, VIOLATED, USAGE, UNKNOWN = 0, 1, 2, 3
_CONTEXT: Final = {"help_option_names": ["-h", "--help"]}
_WORDS: Final = {
    "fixed": "FIXED",
    "failed": "FAILED",
    "unknown": "UNKNOWN",
    "skipped": "SKIPPED",
}


def _found(paths: Sequence[Path]) -> list[Path]:
    try:
        return find_scenarios(paths)
    except ScenarioError as error:
        fail(str(error))


# --- replay ---------------------------------------------------------------------------------------

_REPLAY_HELP: Final = """Carry out saved scenarios and say whether what they expect holds.

PATH is a scenario's file or a folder of them. Each is run on the store it names, or on --store.

\b
FIXED    the expectation holds
FAILED   a clause is violated
UNKNOWN  it could not be decided: a fault did not land, or the time was up
SKIPPED  it does not apply to a store that claims no more than this one
ERROR    the file or the store cannot be used

\b
Exit code: 0 all hold, 1 a clause is violated,
           2 an error in a file or in usage, 3 unknown.

\b
Examples:
  torntail replay fault-scenarios
  torntail replay fault-scenarios --store mypackage.store:open_store
  torntail replay --explain fault-scenarios/torn-tail/half-a-record.json
  torntail replay fault-scenarios --json results.json
"""


@click.command("replay", help=_REPLAY_HELP, context_settings=_CONTEXT)
@click.argument(
    "paths", metavar="PATH...", nargs=-1, required=True, type=click.Path(path_type=Path)
)
@click.option("--store", metavar="TARGET", help="Run them on this store: jsonl, module:factory.")
@click.option(
    "--durability",
    type=click.Choice(["none", "process", "power"]),
    help="Replaces the store's claim; jsonl and sqlite are also opened with it.",
)
@click.option(
    "--level",
    type=click.Choice(["none", "process", "power"]),
    help="Also run scenarios that ask so much of a store that claims less.",
)
@click.option("--explain", is_flag=True, help="Tell each step by step, with what was on the disk.")
@click.option(
    "--json",
    "json_path",
    metavar="PATH",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Also write the results there; - is standard output, the lines then go to stderr.",
)
@click.option(
    "--images",
    metavar="COUNT",
    type=click.IntRange(min=1),
    default=CrashLimits().images,
    show_default=True,
    help="How many distinct disks to load for one scenario.",
)
@click.option(
    "--max-time",
    metavar="SECONDS",
    type=Seconds(),
    help="What is not finished by then is UNKNOWN.",
)
@click.option(
    "--call-timeout",
    metavar="SECONDS",
    type=Seconds(),
    default=30.0,
    show_default=True,
    help="A call that takes longer hangs.",
)
@click.option(
    "--keep",
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False),
    help="Keep what each failed crash came to in this folder, for recheck.",
)
def replay_command(
    paths: tuple[Path, ...],
    store: str | None,
    durability: Any,
    level: Any,
    explain: bool,
    json_path: Path | None,
    images: int,
    max_time: float | None,
    call_timeout: float,
    keep: Path | None,
) -> None:
    """Runs `scenarios.batch` and prints what came of it; see `_REPLAY_HELP`."""
    to_stdout = json_path is not None and str(json_path) == "-"
    if json_path is not None and not to_stdout and not json_path.absolute().parent.is_dir():
        fail(f"--json {json_path}: there is no directory {json_path.absolute().parent}")
    files = _found(paths)
    if store is not None:
        try:
            with stores_may_print():
                target_of(store, durability=durability)
        except TargetError as error:
            fail(str(error))
    order = ReplayOrder(
        paths=tuple(map(str, files)),
        target=store,
        durability=durability,
        level=level,
        images=images,
        call_timeout=call_timeout,
        explain=explain,
        keep="" if keep is None else str(keep),
    )
    printer = _Printer(order, to_stdout)
    began = time.monotonic()
    try:
        results = replay_files(order, seconds=max_time, done=printer.result)
    except KeyboardInterrupt:
        printer.summary(printer.results, time.monotonic() - began)
        printer.interrupted(len(files))
        raise
    printer.summary(results, time.monotonic() - began)
    if json_path is not None:
        _write_json(results, json_path, to_stdout)
    sys.exit(_exit_code(results))


class _Printer:
    """Prints each result as it comes, and the sum."""

    def __init__(self, order: ReplayOrder, to_stderr: bool) -> None:
        self._order = order
        self._to_stderr = to_stderr
        self.results: list[FileResult] = []

    def _say(self, text: str = "") -> None:
        click.echo(printable(text, 4000), err=self._to_stderr)

    def result(self, result: FileResult) -> None:
        """One line for a scenario, more where it failed or the story is asked for."""
        self.results.append(result)
        replay = result.replay
        if replay is None:
            self._say(f"ERROR    {result.error}")
            return
        self._say(f"{_WORDS[replay.status]:<8} {result.path}{_gist(replay)}")
        for line in replay.story:
            self._say(f"  {line}")
        if replay.status == "failed":
            for finding in one_for_each_clause(replay.findings) if not replay.story else ():
                where = f" ({finding.session})" if finding.session else ""
                self._say(f"  {finding.clause} violated: {finding.sentence[:300]}{where}")
            self._say(f"  {self._command(result.path, replay)}")

    def _command(self, path: Path, replay: Replay) -> str:
        command = ["torntail", "replay", str(path), "--store", self._order.target or replay.store]
        for option in ("durability", "level"):
            value = getattr(self._order, option)
            if value is not None:
                command += [f"--{option}", value]
        return shlex.join(command)

    def interrupted(self, files: int) -> None:
        """How many scenarios were not carried out before an interrupt."""
        self._say(f"interrupted: {files - len(self.results)} of {files} scenarios were not run")

    def summary(self, results: Sequence[FileResult], seconds: float) -> None:
        """The sum of all, after notes about odd places."""
        for result in results:
            if result.replay is not None:
                note = _note(result.path)
                if note is not None:
                    click.echo(f"note: {printable(note)}", err=True)
        counts = Counter(_word(result) for result in results)
        told = " · ".join(
            f"{counts[word]} {word}"
            for word in ("fixed", "failed", "unknown", "skipped", "error")
            if counts[word] or word == "fixed"
        )
        images = sum(one.replay.images for one in results if one.replay is not None)
        self._say(f"{told} · {images} disks loaded in {seconds:.1f} s")
        if results and counts["skipped"] == len(results):
            self._say("nothing was run: none of these scenarios applies to this store")
        commands = [
            self._command(one.path, one.replay)
            for one in results
            if one.replay is not None and one.replay.status == "failed"
        ]
        if len(commands) > 1:
            self._say("each alone:")
            for command in commands:
                self._say(f"  {command}")
            self._say(f"(the first of {len(commands)})")
        if commands:
            self._say(commands[0])


def _gist(replay: Replay) -> str:
    store = f" on {replay.store}" if replay.store else ""
    return f"{store}: {replay.reason}" if replay.reason else store


def _note(path: Path) -> str | None:
    try:
        return odd_place(load_scenario(path), path)
    except ScenarioError:
        return None


def _word(result: FileResult) -> str:
    return "error" if result.replay is None else result.replay.status


def _exit_code(results: Sequence[FileResult]) -> int:
    """A violation is certain, whatever else went wrong; what was skipped proves nothing alone."""
    words = {_word(result) for result in results}
    for word, code in (("failed", VIOLATED), ("error", USAGE), ("unknown", UNKNOWN)):
        if word in words:
            return code
    return PASS if "fixed" in words else UNKNOWN


def _write_json(results: Sequence[FileResult], path: Path, to_stdout: bool) -> None:
    record = {
        "torntail": __version__,
        "format": 1,
        "exit_code": _exit_code(results),
        "results": [
            {"path": str(result.path), "status": "error", "error": result.error}
            if result.replay is None
            else {"path": str(result.path), **msgspec.to_builtins(result.replay)}
            for result in results
        ],
    }
    text = json.dumps(record, indent=1) + "\n"
    if to_stdout:
        click.echo(text, nl=False)
        return
    try:
        path.write_text(text, encoding="ascii")
    except OSError as error:
        fail(f"--json {path}: {error.strerror}")


# --- scenarios ------------------------------------------------------------------------------------


@click.command(
    "scenarios",
    context_settings=_CONTEXT,
    epilog="\b\nExamples:\n  torntail scenarios fault-scenarios\n"
    "  torntail scenarios fault-scenarios/torn-tail\n"
    "\b\nExit code: 0, or 2 if a file is no scenario.",
)
@click.argument("paths", metavar="[PATH...]", nargs=-1, type=click.Path(path_type=Path))
def scenarios_command(paths: tuple[Path, ...]) -> None:
    """List saved scenarios: class, id, the clause that is to hold, the store, the title.

    Without PATH the folder fault-scenarios of the current one is listed.
    """
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("class", "id", "clause", "store", "title"):
        table.add_column(name, overflow="fold", no_wrap=name in ("class", "clause"))
    code = PASS
    for path in _found(paths or (Path("fault-scenarios"),)):
        try:
            scenario = load_scenario(path)
        except ScenarioError as error:
            click.echo(f"torntail: {printable(str(error))}", err=True)
            code = USAGE
            continue
        clauses = ", ".join(dict.fromkeys(one.clause for one in scenario.expect))
        cells = (scenario.kind, scenario.id, clauses, scenario.store, scenario.title)
        table.add_row(*(Text(printable(cell)) for cell in cells))
    print_table(result_console(), table)
    sys.exit(code)


SCENARIO_COMMANDS: Final = (replay_command, shrink_command, recheck_command, scenarios_command)
