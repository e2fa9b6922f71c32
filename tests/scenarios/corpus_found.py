"""The files shaped after public bug reports, as scenarios: loaded twice, and gone on with."""

from __future__ import annotations

from collections.abc import Iterator

from tests.field_reports import CASES, Case
from torntail.judge.history import Append, Create, Load, Operation, Reopen
from torntail.scenarios.format import Expectation, FileFault, LoadWord, Scenario
from torntail.session import SessionEvent, SessionHeader

_BUCKET = "cwd-d1bb8ca35467"

TEACHES: dict[str, str] = {
    "all-or-nothing-reader": "One bad line is told of, with its place, and is neither a reason to "
    "hide the session nor to show half of it without a word.",
    "call-id-reuse": "A call's id counts within its turn: earlier results answer nothing.",
    "clock": "Order is by seq alone; times may step back.",
    "compaction": "Events the core does not know stand between a call and its result, and both are "
    "kept as they are.",
    "dangling-call": "A call without a result is answered once when the turn is closed.",
    "fork": "What was copied from another session is this session's own.",
    "fsync-durability": "What is in the file is all that counts, and the open turn is closed.",
    "header-identity-index": "The header and the place of a log must agree, and a broken header is "
    "never overwritten.",
    "interleaved-bytes": "Two writers in one file leave lines that are no records, or records that "
    "are not strict, and neither is read as data.",
    "invalid-unicode": "Half a character in a text is kept; bytes that are no UTF-8 are no record.",
    "io-error-handling": "A partial write that is not cut back before the next one is a bad line.",
    "json-values": "Every value that JSON can carry comes back as it was.",
    "line-separators": "A line ends with a line feed and with nothing else.",
    "nul-fill": "Zeros behind the end are a torn tail, zeros before committed records corruption.",
    "orphan-or-duplicate-result": "A result that answers nothing is kept, and counts for nothing.",
    "oversize": "A line may be long.",
    "parallel-calls": "Each parallel call is answered by its own result, in whichever order.",
    "raw-newline": "A newline inside a text is escaped; raw, it ends the line.",
    "repair-race": "A repair does not answer what is answered already, whoever wrote the answer.",
    "seq-fork": "A seq that is used twice in the committed region is refused, and not mended.",
    "torn-tail": "What a crash left behind the last turn's end is dropped and reported.",
    "torn-then-glued": "A record that was glued to a torn one is on no line of its own.",
    "turn-lifecycle": "A turn that was never ended is ended by the load.",
    "unknown-type-or-schema-drift": "Event types that are not known are kept as they are; another "
    "format version is refused.",
    "validator-drift": "A call without a name or an id is stored all the same, and can be loaded.",
    "whole-file-rewrite": "Bytes left of a longer, older text are a torn tail.",
}

_WORDS: dict[str, LoadWord] = {
    "ok": "ok",
    "corrupt": "corrupted",
    "unsupported_version": "version",
    "identity_mismatch": "identity",
    "never_materialised": "never_materialised",
}


def scenarios() -> Iterator[Scenario]:
    for case in CASES:
        yield _scenario(case)


def _scenario(case: Case) -> Scenario:
    expect = case.expect
    shape, _, _ = case.name.rpartition("-")
    word = _WORDS[expect["outcome"]]
    clause = _clause(case, word)
    return Scenario(
        torntail=1,
        id=case.name,
        kind="field-report",
        title=f"{_title(case.note)}",
        teaches=TEACHES[shape],
        origin=f"A public bug report: {case.note}",
        level="process",
        plan=tuple(_plan(case, word)),
        faults=(FileFault(path=f"{_BUCKET}/{case.session_id}.jsonl", data=case.content),),
        expect=(
            Expectation(
                clause=clause,
                outcome=_outcome(word, expect),
                session=case.session_id,
                loads=word,
                events=expect.get("events"),
                closers=len(expect["closers"]) if word == "ok" else None,
                line=expect.get("line", expect.get("torn_from_line")),
                byte=expect.get("byte", expect.get("torn_from_byte")),
                torn_bytes=expect.get("torn_bytes"),
                copy_kept=expect.get("copy_kept"),
            ),
        ),
    )


def _title(note: str) -> str:
    """The first part of what was reported."""
    first = note.split(";")[0].split(":")[0].split(". ")[0].strip().rstrip(".")
    return first if len(first) <= 110 else f"{first[:100].rpartition(' ')[0]} …"


def _clause(case: Case, word: LoadWord) -> str:
    if word == "version":
        return "RW-14"
    if word == "identity":
        return "RW-15"
    if word == "never_materialised" or case.expect.get("line") == 1:
        return "DM-6"
    if word == "corrupted":
        return "DM-1"
    if "torn_from_line" in case.expect:
        return "DM-2"
    if case.expect.get("newline_added"):
        return "DM-4"
    return "CL-4" if case.expect["closers"] else "RW-1"


def _outcome(word: LoadWord, expect: dict[str, object]) -> str:
    match word:
        case "ok":
            closers = expect["closers"]
            assert isinstance(closers, list)
            told = f"the load gives the file's {expect['events']} events"
            if closers:
                told += f" and {len(closers)} closers"
            if "torn_bytes" in expect:
                told += f", and reports the {expect['torn_bytes']} torn bytes it dropped"
            return told
        case "corrupted":
            return f"the load refuses, naming line {expect['line']}, and not a byte changes"
        case "version":
            return f"the load refuses version {expect['version']}, and not a byte changes"
        case "identity":
            return "the load refuses a header that is another's, and not a byte changes"
    return "there is no session, and its id can be taken"


def _plan(case: Case, word: LoadWord) -> Iterator[Operation]:
    name = case.session_id
    load = Load(session=name)
    yield load
    if word == "ok":
        yield load
        total = case.expect["total"]
        yield Append(session=name, events=_turn(case.content, total))
        yield Reopen()
        yield load
    elif word == "never_materialised":
        yield Create(header=SessionHeader(name, 1_700_000_000_000, "/w"))
        yield Append(session=name, events=_turn(b"", 0))
        yield Reopen()
        yield load
    else:
        yield Append(session=name, events=_turn(b"", 0))
        yield load


def _turn(content: bytes, seq: int) -> tuple[SessionEvent, ...]:
    """One more turn behind a log of so many events."""
    turn = content.count(b'"turn/start"') + 1
    time = 1_700_000_900_000
    shapes = (
        ("turn/start", {"turn": turn, "trigger": {"kind": "injection"}}),
        ("turn/end", {"turn": turn, "reason": {"kind": "completed"}}),
    )
    return tuple(
        SessionEvent(kind, seq + index, time + index, data)
        for index, (kind, data) in enumerate(shapes)
    )


def classes() -> set[str]:
    """The classes of the reports."""
    return {case.name.rpartition("-")[0] for case in CASES}
