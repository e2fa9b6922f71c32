"""The parent's end of the line to a helper: requests, replies, and news of ends.

Decides how a helper is started and what is made of its refusals.
"""

from __future__ import annotations

import marshal
import select
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, Final

from torntail.record.traced.linux import unavailable
from torntail.record.traced.values import TracingUnavailable

__all__ = ["Client", "HelperGone"]

_SOURCES: Final = str(Path(__file__).resolve().parents[3])
# Isolated and without site: nothing of the environment slows or changes the helper.
_COMMAND: Final = (
    "import sys; sys.path.insert(0, sys.argv[1]);"
    " from torntail.record.traced.helper import main; main()"
)
_END_SECONDS: Final = 10.0


class HelperGone(RuntimeError):
    """The tracing helper died or was killed, and with it all that it traced."""


class Client:
    """One helper. Its methods may be called from several threads."""

    def __init__(self) -> None:
        reason = unavailable()
        if reason is not None:
            raise TracingUnavailable(reason)
        self._lock = threading.RLock()
        self._news: dict[int, tuple[Any, ...]] = {}
        ours, theirs = socket.socketpair()
        self._socket = ours
        number = theirs.fileno()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _COMMAND, _SOURCES, str(number)],
                pass_fds=[number],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                cwd="/",
            )

    @property
    def pid(self) -> int:
        """The helper's process."""
        return self._process.pid

    def ask(self, do: str, descriptors: tuple[int, ...] = (), **fields: Any) -> tuple[Any, ...]:
        """Sends a request and waits for its reply."""
        with self._lock:
            self.send(do, descriptors, **fields)
            return self.reply()

    def send(self, do: str, descriptors: tuple[int, ...] = (), **fields: Any) -> None:
        """Sends a request whose reply is taken later, in order."""
        data = marshal.dumps({"do": do, **fields})
        message = len(data).to_bytes(4, "little") + data
        with self._lock:
            try:
                if descriptors:
                    sent = socket.send_fds(self._socket, [message[:4]], list(descriptors))
                    message = message[sent:]
                self._socket.sendall(message)
            except OSError as error:
                raise HelperGone("the tracing helper is gone") from error

    def reply(self) -> tuple[Any, ...]:
        """The next reply."""
        with self._lock:
            while True:
                message = self._receive()
                if message[0] == "exited":
                    self._news[message[1]] = message
                elif message[0] == "refused":
                    raise TracingUnavailable(f"tracing is refused: {message[1]}")
                elif message[0] == "wrong":
                    raise OSError(*message[1:])
                else:
                    return message

    def ended(self, number: int, timeout_seconds: float | None) -> tuple[Any, ...] | None:
        """How a command ended, None if it has not within the time."""
        until = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        while number not in self._news:
            ready = self._ready(None if until is None else max(0.0, until - time.monotonic()))
            with self._lock:
                if number in self._news:
                    break
                if not ready:
                    return None
                # Another thread may have taken it meanwhile.
                if self._ready(0):
                    message = self._receive()
                    assert message[0] == "exited", message
                    self._news[message[1]] = message
        return self._news[number]

    def _ready(self, timeout_seconds: float | None) -> bool:
        """Waits until there is something to read."""
        poll = select.poll()
        try:
            poll.register(self._socket, select.POLLIN)
        except ValueError as error:
            raise HelperGone("the tracing helper is gone") from error
        return bool(poll.poll(None if timeout_seconds is None else 1000 * timeout_seconds))

    def _receive(self) -> tuple[Any, ...]:
        header = self._exactly(4)
        message: tuple[Any, ...] = marshal.loads(self._exactly(int.from_bytes(header, "little")))
        if message[0] == "broken":
            raise HelperGone(f"the tracing helper failed:\n{message[1]}")
        return message

    def _exactly(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            try:
                piece = self._socket.recv(count - len(data))
            except OSError:
                piece = b""
            if not piece:
                raise HelperGone("the tracing helper is gone")
            data += piece
        return bytes(data)

    def close(self) -> None:
        """Ends the helper, and with it all that it traces; again is harmless."""
        self._socket.close()
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
