"""A driver that breaks the protocol: each way is its own outcome, and nothing is left of it."""

from __future__ import annotations

import gc
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.blackbox.support import gone
from torntail.drive.child_store import ChildStore, Driver
from torntail.drive.conversation import DriverError
from torntail.drive.driver_process import DriverProcess
from torntail.judge.history import Hung, LoadedSession, Refused, Returned, StrangeResult
from torntail.session import SessionEvent

HOSTILE = Path(__file__).with_name("hostile_drivers.py")
LOADED = Returned(session=LoadedSession(None, (SessionEvent("note", 0, 1, {}),)))
PATIENT_SECONDS = 60.0
"""For what does answer, however busy the machine is."""


def command(name: str) -> list[str]:
    return [sys.executable, "-I", "-S", str(HOSTILE), name]


@pytest.fixture
def drivers() -> Iterator[list[Driver]]:
    made: list[Driver] = []
    yield made
    for driver in made:
        driver.close()


def opened(drivers: list[Driver], name: str, seconds: float = PATIENT_SECONDS) -> ChildStore:
    driver = Driver(command(name))
    drivers.append(driver)
    store = ChildStore(driver, Path("/nowhere"), timeout=seconds)
    assert store.opened == Returned()
    return store


def ended(text: str) -> Refused:
    return Refused("exit", "DriverEnded", text)


def test_one_that_behaves(drivers):
    store = opened(drivers, "well")
    process = drivers[0].process()
    assert store.load("s") == LOADED
    assert store.close() == Returned()
    assert process.end(PATIENT_SECONDS) == (0, 0)
    assert gone(process.pid)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("rubbish", "a line that is no answer: 'Debug: loading' (not JSON: "),
        ("no_object", "a line that is no answer: '[1, 2]' (it is no object with an id)"),
        ("a_hundred_megabytes", "a line of more than 83886080 bytes"),
        ("wrong_id", "an answer with the id 9, which was not asked for: 2 was"),
        ("the_id_before", "an answer with the id 1, which was not asked for: 2 was"),
        ("both", "it has to have either result or error"),
        ("unknown_kind", "its error: Invalid enum value 'locked' - at `$.kind`"),
    ],
)
def test_what_is_no_answer_is_a_strange_result_and_the_end(drivers, name, reason):
    store = opened(drivers, name)
    process = drivers[0].process()
    outcome = store.load("s")
    assert isinstance(outcome, StrangeResult)
    assert reason in outcome.reason
    assert len(outcome.reason) < 600
    assert gone(process.pid)
    assert store.load("s") == ended(f"the driver was ended: it wrote {outcome.reason}")


@pytest.mark.parametrize("name", ["wrong_shape", "wrong_event", "no_utf8"])
def test_a_result_in_the_wrong_shape_is_strange_and_the_driver_goes_on(drivers, name):
    store = opened(drivers, name)
    outcome = store.load("s")
    assert isinstance(outcome, StrangeResult)
    assert "which is not understood" in outcome.reason
    assert store.close() == Returned()
    assert drivers[0].started == 1


@pytest.mark.parametrize("name", ["nothing", "half_a_line", "answers_late"])
def test_no_answer_in_time_hangs_and_a_late_one_is_not_heard(drivers, name):
    store = opened(drivers, name, seconds=0.3)
    process = drivers[0].process()
    assert store.load("s") == Hung(0.3)
    assert store.hung
    assert gone(process.pid)
    # The next store has a process of its own.
    again = ChildStore(drivers[0], Path("/nowhere"), timeout=PATIENT_SECONDS)
    assert again.opened == Returned()
    assert drivers[0].started == 2


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "exit_in_the_middle",
            "the driver's output ended while load was awaited: it ended with exit code 3; "
            "it wrote last: out of luck",
        ),
        (
            "half_a_line_and_exit",
            "the driver's output ended after 6 bytes of a line while load was awaited: it ended "
            "with exit code 3",
        ),
        (
            "killed",
            "the driver's output ended while load was awaited: it was killed by signal 9",
        ),
        (
            "closes_its_output",
            "the driver's output ended while load was awaited: it was killed by signal 9",
        ),
    ],
)
def test_an_end_in_the_middle_is_told_with_how_it_ended(drivers, name, text):
    store = opened(drivers, name)
    process = drivers[0].process()
    assert store.load("s") == ended(text)
    assert store.load("s") == ended(text)
    assert gone(process.pid)


def test_one_that_needs_a_terminal_has_none(drivers):
    store = opened(drivers, "terminal")
    outcome = store.load("s")
    assert isinstance(outcome, Refused)
    assert outcome.kind == "exit"
    assert "/dev/tty" in outcome.text


def test_children_are_killed_also_those_that_left_the_session(drivers):
    store = opened(drivers, "children")
    outcome = store.load("s")
    assert isinstance(outcome, Refused)
    assert outcome.kind == "exit"
    pids = [int(pid) for pid in re.findall(r"child (\d+)", outcome.text)]
    assert len(pids) == 2
    assert [pid for pid in pids if not gone(pid)] == []


def test_what_is_left_running_at_the_end_is_counted_and_killed():
    with DriverProcess(command("leaves_a_child"), seconds=PATIENT_SECONDS) as process:
        assert process.end(PATIENT_SECONDS) == (0, 1)


def test_one_that_ignores_the_end_of_its_input_is_killed():
    with DriverProcess(command("ignores_the_end"), seconds=PATIENT_SECONDS) as process:
        assert process.end(0.2) is None
        assert gone(process.pid)


def test_noise_on_the_standard_error_is_bounded_and_its_end_kept(drivers):
    store = opened(drivers, "noise")
    assert store.load("s") == LOADED
    words = drivers[0].process().last_words()
    assert words.endswith("e the last words")
    assert len(words) < 500


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("greets_in_another_protocol", "the driver speaks protocol 2, not 1"),
        ("exits_at_once", "it ended with exit code 1; it wrote last: no such database"),
    ],
)
def test_without_a_greeting_there_is_no_driver(name, text):
    with pytest.raises(DriverError) as raised:
        DriverProcess(command(name), seconds=PATIENT_SECONDS)
    assert text in str(raised.value)


def test_a_command_that_is_none():
    with pytest.raises(DriverError) as raised:
        DriverProcess(["/nowhere/driver"], seconds=PATIENT_SECONDS)
    assert str(raised.value) == "/nowhere/driver cannot be run: No such file or directory"


def test_a_driver_that_is_forgotten_is_ended():
    driver = Driver(command("nothing"))
    pid = driver.process().pid
    del driver
    gc.collect()
    assert gone(pid)


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_a_driver_ends_with_its_caller(tmp_path):
    program = (
        "import sys, time\n"
        "from torntail.drive.driver_process import DriverProcess\n"
        "process = DriverProcess(sys.argv[1:], seconds=60)\n"
        "print(process.pid, process._keeper.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    caller = subprocess.Popen(
        [sys.executable, "-c", program, *command("nothing")], stdout=subprocess.PIPE, text=True
    )
    assert caller.stdout
    pids = [int(pid) for pid in caller.stdout.readline().split()]
    caller.send_signal(signal.SIGKILL)
    caller.wait()
    caller.stdout.close()
    until = time.monotonic() + PATIENT_SECONDS
    while not all(map(gone, pids)) and time.monotonic() < until:
        time.sleep(0.01)
    assert [pid for pid in pids if not gone(pid)] == []
