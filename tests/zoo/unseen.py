"""A store whose file operations nothing inside Python sees, and which nobody records otherwise."""

from __future__ import annotations

from pathlib import Path

from torntail.judge.capabilities import Capabilities
from torntail.stores.sqlite import SqliteStore

__all__ = ["unseen"]


def unseen(root: Path) -> SqliteStore:
    """SQLite under a name of its own."""
    return SqliteStore(root / "sessions.db")


unseen.capabilities = Capabilities(atomic_batch=True)  # type: ignore[attr-defined]
