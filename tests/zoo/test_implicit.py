"""A right store without `create` is accused of nothing, and can pass."""

from __future__ import annotations

import pytest

from torntail import certify
from torntail.judge.clauses import clauses_in_group

# The values, with their line of 64 MiB, are the same for every store of files.
WITHOUT_VALUES = [
    *(clause.id for clause in clauses_in_group("RW") if clause.id != "RW-12"),
    *("CL", "DM", "CR"),
]


@pytest.mark.parametrize("name", ["implicit", "implicit_eager", "implicit_unlisted"])
def test_a_store_that_creates_implicitly_is_not_accused(name: str) -> None:
    target = f"tests.zoo.implicit:{name}"
    certificate = certify(target, only=WITHOUT_VALUES, images=1000, workers=0, runs=None)
    assert certificate.findings == ()
    assert certificate.verdict == "pass"
    moot = {one.clause for one in certificate.results if one.state == "not applicable"}
    unlisted = {"RW-9"} if name.endswith("unlisted") else set()
    assert moot == {"RW-6", "RW-7", "RW-14", "RW-15", "DM-6", "CR-8"} | unlisted
