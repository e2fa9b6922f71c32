"""The cases of group CL: what closes an interrupted turn.

Each row of `ROWS` is a log that ends in an open turn (or only looks so), with the clause it is
about; many are against the turn grammar on purpose, since a load takes events as they are. What the
closers have to be follows from the model; the rows are the measured edge cases of the original.
"""

from __future__ import annotations

from typing import Final

import msgspec

from torntail.explore.script import CaseBook, Log, Script
from torntail.judge.history import Load
from torntail.session import SessionEvent, interrupted_turn_closers

__all__ = ["CLOSERS", "ROWS"]

CLOSERS: Final = CaseBook()
_case = CLOSERS.case

_CLOSED: Final = "TS U SS A SE TE"

ROWS: Final[dict[str, tuple[tuple[str, str], ...]]] = {
    "CL-1": (
        ("turn/start twice: the last turn is closed", "TS U TS"),
        ("turn/start forgets the step", "TS SS TS"),
        ("turn/start forgets calls", "TS SS A:c1,c2 K:c1 TS"),
        ("turn/end of any number clears all", "TS SS A:c1 TE@9"),
        ("step/end forgets its calls", "TS SS A:c1 SE"),
        ("step/end of a wrong number closes the step", "TS SS A:c1 SE@7"),
        ("a call of a closed step, another step open", "TS SS A:c1 SE SS"),
        ("step/start without a turn", "SS"),
    ),
    "CL-2": (
        ("one id twice in one message", "TS SS A:c1,c1"),
        ("two messages in one step", "TS SS A:c1 A:c2"),
        ("an id asked for again keeps its place", "TS SS A:c1,c2 A:c1"),
        ("an id asked for again takes the later step", "TS SS A:c1 SS A:c1"),
        ("an id asked for again forgets its call", "TS SS A:c1 K:c1 A:c1"),
        ("an id asked for again after its result", "TS SS A:c1 K:c1 R:c1 A:c1"),
        ("the message's step, not the open one", "TS SS A:c1@1 SS SS"),
        ("calls in another order than that of their ids", "TS SS A:c3,c1 A:c2"),
        ("a call in a message that is not the assistant's", "TS U:c9 SS A:c1 U:c8"),
        ("a block with an id that is no call", "TS SS A:~c9,c1"),
    ),
    "CL-3": (
        ("a call that was logged", "TS SS A:c1 K:c1"),
        ("calls logged in another order", "TS SS A:c1,c2,c3 K:c3 K:c1"),
        ("a call logged twice", "TS SS A:c1 K:c1 K:c1"),
        ("a call logged before its message", "TS SS K:c1 A:c1"),
        ("a call without a message", "TS SS A K:c9"),
        ("a result before its message", "TS SS R:c1 A:c1"),
        ("a result that names another turn and step", "TS SS A:c1 R:c1@8"),
        ("one of three answered", "TS SS A:c1,c2,c3 K:c1 K:c2 R:c2"),
        ("one id twice, one result", "TS SS A:c1,c1 R:c1"),
    ),
    "CL-4": (
        ("a closed turn", _CLOSED),
        ("a closed turn with an unanswered call", "TS SS A:c1 SE TE"),
        ("a message outside any turn", "TS TE U"),
        ("an open turn", "TS U"),
        ("an open step", "TS U SS"),
        ("an open step with two calls", "TS U SS A:c1,c2 K:c1"),
        ("all calls answered", "TS U SS A:c1 K:c1 R:c1"),
        ("a dozen calls", f"TS U SS A:{','.join(f'c{n}' for n in range(12, 0, -1))} K:c3"),
    ),
    "CL-5": (
        ("calls with and without a logged call", "TS U SS C A:c1,c2 K:c1"),
        ("the second turn, the third step", f"{_CLOSED} TS U SS SE SS SE SS A:c1 K:c1"),
        ("the time of the last event, which went back", "TS SS A:c1 K:c1 X:late"),
        ("turn and step of numbers of their own", "TS@7 U SS@3 A:c1 K:c1"),
    ),
}
"""Logs by clause: what is peculiar to them, and their events; `@n` puts another number on one."""


def _append_row(log: Log, words: str, *, times: bool = False) -> None:
    """Appends the events of a row as one batch or several."""
    plain: list[str] = []
    numbers: dict[int, int] = {}
    for index, word in enumerate(words.split()):
        name, _, number = word.partition("@")
        plain.append(name)
        if number:
            numbers[index] = int(number)
    events = log.write(" ".join(plain))
    for index, other in numbers.items():
        events[index] = _with_numbers(events[index], other)
    if times:
        events[-1] = msgspec.structs.replace(events[-1], time=log.header.created_at - 5.5)
    cut = log.script.random.randrange(1, len(events) + 1)
    log.append(events[:cut])
    log.append(events[cut:])


def _with_numbers(event: SessionEvent, number: int) -> SessionEvent:
    data = {
        key: number
        if key in ("turn", "step") and (key == "step" or event.type != "step/end")
        else v
        for key, v in event.data.items()
    }
    return msgspec.structs.replace(event, data=data)


def _rows_of(clause: str) -> None:
    def write(script: Script) -> None:
        for number, (_, words) in enumerate(ROWS[clause]):
            log = script.session(f"row-{number}")
            if number % 2:
                log.append(_CLOSED)
            _append_row(log, words, times=clause == "CL-5" and number == 2)
            if number % 3 == 0:
                script.reopen()
            log.load(clause)
            log.load(clause)

    write.__name__ = f"closers_of_{clause.lower()}"
    _case(clause)(write)


for _clause in ROWS:
    _rows_of(_clause)


def _open_turn(log: Log) -> list[SessionEvent]:
    """A log whose turn needs five closers, and these."""
    log.append(_CLOSED)
    log.append("TS U SS A:c1,c2,c3 K:c1 K:c2")
    return interrupted_turn_closers(log.events)


@_case("CL-6")
def closing_goes_on_where_it_stopped(script: Script) -> None:
    for written in range(6):
        log = script.session(f"written-{written}")
        closers = _open_turn(log)
        log.append(closers[:written])
        script.add(Load(session=log.id, probes=("CL-6",)))
        script.add(Load(session=log.id, probes=("CL-6",)))


@_case("CL-6", requires=["repairs=load"], durable=True)
def closers_cut_off_come_again(script: Script) -> None:
    log = script.session()
    first = len(log.events)
    closers = _open_turn(log)
    first = len(log.events)
    log.load("CL-6")
    for written in range(len(closers)):
        log.damage("cut", first + written, 0)
        script.add(Load(session=log.id, probes=("CL-6",)))
        script.add(Load(session=log.id, probes=("CL-6",)))
        log.damage("restore")
    for written in range(len(closers)):
        log.damage("cut", first + written, script.random.randrange(1, 20))
        script.add(Load(session=log.id, probes=("CL-6",)))
        log.damage("restore")


@_case("CL-7", requires=["repairs=load"], durable=True)
def an_interrupted_turn_is_committed(script: Script) -> None:
    log = script.session()
    log.append("TS U SS A:c1 K:c1")
    log.load()
    log.damage("garble", 1)
    script.add(Load(session=log.id, probes=("CL-7",)))
    log.damage("restore")
    log.append("TS U")
    log.damage("garble", -2)
    script.add(Load(session=log.id, probes=("CL-7",)))


@_case("CL-7")
def work_goes_on_after_an_interrupted_turn(script: Script) -> None:
    log = script.session()
    log.append("TS U SS A:c1 K:c1")
    log.load("CL-7")
    log.append(_CLOSED, "CL-7")
    script.reopen()
    log.load("CL-7")
