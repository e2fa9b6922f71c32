"""A store that takes its process along is told with the disk over which it did."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from torntail import certify
from torntail.crash.crashes import Crash
from torntail.crash.disk import Model
from torntail.drive.target import Target, target_of
from torntail.explore.crash_campaign import CrashResult, WorkerLoss, crash_campaign
from torntail.explore.crash_loss import CallCounter, FatalCall, ProcessLost, counted, read_count
from torntail.session import SessionHeader

KILL: tuple[Model, ...] = ("kill",)


def crashed(target: str, **options) -> CrashResult:
    return crash_campaign(
        target_of(target), KILL, seed=0, images=150, plan="turn-by-turn", workers=1, **options
    )


def test_the_disk_over_which_a_process_ended_is_a_finding() -> None:
    result = crashed("tests.zoo.hostile:ends_the_process")
    reason = "the store's process was ended with exit code 0"
    assert result.losses == [WorkerLoss("turn-by-turn", reason)]
    (finding,) = (one for one in result.findings if reason in one.sentence)
    assert (finding.clause, finding.cause) == ("CR-3", f"CR-3 {reason}")
    assert finding.sentence == f"the load after a further append was not answered: {reason}"
    assert finding.plan == "turn-by-turn"
    # A store that strikes alike and lives raises at the same disk, after the same calls.
    alike = crashed("tests.zoo.hostile:raises_oddly", sought=["CR-10"]).findings[0]
    assert len(finding.calls) == len(alike.calls) == 1
    assert finding.chain == alike.chain == (Crash("kill", 2),)
    assert (finding.files, finding.directories) == (alike.files, alike.directories)


def test_a_call_that_hangs_names_its_disk() -> None:
    result = crashed("tests.zoo.hostile:hangs", hang_seconds=3)
    reason = "a call had not returned after 3 s"
    assert result.losses == [WorkerLoss("turn-by-turn", reason)]
    assert [(one.clause, one.sentence, one.chain) for one in result.findings] == [
        (
            "CR-3",
            f"the load after a further append was not answered: {reason}",
            (Crash("kill", 2),),
        )
    ]


def test_what_was_lost_is_told_once_and_kept_with_its_disk(tmp_path: Path) -> None:
    certificate = certify(
        "tests.zoo.hostile:ends_the_process",
        level="process",
        only=["CR"],
        plan="turn-by-turn",
        workers=1,
        runs=tmp_path,
    )
    assert [finding.clause for finding in certificate.findings] == ["CR-3"]
    finding = certificate.findings[0]
    assert finding.command.endswith("--plan turn-by-turn --only CR-3")
    assert (Path(finding.witness or "") / "disk").is_dir()


def test_a_search_that_was_cut_short_proves_nothing_of_other_clauses() -> None:
    certificate = certify(
        "tests.zoo.hostile:ends_the_process",
        level="process",
        only=["CR-1"],
        plan="turn-by-turn",
        workers=1,
        runs=None,
    )
    assert certificate.verdict == "unknown"
    assert certificate.harness_errors == (
        "crashing: the search ended in plan turn-by-turn: the store's process was ended with exit "
        "code 0",
    )


# --- counting -------------------------------------------------------------------------------------


def test_calls_are_counted_before_they_are_made(tmp_path: Path) -> None:
    counts = str(tmp_path / "counts")
    count = CallCounter(counts)
    store = counted(target_of("tests.zoo.careful:careful"), count).factory(tmp_path / "root")
    assert read_count(counts) == 1
    store.create(SessionHeader("a", 0))
    with pytest.raises(Exception, match="'b'"):
        store.load("b")
    store.close()
    assert (count.number, read_count(counts)) == (3, 3)
    assert read_count(str(tmp_path / "none")) == 0


def test_from_the_fatal_call_on_none_is_made(tmp_path: Path) -> None:
    made: list[Path] = []

    def factory(root: Path) -> None:
        made.append(root)

    target = Target("x", factory, target_of("memory").capabilities)
    open_counted = counted(target, CallCounter(None, FatalCall(number=2, reason="gone"))).factory
    open_counted(tmp_path)
    for _ in range(2):
        with pytest.raises(ProcessLost, match="gone"):
            open_counted(tmp_path)
    assert made == [tmp_path]
    assert os.listdir(tmp_path) == []
