"""The recipe for CI does what docs/ci.md says; the GitHub action hangs together."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.plugin.support import ROOT, paths_of_children
from tests.plugin.test_scenario_files import BROKEN, EMPTY_BATCH, GOOD
from torntail.report.certificate_json import read_certificate
from torntail.scenarios.files import find_scenarios, load_scenario

SCRIPT = ROOT / "ci" / "torntail.sh"
ACTION = (ROOT / "action.yml").read_text(encoding="utf-8")
WORKFLOW = (ROOT / "ci" / "github-workflow.yml").read_text(encoding="utf-8")
PAGE = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")


class Recipe:
    """A folder in which the recipe is run, as a CI would."""

    def __init__(self, path: Path, children: Path) -> None:
        self.path = path
        self.environment = {
            **os.environ,
            "PYTHON": sys.executable,
            "PYTHONPATH": paths_of_children(children),
            "GITHUB_STEP_SUMMARY": str(path / "step-summary.md"),
        }

    def run(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", str(SCRIPT), *arguments],
            cwd=self.path,
            env={**self.environment, **environment},
            capture_output=True,
            text=True,
        )

    def left(self) -> set[str]:
        results = self.path / "torntail-results"
        return {path.relative_to(results).as_posix() for path in results.rglob("*.*")}


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    (tmp_path / "children").mkdir()
    (tmp_path / "project").mkdir()
    return Recipe(tmp_path / "project", tmp_path / "children")


def test_certify_replays_what_is_saved_and_certifies(recipe: Recipe) -> None:
    folder = recipe.path / "fault-scenarios" / "reading-and-writing"
    folder.mkdir(parents=True)
    (folder / "good.json").write_text(GOOD)
    (folder / "empty-batch.json").write_text(EMPTY_BATCH)
    done = recipe.run("certify", BROKEN, "--level", "none", "--images", "", "--seed", "3")
    assert done.returncode == 1, done.stderr
    assert recipe.left() == {
        ".gitignore",
        "summary.md",
        "certify.txt",
        "certificate.json",
        "replay.txt",
        "scenarios.json",
    }
    results = recipe.path / "torntail-results"
    assert (results / ".gitignore").read_text() == "*\n"
    certificate = read_certificate(results / "certificate.json")
    assert (certificate.verdict, certificate.seed, certificate.request.level) == ("fail", 3, "none")
    scenarios = json.loads((results / "scenarios.json").read_text())
    assert sorted(one["status"] for one in scenarios["results"]) == ["failed", "fixed"]
    summary = (results / "summary.md").read_text()
    assert (recipe.path / "step-summary.md").read_text() == summary
    heads = [line for line in summary.splitlines() if line.startswith("#")]
    assert heads == [
        f"### torntail replay `{BROKEN}`: exit code 1",
        f"### torntail certify `{BROKEN}`: exit code 1",
    ]
    assert certificate.findings[0].sentence.partition(" (")[0] in summary
    # The first command that shows it again is in the log, too.
    assert "torntail replay fault-scenarios/reading-and-writing/empty-batch.json" in done.stdout


def test_fuzz_leaves_what_it_found(recipe: Recipe) -> None:
    done = recipe.run(
        "fuzz", "tests.zoo.crashing:no_fsync", "--minutes", "0.1", "--shard", "1/2",
        GITHUB_SHA="7fd3a90c41d5",
    )  # fmt: skip
    assert done.returncode == 1, done.stdout + done.stderr
    assert "--seed 7fd3a90c41d5 --shard 1/2" in done.stdout
    found = find_scenarios([recipe.path / "torntail-results" / "fault-scenarios"])
    assert [one for one in found if load_scenario(one).finding is None] == []
    # Which come first depends on how fast the machine is.
    assert found
    assert list((recipe.path / ".torntail" / "corpus").glob("*/*"))
    clause = load_scenario(found[0]).expect[0].clause
    assert list((recipe.path / ".torntail" / "runs").glob(f"*/*{clause}"))


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "name a task and a store"),
        (["certify"], "name a task and a store"),
        (["prove", "jsonl"], "there is no task prove"),
        (["certify", "jsonl", "--levels", "x"], "there is no option --levels"),
        (["certify", "jsonl", "--level"], "--level needs a value"),
        (["fuzz", "jsonl", "--minutes", "1h"], "--minutes 1h: give a number"),
    ],
)
def test_a_mistake_is_told(recipe: Recipe, arguments: list[str], told: str) -> None:
    done = recipe.run(*arguments)
    assert done.returncode == 2
    assert done.stderr.splitlines()[0] == f"ci/torntail.sh: {told}"


def test_a_mistake_that_torntail_finds_has_its_exit_code(recipe: Recipe) -> None:
    done = recipe.run("certify", "jsonlx")
    assert (done.returncode, "did you mean jsonl?" in done.stdout) == (2, True)


def test_the_recipe_and_its_page_name_the_same_options() -> None:
    taken = set(re.findall(r"^        (--[a-z]+)\)", SCRIPT.read_text(), re.MULTILINE))
    told = set(re.findall(r"^#   (--[a-z]+) ", SCRIPT.read_text(), re.MULTILINE))
    shown = set(re.findall(r"^\| `(--[a-z]+) ", PAGE, re.MULTILINE))
    assert taken == told == shown


# --- the action ---------------------------------------------------------------------------------


def inputs() -> list[str]:
    head = ACTION.partition("\ninputs:\n")[2].partition("\noutputs:\n")[0]
    return re.findall(r"^  ([a-z-]+):$", head, re.MULTILINE)


def test_the_action_uses_the_inputs_that_it_has() -> None:
    used = set(re.findall(r"\binputs\.([a-z-]+)", ACTION))
    assert used == set(inputs())
    steps = set(re.findall(r"^ +(?:- )?id: (\w+)$", ACTION, re.MULTILINE))
    assert set(re.findall(r"\bsteps\.(\w+)\.", ACTION)) <= steps


def test_no_input_is_part_of_a_script() -> None:
    scripts = re.findall(r"^      run: \|\n((?:        .*\n|\n)+)", ACTION, re.MULTILINE)
    assert len(scripts) == 3
    assert [script for script in scripts if "${{" in script] == []


def test_the_action_hands_over_every_option_of_the_recipe() -> None:
    taken = set(re.findall(r"^        (--[a-z]+)\)", SCRIPT.read_text(), re.MULTILINE))
    # Results go to the folder that is uploaded.
    call = ACTION.partition('/ci/torntail.sh"')[2].partition("|| code")[0]
    assert set(re.findall(r"(--[a-z]+) \"\$", call)) == taken - {"--out"}


def test_page_and_workflow_name_inputs_that_there_are() -> None:
    table = PAGE.partition("| input | default | meaning |")[2]
    rows = re.findall(r"^\| (`[^|]+) \|", table, re.MULTILINE)
    assert sorted(name for row in rows for name in re.findall(r"`([a-z-]+)`", row)) == sorted(
        inputs()
    )
    given = re.findall(r"^          ([a-z-]+): ", WORKFLOW, re.MULTILINE)
    assert set(given) <= set(inputs())


def test_both_are_yaml_of_the_right_shape() -> None:
    yaml: Any = pytest.importorskip("yaml")
    action = yaml.safe_load(ACTION)
    assert list(action["inputs"]) == inputs()
    assert action["runs"]["using"] == "composite"
    for step in action["runs"]["steps"]:
        assert ("uses" in step) != ("run" in step)
        assert "uses" in step or step["shell"] == "bash"
    workflow = yaml.safe_load(WORKFLOW)
    assert list(workflow["jobs"]) == ["certify", "fuzz"]
    shards = workflow["jobs"]["fuzz"]["strategy"]["matrix"]["shard"]
    assert shards == [f"{number}/{len(shards)}" for number in range(1, len(shards) + 1)]
