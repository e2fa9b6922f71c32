"""The command `torntail`: it reads what was asked for, calls the library, prints, and exits.

Decides options and exit codes: 0 pass, 1 violated, 2 usage or configuration, 3 unknown, 4 broken
baseline, 70 internal error, 130 interrupted, 141 nobody reads any more, 143 terminated. Decides
nothing about stores.
"""

from __future__ import annotations

import os
import signal
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import click

from torntail import __version__
from torntail.cli_driver import driver_command
from torntail.cli_files import inspect_command, repair_command
from torntail.cli_fuzz import fuzz_command
from torntail.cli_output import nobody_reads, stores_may_print
from torntail.cli_runs import save_findings
from torntail.cli_scenarios import SCENARIO_COMMANDS
from torntail.cli_seconds import Seconds
from torntail.drive.onlooker import HarnessError
from torntail.drive.target import EXEC, TargetError, target_of
from torntail.explore.campaign import Interrupted, certify
from torntail.explore.plans import UnknownPlanError
from torntail.explore.room import NoRoom, no_room_in
from torntail.judge.clauses import GROUPS, UnknownClauseError, clause, clauses_in_group
from torntail.judge.obligations import OBLIGATIONS
from torntail.record.scratch import ScratchFull
from torntail.report.certificate_json import certificate_text, read_certificate, write_certificate
from torntail.report.inspection import printable
from torntail.report.terminal import LiveProgress, print_certificate, print_interrupted

__all__ = ["main"]

USAGE, INTERNAL = 2, 70
_INTERRUPTED, _BROKEN_PIPE, _TERMINATED = 130, 141, 143
_ISSUES = "the project's issue tracker"


class _Terminated(KeyboardInterrupt):
    """SIGTERM came; like Ctrl-C, so that worker processes and scratch space go with this one."""


@contextmanager
def _terminated_in_order() -> Iterator[None]:
    def terminate(number: int, frame: object) -> None:
        raise _Terminated

    before = signal.getsignal(signal.SIGTERM)
    if before is not signal.SIG_DFL or threading.current_thread() is not threading.main_thread():
        yield  # Somebody else has decided already what is to come of it.
        return
    signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class _Group(click.Group):
    """Turns what nobody expected into one line and exit code 70."""

    def invoke(self, context: click.Context) -> Any:
        before = set(threading.enumerate())
        try:
            return self._invoke(context)
        except (SystemExit, click.exceptions.Exit) as end:
            code = end.code if isinstance(end, SystemExit) else end.exit_code
            left = set(threading.enumerate()) - before
            if isinstance(code, int) and any(not thread.daemon for thread in left):
                # Threads that a store started would be waited for without end.
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
            raise

    def _invoke(self, context: click.Context) -> Any:
        try:
            with _terminated_in_order():
                try:
                    return super().invoke(context)
                finally:
                    # Here, where it is told if nobody reads it, and not by the interpreter's end.
                    if sys.stdout is not None:
                        sys.stdout.flush()
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except _Terminated:
            click.echo("torntail: terminated", err=True)
            sys.exit(_TERMINATED)
        except KeyboardInterrupt:
            click.echo("torntail: interrupted", err=True)
            sys.exit(_INTERRUPTED)
        except BrokenPipeError:
            # Whoever read our output has gone, `head` say; there is nobody to tell.
            nobody_reads()
            sys.exit(_BROKEN_PIPE)
        except (NoRoom, ScratchFull) as error:
            full = error if isinstance(error, NoRoom) else no_room_in(error.path)
            click.echo(f"torntail: {printable(str(full), 2000)}", err=True)
            sys.exit(full.exit_code)
        except Exception as error:
            if context.params.get("traceback"):
                raise
            what = printable(f"{type(error).__name__}: {error}")
            click.echo(
                f"torntail: internal error: {what} (run `torntail --traceback …` again and report "
                f"it to {_ISSUES})",
                err=True,
            )
            sys.exit(INTERNAL)


@click.group(
    cls=_Group,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Examples:  torntail certify jsonl  ·  torntail certify mymodule:open_store  ·  "
    "torntail explain DM-1  ·  torntail inspect sessions/",
)
@click.version_option(__version__, "--version", prog_name="torntail")
@click.option("--traceback", is_flag=True, help="Show where an internal error came from.")
def main(traceback: bool) -> None:
    """Finds out whether a session store for AI agents keeps its promises when things go wrong."""


# --- certify --------------------------------------------------------------------------------------


