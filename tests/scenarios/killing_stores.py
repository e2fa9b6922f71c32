"""Stores that take along the process that loads a crashed disk."""

from __future__ import annotations

import os
import signal
import time

from tests.zoo.careful import CarefulStore
from tests.zoo.plain import factory


class _Strange(CarefulStore):
    def load(self, session_id: str):
        self.strange()
        return super().load(session_id)

    def strange(self) -> None:
        raise NotImplementedError


class kills_itself_over_a_crash(_Strange):
    """Each load ends the process as a crash in C would."""

    def strange(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


class hangs_over_a_crash(_Strange):
    """No load comes back."""

    def strange(self) -> None:
        time.sleep(600)


kills_itself_over_a_crash = factory(kills_itself_over_a_crash, durability="power")  # type: ignore[assignment, misc]
hangs_over_a_crash = factory(hangs_over_a_crash, durability="power")  # type: ignore[assignment, misc]
