"""The cases of group RW: reading and writing without a fault.

Each case varies one thing, so that a store that breaks one promise is caught by that clause and not
by its neighbours: no chunks but where chunks are the matter, no open turn but where closers are.
Loose events of a type of their own (`X:note`) stand outside any turn and leave nothing to close.
"""

from __future__ import annotations

from typing import Any, Final

from torntail.explore.script import CaseBook, Log, Script
from torntail.judge.history import (
    Append,
    ChangeCallersCopy,
    Close,
    Create,
    Inspect,
    ListSessions,
    Load,
    Reopen,
    Together,
)
from torntail.session import SessionEvent, encode_event

__all__ = ["READING_AND_WRITING"]

READING_AND_WRITING: Final = CaseBook()
_case = READING_AND_WRITING.case

_TURN: Final = "TS U SS A SE TE"


# --- RW-1 -----------------------------------------------------------------------------------------


@_case("RW-1")
def what_was_appended_comes_back(script: Script) -> None:
    log = script.session()
    log.append(_TURN, "RW-1")
    log.load("RW-1")
    log.append("TS U SS A:c1 K:c1 R:c1 SE SS A SE TE", "RW-1")
    log.load("RW-1")
    script.reopen()
    log.load("RW-1")
    log.inspect("RW-1")


@_case("RW-1")
def chunks_come_back(script: Script) -> None:
    log = script.session()
    log.append("TS U SS C C C A SE TE")
    log.load("RW-1")
    script.reopen()
    log.load("RW-1")


@_case("RW-1", requires=["header"])
def header_fields_come_back(script: Script) -> None:
    variants: dict[str, dict[str, Any]] = {
        "no-cwd": {"cwd": None},
        "fork": {"parent_session": f"parent-{script.token}", "seed_length": 4},
        "extra": {"extra": {"origin": "subagent", "depth": 2}},
        "odd-cwd": {"cwd": "relative/é\u2028"},
    }
    for label, fields in variants.items():
        log = script.session(label, **fields)
        log.append(_TURN)
        script.reopen()
        log.load("RW-1")


@_case("RW-1", requires=["profile=session"])
def an_open_turn_is_closed_and_stored(script: Script) -> None:
    log = script.session()
    log.append("TS U")
    log.inspect("RW-1")
    log.load("RW-1")
    script.reopen()
    log.load("RW-1")
    log.append(_TURN, "RW-1")
    log.load("RW-1")


@_case("RW-1")
def batches_of_many_sizes(script: Script) -> None:
    log = script.session()
    for size in (1, 2, 7, 40, 150):
        log.append(" ".join(["X:note"] * size), "RW-1")
    script.reopen()
    log.load("RW-1")


# --- RW-2, RW-3 -----------------------------------------------------------------------------------


@_case("RW-2", requires=["checks_seq"])
def a_wrong_first_seq_is_refused(script: Script) -> None:
    log = script.session()
    log.append_wrong([log.event("note", seq=1)], "RW-2")
    log.append("X:note X:note X:note", "RW-2")
    for seq in (0, 2, 4, 10):
        log.append_wrong([log.event("note", seq=seq)], "RW-2")
    log.append("X:note", "RW-2")
    log.load("RW-2")
    log.append_wrong([log.event("note", seq=3)], "RW-2")
    script.reopen()
    log.load("RW-2")


@_case("RW-2", requires=["checks_seq"])
def a_batch_that_is_not_contiguous_is_refused(script: Script) -> None:
    log = script.session()
    log.append("X:note X:note")
    for seqs in ((2, 3, 5), (2, 2), (2, 3, 2), (2, 3, 4, 6, 5)):
        log.append_wrong([log.event("note", seq=seq) for seq in seqs], "RW-2")
    log.append("X:note X:note", "RW-2")
    script.reopen()
    log.load("RW-2")


@_case("RW-2", requires=["checks_seq"], durable=True)
def append_without_load_does_what_load_does(script: Script) -> None:
    log = script.session()
    log.append(_TURN)
    script.reopen()
    log.append(_TURN, "RW-2")
    if script.capabilities.profile == "session" and script.capabilities.repairs == "load":
        log.append("TS U")
        script.reopen()
        log.append_wrong([log.event("note")], "RW-2")
        log.load("RW-2")
        log.append("TS U")
        script.reopen()
        # Where the turn is closed first, the next seq is behind its turn/end.
        log.events.append(log.event("turn/end"))
        log.append("X:note", "RW-2")
        script.reopen()
        script.add(Load(session=log.id, probes=("RW-2",)))


