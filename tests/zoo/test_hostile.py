"""A store that is rude to its process is a finding or a harness error with the cause; none hangs
torntail, and none passes that has not earned it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.zoo import rude
from torntail import certify
from torntail.judge.verdict import Certificate


def crashed(
    name: str, *, workers: int = 1, seconds: float = 20, plan: str | None = None
) -> Certificate:
    return certify(
        f"tests.zoo.rude:{name}",
        level="power",
        only=["CR"],
        images=200,
        plan=plan,
        workers=workers,
        runs=None,
        call_timeout=seconds,
    )


def sentences(certificate: Certificate) -> list[str]:
    return [finding.sentence for finding in certificate.findings if finding.clause == "CR-3"]


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("killed_by_its_alarm", "the store's process was killed by signal 14"),
        ("closes_everything", "the store's process was ended with exit code 1"),
        ("takes_the_alarm", "a call had not returned after 6 s"),
    ],
)
def test_what_costs_the_process_is_a_finding(name: str, told: str) -> None:
    certificate = crashed(name, seconds=6, plan="turn-by-turn")
    assert any(told in sentence for sentence in sentences(certificate))
    assert certificate.exit_code == 1


@pytest.mark.parametrize("workers", [0, 1])
def test_an_exception_that_raises_when_it_is_looked_at_is_a_finding(workers: int) -> None:
    certificate = crashed("raises_more_oddly", workers=workers, plan="first-turn")
    told = "refused (WillNotBeNamed): (a WillNotBeNamed without text)"
    assert any(told in finding.sentence for finding in certificate.findings)
    assert certificate.exit_code == 1


def test_what_is_written_after_the_call_returned_is_not_acknowledged() -> None:
    certificate = crashed("writes_late", plan="turn-by-turn")
    assert certificate.exit_code == 1


def test_files_beside_the_store_are_no_baseline() -> None:
    certificate = crashed("writes_beside")
    assert certificate.exit_code == 4
    assert "append wrote outside its directory: ../" in (certificate.baseline_error or "")


@pytest.mark.parametrize("workers", [0, 1])
def test_files_elsewhere_are_told_by_name(
    workers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(rude.ELSEWHERE, str(tmp_path))
    certificate = crashed("writes_elsewhere", workers=workers, plan="first-turn")
    assert certificate.exit_code != 0
    (error,) = certificate.harness_errors
    assert error.startswith(f"crashing: the store wrote {tmp_path}/")
    assert "outside its directory" in error


@pytest.mark.parametrize("workers", [0, 1])
def test_a_stream_that_was_closed_proves_nothing(workers: int) -> None:
    # In a process of its own: pytest would miss its output.
    command = "import sys; from tests.zoo.test_hostile import crashed; "
    command += f"certificate = crashed('closes_outputs', workers={workers}); "
    command += "print(certificate.exit_code, *certificate.harness_errors)"
    done = subprocess.run(
        [sys.executable, "-c", command],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
    )
    assert done.stdout == "3 crashing: the store closed standard output, descriptor 1\n"


@pytest.mark.parametrize(
    ("name", "habit"),
    [
        ("changes_directory", "the store changed the working directory"),
        ("installs_handlers", "the store installed a handler for SIGALRM"),
        ("shrinks_the_stack", "the store set the recursion limit to"),
    ],
)
@pytest.mark.parametrize("workers", [0, 1])
def test_a_habit_is_put_right_and_told(name: str, habit: str, workers: int) -> None:
    before = Path.cwd(), sys.getrecursionlimit()
    certificate = crashed(name, workers=workers, plan="turn-by-turn")
    assert certificate.findings == ()
    assert any(note.startswith(f"while it was crashed, {habit}") for note in certificate.notes)
    assert (Path.cwd(), sys.getrecursionlimit()) == before


def test_a_child_that_stays_holds_nobody_up() -> None:
    certificate = crashed("leaves_a_child", plan="turn-by-turn")
    assert (certificate.findings, certificate.harness_errors) == ((), ())


@pytest.mark.parametrize("workers", ["0", "1"])
def test_a_thread_that_stays_holds_nobody_up(workers: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "torntail", "certify", "tests.zoo.rude:leaves_a_thread"]
    options = ["--only", "CR-3", "--plan", "turn-by-turn", "--level", "process"]
    done = subprocess.run(
        [*command, *options, "--workers", workers],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.rstrip().splitlines()[-1] == "pass · 1 pass"


def test_an_alarm_that_was_taken_does_not_keep_this_process() -> None:
    command = "from tests.zoo.test_hostile import crashed; "
    command += "crashed('takes_the_alarm', workers=0, seconds=2, plan='turn-by-turn')"
    done = subprocess.run(
        [sys.executable, "-c", command],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == -9
    assert "torntail: a call had not returned after 2 s, and no alarm ends it" in done.stderr


def test_a_file_without_end_is_told_of_and_not_read() -> None:
    certificate = crashed("makes_holes_without_end", plan="first-turn")
    assert certificate.baseline_error is not None
    assert certificate.baseline_error.startswith(
        "the store made a file 1,099,511,627,776 bytes long"
    )
    assert certificate.exit_code == 4


def test_a_file_that_had_no_end_for_a_moment_is_told_of() -> None:
    certificate = crashed("makes_a_hole_for_a_moment", plan="first-turn")
    states = {result.state for result in certificate.results}
    assert states == {"unknown", "not applicable"}
    notes = " ".join(result.note for result in certificate.results)
    assert "reserve': is 1,099,511,627,776 bytes long" in notes
    assert certificate.exit_code == 3


@pytest.mark.parametrize("workers", [0, 1])
def test_a_file_without_end_that_a_load_makes_is_a_harness_error_with_the_cause(
    workers: int,
) -> None:
    certificate = crashed("makes_a_hole_after_a_crash", workers=workers, plan="turn-by-turn")
    assert "'reserve' is 1,099,511,627,776 bytes long" in " ".join(certificate.harness_errors)
    assert certificate.exit_code == 3
