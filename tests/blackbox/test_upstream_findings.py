"""`torntail certify dsh-jsonl` and `dsh-sqlite`: findings with a command that shows them again, and
the scenarios of `fault-scenarios/upstream`, of which docs/upstream.md says what came of them.
"""

from __future__ import annotations

import json
import re
import shlex
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.blackbox.support import needs_tracing
from tests.blackbox.upstream_packages import package
from tests.upstream_tables import HEADER, events_of
from torntail import certify
from torntail.cli import main
from torntail.drive import dsh
from torntail.drive.target import TargetError, target_of
from torntail.judge.history import ListedSession, LoadedSession, Returned
from torntail.scenarios.batch import replay_files
from torntail.scenarios.worker import ReplayOrder
from torntail.session.dialects import DIALECTS

PROJECT = Path(__file__).parents[2]
UPSTREAM = PROJECT / "fault-scenarios" / "upstream"

# By target, what comes of scenarios that are quickly carried out: the table of docs/upstream.md.
CAME: dict[str, dict[str, str]] = {
    "dsh-jsonl": {
        "a-further-key": "failed",
        "a-list-over-one-bad-header": "failed",
        "a-null-record": "failed",
        "a-relative-working-directory": "failed",
        "a-time-with-a-fraction": "failed",
        "a-torn-tail-and-text-of-several-bytes": "fixed",
        "a-whole-turn-without-its-newline": "failed",
        "an-id-of-another-folder": "fixed",
        "two-ids-of-half-characters": "fixed",
    },
    "dsh-sqlite": {
        "a-further-key": "failed",
        "a-relative-working-directory": "failed",
        "a-time-with-a-fraction": "failed",
        "an-id-of-another-folder": "fixed",
        "two-ids-of-half-characters": "failed",
    },
}


@pytest.mark.parametrize("target", CAME)
def test_what_came_of_the_scenarios(target: str) -> None:
    package(target)
    paths = tuple(str(UPSTREAM / f"{name}.json") for name in CAME[target])
    results = replay_files(ReplayOrder(paths=paths, target=target))
    found = {one.path.stem: one.replay and one.replay.status for one in results}
    assert found == CAME[target]


@needs_tracing
@pytest.mark.parametrize(
    ("name", "target", "status"),
    [
        ("a-name-that-was-not-synced-before-a-kill", "dsh-jsonl", "failed"),
        ("a-call-left-before-a-step-end", "dsh-jsonl", "fixed"),
        ("an-append-whose-bytes-did-not-arrive", "dsh-jsonl", "fixed"),
        ("an-append-whose-bytes-did-not-arrive", "dsh-jsonl:zstd", "failed"),
    ],
)
def test_what_came_of_the_crashes(name: str, target: str, status: str) -> None:
    package(target)
    order = ReplayOrder(paths=(str(UPSTREAM / f"{name}.json"),), target=target)
    (result,) = replay_files(order)
    assert result.replay is not None, result.error
    assert (result.replay.status, result.replay.reason) == (status, "")


@needs_tracing
def test_a_finding_of_a_crash_has_a_command_that_shows_it_again() -> None:
    name = "dsh-jsonl:zstd"
    package(name)
    plan = "turn-by-turn"
    found = certify(name, level="power", only=["CR-3"], plan=plan, images=60, workers=0, runs=None)
    states = {result.clause: result.state for result in found.results}
    assert states["CR-3"] == "fail"
    words = shlex.split(found.findings[0].command)
    assert words[:3] == ["torntail", "certify", name]
    again = CliRunner().invoke(main, [*words[1:], "--images", "60", "--workers", "0"])
    assert again.exit_code == 1, again.output
    assert "CR-3 violated" in again.output


# --- what the page says ---------------------------------------------------------------------------


