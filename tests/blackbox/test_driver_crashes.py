"""A store behind a driver is crashed as the same store in Python is."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

import pytest

from tests.blackbox.support import DRIVERS, example_in_c, needs, needs_tracing
from torntail.crash.disk import EMPTY_IMAGE, MODELS, Model
from torntail.drive.child_store import Driver
from torntail.drive.target import Target, target_of
from torntail.explore.crash_calls import CrashCalls
from torntail.explore.crash_run import Counts, CrashRun, Limits, Violation
from torntail.explore.plans import crash_plans
from torntail.explore.traced_calls import TracedCalls
from torntail.explore.traced_driver import CannotTrace, WroteOutside
from torntail.judge.capabilities import Capabilities
from torntail.judge.history import Append, Create, Hung, Load, Refused
from torntail.record.scratch import Scratch
from torntail.record.slots import Slot
from torntail.session import SessionEvent, SessionHeader

pytestmark = needs_tracing

SECONDS = 120.0


def served(name: str) -> Target:
    return target_of(f"exec:{sys.executable} -m torntail.drive.serve {name}")


@contextmanager
def calls_on(target: Target, timeout: float = SECONDS) -> Iterator[CrashCalls]:
    with Scratch() as scratch, Slot(scratch) as slot:
        if target.driver is None:
            yield CrashCalls(target, slot)
            return
        calls = TracedCalls(target, slot, timeout=timeout)
        try:
            yield calls
        finally:
            calls.close()
            target.driver.close()


def crashed(
    target: Target, plans: int, limits: Limits, models: Sequence[Model] = MODELS
) -> tuple[Counts, list[Violation]]:
    found: list[Violation] = []
    with calls_on(target) as calls:
        run = CrashRun(target, calls.slot, models, limits=limits, found=found.append)
        run.calls = calls
        for plan in islice(crash_plans(0, target.capabilities), plans):
            run.run(plan)
    return run.counts, found


def test_the_recording_is_the_one_of_the_recorder_in_python():
    plan = next(islice(crash_plans(0, target_of("jsonl").capabilities), 1, None))
    recordings = []
    for target in (target_of("jsonl"), served("jsonl")):
        with calls_on(target) as calls:
            calls.hold(EMPTY_IMAGE)
            first = calls.record(plan.operations, None)
            # A second recording in the same process is none the worse for the first.
            calls.hold(EMPTY_IMAGE)
            recordings.append((first, calls.record(plan.operations, None)))
    (here, here_again), (there, there_again) = recordings
    assert there.history == here.history
    assert there.operations == here.operations
    assert there_again == here_again


def test_the_campaign_is_the_one_in_python():
    here, there = (
        crashed(target_of("jsonl"), 2, Limits(images=60)),
        crashed(served("jsonl"), 2, Limits(images=60)),
    )
    assert there == here
    assert here[0].distinct > 150
    assert here[1] == []


@pytest.mark.parametrize(
    ("animal", "clause"),
    [("one_fsync_for_a_whole_batch", "CR-3"), ("syncs_turn_ends_only", "CR-1")],
)
def test_a_broken_store_is_found_out_by_its_clause(animal, clause):
    counts, found = crashed(served(f"tests.zoo.crashing:{animal}"), 3, Limits(images=300))
    assert clause in {violation.breach.clause for violation in found}
    assert counts.plans == 3


def test_a_driver_that_dies_over_a_disk_is_a_finding_for_that_disk():
    # Each of its deaths takes the start of another process.
    few = Limits(images=24, nested_images=4)
    counts, found = crashed(served("tests.zoo.hostile:ends_the_process"), 1, few, ("kill",))
    assert {violation.breach.clause for violation in found} == {"CR-10"}
    told = [violation.breach.sentence for violation in found]
    assert any("exit code 0" in sentence for sentence in told)
    # The others were loaded all the same.
    assert counts.distinct > 10


def test_a_driver_that_dies_over_a_session_says_what_it_has_of_the_next():
    header = SessionHeader("s", 1, cwd="/work")
    start = SessionEvent("turn/start", 0, 1, {"turn": 1})
    with calls_on(served("tests.zoo.hostile:ends_the_process")) as calls:
        calls.hold(EMPTY_IMAGE)
        calls.record([Create(header=header), Append(session="s", events=(start,))], None)
        answers = calls.load_all(["s", "t"])
        assert [getattr(answer, "kind", "") for answer in answers.values()] == ["exit", "not_found"]


def test_a_driver_that_hangs_over_a_disk_hangs_for_that_disk():
    target = served("tests.zoo.hostile:hangs")
    header = SessionHeader("s", 1, cwd="/work")
    start = SessionEvent("turn/start", 0, 1, {"turn": 1})
    with calls_on(target) as calls:
        assert isinstance(calls, TracedCalls)
        calls.hold(EMPTY_IMAGE)
        calls.record([Create(header=header), Append(session="s", events=(start,))], None)
        calls.timeout = 0.5
        assert calls.load_all(["s"]) == {"s": Hung(0.5)}
        calls.timeout = SECONDS
        # The next disk has a new process.
        calls.hold(EMPTY_IMAGE)
        answer = calls.load_all(["s"])["s"]
        assert isinstance(answer, Refused)
        assert answer.kind == "not_found"


def test_a_driver_that_dies_while_it_is_recorded_leaves_a_log_up_to_there():
    hostile = Path(__file__).with_name("hostile_drivers.py")
    driver = Driver([sys.executable, "-I", "-S", str(hostile), "exit_in_the_middle"])
    claims = Capabilities(profile="log", creates="implicit", header=False)
    target = Target("hostile", target_of("memory").factory, claims, driver)
    with calls_on(target) as calls:
        for _ in range(2):
            calls.hold(EMPTY_IMAGE)
            recording = calls.record([Load(session="s"), Load(session="s")], None)
            kinds = [getattr(one.outcome, "kind", "") for one in recording.history]
            assert kinds == ["exit", "exit"]
            marks = [type(one).__name__ for one in recording.operations]
            assert marks == ["Invoked", "Acknowledged", "Invoked", "Acknowledged"]


def test_what_cannot_be_traced_says_why():
    driver = Driver(["/nowhere/driver"])
    target = Target("none", target_of("memory").factory, Capabilities(), driver)
    with calls_on(target) as calls, pytest.raises(CannotTrace, match="cannot be run"):
        calls.record([Load(session="s")], None)


def test_a_driver_that_writes_outside_its_root_is_told_so_with_the_file(tmp_path):
    hostile = Path(__file__).with_name("hostile_drivers.py")
    outside = tmp_path / "outside"
    command = [sys.executable, "-I", "-S", str(hostile), "writes_outside"]
    driver = Driver(command, environment={**os.environ, "OUTSIDE": str(outside)})
    claims = Capabilities(profile="log", creates="implicit", header=False)
    target = Target("hostile", target_of("memory").factory, claims, driver)
    call = Append(session="s", events=(SessionEvent("note", 0, 1, {}),))
    with calls_on(target) as calls:
        # A file that is made, and one that is there.
        for _ in range(2):
            calls.hold(EMPTY_IMAGE)
            with pytest.raises(WroteOutside) as raised:
                calls.record([call], None)
            assert raised.value.path == str(outside)
        # Only what was done in this recording counts.
        calls.hold(EMPTY_IMAGE)
        assert len(calls.record([Load(session="s")], None).history) == 1


@needs("node")
def test_the_node_driver_survives():
    target = target_of(f"exec:node {DRIVERS / 'node' / 'example.mjs'}")
    counts, found = crashed(target, 3, Limits(images=150))
    assert found == []
    assert counts.distinct > 200


def test_the_c_driver_survives(tmp_path):
    target = target_of("exec:" + example_in_c(tmp_path))
    counts, found = crashed(target, 3, Limits(images=150))
    assert found == []
    assert counts.distinct > 200
