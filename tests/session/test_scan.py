"""The reading rule (DM-1 to DM-6, RW-14, RW-15): what is kept, what is torn, what is refused."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.field_reports import CASES, Case, closers_in_short
from tests.json_values import events as odd_events
from tests.shapes import STALE, event_lines, log
from torntail.session import (
    LogScan,
    Outcome,
    SessionEvent,
    SessionHeader,
    encode_event,
    encode_header,
    interrupted_turn_closers,
    parse_event,
    same_json,
    scan_log,
)


def scan(content: bytes, session_id: str | None = "s-1") -> tuple[LogScan, list[SessionEvent]]:
    """Reads a log; the answer must not depend on how its bytes were cut into blocks."""
    lines = io.BytesIO(content).readlines()
    middle = len(lines) // 2
    cuts = {
        "one block": [content],
        "lines": lines,
        "two blocks": [b"".join(lines[:middle]), b"".join(lines[middle:])],
    }
    answers = []
    for blocks in cuts.values():
        events: list[SessionEvent] = []
        answers.append(
            (scan_log(filter(None, blocks), events.append, session_id=session_id), events)
        )
    for cut, (found, events) in zip(cuts, answers, strict=True):
        if found.outcome is Outcome.OK:
            assert (found, events) == answers[0], cut
        else:
            assert replace(found, size=0) == replace(answers[0][0], size=0), cut
    return answers[0]


def repaired(content: bytes, found: LogScan) -> bytes:
    """What a store leaves of the file before it writes closers."""
    return content[: found.kept_bytes] + (b"\n" if found.newline_missing else b"")


# --- the cases after public reports --------------------------------------------------------------


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_field_report(case: Case) -> None:
    assert log(case.shape) == case.content, "the shape language writes the case's bytes"
    found, events = scan(case.content, case.session_id)
    answer: dict[str, Any] = {"outcome": str(found.outcome)}
    if found.outcome is Outcome.OK:
        closers = interrupted_turn_closers(events)
        answer["events"] = len(events)
        answer["closers"] = closers_in_short(closers)
        answer["total"] = len(events) + len(closers)
        if found.torn is not None:
            answer["torn_from_line"] = found.torn.line
            answer["torn_from_byte"] = found.torn.byte
            answer["torn_bytes"] = found.torn.length
            answer["copy_kept"] = found.torn.holds_record
        if found.newline_missing:
            answer["newline_added"] = True
    if found.damage is not None:
        answer["line"], answer["byte"] = found.damage.line, found.damage.byte
    if found.outcome is Outcome.UNSUPPORTED_VERSION:
        assert found.header is not None
        answer["version"] = found.header.version
    expect = dict(case.expect)
    why = expect.pop("why", "")
    assert answer == expect
    if why.startswith("seq"):
        assert found.damage is not None
        assert found.damage.reason == why


# --- measured loads, with the differences the contract decides ----------------------------------

Answer = tuple[Any, ...]


def ok(events: int, closers: str = "", *, torn: int | None = None, **more: Any) -> Answer:
    """Kept events, closers in short (r result, s step/end, t turn/end), line of the torn tail."""
    return "ok", events, closers, torn, more


def corrupt(line: int) -> Answer:
    return "corrupt", line


NEVER: Answer = ("never_materialised",)
SHORT = {"tool/result": "r", "step/end": "s", "turn/end": "t"}

# U with its newline is 157 bytes long, SS 80.
LOADS: dict[str, Answer] = {
    # A torn tail.
    "H T": ok(6),
    "H": ok(0),
    "H RAW:7b22": ok(0, torn=2),
    "H T TS U CUT:14": ok(7, "t", torn=9),
    "H T TS U SS A:c1,c2 K:c1 K:c2 R:c1": ok(13, "rst"),
    "H T TS U SS A:c1,c2 K:c1 K:c2 R:c1 RAW:7b2274797065": ok(13, "rst", torn=15),
    "H T TS U SS A:c1,c2": ok(10, "rrst"),
    "H TS": ok(1, "t"),
    "H T NUL:300": ok(6, torn=8),
    "H T NUL:300 LF": ok(6, torn=8),
    "H T TS U NUL:1": ok(8, "t", torn=10),
    "H T TS U!sep CUT:40": ok(7, "t", torn=9),
    "H T TS U!badutf": ok(7, "t", torn=9),
    "H T LF": ok(6, torn=8),
    "H T LF LF": ok(6, torn=8),
    "H T RAW:2020 LF": ok(6, torn=8),
    "H T STALE": ok(6, torn=8),
    # Strict reading: an odd record ends the log in the tail, and is corruption before a turn/end.
    "H T RAW:6e756c6c LF": ok(6, torn=8),
    "H T RAW:37 LF": ok(6, torn=8),
    "H T RAW:6e756c6c LF T": corrupt(8),
    "H T TS!boolseq": ok(6, torn=8),
    "H T TS!strseq": ok(6, torn=8),
    "H T TS!floatseq": ok(6, torn=8),
    "H T TS!dup": ok(6, torn=8),
    "H T TS U!dupdeep": ok(7, "t", torn=9),
    "H T TS U!nan": ok(7, "t", torn=9),
    "H T TS U!ovf": ok(7, "t", torn=9),
    "H T TS U!int5000": ok(7, "t", torn=9),
    "H T TS U!deep": ok(7, "t", torn=9),
    "H T TS U!wtf8": ok(7, "t", torn=9),
    "H T TS U!rawnul": ok(7, "t", torn=9),
    "H T TS U!rawlf": ok(7, "t", torn=9),
    "H TS U!wtf8 SS A SE TE": corrupt(3),
    "H TS U!badutf SS A SE TE": corrupt(3),
    "H TS U!nan SS A SE TE": corrupt(3),
    "H TS U!ovf TE": corrupt(3),
    "H TS U!int5000 TE": corrupt(3),
    "H TS U!deep TE": corrupt(3),
    "H TS U!deep201 TE": corrupt(3),
    "H TS U!dupdeep TE": corrupt(3),
    "H TS!boolseq TE": corrupt(2),
    "H TS!strseq TE": corrupt(2),
    "H TS!floatseq TE": corrupt(2),
    "H TS U!rawnul TE": corrupt(3),
    # Odd but whole values are kept.
    "H TS U!big U!int4300 U!deep200 U!sur U!nul U!sep U!back TE": ok(9),
    "H TS X:anything/at-all X:session/end-seed@2 TE": ok(4),
    "H T CRLF": ok(6),
    "H T TS U CRLF CUT:1": ok(8, "t", newline_added=True),
    "H T TS U CRLF CUT:2": ok(8, "t", newline_added=True),
    "H T U": ok(7),
    "H TE": ok(1),
    "H TS TS": ok(2, "t"),
    "H TS U SS A:c1 SE": ok(5, "t"),
    "H TS SS A:c1 TS": ok(4, "t"),
    "H T X:note X:note": ok(8),
    # A committed record that does not parse, or a turn/end behind a hole.
    "H T RAW:7b LF T": corrupt(8),
    "H T LF T": corrupt(8),
    "H T NUL:300 LF T": corrupt(8),
    "H T NUL:300 T": corrupt(8),
    "H LF T": corrupt(2),
    "H T RAW:7b LF TS U TE NONL": corrupt(8),
    "H T RAW:7b LF TEi": corrupt(8),
    "H T RAW:7b LF TE@99": corrupt(8),
    "H T TS U CUT:7 SS@7 A SE TE": corrupt(9),
    "H T TS U NONL SS A SE TE": corrupt(9),
    "H TS U RAW:7b LF SS RAW:7b LF A SE TE": corrupt(4),
    # ... but a turn/end that is not a whole line does not commit what stands before it.
    "H T TS U RAW:7b LF TE CUT:2": ok(8, "t", torn=10),
    "H T TS U RAW:7b TE": ok(8, "t", torn=10),
    # A wrong seq is refused wherever it stands before the first line that does not parse.
    "H T TS@7": corrupt(8),
    "H T TS@5": corrupt(8),
    "H T TS U U@7": corrupt(10),
    "H T TS U U@9 RAW:7b": corrupt(10),
    "H T TS U X:note@0 NONL": corrupt(10),
    "H T DROP:4": corrupt(4),
    "H T T DROP:8": corrupt(8),
    "H T TS U SS DROP:9": corrupt(9),
    "H TS@1": corrupt(2),
    # Behind it, seqs are not looked at.
    "H T TS U RAW:7b LF SS@3": ok(8, "t", torn=10, copy_kept=True),
    "H T TS U RAW:7b LF SS@3 RAW:7b": ok(8, "t", torn=10, copy_kept=True),
    # A complete record is kept whatever follows it (DM-4).
    "H T NONL": ok(6, newline_added=True),
    "H T TS U NONL": ok(8, "t", newline_added=True),
    "H T TS NONL NUL:40": ok(7, "t", torn=8, newline_added=True),
    "H T TS U NONL SS": ok(8, "t", torn=9, newline_added=True, copy_kept=True),
    "H T TS U NONL SS NONL": ok(8, "t", torn=9, newline_added=True, copy_kept=True),
    "H T TS U NONL SS CUT:3": ok(8, "t", torn=9, newline_added=True),
    "H T TS U NONL RAW:7b LF SS@8": ok(8, "t", torn=9, newline_added=True, copy_kept=True),
    "H TS U TE NONL NUL:9": ok(3, torn=4, newline_added=True),
    "H TS U TE NONL RAW:7b LF": ok(3, torn=4, newline_added=True),
    "H T TS U@8 NONL RAW:7b": ok(7, "t", torn=9),
    "H T TS U!dup NONL RAW:7b": ok(7, "t", torn=9),
    # The first line.
    "RAW:": NEVER,
    "H CUT:1": ok(0, newline_added=True),
    "H CUT:2": NEVER,
    "H CUT:70": NEVER,
    "NUL:4096": NEVER,
    "RAW:7b7d": NEVER,
    "H NONL NUL:10": NEVER,
    "H NONL TS NONL": NEVER,
    "BOM RAW:7b": NEVER,
    "H NONL T": corrupt(1),
    "H CUT:10 LF T": corrupt(1),
    "H BOM": corrupt(1),
    "H T BOM": corrupt(1),
    "LF H T": corrupt(1),
    "RAW:68656c6c6f LF": corrupt(1),
    "NUL:80 LF T": corrupt(1),
    "T": corrupt(1),
    "H:v1 T": ("unsupported_version", 1),
    "H:v1 RAW:7b LF T": ("unsupported_version", 1),
    "H:v-1 T": ("unsupported_version", -1),
    "H:id=s-2 T": ("identity_mismatch",),
    "H:id=S-1 T": ("identity_mismatch",),
    "H:id=s-2": ("identity_mismatch",),
    "H H T": corrupt(2),
    "H T H": ok(6, torn=8),
}


def answer_of(content: bytes) -> Answer:
    found, events = scan(content)
    match found.outcome:
        case Outcome.CORRUPT:
            assert found.damage is not None
            lines = content.split(b"\n")
            before = b"".join(line + b"\n" for line in lines[: found.damage.line - 1])
            assert found.damage.byte == len(before), "byte is the start of the line"
            assert found.damage.excerpt == content[len(before) :][: len(found.damage.excerpt)]
            assert found.damage.reason
            return corrupt(found.damage.line)
        case Outcome.UNSUPPORTED_VERSION:
            assert found.header is not None
            return "unsupported_version", found.header.version
        case Outcome.OK:
            more: dict[str, Any] = {}
            if found.newline_missing:
                more["newline_added"] = True
            if found.torn is not None and found.torn.holds_record:
                more["copy_kept"] = True
            closers = "".join(SHORT[closer.type] for closer in interrupted_turn_closers(events))
            torn = None if found.torn is None else found.torn.line
            return ok(len(events), closers, torn=torn, **more)
        case other:
            return (str(other),)


@pytest.mark.parametrize(("shape", "expected"), LOADS.items(), ids=LOADS.keys())
def test_load_table(shape: str, expected: Answer) -> None:
    content = log(shape)
    assert answer_of(content) == expected
    check_arithmetic(content)


def check_arithmetic(content: bytes) -> None:
    """What every scan must keep, whatever it read."""
    found, events = scan(content)
    if found.outcome is not Outcome.OK:
        return
    assert found.size == len(content)
    assert len(events) == found.events
    assert [event.seq for event in events] == list(range(found.events))
    ends = [place + 1 for place, event in enumerate(events) if event.type == "turn/end"]
    assert found.committed == (ends[-1] if ends else 0)
    if found.torn is None:
        assert found.kept_bytes == len(content)
    else:
        cut = content[found.torn.byte :]
        assert found.torn.byte == found.kept_bytes
        assert (found.torn.length, found.torn.digest) == (len(cut), hashlib.sha256(cut).hexdigest())
        assert cut[: len(found.torn.excerpt)] == found.torn.excerpt
        assert found.torn.line == content[: found.torn.byte].count(b"\n") + 1
        assert any(parses(line) for line in cut.split(b"\n")) == found.torn.holds_record
    assert found.needs_repair == (found.torn is not None or found.newline_missing)
    # A repair, closers included, leaves a log that needs none.
    closers = interrupted_turn_closers(events)
    whole = repaired(content, found) + b"".join(encode_event(one) + b"\n" for one in closers)
    again, reread = scan(whole)
    assert (again.outcome, again.needs_repair) == (Outcome.OK, False)
    assert reread == events + closers
    assert interrupted_turn_closers(reread) == []


def parses(line: bytes) -> bool:
    try:
        parse_event(line)
    except ValueError:
        return False
    return True


def test_where_the_tail_begins_in_bytes() -> None:
    found, _ = scan(log("H T TS U NONL NUL:5"))
    assert found.torn is not None
    whole = log("H T TS U")
    assert (found.torn.byte, found.torn.length) == (len(whole) - 1, 5)
    found, _ = scan(log("H T STALE"))
    assert found.torn is not None
    assert (found.torn.byte, found.torn.length) == (len(log("H T")), len(STALE))


def test_identity_is_looked_at_only_when_asked() -> None:
    found, events = scan(log("H:id=s-2 T"), None)
    assert (found.outcome, len(events)) == (Outcome.OK, 6)
    assert found.header is not None
    assert found.header.id == "s-2"


def test_lines_end_at_the_newline_byte_only() -> None:
    odd = SessionEvent("note", 0, 1, "\u2028\u2029\u0085\x0b\x0c\r\x1c\x1d\x1e")
    header = encode_header(SessionHeader("s-1", 1, "\u2028"))
    found, events = scan(header + b"\n" + encode_event(odd) + b"\n")
    assert found.outcome is Outcome.OK
    assert events == [odd]


# --- every cut ----------------------------------------------------------------------------------

TWO_AND_A_HALF_TURNS = (
    "H Tt TS U SS C A:c1,c2 K:c1 R:c1 SE SS A SE TE TS U SS C A:c1,c2 K:c1 K:c2 R:c2"
)


def test_every_byte_cut_gives_the_longest_prefix() -> None:
    whole = log(TWO_AND_A_HALF_TURNS)
    lines = whole.split(b"\n")[:-1]
    originals = [parse_event(line) for line in lines[1:]]
    ends = [len(b"\n".join(lines[: count + 1])) for count in range(len(lines))]
    for cut in range(len(whole) + 1):
        found, events = scan(whole[:cut])
        if cut < ends[0]:
            assert found.outcome is Outcome.NEVER_MATERIALISED, cut
            continue
        complete = sum(end <= cut for end in ends) - 1
        assert (found.outcome, events) == (Outcome.OK, originals[:complete]), cut
        # Nothing torn right behind a record, with or without its newline.
        assert (found.torn is None) == (cut in ends or cut - 1 in ends), cut
        assert found.newline_missing == (cut in ends), cut
        check_arithmetic(whole[:cut])


@settings(max_examples=50)
@given(st.lists(odd_events, max_size=6), st.data())
def test_any_cut_of_any_log_gives_the_longest_prefix(
    drawn: list[SessionEvent], data: st.DataObject
) -> None:
    originals = [renumbered(event, seq) for seq, event in enumerate(drawn)]
    lines = [encode_header(SessionHeader("s-1", 1)), *map(encode_event, originals)]
    whole = b"".join(line + b"\n" for line in lines)
    cut = data.draw(st.integers(len(lines[0]), len(whole)))
    found, events = scan(whole[:cut])
    complete = whole[:cut].count(b"\n") - 1 + (whole[cut : cut + 1] == b"\n")
    assert found.outcome is Outcome.OK
    assert len(events) == complete
    for kept, original in zip(events, originals, strict=False):
        assert same_json(kept.to_json(), original.to_json())
    check_arithmetic(whole[:cut])


def renumbered(event: SessionEvent, seq: int) -> SessionEvent:
    return SessionEvent(
        event.type, seq, event.time, event.data, event.surface_op, event.source_event_seqs
    )


# --- every flip ---------------------------------------------------------------------------------


def flips(whole: bytes, change: Callable[[int], list[int]]) -> dict[str, int]:
    """Changes every byte; counts what came of it, and checks that nothing comes back unlike."""
    originals = scan(whole)[1]
    counts = dict.fromkeys(["refused", "shorter", "same", "silent"], 0)
    for place in range(len(whole)):
        for value in change(whole[place]):
            damaged = whole[:place] + bytes([value]) + whole[place + 1 :]
            events: list[SessionEvent] = []
            found = scan_log([damaged], events.append, session_id="s-1")
            if found.outcome is not Outcome.OK:
                counts["refused"] += 1
                continue
            check = [
                same_json(kept.to_json(), original.to_json())
                for kept, original in zip(events, originals, strict=False)
            ]
            assert len(events) <= len(originals)
            assert [event.seq for event in events] == list(range(len(events)))
            if not all(check):
                counts["silent"] += 1
                # One byte changes one event: the others must be the original's.
                assert check.count(False) == 1
            elif len(events) < len(originals):
                counts["shorter"] += 1
            else:
                counts["same"] += 1
    return counts


def test_every_single_bit_flip_is_refused_shortened_or_counted() -> None:
    whole = log("H T TS U SS A:c1 K:c1 R:c1 SE TE TS U SS A:c1")
    counts = flips(whole, lambda byte: [byte ^ (1 << bit) for bit in range(8)])
    assert sum(counts.values()) == 8 * len(whole)
    # No checksum, so flips inside strings and numbers go unseen: known, and counted (DM-7).
    assert counts["silent"] > 0
    assert counts["refused"] > counts["shorter"] > 0
    # Whole but for its header's createdAt or cwd, which are not events.
    assert counts["same"] > 0


@pytest.mark.parametrize("value", [0x00, 0x0A, 0x20, 0x22, 0xFF])
def test_every_byte_replaced(value: int) -> None:
    whole = log("H T TS U SS A:c1")
    counts = flips(whole, lambda byte: [value])
    assert counts["refused"] > 0
    if value in (0x00, 0x0A, 0xFF):
        assert counts["silent"] == 0


@given(st.data())
def test_arithmetic_holds_on_spliced_logs(data: st.DataObject) -> None:
    whole = log(TWO_AND_A_HALF_TURNS)
    places = st.integers(0, len(whole))
    begin, end = sorted([data.draw(places), data.draw(places)])
    filling = data.draw(
        st.one_of(
            st.binary(max_size=8),
            st.sampled_from([b"\n", bytes(512), whole[:80], STALE, b'{"type":"turn/end"}\n']),
        )
    )
    damaged = whole[:begin] + filling + whole[end:]
    check_arithmetic(damaged)
    found, _ = scan(damaged)
    if found.outcome is Outcome.CORRUPT:
        assert answer_of(damaged)[0] == "corrupt"


def test_lines_before_a_damaged_one_are_passed_on_in_order() -> None:
    found, events = scan(log("H T RAW:7b LF T"))
    assert found.outcome is Outcome.CORRUPT
    assert [encode_event(event) for event in events] == event_lines("T")
    assert (found.events, found.committed, found.kept_bytes) == (6, 6, len(log("H T")))
