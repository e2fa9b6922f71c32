"""Projects of people who use the plugin: files in a folder, and pytest run on them as a child."""

from __future__ import annotations

import os
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

FAILED, USAGE, NOTHING_COLLECTED = 1, 4, 5


def paths_of_children(directory: Path) -> str:
    """What a child has to have on its path so that it finds torntail, its plugin and the zoo."""
    paths = [str(ROOT / "src"), str(ROOT)]
    if not any(one.name == "torntail" for one in metadata.entry_points(group="pytest11")):
        # As installing it would do: from a checkout pytest would not know of the plugin.
        installed = directory / "torntail-0.dist-info"
        installed.mkdir()
        (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: torntail\nVersion: 0\n")
        (installed / "entry_points.txt").write_text("[pytest11]\ntorntail = _torntail_pytest\n")
        paths.append(str(directory))
    return os.pathsep.join([*paths, *filter(None, [os.environ.get("PYTHONPATH")])])


class Project:
    """A project in a folder of its own."""

    def __init__(self, pytester: pytest.Pytester) -> None:
        self.pytester = pytester
        self.path = pytester.path

    def write(self, name: str, text: str | bytes) -> Path:
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    def run(self, *arguments: str) -> pytest.RunResult:
        return self.pytester.runpytest_subprocess("-p", "no:cacheprovider", *arguments)

    def run_command(self, command: str) -> pytest.RunResult:
        """A command as somebody copies it from the output."""
        words = command.split()
        assert words[0] in ("pytest", "torntail")
        return self.pytester.run(sys.executable, "-m", *words)

    def properties(self, name: str = "junit.xml") -> dict[str, dict[str, list[str]]]:
        """Test → property → its values, as they stand in a file of JUnit XML."""
        found = {}
        for case in ElementTree.parse(self.path / name).iter("testcase"):
            values: dict[str, list[str]] = {}
            for one in case.iter("property"):
                values.setdefault(one.attrib["name"], []).append(one.attrib["value"])
            found[f"{case.attrib['classname']}.{case.attrib['name']}"] = values
        return found


def section(lines: Sequence[str], title: str) -> list[str]:
    """The lines below a heading of pytest, up to the next one; those of other plugins left out."""
    start = next(number for number, line in enumerate(lines) if line.strip("=_ ") == title)
    below = lines[start + 1 :]
    heads = (number for number, line in enumerate(below) if line[:3] in ("===", "___"))
    kept = below[: next(heads, len(below))]
    return [line for line in kept if not line.startswith(("[gw", "- generated xml file"))]
