"""File objects whose writes are seen: `io.FileIO` and `open`.

The file objects of `io` write in C and never pass `os`, so a file opened for writing gets a raw
file of an own class, and the buffers of `io` on top: what is logged is what leaves the buffer. The
class is used whenever the wrappers stand, also while nothing is recorded, so that a file opened
before a recording is seen in it. Files opened only for reading are left alone.

Does not cover file objects made before the wrappers stood, or by `_io` under its own name.
"""

from __future__ import annotations

import io
import os
import warnings
from abc import ABCMeta
from functools import partial
from typing import Any, Final

from torntail.record.byte_calls import recorded_truncate, recorded_write
from torntail.record.calls import CALLS
from torntail.record.real import Real

__all__ = ["OPEN", "RecordedFile"]

_MODE: Final = 0o666
_BINARY_ARGUMENTS: Final = (None, None, None)

_real_write: Final = Real.FileIO.write
_real_truncate: Final = Real.FileIO.truncate


class _AnyRawFile(ABCMeta):
    """So that files opened before, or only for reading, still are of the class `io.FileIO`."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return cls.__subclasscheck__(type(instance))

    def __subclasscheck__(cls, subclass: type) -> bool:
        if cls is RecordedFile:
            return issubclass(subclass, Real.FileIO)
        return super().__subclasscheck__(subclass)


def _open(name: Any, flags: int) -> int:
    return CALLS.open(name, flags, _MODE)


class RecordedFile(io.FileIO, metaclass=_AnyRawFile):
    """An `io.FileIO` whose opening, writes and truncations are seen."""

    def __init__(
        self, file: Any, mode: str = "r", closefd: bool = True, opener: Any = None
    ) -> None:
        super().__init__(file, mode, closefd, _open if opener is None else opener)

    def write(self, data: Any, /) -> Any:
        """Writes once; gives the number of bytes written, None if it would block."""
        ledger = CALLS.ledger
        if ledger is None or self.closed:
            return _real_write(self, data)
        descriptor = self.fileno()
        inode = ledger.inode_of(descriptor)
        if inode is None:
            return _real_write(self, data)
        return recorded_write(ledger, inode, descriptor, data, partial(_real_write, self))

    def truncate(self, size: int | None = None, /) -> int:
        """Changes the length, to the position if none is given."""
        ledger = CALLS.ledger
        if ledger is None or self.closed:
            return _real_truncate(self, size)
        inode = ledger.inode_of(self.fileno())
        if inode is None:
            return _real_truncate(self, size)
        with ledger.lock:
            length = self.tell() if size is None else size
            call = partial(_real_truncate, self, length)
            return recorded_truncate(ledger, inode, length, call)  # type: ignore[no-any-return]


class Opener:
    """Holds the `open` that stands in the place of the built-in one."""

    def open(
        self,
        file: Any,
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        closefd: bool = True,
        opener: Any = None,
    ) -> Any:
        """The built-in `open`, with a raw file that is seen if it can write."""
        raw_mode = _writing_mode(mode)
        binary = raw_mode is not None and "b" in mode
        if raw_mode is None or (binary and (encoding, errors, newline) != _BINARY_ARGUMENTS):
            # For reading, or wrong in a way that the real function says before it opens anything.
            return Real.open_file(file, mode, buffering, encoding, errors, newline, closefd, opener)
        if binary and buffering == 1:
            warnings.warn(
                "line buffering (buffering=1) isn't supported in binary mode,"
                " the default buffer size will be used",
                RuntimeWarning,
                stacklevel=2,
            )
            buffering = -1
        layer: Any = RecordedFile(
            file if isinstance(file, int) else os.fspath(file), raw_mode, closefd, opener
        )
        try:
            lines = buffering == 1 or (buffering < 0 and layer.isatty())
            if buffering == 0:
                if not binary:
                    raise ValueError("can't have unbuffered text I/O")
                return layer
            size = layer._blksize if buffering < 0 or buffering == 1 else buffering
            buffer = io.BufferedRandom if "+" in mode else io.BufferedWriter
            layer = buffer(layer, size)
            if not binary:
                layer = io.TextIOWrapper(layer, encoding, errors, newline, lines)
                layer.mode = mode
        except BaseException:
            layer.close()
            raise
        return layer

    def __reduce__(self) -> str:
        return "OPENER"


OPENER: Final = Opener()
OPEN: Final = OPENER.open
"""One object, so that `builtins.open is io.open` stays true."""


def _writing_mode(mode: Any) -> str | None:
    """The raw file's mode of a well-formed mode that can write; None of any other."""
    if not isinstance(mode, str):
        return None
    letters = set(mode)
    if len(letters) != len(mode) or not letters <= set("rwxabt+") or {"b", "t"} <= letters:
        return None
    kind = letters & set("rwxa")
    if len(kind) != 1 or (kind == {"r"} and "+" not in letters):
        return None
    return kind.pop() + ("+" if "+" in letters else "")
