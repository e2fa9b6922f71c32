"""Stores that go by the times of their files, or by which process wrote them, and are right to."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from tests.zoo.careful import CarefulStore
from tests.zoo.plain import factory
from torntail.session import SessionEvent
from torntail.stores.contract import LoadResult, WriterConflict

_READ: dict[Path, tuple[tuple[int, int], bytes]] = {}


class TrustsANewerSize(CarefulStore):
    """Beside each log stands how long it is, which holds as long as the log is not newer."""

    def content(self, path: Path) -> bytes:
        content = super().content(path)
        size = path.with_suffix(".size")
        try:
            if size.stat().st_mtime_ns < path.stat().st_mtime_ns:
                return content
            digits, end, _ = size.read_text().partition("\n")
            return content[: int(digits)] if end else content
        except (OSError, ValueError):
            return content

    def put(self, path: Path, content: bytes) -> None:
        super().put(path, content)
        self.note_size(path)

    def cut(self, path: Path, length: int) -> None:
        super().cut(path, length)
        self.note_size(path)

    def note_size(self, path: Path) -> None:
        if path.suffix == ".jsonl":
            path.with_suffix(".size").write_text(f"{path.stat().st_size}\n")


class KeepsWhatItRead(CarefulStore):
    """Reads a file anew when its time or its size has changed."""

    def content(self, path: Path) -> bytes:
        status = os.stat(path)
        stamp = status.st_mtime_ns, status.st_size
        known = _READ.get(path)
        if known is None or known[0] != stamp:
            known = _READ[path] = stamp, super().content(path)
        return known[1]


trusts_a_newer_size = factory(TrustsANewerSize, durability="process")
keeps_what_it_read = factory(KeepsWhatItRead, durability="power")


class TouchesOnEachLoad(CarefulStore):
    """Writes a lock file and how often anything was opened; a log is written by a repair only."""

    def load(self, session_id: str) -> LoadResult:
        result = super().load(session_id)
        opened = self.root / "opened.json"
        times = int(opened.read_text() or 0) if opened.exists() else 0
        opened.write_text(str(times + 1))
        (self.root / "lock").write_text(f"{os.getpid()} {times}")
        return result


class RewritesOnEachLoad(CarefulStore):
    """Changes how the last line of a log ends in which a turn was once interrupted."""

    def load(self, session_id: str) -> LoadResult:
        result = super().load(session_id)
        path = self.find(session_id)[0]
        content = path.read_bytes().removesuffix(b"\n")
        bare = content.removesuffix(b"\r")
        if b'"interrupted"' not in content:
            return result
        path.write_bytes((bare if bare != content else bare + b"\r") + b"\n")
        self.note_file(session_id, path)
        return result


touches_on_each_load = factory(TouchesOnEachLoad, durability="process")
rewrites_on_each_load = factory(RewritesOnEachLoad, durability="process")


class LocksByProcess(CarefulStore):
    """A lock file names the process that writes; that of a process that is gone is taken over."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.held: list[Path] = []

    def lock(self, session_id: str) -> None:
        lock = self.root / f"{self.name(session_id)}.process"
        if lock in self.held:
            return
        if lock.exists() and _lives(lock.read_bytes()):
            raise WriterConflict(session_id, lock, "another process writes it")
        self.root.mkdir(exist_ok=True)
        lock.write_text(f"{os.getpid()}\n")
        self.held.append(lock)

    def append(self, session_id: str, events: Iterable[SessionEvent]) -> None:
        if session_id in self.announced or self.present(session_id) is not None:
            self.lock(session_id)
        super().append(session_id, events)

    def close(self) -> None:
        for lock in self.held:
            lock.unlink(missing_ok=True)
        self.held.clear()
        super().close()


def _lives(named: bytes) -> bool:
    digits, end, _ = named.partition(b"\n")
    if not end or not digits.isdigit():
        return False
    try:
        os.kill(int(digits), 0)
    except (ProcessLookupError, OverflowError):
        return False
    return True


locks_by_process = factory(LocksByProcess, durability="power")
