"""The commands that look at session files and mend them: `inspect` and `repair`.

Decides options, exit codes and what is said; the reading is in `stores.inspection`, the wording of
what was found in `report.inspection`, the copying and saving in `stores.salvage`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NoReturn

import click

from torntail.report.inspection import as_json, as_table, as_text, printable
from torntail.session import Outcome
from torntail.stores.contract import StoreError
from torntail.stores.inspection import (
    Inspection,
    inspect_database,
    inspect_log,
    is_database,
    session_files,
)
from torntail.stores.jsonl import JsonlStore
from torntail.stores.salvage import (
    CannotSalvage,
    copy_name,
    keep_copy,
    plan_salvage,
    write_salvage,
)

__all__ = ["inspect_command", "repair_command"]

REFUSED: Final = 1
USAGE: Final = 2
# The same whether the command stands alone or below `torntail`.
_CONTEXT: Final = {"help_option_names": ["-h", "--help"]}
_PROGRESS_FROM_BYTES: Final = 8 << 20

Progress = Callable[[int], object] | None


class Failure(click.ClickException):
    """One line that says what is wrong and what to do: the file or the usage is wrong."""

    exit_code = USAGE

    def show(self, file: object = None) -> None:
        """Prints the line to stderr."""
        click.echo(f"torntail: {self.format_message()}", err=True)


class Refusal(Failure):
    """The same for a session that was looked at and refused."""

    exit_code = REFUSED


def _fail(message: str, code: int = USAGE) -> NoReturn:
    kind = Refusal if code == REFUSED else Failure
    raise kind(printable(message, 4000))


# --- inspect ------------------------------------------------------------------------------------


_INSPECT_HELP: Final = """Say what is in a session file and what a load would do with it.

Never writes.

FILE is a session's JSONL log or an SQLite database of sessions; DIR is a store's root, one of
its folders (cwd-… or _no-cwd), or any folder with .jsonl files.

\b
Exit code: 0 load would succeed, 1 it would refuse (for a DIR: any of them),
           2 the file is missing, unreadable or not one of ours.

\b
Examples:
  torntail inspect session.jsonl
  torntail inspect ~/.agent/sessions
  torntail inspect --json ~/.agent/sessions | jq 'select(.outcome != "ok")'
  torntail inspect --id s-1 recovered.jsonl
"""


@click.command("inspect", help=_INSPECT_HELP, context_settings=_CONTEXT)
@click.argument("path", metavar="FILE|DIR", type=click.Path(path_type=Path))
@click.option(
    "--json", "json_lines", is_flag=True, help="One JSON object per session, a line each."
)
@click.option(
    "--id",
    "session_id",
    metavar="ID",
    help="The session id the header must have. In a store's folder it is taken from the file name.",
)
def inspect_command(path: Path, json_lines: bool, session_id: str | None) -> None:
    """Shows what `stores.inspection` finds; see `_INSPECT_HELP`."""
    if _is_directory(path):
        if session_id is not None:
            _fail("--id names one session: give its file instead of a folder")
        _inspect_directory(path, json_lines)
        return
    found = _inspect_file(path, session_id)
    for one in found:
        _say(as_json(one) if json_lines else "\n".join(as_text(one)))
    if not found and not json_lines:
        _say(f"{printable(str(path))}: no sessions")
    if not all(one.loads for one in found):
        raise SystemExit(REFUSED)


def _is_directory(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError as error:
        _fail(f"{path}: cannot be read: {error.strerror or error}; check the path and its rights")


def _inspect_file(path: Path, session_id: str | None = None) -> list[Inspection]:
    """What is in one file: one session, or those of a database; fails with what to do."""
    try:
        if not path.exists() and not path.is_symlink():
            _fail(f"{path}: no such file; give the path of a session file or of a store's folder")
        if not path.is_file():
            _fail(f"{path}: not a regular file; give the path of a session file")
        if is_database(path):
            return inspect_database(path, session_id)
        with _progress(path) as progress:
            return [inspect_log(path, session_id, progress)]
    except OSError as error:
        _fail(f"{path}: cannot be read: {error.strerror or error}; check the path and its rights")
    except StoreError as error:
        _fail(f"{error}; give a session file, or a database made by this store")


def _inspect_directory(directory: Path, json_lines: bool) -> None:
    try:
        files = session_files(directory)
    except OSError as error:
        _fail(f"{directory}: cannot be read: {error.strerror or error}; check its rights")
    if files is None:
        _fail(
            f"{directory}: no session files here; give a store's root (it holds folders named "
            "cwd-… or _no-cwd), one of these folders, or a file"
        )
    rows: list[tuple[str, Inspection | str]] = []
    for file in files:
        found = _inspect_quietly(file)
        if json_lines and isinstance(found, Inspection):
            _say(as_json(found))
        elif isinstance(found, str):
            click.echo(f"torntail: {printable(f'{file}: {found}', 4000)}", err=True)
        rows.append((str(file.relative_to(directory)), found))
    if not json_lines:
        _say("\n".join(as_table(rows)) if rows else f"{printable(str(directory))}: no sessions")
    if any(isinstance(found, str) or not found.loads for _, found in rows):
        raise SystemExit(REFUSED)


def _inspect_quietly(path: Path) -> Inspection | str:
    """One file among many: what is wrong with it must not hide the rest."""
    try:
        with _progress(path) as progress:
            return inspect_log(path, progress=progress)
    except OSError as error:
        return f"cannot be read: {error.strerror or error}"


@contextmanager
def _progress(path: Path) -> Iterator[Progress]:
    """A bar on stderr while a large file is read, on a terminal only."""
    size = path.stat().st_size
    if size < _PROGRESS_FROM_BYTES or not sys.stderr.isatty():
        yield None
        return
    with click.progressbar(length=size, label="reading", file=sys.stderr) as bar:
        yield bar.update


# --- repair -------------------------------------------------------------------------------------


_REPAIR_HELP: Final = """Do to a session file what its store's load does.

