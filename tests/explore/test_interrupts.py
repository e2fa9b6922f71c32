"""Ctrl-C and SIGTERM while a store is crashed: the workers and all scratch space are gone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.zoo.rude import MEETING
from torntail.explore.campaign import Interrupted, certify
from torntail.explore.progress import CampaignEnded, CampaignStarted, CaseEnded, CrashesWent
from torntail.report.terminal import print_interrupted

ROOT = Path(__file__).parents[2]


def interrupted(
    arguments: list[str], number: signal.Signals, folder: Path
) -> tuple[int, int, int, str, str]:
    """Runs the command until its store waits on a crashed disk, and interrupts it there.

    The process of the store, that of the command, the exit code, and what was printed.
    """
    scratch, meeting = folder / "scratch", folder / "meeting"
    scratch.mkdir()
    os.mkfifo(meeting)
    process = subprocess.Popen(
        [sys.executable, "-m", "torntail", *arguments],
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": ":".join(sys.path),
            "TORNTAIL_SCRATCH": str(scratch),
            MEETING: str(meeting),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A shell may have told its background jobs to ignore Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    # The store writes its process there, and waits, in the middle of a load after a crash.
    met = int(meeting.read_text().split()[0])
    assert list(scratch.iterdir()) != []
    process.send_signal(number)
    output, errors = process.communicate()
    assert list(scratch.iterdir()) == []
    with pytest.raises(ProcessLookupError):
        os.kill(met, 0)
    return met, process.pid, process.returncode, output, errors.strip()


@pytest.mark.parametrize(
    ("number", "code", "said"),
    [(signal.SIGINT, 130, "torntail: interrupted"), (signal.SIGTERM, 143, "torntail: terminated")],
)
@pytest.mark.parametrize("workers", [0, 2])
def test_nothing_is_left_of_what_was_interrupted(
    number: signal.Signals, code: int, said: str, workers: int, tmp_path: Path
) -> None:
    arguments = ["certify", "tests.zoo.rude:meets", "--only", "CR", "--level", "power"]
    met, process, exit_code, output, errors = interrupted(
        [*arguments, "--workers", str(workers)], number, tmp_path
    )
    assert (met == process) is (workers == 0)
    assert (errors, exit_code) == (said, code)
    head, *_, told, again = output.splitlines()
    assert head.startswith("tests.zoo.rude:meets · profile session · durability power · ")
    assert told == "interrupted: no findings by then; nothing else is decided"
    assert again == "torntail certify tests.zoo.rude:meets --seed 0 --level power --only CR"


@pytest.mark.parametrize(
    ("number", "exit_code", "said"),
    [(signal.SIGINT, 130, "torntail: interrupted"), (signal.SIGTERM, 143, "torntail: terminated")],
)
def test_an_interrupted_replay_says_what_was_not_run(
    number: signal.Signals, exit_code: int, said: str, tmp_path: Path
) -> None:
    saved = str(ROOT / "fault-scenarios" / "durability" / "no-fsync.json")
    arguments = ["replay", saved, "--store", "tests.zoo.rude:meets"]
    _, _, code, output, errors = interrupted(arguments, number, tmp_path)
    assert (errors, code) == (said, exit_code)
    assert output.splitlines()[-1] == "interrupted: 1 of 1 scenarios were not run"


@pytest.mark.parametrize(
    ("target", "only", "clause"),
    [
        ("tests.zoo.reading:unknown_types_are_dropped", ["RW"], "RW-13"),
        ("tests.zoo.crashing:no_fsync", ["CR"], "CR-1"),
    ],
)
def test_what_was_found_before_an_interrupt_is_told(
    target: str, only: list[str], clause: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(event: CampaignStarted | CaseEnded | CrashesWent | CampaignEnded) -> None:
        found = isinstance(event, CaseEnded | CrashesWent) and event.findings
        if found and (not isinstance(event, CaseEnded) or event.findings[0].clause == clause):
            raise KeyboardInterrupt

    with pytest.raises(Interrupted) as caught:
        certify(target, only=only, progress=interrupt, runs=None, workers=0)
    certificate = caught.value.certificate
    assert clause in {finding.clause for finding in certificate.findings}
    print_interrupted(certificate, 1.0)
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith(f"{clause} violated: ") for line in lines)
    assert any("by then; nothing else is decided" in line for line in lines)
    assert lines[-1] == certificate.findings[0].command
    assert not any(line.endswith(" pass") or " pass, " in line for line in lines)
