"""The commands about what was found: `shrink`, `recheck`, and saving a certificate's findings.

Decides options, exit codes and what is printed; the work is in the room `scenarios`.
"""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import Any, Final, NoReturn

import click

from torntail.cli_output import stores_may_print
from torntail.drive.target import TargetError, target_of
from torntail.judge.history import Append
from torntail.judge.verdict import Certificate
from torntail.report.console import working
from torntail.report.inspection import printable
from torntail.scenarios.batch import replay_files
from torntail.scenarios.files import ScenarioError, load_scenario
from torntail.scenarios.format import CrashFault, Scenario
from torntail.scenarios.outcome import one_for_each_clause
from torntail.scenarios.recheck import NoRun, Rechecked, recheck, unrecorded
from torntail.scenarios.worker import ReplayOrder

__all__ = ["fail", "recheck_command", "save_findings", "shrink_command"]

PASS, VIOLATED, USAGE, UNKNOWN, NOT_REPRODUCED = 0, 1, 2, 3, 5
_CONTEXT: Final = {"help_option_names": ["-h", "--help"]}


def fail(text: str, code: int = USAGE) -> NoReturn:
    """Says what is wrong and what to do, and ends the command."""
    click.echo(f"torntail: {printable(text, 2000)}", err=True)
    sys.exit(code)


# --- shrink ---------------------------------------------------------------------------------------

_SHRINK_HELP: Final = """Make a saved scenario small.

Operations, events, faults and long texts are left out, a milder and an earlier crash is taken, as
long as the same clause is violated with the same cause. PATH is written anew unless -o names
another file.

\b
Exit code: 0 written, 2 an error in the file or in usage,
           5 the recorded finding does not show.

\b
Examples:
  torntail shrink scenario.json
  torntail shrink scenario.json -o small.json
"""


@click.command("shrink", help=_SHRINK_HELP, context_settings=_CONTEXT)
@click.argument("path", metavar="PATH", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    metavar="OUT",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Where to write it; default is PATH itself.",
)
@click.option("--store", metavar="TARGET", help="Run it on this store.")
def shrink_command(path: Path, output: Path | None, store: str | None) -> None:
    """Runs `scenarios.shrink` in a process of its own; see `_SHRINK_HELP`."""
    if path.is_dir():
        fail(f"{path} is a folder: name one scenario's file")
    before = _loaded(path)
    out = output or path
    # What is missing of the folders above is made.
    folder = next(one for one in out.absolute().parents if one.exists())
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        fail(f"-o {out}: {folder} is no folder that can be written to")
    order = ReplayOrder(paths=(str(path),), action="shrink", out=str(out), target=store)
    with working(f"shrink {printable(str(path))}"):
        (result,) = replay_files(order)
    if result.error is not None:
        fail(result.error)
    if result.not_shown is not None:
        fail(f"{path}: {result.not_shown}{_other_store(before, path, store)}", NOT_REPRODUCED)
    if result.replay is not None:
        reason = result.replay.reason or "; ".join(one.sentence for one in result.replay.findings)
        fail(f"{path}: {reason}", UNKNOWN)
    after = _loaded(out)
    if _measured(before) == _measured(after):
        click.echo(f"as small as it gets: {_measured(after)}, {result.tried} tried: {out}")
    else:
        click.echo(f"{_measured(before)} → {_measured(after)}, {result.tried} tried: {out}")
    click.echo(shlex.join(["torntail", "replay", str(out), "--store", store or after.store]))


def _other_store(scenario: Scenario, path: Path, store: str | None) -> str:
    """The command that shrinks it on the store of its finding, if that is another."""
    recorded = "" if scenario.finding is None else scenario.finding.store
    if not recorded or recorded == (store or scenario.store):
        return ""
    command = shlex.join(["torntail", "shrink", str(path), "--store", recorded])
    return f"; it was seen on {recorded}: {command}"