def test_the_page_tells_of_every_scenario() -> None:
    page = (PROJECT / "docs" / "upstream.md").read_text(encoding="utf-8")
    shown = set(re.findall(r"`([a-z0-9-]+)`", page))
    assert {path.stem for path in UPSTREAM.glob("*.json")} - shown == set()
    rows = dict(re.findall(r"^\| `([a-z0-9-]+)` \|(.*)\|$", page, re.MULTILINE))
    words = {"failed": "**fails**", "fixed": "holds"}
    for column, target in enumerate(("dsh-jsonl", "dsh-jsonl:zstd,packed", "dsh-sqlite")):
        for name, status in CAME.get(target, {}).items():
            assert rows[name].split("|")[column].strip() == words[status], (name, target)


# --- without the packages -------------------------------------------------------------------------


def test_a_package_that_is_not_installed_says_what_to_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORNTAIL_CACHE", str(tmp_path))
    with pytest.raises(TargetError) as caught:
        target_of("dsh-sqlite")
    assert str(caught.value) == (
        "TARGET dsh-sqlite: dsh-sqlite is @deepseek-ai/dsh-session-persistence-sqlite@0.0.1-rc.1, "
        "which is not installed here: run `python -m torntail.drive.dsh install dsh-sqlite`, which "
        "needs npm"
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("dsh-jsonl:gzip", "'gzip' is no setting of dsh-jsonl: it has zstd, packed"),
        ("dsh-jsonl:zstd,zstd", "'zstd' is no setting of dsh-jsonl: it has zstd, packed"),
        ("dsh-sqlite:wal,delete", "dsh-sqlite takes one setting, a journal mode"),
    ],
)
def test_a_setting_that_there_is_not(name: str, problem: str) -> None:
    with pytest.raises(TargetError) as caught:
        target_of(name)
    assert str(caught.value) == f"TARGET {name}: {problem}"


def test_without_npm_nothing_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORNTAIL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(dsh.NotInstalled, match="npm was not found"):
        dsh.install(dsh.DSH["dsh-jsonl"])
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("arguments", [[], ["remove"], ["install", "dsh-other"]])
def test_the_installer_says_how_it_is_called(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert dsh.main(arguments) == 2
    assert capsys.readouterr().err.startswith("usage: python -m torntail.drive.dsh install|where")


def test_the_dialects_are_named_where_drivers_are_told_of() -> None:
    page = (PROJECT / "docs" / "driver-protocol.md").read_text(encoding="utf-8")
    for name in ("torntail", "dsh-s", "dsh-rc1", "dsh-rc8"):
        assert f"`{name}`" in page


# --- a dialect on the wire ------------------------------------------------------------------------

DRIVER = """
import json, sys
kept = {}
for line in sys.stdin.buffer:
    asked = json.loads(line)
    result = {}
    if asked["call"] == "hello":
        result = {"protocol": 1, "name": "n", "version": "1", "dialect": "dsh-rc8"}
    elif asked["call"] == "create":
        kept["header"] = asked["header"]
    elif asked["call"] == "append":
        kept["events"] = asked["events"]
    elif asked["call"] == "load":
        result = kept
    elif asked["call"] == "list":
        result = {"sessions": [{"session": "s", "header": kept["header"]}]}
    elif asked["call"] == "close":
        json.dump(kept, open(sys.argv[1], "w"))
    sys.stdout.write(json.dumps({"id": asked["id"], "result": result}) + "\\n")
    sys.stdout.flush()
"""


def test_a_driver_is_asked_in_its_dialect_and_heard_in_ours(tmp_path: Path) -> None:
    seen = tmp_path / "seen.json"
    command = [sys.executable, "-I", "-S", "-c", DRIVER, str(seen)]
    target = target_of(f"exec:{shlex.join(command)}")
    store = target.open_inline(tmp_path)
    events = tuple(events_of("TS1 U A1:a R:a"))
    assert store.create(HEADER) == Returned()
    assert store.append("s", events) == Returned()
    assert store.load("s") == Returned(session=LoadedSession(HEADER, events))
    assert store.list() == Returned(entries=(ListedSession("s", HEADER),))
    store.close()
    kept = json.loads(seen.read_text())
    assert kept["header"]["delegationDepth"] == 0
    dialect = DIALECTS["dsh-rc8"]
    assert kept["events"] == [dialect.spoken(event).to_json() for event in events]
