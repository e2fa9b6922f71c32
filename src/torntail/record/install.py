"""Putting the wrappers in place, and taking them away.

Decides which references are exchanged: the attributes of `os`, `io`, `builtins` (and `fcntl` on
macOS), the same functions in the globals of modules outside the standard library that imported them
by name before, and the default arguments in which `tempfile` keeps `os.unlink`. While nothing is
recorded a wrapper costs a fraction of a microsecond, so they may stay for the life of the process.
Only not beside pyfakefs: started while they stand, it does not know this `open` for the built-in
one and leaves it real.

Syncs, whose absence no check of a recording can find, are exchanged wherever they are held, and in
`posix` (`hidden`). Not reached: other functions in default arguments, class attributes, closures
and data structures of modules imported before, calls through `posix` and `_io`, and whatever writes
without Python (`foreign` notices syncs through `ctypes`).
"""

from __future__ import annotations

import builtins
import fcntl
import io
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import FunctionType, ModuleType
from typing import Any, Final

from torntail.record.calls import CALLS
from torntail.record.files import OPEN, RecordedFile
from torntail.record.foreign import watch_foreign_syncs
from torntail.record.hidden import exchange_hidden
from torntail.record.real import ORIGINALS, Real

__all__ = ["hidden_syncs", "install", "installed", "standing", "uninstall"]

# The standard library calls `os` and `io` by their attributes; pyfakefs keeps the real functions to
# tell them from its own.
_UNTOUCHED: Final = sys.stdlib_module_names | {"pyfakefs"}

_SYNCS: Final = ("fdatasync", "fsync", "sync")

_lock: Final = threading.Lock()
_undo: Final[list[Callable[[], object]]] = []
_hidden: Final[list[str]] = []


def installed() -> bool:
    """Whether the wrappers stand."""
    return bool(_undo)


def install() -> None:
    """Puts the wrappers in place; does nothing if they are.

    As early as can be: before the store is imported nothing of it holds the real functions.
    """
    with _lock:
        if _undo:
            return
        watch_foreign_syncs()
        # First, for what undoes the rest holds the real functions, too.
        _exchange_syncs()
        wrappers: dict[int, Any] = {}
        for name, original in ORIGINALS.items():
            wrappers[id(original)] = getattr(CALLS, name)
            _exchange(os, name, getattr(CALLS, name))
        wrappers[id(Real.open_file)] = OPEN
        wrappers[id(Real.FileIO)] = RecordedFile
        _exchange(io, "open", OPEN)
        _exchange(io, "FileIO", RecordedFile)
        _exchange(builtins, "open", OPEN)
        if Real.FULL_SYNC is not None:
            wrappers[id(Real.control)] = CALLS.control
            _exchange(fcntl, "fcntl", CALLS.control)
        _say_what_is_supported(wrappers)
        _exchange_globals(wrappers)
        _exchange_defaults(wrappers)


def uninstall() -> None:
    """Takes the wrappers away; does nothing if they do not stand.

    What was exchanged since by somebody else is left, and references taken meanwhile stay good: a
    wrapper without a recording does what the real function does.
    """
    with _lock:
        while _undo:
            _undo.pop()()


@contextmanager
def standing() -> Iterator[None]:
    """Meanwhile the wrappers stand; what is recorded then need not put them in place each time."""
    stood = installed()
    install()
    try:
        yield
    finally:
        if not stood:
            uninstall()


def hidden_syncs() -> tuple[str, ...]:
    """The types of what holds a real sync function and could not be made to hold the wrapper."""
    return tuple(dict.fromkeys(_hidden))


def _exchange_syncs() -> None:
    found = {name: ORIGINALS[name] for name in _SYNCS if name in ORIGINALS}
    pairs = {id(original): (original, getattr(CALLS, name)) for name, original in found.items()}
    own = (found, pairs, ORIGINALS, _undo)
    undo, left = exchange_hidden(pairs, frozenset(_UNTOUCHED), own)
    _undo.extend(undo)
    _hidden[:] = left
    posix = sys.modules.get("posix")
    if posix is not None:
        for name in found:
            _exchange(posix, name, getattr(CALLS, name))


def _exchange(module: ModuleType, name: str, wrapper: Any) -> None:
    _exchange_in(vars(module), name, wrapper)


def _exchange_in(namespace: dict[str, Any], name: str, wrapper: Any) -> None:
    original = namespace[name]
    namespace[name] = wrapper

    def undo() -> None:
        if namespace.get(name) == wrapper:
            namespace[name] = original

    _undo.append(undo)


def _say_what_is_supported(wrappers: dict[int, Any]) -> None:
    """`shutil` and others look up in these sets what a function of `os` can do."""
    for supported in (
        os.supports_dir_fd,
        os.supports_effective_ids,
        os.supports_fd,
        os.supports_follow_symlinks,
    ):
        added = {wrappers[id(function)] for function in supported if id(function) in wrappers}
        supported.update(added)
        _undo.append(partial(supported.difference_update, added))


def _exchange_globals(wrappers: dict[int, Any]) -> None:
    for module_name, module in list(sys.modules.items()):
        if module_name.partition(".")[0] in _UNTOUCHED or not isinstance(module, ModuleType):
            continue
        if module_name.startswith("torntail.record."):
            continue
        # Not `vars`, which would load a module whose loading was put off.
        namespace = object.__getattribute__(module, "__dict__")
        values = list(namespace.values())
        # Nearly all modules hold none of these functions, and there are hundreds of modules.
        if wrappers.keys().isdisjoint(map(id, values)):
            continue
        for name, value in list(namespace.items()):
            wrapper = wrappers.get(id(value))
            if wrapper is not None:
                _exchange_in(namespace, name, wrapper)


def _exchange_defaults(wrappers: dict[int, Any]) -> None:
    tempfile = sys.modules.get("tempfile")
    closer = getattr(tempfile, "_TemporaryFileCloser", None)
    for function in [] if closer is None else list(vars(closer).values()):
        if isinstance(function, FunctionType) and function.__defaults__:
            original = function.__defaults__
            function.__defaults__ = tuple(
                wrappers.get(id(default), default) for default in original
            )
            _undo.append(partial(setattr, function, "__defaults__", original))
