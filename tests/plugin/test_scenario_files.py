"""Scenario files as tests: which files are taken, and what one comes to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.plugin.support import FAILED, NOTHING_COLLECTED, Project, section
from torntail.judge.history import Append, Create, Damage, Load
from torntail.plugin.options import SETTINGS
from torntail.plugin.scenario_files import is_scenario
from torntail.scenarios.format import Expectation, Scenario
from torntail.scenarios.text import scenario_text
from torntail.session import SessionEvent, SessionHeader
from torntail.settings import Settings

BROKEN = "tests.zoo.reading:empty_batch_for_an_unknown_id_fails"


def scenario(id: str, *plan: Any, clause: str = "RW-5", **fields: Any) -> str:
    made = Scenario(
        torntail=1,
        id=id,
        kind="reading-and-writing",
        title=f"The title of {id}",
        plan=plan,
        expect=(Expectation(clause=clause, outcome="as it should be"),),
        **fields,
    )
    return scenario_text(made)


EMPTY_BATCH = scenario(
    "empty-batch", Append(session="nobody", events=(), probes=("RW-5",)), teaches="What it teaches."
)
HEADER = SessionHeader(version=0, id="s-1", created_at=1, cwd="/w")
STORED = (
    Create(header=HEADER),
    Append(session="s-1", events=(SessionEvent("note", 0, 1, {}),)),
    Load(session="s-1", probes=("RW-1",)),
)
GOOD = scenario("good", *STORED, clause="RW-1")
UNDECIDED = scenario("undecided", *STORED, clause="RW-9")
OF_NO_CONCERN = scenario(
    "of-no-concern", *STORED, Damage(session="s-1", kind="cut-bytes", amount=1), clause="DM-2"
)
HOSTILE = {
    "cut.json": GOOD[:80].encode(),
    "empty.json": b"",
    "binary.json": b"\x00\xff\xfe",
    "version.json": GOOD.replace('"torntail": 1', '"torntail": 99').encode(),
    "nonsense.json": GOOD.replace('"plan"', '"plam"').encode(),
    "deep.json": b"[" * 100_000,
    "terminal.json": GOOD.replace('"class"', '"\\u001b[2J\\ud800"').encode(),
}


# --- which files ----------------------------------------------------------------------------------


class Config:
    """As much of pytest's configuration as is looked at."""

    def __init__(self, root: Path, named: list[str], store: str | None, section: bool) -> None:
        self.rootpath = root
        self.stash = pytest.Stash()
        self.invocation_params = self
        self.dir = root
        self._options = {"file_or_dir": named, "torntail_store": store}
        if section:
            self.stash[SETTINGS] = Settings()

    def getoption(self, name: str, default: Any = None) -> Any:
        return self._options.get(name, default)


CONFIGURED = "fault-scenarios/gap/a.json"
ELSEWHERE = "cases/a.json"
NO_SCENARIO = "cases/package.json"


@pytest.mark.parametrize(
    ("named", "store", "settings", "taken"),
    [
        # Nobody asks for scenarios.
        ([], None, False, []),
        (["."], None, False, []),
        (["cases"], None, False, []),
        (["tests/test_one.py::test_one"], None, False, []),
        # They are named, or what holds them.
        (["fault-scenarios"], None, False, [CONFIGURED]),
        (["fault-scenarios/gap"], None, False, [CONFIGURED]),
        (["fault-scenarios/gap/a.json::a"], None, False, [CONFIGURED]),
        (["fault-scenarios/mid-tool"], None, False, []),
        ([NO_SCENARIO], None, False, [NO_SCENARIO]),
        # The project, or the command line, asks for them.
        ([], None, True, [CONFIGURED]),
        ([], "jsonl", False, [CONFIGURED]),
        (["."], "jsonl", False, [CONFIGURED, ELSEWHERE]),
        (["cases"], "jsonl", False, [CONFIGURED, ELSEWHERE]),
    ],
)
def test_no_other_file_is_taken(
    tmp_path: Path, named: list[str], store: str | None, settings: bool, taken: list[str]
) -> None:
    contents = {CONFIGURED: "", ELSEWHERE: GOOD, NO_SCENARIO: '{"torntail": "^1.0"}'}
    contents |= {"fault-scenarios/schema.json": "{}", "fault-scenarios/.hidden.json": "{}"}
    for name, text in contents.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    config: Any = Config(tmp_path, named, store, settings)
    assert [name for name in contents if is_scenario(tmp_path / name, config)] == taken


