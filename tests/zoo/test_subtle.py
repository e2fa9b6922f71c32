"""Faults that a certificate once passed over, and stores that it once accused."""

from __future__ import annotations

import pytest

from tests.zoo import subtle
from torntail import certify


@pytest.mark.parametrize(("target", "clause"), subtle.ZOO.items(), ids=[*subtle.ZOO])
def test_a_subtle_fault_is_caught_by_its_clause(target: str, clause: str) -> None:
    certificate = certify(target, only=[clause], runs=None)
    assert [(one.clause, one.state) for one in certificate.results] == [(clause, "fail")]
    assert certificate.harness_errors == ()


@pytest.mark.parametrize("name", ["makes_its_root", "eager"])
def test_a_store_of_another_make_is_not_accused(name: str) -> None:
    certificate = certify(f"tests.zoo.subtle:{name}", only=["RW", "CL", "DM"], runs=None)
    assert certificate.findings == ()
    assert certificate.verdict == "pass"
