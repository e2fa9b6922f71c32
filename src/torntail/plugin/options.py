"""What was asked for in one run of pytest: on the command line, in pyproject.toml, or nowhere.

Decides which of these goes first, and how a test is named in a command that runs it again. Imports
no store and no harness: it is used while pytest starts.
"""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

import pytest

from torntail.settings import Level, Settings

__all__ = ["DEFAULT_SCENARIOS", "SETTINGS", "Asked", "asked", "command_for", "words"]

DEFAULT_SCENARIOS: Final = "fault-scenarios"
SETTINGS: Final = pytest.StashKey[Settings]()


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Options of a run; None where nothing was said.

    `given` are those of the command line alone, `settings` those of the file.
    """

    store: str | None
    seed: int | None
    images: int | None
    level: Level | None
    settings: Settings

    @property
    def scenarios(self) -> str:
        """The folder of scenarios, relative to the root of the run."""
        return self.settings.scenarios or DEFAULT_SCENARIOS


def asked(config: pytest.Config) -> Asked:
    """What the command line says, beside what the file says."""
    # Without the plugin there are no such options, and nobody has read the file.
    return Asked(
        store=_option(config, "store"),
        seed=_option(config, "seed"),
        images=_option(config, "images"),
        level=cast(Level | None, _option(config, "level")),
        settings=config.stash.get(SETTINGS, Settings()),
    )


def _option(config: pytest.Config, name: str) -> Any:
    return config.getoption(f"torntail_{name}", None)


def words(options: Asked) -> str:
    """What was asked for, in a few words."""
    settings = options.settings
    told = [f"seed {_either(options.seed, settings.seed) or 0}"]
    for name in ("store", "images", "level"):
        value = _either(getattr(options, name), getattr(settings, name))
        if value is not None:
            told.append(f"{name} {value}")
    return ", ".join(told)


def _either(first: Any, second: Any) -> Any:
    return second if first is None else first


def command_for(item: pytest.Item, config: pytest.Config, seed: int | None = None) -> str:
    """The command that runs one test again as it ran now."""
    command = ["pytest"]
    _, _, inner = item.nodeid.partition("::")
    place = os.path.relpath(item.path, config.invocation_params.dir)
    command.append(f"{Path(place).as_posix()}::{inner}" if inner else Path(place).as_posix())
    if not hasattr(config.option, "torntail_seed"):
        return shlex.join([*command, "-p", "no:torntail"])
    options = asked(config)
    if seed is not None:
        command.append(f"--torntail-seed={seed}")
    for name in ("store", "images", "level"):
        value = getattr(options, name)
        if value is not None:
            command.append(f"--torntail-{name}={value}")
    return shlex.join(command)
