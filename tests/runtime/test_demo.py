"""The demonstration runs, says the same each time, and marks what the repair made."""

from __future__ import annotations

import subprocess
import sys


def shown() -> str:
    done = subprocess.run(
        [sys.executable, "-m", "torntail.runtime.demo"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_the_demonstration() -> None:
    text = shown()
    marked = [line.split()[1:3] for line in text.splitlines() if line.startswith("  * ")]
    repair = [
        ["33", "tool/result"],
        ["34", "tool/result"],
        ["35", "step/end"],
        ["36", "turn/end"],
    ]
    # Once as resumed, once in the log at the end.
    assert marked == repair * 2
    assert "killed (SIGKILL)" in text
    assert text.splitlines()[-1].split() == ["51", "turn/end", "turn", "2,", "completed"]
    assert shown() == text