@_case("RW-3")
def what_json_cannot_carry_is_refused(script: Script) -> None:
    log = script.session()
    log.append("X:note X:note")
    for how in (
        "nan",
        "infinity",
        "minus-infinity",
        "bytes",
        "set",
        "date",
        "cycle",
        "integer-key",
        "object",
    ):
        size = script.random.randrange(1, 4)
        index = script.random.randrange(size)
        batch = log.write(" ".join(["X:note"] * size))
        log.append_wrong(batch, "RW-3", spoiled=(index, how))
    script.reopen()
    log.load("RW-3")
    log.append("X:note", "RW-3")


@_case("RW-3")
def a_refused_first_batch_stores_nothing(script: Script) -> None:
    log = script.session()
    log.append_wrong(log.write("X:note X:note"), "RW-3", spoiled=(1, "nan"))
    script.add(Load(session=log.id, probes=("RW-3",)))
    log.append("X:note", "RW-3")
    log.load("RW-3")


# --- RW-4, RW-5 -----------------------------------------------------------------------------------


@_case("RW-4")
def the_callers_events_stay_the_callers(script: Script) -> None:
    log = script.session()
    log.append(_TURN)
    script.add(ChangeCallersCopy(what="appended"))
    log.load("RW-4")
    log.append(_TURN)
    script.add(ChangeCallersCopy(what="appended"))
    log.inspect("RW-4")
    script.reopen()
    log.load("RW-4")


@_case("RW-4")
def what_load_returned_is_the_callers(script: Script) -> None:
    log = script.session()
    log.append(_TURN)
    log.load()
    script.add(ChangeCallersCopy(what="loaded"))
    log.load("RW-4")
    script.add(ChangeCallersCopy(what="loaded"))
    log.append("X:note", "RW-4")
    log.load("RW-4")


@_case("RW-5")
def an_empty_batch_does_nothing(script: Script) -> None:
    log = script.session()
    log.append([], "RW-5")
    if script.capabilities.creates == "explicit":
        script.add(Load(session=log.id, probes=("RW-5",)))
    log.append("X:note")
    log.append([], "RW-5")
    script.add(Append(session=f"unknown-{script.token}", events=(), probes=("RW-5",)))
    if script.capabilities.creates == "explicit":
        script.add(Load(session=f"unknown-{script.token}", probes=("RW-5",)))
    log.load("RW-5")
    script.list("RW-5")


# --- RW-6, RW-7, RW-8 -----------------------------------------------------------------------------


@_case("RW-6", requires=["lazy", "creates=explicit"])
def create_stores_nothing(script: Script) -> None:
    log = script.session(create=False)
    script.add(Create(header=log.header, probes=("RW-6",)))
    script.add(Load(session=log.id, probes=("RW-6",)))
    script.list("RW-6")
    log.append("X:note", "RW-6")
    script.list("RW-6")
    log.load("RW-6")


@_case("RW-6", requires=["lazy", "creates=explicit"], durable=True)
def a_session_without_events_ends_with_its_store(script: Script) -> None:
    log = script.session()
    script.reopen()
    script.add(Load(session=log.id, probes=("RW-6",)))
    script.list("RW-6")
    script.add(Create(header=log.header, probes=("RW-6",)))
    log.append("X:note", "RW-6")
    script.list("RW-6")


@_case("RW-7", requires=["creates=explicit"])
def an_id_is_created_once(script: Script) -> None:
    log = script.session()
    other = script.session(id=log.id, create=False, cwd=f"/other/{script.token}")
    script.add(Create(header=log.header, probes=("RW-7",)))
    script.add(Create(header=other.header, probes=("RW-7",)))
    log.append(_TURN)
    script.add(Create(header=log.header, probes=("RW-7",)))
    script.add(Create(header=other.header, probes=("RW-7",)))
    script.reopen()
    script.add(Create(header=log.header, probes=("RW-7",)))
    script.add(Create(header=other.header, probes=("RW-7",)))
    log.load("RW-7")
    script.add(Create(header=other.header, probes=("RW-7",)))
    log.load("RW-7")


