"""The disks that are held have files whose times could be those of a real crash."""

from __future__ import annotations

import pytest

from torntail import certify


@pytest.mark.parametrize("name", ["trusts_a_newer_size", "keeps_what_it_read"])
def test_a_store_that_goes_by_the_times_of_its_files_is_not_accused(name: str) -> None:
    target = f"tests.zoo.timely:{name}"
    certificate = certify(target, only=["CR"], images=1_500, workers=0, runs=None)
    assert certificate.findings == ()
    assert certificate.harness_errors == ()
    assert certificate.exit_code == 0
