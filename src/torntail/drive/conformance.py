"""Whether a driver keeps the rules of the protocol: what is to be right before its store is judged.

Decides which rules are tried, each in a few requests, and in what words a breach is told. Says
nothing about the store: whether what is loaded is what was appended, `certify` finds out.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from torntail.drive.child_store import StoreCall, understand
from torntail.drive.conversation import Broken, DriverError, Reply, answer_id, greeting, told
from torntail.drive.driver_process import DriverProcess
from torntail.drive.lines import LinesEnded, LinesSilent, LinesTooLong
from torntail.drive.protocol import PROTOCOL, HelloResult, encode_request
from torntail.judge.history import Refused, Returned, StrangeResult
from torntail.session import SessionEvent, SessionHeader

__all__ = ["CheckResult", "NoDriver", "check_driver"]

_LONG_BYTES: Final = 3_000_000
_END_SECONDS: Final = 5.0
_QUIET_SECONDS: Final = 0.3


class NoDriver(Exception):
    """There is nothing to check: the command cannot be run."""


class CheckResult(NamedTuple):
    """A rule, and how it is broken; `problem` is empty where it is kept."""

    rule: str
    problem: str

    @property
    def kept(self) -> bool:
        """Whether the driver keeps the rule."""
        return not self.problem


def check_driver(command: Sequence[str], *, seconds: float = 10.0) -> Iterator[CheckResult]:
    """Tries one rule after the other; each answer may take `seconds`.

    Ends early where there is no greeting. Raises `NoDriver`.
    """
    with tempfile.TemporaryDirectory(prefix="torntail-driver-") as directory:
        checker = _Checker(command, Path(directory), seconds)
        try:
            yield from checker.run()
        finally:
            checker.stop()


class _Breach(Exception):
    """A rule was broken; the text says how."""


class _Checker:
    def __init__(self, command: Sequence[str], directory: Path, seconds: float) -> None:
        self._command = command
        self._directory = directory
        self._seconds = seconds
        self._process: DriverProcess | None = None
        self._hello: HelloResult | None = None
        self._stores = 0

    def run(self) -> Iterator[CheckResult]:
        first = self._checked("answers hello with its name, claims and protocol", self._greets)
        yield first
        if not first.kept:
            return
        for rule, check in (
            ("answers nothing but requests", self._is_quiet),
            ("answers each call in its form", self._answers_calls),
            ("refuses with a kind and a message", self._refuses),
            ("refuses a call that it does not know, and goes on", self._knows_no_call),
            ("refuses calls on a store that is not open", self._knows_stores),
            ("serves several roots at once", self._serves_roots),
            ("answers requests that come together", self._answers_together),
            ("puts together a request that comes in pieces", self._puts_together),
            ("ends lines at the byte 0A and nowhere else", self._ends_lines),
            (f"takes and gives lines of {_LONG_BYTES // 10**6} MB", self._takes_long_lines),
            ("closes a store, and opens its root again", self._closes),
            ("names its protocol to one who speaks another", self._tells_protocol),
            ("ends when its input does, and leaves no process behind", self._ends),
        ):
            yield self._checked(rule, check)

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process = None

    def _checked(self, rule: str, check: Callable[[], None]) -> CheckResult:
        try:
            check()
        except _Breach as breach:
            return CheckResult(rule, str(breach))
        except Broken as error:
            words = "" if isinstance(error.outcome, Refused) else self._last_words()
            self.stop()
            return CheckResult(rule, told(error.outcome) + words)
        except DriverError as error:
            self.stop()
            return CheckResult(rule, str(error))
        return CheckResult(rule, "")

    def _last_words(self) -> str:
        return "" if self._process is None else self._process.last_words()

    # --- asking ---------------------------------------------------------------------------------

    def _running(self) -> DriverProcess:
        if self._process is None or not self._process.alive:
            self.stop()
            self._process = self._started()
            self._hello = greeting(self._process.conversation, self._seconds)
        return self._process

    def _started(self) -> DriverProcess:
        try:
            return DriverProcess(self._command, seconds=self._seconds, greet=False)
        except DriverError as error:
            raise NoDriver(str(error)) from None

    def _ask(self, *calls: StoreCall) -> list[Reply]:
        return list(self._running().ask_all(calls, self._seconds))

    def _open(self, root: Path | None = None) -> int:
        self._stores += 1
        if root is None:
            root = self._directory / f"root-{self._stores}"
            root.mkdir()
        (reply,) = self._ask(("open", {"store": self._stores, "root": str(root)}))
        _fits("open", reply)
        return self._stores

    def _create(self, store: int, session: str) -> None:
        assert self._hello is not None
        if self._hello.capabilities.creates == "explicit":
            header = SessionHeader(session, 1_700_000_000_000, cwd="/work")
            (reply,) = self._ask(("create", {"store": store, "header": header}))
            _fits("create", reply)

    def _append(self, store: int, session: str, *texts: str) -> None:
        self._create(store, session)
        (reply,) = self._ask(_append(store, session, *texts))
        _fits("append", reply)

    # --- rules ----------------------------------------------------------------------------------

    def _greets(self) -> None:
        try:
            self._running()
        except Broken as error:
            raise _Breach(told(error.outcome) + self._last_words()) from None

    def _is_quiet(self) -> None:
        lines = self._running().conversation.lines
        try:
            extra = lines.line(_QUIET_SECONDS)
        except LinesSilent:
            extra = lines.waiting()
        except LinesEnded:
            raise _Breach("its output ended") from None
        if extra:
            self.stop()
            raise _Breach(f"it wrote {extra[:80]!r}, which nobody asked for")

    def _answers_calls(self) -> None:
        store = self._open()
        assert self._hello is not None
        claims = self._hello.capabilities
        self._append(store, "one", "first", "second")
        calls = ["load", *(["inspect"] if claims.inspects else [])]
        for call in calls:
            (reply,) = self._ask((call, {"store": store, "session": "one"}))
            _fits(call, reply)
        if claims.lists:
            (reply,) = self._ask(("list", {"store": store}))
            _fits("list", reply)
        (reply,) = self._ask(("close", {"store": store}))
        _fits("close", reply)

    def _refuses(self) -> None:
        store = self._open()
        (reply,) = self._ask(("load", {"store": store, "session": "nobody"}))
        _refused("load of an unknown session", reply, "not_found")

    def _knows_no_call(self) -> None:
        (reply,) = self._ask(("torntail-asks-for-more", {"store": 0}))
        _refused("an unknown call", reply)

    def _knows_stores(self) -> None:
        (reply,) = self._ask(("load", {"store": 987_654, "session": "one"}))
        _refused("a call on a store that was never opened", reply)

    def _serves_roots(self) -> None:
        one, other = self._open(), self._open()
        self._append(one, "here", "first")
        (reply,) = self._ask(("load", {"store": other, "session": "here"}))
        _refused("load of what was appended below another root", reply)
        (reply,) = self._ask(("load", {"store": one, "session": "here"}))
        _fits("load", reply)

    def _answers_together(self) -> None:
        store = self._open()
        self._append(store, "one", "first")
        load: StoreCall = ("load", {"store": store, "session": "one"})
        for reply in self._ask(load, load, load):
            _fits("load", reply)

    def _puts_together(self) -> None:
        store = self._open()
        self._create(store, "pieces")
        request = _append(store, "pieces", "caf\u00e9 \U0001f600")
        text = encode_request(request[0], _OWN_ID, **request[1])
        lines = self._running().conversation.lines
        # In the midst of a character, too; the answers in between keep the pieces apart.
        for piece in (text[:1], text[1 : text.index(b"\xf0") + 2], text[text.index(b"\xf0") + 2 :]):
            lines.post(piece)
            early = lines.waiting() if not piece.endswith(b"\n") else b""
            if early:
                raise _Breach(f"it answered half a request: {early[:80]!r}")
        try:
            line = lines.line(self._seconds)
        except (LinesSilent, LinesEnded, LinesTooLong):
            self.stop()
            raise _Breach("there was no answer") from None
        if answer_id(line) != _OWN_ID:
            raise _Breach(f"the answer was {line[:80]!r}")

    def _ends_lines(self) -> None:
        store = self._open()
        self._append(store, "lines", "left\u2028mid\u2029right\u0085 \u000b\u000c\r end")
        (reply,) = self._ask(("load", {"store": store, "session": "lines"}))
        _fits("load", reply)

    def _takes_long_lines(self) -> None:
        store = self._open()
        self._append(store, "long", "x" * _LONG_BYTES)
        (reply,) = self._ask(("load", {"store": store, "session": "long"}))
        _fits("load", reply)

    def _closes(self) -> None:
        store = self._open()
        root = self._directory / f"root-{store}"
        self._append(store, "one", "first")
        (reply,) = self._ask(("close", {"store": store}))
        _fits("close", reply)
        (reply,) = self._ask(("load", {"store": store, "session": "one"}))
        _refused("load from a closed store", reply)
        again = self._open(root)
        (reply,) = self._ask(("load", {"store": again, "session": "one"}))
        _fits("load", reply)

    def _tells_protocol(self) -> None:
        self.stop()
        self._process = self._started()
        (reply,) = self._process.ask_all([("hello", {"protocol": PROTOCOL + 998})], self._seconds)
        self.stop()
        if reply.error is None and b'"protocol"' not in (reply.result or b""):
            raise _Breach("it neither refused nor named its protocol")

    def _ends(self) -> None:
        process = self._running()
        self._open()
        ended = process.end(_END_SECONDS)
        self._process = None
        if ended is None:
            raise _Breach(f"it was still there {_END_SECONDS:g} s after its input had ended")
        if ended.left_running:
            raise _Breach(f"it left {ended.left_running} process(es) behind, which were killed")
        if ended.code != 0:
            raise _Breach(f"its exit code was {ended.code}")


_OWN_ID: Final = 9_000_000


def _append(store: int, session: str, *texts: str) -> StoreCall:
    events = [
        SessionEvent("note", seq, 1_700_000_000_000, {"text": text})
        for seq, text in enumerate(texts)
    ]
    return "append", {"store": store, "session": session, "events": events}


def _fits(call: str, reply: Reply) -> None:
    """Raises unless an answer is a result in the form of this call."""
    outcome: Any = understand(call, reply, "")
    if isinstance(outcome, Refused):
        raise _Breach(f"{call} was refused ({outcome.kind}): {outcome.text}")
    if isinstance(outcome, StrangeResult):
        raise _Breach(f"{call} gave {outcome.reason}")
    assert isinstance(outcome, Returned)


def _refused(what: str, reply: Reply, kind: str | None = None) -> None:
    if reply.error is None:
        raise _Breach(f"{what} was not refused")
    if not reply.error.message:
        raise _Breach(f"{what} was refused without a message")
    if kind is not None and reply.error.kind != kind:
        raise _Breach(f"{what} was refused as {reply.error.kind}, not as {kind}")
