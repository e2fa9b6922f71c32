"""Syncs that are made without Python, as far as they can be noticed: through `ctypes`.

Decides by the look-up of the function, which the interpreter tells of, that a store may sync where
no recording sees it. What a C extension or cffi does cannot be noticed from inside.
"""

from __future__ import annotations

import gc
import sys
from typing import Any, Final

__all__ = ["foreign_syncs", "watch_foreign_syncs"]

_NAMES: Final = frozenset({"fdatasync", "fsync", "msync", "sync", "sync_file_range", "syncfs"})

_seen: Final[list[str]] = []
_watching: Final[list[bool]] = []


def watch_foreign_syncs() -> None:
    """From now on look-ups are noted; those of functions that still live are found. Cheap again."""
    if _watching:
        return
    _watching.append(True)  # An audit hook stays for good.
    sys.addaudithook(_heard)
    ctypes = sys.modules.get("ctypes")
    if ctypes is not None:
        pointer: type = ctypes._CFuncPtr
        for one in gc.get_objects():
            if issubclass(type(one), pointer):
                _note(getattr(one, "__name__", None))


def foreign_syncs() -> tuple[str, ...]:
    """The names of the sync functions that this process has looked up through `ctypes`."""
    return tuple(_seen)


def _heard(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "ctypes.dlsym":
        _note(arguments[1])


def _note(name: Any) -> None:
    if isinstance(name, bytes):
        name = name.decode("ascii", "replace")
    if isinstance(name, str) and name in _NAMES and name not in _seen:
        _seen.append(name)