@_case("RW-8")
def an_unknown_id_is_not_found(script: Script) -> None:
    unknown = script.session("unknown", create=False)
    for label in ("first", "second"):
        script.add(Load(session=unknown.id, probes=("RW-8",)))
        unknown.inspect("RW-8")
        if script.capabilities.creates == "explicit":
            unknown.append_wrong(unknown.write("X:note"), "RW-8")
        log = script.session(label)
        log.append("X:note")
    script.list("RW-8")


@_case("RW-8", durable=True)
def absence_is_told_apart_from_cannot_look(script: Script) -> None:
    log = script.session()
    log.append("X:note")
    log.damage("root-is-a-file")
    script.add(Load(session=log.id, probes=("RW-8",)))
    log.append_wrong([log.event("note")], "RW-8")
    script.list("RW-8")


# --- RW-9 -----------------------------------------------------------------------------------------


def _three_sessions(script: Script) -> tuple[Log, Log, Log]:
    logs = tuple(
        script.session(label, cwd=f"/{label}/{script.token}")
        for label in ("first", "second", "third")
    )
    for log in logs:
        log.append(_TURN)
    first, second, third = logs
    return first, second, third


@_case("RW-9", requires=["lists"])
def list_gives_one_entry_per_log(script: Script) -> None:
    script.list("RW-9")
    _three_sessions(script)
    script.session("empty")
    script.list("RW-9")
    script.reopen()
    script.list("RW-9")


@_case("RW-9", requires=["lists"], durable=True)
def a_damaged_body_is_still_listed(script: Script) -> None:
    _, second, third = _three_sessions(script)
    second.damage("garble", 2)
    third.damage("add", variant="fragment")
    script.list("RW-9")


@_case("RW-9", requires=["lists", "header"], durable=True)
def one_damaged_header_hides_no_other(script: Script) -> None:
    first, second, _ = _three_sessions(script)
    for damage in ("header-garble", "header-id", "header-version"):
        second.damage(damage, amount=7)
        script.list("RW-9")
        second.damage("restore")
    first.damage("empty")
    script.list("RW-9")
    first.damage("restore")
    first.damage("header-cut")
    script.list("RW-9")
    first.damage("restore")
    first.damage("header-only")
    script.list("RW-9")


# --- RW-10, RW-11 ---------------------------------------------------------------------------------

_ODD_IDS: Final = (
    "..",
    ".",
    "../outside",
    "../../outside",
    "a/b",
    "a_b",
    "a~002Fb",
    "a%2Fb",
    "a\\b",
    "a\0b",
    "half \ud800",
    "half \udfff",
    "�",
    "x" * 300,
    "x" * 300 + "y",
    "Twin",
    "twin",
    "TWIN",
    "\u00e9",
    "e\u0301",
    " ",
    "trailing.",
    "trailing. ",
    "new\nline",
    "-rf",
    "~",
    "CON",
    "a:b",
    "*",
    "' OR '1'='1",
    ".locks",
    "_no-cwd",
    "sessions.db",
)


@_case("RW-10")
def odd_ids_are_kept_apart(script: Script) -> None:
    ids = list(_ODD_IDS)
    script.random.shuffle(ids)
    logs = []
    for session_id in ids:
        log = script.session(id=session_id, create=False)
        script.add(Create(header=log.header, probes=("RW-10",)))
        log.append("X:note", "RW-10")
        logs.append(log)
    for log in logs:
        log.load("RW-10")
    script.reopen()
    script.list("RW-10")
    for log in logs:
        log.load("RW-10")
        log.append("X:note", "RW-10")
    for log in logs:
        log.load("RW-10")


@_case("RW-10", requires=["creates=explicit", "header"])
def the_empty_id_is_refused(script: Script) -> None:
    log = script.session(id="", create=False)
    script.add(Create(header=log.header, probes=("RW-10",)))
    script.list("RW-10")


@_case("RW-11")
def sessions_do_not_touch_each_other(script: Script) -> None:
    logs = [script.session(label) for label in ("a", "ab", "b")]
    for _ in range(3):
        for log in logs:
            log.append("X:note X:note", "RW-11")
    logs[0].load("RW-11")
    logs[1].append("X:note", "RW-11")
    logs[2].load("RW-11")
    logs[0].append("X:note", "RW-11")
    script.reopen()
    for log in logs:
        log.load("RW-11")


