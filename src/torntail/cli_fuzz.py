"""The command `torntail fuzz`: it reads what was asked for, fuzzes, saves, prints, and exits.

Decides options, where findings are saved (`fault-scenarios/<class>/`, where `torntail replay` and
pytest find them) and exit codes: 0 no finding, 1 findings, 2 usage, 3 unknown, 4 broken baseline,
130 and 143 interrupted. Decides nothing about stores.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Final, NoReturn

import click
import msgspec

from torntail.cli_output import stores_may_print
from torntail.cli_seconds import Seconds
from torntail.drive.onlooker import HarnessError
from torntail.drive.target import Target, TargetError, target_of
from torntail.explore.crash_calls import CrashCalls
from torntail.explore.fuzz import HANG_SECONDS, NotSaved, Terminated, fuzz
from torntail.explore.fuzz_files import CannotWrite
from torntail.explore.fuzz_finding import FuzzFinding
from torntail.explore.fuzz_result import FuzzResult
from torntail.explore.fuzz_seed import BadSeed, seed_of
from torntail.explore.room import NoRoom, scratch_base
from torntail.explore.witness import keep_history
from torntail.judge.history import (
    Append,
    Inspect,
    ListSessions,
    Load,
    Observation,
    Returned,
)
from torntail.record.scratch import Scratch
from torntail.record.slots import Slot
from torntail.report.fuzz import FuzzProgress, print_fuzz
from torntail.report.inspection import printable
from torntail.scenarios.batch import FileResult, replay_files
from torntail.scenarios.crash_replay import NotLanded
from torntail.scenarios.files import ScenarioError, load_scenario, place_of, save_scenario
from torntail.scenarios.format import CrashFault, Fault, Scenario
from torntail.scenarios.from_finding import (
    NoWitness,
    scenario_id,
    scenario_of_finding,
    scenario_of_witness,
)
from torntail.scenarios.story import finding_story
from torntail.scenarios.worker import ReplayOrder

__all__ = ["fuzz_command"]

_USAGE: Final = 2
_INTERNAL: Final = 70
_RUNS: Final = Path(".torntail") / "runs"
_CORPUS: Final = Path(".torntail") / "corpus"

_REPLAYING_SECONDS: Final = 60.0
"""How long what was saved is replayed at most, after the run."""


@click.command(
    "fuzz",
    epilog="\b\nExamples:\n"
    "  torntail fuzz jsonl --max-time 60\n"
    "  torntail fuzz mypackage.store:open_store --stop-at-first\n"
    "  torntail fuzz mypackage.store:open_store --seed $COMMIT --shard 2/4\n"
    "\b\nExit codes: 0 no finding, 1 findings, 2 usage, 3 unknown, 4 broken baseline,\n"
    "130 interrupted, 141 nobody reads, 143 terminated, 70 internal error.",
)
@click.argument("target", metavar="TARGET")
@click.option("--seed", metavar="SEED", help="An integer or a commit hash; default is a new one.")
@click.option(
    "--max-time",
    metavar="SECONDS",
    type=Seconds(),
    help="Draw no plan after so many seconds; default is 60, if no count is given. What is being "
    "tried then, making small what was found and replaying it once go on a little after it.",
)
@click.option(
    "--max-examples", metavar="COUNT", type=click.IntRange(min=1), help="Draw so many plans."
)
@click.option("--shard", metavar="K/N", help="This is run K of N, which draw different plans.")
@click.option("--stop-at-first", "-x", is_flag=True, help="End with the first finding.")
@click.option(
    "--level",
    type=click.Choice(["none", "process", "power"]),
    help="Which crashes are tried; default is what the store claims.",
)
@click.option(
    "--durability",
    type=click.Choice(["none", "process", "power"]),
    help="Replaces the store's claim; jsonl and sqlite are also opened with it.",
)
@click.option(
    "--save-to",
    metavar="FOLDER",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("fault-scenarios"),
    show_default=True,
    help="Where findings are saved, each in the folder of its class.",
)
@click.option("--no-save", is_flag=True, help="Save no scenario; the run keeps its witnesses.")
@click.option("--no-corpus", is_flag=True, help="Neither try nor keep interesting plans.")
@click.option(
    "--workers",
    metavar="COUNT",
    type=click.IntRange(min=0, max=64),
    help="Processes that try plans; default is one for each core.",
)
def fuzz_command(
    target: str,
    seed: str | None,
    max_time: float | None,
    max_examples: int | None,
    shard: str | None,
    stop_at_first: bool,
    level: Any,
    durability: Any,
    save_to: Path,
    no_save: bool,
    no_corpus: bool,
    workers: int | None,
) -> None:
    """Searches a store for faults until the time is over.

    Plans of session work are drawn and driven, crashed on some hundreds of disks each, and damaged;
    whatever breaks a clause is made small and saved as a scenario, which `torntail replay` shows
    again. TARGET is as for `torntail certify`.
    """
    try:
        number = seed_of(seed) if seed is not None else int.from_bytes(os.urandom(4), "big")
        part = _shard(shard)
        with (
            stores_may_print(),
            _terminable(),
            FuzzProgress(max_time, max_examples) as progress,
        ):
            resolved = target_of(target, durability=durability)
            result = fuzz(
                resolved,
                seed=number,
                max_time_seconds=max_time,
                max_examples=max_examples,
                shard=part,
                stop_at_first=stop_at_first,
                level=level,
                durability=durability,
                workers=workers,
                runs=_RUNS,
                corpus=None if no_corpus else _CORPUS,
                save=None if no_save else _Saver(save_to),
                progress=progress,
            )
            _replay_saved(result)
    except (TargetError, BadSeed, CannotWrite) as error:
        _fail(str(error))
    except NoRoom:
        raise  # As of every command.
    except HarnessError as error:
        click.echo(f"torntail: {printable(str(error))}", err=True)
        sys.exit(_INTERNAL)
    again = ["torntail", "fuzz", target, "--seed", str(number)]
    for option, value in (("--level", level), ("--durability", durability), ("--shard", shard)):
        if value is not None:
            again += [option, value]
    print_fuzz(result, shlex.join(again), finding_story)
    sys.stdout.flush()
    sys.exit(result.exit_code)


def _shard(text: str | None) -> tuple[int, int]:
    if text is None:
        return 1, 1
    match = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", text)
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        _fail(f"--shard {text!r}: give K/N with K from 1 to N, as in --shard 2/4")
    return int(match[1]), int(match[2])


def _fail(text: str) -> NoReturn:
    click.echo(f"torntail: {printable(text, 2000)}", err=True)
    sys.exit(_USAGE)


@contextmanager
def _terminable() -> Iterator[None]:
    """Within it SIGTERM ends the run as Ctrl-C does."""

    def terminate(number: int, frame: FrameType | None) -> None:
        raise Terminated

    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _replay_saved(result: FuzzResult) -> None:
    """Notes of each finding whose scenario does not show it again, each tried once."""
    saved = [kept for kept in result.findings if kept.scenario is not None]
    if not saved:
        return
    if result.interrupted is not None:
        for kept in saved:
            kept.doubt = "the scenario was not replayed, since the run was interrupted"
        return
    order = ReplayOrder(
        paths=tuple(str(kept.scenario) for kept in saved),
        target=result.target.name,
        call_timeout=HANG_SECONDS,
    )
    for kept in saved:
        kept.doubt = "the scenario was not replayed to its end"
    waiting = iter(saved)

    def replayed(found: FileResult) -> None:
        kept = next(waiting)
        kept.doubt = _doubt(kept.finding.clause, found)

    try:
        replay_files(order, seconds=_REPLAYING_SECONDS, done=replayed)
    except KeyboardInterrupt as error:
        result.interrupted = 143 if isinstance(error, Terminated) else 130


def _doubt(clause: str, found: FileResult) -> str:
    """Why a saved scenario is not known to show its finding; empty where it was seen to."""
    replay = found.replay
    if replay is None:
        return f"the scenario cannot be replayed: {found.error}"
    shown = list(dict.fromkeys(one.clause for one in replay.findings))
    if clause in shown:
        return ""
    if shown:
        return f"the scenario does not show it again when replayed: it shows {', '.join(shown)}"
    why = replay.reason or "the store kept what is expected"
    return f"the scenario does not show it again when replayed: {why}"


class _Saver:
    """Saves findings as scenarios below a folder, one file for each fault."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __call__(self, finding: FuzzFinding, result: FuzzResult) -> tuple[Path, bool]:
        """The file of a finding, and whether it is new."""
        target = result.target
        try:
            scenario = _scenario(finding, target)
            digest = hashlib.sha256(finding.cause.encode("utf-8", "backslashreplace")).hexdigest()
            name = scenario_id(target.name, finding.clause, digest[:6])
            origin = f"Found by torntail fuzz on {target.name} with seed {result.seed}."
            scenario = msgspec.structs.replace(scenario, id=name, origin=origin)
            path = place_of(scenario, self._folder)
            if path.exists() and _is_saved(path, scenario):
                return path, False
            save_scenario(scenario, path)
        except (ScenarioError, NoWitness, NotLanded, OSError) as error:
            raise NotSaved(f"the finding on {finding.clause} was not saved: {error}") from error
        return path, True


