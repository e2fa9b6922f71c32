"""The cases of group RW: reading and writing without a fault.

Each case varies one thing, so that a store that breaks one promise is caught by that clause and not
by its neighbours: no chunks but where chunks are the matter, no open turn but where closers are.
Loose events of a type of their own (`X:note`) stand outside any turn and leave nothing to close.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from torntail.explore.script import CaseBook, Script
from torntail.judge.history import (
    Append,
    ChangeCallersCopy,
    Create,
    Load,
)

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
        log.inspect("RW-1")


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
    for size in (1, 2, 7, 40, 150, 1300):
        log.append(" ".join(["X:note"] * size), "RW-1")
    script.reopen()
    log.load("RW-1")


@_case("RW-1")
def equal_neighbours_come_back(script: Script) -> None:
    # Alone, across two batches, and in one: only seq tells them apart.
    log = script.session()
    first = log.write("X:note")[0]
    for size in (1, 1, 3):
        count = len(log.events)
        batch = [msgspec.structs.replace(first, seq=count + index) for index in range(size)]
        log.append(batch, "RW-1")
    log.append("X:note", "RW-1")
    log.load("RW-1")
    log.inspect("RW-1")
    script.reopen()
    log.load("RW-1")


# --- RW-2, RW-3 -----------------------------------------------------------------------------------


@_case("RW-2", requires=["checks_seq"])
def a_wrong_first_seq_is_refused(script: Script) -> None:
    log = script.session()
    log.append_wrong([log.event("note", seq=1)], "RW-2")
    if script.capabilities.creates == "explicit":
        script.add(Load(session=log.id, probes=("RW-2",)))
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


@_case(
    "RW-2",
    requires=["checks_seq", "inspects", "profile=session", "repairs=load"],
    durable=True,
)
def to_look_is_not_to_load(script: Script) -> None:
    log = script.session()
    log.append("TS U")
    script.reopen()
    log.inspect("RW-2")
    log.append_wrong([log.event("note")], "RW-2")
    log.load("RW-2")
    log.append("TS U")
    script.reopen()
    log.inspect("RW-2")
    # The turn is closed before this is written, though `inspect` wrote no closer.
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
        "nan-in-a-further-key",
        "bytes-in-the-surface",
    ):
        size = script.random.randrange(1, 4)
        index = script.random.randrange(size)
        batch = log.write(" ".join(["X:note"] * size))
        log.append_wrong(batch, "RW-3", spoiled=(index, how))
    # What was refused is not counted, either.
    log.append("X:note", "RW-3")
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
    log = script.session(extra={"labels": ["red", "green"]})
    log.append(_TURN)
    log.load()
    script.add(ChangeCallersCopy(what="loaded"))
    log.load("RW-4")
    if script.capabilities.inspects:
        log.inspect()
        script.add(ChangeCallersCopy(what="loaded"))
        log.inspect("RW-4")
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
    if script.durable:
        # Nor does it do what a load does.
        interrupted = script.session("interrupted")
        interrupted.append("TS U")
        script.reopen()
        interrupted.append([], "RW-5")
        interrupted.inspect("RW-5")


# --- RW-6, RW-7, RW-8 -----------------------------------------------------------------------------


@_case("RW-6", requires=["lazy", "creates=explicit"])
def create_stores_nothing(script: Script) -> None:
    # An id by which a file that holds it is known for data.
    log = script.session(create=False, id=script.mark())
    script.add(Create(header=log.header, probes=("RW-6",)))
    log.inspect("RW-6")
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
        for near in (log.id[:-1], f"{log.id}0", log.id.upper()):
            script.add(Load(session=near, probes=("RW-8",)))
    script.list("RW-8")


@_case("RW-8", durable=True)
def absence_is_told_apart_from_cannot_look(script: Script) -> None:
    log = script.session()
    log.append("X:note")
    log.damage("root-is-a-file")
    script.add(Load(session=log.id, probes=("RW-8",)))
    log.inspect("RW-8")
    log.append_wrong([log.event("note")], "RW-8")
    script.list("RW-8")
