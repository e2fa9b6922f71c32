"""A store whose syncs are hard to see is not accused of losing data; one without syncs is."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import msgspec
import pytest

from tests.zoo import hiding
from torntail import certify
from torntail.judge.verdict import Certificate
from torntail.record import foreign

_ALONE = """
import sys
from torntail import certify
import json
certificate = certify(
    sys.argv[1], level="power", only=sys.argv[2:], plan="first-turn", workers=0, runs=None
)
print(json.dumps(certificate.to_json()))
"""


@pytest.fixture(autouse=True)
def forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a store has looked up through ctypes is held against every later store of a process."""
    monkeypatch.setattr(foreign, "_seen", [])


def crashed(target: str, *clauses: str, workers: int = 0) -> Certificate:
    only = list(clauses)
    return certify(target, level="power", only=only, images=600, workers=workers, runs=None)


def states(certificate: Certificate) -> dict[str, Any]:
    return {result.clause: result.state for result in certificate.results}


@pytest.mark.parametrize("target", hiding.HIDING)
def test_a_sync_is_seen_wherever_it_is_kept(target: str) -> None:
    certificate = crashed(target, "CR-1")
    assert certificate.findings == ()
    assert states(certificate) == {"CR-1": "pass"}
    assert certificate.notes == ()


def test_a_store_without_any_sync_is_found_and_the_doubt_is_told() -> None:
    certificate = crashed("tests.zoo.crashing:no_fsync", "CR-1")
    assert states(certificate) == {"CR-1": "fail"}
    assert any(note.startswith("not one sync of this store was seen") for note in certificate.notes)


def test_what_a_store_loses_that_never_syncs_is_shown_once() -> None:
    certificate = certify(
        "tests.zoo.crashing:no_fsync", level="power", only=["CR"], images=600, workers=1, runs=None
    )
    broken = {clause for clause, state in states(certificate).items() if state == "fail"}
    assert {"CR-1", "CR-3"} <= broken
    assert [finding.clause for finding in certificate.findings] == ["CR-1"]


def test_of_a_store_that_syncs_too_little_that_is_not_told() -> None:
    certificate = crashed("tests.zoo.crashing:no_fsync_on_append", "CR-1", workers=1)
    assert states(certificate) == {"CR-1": "fail"}
    assert certificate.notes == ("kills: no violation; the violations need a power loss",)


def test_violations_that_a_foreign_sync_may_explain_prove_nothing() -> None:
    certificate = crashed("tests.zoo.hiding:foreign", "CR-1", workers=1)
    assert certificate.findings == ()
    assert states(certificate) == {"CR-1": "unknown"}
    assert "it calls fsync through ctypes" in certificate.results[0].note
    assert certificate.exit_code == 3


def test_violations_that_no_sync_can_explain_stand() -> None:
    certificate = crashed("tests.zoo.hiding:foreign_and_forgetful", "CR-1", workers=1)
    assert states(certificate) == {"CR-1": "fail"}
    models = {model for one in certificate.findings for model in one.model.split(" then ")}
    assert models == {"kill"}


def test_a_foreign_sync_is_seen_in_this_process_too() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _ALONE, "tests.zoo.hiding:foreign", "CR-1"],
        capture_output=True,
        check=True,
    )
    record = msgspec.json.decode(done.stdout)
    assert (record["findings"], record["results"][0]["state"]) == ([], "unknown")