@main.command(
    "certify",
    epilog="\b\nExamples:\n"
    "  torntail certify jsonl\n"
    "  torntail certify mypackage.store:open_store --json certificate.json\n"
    "  torntail certify mypackage.store:open_store --only DM --seed 7\n"
    "  torntail certify jsonl --level power --json certificate.json\n"
    "  torntail certify jsonl --durability process --level power --only CR-1\n"
    "  torntail certify jsonl --device-faults\n"
    "  torntail certify --exec 'node drivers/node/example.mjs' --level power\n"
    "  torntail certify mypackage.store:open_store --accept 'DM-2=no copies yet'\n"
    "\b\nExit codes: 0 pass, 1 violated, 2 usage, 3 unknown, 4 broken baseline,\n"
    "130 interrupted, 141 nobody reads, 143 terminated, 70 internal error.",
)
@click.argument("target", metavar="TARGET", required=False)
@click.option(
    "--exec",
    "command",
    metavar="COMMAND",
    help="In the place of TARGET: a driver, the store in a process of any language.",
)
@click.option(
    "--level",
    type=click.Choice(["none", "process", "power"]),
    help="What is to be proven; default is what the store claims.",
)
@click.option(
    "--durability",
    type=click.Choice(["none", "process", "power"]),
    help="Replaces the store's claim; jsonl and sqlite are also opened with it.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Which values are tried.")
@click.option(
    "--only",
    metavar="CLAUSE",
    multiple=True,
    help="Only this clause, or group (RW, DM), or several with commas; may be given again.",
)
@click.option(
    "--json",
    "json_path",
    metavar="PATH",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Also write the certificate there; - is standard output, the table then goes to stderr.",
)
@click.option(
    "--accept",
    metavar="CLAUSE=REASON",
    multiple=True,
    help="A known violation that does not make the run fail; may be given again.",
)
@click.option(
    "--baseline",
    metavar="CERTIFICATE",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="Accept what this certificate (JSON) shows as violated.",
)
@click.option(
    "--budget",
    metavar="SECONDS",
    type=Seconds(),
    help="Begin no new case after so many seconds.",
)
@click.option(
    "--images",
    metavar="COUNT",
    type=click.IntRange(min=1),
    help="No plan is begun after so many distinct disk images; default is a quick look (10,000 at "
    "power, 6,000 at process), with --level 105,000 and 30,000.",
)
@click.option("--plan", metavar="NAME", help="Crash this plan alone, as a finding's command says.")
@click.option(
    "--workers",
    metavar="COUNT",
    type=click.IntRange(min=0, max=64),
    help="Processes that crash the store; default is one for each core.",
)
@click.option(
    "--device-faults",
    is_flag=True,
    help="Also load disks left by a broken or lying device; counted apart from the verdict.",
)
@click.option(
    "--save-scenarios",
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False),
    help="Save a scenario of each finding below this folder, for torntail replay.",
)
def certify_command(
    target: str | None,
    command: str | None,
    level: Any,
    durability: Any,
    seed: int,
    only: tuple[str, ...],
    json_path: Path | None,
    accept: tuple[str, ...],
    baseline: Path | None,
    budget: float | None,
    images: int | None,
    plan: str | None,
    workers: int | None,
    device_faults: bool,
    save_scenarios: Path | None,
) -> None:
    """Proves or refutes what a store claims.

    TARGET is memory, jsonl or sqlite, or module:factory, where factory(root) takes a directory
    (pathlib.Path) and returns a store over it. What the store claims is the factory's attribute
    `capabilities`. sqlite:MODE,LEVEL is SQLite with that journal mode and synchronous level, as in
    sqlite:delete,full, and claims what they keep. dsh-jsonl and dsh-sqlite are published packages
    of another project, once `python -m torntail.drive.dsh install` has put them here.
    """
    accepted = _accepted(accept, baseline)
    to_stdout = json_path is not None and str(json_path) == "-"
    if json_path is not None and not to_stdout and not json_path.absolute().parent.is_dir():
        _fail(f"--json {json_path}: there is no directory {json_path.absolute().parent}")
    began = time.monotonic()
    try:
        with stores_may_print(), LiveProgress() as progress:
            resolved = target_of(target_name(target, command), durability=durability)
            certificate = certify(
                resolved,
                level=level,
                durability=durability,
                seed=seed,
                only=_selectors(only),
                accept=accepted,
                budget=budget,
                progress=progress,
                images=images,
                plan=plan,
                workers=workers,
                device_faults=device_faults,
            )
    except Interrupted as interrupt:
        print_interrupted(interrupt.certificate, time.monotonic() - began, stderr=to_stdout)
        # The group says what it was, and ends with its exit code.
        raise (interrupt.__cause__ or interrupt) from None
    except (TargetError, UnknownClauseError, UnknownPlanError) as error:
        _fail(str(error))
    except NoRoom:
        raise  # As of every command.
    except HarnessError as error:
        click.echo(f"torntail: {printable(str(error))} (report it to {_ISSUES})", err=True)
        sys.exit(INTERNAL)
    if to_stdout:
        click.echo(certificate_text(certificate), nl=False)
    elif json_path is not None:
        try:
            write_certificate(certificate, json_path)
        except OSError as error:
            _fail(f"--json {json_path}: {error.strerror}")
    if save_scenarios is not None:
        save_findings(certificate, durability, save_scenarios)
    print_certificate(certificate, progress.seconds, stderr=to_stdout)
    sys.exit(certificate.exit_code)