That is: drop the torn tail and close the interrupted turn.

FILE must stand in a store's folder (cwd-… or _no-cwd). A byte copy of it is kept beside it
first, as FILE.before-repair-DIGEST. A corrupt file, which a load refuses, is not touched: with
--salvage OUT its longest valid prefix is written as a new session.

\b
Exit code: 0 done, or nothing to do,
           1 the file was refused or the repair failed,
           2 the file is missing, unreadable or not in a store,
             or OUT cannot be used.

\b
Examples:
  torntail repair --dry-run ~/.agent/sessions/cwd-0123456789ab/s-1.jsonl
  torntail repair ~/.agent/sessions/cwd-0123456789ab/s-1.jsonl
  torntail repair --salvage saved.jsonl damaged.jsonl
"""


@click.command("repair", help=_REPAIR_HELP, context_settings=_CONTEXT)
@click.argument("path", metavar="FILE", type=click.Path(path_type=Path))
@click.option("--dry-run", is_flag=True, help="Say what would be done and do nothing.")
@click.option(
    "--salvage",
    "out",
    metavar="OUT",
    type=click.Path(path_type=Path),
    help="Write what can be saved as a new session file OUT; FILE stays as it is.",
)
def repair_command(path: Path, dry_run: bool, out: Path | None) -> None:
    """Mends or saves with `stores.salvage`; see `_REPAIR_HELP`."""
    found = _inspect_one(path)
    if out is not None:
        _salvage(path, found, out, dry_run)
        return
    place = found.place
    if place is None:
        _fail(
            f"{path}: does not stand in a store's folder (cwd-… or _no-cwd); to mend a loose file "
            f"write a new one: torntail repair --salvage OUT {path}"
        )
    if not found.loads:
        _refuse(path, found)
    if not found.needs_repair:
        _say(f"{printable(str(path))}: nothing to repair ({found.kept} events)")
        return
    _say("\n".join(as_text(found)))
    if dry_run:
        _say(f"would keep a copy first: {printable(str(copy_name(path)))}\nnothing was changed")
        return
    assert place.session_id is not None
    _repair(path, found, place.root, place.session_id)


def _inspect_one(path: Path) -> Inspection:
    try:
        if path.is_file() and is_database(path):
            _fail(
                f"{path}: is a database; its sessions are repaired when they are loaded, and "
                "`torntail inspect` says what that would do"
            )
    except OSError as error:
        _fail(f"{path}: cannot be read: {error.strerror or error}")
    return _inspect_file(path)[0]


def _refuse(path: Path, found: Inspection) -> NoReturn:
    what = f"{path}: {found.outcome}"
    if found.damage is not None:
        what += f" at line {found.damage.line} (byte {found.damage.byte})"
    what += f": {found.problem}; nothing was changed"
    if found.outcome is Outcome.CORRUPT and found.damage is not None and found.damage.line > 1:
        what += f"; to save what is whole: torntail repair --salvage OUT {path}"
    elif found.outcome is Outcome.NEVER_MATERIALISED:
        what += "; it holds no session: creating the session again moves it aside"
    _fail(what, REFUSED)


def _repair(path: Path, found: Inspection, root: Path, session_id: str) -> None:
    try:
        copy = keep_copy(path)
    except OSError as error:
        _fail(f"{path}: no copy could be kept: {error.strerror or error}; not repaired", REFUSED)
    try:
        with JsonlStore(root) as store:
            result = store.load(session_id)
    except StoreError as error:
        _fail(f"{error}; the copy is {copy}", REFUSED)
    report = result.repair
    if not report.durable:
        _fail(f"not repaired: {report.reason}; the copy is {copy}", REFUSED)
    _say(f"copy kept: {printable(str(copy))}")
    if report.copy_kept is not None:
        _say(f"torn tail kept: {printable(report.copy_kept)}")
    _say(f"repaired: {len(result.events)} events")
    if (report.torn_bytes, len(report.closers)) != (
        0 if found.torn is None else found.torn.length,
        len(found.closers),
    ):
        click.echo(
            "torntail: the file changed between the copy and the repair: another writer was at "
            "work, and the copy is of an earlier state",
            err=True,
        )


def _salvage(path: Path, found: Inspection, out: Path, dry_run: bool) -> None:
    try:
        if out.exists() or out.is_symlink():
            _fail(f"{out}: exists already; choose a name for a new file")
        salvage = plan_salvage(path, found, out)
        summary = f"{salvage.events} events and {salvage.closers} closers"
        if salvage.header.id != found.session_id:
            summary += f", as session {salvage.header.id!r}"
        if dry_run:
            _say(printable(f"would write {summary} to {out}", 4000))
            return
        write_salvage(path, salvage, out)
    except CannotSalvage as error:
        _fail(f"{path}: {error}", REFUSED)
    except FileExistsError:
        _fail(f"{out}: exists already; choose a name for a new file")
    except (OSError, StoreError) as error:
        _fail(f"{out}: cannot be written: {getattr(error, 'strerror', None) or error}")
    _say(printable(f"wrote {summary} to {out}; {path} is unchanged", 4000))


def _say(text: str) -> None:
    click.echo(text.encode("utf-8", "backslashreplace").decode("utf-8"))
