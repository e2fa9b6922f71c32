"""A project with the plugin, for each test."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.plugin.support import Project, paths_of_children


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Project:
    monkeypatch.setenv("PYTHONPATH", paths_of_children(tmp_path))
    monkeypatch.setenv("COLUMNS", "100")
    for name in ("CI", "BUILD_NUMBER", "PYTEST_XDIST_WORKER"):
        monkeypatch.delenv(name, raising=False)
    return Project(pytester)
