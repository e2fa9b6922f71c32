"""Stores that do to their process what no store should when the disk says no."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from tests.zoo.careful import CarefulStore, SyncFailed
from tests.zoo.plain import factory


class HangsOnAnError(CarefulStore):
    def undo_append(self, session_id: str, path: Path, error: OSError | SyncFailed) -> None:
        threading.Event().wait()


class EndsTheProcess(CarefulStore):
    def undo_append(self, session_id: str, path: Path, error: OSError | SyncFailed) -> None:
        os._exit(3)


hangs = factory(HangsOnAnError, durability="power")
ends_the_process = factory(EndsTheProcess, durability="power")
