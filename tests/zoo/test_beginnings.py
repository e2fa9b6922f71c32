"""What shows only when another call comes first after a crash is found, and by its clause."""

from __future__ import annotations

import pytest

from tests.zoo import beginnings
from torntail import certify


@pytest.mark.parametrize(("target", "clause"), beginnings.ZOO.items(), ids=[*beginnings.ZOO])
def test_a_store_that_needs_a_load_of_all_first_is_caught(target: str, clause: str) -> None:
    certificate = certify(target, only=[clause], images=2_000, workers=0, runs=None)
    assert {result.clause: result.state for result in certificate.results} == {clause: "fail"}
    assert certificate.harness_errors == ()