def test_the_folder_of_scenarios_can_be_another(tmp_path: Path) -> None:
    config: Any = Config(tmp_path, [], None, True)
    config.stash[SETTINGS] = Settings(scenarios="tests/cases")
    assert is_scenario(tmp_path / "tests/cases/a.json", config)
    assert not is_scenario(tmp_path / CONFIGURED, config)


# --- what one comes to ----------------------------------------------------------------------------


@pytest.fixture
def cases(project: Project) -> Project:
    project.write("fault-scenarios/reading-and-writing/empty-batch.json", EMPTY_BATCH)
    project.write("fault-scenarios/reading-and-writing/good.json", GOOD)
    project.write("package.json", "{}")
    return project


@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["plain", "two workers"])
def test_a_folder_of_scenarios_is_run_on_the_store(
    cases: Project, workers: tuple[str, ...]
) -> None:
    for name, content in {**HOSTILE, "line\n\udcff.json": b"{}"}.items():
        cases.write(f"fault-scenarios/{name}", content)
    result = cases.run(
        "fault-scenarios", f"--torntail-store={BROKEN}", "--junitxml=junit.xml", *workers
    )
    assert result.ret == FAILED
    result.assert_outcomes(passed=1, failed=1, errors=len(HOSTILE) + 1)
    refused = "append refused with SessionNotFound (session 'nobody' not found), where it has"
    place = "fault-scenarios/reading-and-writing/empty-batch.json"
    again = f"torntail replay {place} --store {BROKEN}"
    failure = section(result.outlines, "scenario empty-batch")
    assert failure == [
        f"RW-5 violated: {refused} to succeed",
        "The title of empty-batch",
        "What it teaches.",
        "1. append to 'nobody' no events → SessionNotFound: session 'nobody' not found",
        f"RW-5 violated: {refused} to succeed",
        "  An empty batch does nothing, also for an unknown id.",
        again,
    ]
    assert section(result.outlines, "torntail") == [
        f"{BROKEN}: RW-5 violated: {refused} to succeed",
        f"  {again}",
    ]
    for name in HOSTILE:
        (line,) = section(result.outlines, f"ERROR at setup of scenario {Path(name).stem}")
        assert line.startswith(f"fault-scenarios/{name}: ")
    (line,) = section(result.outlines, "ERROR at setup of scenario line\\x0a\\udcff")
    assert line.startswith("fault-scenarios/line \\udcff.json: torntail: is missing")
    assert "\x1b" not in result.stdout.str()
    key = "fault-scenarios.reading-and-writing.empty-batch.json.empty-batch"
    assert cases.properties()[key] == {
        "torntail.clause": ["RW-5"],
        "torntail.store": [BROKEN],
        "torntail.finding": [f"RW-5 violated: {refused} to succeed"],
        "torntail.command": [again],
    }
    shown = cases.run_command(again)
    assert shown.ret == FAILED
    assert shown.outlines[-1] == again


def test_each_is_run_on_its_own_store_if_none_is_named(cases: Project) -> None:
    cases.write("fault-scenarios/own.json", scenario("own", *STORED, clause="RW-1", store="nosuch"))
    result = cases.run("fault-scenarios", "-p", "no:randomly", "--import-mode=importlib")
    result.assert_outcomes(passed=2, errors=1)
    (told,) = section(result.outlines, "ERROR at setup of scenario own")
    assert told.startswith("fault-scenarios/own.json: TARGET 'nosuch' is neither one of memory")


def test_what_proves_nothing_is_no_pass(project: Project) -> None:
    place = project.write("undecided.json", UNDECIDED)
    project.write("of-no-concern.json", OF_NO_CONCERN)
    result = project.run("undecided.json", "of-no-concern.json", "-rs", "--torntail-store=memory")
    assert result.ret == FAILED
    result.assert_outcomes(failed=1, skipped=1)
    reason = 'no call of the plan tests RW-9: give one "probes": ["RW-9"]'
    assert section(result.outlines, "torntail") == [
        f"memory: unknown: {reason}",
        f"  torntail replay {place.name} --store memory",
    ]
    skipped = next(line for line in result.outlines if line.startswith("SKIPPED"))
    assert "asks for durability process, and the store claims none" in skipped


def test_without_the_plugin_no_file_is_taken(cases: Project) -> None:
    assert cases.run("-p", "no:torntail").ret == NOTHING_COLLECTED


SHARED = """\
import os

def test_os_is_as_it_was():
    from torntail.record.install import installed
    assert not installed()
    assert os.write.__module__ != "torntail.record.byte_calls"
"""


def test_other_tests_have_the_real_calls(cases: Project) -> None:
    cases.write("test_zz.py", SHARED)
    result = cases.run("fault-scenarios", "test_zz.py", "--torntail-store=jsonl")
    result.assert_outcomes(passed=3)
