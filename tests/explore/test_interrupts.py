"""Ctrl-C and SIGTERM while a store is crashed: the workers and all scratch space are gone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.zoo.rude import MEETING


@pytest.mark.parametrize(
    ("number", "code", "said"),
    [(signal.SIGINT, 130, "torntail: interrupted"), (signal.SIGTERM, 143, "torntail: terminated")],
)
@pytest.mark.parametrize("workers", [0, 2])
def test_nothing_is_left_of_what_was_interrupted(
    number: signal.Signals, code: int, said: str, workers: int, tmp_path: Path
) -> None:
    scratch, meeting = tmp_path / "scratch", tmp_path / "meeting"
    scratch.mkdir()
    os.mkfifo(meeting)
    environment = {
        **os.environ,
        "PYTHONPATH": ":".join(sys.path),
        "TORNTAIL_SCRATCH": str(scratch),
        MEETING: str(meeting),
    }
    command = [sys.executable, "-m", "torntail", "certify", "tests.zoo.rude:meets", "--only", "CR"]
    process = subprocess.Popen(
        [*command, "--level", "power", "--workers", str(workers)],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A shell may have told its background jobs to ignore Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    # The store writes its process there, and waits, in the middle of a load after a crash.
    met = int(meeting.read_text().split()[0])
    assert (met == process.pid) is (workers == 0)
    assert list(scratch.iterdir()) != []
    process.send_signal(number)
    output, errors = process.communicate()
    assert (errors.strip(), output, process.returncode) == (said, "", code)
    assert list(scratch.iterdir()) == []
    with pytest.raises(ProcessLookupError):
        os.kill(met, 0)
