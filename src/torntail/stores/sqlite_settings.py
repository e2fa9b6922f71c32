"""How hard a session database is written, and which combinations keep what they claim.

Decides what journal mode and synchronous level a claimed durability needs; refuses the rest with
the change to make. Does not decide how they are set and read back (`sqlite_database`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, Self, get_args

__all__ = ["Durability", "JournalMode", "Settings", "Synchronous"]

Durability = Literal["none", "process", "power"]
JournalMode = Literal["wal", "delete", "truncate", "persist"]
Synchronous = Literal["off", "normal", "full", "extra"]

_SAFE_AT_POWER_LOSS: Final[dict[JournalMode, tuple[Synchronous, ...]]] = {
    "wal": ("full", "extra"),
    # With a rollback journal a commit is the journal's removal, and only EXTRA syncs that.
    "delete": ("extra",),
    "truncate": ("extra",),
    "persist": ("extra",),
}
# What the operating system holds survives SIGKILL, so every level keeps these claims.
_WITHOUT_POWER: Final[dict[Durability, Synchronous]] = {"process": "normal", "none": "off"}


@dataclass(frozen=True, slots=True)
class Settings:
    """A consistent choice; `busy_timeout` is how many seconds to wait for other connections."""

    durability: Durability
    journal_mode: JournalMode
    synchronous: Synchronous
    busy_timeout: float

    @property
    def durable(self) -> bool:
        """Whether an acknowledged event must survive a power loss."""
        return self.durability == "power"

    @property
    def careful_creation(self) -> bool:
        """Whether tables are made, and the journal mode changed, at the level EXTRA.

        That happens under a rollback journal, where NORMAL can destroy the database on a disk that
        reorders, which WAL with NORMAL never does.
        """
        return self.durable or (self.journal_mode == "wal" and self.synchronous != "off")

    @classmethod
    def choose(
        cls,
        durability: Durability,
        journal_mode: JournalMode,
        synchronous: Synchronous | None,
        busy_timeout: float,
    ) -> Self:
        """The settings asked for; without `synchronous` the cheapest level that keeps the claim.

        Raises ValueError for an unknown word and for a claim that the settings cannot keep.
        """
        _check("durability", durability, get_args(Durability))
        _check("journal_mode", journal_mode, get_args(JournalMode))
        safe = _SAFE_AT_POWER_LOSS[journal_mode]
        if synchronous is None:
            synchronous = _WITHOUT_POWER.get(durability, safe[0])
        _check("synchronous", synchronous, get_args(Synchronous))
        if durability == "power" and synchronous not in safe:
            levels = " or ".join(f"synchronous={level!r}" for level in safe)
            raise ValueError(
                f"synchronous={synchronous!r} with journal_mode={journal_mode!r} can lose an "
                f'acknowledged event at a power loss: use {levels}, or durability="process"'
            )
        return cls(durability, journal_mode, synchronous, busy_timeout)


def _check(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{name} is one of {', '.join(choices)}, not {value!r}")
