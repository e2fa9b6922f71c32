"""`torntail driver`: what has to do with drivers of stores in other languages.

Decides words and exit codes: 0 the rules are kept, 1 one is broken, 2 usage or no such command.
"""

from __future__ import annotations

import json
import shlex
import sys
from typing import NoReturn

import click

from torntail.cli_seconds import Seconds
from torntail.drive.conformance import NoDriver, check_driver
from torntail.drive.protocol import json_schema

__all__ = ["driver_command"]


@click.group("driver")
def driver_command() -> None:
    """Drivers: stores in other languages, spoken to by lines of JSON."""


@driver_command.command(
    "check",
    epilog="\b\nExamples:\n"
    '  torntail driver check --exec "node drivers/node/example.mjs"\n'
    "\b\nExit codes: 0 the rules are kept, 1 one is broken, 2 usage, or nothing to run.",
)
@click.option("--exec", "command", metavar="COMMAND", required=True, help="How it is started.")
@click.option(
    "--timeout",
    "seconds",
    metavar="SECONDS",
    type=Seconds(),
    default=10.0,
    show_default=True,
    help="How long an answer may take.",
)
def check_command(command: str, seconds: float) -> None:
    """Checks that a driver keeps the rules of the protocol.

    Says nothing about the store behind it; torntail certify --exec COMMAND does.
    """
    try:
        words = shlex.split(command)
    except ValueError as error:
        _fail(f"--exec {command!r}: {error}")
    if not words:
        _fail("--exec needs a command, as in --exec 'node driver.mjs'")
    kept = broken = 0
    try:
        for result in check_driver(words, seconds=seconds):
            if result.kept:
                kept += 1
                click.echo(f"ok      {result.rule}")
            else:
                broken += 1
                click.echo(f"broken  {result.rule}\n          {result.problem}")
    except NoDriver as error:
        _fail(str(error))
    click.echo(f"\n{kept} rules kept, {broken} broken")
    sys.exit(1 if broken else 0)


@driver_command.command("schema")
def schema_command() -> None:
    """Prints the JSON Schema of the protocol."""
    click.echo(json.dumps(json_schema(), indent=2))


def _fail(text: str) -> NoReturn:
    shown = text.encode("utf-8", "backslashreplace").decode("utf-8")
    click.echo(f"torntail: {shown}", err=True)
    sys.exit(2)
