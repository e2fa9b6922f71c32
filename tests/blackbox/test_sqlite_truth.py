"""What is known of SQLite shows: which settings lose what at a power loss, and that a kill loses
nothing. If the judge said otherwise of them, it could not be trusted with a store nobody knows.

https://www.sqlite.org/pragma.html#pragma_synchronous and https://www.sqlite.org/wal.html
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import pytest

from tests.blackbox.support import needs_tracing
from torntail import certify
from torntail.crash.disk import Model
from torntail.drive.target import TargetError, target_of
from torntail.explore.crash_run import CrashRun, Limits, Violation
from torntail.explore.plans import crash_plan
from torntail.explore.traced_calls import TracedRecords
from torntail.record.scratch import Scratch
from torntail.record.slots import Slot

SETTINGS = [f"{mode},{level}" for mode in ("wal", "delete") for level in ("off", "normal", "full")]
SETTINGS += ["wal,extra", "delete,extra"]

POWER: tuple[Model, ...] = ("ordered", "posix")


@cache
def found(settings: str, plan: str, models: Sequence[Model], images: int) -> list[Violation]:
    target = target_of(f"sqlite:{settings}")
    violations: list[Violation] = []
    with Scratch() as scratch, Slot(scratch) as slot:
        run = CrashRun(
            target,
            slot,
            models,
            limits=Limits(images=images, nested_images=20),
            found=violations.append,
        )
        assert isinstance(run.calls, TracedRecords)
        try:
            run.run(crash_plan(0, target.capabilities, plan))
        finally:
            run.calls.close()
    assert run.counts.distinct > images // 2
    return violations


def broken(violations: list[Violation]) -> set[str]:
    return {violation.breach.clause for violation in violations}


def is_damage(violation: Violation) -> bool:
    """Whether the database itself does not open."""
    sentence = violation.breach.sentence
    return "malformed" in sentence or "not a database" in sentence


@needs_tracing
@pytest.mark.parametrize("settings", SETTINGS)
def test_a_kill_loses_nothing(settings):
    assert found(settings, "turn-by-turn", ("kill",), 300) == []


@needs_tracing
@pytest.mark.parametrize(
    ("settings", "plan"),
    [
        ("wal,full", "first-turn"),
        ("wal,full", "two-turns-in-one-batch"),
        ("wal,extra", "first-turn"),
        ("delete,extra", "first-turn"),
    ],
)
def test_what_is_careful_enough_loses_nothing_when_power_fails(settings, plan):
    assert found(settings, plan, POWER, 800) == []


@needs_tracing
def test_delete_full_loses_the_last_commit_when_the_name_of_the_journal_comes_back():
    violations = found("delete,full", "first-turn", POWER, 800)
    assert broken(violations) == {"CR-1"}
    assert not any(map(is_damage, violations))
    assert all("sessions.db-journal" in one.image.files for one in violations)


@needs_tracing
def test_wal_normal_loses_commits_and_never_the_database():
    violations = found("wal,normal", "first-turn", POWER, 800)
    assert broken(violations) == {"CR-1"}
    assert not any(map(is_damage, violations))


@needs_tracing
@pytest.mark.parametrize("mode", ["wal", "delete"])
def test_off_may_destroy_the_database(mode):
    violations = found(f"{mode},off", "first-turn", POWER, 200)
    assert any(map(is_damage, violations))
    assert "CR-1" in broken(violations)


@needs_tracing
def test_delete_normal_is_found_out():
    # Whether its database is destroyed, too, depends on the disks that are tried.
    assert "CR-1" in broken(found("delete,normal", "first-turn", POWER, 800))


@needs_tracing
def test_certify_records_sqlite_from_outside():
    certificate = certify(
        "sqlite:delete,full", level="power", only=["CR-1"], images=2_000, workers=1, runs=None
    )
    states = {result.clause: result.state for result in certificate.results}
    assert states["CR-1"] == "fail"
    assert certificate.harness_errors == ()
    assert "sqlite:delete,full" in certificate.findings[0].command


@pytest.mark.parametrize(
    ("settings", "durability"),
    [("wal", "power"), ("full", "power"), ("extra,delete", "power"), ("delete,full", "process")],
)
def test_settings_claim_what_they_keep(settings, durability):
    assert target_of(f"sqlite:{settings}").capabilities.durability == durability


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("sqlite:fast", "'fast' is no setting of sqlite"),
        ("sqlite:wal,delete", "'delete' is no setting of sqlite"),
        ("sqlite:,", "'' is no setting of sqlite"),
    ],
)
def test_what_is_no_setting_is_refused(name, told):
    with pytest.raises(TargetError, match=told):
        target_of(name)


def test_a_claim_that_the_settings_cannot_keep_is_refused():
    with pytest.raises(TargetError, match="can lose an acknowledged event at a power loss"):
        target_of("sqlite:delete,full", durability="power")
