"""LV-1 to LV-5: torntail's own layer keeps them, and each case has a layer that breaks it."""

from __future__ import annotations

import functools

import pytest

from tests.runtime.reference_layer import ReferenceLayer
from tests.zoo.live import LIVE_ZOO, DrainsAtFlushOnly, Layer, WaitsAtTurnEnd
from torntail import live_suite
from torntail.explore import live
from torntail.explore.cases_lv import LIVE_CASES
from torntail.judge.clauses import clauses_in_group

TestReferenceLayer = live_suite(ReferenceLayer())


@functools.cache
def findings(name: str) -> dict[str, str]:
    """The cases that catch a layer, each with its clause; what else they raise is let through."""
    found = {}
    layer = next(broken for broken in LIVE_ZOO if broken.__name__ == name)()
    for case in LIVE_CASES:
        try:
            case.run(layer)
        except live.LiveFinding as finding:
            found[case.name] = finding.clause
        except Exception:
            # A broken layer may make a case of another clause stumble; only a finding accuses.
            continue
    return found


def hurry(broken: type[Layer], patched: pytest.MonkeyPatch) -> None:
    """What hangs in these does so for good: there is no need to wait for long."""
    if broken in (WaitsAtTurnEnd, DrainsAtFlushOnly):
        patched.setattr(live, "WATCHDOG_SECONDS", 0.3)


@pytest.mark.parametrize(
    ("broken", "clause"), LIVE_ZOO.items(), ids=[one.__name__ for one in LIVE_ZOO]
)
def test_a_broken_layer_is_caught_by_its_clause_alone(
    broken: type[Layer], clause: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hurry(broken, monkeypatch)
    found = findings(broken.__name__)
    assert set(found.values()) == {clause}, found


def test_every_clause_has_a_case_and_a_layer_that_breaks_it() -> None:
    clauses = {clause.id for clause in clauses_in_group("LV")}
    assert {case.clause for case in LIVE_CASES} == clauses
    assert set(LIVE_ZOO.values()) == clauses


def test_every_case_catches_a_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    catching: set[str] = set()
    for broken in LIVE_ZOO:
        with monkeypatch.context() as patched:
            hurry(broken, patched)
            catching.update(findings(broken.__name__))
    assert {case.name for case in LIVE_CASES} - catching == set()


def test_no_two_cases_have_one_name() -> None:
    assert len({case.name for case in LIVE_CASES}) == len(LIVE_CASES)
