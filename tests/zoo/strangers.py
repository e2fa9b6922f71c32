"""Stores as other people write them, none of them broken, and some that misbehave as objects.

They hold the harness, not the contract: async calls, wire dictionaries, other errors, another
profile, a log nobody can read from outside; and stores that hang, exit, or are no store.
"""

# An animal is named as its factory is, which a target names like a function.

from __future__ import annotations

import asyncio
import json
import sys
import threading
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

from tests.zoo.plain import PlainStore, factory
from torntail.judge.capabilities import Capabilities
from torntail.session import LogScan, Outcome, SessionEvent, SessionHeader, encode_event
from torntail.stores.contract import LoadResult, RepairReport, SessionCorrupted


class AsyncWireStore:
    """Async throughout; gives dictionaries; serialises with a lock of the event loop."""

    capabilities: ClassVar = {"durability": "process", "writers": "one-unchecked"}

    def __init__(self, root: Path) -> None:
        self.inner = PlainStore(root)
        self.lock = asyncio.Lock()

    async def create(self, header: SessionHeader) -> None:
        async with self.lock:
            self.inner.create(header)

    async def append(self, session_id: str, events: list[SessionEvent]) -> None:
        copies = list(events)
        async with self.lock:
            await asyncio.sleep(0)
            self.inner.append(session_id, copies)

    async def load(self, session_id: str) -> dict[str, Any]:
        async with self.lock:
            await asyncio.sleep(0)
            result = self.inner.load(session_id)
            return {
                "meta": result.header.to_json(),
                "events": [event.to_json() for event in result.events],
            }

    async def inspect(self, session_id: str) -> tuple[SessionHeader, list[dict[str, Any]]]:
        result = self.inner.inspect(session_id)
        return result.header, [event.to_json() for event in result.events]

    async def list(self) -> list[Any]:
        return [
            {"session_id": entry.session_id, "header": entry.header, "error": entry.error}
            for entry in self.inner.list()
        ]

    async def close(self) -> None:
        self.inner.close()


async def opened_by_a_coroutine(root: Path) -> AsyncWireStore:
    await asyncio.sleep(0)
    return AsyncWireStore(root)


opened_by_a_coroutine.capabilities = AsyncWireStore.capabilities  # type: ignore[attr-defined]


class Unknown(Exception):
    """An error type of its own, told apart by `error_kinds` of the factory."""


class Events:
    """Opaque events without header, create, list or inspect; refuses nothing but bad JSON."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.lock = threading.Lock()
        self.closed = False

    def path(self, session_id: str) -> Path:
        if self.closed:
            raise ValueError("operation on a closed store")
        name = session_id.encode("utf-16-le", "surrogatepass").hex()
        if not name or len(name) > 200:
            raise ValueError("this id is not possible")
        return self.root / f"{name}.jsonl"

    def append(self, session_id: str, events: list[SessionEvent]) -> None:
        with self.lock:
            if self.closed:
                raise ValueError("operation on a closed store")
            path = self.path(session_id) if events else self.root
            lines = []
            for event in events:
                try:
                    lines.append(encode_event(event) + b"\n")
                except ValueError as error:
                    raise TypeError(f"{event.type} ({event.seq}): {error}") from None
            if events:
                with path.open("ab") as file:
                    file.write(b"".join(lines))

    def load(self, session_id: str) -> list[dict[str, Any]]:
        with self.lock:
            path = self.path(session_id)
            if self.root.is_dir() and not path.exists():
                raise Unknown(session_id)
            return [json.loads(line) for line in path.read_bytes().split(b"\n") if line]

    def close(self) -> None:
        self.closed = True


def opaque_events(root: Path) -> Events:
    return Events(root)


opaque_events.error_kinds = {Unknown: "not_found"}  # type: ignore[attr-defined]
opaque_events.capabilities = Capabilities(  # type: ignore[attr-defined]
    profile="log",
    durability="process",
    detects=frozenset(),
    writers="one-unchecked",
    header=False,
    checks_seq=False,
    creates="implicit",
    repairs="none",
    lists=False,
    lazy=False,
    inspects=False,
    forks=False,
)


@factory
class compressed(PlainStore):
    """No mark can be found in its files."""

    def write(self, path: Path, content: bytes) -> None:
        before = self.content(path) if path.exists() else b""
        path.write_bytes(zlib.compress(before + content))

    def content(self, path: Path) -> bytes:
        try:
            return zlib.decompress(path.read_bytes())
        except zlib.error:
            raise SessionCorrupted(path.stem, path, 1, "not compressed data", 0) from None


class EagerStore(PlainStore):
    """`create` writes the header at once; a session without events is stored and listed."""

    def create(self, header: SessionHeader) -> None:
        with self.mutex:
            super().create(header)
            header = self.announced.pop(header.id)
            path = self.new_path(header)
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.exists():
                path.rename(path.with_suffix(".aside"))
            self.write(path, self.encode_header(header))
            self.next_seq[header.id] = 0


eager = factory(EagerStore, lazy=False)
lazy_unclaimed = factory(PlainStore, lazy=False)


@factory
class shrinks_to_something_else(PlainStore):
    """Reads any version, and an unknown id as a session without events."""

    def load(self, session_id: str) -> LoadResult:
        if not self.places(session_id) and not self.closed:
            return LoadResult(SessionHeader(session_id, 0), [], RepairReport())
        return super().load(session_id)

    inspect = load

    def check_outcome(self, session_id: str, path: Path, scan: LogScan) -> None:
        if scan.outcome is not Outcome.UNSUPPORTED_VERSION:
            super().check_outcome(session_id, path, scan)


# --- no stores ------------------------------------------------------------------------------------


class Silent:
    """Has every call, and does nothing in any."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def create(self, header: Any) -> Any: ...

    def append(self, session_id: str, events: Any) -> Any: ...

    def load(self, session_id: str) -> Any: ...

    def inspect(self, session_id: str) -> Any: ...

    def list(self) -> Any: ...


def _after_baseline(act: Callable[[], Any]) -> type[PlainStore]:
    class Late(PlainStore):
        """Misbehaves when it is asked for an id that is not there."""

        def find(self, session_id: str) -> list[Path]:
            if not self.places(session_id):
                act()
            return super().find(session_id)

    return Late


hangs = factory(_after_baseline(threading.Event().wait))
exits = factory(_after_baseline(lambda: sys.exit(0)))


def _interrupt() -> None:
    raise KeyboardInterrupt


interrupts = factory(_after_baseline(_interrupt))


def returns_none(root: Path) -> None:
    return None


def raises(root: Path) -> Any:
    raise OSError(13, "Permission denied", "/nowhere")


def takes_nothing() -> Any: ...


not_callable = 7


class NoInspect(Silent):
    inspect = None  # type: ignore[assignment]
