"""I/O errors behind a driver: the same are made, and judged, as of a store in Python."""

from __future__ import annotations

import sys

import pytest

from tests.blackbox.support import DRIVERS, example_in_c, needs, needs_tracing
from torntail.drive.target import Target, target_of
from torntail.explore.crash_shard import Share, ShareReport
from torntail.explore.io_shard import IoFinding, io_share
from torntail.explore.traced_driver import TracedDriver
from torntail.record.scratch import Scratch
from torntail.record.slots import Slot

pytestmark = needs_tracing


def struck(target: Target, runs: int) -> tuple[ShareReport, list[IoFinding]]:
    assert target.driver is not None
    found: list[IoFinding] = []
    share = Share(models=(), seed=0, images=0, io_runs=runs, power=True)
    try:
        with Scratch() as scratch, Slot(scratch) as slot:
            report = io_share(
                target, share, slot=slot, found=found.append, tick=lambda report: None
            )
    finally:
        TracedDriver.of(target.driver).close()
        target.driver.close()
    assert report.unseen is None
    assert report.io_missed == 0
    return report, found


def served(name: str) -> Target:
    return target_of(f"exec:{sys.executable} -m torntail.drive.serve {name}")


def test_a_careful_store_keeps_every_clause():
    report, found = struck(served("jsonl"), 60)
    assert found == []
    assert set(report.executed) == {f"IO-{number}" for number in range(1, 7)}
    assert {"write", "sync", "sync-directory", "truncate"} <= set(report.io_struck)
    assert {
        "an append was struck",
        "an fsync failed",
        "a write came short",
        "space came back",
        "a repair could not be written",
    } <= set(report.situations)


@pytest.mark.parametrize(
    ("animal", "clause"),
    [
        ("swallows_a_write_error", "IO-1"),
        ("cuts_too_much", "IO-2"),
        ("goes_on_after_a_failed_fsync", "IO-3"),
        ("ignores_a_short_write", "IO-4"),
        ("cannot_load_what_it_cannot_repair", "IO-5"),
        ("appends_to_another_file", "IO-6"),
    ],
)
def test_each_clause_finds_the_store_that_breaks_it(animal, clause):
    _, found = struck(served(f"tests.zoo.io_errors:{animal}"), 60)
    assert clause in {finding.clause for finding in found}


@needs("node")
def test_the_node_driver_keeps_every_clause():
    report, found = struck(target_of(f"exec:node {DRIVERS / 'node' / 'example.mjs'}"), 100)
    assert found == []
    assert set(report.executed) == {f"IO-{number}" for number in range(1, 7)}


def test_the_c_driver_keeps_every_clause_that_concerns_it(tmp_path):
    binary = example_in_c(tmp_path)
    report, found = struck(target_of(f"exec:{binary}"), 100)
    assert found == []
    # It closes no turns, so that there is no repair to be written.
    assert set(report.executed) == {"IO-1", "IO-2", "IO-3", "IO-4", "IO-6"}
