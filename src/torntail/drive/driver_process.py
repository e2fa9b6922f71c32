"""The process of a driver: started, asked, and ended, whatever it does.

Decides what breaks the protocol and by which outcome each breach is known:

- no answer in time, half a line included, is `Hung`;
- a process that ended is `Refused` with the kind `exit`;
- a line that is no answer, one that is too long, or an answer to another request is
  `StrangeResult`.

After any of them the process is killed with all that it started, and a new one is started for the
next store. Does not decide what is asked (`child_store`) or whether an answer is right (`judge`).
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
from typing import Any, Final, NamedTuple, NoReturn, assert_never

import msgspec

from torntail.drive import keeper
from torntail.drive.lines import Lines, LinesEnded, LinesSilent, LinesTooLong
from torntail.drive.protocol import (
    ANSWER_BYTES,
    PROTOCOL,
    Answer,
    HelloResult,
    WireError,
    encode_request,
)
from torntail.judge.history import Hung, Refused, StrangeResult
from torntail.session.codec import MAXIMUM_DEPTH, parse_json

__all__ = [
    "Broken",
    "Conversation",
    "DriverError",
    "DriverProcess",
    "Ended",
    "Reply",
    "answer_id",
    "gone",
    "greeting",
    "told",
]

BreakOutcome = Hung | Refused | StrangeResult

_END_SECONDS: Final = 10.0


class DriverError(Exception):
    """There is no driver to speak to: it cannot be run, or its hello is none; says why."""


class Broken(Exception):
    """The driver broke the protocol, or ended; `outcome` is what the call came to."""

    def __init__(self, outcome: BreakOutcome) -> None:
        super().__init__(str(outcome))
        self.outcome = outcome


class Reply(NamedTuple):
    """An answer: its error, or its result as JSON text.

    Of a result that the fast parser cannot read, which knows no lone surrogates, `value` is what
    the strict one made of it.
    """

    result: bytes | None = None
    error: WireError | None = None
    value: Any = None


class Ended(NamedTuple):
    """How the process of a driver ended.

    `code` is its exit code, negative for a signal; `left_running` counts the processes that it left
    behind when it ended by itself; they were killed.
    """

    code: int
    left_running: int


# --- asking ---------------------------------------------------------------------------------------


class Conversation:
    """Requests and answers over the pipes of a process, however that was started."""

    def __init__(self, lines: Lines) -> None:
        self.lines = lines
        self._number = 0
        self.broken: BreakOutcome | None = None

    @property
    def next_number(self) -> int:
        """The id that the next request will have."""
        return self._number

    def ask(self, call: str, seconds: float, **fields: Any) -> Reply:
        """One request, and its answer."""
        return next(self.ask_all([(call, fields)], seconds))

    def ask_all(
        self, requests: Sequence[tuple[str, dict[str, Any]]], seconds: float
    ) -> Iterator[Reply]:
        """Sends requests at once; gives their answers, in order of the requests.

        Each answer may take `seconds`, counted from the one before. Raises `Broken`.
        """
        if self.broken is not None:
            raise Broken(gone(self.broken))
        first = self._number
        text = b"".join(
            encode_request(call, first + index, **fields)
            for index, (call, fields) in enumerate(requests)
        )
        self._number += len(requests)
        self.lines.post(text)
        answers: dict[int, Reply] = {}
        for number, (call, _) in enumerate(requests, first):
            while number not in answers:
                answered, reply = self._answer(call, seconds)
                if answered in answers or not number <= answered < self._number:
                    self._breaks(
                        StrangeResult(
                            f"an answer with the id {answered}, which was not asked for: {number} "
                            "was"
                        )
                    )
                answers[answered] = reply
            yield answers[number]

    def _answer(self, call: str, seconds: float) -> tuple[int, Reply]:
        try:
            line = self.lines.line(seconds)
        except LinesSilent:
            self._breaks(Hung(seconds))
        except LinesTooLong:
            self._breaks(StrangeResult(f"a line of more than {ANSWER_BYTES} bytes"))
        except LinesEnded as error:
            self._breaks(_ended(f"the driver's output ended{error} while {call} was awaited"))
        try:
            return _answer_of(line)
        except (ValueError, RecursionError) as error:
            self._breaks(StrangeResult(f"a line that is no answer: {_shown(line)} ({error})"))

    def _breaks(self, outcome: BreakOutcome) -> NoReturn:
        self.broken = outcome
        raise Broken(outcome) from None


_decode_answer: Final = msgspec.json.Decoder(Answer).decode


def _answer_of(line: bytes) -> tuple[int, Reply]:
    """The id and the content of an answer; raises ValueError for what is none."""
    try:
        answer = _decode_answer(line)
    except msgspec.DecodeError:
        return _strict_answer(line)
    if (answer.result is msgspec.UNSET) == (answer.error is msgspec.UNSET):
        raise ValueError(_ONE_OF)
    if isinstance(answer.result, msgspec.Raw):
        return answer.id, Reply(bytes(answer.result))
    return answer.id, Reply(error=_error_of(parse_json(bytes(answer.error or b""))))


def answer_id(line: bytes) -> int | None:
    """Which request a line answers, if it is an answer."""
    try:
        return _answer_of(line)[0]
    except (ValueError, RecursionError):
        return None


def _strict_answer(line: bytes) -> tuple[int, Reply]:
    record = parse_json(line, maximum_depth=_DEEPEST_ANSWER)
    if not isinstance(record, dict) or type(record.get("id")) is not int:
        raise ValueError("it is no object with an id")
    if ("result" in record) == ("error" in record):
        raise ValueError(_ONE_OF)
    if "result" in record:
        return record["id"], Reply(b"", value=record["result"])
    return record["id"], Reply(error=_error_of(record["error"]))


_ONE_OF: Final = "it has to have either result or error"
_DEEPEST_ANSWER: Final = MAXIMUM_DEPTH + 4


def _error_of(record: Any) -> WireError:
    try:
        return msgspec.convert(record, WireError)
    except msgspec.ValidationError as error:
        raise ValueError(f"its error: {error}") from None


def _shown(line: bytes) -> str:
    text = line[:80].decode("utf-8", "backslashreplace")
    return repr(text) + (f" and {len(line) - 80} bytes more" if len(line) > 80 else "")


def _ended(text: str) -> Refused:
    return Refused("exit", "DriverEnded", text)


def gone(outcome: BreakOutcome) -> Refused:
    """What a further call comes to, once the driver has been ended for this outcome."""
    match outcome:
        case Hung(seconds):
            why = f"had not answered after {seconds:g} s"
        case StrangeResult(reason):
            why = f"wrote {reason}"
        case Refused(text=text):
            return _ended(text)
        case _:
            assert_never(outcome)
    return _ended(f"the driver was ended: it {why}")


def greeting(conversation: Conversation, seconds: float) -> HelloResult:
    """The answer to hello; raises `DriverError` if it is none, `Broken` as any call."""
    reply = conversation.ask("hello", seconds, protocol=PROTOCOL)
    if reply.error is not None:
        raise DriverError(f"the driver refuses hello ({reply.error.kind}): {reply.error.message}")
    assert reply.result is not None
    try:
        hello = msgspec.json.decode(reply.result, type=HelloResult)
    except msgspec.ValidationError as error:
        raise DriverError(f"the driver's answer to hello is not understood: {error}") from None
    if hello.protocol != PROTOCOL:
        raise DriverError(f"the driver speaks protocol {hello.protocol}, not {PROTOCOL}")
    return hello


# --- the process ----------------------------------------------------------------------------------


class DriverProcess:
    """A running driver, and what it said of itself.

    Raises `DriverError` where the command cannot be run or does not greet, within `seconds`.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        seconds: float,
        environment: Mapping[str, str] | None = None,
        directory: Path | str | None = None,
        greet: bool = True,
    ) -> None:
        self.command = tuple(command)
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
            [sys.executable, "-I", "-S", keeper.__file__, str(number), *self.command],
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


def told(outcome: BreakOutcome) -> str:
    """An outcome in a few words."""
    if isinstance(outcome, Hung):
        return f"no answer within {outcome.seconds:g} s"
    return outcome.reason if isinstance(outcome, StrangeResult) else outcome.text
