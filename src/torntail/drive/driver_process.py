"""The process of a driver: started, asked, and ended, whatever it does.

Decides that a driver that breaks the protocol (`conversation`) is killed with all that it started,
and how its end is told. Does not decide what is asked (`child_store`) or whether an answer is right
(`judge`).
"""

from __future__ import annotations

import marshal
import os
import select
import shlex
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from torntail.drive import keeper
from torntail.drive.conversation import (
    BreakOutcome,
    Broken,
    Conversation,
    DriverError,
    Reply,
    greeting,
    told,
)
from torntail.drive.lines import Lines
from torntail.drive.protocol import HelloResult
from torntail.judge.history import Refused

__all__ = ["DriverProcess", "Ended"]

_END_SECONDS: Final = 10.0


class Ended(NamedTuple):
    """How the process of a driver ended.

    `code` is its exit code, negative for a signal; `left_running` counts the processes that it left
    behind when it ended by itself; they were killed.
    """

    code: int
    left_running: int


class DriverProcess:
    """A running driver, and what it said of itself.

    With `lingers`, what it started outlives it until `kill`. Raises `DriverError` where the command
    cannot be run or does not greet, within `seconds`.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        seconds: float,
        environment: Mapping[str, str] | None = None,
        directory: Path | str | None = None,
        greet: bool = True,
        lingers: bool = False,
    ) -> None:
        self.command = tuple(command)
        self._options = ("--lingers",) if lingers else ()
        self.lock = threading.RLock()
        self._ended: Ended | None = None
        self._line, theirs = socket.socketpair()
        pipes: list[int] = []
        try:
            with theirs:
                self._start(theirs, pipes, environment, directory)
            begun = self._news(_END_SECONDS)
            if begun is None or "failed" in begun:
                reason = "its keeper ended" if begun is None else begun["failed"]
                raise DriverError(f"{shlex.join(command)} cannot be run: {reason}")
            self.pid: int = begun["pid"]
            self.conversation = Conversation(Lines(*self._pipes))
            if greet:
                self.hello = self._greet(seconds)
        except BaseException:
            self.kill()
            raise

    def _start(
        self,
        theirs: socket.socket,
        pipes: list[int],
        environment: Mapping[str, str] | None,
        directory: Path | str | None,
    ) -> None:
        number = theirs.fileno()
        self._keeper = subprocess.Popen(
            [
                *(sys.executable, "-I", "-S", keeper.__file__, str(number)),
                *self._options,
                *self.command,
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            pass_fds=[number],
            env=dict(os.environ if environment is None else environment),
            cwd=directory,
            start_new_session=True,
        )
        assert self._keeper.stdin is not None
        assert self._keeper.stdout is not None
        assert self._keeper.stderr is not None
        self._pipes = (
            self._keeper.stdin.fileno(),
            self._keeper.stdout.fileno(),
            self._keeper.stderr.fileno(),
        )

    def _greet(self, seconds: float) -> HelloResult:
        try:
            return greeting(self.conversation, seconds)
        except Broken as error:
            ended = isinstance(error.outcome, Refused)
            words = "" if ended else self.last_words()
            why = told(self._end_for(error.outcome))
            raise DriverError(
                f"{shlex.join(self.command)} does not answer hello: {why}{words}"
            ) from None

    # --- asking ---------------------------------------------------------------------------------

    @property
    def alive(self) -> bool:
        """Whether it may be asked further."""
        return self._ended is None and self.conversation.broken is None

    def ask_all(
        self, requests: Sequence[tuple[str, dict[str, Any]]], seconds: float
    ) -> Iterator[Reply]:
        """As `Conversation.ask_all`; a driver that breaks the protocol is killed."""
        with self.lock:
            try:
                yield from self.conversation.ask_all(requests, seconds)
            except Broken as error:
                raise Broken(self._end_for(error.outcome)) from None

    def hear(
        self, numbers: range, requests: Sequence[tuple[str, dict[str, Any]]], seconds: float
    ) -> Iterator[Reply]:
        """The answers to requests that `conversation.post` has sent; as `ask_all`."""
        with self.lock:
            try:
                yield from self.conversation.answers(numbers, requests, seconds)
            except Broken as error:
                raise Broken(self._end_for(error.outcome)) from None

    def _end_for(self, outcome: BreakOutcome) -> BreakOutcome:
        if self._ended is not None:
            return outcome
        if isinstance(outcome, Refused):
            # Its output has ended, so that it is about to.
            ended = self._wait(0.5) or self.kill()
            how = (
                f"ended with exit code {ended.code}"
                if ended.code >= 0
                else f"was killed by signal {-ended.code}"
            )
            text = f"{outcome.text}: it {how}{self.last_words()}"
            outcome = self.conversation.broken = Refused(outcome.kind, outcome.exception, text)
        self.kill()
        return outcome

    def last_words(self) -> str:
        """What it wrote last to its standard error, as the end of a sentence."""
        text = self.conversation.lines.error_text
        return f"; it wrote last: {text}" if text else ""

    # --- the end --------------------------------------------------------------------------------

    def ended(self, seconds: float) -> Ended | None:
        """How it ended by itself, or by a signal, once it has; None if it has not in time."""
        return self._wait(seconds)

    def end(self, seconds: float) -> Ended | None:
        """Ends its input and waits for it to end by itself; None if it does not, and it is killed.

        Again is harmless.
        """
        if self._ended is None:
            assert self._keeper.stdin
            self._keeper.stdin.close()
            if self._wait(seconds) is None:
                self.kill()
                return None
            self._close()
        return self._ended

    def kill(self) -> Ended:
        """Kills it, and all that it started; again is harmless."""
        if self._ended is None:
            try:
                self._line.send(b"end")
            except OSError:
                pass
            # One that does not say how it ended was itself killed, or never began.
            if self._wait(_END_SECONDS) is None:
                self._ended = Ended(-9, 0)
        self._close()
        return self._ended or Ended(-9, 0)

    def _wait(self, seconds: float) -> Ended | None:
        news = self._news(seconds) if self._ended is None else None
        if news is not None and "code" in news:
            self._ended = Ended(news["code"], news["left"])
        return self._ended

    def _close(self) -> None:
        self._line.close()
        process = getattr(self, "_keeper", None)
        if process is None:
            return
        try:
            process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if hasattr(self, "conversation"):
            self.conversation.lines.shut()
        for file in (process.stdin, process.stdout, process.stderr):
            file.close()

    def _news(self, seconds: float) -> dict[str, Any] | None:
        """What the keeper says next; None if it says nothing in time, or is gone."""
        until = time.monotonic() + seconds
        data = b""
        while len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4], "little"):
            left = until - time.monotonic()
            # What is drained meanwhile cannot keep the process from ending.
            self._drain()
            if left <= 0:
                return None
            if not select.select([self._line], [], [], min(left, 0.05))[0]:
                continue
            try:
                piece = self._line.recv(4096)
            except OSError:
                return None
            if not piece:
                return None
            data += piece
        news: dict[str, Any] = marshal.loads(data[4:])
        return news

    def _drain(self) -> None:
        if hasattr(self, "conversation"):
            self.conversation.lines.drain()

    def __enter__(self) -> DriverProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
