"""`torntail fuzz` as it is typed: what it saves and prints, and how it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner, Result

from torntail.cli import main
from torntail.cli_fuzz import _Saver
from torntail.crash.crashes import Crash
from torntail.drive.target import target_of
from torntail.explore.crash_shard import CrashFinding
from torntail.explore.fuzz_finding import crash_finding_of
from torntail.explore.fuzz_result import FuzzResult
from torntail.judge.history import Append, Create, Inspect, ListSessions, Load
from torntail.scenarios.files import load_scenario
from torntail.scenarios.format import CrashFault

NO_CLOSERS = "tests.zoo.crashing:no_closers"
ROOT = Path(__file__).parents[2]


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["fuzz", *arguments])


def child(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """The command in a process of its own, whose signals are as a shell leaves them."""
    program = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
        "from torntail.cli import main; main()"
    )
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")])
    return subprocess.Popen(
        [sys.executable, "-c", program, "fuzz", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def story(output: str) -> list[str]:
    """The lines from the first step to what the next process found, without what calls gave."""
    lines = [line.partition(" → ")[0] for line in output.splitlines()]
    begin = next(index for index, line in enumerate(lines) if line.startswith("  1. create"))
    end = lines.index("  a new process opens the store and loads:")
    assert any(" killed, " in line or "power fails" in line for line in lines[begin:end])
    assert "  on the disk then:" in lines[begin:end]
    return lines[begin : end + 2]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


# --- findings -------------------------------------------------------------------------------------


def test_a_finding_is_saved_and_the_last_line_shows_it_again() -> None:
    limits = ("--seed", "1", "--max-examples", "25", "--workers", "0", "-x", "--no-corpus")
    result = run(NO_CLOSERS, *limits)
    assert result.exit_code == 1, result.output
    last = result.stdout.rstrip().splitlines()[-1]
    assert last.startswith("torntail replay fault-scenarios/")
    assert last.endswith(f" --store {NO_CLOSERS}")
    _, _, path, *_ = last.split()
    scenario = load_scenario(Path(path))
    assert (scenario.id, scenario.store) == (Path(path).stem, NO_CLOSERS)
    assert scenario.finding is not None
    assert scenario.finding.clause in result.stdout
    assert len(scenario.plan) <= 12
    assert f"Found by torntail fuzz on {NO_CLOSERS} with seed 1." == scenario.origin
    again = CliRunner().invoke(main, ["replay", "--explain", *last.split()[2:]])
    assert again.exit_code == 1
    # The same story: the calls, the crash, the disk, what came back.
    assert story(again.stdout) == story(result.stdout)
    fixed = CliRunner().invoke(main, ["replay", path, "--store", "jsonl"])
    assert fixed.exit_code == 0
    before = Path(path).read_bytes()
    assert "(was saved before)" in run(NO_CLOSERS, *limits).stdout
    assert Path(path).read_bytes() == before


CHANGING = """
import os
from tests.zoo.plain import PlainStore, factory

class Changing(PlainStore):
    def closers(self, events):
        return [] if os.environ["BROKEN_IN"] == str(os.getpid()) else super().closers(events)

