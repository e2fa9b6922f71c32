"""The pytest plugin: options, the header, scenario files as tests, and the summary.

pytest imports this module whenever it starts, in every project. So it is thin: what takes torntail
itself is imported in the hook that needs it, and nothing of it where a run has nothing to do with
torntail. Decides the names of the options and when files are looked at; the rest is in
`torntail.plugin`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

__all__: list[str] = []


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the options; None is what was not said."""
    group = parser.getgroup("torntail", "crash safety of session stores (torntail)")
    group.addoption(
        "--torntail-store",
        metavar="TARGET",
        help="Run scenario files on this store: memory, jsonl, sqlite, or module:factory.",
    )
    group.addoption(
        "--torntail-seed",
        metavar="SEED",
        type=_seed,
        help="Which values contract suites try: an integer or a commit hash; default is 0.",
    )
    group.addoption(
        "--torntail-images",
        metavar="COUNT",
        type=_count,
        help="How many distinct disk images a contract suite, or a scenario, loads.",
    )
    group.addoption(
        "--torntail-level",
        choices=("none", "process", "power"),
        help="What is to be proven; default is what a store claims.",
    )


def _seed(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        from torntail.explore.fuzz_seed import seed_of

        return seed_of(text)


def _count(text: str) -> int:
    count = int(text)
    if count < 1:
        raise ValueError(text)
    return count


def pytest_configure(config: pytest.Config) -> None:
    """Reads `[tool.torntail]` where there may be one."""
    path = config.rootpath / "pyproject.toml"
    try:
        mentioned = b"torntail" in path.read_bytes()
    except OSError:
        return
    if not mentioned:
        return
    from torntail.plugin.options import SETTINGS
    from torntail.settings import SettingsError, read_settings

    try:
        settings = read_settings(path)
    except SettingsError as error:
        raise pytest.UsageError(str(error)) from None
    if settings is not None:
        config.stash[SETTINGS] = settings


def pytest_sessionstart(session: pytest.Session) -> None:
    """Refuses a store on the command line that is none, before anything is run."""
    store = session.config.getoption("torntail_store")
    if store is None:
        return
    from torntail.drive.target import TargetError, target_of

    try:
        target_of(store)
    except TargetError as error:
        raise pytest.UsageError(f"--torntail-store: {error}") from None


def pytest_report_header(config: pytest.Config) -> str:
    """The version, and what was asked for."""
    from torntail import __version__
    from torntail.plugin.options import asked, words

    return f"torntail {__version__}: {words(asked(config))}"


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """A file of JSON may be a scenario."""
    if file_path.suffix != ".json":
        return None
    from torntail.plugin.scenario_files import ScenarioFile, is_scenario

    if not is_scenario(file_path, parent.config):
        return None
    return ScenarioFile.at(file_path, parent)


def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """After the last scenario in a row what they shared is put away."""
    if item.path.suffix == ".json":
        from torntail.plugin.scenario_files import put_away

        put_away(item, nextitem)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """What was found and how to see it again, in one place."""
    reports = [report for kept in terminalreporter.stats.values() for report in kept]
    properties = (name for one in reports for name, _ in getattr(one, "user_properties", ()))
    if not any(str(name).startswith("torntail.") for name in properties):
        return
    from torntail.plugin.told import summary_lines

    lines = summary_lines(reports)
    if lines:
        terminalreporter.section("torntail")
        for line in lines:
            terminalreporter.line(line)