def _is_saved(path: Path, scenario: Scenario) -> bool:
    try:
        return load_scenario(path).finding is not None
    except ScenarioError:
        return False  # Damaged: it is written anew.


def _scenario(finding: FuzzFinding, target: Target) -> Scenario:
    finding = _without_looks(finding)
    with Scratch(scratch_base()) as scratch, Slot(scratch) as slot:
        if finding.crash is not None:
            try:
                return scenario_of_finding(finding.crash, target, CrashCalls(target, slot))
            except (NoWitness, NotLanded):
                pass  # The store does not do the same again: every crash in that call is tried.
        with tempfile.TemporaryDirectory(dir=scratch.path) as temporary:
            witness = Path(temporary) / f"01-{finding.clause}"
            history = finding.history or tuple(
                Observation(operation, Returned()) for operation in finding.operations
            )
            keep_history(witness, history, finding.sentence)
            scenario = scenario_of_witness(witness, target, CrashCalls(target, slot))
    faults = _faults(finding)
    kind = "repair" if len(faults) > 1 else scenario.kind
    return msgspec.structs.replace(scenario, faults=faults, kind=kind)


def _without_looks(finding: FuzzFinding) -> FuzzFinding:
    """A crash without the calls that only look, which the plan of a scenario's crash may not hold.

    One that was not made small may have some. They write nothing, so that only their marks go; a
    crash at the begin of one is a crash after what was done before it.
    """
    crash = finding.crash
    if crash is None or not crash.chain:
        return finding
    kept = tuple(call for call in crash.calls if not isinstance(call, Inspect | ListSessions))
    marks = 2 * (len(crash.calls) - len(kept)) - isinstance(crash.calls[-1], Inspect | ListSessions)
    first, *others = crash.chain
    if not kept or marks <= 0 or first.position < marks:
        return finding
    first = msgspec.structs.replace(first, position=first.position - marks)
    crash = msgspec.structs.replace(crash, calls=kept, chain=(first, *others))
    # What came of them is no history of these calls any more.
    return msgspec.structs.replace(finding, operations=kept, history=(), crash=crash)


def _faults(finding: FuzzFinding) -> tuple[Fault, ...]:
    """What strikes where no crash is known to the byte: every crash of the model in the last call.

    Each further crash of a chain strikes the load of the finding's session.
    """
    if finding.fault is not None:
        return (finding.fault,)
    last = len(finding.operations) - 1
    if finding.crash is not None:
        load = Load(session=finding.crash.session or _session_of(finding))
        first, *others = finding.crash.chain
        return (
            CrashFault(during=last, model=first.model),
            *(CrashFault(during=0, model=one.model, recovery=(load,)) for one in others),
        )
    if finding.kind == "lost" and finding.clause == "CR-3":
        return (CrashFault(during=last, model="kill"),)
    return ()


def _session_of(finding: FuzzFinding) -> str:
    """The first session that is written to."""
    return next((one.session for one in finding.operations if isinstance(one, Append)), "")
