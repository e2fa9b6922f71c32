"""Options, `[tool.torntail]`, the header; and what a run pays that has nothing to do with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.plugin.support import USAGE, Project
from torntail import __version__
from torntail.explore.fuzz_seed import seed_of
from torntail.settings import Settings, SettingsError, read_settings

SECTION = "pyproject.toml, [tool.torntail]: "


def settings(directory: Path, text: str | bytes) -> Settings | None:
    path = directory / "pyproject.toml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return read_settings(path)


def test_all_keys_are_read(tmp_path: Path) -> None:
    text = """
        [tool.torntail]
        store = "mine:open_store"
        scenarios = "tests/cases"
        seed = -3
        images = 1
        level = "process"
        """
    assert settings(tmp_path, text) == Settings(
        store="mine:open_store", scenarios="tests/cases", seed=-3, images=1, level="process"
    )


@pytest.mark.parametrize("text", ["", "[tool]", "[tool.other]\ntorntail = 1", "tool = 3"])
def test_without_the_section_nothing_is_said(tmp_path: Path, text: str) -> None:
    assert settings(tmp_path, text) is None
    assert read_settings(tmp_path / "none" / "pyproject.toml") is None


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ("seeds = 1", "there is no key 'seeds'; did you mean seed?"),
        (
            "workers = 2",
            "there is no key 'workers'; use one of store, scenarios, seed, images, level",
        ),
        ("seed = '1'", "seed is a text; write a whole number"),
        ("seed = true", "seed is true or false; write a whole number"),
        ("seed = 1.0", "seed is a number with a point; write a whole number"),
        ("images = 0", "images is 0; the least is 1"),
        ("images = [1]", "images is a list; write a whole number"),
        ("level = 'strict'", "level is 'strict'; use none, process, power"),
        ("level = 1", "level is a number; write it in quotes"),
        ("store = ' '", "store is empty; name it, or leave the key out"),
        ("store = 1979-05-27", "store is a date; write it in quotes"),
        ("scenarios = '../cases'", "scenarios '../cases' is not below this folder"),
        ("scenarios = '/cases'", "scenarios '/cases' is not below this folder"),
    ],
)
def test_a_mistake_is_told_in_one_line(tmp_path: Path, lines: str, told: str) -> None:
    with pytest.raises(SettingsError) as caught:
        settings(tmp_path, f"[tool.torntail]\n{lines}\n")
    assert str(caught.value) == SECTION + told


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("tool.torntail = 3", SECTION + "is a number, not a table of keys"),
        ("[tool.torntail", "pyproject.toml is not TOML: "),
        (b"\xff", "pyproject.toml is not TOML: "),
    ],
)
def test_a_file_that_cannot_be_used_is_told(tmp_path: Path, text: Any, told: str) -> None:
    with pytest.raises(SettingsError) as caught:
        settings(tmp_path, text)
    assert str(caught.value).startswith(told)
    assert "\n" not in str(caught.value)


# --- in a run -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("section", "options", "told"),
    [
        ("seeds = 1", (), f"ERROR: {SECTION}there is no key 'seeds'; did you mean seed?"),
        (
            "",
            ("--torntail-store", "jsonlx"),
            "ERROR: --torntail-store: there is no store 'jsonlx'; did you mean jsonl?",
        ),
    ],
)
def test_a_mistake_ends_a_run_before_it_begins(
    project: Project, section: str, options: tuple[str, ...], told: str
) -> None:
    project.write("pyproject.toml", f"[tool.torntail]\n{section}\n")
    project.write("test_one.py", "def test_one(): pass\n")
    result = project.run(*options)
    assert result.ret == USAGE
    assert [line for line in (*result.outlines, *result.errlines) if "ERROR" in line] == [told]


PRECEDENCE = """\
from torntail import contract_suite
TestFile = contract_suite("memory", only=["RW-5"])
TestCode = contract_suite("memory", only=["RW-5"], seed=5)
"""


def test_the_command_line_goes_before_the_code_and_that_before_the_file(project: Project) -> None:
    project.write("pyproject.toml", "[tool.torntail]\nseed = 3\nstore = 'memory'\n")
    project.write("test_seeds.py", PRECEDENCE)

    def seeds() -> list[list[str]]:
        return [values["torntail.seed"] for values in project.properties().values()]

    result = project.run("--junitxml=junit.xml")
    result.assert_outcomes(passed=2)
    assert f"torntail {__version__}: seed 3, store memory" in result.outlines
    assert seeds() == [["3"], ["5"]]
    options = ("--torntail-seed=7fd3a90", "--torntail-level=none", "--torntail-images=9")
    result = project.run("--junitxml=junit.xml", *options)
    seed = str(seed_of("7fd3a90"))
    assert f"torntail {__version__}: seed {seed}, store memory, images 9, level none" in (
        result.outlines
    )
    assert seeds() == [[seed], [seed]]


FOREIGN = """\
import sys

def test_nothing_was_imported():
    mine = {name for name in sys.modules if name.partition(".")[0] == "torntail"}
    assert mine == {
        "torntail",
        "torntail.plugin",
        "torntail.plugin.options",
        "torntail.plugin.scenario_files",
        "torntail.settings",
    }
    assert not {"hypothesis", "msgspec", "click", "rich", "sqlite3"} & sys.modules.keys()
"""


def test_a_run_of_other_tests_imports_next_to_nothing(project: Project) -> None:
    project.write("pyproject.toml", "[project]\nname = 'foreign'\n")
    project.write("package.json", '{"name": "foreign"}')
    project.write("test_foreign.py", FOREIGN)
    project.run().assert_outcomes(passed=1)
    program = (
        "import sys, _torntail_pytest; print(sorted(m for m in sys.modules if 'torntail' in m))"
    )
    alone = project.pytester.run("python", "-c", program)
    assert alone.outlines == ["['_torntail_pytest']"]
