"""What a store does to the process it lives in, apart from answering calls.

Decides what is put back (working directory, signal handlers, recursion limit), what is only told,
and what proves that nothing is proven: files outside the store's directory, which no crash changes,
and a standard stream that was closed, whose number the next file gets. Sees files that are opened
from Python, not those that a C extension opens by itself.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, Self

from torntail.drive.onlooker import HarnessError
from torntail.record.install import hidden_syncs

__all__ = ["Outside", "Surroundings"]

_SIGNALS: Final = (
    signal.SIGALRM,
    signal.SIGCHLD,
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGUSR1,
    signal.SIGUSR2,
)
_STREAMS: Final = {0: "standard input", 1: "standard output", 2: "standard error"}
_WRITES: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_HARMLESS: Final = ("/dev/", "/proc/", "/sys/")
_MEMORY: Final = "/dev/shm/"


class Surroundings:
    """A process as it was; `look` puts back what has changed, and `habits` tell of it."""

    def __init__(self) -> None:
        self.habits = [
            f"the store kept a sync function in a {kind}, where its calls are not seen"
            for kind in hidden_syncs()
        ]
        self._directory = os.getcwd()
        self._recursion_limit = sys.getrecursionlimit()
        self._handlers = {number: signal.getsignal(number) for number in _SIGNALS}
        self._streams = {number: _identity(number) for number in _STREAMS}
        self._kept = {
            number: os.dup(number) for number, stream in self._streams.items() if stream is not None
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for descriptor in self._kept.values():
            try:
                os.close(descriptor)
            except OSError:
                pass  # The store has closed it.

    def look(self) -> None:
        """Puts back what has changed since the last time; raises `HarnessError` where a standard
        stream is gone.
        """
        if sys.getrecursionlimit() != self._recursion_limit:
            self._tell(f"set the recursion limit to {sys.getrecursionlimit()}")
            sys.setrecursionlimit(self._recursion_limit)
        if _directory() != self._directory:
            self._tell("changed the working directory")
            os.chdir(self._directory)
        if threading.current_thread() is threading.main_thread():
            for number, handler in self._handlers.items():
                if signal.getsignal(number) != handler:
                    self._tell(f"installed a handler for {signal.Signals(number).name}")
                    # None: a handler that was not installed from Python, and cannot be again.
                    signal.signal(number, signal.SIG_DFL if handler is None else handler)
        for descriptor, stream in self._streams.items():
            if stream is not None and _identity(descriptor) != stream:
                os.dup2(self._kept[descriptor], descriptor)
                told = f"{_STREAMS[descriptor]}, descriptor {descriptor}"
                raise HarnessError(f"the store closed {told}")

    def _tell(self, habit: str) -> None:
        told = f"the store {habit}"
        if told not in self.habits:
            self.habits.append(told)


def _directory() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:
        return ""


def _identity(descriptor: int) -> tuple[int, int] | None:
    try:
        status = os.fstat(descriptor)
    except OSError:
        return None
    return status.st_dev, status.st_ino


class Outside:
    """Watches which files outside `root` this process opens to write; `first` is the first of them.

    What Python itself writes (compiled modules) and devices do not count. One at a time.
    """

    def __init__(self, root: str) -> None:
        self.root = os.path.abspath(root) + os.sep
        self.first: str | None = None

    def __enter__(self) -> Self:
        _Hook.install()
        tempfile.gettempdir()  # Tries out where it may write, once.
        _Hook.watch = self
        return self

    def __exit__(self, *_: object) -> None:
        _Hook.watch = None

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Meanwhile files are opened by others than the store."""
        _Hook.watch = None
        try:
            yield
        finally:
            _Hook.watch = self

    def opened(self, path: Any, flags: Any) -> None:
        """A file is about to be opened."""
        if self.first is not None or isinstance(path, int) or not flags & _WRITES:
            return
        path = os.fsdecode(path)
        # A name may stand in any directory that is open, as `dir_fd` is not told; one with a folder
        # that is there leads from the working directory.
        folder = os.path.dirname(path)
        if not os.path.isabs(path) and not (folder and os.path.isdir(folder)):
            return
        path = os.path.abspath(path)
        harmless = path.startswith(_HARMLESS) and not path.startswith(_MEMORY)
        if path.startswith(self.root) or harmless or f"{os.sep}__pycache__{os.sep}" in path:
            return
        self.first = path


class _Hook:
    """The one audit hook of this process, which cannot be taken away again."""

    installed = False
    watch: Outside | None = None

    @classmethod
    def install(cls) -> None:
        if not cls.installed:
            cls.installed = True
            sys.addaudithook(cls.heard)

    @classmethod
    def heard(cls, event: str, arguments: tuple[Any, ...]) -> None:
        watch = cls.watch
        if watch is None:
            return
        try:
            if event == "open":
                watch.opened(arguments[0], arguments[2])
            elif event == "sqlite3.connect" and arguments[0] != ":memory:":
                watch.opened(arguments[0], os.O_RDWR)
        except Exception:
            return  # Whatever this was: the store's call must not fail by it.