@_case("RW-11", requires=["profile=session"])
def closing_one_session_leaves_the_others_open(script: Script) -> None:
    one, two = script.session("one"), script.session("two")
    one.append("TS U")
    two.append("TS U SS A:c1")
    one.load("RW-11")
    two.append("K:c1", "RW-11")
    one.load("RW-11")
    two.inspect("RW-11")


# --- RW-12, RW-13 ---------------------------------------------------------------------------------

_EVERYWHERE: Final[dict[str, Any]] = {
    "separators": "left\u2028mid\u2029right\u0085end\x1c\x1d\x1e",
    "byte order mark": "\ufeffstart",
    "controls": "".join(map(chr, range(32))) + "\x7f",
    "quotes": 'a"b\\c/d\u2028',
    "not a character": "\ufffe\uffff",
    "doubles": [5e-324, 2.2250738585072014e-308, 1.7976931348623157e308, 0.1, 1e21, 1e-7, 1.5],
    "integers": [0, 1, -1, 2**53 - 1, -(2**53 - 1), 2**31],
    "constants": [None, True, False, [], {}, ""],
    "numbers that are no booleans": [1, 0, True, False, 1.0],
    "keys": {"": 1, " ": 2, "\u2028": 3, "é": 4, "e\u0301": 5, "__proto__": 6},
}
_JSON_ONLY: Final[dict[str, Any]] = {
    "lone surrogates": ["\ud800", "\udfff", "a\udc00b", "\udc00\ud800"],
    "a pair of halves": "\ud83d\ude00",
    "big integers": [2**53, 2**63, 2**64, -(2**64), 10**100, 10**4300 - 1, -(10**4300 - 1)],
    "the sign of zero": [-0.0, 0.0],
}


@_case("RW-12")
def odd_values_survive(script: Script) -> None:
    log = script.session()
    values = dict(_EVERYWHERE)
    if script.capabilities.values == "json":
        values |= _JSON_ONLY
    names = list(values)
    script.random.shuffle(names)
    log.append([log.event("note", {"value": values[names[0]]})], "RW-12")
    batch: list[SessionEvent] = []
    for name in names[1:]:
        batch.append(log.event("note", {"value": values[name]}, seq=1 + len(batch)))
    log.append(batch, "RW-12")
    log.load("RW-12")
    script.reopen()
    log.load("RW-12")


@_case("RW-12")
def every_code_point_survives(script: Script) -> None:
    log = script.session()
    text = "".join(map(chr, [*range(0xD800), *range(0xE000, 0x110000)]))
    log.append([log.event("note", {"text": text})], "RW-12")
    if script.capabilities.values == "json":
        halves = "".join(f"{chr(half)}." for half in range(0xD800, 0xE000))
        log.append([log.event("note", {"text": halves})], "RW-12")
    script.reopen()
    log.load("RW-12")


@_case("RW-12")
def deep_nesting_survives(script: Script) -> None:
    log = script.session()
    # The record's own brace is the first level, its data the second.
    for outermost, opened in (([], 197), ({}, 197)):
        value: Any = outermost
        for level in range(opened):
            value = [value] if level % 2 else {"k": value}
        log.append([log.event("note", {"value": value})], "RW-12")
    script.reopen()
    log.load("RW-12")


@_case("RW-12")
def a_line_of_64_mebibytes_survives(script: Script) -> None:
    log = script.session()
    short = log.event("note", {"text": ""})
    text = "z" * ((64 << 20) - len(encode_event(short)) - 1)
    log.append([SessionEvent(short.type, short.seq, short.time, {**short.data, "text": text})])
    script.reopen()
    log.load("RW-12")


@_case("RW-13")
def unknown_types_and_odd_times_are_kept(script: Script) -> None:
    log = script.session()
    types = ["plugin/any thing", "x", "turn/starts", "Tool/Call", "note é", "\u2028", "a\0b"]
    log.append(
        [log.event(kind, {"deep": {"k": [1, {}]}}, seq=seq) for seq, kind in enumerate(types)]
    )
    times = [5, 5, 4, 0, -1, 1.5, -2.5, 2**53 - 1, 1e300]
    first = len(log.events)
    log.append(
        [log.event("note", seq=first + index, time=time) for index, time in enumerate(times)]
    )
    datas: list[Any] = [None, 7, "text", [], True, 1.5, {}]
    first = len(log.events)
    log.append(
        [SessionEvent("note", first + index, log.time, data) for index, data in enumerate(datas)]
    )
    log.append([log.event("note", extra={"ignorable": True, "surfaceop": "x", "": None})])
    log.append([log.event("note", source_event_seqs=[0], surface_op={"op": "replace"})])
    log.load("RW-13")
    script.reopen()
    log.load("RW-13")


