"""What the store tests share: sessions in a word, whole-value comparison, and a disk that talks.

`Disk` stands between a store and the real file system: it writes down every mutating call under one
folder, in order, and lets a test make any of them fail, fall short or crash. Decides nothing about
what a store should do.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.shapes import event_lines
from torntail.session import SessionEvent, SessionHeader
from torntail.stores.contract import LoadResult, RepairReport
from torntail.stores.jsonl import JsonlStore

HEADER = SessionHeader(id="s-1", created_at=1_700_000_000_000, cwd="/w")
"""The header `H` of the shape language."""

HEADER_LINE = b'{"type":"session","version":0,"id":"s-1","createdAt":1700000000000,"cwd":"/w"}\n'
BUCKET = "cwd-" + hashlib.sha256(b"/w").hexdigest()[:12]
LOG = f"{BUCKET}/s-1.jsonl"


def events(shape: str, start: int = 0) -> list[SessionEvent]:
    """The events of a shape, from the one with seq `start` on."""
    return [event for event in _events(shape) if event.seq >= start]


@functools.cache
def _events(shape: str) -> list[SessionEvent]:
    return [SessionEvent.from_json(json.loads(line)) for line in event_lines(shape)]


def other(seq: int, data: Any = None, kind: str = "note") -> SessionEvent:
    """An event outside the turn grammar."""
    return SessionEvent(kind, seq, 7, data)


def plain(found: Iterable[SessionEvent]) -> list[str]:
    """The events as JSON texts: unlike `==`, this tells 1 from 1.0 from true, and 0.0 from -0.0."""
    return [json.dumps(event.to_json()) for event in found]


def check(
    found: LoadResult,
    expected: Iterable[SessionEvent],
    repair: RepairReport | None = None,
    header: SessionHeader = HEADER,
) -> None:
    """Compares all that a load returned."""
    assert found.header.to_json() == header.to_json()
    assert plain(found.events) == plain(expected)
    assert found.repair == (RepairReport() if repair is None else repair)


def files(root: Path) -> dict[str, bytes]:
    """Every file under `root` with its content, the lock files left out."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and ".locks" not in path.parts
    }


def place(root: Path, content: bytes, name: str = LOG) -> Path:
    """Puts a log there by hand."""
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


@contextlib.contextmanager
def jsonl(root: Path, durability: Any = "power") -> Iterator[JsonlStore]:
    """A store that is closed whatever happens."""
    store = JsonlStore(root, durability)
    try:
        yield store
    finally:
        store.close()


class Crash(BaseException):
    """The process dies here. Not an Exception: no handler of the store may survive it."""


Fault = Callable[[str, str, bytes], int | None]
"""Called with operation, name and data before each operation; it may raise, or cut a write."""


class Disk:
    """Records the mutating calls of `os` under `base`, and hands each to `fault` first.

    Operations: mkdir, create, write, truncate, fsync, link, unlink, replace; names are relative to
    `base`. For link and replace the new name stands in the place of the data.
    """

    def __init__(self, patch: pytest.MonkeyPatch, base: Path) -> None:
        self.base = base.resolve()
        self.calls: list[tuple[Any, ...]] = []
        self.fault: Fault | None = None
        self._linked: dict[int, str] = {}
        self.real = {
            name: getattr(os, name)
            for name in ("mkdir", "open", "write", "ftruncate", "fsync", "link", "unlink")
        }
        self.real["replace"] = os.replace
        for name in self.real:
            patch.setattr(os, name, getattr(self, f"_{name}"))

    def writes(self) -> list[tuple[Any, ...]]:
        """The calls so far, forgotten afterwards."""
        calls, self.calls = self.calls, []
        return calls

    def fail(self, operation: str, error: int, *, times: int = -1, name: str = "") -> None:
        """From now on `operation` (on a name that ends in `name`) fails, `times` times."""
        left = [times]

        def fault(called: str, where: str, _: bytes) -> None:
            if called == operation and where.endswith(name) and left[0]:
                left[0] -= 1
                raise OSError(error, os.strerror(error), where)

        self.fault = fault

    def heal(self) -> None:
        """No more faults."""
        self.fault = None

    def _say(self, operation: str, where: Any, data: bytes = b"") -> int | None:
        path = self._name(where)
        if path is None:
            return None
        size = None if self.fault is None else self.fault(operation, path, data)
        kept = data if size is None else data[:size]
        self.calls.append((operation, path, kept) if kept else (operation, path))
        return size

    def _name(self, where: Any) -> str | None:
        text = os.readlink(f"/proc/self/fd/{where}") if isinstance(where, int) else os.fspath(where)
        if text.endswith(" (deleted)"):
            # The name it was opened under is gone; a hard link may have given it another.
            text = self._linked.get(os.fstat(where).st_ino, text)
        path = Path(os.path.abspath(text))
        return str(path.relative_to(self.base)) if path.is_relative_to(self.base) else None

    def _mkdir(self, path: Any, *rest: Any, **more: Any) -> None:
        self._only_fault("mkdir", path)
        self.real["mkdir"](path, *rest, **more)
        # Written down when it has worked: a store may try the deepest folder first.
        self.calls.append(("mkdir", self._name(path)))

    def _open(self, path: Any, flags: int, *rest: Any, **more: Any) -> int:
        if flags & os.O_CREAT and not os.path.lexists(path) and ".locks" not in str(path):
            self._say("create", path)
        elif isinstance(path, str | os.PathLike) and flags & (os.O_WRONLY | os.O_RDWR):
            self._only_fault("open", path)
        descriptor: int = self.real["open"](path, flags, *rest, **more)
        return descriptor

    def _only_fault(self, operation: str, path: Any) -> None:
        name = self._name(path)
        if self.fault is not None and name is not None:
            self.fault(operation, name, b"")

    def _write(self, descriptor: int, data: Any) -> int:
        size = self._say("write", descriptor, bytes(data))
        written: int = self.real["write"](descriptor, data if size is None else data[:size])
        return written

    def _ftruncate(self, descriptor: int, length: int) -> None:
        self._say("truncate", descriptor, str(length).encode())
        self.real["ftruncate"](descriptor, length)

    def _fsync(self, descriptor: int) -> None:
        # Only its place in the order counts here, so the test need not wait for the medium.
        self._say("fsync", descriptor)

    def _link(self, old: Any, new: Any, **more: Any) -> None:
        self._say("link", old, str(self._name(new)).encode())
        self.real["link"](old, new, **more)
        self._linked[os.stat(new).st_ino] = os.fspath(new)

    def _unlink(self, path: Any, **more: Any) -> None:
        if os.path.lexists(path):
            self._say("unlink", path)
        self.real["unlink"](path, **more)

    def _replace(self, old: Any, new: Any, **more: Any) -> None:
        self._say("replace", old, str(self._name(new)).encode())
        self.real["replace"](old, new, **more)


def crash_at(disk: Disk, number: int, *, torn: bool = False) -> None:
    """The process dies at the call `number` (from 1) and never does another.

    With `torn`, a write that it dies in has put half of its bytes into the file.
    """
    seen = [0]

    def fault(operation: str, where: str, data: bytes) -> None:
        if operation == "open":
            return
        seen[0] += 1
        if seen[0] < number:
            return
        if torn and seen[0] == number and operation == "write":
            with open(disk.base / where, "ab", buffering=0) as file:
                disk.real["write"](file.fileno(), data[: len(data) // 2])
        raise Crash

    disk.fault = fault
