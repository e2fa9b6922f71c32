"""Scenario files as tests of pytest: which files are taken, and what one comes to.

Decides that no other JSON file of a project is touched. Taken is what is named itself; what lies in
the project's folder of scenarios, if that folder or something in it is named, or if the command
line or `[tool.torntail]` asks for it; and, with `--torntail-store`, what lies in another folder
that is named and says in its first lines that it is a scenario. Does not decide whether a clause is
kept, nor how a scenario is carried out (`torntail.scenarios`).
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from torntail.plugin.options import SETTINGS, asked

if TYPE_CHECKING:
    # Not while pytest collects: this takes the harness, and there may be nothing to run.
    from torntail.plugin.replays import Replays
    from torntail.scenarios.format import Scenario
    from torntail.scenarios.outcome import Replay

__all__ = ["ScenarioFile", "ScenarioItem", "is_scenario", "put_away"]

_HEAD_BYTES: Final = 4096
_SAYS_SO: Final = re.compile(rb'\s*\{[^{}]*"torntail"\s*:\s*\d')
_NAMED: Final = pytest.StashKey[tuple[Path, ...]]()
_REPLAYS: Final = pytest.StashKey["Replays"]()


# --- which files --------------------------------------------------------------------------------


def is_scenario(path: Path, config: pytest.Config) -> bool:
    """Whether a file of JSON that pytest came upon is to be run as a scenario."""
    if path.name == "schema.json" or path.name.startswith("."):
        return False
    options = asked(config)
    folder = config.rootpath / options.scenarios
    named = _named(config)
    if path in named:
        return True
    if path.is_relative_to(folder):
        inside = any(one.is_relative_to(folder) for one in named if path.is_relative_to(one))
        return inside or options.store is not None or SETTINGS in config.stash
    if options.store is None or not any(path.is_relative_to(one) for one in named):
        return False
    return _says_so(path)


def _named(config: pytest.Config) -> tuple[Path, ...]:
    """The files and folders on the command line; not those of `testpaths`."""
    if _NAMED not in config.stash:
        arguments: list[str] = config.getoption("file_or_dir", None) or []
        there = config.invocation_params.dir
        config.stash[_NAMED] = tuple(
            Path(os.path.abspath(there / argument.partition("::")[0])) for argument in arguments
        )
    return config.stash[_NAMED]


def _says_so(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return _SAYS_SO.match(file.read(_HEAD_BYTES)) is not None
    except OSError:
        return False


def _printable(name: str) -> str:
    if name.isprintable():
        return name
    from torntail.report.inspection import printable

    return printable(name, 4096)


# --- what one comes to --------------------------------------------------------------------------


class ScenarioFile(pytest.File):
    """A file that holds one scenario."""

    @classmethod
    def at(cls, path: Path, parent: pytest.Collector) -> ScenarioFile:
        """The collector of a file; an odd name is spelled out, for reports and terminals."""
        place = os.path.relpath(path, parent.config.rootpath).replace(os.sep, "/")
        if place.isprintable():
            return cls.from_parent(parent, path=path)
        shown = _printable(place)
        return cls.from_parent(parent, path=path, name=shown, nodeid=shown)

    def collect(self) -> Iterator[ScenarioItem]:
        """Gives its one test, named like the file; what is in it is read when the test is set up.

        So one file that cannot be read does not keep the others from being run.
        """
        yield ScenarioItem.from_parent(self, name=_printable(self.path.stem))


class ScenarioItem(pytest.Item):
    """One scenario, run on the store that was asked for, or on the one that it names."""

    _scenario: Scenario

    def setup(self) -> None:
        """Reads the file and finds the store; what is wrong with them is one line."""
        from torntail.drive.target import TargetError
        from torntail.plugin.told import add_properties
        from torntail.report.inspection import printable
        from torntail.scenarios.files import ScenarioError, load_scenario

        replays = self._replays()
        wrong = store = ""
        try:
            self._scenario = load_scenario(Path(self._shown()))
            store = replays.store(self._scenario)
        except ScenarioError as error:
            wrong = str(error)
        except TargetError as error:
            wrong = f"{self._shown()}: {error}"
        if wrong:
            pytest.fail(printable(wrong, 2000), pytrace=False)
        clauses = dict.fromkeys(one.clause for one in self._scenario.expect)
        add_properties(self, clauses=clauses, store=store)

    def runtest(self) -> None:
        """Passes where the expectation holds; fails where it does not, or where nobody can tell."""
        from torntail.drive.target import TargetError
        from torntail.plugin.told import Told, fail
        from torntail.report.inspection import printable
        from torntail.scenarios.outcome import one_for_each_clause

        result: Replay | TargetError
        try:
            result = self._replays().replay(self._scenario)
        except TargetError as error:
            result = error
        if isinstance(result, TargetError):
            # Outside of the handler, so that pytest does not show the one below the other.
            pytest.fail(printable(f"{self._shown()}: {result}", 2000), pytrace=False)
        if result.status == "fixed":
            return
        if result.status == "skipped":
            pytest.skip(printable(result.reason, 1000))
        options = asked(self.config)
        command = ["torntail", "replay", self._shown(), "--store", result.store]
        for name in ("level", "images"):
            value = getattr(options, name) or getattr(options.settings, name)
            if value is not None:
                command += [f"--{name}", str(value)]
        found = one_for_each_clause(result.findings)
        sentences = [f"{one.clause} violated: {one.sentence}" for one in found]
        if not sentences:
            sentences = [f"unknown: {result.reason}"]
        again = shlex.join(command)
        lines = filter(None, [self._scenario.title, self._scenario.teaches, *result.story])
        fail(self, [Told(sentence, result.store, again) for sentence in sentences], [*lines])

    def reportinfo(self) -> tuple[Path, None, str]:
        """Where it stands, and how it is called in a heading."""
        return Path(_printable(str(self.path))), None, f"scenario {self.name}"

    def _shown(self) -> str:
        """The file as somebody at the command line would name it."""
        return Path(os.path.relpath(self.path, self.config.invocation_params.dir)).as_posix()

    def _replays(self) -> Replays:
        from torntail.plugin.replays import Replays

        if _REPLAYS not in self.config.stash:
            replays = self.config.stash[_REPLAYS] = Replays(asked(self.config))
            # Also where a run ends before its last test.
            self.config.add_cleanup(replays.close)
        return self.config.stash[_REPLAYS]


def put_away(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Ends what scenarios share, unless the next test is one, too."""
    if not isinstance(nextitem, ScenarioItem) and _REPLAYS in item.config.stash:
        item.config.stash[_REPLAYS].close()
