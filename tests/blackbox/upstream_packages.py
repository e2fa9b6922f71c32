"""The published packages for tests: installed when first asked for, or the test is skipped.

Where `TORNTAIL_TEST_PACKAGES` is `required`, as in the project's own checks, it fails instead;
where it is `never`, nothing is installed.
"""

from __future__ import annotations

import os
from functools import cache

import pytest

from torntail.drive.dsh import DSH, NotInstalled, driver_command, install
from torntail.drive.target import Target, target_of


@cache
def _missing(base: str) -> str | None:
    try:
        install(DSH[base])
        driver_command(base)
    except NotInstalled as error:
        return str(error)
    return None


def package(name: str) -> Target:
    """The target of a published package, such as `dsh-jsonl:zstd`."""
    wanted = os.environ.get("TORNTAIL_TEST_PACKAGES", "")
    if wanted == "never":
        pytest.skip("TORNTAIL_TEST_PACKAGES is never")
    missing = _missing(name.partition(":")[0])
    if missing is not None:
        if wanted == "required":
            pytest.fail(missing)
        pytest.skip(missing)
    return target_of(name)