# --- RW-14, RW-15, RW-16, RW-17 -------------------------------------------------------------------


@_case("RW-14", requires=["header", "creates=explicit"])
def another_version_is_refused(script: Script) -> None:
    log = script.session(create=False, version=7)
    script.add(Create(header=log.header, probes=("RW-14",)))


@_case("RW-14", requires=["header"], durable=True)
def a_stored_log_of_another_version_is_refused(script: Script) -> None:
    other, log = script.session("other"), script.session()
    for one in (other, log):
        one.append(_TURN)
    for version in (1, -1, script.random.randrange(2, 10**6)):
        log.damage("header-version", amount=version)
        script.add(Load(session=log.id, probes=("RW-14",)))
        log.append_wrong([log.event("note")], "RW-14")
        log.inspect("RW-14")
        script.list("RW-14")
        log.damage("restore")
    log.load("RW-14")


@_case("RW-15", requires=["header"], durable=True)
def a_header_of_another_id_is_refused(script: Script) -> None:
    first, second, _ = _three_sessions(script)
    second.damage("header-id")
    script.add(Load(session=second.id, probes=("RW-15",)))
    second.append_wrong([second.event("note")], "RW-15")
    second.inspect("RW-15")
    script.list("RW-15")
    second.damage("restore")
    first.damage("misplace", other=second.id)
    script.add(Load(session=second.id, probes=("RW-15",)))
    second.append_wrong([second.event("note")], "RW-15")
    script.list("RW-15")


@_case("RW-15", requires=["header"], durable=True)
def an_id_in_two_places_is_refused(script: Script) -> None:
    first, second, _ = _three_sessions(script)
    first.damage("second-place", other=second.id)
    script.add(Load(session=first.id, probes=("RW-15",)))
    first.append_wrong([first.event("note")], "RW-15")
    script.list("RW-15")
    second.load("RW-15")


@_case("RW-16")
def order_is_by_seq_alone(script: Script) -> None:
    log = script.session()
    start = int(log.time)
    log.append([log.event("note", seq=seq, time=start - 1000 * seq) for seq in range(12)])
    mark = script.mark()
    same = [SessionEvent("note", 12 + index, start, {"mark": mark}) for index in range(5)]
    log.append(same[:2])
    log.append(same[2:])
    log.load("RW-16")
    script.reopen()
    log.load("RW-16")


@_case("RW-17")
def calls_at_the_same_time_are_serialised(script: Script) -> None:
    log = script.session()
    log.append("X:note")
    for _ in range(6):
        rivals = [[log.event("note", seq=len(log.events))] for _ in range(4)]
        if script.capabilities.checks_seq:
            appends = [Append(session=log.id, events=tuple(rival)) for rival in rivals]
            script.add(Together(operations=tuple(appends), probes=("RW-17",)))
            # Which of them came first is the store's choice; the next seq is known.
            log.events.extend(rivals[0])
        batch = log.write("X:note X:note X:note")
        script.add(
            Together(
                operations=(
                    Append(session=log.id, events=tuple(batch)),
                    Load(session=log.id),
                    Load(session=log.id),
                ),
                probes=("RW-17",),
            )
        )
        log.events.extend(batch)
    log.load("RW-17")


@_case("RW-17")
def nothing_works_after_close(script: Script) -> None:
    log = script.session()
    log.append(_TURN)
    new = script.session("new", create=False)
    script.add(Close(probes=("RW-17",)))
    script.add(Load(session=log.id, probes=("RW-17",)))
    log.append_wrong([log.event("note")], "RW-17")
    if script.capabilities.creates == "explicit":
        script.add(Create(header=new.header, probes=("RW-17",)))
    if script.capabilities.inspects:
        script.add(Inspect(session=log.id, probes=("RW-17",)))
    if script.capabilities.lists:
        script.add(ListSessions(probes=("RW-17",)))
    script.add(Close(probes=("RW-17",)))
    if script.durable:
        script.add(Reopen(probes=("RW-17",)))
        log.append(_TURN, "RW-17")
        log.load("RW-17")
