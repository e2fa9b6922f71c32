"""Syncs are seen wherever the function is kept, and what keeps it otherwise is named."""

from __future__ import annotations

import os
from typing import Any

import pytest

from torntail.crash.oplog import ROOT, SyncDirectory
from torntail.record.inprocess import Recorder
from torntail.record.install import hidden_syncs, install, uninstall
from torntail.record.real import Real


class _Holder:
    kept: Any = None


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_a_sync_in_boxes_within_each_other_is_seen_and_put_back(depth, tmp_path):
    uninstall()  # What another module of tests has put in place looks for nothing again.
    box: Any = Real.fsync
    for _ in range(depth):
        box = (box,)
    _Holder.kept = box
    descriptor = os.open(tmp_path, os.O_RDONLY)
    with Recorder(tmp_path) as recorder:
        sync = _Holder.kept
        for _ in range(depth):
            (sync,) = sync
        sync(descriptor)
    os.close(descriptor)
    assert recorder.operations == [SyncDirectory(ROOT)]
    assert _Holder.kept is box
    _Holder.kept = None


def test_what_cannot_be_exchanged_is_named():
    uninstall()
    _Holder.kept = frozenset([Real.fsync])
    install()
    assert hidden_syncs() == ("builtins.frozenset",)
    uninstall()
    _Holder.kept = None
    install()
    assert hidden_syncs() == ()
