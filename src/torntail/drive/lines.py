"""Lines to and from a process through its pipes, within bounds of time and of memory.

Decides how long is waited, how long a line may be and how much of the standard error is kept.
Decides nothing about what the lines say. Not for several threads at once.
"""

from __future__ import annotations

import os
import select
import time
from typing import Final

from torntail.drive.protocol import ANSWER_BYTES

__all__ = ["Lines", "LinesEnded", "LinesSilent", "LinesTooLong"]

_READ_BYTES: Final = 1 << 20
_ERROR_BYTES: Final = 16 * 1024


class LinesSilent(Exception):
    """No whole line came in time; the message says what had come instead, if anything."""


class LinesEnded(Exception):
    """The output has ended; the message tells of half a line, if there was one."""


class LinesTooLong(Exception):
    """A line was longer than any answer may be."""


class Lines:
    """The pipes of one process, given as descriptors that stay the caller's to close."""

    def __init__(self, to: int, out: int, errors: int | None) -> None:
        self._to = to
        self._out = out
        self._errors = errors
        for descriptor in (to, out, errors):
            if descriptor is not None:
                os.set_blocking(descriptor, False)
        self._waiting = bytearray()
        self._read = bytearray()
        self._searched = 0
        self._told = bytearray()
        self._deaf = self._over = False
        self._poll = select.poll()
        self._poll.register(out, select.POLLIN)
        if errors is not None:
            self._poll.register(errors, select.POLLIN)

    @property
    def error_text(self) -> str:
        """The end of what the process has written to its standard error, on one line."""
        self._listen_to_errors()
        text = bytes(self._told).decode("utf-8", "replace").strip()
        return " ".join(text.split())[-400:]

    def post(self, text: bytes) -> None:
        """Has text sent; what the pipe does not take at once goes out while lines are awaited."""
        self._waiting += text
        self._send()

    def line(self, seconds: float) -> bytes:
        """The next line without its newline.

        Raises `LinesSilent`, `LinesEnded` or `LinesTooLong`.
        """
        until = time.monotonic() + seconds
        while True:
            line = self._take()
            if line is not None:
                return line
            if len(self._read) > ANSWER_BYTES:
                raise LinesTooLong
            left = until - time.monotonic()
            if left <= 0:
                begun = f"after {len(self._read)} bytes of a line" if self._read else ""
                raise LinesSilent(begun)
            self._pump(left)

    def waiting(self) -> bytes:
        """What has come unasked for, up to now."""
        try:
            self._receive()
        except LinesEnded:
            pass
        return bytes(self._read)

    def drain(self) -> None:
        """Takes in what has come, and forgets it unless it is on the standard error."""
        self._listen_to_errors()
        try:
            self._receive()
        except LinesEnded:
            return
        self._read.clear()

    def shut(self) -> None:
        """Nothing is read or written any more: the descriptors are about to be closed."""
        self._listen_to_errors()
        self._errors = None
        self._deaf = self._over = True

    # --- the pipes ------------------------------------------------------------------------------

    def _take(self) -> bytes | None:
        end = self._read.find(b"\n", self._searched)
        if end < 0:
            self._searched = len(self._read)
            return None
        line = bytes(memoryview(self._read)[:end])
        del self._read[: end + 1]
        self._searched = 0
        return line

    def _pump(self, seconds: float) -> None:
        if self._waiting and not self._deaf:
            self._poll.register(self._to, select.POLLOUT)
        try:
            # At most a second at once: a signal handler may have to be run meanwhile.
            ready = self._poll.poll(1000 * min(seconds, 1.0))
        finally:
            if self._waiting and not self._deaf:
                self._poll.unregister(self._to)
        for descriptor, _ in ready:
            if descriptor == self._errors:
                self._listen_to_errors()
            elif descriptor == self._out:
                self._receive()
            else:
                self._send()

    def _receive(self) -> None:
        if self._over:
            raise LinesEnded("")
        try:
            piece = os.read(self._out, _READ_BYTES)
        except BlockingIOError:
            return
        if not piece:
            begun = f" after {len(self._read)} bytes of a line" if self._read else ""
            raise LinesEnded(begun)
        self._read += piece

    def _send(self) -> None:
        while self._waiting and not self._deaf:
            try:
                sent = os.write(self._to, self._waiting)
            except BlockingIOError:
                return
            except BrokenPipeError:
                # It no longer listens; what it still says is heard.
                self._deaf = True
                return
            del self._waiting[:sent]

    def _listen_to_errors(self) -> None:
        while self._errors is not None:
            try:
                piece = os.read(self._errors, _READ_BYTES)
            except (BlockingIOError, OSError):
                return
            if not piece:
                self._poll.unregister(self._errors)
                self._errors = None
                return
            self._told += piece
            del self._told[:-_ERROR_BYTES]
            if len(piece) < _READ_BYTES:
                return
