"""Calls that would end the harness from inside a store, made into an outcome.

`os._exit(0)` in a store under test would end the process without a verdict and with exit code 0,
which every caller takes for a pass. Between `refused` and its end such a call raises instead. Does
not hold back what is done in C, nor a child that the store forked.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

__all__ = ["EndsProcess", "install", "refused"]

_NAMES: Final = ("_exit", "execv", "execve")


class EndsProcess(BaseException):
    """The store called what ends, or replaces, the process."""


class _Guard:
    def __init__(self) -> None:
        self.process: int | None = None
        self.attempts: list[str] = []
        self.installed = False


_guard: Final = _Guard()


def install() -> None:
    """Puts the guards in place, unarmed; before a store is imported, which may bind the names."""
    if _guard.installed:
        return
    _guard.installed = True
    for name in _NAMES:
        setattr(os, name, _guarded(name, getattr(os, name)))


def _guarded(name: str, real: Any) -> Any:
    def call(*arguments: Any) -> Any:
        if _guard.process != os.getpid():
            return real(*arguments)
        _guard.attempts.append(f"os.{name}({', '.join(map(repr, arguments))[:80]})")
        raise EndsProcess(f"the store called {_guard.attempts[-1]}")

    call.__name__ = name
    return call


@contextmanager
def refused() -> Iterator[list[str]]:
    """In this process, until the end of the block, such calls raise; gives those that came."""
    install()
    before, _guard.process = _guard.process, os.getpid()
    _guard.attempts = []
    try:
        yield _guard.attempts
    finally:
        _guard.process = before
