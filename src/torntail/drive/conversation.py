"""Requests and answers with a driver, over the pipes of a process however that was started.

Decides what breaks the protocol and by which outcome each breach is known:

- no answer in time, half a line included, is `Hung`;
- a process that ended is `Refused` with the kind `exit`;
- a line that is no answer, one that is too long, or an answer to another request is
  `StrangeResult`.

After any of them nothing more is asked. Does not decide what becomes of the process
(`driver_process`) or what is asked (`child_store`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple, NoReturn, assert_never

import msgspec

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
from torntail.session import SessionHeader
from torntail.session.codec import MAXIMUM_DEPTH, parse_json
from torntail.session.dialects import DIALECTS, TORNTAIL, Dialect

__all__ = [
    "BreakOutcome",
    "Broken",
    "Conversation",
    "DriverError",
    "Reply",
    "answer_id",
    "gone",
    "greeting",
    "told",
]

BreakOutcome = Hung | Refused | StrangeResult
"""What a breach of the protocol comes to."""


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
    the strict one made of it. The events in it are of the `dialect`.
    """

    result: bytes | None = None
    error: WireError | None = None
    value: Any = None
    dialect: Dialect = TORNTAIL


class Conversation:
    """Requests and answers over the pipes of a process, however that was started."""

    def __init__(self, lines: Lines) -> None:
        self.lines = lines
        self._number = 0
        self.broken: BreakOutcome | None = None
        self.dialect = TORNTAIL

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
        yield from self.answers(self.post(requests), requests, seconds)

    def post(self, requests: Sequence[tuple[str, dict[str, Any]]]) -> range:
        """Sends requests at once; gives their ids. Raises `Broken`."""
        if self.broken is not None:
            raise Broken(gone(self.broken))
        first = self._number
        text = b"".join(
            encode_request(call, first + index, **self._spoken(fields))
            for index, (call, fields) in enumerate(requests)
        )
        self._number += len(requests)
        self.lines.post(text)
        return range(first, self._number)

    def answers(
        self, numbers: range, requests: Sequence[tuple[str, dict[str, Any]]], seconds: float
    ) -> Iterator[Reply]:
        """Waits for the answers to requests that were sent, in order of the requests."""
        if self.broken is not None:
            raise Broken(gone(self.broken))
        answers: dict[int, Reply] = {}
        for number, (call, _) in zip(numbers, requests, strict=True):
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
            yield answers[number]._replace(dialect=self.dialect)

    def _spoken(self, fields: dict[str, Any]) -> dict[str, Any]:
        """The fields of a request in the dialect of the driver."""
        if not self.dialect.wraps:
            return fields
        spoken = dict(fields)
        if isinstance(fields.get("header"), SessionHeader):
            spoken["header"] = self.dialect.spoken_header(fields["header"])
        if "events" in fields:
            spoken["events"] = [self.dialect.spoken(event) for event in fields["events"]]
        return spoken

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
    """The answer to hello, whose dialect is spoken from then on.

    Raises `DriverError` if it is none, `Broken` as any call.
    """
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
    conversation.dialect = DIALECTS[hello.dialect]
    return hello


def told(outcome: BreakOutcome) -> str:
    """An outcome in a few words."""
    if isinstance(outcome, Hung):
        return f"no answer within {outcome.seconds:g} s"
    return outcome.reason if isinstance(outcome, StrangeResult) else outcome.text
