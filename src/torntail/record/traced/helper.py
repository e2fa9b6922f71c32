"""The process that traces: it answers its parent's requests between the events of the children.

It stands apart because a tracer waits for any child of its process, and would take those of
whoever uses torntail. Its end is the end of all it traces; the end of its parent is its own.

A message is its length in four bytes and a marshalled value: both ends are one interpreter. Each
request has one reply, and `exited` is told on its own.
"""

from __future__ import annotations

import _socket
import fcntl
import gc
import marshal
import os
import sys
import time

from torntail.record.traced.book import Book
from torntail.record.traced.spawn import spawn
from torntail.record.traced.strikes import Strikes
from torntail.record.traced.tracer import Tracer

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from typing import Any, Final
else:
    import _signal as signal  # Without enum, which is slow to import.

__all__ = ["Helper", "main"]

_SIGNALS: Final = frozenset({signal.SIGCHLD, signal.SIGIO})
_CHILD_ONLY: Final = frozenset({signal.SIGCHLD})
_REQUESTS_ONLY: Final = frozenset({signal.SIGIO})
_DESCRIPTORS: Final = 3
_LONGEST_WAIT_SECONDS: Final = 1.0
_STEPS_BEFORE_REQUESTS: Final = 64
_OUTPUT_SECONDS: Final = 0.25


