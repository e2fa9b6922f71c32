"""What `sqlite:MODE,LEVEL` names: the SQLite store with a journal mode and a synchronous level.

Decides how the words are read, and what a store with these settings claims if nobody says: power
loss where they keep that, else SIGKILL alone. Does not decide which settings keep what
(`stores.sqlite_settings`).
"""

from __future__ import annotations

from typing import Final, cast, get_args

from torntail.stores.sqlite_settings import Durability, JournalMode, Settings, Synchronous

__all__ = ["SQLITE", "sqlite_settings"]

SQLITE: Final = "sqlite"

_MODES: Final = get_args(JournalMode)
_LEVELS: Final = get_args(Synchronous)
_BUSY_SECONDS: Final = 5.0


def sqlite_settings(words: str, durability: Durability | None) -> Settings:
    """The settings that stand behind the colon, in any order; raises ValueError.

    Without a mode it is WAL; without a level the cheapest that keeps what is claimed.
    """
    mode: JournalMode | None = None
    level: Synchronous | None = None
    for word in words.split(",") if words else ():
        if word in _MODES and mode is None:
            mode = cast(JournalMode, word)
        elif word in _LEVELS and level is None:
            level = cast(Synchronous, word)
        else:
            raise ValueError(
                f"{word!r} is no setting of sqlite: give a journal mode ({', '.join(_MODES)}), a "
                f"synchronous level ({', '.join(_LEVELS)}), or both, as in sqlite:delete,full"
            )
    if durability is not None:
        return Settings.choose(durability, mode or "wal", level, _BUSY_SECONDS)
    try:
        return Settings.choose("power", mode or "wal", level, _BUSY_SECONDS)
    except ValueError:
        return Settings.choose("process", mode or "wal", level, _BUSY_SECONDS)
