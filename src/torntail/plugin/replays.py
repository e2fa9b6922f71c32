"""Carrying out scenarios one after the other inside pytest.

Decides that what they share, a child process and a place in memory, lives from the first of some
scenarios in a row to the last, and that the wrappers of the recorder do not stand while other tests
run. Does not decide what a scenario comes to (`scenarios.replay`).
"""

from __future__ import annotations

import msgspec

from torntail.drive.onlooker import HarnessError
from torntail.plugin.options import Asked
from torntail.record.install import installed, uninstall
from torntail.record.scratch import ScratchFull
from torntail.scenarios.crash_replay import CrashLimits
from torntail.scenarios.format import Scenario
from torntail.scenarios.outcome import Replay
from torntail.scenarios.replay import Replayer, StoreChoice

__all__ = ["Replays"]


class Replays:
    """Runs scenarios as the options ask; to be closed between, and afterwards."""

    def __init__(self, options: Asked) -> None:
        level = options.level or options.settings.level
        images = options.images or options.settings.images
        self._choice = StoreChoice(options.store or options.settings.store, level=level)
        self._limits = CrashLimits() if images is None else CrashLimits(images=images)
        self._replayer: Replayer | None = None
        self._found_installed = False

    def store(self, scenario: Scenario) -> str:
        """The store a scenario is run on; raises `TargetError`."""
        return self._choice.of(scenario).name

    def replay(self, scenario: Scenario) -> Replay:
        """What a scenario comes to, with its story where that is bad."""
        try:
            if self._replayer is None:
                self._found_installed = installed()
                self._replayer = Replayer(self._choice, limits=self._limits).__enter__()
            result = self._replayer.replay(scenario)
            if result.status != "failed":
                return result
            with Replayer(self._choice, limits=self._limits, explain=True) as again:
                told = again.replay(scenario)
        except (HarnessError, ScratchFull) as error:
            store = self._choice.of(scenario).name
            return Replay(scenario=scenario.id, store=store, status="unknown", reason=str(error))
        return msgspec.structs.replace(result, story=told.story)

    def close(self) -> None:
        """Ends the child process and takes the wrappers away; may be called again."""
        replayer, self._replayer = self._replayer, None
        if replayer is not None:
            replayer.__exit__(None, None, None)
            if not self._found_installed:
                uninstall()