class Helper:
    """The loop over requests and events."""

    def __init__(self, descriptor: int) -> None:
        self._socket = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM, 0, descriptor)
        self._tracer = Tracer(self._while_waiting)
        self._deadlines: dict[int, float] = {}

    def run(self) -> None:
        """Serves until the parent is gone or says so."""
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        fcntl.fcntl(self._socket.fileno(), fcntl.F_SETOWN, os.getpid())
        flags = fcntl.fcntl(self._socket.fileno(), fcntl.F_GETFL)
        fcntl.fcntl(self._socket.fileno(), fcntl.F_SETFL, flags | os.O_ASYNC)
        while self._serve():
            self._trace()

    def _trace(self) -> None:
        """Handles events until there may be a request."""
        tracer = self._tracer
        steps = 0
        while True:
            while tracer.step():
                steps += 1
                if steps % _STEPS_BEFORE_REQUESTS == 0:
                    self._look_at_the_clock()
                    if signal.sigtimedwait(_REQUESTS_ONLY, 0) is not None:
                        return
            if tracer.ended:
                self._tell_ends()
            timeout = self._look_at_the_clock()
            told = signal.sigtimedwait(_SIGNALS, timeout)
            if (told is None and timeout == _LONGEST_WAIT_SECONDS) or (
                told is not None and told.si_signo == signal.SIGIO
            ):
                return

    def _look_at_the_clock(self) -> float:
        """Kills what is past its deadline; gives how long nothing has to be done, in seconds."""
        due = self._tracer.next_wake()
        if not self._deadlines and due is None:
            return _LONGEST_WAIT_SECONDS
        now = time.monotonic()
        for number, deadline in list(self._deadlines.items()):
            if deadline <= now:
                del self._deadlines[number]
                self._tracer.kill(number, "deadline")
        times = [*self._deadlines.values(), *([] if due is None else [due])]
        return max(0.0, min([_LONGEST_WAIT_SECONDS, *(one - now for one in times)]))

    def _while_waiting(self) -> None:
        """A child's call takes long: neither deadlines nor the parent's end wait for it."""
        self._look_at_the_clock()
        try:
            if not self._socket.recv(1, _socket.MSG_PEEK | _socket.MSG_DONTWAIT):
                raise BrokenPipeError
        except BlockingIOError:
            pass

    def _tell_ends(self) -> None:
        for number in self._tracer.ended:
            command = self._tracer.commands[number]
            self._deadlines.pop(number, None)
            if command.running:
                self._look_at_maps()
                self._send(("exited", number, command.status, command.reason, command.left))
        self._tracer.ended.clear()

    def _look_at_maps(self) -> None:
        if self._tracer.book is not None and self._tracer.book.maps:
            self._tracer.book.maps.look()

    # --- requests -------------------------------------------------------------------------------

    def _serve(self) -> bool:
        """Answers the requests that have come; False when there will be no more."""
        while True:
            try:
                header, descriptors = self._receive_header()
            except BlockingIOError:
                return True
            if len(header) < 4:
                return False
            data = self._receive(int.from_bytes(header, "little"))
            if data is None:
                return False
            request = marshal.loads(data)
            try:
                reply = getattr(self, "do_" + request["do"])(request, descriptors)
            except OSError as error:
                reply = ("wrong", error.errno, error.strerror, error.filename)
            finally:
                for descriptor in descriptors:
                    os.close(descriptor)
            self._send(reply)

    def do_record(self, request: dict[str, Any], descriptors: list[int]) -> tuple[Any, ...]:
        """Begins a recording; the one before is over."""
        if self._tracer.book is not None:
            self._tracer.book.maps.close()
        self._tracer.book = Book(request["root"], request["names"], request["next_inode"])
        self._tracer.strikes = Strikes()
        return ("recording",)

    def do_arm(self, request: dict[str, Any], descriptors: list[int]) -> tuple[Any, ...]:
        """Adds strikes."""
        assert self._tracer.book is not None
        return ("armed", self._tracer.strikes.arm(request["strikes"], self._tracer.book))

    def do_lift(self, request: dict[str, Any], descriptors: list[int]) -> tuple[Any, ...]:
        """Takes all strikes away."""
        self._tracer.strikes.lift()
        return ("lifted",)

    def do_start(self, request: dict[str, Any], descriptors: list[int]) -> tuple[Any, ...]:
        """Starts a command and waits until it is one."""
        status = os.fstat(descriptors[1])
        is_pipe = request["output"]
        try:
            spawned = spawn(request, descriptors, set(_SIGNALS))
        except OSError as error:
            return ("refused", error.strerror)
        number = self._tracer.add(spawned, (status.st_dev, status.st_ino) if is_pipe else None)
        command = self._tracer.commands[number]
        while not command.running and command.status is None:
            if not self._tracer.step():
                signal.sigtimedwait(_SIGNALS, _LONGEST_WAIT_SECONDS)
        if not command.running:
            return ("failed", spawned.why_it_failed())
        os.close(spawned.failure)
        if request["deadline_seconds"] is not None:
            self._deadlines[number] = time.monotonic() + request["deadline_seconds"]
        return ("started", number, command.pid)

    def do_kill(self, request: dict[str, Any], descriptors: list[int]) -> tuple[Any, ...]:
        """Kills a command with its tree."""
        self._tracer.kill(request["number"], "killed by the harness")
        return ("killed",)

    def do_mark(self, request: dict[str, Any], descriptors: list[int]) -> tuple[Any, ...]:
        """Puts an entry into the log, after all that has taken effect."""
        assert self._tracer.book is not None
        self._look_at_maps()
        self._tracer.book.entries.append(request["entry"])
        return ("marked",)

    def do_entries(self, request: dict[str, Any], descriptors: list[int]) -> tuple[Any, ...]:
        """The log from an index on, the problems, and the strikes that hit."""
        tracer = self._tracer
        # Whoever has read an output must find the whole of it in the log, and no more.
        # One that its pipe does not take is not waited for.
        while tracer.speaking:
            if not tracer.step() and signal.sigtimedwait(_CHILD_ONLY, _OUTPUT_SECONDS) is None:
                break
        self._look_at_maps()
        book = tracer.book
        if book is None:
            return ("entries", [], [], [], None)
        entries = book.entries[request["first"] :]
        return ("entries", entries, book.problems, tracer.strikes.struck, book.outside)

    # --- the socket -----------------------------------------------------------------------------

    def _receive_header(self) -> tuple[bytes, list[int]]:
        space = _socket.CMSG_SPACE(4 * _DESCRIPTORS)
        data, extra, _, _ = self._socket.recvmsg(4, space, _socket.MSG_DONTWAIT)
        descriptors: list[int] = []
        for level, kind, content in extra:
            if level == _socket.SOL_SOCKET and kind == _socket.SCM_RIGHTS:
                descriptors += memoryview(content).cast("i").tolist()
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)
        return data, descriptors

    def _receive(self, count: int) -> bytes | None:
        pieces = []
        while count:
            piece = self._socket.recv(count)
            if not piece:
                return None
            pieces.append(piece)
            count -= len(piece)
        return b"".join(pieces)

    def _send(self, message: tuple[Any, ...]) -> None:
        data = marshal.dumps(message)
        self._socket.sendall(len(data).to_bytes(4, "little") + data)


def main() -> None:
    """Serves the socket whose descriptor is the last argument."""
    # A log is many tuples and no cycles.
    gc.disable()
    helper = Helper(int(sys.argv[-1]))
    try:
        helper.run()
    except (BrokenPipeError, ConnectionResetError):
        pass  # The parent is gone; the end of this process ends the rest.
    except BaseException:
        import traceback

        try:
            helper._send(("broken", traceback.format_exc()))
        except OSError:
            pass
        raise


if __name__ == "__main__":
    main()
