"""What the tests of traced children share: running a small program, and what a machine lacks."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from torntail.record.traced.linux import unavailable
from torntail.record.traced.process import TracedProcess
from torntail.record.traced.values import Ended

_PROJECT = Path(__file__).resolve().parents[2]
PROGRAMS = Path(__file__).with_name("programs.py")
DRIVERS = _PROJECT / "drivers"
ENVIRONMENT = {
    "PATH": os.environ.get("PATH", os.defpath),
    "PYTHONPATH": f"{_PROJECT / 'src'}{os.pathsep}{_PROJECT}",
    "PYTHONDONTWRITEBYTECODE": "1",
    "HOME": "/nonexistent",
}
DEADLINE_SECONDS = 120.0
"""So that a test that fails does not hang; never reached by one that passes."""

needs_tracing = pytest.mark.skipif(unavailable() is not None, reason=str(unavailable()))


def needs(program: str) -> pytest.MarkDecorator:
    """Skips a test where a program is not installed."""
    return pytest.mark.skipif(shutil.which(program) is None, reason=f"{program} is not installed")


def python(code: str, *arguments: Any) -> list[str]:
    """The command that runs a piece of Python; `sys.argv[1:]` are the arguments."""
    return [sys.executable, "-S", "-c", code, *map(str, arguments)]


def program(name: str, *arguments: Any) -> list[str]:
    """The command that runs a function of `programs.py`."""
    return [sys.executable, str(PROGRAMS), name, *map(str, arguments)]


class Run(TracedProcess):
    """A traced process, and of one that has run: its output and its end."""

    output: bytes
    end: Ended


def traced(argv: list[str], root: Path, **settings: Any) -> Run:
    """A traced process with the environment and the deadline of these tests."""
    settings = {"env": ENVIRONMENT, "deadline_seconds": DEADLINE_SECONDS, **settings}
    return Run(argv, root=root, **settings)


def run(argv: list[str], root: Path, **settings: Any) -> Run:
    """Runs a command to its end and holds its log against the directory."""
    with traced(argv, root, **settings) as process:
        process.output = process.stdout.read()
        end = process.wait()
        assert end is not None
        process.end = end
    process.check()
    return process


def compiled(tmp_path: Path, source: str, *options: str) -> str:
    """A C program, compiled; skips where that cannot be done."""
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed")
    path = tmp_path / "program.c"
    path.write_text(source)
    binary = str(tmp_path / "program")
    made = subprocess.run(
        ["gcc", "-O1", *options, "-o", binary, str(path)], capture_output=True, text=True
    )
    if made.returncode:
        pytest.skip(f"gcc cannot compile this: {made.stderr.strip().splitlines()[-1]}")
    return binary


def example_in_c(tmp_path: Path) -> str:
    """The driver in C that is shipped, compiled as its first lines say."""
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed")
    binary = str(tmp_path / "example")
    subprocess.run(["gcc", "-O2", "-o", binary, str(DRIVERS / "c" / "example.c")], check=True)
    return binary


def gone(pid: int) -> bool:
    """Whether a process is no more, or is only waited for."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state == "Z"
