"""A history in words, and as files: what a person reads, and what a program can judge again.

Decides how an operation is told in one line, and where the witnesses of a run are kept. Values are
shortened; the whole of them stands in `history.json`.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from torntail.judge.capabilities import Capabilities
from torntail.judge.history import (
    Append,
    ChangeCallersCopy,
    Close,
    Create,
    Damage,
    Damaged,
    History,
    Hung,
    Inspect,
    ListSessions,
    Load,
    LoadedSession,
    NotPossible,
    Operation,
    Refused,
    Reopen,
    Returned,
    StrangeResult,
    Together,
    TogetherOutcome,
)

__all__ = ["Runs", "describe_call", "describe_steps", "keep_history"]

_MAXIMUM_HISTORY_CHARACTERS = 4 << 20


class Runs:
    """Where one campaign keeps witnesses: a directory of its own below `directory`, made when it is
    needed, with a `.gitignore` beside them all.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._run: Path | None = None
        self._kept = 0

    def next_directory(self, clause: str) -> Path:
        """Where the next finding's witness is kept; it is not made yet."""
        if self._run is None:
            stamp = time.strftime("%Y%m%d-%H%M%S")
            self._directory.mkdir(parents=True, exist_ok=True)
            ignore = self._directory.parent / ".gitignore"
            if not ignore.exists():
                ignore.write_text("*\n", encoding="utf-8")
            self._run = Path(tempfile.mkdtemp(prefix=f"{stamp}-", dir=self._directory))
        self._kept += 1
        return self._run / f"{self._kept:02d}-{clause}"


def describe_steps(operations: Sequence[Operation], history: History | None) -> tuple[str, ...]:
    """One line for each operation, with what came of it."""
    lines = []
    for index, operation in enumerate(operations):
        line = _operation(operation)
        if history is not None and index < len(history):
            line += _outcome(history[index].outcome)
        lines.append(line)
    return tuple(lines)


def describe_call(operation: Operation | None, outcome: Any) -> str:
    """An operation, what came of it, or both, in one line."""
    told = "" if operation is None else _operation(operation)
    return told if outcome is None else told + _outcome(outcome)


def keep_history(
    directory: Path, history: History, sentence: str, capabilities: Capabilities | None = None
) -> None:
    """Writes `history.json` and `steps.txt` into a directory, and the store's claims if given."""
    directory.mkdir(parents=True, exist_ok=True)
    steps = describe_steps([observation.operation for observation in history], history)
    text = "".join(f"{number}. {step}\n" for number, step in enumerate(steps, 1))
    (directory / "steps.txt").write_text(
        f"{text}\n{sentence}\n", encoding="utf-8", errors="backslashreplace"
    )
    record = json.dumps(msgspec.to_builtins(history), indent=1, default=repr)
    if len(record) <= _MAXIMUM_HISTORY_CHARACTERS:
        (directory / "history.json").write_text(record + "\n", encoding="utf-8")
    if capabilities is not None:
        claims = msgspec.to_builtins(capabilities, order="deterministic")
        text = json.dumps(claims, indent=1)
        (directory / "claims.json").write_text(text + "\n", encoding="utf-8")


def _short(text: str, length: int = 60) -> str:
    quoted = repr(text)
    return quoted if len(quoted) <= length else f"{quoted[: length - 6]}…{quoted[-5:]}"


def _operation(operation: Operation) -> str:
    match operation:
        case Create(header=header):
            cwd = "" if header.cwd is None else f", cwd {_short(header.cwd)}"
            version = "" if header.version == 0 else f", version {header.version}"
            return f"create {_short(header.id)}{cwd}{version}"
        case Append(session=session, events=events):
            if not events:
                return f"append to {_short(session)} no events"
            spoiled = operation.spoiled
            bad = (
                ""
                if spoiled is None
                else f", seq {events[spoiled.index].seq} spoiled: {spoiled.how}"
            )
            return f"append to {_short(session)} {_events(events)}{bad}"
        case Load(session=session):
            return f"load {_short(session)}"
        case Inspect(session=session):
            return f"inspect {_short(session)}"
        case ListSessions():
            return "list"
        case Reopen():
            return "close and open the store again"
        case Close():
            return "close the store"
        case ChangeCallersCopy(what=what):
            return f"change, in the caller's hands, what was {what}"
        case Together(operations=operations):
            return "at the same time: " + "; ".join(map(_operation, operations))
        case Damage():
            return _damage(operation)
    raise AssertionError(f"no words for {operation}")


def _damage(operation: Damage) -> str:
    details = {
        "garble": f"record {operation.record} overwritten with rubbish",
        "delete": f"record {operation.record} taken out",
        "duplicate": f"record {operation.record} twice",
        "renumber": f"{operation.amount:+d} added to the seq of record {operation.record}",
        "cut": f"cut inside record {operation.record}, "
        + (
            f"{operation.amount} bytes of it left"
            if operation.amount >= 0
            else f"{-operation.amount} bytes before the end of its line"
        ),
        "trail": f"{operation.variant} behind record {operation.record}, on its line",
        "rewrite": f"record {operation.record} written loosely: {operation.variant}",
        "add": f"{operation.variant} added at the end",
        "crlf": "line ends made CRLF",
        "flip": f"bit {operation.amount % 8} of byte {operation.amount // 8} of record "
        f"{operation.record} flipped",
        "cut-bytes": f"the last {operation.amount} bytes cut off",
        "header-version": f"the header's version made {operation.amount}",
        "header-id": "another id in the header",
        "header-only": "only the header left, without newline",
        "header-cut": "only half the header left",
        "header-garble": "the header overwritten with rubbish",
        "header-flip": f"bit {operation.amount % 8} of byte {operation.amount // 8} of the header "
        "flipped",
        "empty": "the file emptied",
        "nul-file": "the file filled with NULs",
        "misplace": f"its log put in the place of {_short(operation.other)}",
        "second-place": f"its log copied beside that of {_short(operation.other)}",
        "root-is-a-file": "the store's directory replaced by a file",
        "restore": "storage put back as it was",
    }
    return f"(store closed) {_short(operation.session)}: {details[operation.kind]}"


def _events(events: Sequence[Any]) -> str:
    kinds = [event.type for event in events[:4]] + (["…"] if len(events) > 4 else [])
    seqs = [event.seq for event in events]
    contiguous = seqs == list(range(seqs[0], seqs[0] + len(seqs)))
    numbers = f"{seqs[0]}–{seqs[-1]}" if contiguous and len(seqs) > 1 else ", ".join(map(str, seqs))
    return f"seq {numbers} ({', '.join(_short(kind, 30)[1:-1] for kind in kinds)})"


def _outcome(outcome: Any) -> str:
    match outcome:
        case Returned(session=LoadedSession(events=events)):
            last = f", last {_short(events[-1].type, 30)[1:-1]}" if events else ""
            return f" → {len(events)} events{last}"
        case Returned(entries=tuple() as entries):
            return f" → {len(entries)} entries"
        case Refused():
            return f" → {outcome.exception}: {_short(outcome.text, 160)[1:-1]}"
        case Hung(seconds):
            return f" → not back after {seconds:g} s"
        case StrangeResult(reason):
            return f" → {_short(reason, 120)[1:-1]}"
        case Damaged() if outcome.byte is not None:
            return f" → {outcome.path}, line {outcome.line}, byte {outcome.byte}"
        case Damaged():
            return f" → {outcome.path}"
        case NotPossible(reason):
            return f" → not possible: {reason}"
        case TogetherOutcome(outcomes):
            return "".join(map(_outcome, outcomes))
    return ""
