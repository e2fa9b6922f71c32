"""The commands about scenarios: what they print, their exit codes, their last line."""

from __future__ import annotations

import json
import os
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner, Result

from torntail import cli_runs
from torntail.cli import main
from torntail.judge.history import Append, Create
from torntail.scenarios.files import load_scenario, save_scenario
from torntail.scenarios.format import CrashFault, Expectation, Scenario
from torntail.session import SessionEvent, SessionHeader

CORPUS = Path(__file__).parents[2] / "fault-scenarios"
NO_FSYNC = "tests.zoo.crashing:no_fsync"


def torntail(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(one) for one in arguments])


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A scenario of ours, on a store that breaks in it."""
    scenario = load_scenario(CORPUS / "durability" / "no-fsync.json")
    scenario = msgspec.structs.replace(scenario, store=NO_FSYNC, kills=())
    path = tmp_path / "durability" / "no-fsync.json"
    save_scenario(scenario, path)
    return path


def test_a_violation_is_printed_with_its_command_and_exit_1(saved: Path) -> None:
    result = torntail("replay", saved)
    assert result.exit_code == 1, result.output
    lines = result.stdout.splitlines()
    assert lines[0] == f"FAILED   {saved} on {NO_FSYNC}"
    assert lines[1].startswith("  CR-1 violated: ")
    command = f"torntail replay {saved} --store {NO_FSYNC}"
    assert f"  {command}" in lines
    assert lines[-1] == command
    assert lines[-2].startswith("0 fixed · 1 failed · ")


def test_on_the_fixed_store_it_holds_and_exit_0(saved: Path) -> None:
    result = torntail("replay", saved, "--store", "jsonl")
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[0] == f"FIXED    {saved} on jsonl"
    assert torntail("replay", saved.parent.parent, "--store", "jsonl").exit_code == 0


def test_an_error_in_one_file_does_not_hide_the_others(saved: Path) -> None:
    bad = saved.with_name("bad.json")
    bad.write_text("{")
    result = torntail("replay", saved.parent, "--store", "jsonl")
    assert result.exit_code == 2
    assert result.stdout.splitlines()[0].startswith(f"ERROR    {bad}: line 1: is not JSON")
    assert f"FIXED    {saved} on jsonl" in result.stdout
    # What is certain goes first.
    assert torntail("replay", saved.parent).exit_code == 1


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["replay", "missing"], "missing: cannot be read: No such file or directory"),
        (["replay", "."], "is a folder without scenarios"),
        (["replay", "good.json", "--store", "jsonk"], "did you mean jsonl?"),
        (["replay", "good.json", "--store", "no.module:store"], "there is no module 'no'"),
        (["replay", "good.json", "--json", "no/where.json"], "there is no directory"),
        (["shrink", "missing"], "cannot be read"),
        (["shrink", "."], "is a folder"),
        (["recheck", "missing"], "is no directory"),
        (["recheck", "."], "holds neither history.json nor crash.json"),
        (["recheck", "runs"], "runs holds runs: name one of them, the newest is runs/2"),
        (["recheck", "runs/3"], "runs/3 is a run that has found nothing"),
        (["replay", "good.json", "--store", "good.py:store"], "name the module, good:store"),
        (["shrink", "good.json", "--store", "tests.zoo.hostile:gone"], "has no attribute"),
        (["shrink", "good.json", "-o", "good.json/x.json"], "is no folder that can be written to"),
        (["scenarios", "missing"], "cannot be read"),
    ],
)
def test_a_mistake_is_told_in_one_line_and_exit_2(
    arguments: list[str], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if arguments[-1].startswith("runs"):
        for run in ("1", "2"):
            (tmp_path / "runs" / run / "01-CR-1").mkdir(parents=True)
            (tmp_path / "runs" / run / "01-CR-1" / "crash.json").write_text("{}")
        (tmp_path / "runs" / "3").mkdir()
        (tmp_path / "runs" / "3" / "run.json").write_text("{}")
    if "good.json" in arguments:
        scenario = load_scenario(CORPUS / "durability" / "no-fsync.json")
        save_scenario(scenario, tmp_path / "good.json")
    result = torntail(*arguments)
    assert result.exit_code == 2, result.output
    assert told in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


def test_the_first_failure_is_the_last_line_and_all_are_listed(saved: Path) -> None:
    scenario = load_scenario(saved)
    paths = [saved.with_name(f"{name}.json") for name in ("a", "b")]
    for path in paths:
        save_scenario(msgspec.structs.replace(scenario, id=path.stem), path)
    result = torntail("replay", saved.parent)
    assert result.exit_code == 1
    commands = [f"torntail replay {one} --store {NO_FSYNC}" for one in (*paths, saved)]
    assert result.stdout.splitlines()[-6:] == [
        "each alone:",
        *(f"  {command}" for command in commands),
        "(the first of 3)",
        commands[0],
    ]


def test_a_store_that_cannot_be_opened_is_named(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "unopenable.py").write_text("def open_store(root): raise OSError('no room')\n")
    result = torntail("replay", saved, "--store", "unopenable:open_store")
    assert result.exit_code == 2
    assert result.stdout.splitlines()[0] == (
        f"ERROR    {saved}: unopenable:open_store raised OSError when called with an empty "
        "directory: no room"
    )
    # Its own store: then it is the file that has to be changed.
    save_scenario(msgspec.structs.replace(load_scenario(saved), store="gone:open_store"), saved)
    result = torntail("replay", saved)
    assert result.exit_code == 2
    assert result.stdout.startswith(f"ERROR    {saved}: store: there is no module 'gone'")


def test_a_store_that_ends_the_process_is_a_violation_and_the_others_are_run(
    saved: Path, tmp_path: Path
) -> None:
    store = "tests.scenarios.killing_stores:kills_itself_over_a_crash"
    other = load_scenario(CORPUS / "mid-tool" / "between-parallel-results.json")
    save_scenario(other, saved.parent / "zz.json")
    result = torntail("replay", saved.parent, "--store", store)
    assert result.exit_code == 1, result.output
    lines = result.stdout.splitlines()
    assert lines[0] == f"FAILED   {saved} on {store}"
    assert lines[1] == "  CR-3 violated: the store's process was killed by signal 9"
    assert any(line.startswith(f"FAILED   {saved.parent / 'zz.json'}") for line in lines)


def test_a_store_that_hangs_is_a_violation(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torntail.scenarios.batch._PATIENCE_SECONDS", 1.0)
    store = "tests.scenarios.killing_stores:hangs_over_a_crash"
    result = torntail("replay", saved, "--store", store, "--call-timeout", "1")
    assert result.exit_code == 1, result.output
    assert "CR-3 violated: a call had not returned after 2 s" in result.stdout


def test_a_limit_of_time_makes_it_unknown(saved: Path) -> None:
    result = torntail("replay", saved, "--max-time", "0.001")
    assert result.exit_code == 3
    assert result.stdout.startswith(f"UNKNOWN  {saved}: the time was up before its end")


def test_nothing_that_applies_is_no_pass(saved: Path) -> None:
    result = torntail("replay", saved, "--store", "memory")
    assert result.exit_code == 3
    assert result.stdout.startswith(f"SKIPPED  {saved} on memory: asks for durability")
    assert "nothing was run" in result.stdout


def test_results_as_json(saved: Path, tmp_path: Path) -> None:
    out = tmp_path / "results.json"
    assert torntail("replay", saved, "--json", out).exit_code == 1
    record = json.loads(out.read_text())
    (one,) = record["results"]
    assert (record["exit_code"], one["status"], one["path"]) == (1, "failed", str(saved))
    assert one["findings"][0]["clause"] == "CR-1"
    to_stdout = torntail("replay", saved, "--json", "-")
    assert json.loads(to_stdout.stdout) == record
    assert to_stdout.stderr.startswith("FAILED")


def test_explained_step_by_step(saved: Path) -> None:
    result = torntail("replay", saved, "--explain")
    assert "  1. create " in result.stdout
    assert "  on the disk then:" in result.stdout
    assert "    Nothing acknowledged is lost: |P| ≥ |A|." in result.stdout
    assert result.stdout.splitlines()[-1] == f"torntail replay {saved} --store {NO_FSYNC}"


def test_an_odd_name_is_noted(saved: Path) -> None:
    odd = saved.with_name("other.json")
    os.rename(saved, odd)
    result = torntail("replay", odd, "--store", "jsonl")
    assert result.exit_code == 0
    assert result.stderr.startswith(f"note: {odd}: its id is no-fsync")


# --- shrink, recheck ------------------------------------------------------------------------------


def long_scenario() -> Scenario:
    def event(kind: str, seq: int, **data: object) -> SessionEvent:
        return SessionEvent(kind, seq, seq, {"note": "a long text " * 20, **data})

    plan = [
        Create(header=SessionHeader("s-1", 1, "/w")),
        Create(header=SessionHeader("s-2", 1, "/w")),
    ]
    appends = [
        Append(session=session, events=tuple(event("x", seq + n) for n in range(4)))
        for session in ("s-1", "s-2")
        for seq in (0, 4, 8)
    ]
    return Scenario(
        torntail=1,
        id="long",
        kind="durability",
        title="A long one",
        store=NO_FSYNC,
        plan=(*plan, *appends),
        faults=(CrashFault(during=7, model="posix"),),
        expect=(Expectation(clause="CR-1", outcome="it is there"),),
    )


def test_a_long_scenario_is_made_small(tmp_path: Path) -> None:
    path, out = tmp_path / "long.json", tmp_path / "small.json"
    save_scenario(long_scenario(), path)
    before = path.read_bytes()
    result = torntail("shrink", path, "-o", out)
    assert result.exit_code == 0, result.output
    assert path.read_bytes() == before
    small = load_scenario(out)
    assert len(small.plan) == 2
    (fault,) = small.faults
    assert isinstance(fault, CrashFault)
    # The mildest crash that shows it, and the very one.
    assert (fault.model, fault.during, fault.crash is not None) == ("ordered", 1, True)
    assert sum(len(one.events) for one in small.plan if isinstance(one, Append)) == 1
    assert b"a long text" not in out.read_bytes()
    assert small.finding is not None
    assert small.finding.clause == "CR-1"
    assert result.stdout.splitlines()[-1] == f"torntail replay {out} --store {NO_FSYNC}"
    assert torntail("replay", out).exit_code == 1


def test_a_finding_that_does_not_show_is_exit_5(saved: Path) -> None:
    before = saved.read_bytes()
    result = torntail("shrink", saved, "--store", "jsonl")
    assert result.exit_code == 5
    assert "the finding does not show on jsonl: its expectation holds" in result.stderr
    command = f"torntail shrink {saved} --store {NO_FSYNC}"
    assert result.stderr.endswith(f"; it was seen on {NO_FSYNC}: {command}\n")
    assert saved.read_bytes() == before


def test_a_place_that_cannot_be_written_is_refused_before_anything_is_shrunk(
    saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli_runs, "replay_files", None)
    result = torntail("shrink", saved, "-o", saved / "small.json")
    assert result.exit_code == 2
    assert result.stderr == (
        f"torntail: -o {saved}/small.json: {saved} is no folder that can be written to\n"
    )


def test_a_kept_crash_is_judged_again_without_its_store(saved: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    assert torntail("replay", saved, "--keep", kept).exit_code == 1
    result = torntail("recheck", kept)
    assert result.exit_code == 1, result.output
    assert result.stdout.splitlines()[0] == f"SHOWS AGAIN {kept / 'no-fsync'}"
    assert "CR-1 violated: " in result.stdout
    # What is recorded as violated, and is not.
    record = json.loads((kept / "no-fsync" / "crash.json").read_text())
    record |= {"clause": "CR-4", "sentence": "something else"}
    (kept / "no-fsync" / "crash.json").write_text(json.dumps(record))
    assert torntail("recheck", kept / "no-fsync").exit_code == 5


def test_a_certificate_saves_scenarios_and_its_run_is_judged_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = "tests.zoo.damage:keeps_no_copy"
    result = torntail("certify", store, "--only", "DM-2", "--save-scenarios", "mine")
    assert result.exit_code == 1, result.output
    path = Path("mine/damage/keeps-no-copy-dm-2.json")
    assert f"saved: {path}" in result.stderr
    assert load_scenario(path).store == store
    assert torntail("replay", path).exit_code == 1
    assert torntail("replay", path, "--store", "jsonl").exit_code == 0
    (run,) = Path(".torntail/runs").glob("*-*")
    judged = torntail("recheck", run)
    assert judged.exit_code == 1, judged.output
    assert "SHOWS AGAIN" in judged.stdout
    assert "DM-2 violated: the torn tail held a whole record" in judged.stdout


def test_a_crash_of_a_certificate_is_saved_as_a_scenario(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = torntail("certify", NO_FSYNC, "--only", "CR-1", "--save-scenarios", "mine")
    assert result.exit_code == 1, result.output
    (path,) = Path("mine").rglob("*.json")
    assert torntail("replay", path).exit_code == 1
    assert torntail("replay", path, "--store", "jsonl").exit_code == 0
    (run,) = Path(".torntail/runs").glob("*-*")
    judged = torntail("recheck", run)
    assert judged.exit_code == 1, judged.output
    assert judged.stdout.startswith("SHOWS AGAIN ")
    assert "CR-1 violated: " in judged.stdout


# --- scenarios ------------------------------------------------------------------------------------


def test_scenarios_are_listed(saved: Path) -> None:
    result = torntail("scenarios", saved.parent)
    assert result.exit_code == 0
    head, line = result.stdout.splitlines()[:2]
    assert head.split() == ["class", "id", "clause", "store", "title"]
    assert line.split()[:4] == ["durability", "no-fsync", "CR-1", NO_FSYNC]


def test_a_listing_says_which_file_is_none(saved: Path) -> None:
    saved.with_name("bad.json").write_text("{}")
    result = torntail("scenarios", saved.parent)
    assert result.exit_code == 2
    assert "bad.json: torntail: is missing" in result.stderr
    assert "no-fsync" in result.stdout
