"""The published packages for tests: installed when first asked for, or the test is skipped.

Where `TORNTAIL_TEST_PACKAGES` is `required`, as in the project's own checks, it fails instead.
"""

from __future__ import annotations

import os
from functools import cache

import pytest

from torntail.drive.dsh import DSH, NotInstalled, driver_command, install
from torntail.drive.target import Target, target_of

needs_packages = pytest.mark.skipif(
    os.environ.get("TORNTAIL_TEST_PACKAGES") == "never", reason="TORNTAIL_TEST_PACKAGES is never"
)


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
    missing = _missing(name.partition(":")[0])
    if missing is not None:
        if os.environ.get("TORNTAIL_TEST_PACKAGES") == "required":
            pytest.fail(missing)
        pytest.skip(missing)
    return target_of(name)
