"""A driver for stores written in Python: `python -m torntail.drive.serve module:factory`.

Serves the built-in `jsonl` and `sqlite` by their names, too, opened with `--durability`. Speaks the
protocol on the standard streams; whatever the store prints goes to the standard error. Decides how
an exception becomes an error of the protocol. One request at a time, in order.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import IO, Any, cast, get_args

import msgspec

from torntail.drive.inline_store import InlineStore
from torntail.drive.protocol import PROTOCOL, NotCarried, wire_text
from torntail.drive.python_store import CallOutcome
from torntail.drive.target import Durability, Target, TargetError, target_of
from torntail.judge.history import (
    ListedSession,
    LoadedSession,
    Refused,
    Returned,
    StrangeResult,
)
from torntail.session import NotJson, SessionEvent, SessionHeader, encode_event, encode_header

__all__ = ["Server", "main"]


def main(arguments: list[str] | None = None) -> int:
    """Serves the store named by the first argument until the input ends."""
    words = sys.argv[1:] if arguments is None else arguments
    name, *options = words or ("-",)
    durability: Durability | None = None
    if len(options) == 2 and options[0] == "--durability" and options[1] in get_args(Durability):
        durability = cast(Durability, options[1])
    elif options or name.startswith("-"):
        sys.stderr.write("usage: python -m torntail.drive.serve TARGET [--durability CLAIM]\n")
        return 2
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    # What the store prints is not to be taken for an answer.
    os.dup2(2, 1)
    try:
        server = Server(target_of(name, durability=durability))
    except TargetError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    server.serve(sys.stdin.buffer, answers)
    return 0


class Server:
    """Answers requests for stores of one target."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._stores: dict[int, InlineStore] = {}

    def serve(self, requests: IO[bytes], answers: IO[bytes]) -> None:
        """Reads requests to the end of the input, and closes what is still open then."""
        for line in requests:
            answer = memoryview(self.answer(line))
            while answer:
                answer = answer[answers.write(answer) :]
        for store in self._stores.values():
            store.close()

    def answer(self, line: bytes) -> bytes:
        """The answer to a request, as a line."""
        number = 0
        try:
            request = json.loads(line)
            number = request["id"]
            return b'{"id":%d,"result":%s}\n' % (number, self._result(request))
        except _Refusal as refusal:
            error: dict[str, Any] = refusal.error
        except (ValueError, KeyError, TypeError, AttributeError) as problem:
            error = {"kind": "other", "message": f"not understood: {problem!r}"}
        return b'{"id":%d,"error":%s}\n' % (number, wire_text(error))

    def _result(self, request: dict[str, Any]) -> bytes:
        match request["call"]:
            case "hello":
                if request["protocol"] != PROTOCOL:
                    raise _Refusal("other", f"this driver speaks protocol {PROTOCOL}")
                return msgspec.json.encode(
                    {
                        "protocol": PROTOCOL,
                        "name": self._target.name,
                        "version": _version(),
                        "capabilities": self._target.capabilities,
                        "dialect": "torntail",
                    },
                    order="deterministic",
                )
            case "open":
                number = request["store"]
                if number in self._stores:
                    raise _Refusal("other", f"store {number} is open already")
                store = InlineStore(self._target.factory, Path(request["root"]))
                _returned(store.opened)
                self._stores[number] = store
                return b"{}"
        if request["store"] not in self._stores:
            raise _Refusal("closed", f"store {request['store']} is not open")
        return self._call(self._stores[request["store"]], request)

    def _call(self, store: InlineStore, request: dict[str, Any]) -> bytes:
        match request["call"]:
            case "create":
                if self._target.capabilities.creates == "explicit":
                    _returned(store.create(_header(request["header"])))
                return b"{}"
            case "append":
                _returned(store.append(request["session"], map(_event, request["events"])))
                return b"{}"
            case "load":
                return _session(_returned(store.load(request["session"])))
            case "inspect":
                return _session(_returned(store.inspect(request["session"])))
            case "list":
                entries = _returned(store.list()).entries or ()
                return b'{"sessions":[%s]}' % b",".join(map(_entry, entries))
            case "close":
                _returned(store.close())
                return b"{}"
        raise _Refusal("other", f"there is no call {request['call']!r}")


def _version() -> str:
    try:
        return version("torntail")
    except PackageNotFoundError:
        return "not installed"


class _Refusal(Exception):
    """An error of the protocol."""

    def __init__(
        self, kind: str, message: str, name: str = "", facts: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(message)
        self.error = {
            "kind": kind,
            "message": message,
            **({"name": name} if name else {}),
            **({"facts": facts} if facts else {}),
        }


def _returned(outcome: CallOutcome) -> Returned:
    match outcome:
        case Returned():
            return outcome
        case Refused(kind, name, text, facts):
            # A store that calls sys.exit has to be seen ending the process.
            if kind == "exit":
                os._exit(70)
            try:
                wire_text(facts)
            except NotCarried:
                facts = {}
            raise _Refusal(kind, text, name, facts)
        case StrangeResult(reason):
            raise _Refusal("other", f"the store returned {reason}", "StrangeResult")
    raise AssertionError(outcome)


# --- values ---------------------------------------------------------------------------------------


def _event(record: dict[str, Any]) -> SessionEvent:
    """An event as it was sent, right or wrong: to refuse it is for the store."""
    rest = dict(record)
    named: dict[str, Any] = {
        name: rest.pop(key)
        for key, name in (("surfaceOp", "surface_op"), ("sourceEventSeqs", "source_event_seqs"))
        if rest.get(key) is not None
    }
    type_, seq, time, data = (rest.pop(key) for key in ("type", "seq", "time", "data"))
    return SessionEvent(type_, seq, time, data, **named, extra=rest or None)


def _header(record: dict[str, Any]) -> SessionHeader:
    rest = dict(record)
    rest.pop("type", None)
    known = {
        "id": "id",
        "createdAt": "created_at",
        "cwd": "cwd",
        "parentSession": "parent_session",
        "seedLength": "seed_length",
        "version": "version",
    }
    fields = {name: rest.pop(key) for key, name in known.items() if key in rest}
    return SessionHeader(**fields, extra=rest or None)


def _session(outcome: Returned) -> bytes:
    session = outcome.session
    if session is None:
        raise _Refusal("other", "the store returned no session", "StrangeResult")
    return b'{"header":%s,"events":[%s]%s}' % (
        b"null" if session.header is None else _text(encode_header, session.header),
        b",".join(_text(encode_event, event) for event in session.events),
        _repair(session),
    )


def _text(encode: Any, value: Any) -> bytes:
    try:
        text: bytes = encode(value)
    except NotJson as error:
        raise _Refusal("other", f"the store returned what is not JSON: {error}") from None
    return text


def _repair(session: LoadedSession) -> bytes:
    if session.repair is None:
        return b""
    names = {
        "tornFromLine": session.repair.torn_from_line,
        "tornFromByte": session.repair.torn_from_byte,
        "tornBytes": session.repair.torn_bytes,
        "copyKept": session.repair.copy_kept,
        "newlineAdded": session.repair.newline_added,
        "durable": session.repair.durable,
    }
    return b',"repair":' + wire_text(names)


def _entry(entry: ListedSession) -> bytes:
    record: dict[str, Any] = {"session": entry.session}
    if entry.header is not None:
        record["header"] = entry.header.to_json()
    if entry.error is not None:
        record["error"] = entry.error
    return wire_text(record)


if __name__ == "__main__":
    sys.exit(main())