def target_name(target: str | None, command: str | None) -> str:
    """The name of the target that an argument or `--exec` stands for."""
    if (target is None) == (command is None):
        _fail("name either TARGET or --exec COMMAND")
    return target if target is not None else f"{EXEC}{command}"


def _selectors(only: tuple[str, ...]) -> list[str]:
    """The clauses and groups named: separated by commas, in letters of any case."""
    parts = [part.strip().upper() for text in only for part in text.split(",") if part.strip()]
    if only and not parts:
        _fail(f"--only {only[0]!r}: name a clause or a group, as in --only RW-1,DM")
    return list(dict.fromkeys(parts))


def _accepted(accept: tuple[str, ...], baseline: Path | None) -> dict[str, str]:
    accepted: dict[str, str] = {}
    if baseline is not None:
        try:
            known = read_certificate(baseline)
        except (OSError, ValueError) as error:
            _fail(f"--baseline: {error}")
        for result in known.results:
            if result.state == "fail":
                accepted[result.clause] = result.accepted or f"in {baseline.name}"
    for entry in accept:
        clause_id, equals, reason = entry.partition("=")
        if not equals or not reason.strip():
            _fail(f"--accept {entry!r}: give a reason, as in --accept 'DM-2=no copies yet'")
        try:
            accepted[clause(clause_id.strip().upper()).id] = reason.strip()
        except UnknownClauseError as error:
            _fail(f"--accept: {error}")
    return accepted


def _fail(text: str) -> NoReturn:
    click.echo(f"torntail: {printable(text, 2000)}", err=True)
    sys.exit(USAGE)


# --- explain --------------------------------------------------------------------------------------


@main.command("explain", epilog="Examples:  torntail explain DM-1  ·  torntail explain DM")
@click.argument("clause_id", metavar="CLAUSE")
def explain_command(clause_id: str) -> None:
    """Says what a clause promises, who is held to it, and what must have occurred to pass it.

    CLAUSE may be a group (RW, DM): then its clauses are listed.
    """
    clause_id = clause_id.strip().upper()
    if clause_id in GROUPS:
        click.echo(f"{clause_id} · {GROUPS[clause_id]}\n")
        for one in clauses_in_group(clause_id):
            click.echo(f"{one.id:<6} {one.summary}")
        return
    try:
        found = clause(clause_id)
    except UnknownClauseError as error:
        _fail(
            f"{error} (groups: {', '.join(GROUPS)}; torntail explain DM lists the clauses of one)"
        )
    width = 88
    click.echo(f"{found.id} · {GROUPS[found.group]} · {found.summary}\n")
    click.echo(textwrap.fill(found.sentence, width))
    levels = {
        "none": "every level",
        "process": "levels process and power",
        "runtime": "live sessions, not of stores",
        "harness": "torntail itself, not of stores",
    }
    click.echo(f"\nasked for at: {levels[found.level]}")
    click.echo(f"asked of:     {', '.join(found.requires) or 'every store'}")
    obligations = OBLIGATIONS.get(found.id, ())
    if not obligations:
        click.echo("checked by:   not exercised yet in this version")
        return
    click.echo(f"checked by:   torntail certify TARGET --only {found.id}")
    click.echo("passes only if these occurred:")
    for obligation in obligations:
        condition = f" (if {', '.join(obligation.requires)})" if obligation.requires else ""
        click.echo(f"  - {' or '.join(obligation.any_of)}{condition}")


main.add_command(driver_command)
main.add_command(inspect_command)
main.add_command(repair_command)
main.add_command(fuzz_command)
for scenario_command in SCENARIO_COMMANDS:
    main.add_command(scenario_command)
