"""No wrapper outlives a test of this folder; in use they stay for the life of the process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from torntail.record.install import uninstall


@pytest.fixture(autouse=True)
def _wrappers_go() -> Iterator[None]:
    yield
    uninstall()
