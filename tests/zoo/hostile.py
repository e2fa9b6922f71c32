"""Stores that do to their process what no store should, once a crash is behind them."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import Any

from tests.zoo.careful import CarefulStore
from tests.zoo.plain import factory
from torntail.stores.contract import LoadResult


def _crashed(store: CarefulStore, session_id: str) -> bool:
    """Whether a crash left its trace: an open turn, or bytes that are no record."""
    path = store.present(session_id)
    return path is not None and b'"turn/end"' not in path.read_bytes().splitlines()[-1]


class _Hostile(CarefulStore):
    def load(self, session_id: str) -> LoadResult:
        if _crashed(self, session_id):
            self.strike()
        return super().load(session_id)

    def strike(self) -> None:
        raise NotImplementedError


class HangsAfterACrash(_Hostile):
    def strike(self) -> None:
        threading.Event().wait()


class EndsTheProcess(_Hostile):
    def strike(self) -> None:
        os._exit(0)


class ExitsAfterACrash(_Hostile):
    def strike(self) -> None:
        sys.exit(0)


class RaisesOddly(_Hostile):
    def strike(self) -> None:
        raise _Odd


class _Odd(BaseException):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class PrintsWithoutEnd(CarefulStore):
    """Careful, and noisy on both outputs."""

    def load(self, session_id: str) -> LoadResult:
        sys.stdout.write("x" * 100_000)
        sys.stderr.write("y" * 100_000)
        return super().load(session_id)


class ReturnsLazily(CarefulStore):
    """Careful, but hands its events out of a generator that reads the file as it goes."""

    def load(self, session_id: str) -> Any:
        result = super().load(session_id)
        return {"header": result.header, "events": (event for event in result.events)}


class KeepsFilesOpen(CarefulStore):
    """Careful, and never closes a descriptor that it opened to read."""

    def content(self, path: Path) -> bytes:
        self.__dict__.setdefault("open", []).append(path.open("rb"))
        return super().content(path)

    def close(self) -> None:
        super().close()
        for file in self.__dict__.get("open", []):
            file.close()


class StartsThreads(CarefulStore):
    """Careful, and writes from a thread of its own that each append waits for."""

    def put(self, path: Path, content: bytes) -> None:
        thread = threading.Thread(target=super().put, args=(path, content))
        thread.start()
        thread.join()


hangs = factory(HangsAfterACrash, durability="power")
ends_the_process = factory(EndsTheProcess, durability="power")
exits = factory(ExitsAfterACrash, durability="power")
raises_oddly = factory(RaisesOddly, durability="power")
prints = factory(PrintsWithoutEnd, durability="power")
lazy = factory(ReturnsLazily, durability="power")
keeps_open = factory(KeepsFilesOpen, durability="power")
threads = factory(StartsThreads, durability="power")
