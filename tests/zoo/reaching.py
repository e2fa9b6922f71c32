"""Stores that break only in work of a certain size or shape; `ZOO` says which clause knows, `PLANS`
in which plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.zoo.careful import CarefulStore
from tests.zoo.plain import factory
from torntail.session import SessionHeader
from torntail.stores.contract import WriterConflict

ZOO: dict[str, str] = {}
PLANS: dict[str, str] = {}

_MANY_BYTES = 100_000


def _animal(clause: str, plan: str, **claims: Any) -> Any:
    def enter(store: Any) -> Any:
        target = f"{__name__}:{store.__name__}"
        ZOO[target], PLANS[target] = clause, plan
        return factory(store, durability="power", **claims)

    return enter


@_animal("CR-1", "a-long-log")
class a_long_line_is_not_synced(CarefulStore):
    """What is too long for its buffer goes to the file by another way, without fsync."""

    def put(self, path: Path, content: bytes) -> None:
        if len(content) < _MANY_BYTES:
            super().put(path, content)
            return
        with path.open("ab") as file:
            file.write(content)


@_animal("CR-1", "a-long-log")
class a_long_log_is_not_synced(CarefulStore):
    """Saves the fsync of a log that has become long."""

    def put(self, path: Path, content: bytes) -> None:
        if not path.exists() or path.stat().st_size < _MANY_BYTES:
            super().put(path, content)
            return
        with path.open("ab") as file:
            file.write(content)


@_animal("CR-1", "eight-sessions")
class the_fifth_session_has_no_name(CarefulStore):
    """Syncs the directory for as many sessions as it keeps open, and no more."""

    def sync_directories(self, path: Path) -> None:
        if len(list(path.parent.glob("*.jsonl"))) <= 4:
            super().sync_directories(path)


@_animal("CR-1", "a-fork", forks=True)
class a_child_is_not_synced(CarefulStore):
    """Takes what a fork copies for durable, as it is in the source."""

    child = False

    def encode_header(self, header: SessionHeader) -> bytes:
        self.child = header.parent_session is not None
        return super().encode_header(header)

    def first_flush(self, path: Path, header: bytes, lines: Sequence[bytes]) -> None:
        if not self.child:
            super().first_flush(path, header, lines)
            return
        path.write_bytes(header + b"".join(line + b"\n" for line in lines))
        self.sync_directories(path)


class _RefusesALongLog(CarefulStore):
    """Says of a log that has become long that another writer has it."""

    def settle(self, path: Path) -> None:
        if path.stat().st_size > _MANY_BYTES:
            raise WriterConflict("", path, "is too long")
        super().settle(path)


refuses_a_long_log = factory(_RefusesALongLog, durability="power")
"""Not of the zoo of crashes: it is wrong without any."""