changing = factory(Changing)
"""


def test_a_saved_scenario_that_does_not_show_again_is_not_called_the_one_that_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "changing_store.py").write_text(CHANGING)
    monkeypatch.syspath_prepend(tmp_path / "modules")
    monkeypatch.setenv("BROKEN_IN", str(os.getpid()))
    limits = ("--seed", "1", "--max-examples", "25", "--workers", "0", "-x", "--no-corpus")
    result = run("changing_store:changing", *limits)
    assert result.exit_code == 1, result.output
    lines = result.stdout.splitlines()
    (saved,) = [line for line in lines if line.startswith("  saved: ")]
    assert lines[lines.index(saved) + 1] == (
        "  the scenario does not show it again when replayed: the store kept what is expected"
    )
    assert "torntail replay" not in result.stdout
    assert lines[-1] == "torntail fuzz changing_store:changing --seed 1"


def test_of_a_chain_that_is_not_shown_again_every_crash_is_kept() -> None:
    target = target_of("tests.zoo.crashing:no_closers")
    calls = load_scenario(ROOT / "fault-scenarios" / "durability" / "no-fsync.json").plan
    session = "a-2a92a913"
    chain = (Crash(model="kill", position=99_999), Crash(model="kill", position=3))
    finding = crash_finding_of(
        CrashFinding(
            clause="CR-7",
            session=session,
            sentence="after a crash inside the repair load differs",
            lost=(),
            plan="a plan",
            calls=calls,
            chain=chain,
            recovery_calls=(),
            files={},
            directories=(),
            submitted=1,
            acknowledged=1,
            cause="",
            images_until_found=1,
        )
    )
    path, new = _Saver(Path("found"))(finding, FuzzResult(target, 1, (1, 1), "power"))
    assert (path.parent.name, new) == ("repair", True)
    assert load_scenario(path).faults == (
        CrashFault(during=len(calls) - 1, model="kill"),
        CrashFault(during=0, model="kill", recovery=(Load(session=session),)),
    )


def test_a_run_that_is_not_to_save_saves_nothing() -> None:
    limits = ("--seed", "1", "--max-examples", "25", "--workers", "0", "-x", "--no-corpus")
    result = run(NO_CLOSERS, *limits, "--no-save")
    assert result.exit_code == 1
    last = result.stdout.rstrip().splitlines()[-1]
    assert last == f"torntail fuzz {NO_CLOSERS} --seed 1"
    assert [path.name for path in Path().iterdir()] == [".torntail"]
    assert [path.name for path in Path(".torntail").iterdir() if path.is_dir()] == ["runs"]


def test_a_run_without_findings_says_what_it_reached() -> None:
    result = run("jsonl", "--seed", "1", "--max-examples", "2", "--workers", "0")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("jsonl · level power · seed 1\n2 plans drawn, ")
    assert "\nreached: " in result.stdout
    assert "\nnot reached: " in result.stdout
    assert result.stdout.rstrip().endswith("no finding")
    assert result.stderr == ""


# --- usage ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["nonsense"], "TARGET 'nonsense' is neither"),
        (["jsonl", "--seed", "x"], "neither an integer nor a commit hash"),
        (["jsonl", "--shard", "3/2"], "give K/N with K from 1 to N"),
        (["jsonl", "--shard", "0/2"], "give K/N with K from 1 to N"),
        (["jsonl", "--max-time", "0"], "--max-time"),
        (["jsonl", "--max-examples", "0"], "--max-examples"),
    ],
)
def test_wrong_usage_is_told_in_one_line(arguments: list[str], told: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert told in result.stderr
    assert list(Path().iterdir()) == []


def test_a_place_that_cannot_be_written_is_told_before_anything_is_tried() -> None:
    Path(".torntail").write_text("a file")
    result = run("jsonl", "--max-examples", "1")
    assert result.exit_code == 2
    assert result.stderr.startswith("torntail: .torntail/runs cannot be written")


def test_a_finding_that_cannot_be_saved_is_told_all_the_same() -> None:
    Path("fault-scenarios").write_text("a file")
    limits = ("--seed", "1", "--max-examples", "25", "--workers", "0", "-x")
    result = run(NO_CLOSERS, *limits)
    # click refuses a folder that is a file.
    assert result.exit_code == 2
    result = run(NO_CLOSERS, *limits, "--save-to", "fault-scenarios/below")
    assert result.exit_code == 1
    assert "was not saved" in result.stdout


@pytest.mark.parametrize("last", [False, True])
def test_a_crash_found_among_calls_that_only_look_is_saved_all_the_same(last: bool) -> None:
    target = target_of("tests.zoo.crashing:no_fsync")
    saved = load_scenario(ROOT / "fault-scenarios" / "durability" / "no-fsync.json")
    (fault,) = saved.faults
    assert isinstance(fault, CrashFault)
    assert fault.crash is not None
    assert saved.finding is not None
    looks = (ListSessions(), *((Inspect(session="a-2a92a913"),) if last else ()))
    # Two marks for each call that came before; of the last one only the first.
    position = fault.crash.position + (3 if last else 2)
    crash = CrashFinding(
        clause="CR-1",
        session="a-2a92a913",
        sentence=saved.finding.sentence,
        lost=(),
        plan="a plan",
        calls=(*looks[:1], *saved.plan, *looks[1:]),
        chain=(msgspec.structs.replace(fault.crash, position=position),),
        recovery_calls=(),
        files={},
        directories=(),
        submitted=1,
        acknowledged=1,
        cause=saved.finding.cause,
        images_until_found=1,
    )
    finding = crash_finding_of(crash)
    path, new = _Saver(Path("found"))(finding, FuzzResult(target, 1, (1, 1), "power"))
    assert new
    assert [type(call) for call in load_scenario(path).plan] == [Create, Append]
    again = CliRunner().invoke(main, ["replay", str(path), "--store", target.name])
    assert again.exit_code == 1, again.stdout
    assert "1 disks loaded" in again.stdout


@pytest.mark.parametrize("seconds", ["nan", "inf", "0", "-1"])
def test_a_time_that_is_none_is_refused(seconds: str) -> None:
    result = run("jsonl", "--max-time", seconds)
    assert result.exit_code == 2
    assert "--max-time" in result.stderr


# --- the end --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_run_keeps_what_it_has(
    number: signal.Signals, code: int, tmp_path: Path
) -> None:
    process = child(tmp_path, "jsonl", "--seed", "1", "--workers", "1")
    end = time.monotonic() + 120
    plans: list[Path] = []
    while not plans:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.05)
        plans = list(tmp_path.glob(".torntail/corpus/*/*.json"))
    process.send_signal(number)
    out, error = process.communicate(timeout=120)
    assert process.returncode == code, error
    assert "interrupted: what was found by then is kept" in out
    (record,) = tmp_path.glob(".torntail/runs/*/run.json")
    told = json.loads(record.read_bytes())
    assert (told["state"], told["interrupted"], told["exit_code"]) == ("ended", True, code)
    assert told["counts"]["plans"] >= 1


def test_a_run_leaves_nothing_but_its_own_folder(tmp_path: Path) -> None:
    for workers in ("0", "1"):
        limits = ("--max-examples", "1", "--seed", "1", "--workers", workers)
        out, error = child(tmp_path, "memory", *limits).communicate(timeout=300)
        assert error == "", out
    assert [path.name for path in tmp_path.iterdir()] == [".torntail"]


def test_two_runs_at_once_do_not_harm_each_other(tmp_path: Path) -> None:
    limits = ("--max-examples", "6", "--workers", "1")
    both = [child(tmp_path, "jsonl", "--seed", seed, *limits) for seed in ("1", "2")]
    for process in both:
        out, error = process.communicate(timeout=300)
        assert (process.returncode, error) == (0, "")
        assert "no finding" in out
    records = [json.loads(path.read_bytes()) for path in tmp_path.glob(".torntail/runs/*/run.json")]
    assert sorted(record["seed"] for record in records) == [1, 2]
    assert {record["state"] for record in records} == {"ended"}
