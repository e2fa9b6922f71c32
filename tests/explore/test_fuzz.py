"""Fuzzing finds what is planted, the same again from the same seed, and survives what stores do."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from torntail.explore import fuzz as fuzz_module
from torntail.explore import fuzz_share as fuzz_share_module
from torntail.explore.fuzz import fuzz
from torntail.explore.fuzz_crew import FuzzWorker
from torntail.explore.fuzz_finding import sentence_cause
from torntail.explore.fuzz_messages import FuzzMessage, FuzzReport, FuzzShare, to_line
from torntail.explore.fuzz_result import FuzzResult
from torntail.explore.fuzz_seed import BadSeed, seed_of
from torntail.explore.fuzz_share import round_seed
from torntail.record.scratch import Scratch

ZOO = "tests.zoo.crashing"


def facts(result: FuzzResult) -> dict[str, Any]:
    """All that a run came to, but for times and places."""
    record = result.to_json()
    for varying in ("seconds", "drawing_share"):
        del record[varying]
    return record


def fuzzed(target: str, seed: int = 1, examples: int = 6, **options: Any) -> FuzzResult:
    options = {"workers": 0, "images": 60, **options}
    return fuzz(target, seed=seed, max_examples=examples, **options)


# --- what is found --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "clauses"),
    [
        ("no_fsync", {"CR-1", "CR-3"}),
        ("no_closers", {"CR-2", "CR-10"}),
        ("claims_whole_batches", {"CR-8"}),
        ("first_flush_under_its_own_name", {"CR-10"}),
    ],
)
def test_a_planted_fault_is_found_and_made_small(name: str, clauses: set[str]) -> None:
    result = fuzzed(f"{ZOO}:{name}", examples=25, stop_at_first=True)
    finding = result.findings[0].finding
    assert finding.clause in clauses
    assert (finding.kind, finding.small, len(finding.operations) <= 4) == ("crash", True, True)
    assert finding.cause == sentence_cause(finding.clause, finding.sentence)
    assert finding.crash is not None
    assert finding.crash.calls == finding.operations
    assert result.exit_code == 1
    assert result.unknown is None


@pytest.mark.parametrize(
    ("target", "kind", "clause"),
    [
        ("tests.zoo.reading:drops_chunks", "call", "RW-1"),
        ("tests.zoo.damage:a_wrong_seq_is_taken_as_it_is", "damage", "DM-3"),
    ],
)
def test_what_takes_no_crash_is_found_as_well(target: str, kind: str, clause: str) -> None:
    result = fuzzed(target, examples=75, level="none", stop_at_first=True)
    finding = result.findings[0].finding
    assert (finding.kind, finding.clause, finding.crash) == (kind, clause, None)
    assert len(finding.operations) <= 12
    assert tuple(one.operation for one in finding.history) == finding.operations


def test_equal_neighbours_are_drawn() -> None:
    target = "tests.zoo.subtle:drops_what_it_has_just_read"
    result = fuzz(target, seed=1, max_examples=25, workers=0, level="none", stop_at_first=True)
    assert [kept.finding.clause for kept in result.findings] == ["RW-1"]


def test_an_error_of_the_disk_that_is_swallowed_is_found() -> None:
    target = "tests.zoo.io_errors:swallows_a_write_error"
    result = fuzzed(target, examples=25, stop_at_first=True)
    finding = result.findings[0].finding
    assert (finding.kind, finding.clause.partition("-")[0]) == ("disk", "IO")
    assert finding.fault is not None
    assert finding.fault.during == len(finding.operations) - 1 <= 4


def test_a_store_is_not_accused_of_scratch_space_that_is_full(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fuzz_share_module, "lacks_room", lambda path, text: True)
    result = fuzzed("tests.zoo.reading:drops_chunks", examples=30, level="none")
    assert result.findings == []
    assert result.exit_code == 3
    assert any("TORNTAIL_SCRATCH" in error for error in result.total.harness_errors)


def test_a_store_that_keeps_its_promises_is_not_accused() -> None:
    result = fuzzed("jsonl", examples=6)
    assert (result.findings, result.unknown, result.exit_code) == ([], None, 0)
    assert result.total.plans == 6
    assert result.total.distinct >= 200
    assert {"a crash after an acknowledgement", "a load", "append"} <= set(result.reached())


def test_a_store_without_durability_is_driven_and_not_crashed() -> None:
    result = fuzzed("memory")
    assert (result.findings, result.total.distinct, result.exit_code) == ([], 0, 0)
    assert result.not_reached() == {}


def test_the_first_finding_ends_the_run_if_that_was_asked_for() -> None:
    result = fuzzed(f"{ZOO}:no_closers", examples=500, stop_at_first=True)
    assert [kept.finding.small for kept in result.findings] == [True]
    assert result.total.plans < 100


# --- what a run can prove -------------------------------------------------------------------------


def test_workers_end_before_their_scratch_space_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[str] = []

    class Noted(Scratch):
        def close(self) -> None:
            ended.append("scratch")
            super().close()

    class Worker(FuzzWorker):
        def close(self) -> None:
            super().close()
            ended.append("worker")

    monkeypatch.setattr(fuzz_module, "Scratch", Noted)
    monkeypatch.setattr(fuzz_module, "FuzzWorker", Worker)
    fuzzed(f"{ZOO}:no_fsync", examples=400, stop_at_first=True, workers=1)
    assert ended == ["worker", "scratch"]


def test_what_takes_two_crashes_is_found_in_the_midst_of_a_call_and_made_small() -> None:
    # Only a kill between the name and its fsync, and then a power loss, shows it.
    target = f"{ZOO}:does_not_settle_what_it_found"
    result = fuzzed(target, seed=1, examples=25, images=200, stop_at_first=True)
    finding = result.findings[0].finding
    assert finding.crash is not None
    assert [crash.model for crash in finding.crash.chain][:1] == ["kill"]
    assert (len(finding.crash.chain), len(finding.operations) <= 12) == (2, True)


def test_a_store_whose_writes_are_not_seen_leaves_crashes_unknown() -> None:
    result = fuzzed("sqlite", examples=2)
    assert result.findings == []
    assert "not seen from inside Python" in (result.unknown or "")
    assert result.exit_code == 3


def test_a_store_that_cannot_do_the_least_is_a_broken_baseline() -> None:
    result = fuzzed("tests.zoo.strangers:Silent", examples=2)
    assert result.baseline_error is not None
    assert (result.total.plans, result.exit_code) == (0, 4)


def test_a_time_that_is_too_short_for_any_plan_proves_nothing() -> None:
    result = fuzz("jsonl", seed=1, max_time_seconds=1e-9, workers=0)
    assert (result.total.plans, result.unknown, result.exit_code) == (0, "no plan was tried", 3)


# --- the same again, and not the same -------------------------------------------------------------


def test_the_same_seed_and_count_give_the_same_plans_and_findings() -> None:
    target = f"{ZOO}:closers_written_twice"
    first, second = (fuzzed(target, examples=3, workers=1, images=30) for _ in range(2))
    assert facts(first) == facts(second)
    assert len(first.findings) >= 2


def test_workers_share_the_plans_of_one_process() -> None:
    one, two = (
        fuzzed("jsonl", examples=30, workers=workers, images=1, level="process")
        for workers in (1, 2)
    )
    assert one.total.plans == two.total.plans == 30
    assert facts(one) == facts(two)


def test_in_ci_two_seeds_draw_different_plans(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", "true")
    plans = {}
    for name, seed in (("one", 1), ("two", 2), ("one again", 1)):
        fuzzed("jsonl", seed=seed, workers=1, images=1, corpus=tmp_path / name)
        files = (tmp_path / name).rglob("*.json")
        plans[name] = {path.name: path.read_bytes() for path in files}
    assert plans["one"] == plans["one again"] != {}
    assert plans["one"] != plans["two"]


def test_shards_draw_different_plans_from_one_seed() -> None:
    shares = [FuzzShare(seed=7, models=(), images=1, shard=shard, shards=3) for shard in (1, 2, 3)]
    seeds = {round_seed(share, number) for share in shares for number in range(50)}
    assert len(seeds) == 150
    first, second = (fuzzed("memory", shard=(shard, 2)).total.calls for shard in (1, 2))
    assert first != second


def test_a_seed_is_an_integer_or_a_commit_hash() -> None:
    assert seed_of("0") == 0
    assert seed_of("1234567") == 1_234_567
    commit = "9fceb02d0ae598e95dc970b74767f19372d61af8"
    assert seed_of(commit) == seed_of(commit.upper())
    assert seed_of(commit) != seed_of(commit[:-1])
    for wrong in ("", "-1", "abc", "nonsense", "1.5", "12 ", "f" * 65, "1" * 21 + "g"):
        with pytest.raises(BadSeed):
            seed_of(wrong)


# --- stores that take their process along ---------------------------------------------------------


def test_a_store_that_ends_its_process_is_a_finding_and_another_worker_goes_on() -> None:
    result = fuzzed("tests.zoo.hostile:ends_the_process", workers=1, examples=60)
    (kept,) = result.findings
    assert (kept.finding.kind, kept.finding.clause) == ("lost", "CR-3")
    assert kept.finding.sentence.startswith("the store's process was ended with exit code 0")
    assert kept.finding.operations != ()
    assert result.losses >= 2
    assert (result.errors, result.exit_code) == ([], 1)


def test_a_beat_behind_the_last_report_does_not_make_a_worker_a_lost_one() -> None:
    reading, writing = os.pipe()
    worker = FuzzWorker.__new__(FuzzWorker)
    worker.output, worker.buffer, worker.moved = os.fdopen(reading, "rb"), b"", -1
    worker.report, worker.error = FuzzReport(), None
    with worker.output, os.fdopen(writing, "wb") as told:
        for report in (FuzzReport(plans=2, done=True), FuzzReport(plans=1)):
            told.write(to_line(FuzzMessage(report=report)) + b"\n")
        told.flush()
        worker.messages()
    assert (worker.report.plans, worker.report.done) == (2, True)


def test_a_store_that_hangs_is_a_finding() -> None:
    result = fuzzed("tests.zoo.hostile:hangs", workers=1, hang_seconds=3, stop_at_first=True)
    assert [kept.finding.kind for kept in result.findings] == ["lost"]
    assert "a call had not returned after 3 s" in result.findings[0].finding.sentence
