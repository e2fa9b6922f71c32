"""`torntail certify` and `torntail explain`: what is printed where, and the exit codes."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner, Result

from torntail import Capabilities, cli
from torntail.cli import main
from torntail.judge.verdict import Certificate, ClauseResult, Finding, Request
from torntail.report.certificate_json import read_certificate
from torntail.report.terminal import print_certificate

BROKEN = "tests.zoo.reading:empty_batch_for_an_unknown_id_fails"


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["certify", *arguments])


def test_a_passing_store_exits_0_and_says_what_was_not_looked_at() -> None:
    result = run("memory", "--only", "RW")
    assert (result.exit_code, result.stderr) == (0, "")
    assert "RW-17" in result.stdout
    assert "limit: group LV is not exercised: nothing is said about live" in result.stdout
    assert "not claimed: atomic_batch, writers=many, durability=power" in result.stdout
    assert result.stdout.rstrip().splitlines()[-1] == "pass · 16 pass, 1 not applicable"


def test_a_violation_exits_1_and_ends_with_the_command_that_shows_it_again() -> None:
    result = run(BROKEN, "--only", "RW-5", "--seed", "3", "--level", "none")
    assert result.exit_code == 1
    last = result.stdout.rstrip().splitlines()[-1]
    assert last == f"torntail certify {BROKEN} --seed 3 --level none --only RW-5"
    again = CliRunner().invoke(main, shlex.split(last)[1:])
    assert again.exit_code == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["nothing"],
            "neither one of memory, jsonl, sqlite, dsh-jsonl, dsh-sqlite nor of the form "
            "module:factory",
        ),
        (["no.such.module:x"], "there is no module 'no'"),
        (["json:no_such"], "module 'json' has no attribute 'no_such'; it has"),
        (["json:__doc__"], "json:__doc__ is str, not a function"),
        (["os:getcwd"], "cannot be called with one argument, the directory"),
        (["memory", "--durability", "power"], "memory keeps nothing after its process"),
        (["memory", "--only", "RW-99"], "no clause 'RW-99' in the contract; did you mean RW-9"),
        (["memory", "--only", ","], "--only ',': name a clause or a group"),
        (["memory", "--only", "VD-1"], "VD-1 is about torntail itself and is not judged by a run"),
        (["memory", "--only", "rw,vd"], "VD is about torntail itself"),
        (["JSONL"], "there is no store 'JSONL'; did you mean jsonl?"),
        (["sqllite"], "did you mean sqlite?"),
        (["memory", "--accept", "RW-1"], "give a reason, as in --accept 'DM-2=no copies yet'"),
        (["memory", "--accept", "RW-99=x"], "no clause 'RW-99'"),
        (["memory", "--json", "no/such/place.json"], "there is no directory"),
        (["memory", "--baseline", "bad.json"], "--baseline: bad.json is not JSON"),
    ],
)
def test_a_usage_error_is_one_line_and_exits_2(arguments: list[str], said: str) -> None:
    Path("bad.json").write_text("{")
    result = run(*arguments)
    assert result.exit_code == 2
    assert said in result.stderr
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""


def test_clauses_are_named_in_any_case_and_several_at_once() -> None:
    result = run("memory", "--only", "rw-5,RW-6", "--only", " rw-13", "--json", "-")
    record = json.loads(result.stdout)
    assert [one["clause"] for one in record["results"]] == ["RW-5", "RW-6", "RW-13"]
    assert record["command"].endswith("--only RW-5 --only RW-6 --only RW-13")


def test_the_certificate_goes_to_standard_output_and_the_table_elsewhere() -> None:
    result = run(BROKEN, "--only", "RW-5", "--json", "-")
    assert result.exit_code == 1
    assert Certificate.from_json(json.loads(result.stdout)).verdict == "fail"
    assert "RW-5 violated" in result.stderr
    assert list(Path().glob("-*")) == []


def test_unknown_exits_3() -> None:
    result = run("memory", "--only", "RW-5", "--budget", "0.000000001")
    assert result.exit_code == 3
    assert "the budget of 1e-09 s ended before an-empty-batch-does-nothing" in result.stdout


def test_a_broken_baseline_exits_4_with_the_cause() -> None:
    result = run("tests.zoo.strangers:Silent")
    assert result.exit_code == 4
    assert "broken baseline: load returned NoneType None, which is no session" in result.stdout


def test_an_internal_error_is_one_line_and_exits_70(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError("by \x1b[31mzero")

    monkeypatch.setattr(cli, "certify", fail)
    result = run("memory")
    assert result.exit_code == 70
    assert result.stderr.startswith(
        "torntail: internal error: ZeroDivisionError: by \\x1b[31mzero (run"
    )
    assert result.stderr.count("\n") == 1


def test_the_certificate_can_be_written_read_and_built_upon() -> None:
    assert run(BROKEN, "--only", "RW-5", "--json", "before.json").exit_code == 1
    written = json.loads(Path("before.json").read_text())
    assert written["verdict"] == "fail"
    certificate = read_certificate(Path("before.json"))
    assert certificate.to_json() == written
    accepted = run(BROKEN, "--only", "RW-5", "--baseline", "before.json")
    assert accepted.exit_code == 0
    assert "accepted: in before.json" in accepted.stdout
    healed = run("memory", "--only", "RW-5", "--baseline", "before.json")
    assert healed.exit_code == 0
    assert "healed: RW-5 was accepted as violated and is kept now" in healed.stdout


def test_what_a_store_says_cannot_steer_the_terminal() -> None:
    Path("rude.py").write_text(
        "from tests.zoo.plain import PlainStore\n"
        "class store(PlainStore):\n"
        "    def append_nothing(self, session_id):\n"
        "        raise ValueError('\\x1b[2J[bold]gone[/bold]\\nnext line')\n"
    )
    result = run("rude:store", "--only", "RW-5")
    assert result.exit_code == 1
    assert "\x1b" not in result.stdout
    assert "\\x1b[2J[bold]gone[/bold]\\x0anext line" in " ".join(result.stdout.split())


def test_explain_says_who_is_held_to_a_clause() -> None:
    result = CliRunner().invoke(main, ["explain", "DM-3"])
    assert result.exit_code == 0
    assert "asked of:     detects=gap" in result.stdout
    assert "torntail certify TARGET --only DM-3" in result.stdout
    assert CliRunner().invoke(main, ["explain", "CR-1"]).exit_code == 0
    assert CliRunner().invoke(main, ["explain", "dm-3"]).stdout == result.stdout
    unknown = CliRunner().invoke(main, ["explain", "dm3"])
    assert (unknown.exit_code, unknown.stdout) == (2, "")
    assert "did you mean DM-3" in unknown.stderr


def test_explain_lists_a_group() -> None:
    result = CliRunner().invoke(main, ["explain", "rw"])
    assert result.exit_code == 0
    head, _, *lines = result.stdout.splitlines()
    assert head == "RW · Reading and writing"
    assert [line.split()[0] for line in lines] == [f"RW-{number}" for number in range(1, 18)]
    assert lines[4] == "RW-5   an empty batch does nothing"


def test_explain_names_the_groups_where_there_is_no_such_clause() -> None:
    result = CliRunner().invoke(main, ["explain", "xx"])
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == (
        "torntail: no clause 'XX' in the contract (groups: RW, CR, CL, DM, IO, MW, LV, VD; "
        "torntail explain DM lists the clauses of one)\n"
    )


@pytest.mark.parametrize("command", [[], *([name] for name in main.commands)])
def test_help_fits_a_terminal_of_80_columns(command: list[str]) -> None:
    result = CliRunner().invoke(main, [*command, "--help"], terminal_width=80)
    assert result.exit_code == 0
    assert [line for line in result.stdout.splitlines() if len(line) > 80] == []


def test_outside_of_a_terminal_no_line_is_wrapped(capsys: pytest.CaptureFixture[str]) -> None:
    long = "a sentence of many words " * 12
    certificate = Certificate(
        torntail="0",
        target="x",
        seed=0,
        capabilities=Capabilities(),
        request=Request(level="none"),
        results=(ClauseResult("RW-5", "fail", 1, long.strip()), ClauseResult("RW-6", "pass", 1)),
        findings=(Finding("RW-5", long, "a-case", (long,), "cause", f"again {long}"),),
    )
    print_certificate(certificate, 1.0)
    lines = capsys.readouterr().out.splitlines()
    assert f"RW-5 violated: {long}" in lines
    assert f"  1. {long}" in lines
    assert lines[-1] == f"again {long}"
    assert [line for line in lines if line.startswith("RW-6") and line.endswith(" ")] == []


def test_the_end_of_a_certificate(capsys: pytest.CaptureFixture[str]) -> None:
    results = (
        ClauseResult("RW-1", "pass", 1),
        ClauseResult("RW-2", "not applicable"),
        ClauseResult("RW-3", "unknown"),
        ClauseResult("RW-4", "fail", 1, "it broke", "known"),
        ClauseResult("RW-5", "fail", 1, "it broke"),
        ClauseResult("RW-6", "fail", 1, "it broke"),
        ClauseResult("DM-7", "counted", 96),
    )
    findings = tuple(
        Finding(f"RW-{number}", "it broke", "a-case", ("load",), "cause", f"again {number}")
        for number in (4, 5, 6)
    )
    certificate = Certificate(
        torntail="0",
        target="x",
        seed=0,
        capabilities=Capabilities(),
        request=Request(level="none", accepted={"RW-4": "known"}),
        results=results,
        findings=findings,
    )
    print_certificate(certificate, 1.0)
    lines = capsys.readouterr().out.splitlines()
    assert lines[-3:] == [
        "fail · 2 fail, 1 accepted, 1 unknown, 1 pass, 1 counted, 1 not applicable",
        "(the first of 2)",
        "again 5",
    ]
    accepted = lines.index("RW-4 violated, accepted (known): it broke")
    assert lines[accepted + 1 : accepted + 3] == ["", "RW-5 violated: it broke"]
    one = msgspec.structs.replace(certificate, findings=findings[:2])
    print_certificate(one, 1.0)
    assert "the first of" not in capsys.readouterr().out


def test_the_package_is_the_command() -> None:
    command = [sys.executable, "-m", "torntail", "--version"]
    done = subprocess.run(command, capture_output=True, check=True, text=True)
    assert done.stdout.startswith("torntail, version")


def test_as_a_process_color_is_for_those_who_ask() -> None:
    command = [sys.executable, "-c", "from torntail.cli import main; main()"]
    command += ["certify", "memory", "--only", "RW-5"]
    environment = {"PYTHONPATH": ":".join(sys.path), "PATH": "", "COLUMNS": "100"}

    def output(**more: str) -> bytes:
        done = subprocess.run(command, env={**environment, **more}, capture_output=True, check=True)
        assert done.stderr == b""
        return done.stdout

    assert b"\x1b[" not in output()
    assert b"\x1b[" in output(FORCE_COLOR="1", TERM="xterm-256color")
    assert b"\x1b[" not in output(FORCE_COLOR="1", NO_COLOR="1", TERM="dumb")