def _loaded(path: Path) -> Scenario:
    try:
        return load_scenario(path)
    except ScenarioError as error:
        fail(str(error))


def _measured(scenario: Scenario) -> str:
    calls = [*scenario.plan]
    for fault in scenario.faults:
        if isinstance(fault, CrashFault):
            calls += fault.recovery
    events = sum(len(call.events) for call in calls if isinstance(call, Append))
    faults = f", {len(scenario.faults)} faults" if scenario.faults else ""
    return f"{len(calls)} operations with {events} events{faults}"


# --- recheck --------------------------------------------------------------------------------------

_RECHECK_HELP: Final = """Judge a recorded run again, without running its store.

RUN is a run's directory under .torntail/runs, or the witness of one finding in it.

\b
Exit code: 0 nothing is violated,
           1 the recorded violation shows again, or another does,
           2 the directory cannot be read,
           5 a recorded violation does not show again.

\b
Examples:
  torntail recheck .torntail/runs/20260101-120000-x1y2z3
  torntail recheck .torntail/runs/20260101-120000-x1y2z3/01-DM-2 --store jsonl
"""


@click.command("recheck", help=_RECHECK_HELP, context_settings=_CONTEXT)
@click.argument("run", metavar="RUN", type=click.Path(path_type=Path))
@click.option(
    "--store", metavar="TARGET", help="Whose claims to judge by, where the run is silent."
)
def recheck_command(run: Path, store: str | None) -> None:
    """Runs `scenarios.recheck`; see `_RECHECK_HELP`."""
    try:
        with stores_may_print():
            claims = None if store is None else target_of(store).capabilities
        rechecked = recheck(run, claims)
    except (NoRun, TargetError) as error:
        fail(str(error))
    for one in rechecked:
        _say_rechecked(one)
    left = unrecorded(run)
    for directory in left:
        told = f"NOT KEPT    {directory}: it takes its store to judge it; replay its scenario"
        click.echo(printable(told, 4000))
    if left:
        click.echo(f"{len(rechecked)} of {len(rechecked) + len(left)} findings judged again")
    if any(one.recorded is not None and not one.shows and not one.unknown for one in rechecked):
        sys.exit(NOT_REPRODUCED)
    if any(one.findings for one in rechecked):
        sys.exit(VIOLATED)
    sys.exit(UNKNOWN if left or any(one.unknown for one in rechecked) else PASS)


def _say_rechecked(one: Rechecked) -> None:
    recorded = one.recorded
    if recorded is not None:
        word = "SHOWS AGAIN" if one.shows else "NOT SHOWN"
        click.echo(printable(f"{word:<11} {one.directory}", 4000))
        click.echo(printable(f"  recorded: {recorded.clause}: {recorded.sentence}", 4000))
    else:
        word = "VIOLATED" if one.findings else "UNKNOWN" if one.unknown else "HOLDS"
        click.echo(printable(f"{word:<11} {one.directory}", 4000))
    if one.unknown:
        click.echo(printable(f"  {one.unknown}", 4000))
    for finding in one_for_each_clause(one.findings):
        click.echo(printable(f"  {finding.clause} violated: {finding.sentence[:300]}", 4000))


# --- certify --save-scenarios ---------------------------------------------------------------------


def save_findings(certificate: Certificate, durability: Any, directory: Path) -> None:
    """Saves a scenario of each finding that has a witness, and says where."""
    witnesses = [one.witness for one in certificate.findings if one.witness is not None]
    if not witnesses:
        return
    order = ReplayOrder(
        paths=tuple(witnesses),
        action="save",
        out=str(directory),
        target=certificate.target,
        durability=durability,
    )
    for result in replay_files(order):
        if result.saved is not None:
            click.echo(f"saved: {result.saved}", err=True)
        else:
            reason = result.error or (result.replay.reason if result.replay else "")
            click.echo(f"not saved: {printable(f'{result.path}: {reason}', 500)}", err=True)
