"""Scenario files: finding, loading and saving them.

One file a scenario, `<class>/<id>.json`. Decides which files of a folder are taken, that a file is
regular and not too long before it is read, and that saving leaves the old file or the new one. That
a file's name is its id, and its folder its class, is a custom: `odd_place` tells where it is not
kept, and a copy under another name is a scenario all the same.
"""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from torntail.scenarios.format import MAXIMUM_FILE_BYTES, SCENARIO_CLASSES, Scenario
from torntail.scenarios.reading import ScenarioError, parse_scenario
from torntail.scenarios.text import scenario_text

__all__ = [
    "ScenarioError",
    "find_scenarios",
    "load_scenario",
    "odd_place",
    "place_of",
    "save_scenario",
]

SUFFIX: Final = ".json"
_MAXIMUM_FILES: Final = 20_000
# A file that is not to be mistaken for a scenario, though it lies among them.
_NOT_SCENARIOS: Final = ("schema.json",)


def load_scenario(path: Path) -> Scenario:
    """The scenario in a file; raises `ScenarioError`."""
    return parse_scenario(_read(path), _shown(path))


def _read(path: Path) -> bytes:
    try:
        # Without blocking, since a name may lead to a pipe that nobody writes to.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ScenarioError(_shown(path), "", f"cannot be read: {reason}") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        what = "is not a regular file: name a scenario's file, or a folder of them"
        raise ScenarioError(_shown(path), "", what)
    with open(descriptor, "rb") as file:
        try:
            return file.read(MAXIMUM_FILE_BYTES + 1)
        except OSError as error:
            what = f"cannot be read: {error.strerror}"
            raise ScenarioError(_shown(path), "", what) from None


def find_scenarios(paths: Iterable[Path]) -> list[Path]:
    """The scenario files that are named or lie in the folders named, each once.

    Within a folder in the order of their paths; links to folders are not followed. Raises
    `ScenarioError` for what is not there and for a folder without any.
    """
    found: dict[Path, None] = {}
    for path in paths:
        try:
            is_folder = stat.S_ISDIR(path.stat().st_mode)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise ScenarioError(_shown(path), "", f"cannot be read: {reason}") from None
        if not is_folder:
            found[path] = None
            continue
        below = sorted(
            Path(folder, name)
            for folder, _, names in os.walk(path)
            for name in names
            if name.endswith(SUFFIX) and name not in _NOT_SCENARIOS and not name.startswith(".")
        )
        if not below:
            raise ScenarioError(_shown(path), "", f"is a folder without scenarios (*{SUFFIX})")
        found |= dict.fromkeys(below)
        if len(found) > _MAXIMUM_FILES:
            raise ScenarioError(_shown(path), "", f"has more than {_MAXIMUM_FILES} files")
    return list(found)


def odd_place(scenario: Scenario, path: Path) -> str | None:
    """What is unusual about where a scenario lies, for a note; None where all is as it should be.

    The folder counts only where it has the name of a class.
    """
    if path.stem != scenario.id:
        return (
            f"{_shown(path)}: its id is {scenario.id}, so {scenario.id}{SUFFIX} would be its name"
        )
    folder = path.absolute().parent.name
    if folder in SCENARIO_CLASSES and folder != scenario.kind:
        return f"{_shown(path)}: its class is {scenario.kind}, and it lies in {folder}"
    return None


def place_of(scenario: Scenario, directory: Path) -> Path:
    """Where a scenario belongs below a folder of scenarios."""
    return directory / scenario.kind / f"{scenario.id}{SUFFIX}"


def save_scenario(scenario: Scenario, path: Path) -> None:
    """Writes a scenario to a file, whole or not at all; raises `ScenarioError`.

    A scenario that could not be loaded again is not written.
    """
    data = scenario_text(scenario).encode("utf-8")
    parse_scenario(data, _shown(path))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
        try:
            with open(descriptor, "wb") as file:
                file.write(data)
                os.fchmod(descriptor, 0o644)
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
    except OSError as error:
        what = f"cannot be written: {error.strerror}"
        raise ScenarioError(_shown(path), "", what) from None


def _shown(path: Path) -> str:
    return str(path)
