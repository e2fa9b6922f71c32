"""The disks that are held have files whose times could be those of a real crash, and what a load
may write besides logs is not held against it.
"""

from __future__ import annotations

import pytest

from torntail import certify


@pytest.mark.parametrize(
    "name",
    ["trusts_a_newer_size", "keeps_what_it_read", "touches_on_each_load", "locks_by_process"],
)
def test_a_store_that_goes_by_the_times_of_its_files_is_not_accused(name: str) -> None:
    target = f"tests.zoo.timely:{name}"
    certificate = certify(target, only=["CR"], images=1_500, workers=0, runs=None)
    assert certificate.findings == ()
    assert certificate.harness_errors == ()
    assert certificate.exit_code == 0


def test_a_store_that_writes_to_its_log_at_each_load_is() -> None:
    target = "tests.zoo.timely:rewrites_on_each_load"
    certificate = certify(target, only=["CR-4"], images=500, workers=0, runs=None)
    assert {result.state for result in certificate.results} == {"fail"}
    assert "the second load wrote to" in certificate.findings[0].sentence
    assert ".jsonl" in certificate.findings[0].sentence
