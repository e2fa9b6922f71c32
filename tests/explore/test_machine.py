"""The state machine as a user runs it: quiet over a careful store, and loud over a broken one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from torntail.drive.target import Durability
from torntail.explore.fuzz_trial import Reach, Trial
from torntail.explore.machine import KINDS, STEPS, SessionMachine, StoreViolation, session_machine


def few(machine: type[SessionMachine], examples: int = 6) -> settings:
    return settings(
        machine.TestCase.settings,
        phases=[Phase.generate],
        max_examples=examples,
        derandomize=False,
        database=None,
    )


def driven(target: str, number: int = 1, **options: Any) -> type[SessionMachine]:
    machine = session_machine(target, images=30, **options)
    run_state_machine_as_test(seed(number)(machine), settings=few(machine))
    return machine


@pytest.mark.parametrize("target", ["jsonl", "memory", "tests.zoo.careful:careful"])
def test_a_careful_store_breaks_nothing(target: str) -> None:
    machine = driven(target)
    counts = machine.bench().counts
    assert counts.plans == 6
    assert (counts.distinct > 0) == (target != "memory")


@pytest.mark.parametrize(
    ("target", "durability", "clause"),
    [
        ("tests.zoo.crashing:no_fsync", "power", "(CR|IO)-"),
        ("tests.zoo.reading:drops_chunks", "none", "(RW-1|DM-8)"),
    ],
)
def test_a_broken_store_fails_the_test_with_its_clause(
    target: str, durability: Durability, clause: str
) -> None:
    with pytest.raises(StoreViolation, match=f"^{clause}.* violated: ") as raised:
        driven(target, durability=durability)
    assert "\n  1. create " in str(raised.value)


def test_every_plan_is_lawful() -> None:
    machine = session_machine("memory")
    machine.bench().checks_plans = True
    run_state_machine_as_test(seed(3)(machine), settings=few(machine, 60))
    assert machine.bench().counts.plans == 60


def test_a_test_case_has_settings_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = session_machine("memory").TestCase.settings
    assert (chosen.deadline, chosen.stateful_step_count) == (None, STEPS)
    assert len(chosen.suppress_health_check) > 3


def test_plans_have_calls_of_every_kind() -> None:
    ran: set[str] = set()

    def reached(trial: Trial, reach: Reach) -> None:
        ran.update(type(one).__name__ for one in trial.plan)
        ran.update(f"store {one.store}" for one in trial.plan)
        ran.update(["damage"] if trial.damage else [])

    machine = session_machine("jsonl", durability="process", images=1)
    machine.reached = staticmethod(reached)
    run_state_machine_as_test(seed(1)(machine), settings=few(machine, 30))
    calls = {"Create", "Append", "Load", "Reopen", "Inspect", "ListSessions"}
    assert calls | {"store 0", "store 1", "damage"} <= ran


def test_some_kinds_are_off_in_each_run() -> None:
    off: list[frozenset[str]] = []

    class Watched(session_machine("memory")):  # type: ignore[misc]
        def teardown(self) -> None:
            off.append(self.off)
            super().teardown()

    run_state_machine_as_test(seed(1)(Watched), settings=few(Watched, 150))
    assert len(set(off)) > 10
    assert set().union(*off) == set(KINDS)
    assert max(map(len, off)) <= len(KINDS) // 2
