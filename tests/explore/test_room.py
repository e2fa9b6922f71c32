"""Where cases are run, and that a full disk is no fault of the store's."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.zoo.plain import PlainStore, factory
from torntail import certify
from torntail.explore import campaign
from torntail.session import SessionEvent


def test_a_small_memory_file_system_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "memory").mkdir()
    monkeypatch.setattr(campaign, "_MEMORY", tmp_path / "memory")
    for free, chosen in ((64 << 20, False), (8 << 30, True)):
        usage = SimpleNamespace(free=free)
        monkeypatch.setattr(shutil, "disk_usage", lambda path, usage=usage: usage)
        with campaign._scratch() as scratch:
            assert (scratch.parent == tmp_path / "memory") is chosen


@factory
class meets_a_full_disk(PlainStore):
    def append(self, session_id: str, events: Iterable[SessionEvent]) -> None:
        batch = list(events)
        if len(batch) == 7:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super().append(session_id, batch)


def test_a_full_disk_leaves_a_case_unknown() -> None:
    certificate = certify(meets_a_full_disk, only=["RW-1"], runs=None)
    assert (certificate.verdict, certificate.findings) == ("unknown", ())
    assert "no room left" in certificate.harness_errors[0]
