"""The cases of group RW that are about sessions among others: lists, ids, places, threads.

As in `cases_rw`, each case varies one thing.
"""

from __future__ import annotations

from typing import Final

from torntail.explore.script import CaseBook, Log, Script
from torntail.judge.history import (
    Append,
    Close,
    Create,
    Inspect,
    ListSessions,
    Load,
    Reopen,
    Together,
)

__all__ = ["SESSIONS"]

SESSIONS: Final = CaseBook()
_case = SESSIONS.case

_TURN: Final = "TS U SS A SE TE"


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


@_case("RW-9", requires=["lists", "header"])
def list_gives_whole_headers(script: Script) -> None:
    script.session("no-cwd", cwd=None).append("X:note")
    script.session("fork", parent_session=f"parent-{script.token}", seed_length=4).append("X:note")
    script.session("extra", extra={"origin": "subagent", "depth": 2}).append("X:note")
    script.reopen()
    script.list("RW-9")


@_case("RW-9", requires=["lists"])
def list_gives_all_of_many_logs(script: Script) -> None:
    for number in range(105):
        script.session(f"{number}").append("X:note")
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
    "ab",
    "[ab]",
    "a?",
    "_",
    "%",
    # Nothing can be made there, whatever the rights.
    "/proc/torntail/outside",
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


# --- RW-14, RW-15, RW-17 -------------------------------------------------------------------


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
        if script.capabilities.creates == "explicit":
            script.add(Create(header=log.header, probes=("RW-14",)))
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
    if script.capabilities.creates == "explicit":
        script.add(Create(header=second.header, probes=("RW-15",)))


@_case("RW-15", requires=["header"], durable=True)
def an_id_in_two_places_is_refused(script: Script) -> None:
    first, second, _ = _three_sessions(script)
    first.damage("second-place", other=second.id)
    script.add(Load(session=first.id, probes=("RW-15",)))
    first.append_wrong([first.event("note")], "RW-15")
    script.list("RW-15")
    second.load("RW-15")


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
def first_calls_at_the_same_time_are_serialised(script: Script) -> None:
    for number in range(4):
        log = script.session(f"{number}", create=False)
        if script.capabilities.creates == "explicit":
            create = Create(header=log.header)
            script.add(Together(operations=(create, create, create), probes=("RW-17",)))
        rivals = [log.write("X:note X:note") for _ in range(3)]
        if script.capabilities.checks_seq:
            appends = [Append(session=log.id, events=tuple(rival)) for rival in rivals]
            script.add(Together(operations=tuple(appends), probes=("RW-17",)))
            log.events.extend(rivals[0])
        log.append("TS U SS A:c1")
        loads = [Load(session=log.id)] * 3
        script.add(Together(operations=tuple(loads), probes=("RW-17",)))
        script.add(Load(session=log.id, probes=("RW-17",)))


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
