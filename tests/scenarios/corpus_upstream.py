"""What was seen in the published packages of the DeepSeek Harness, made small: docs/upstream.md
says of each what came of it. Like all of the corpus they are run on our own store; on the packages
by `--store dsh-jsonl` or `--store dsh-sqlite`. (Those that were known before the packages could be
run are in `corpus_shapes`; `a-name-that-was-not-synced-before-a-kill` was saved by `certify`, with
the very crash that was seen.)
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.scenarios.corpus_shapes import CLOSED, Write, scenario, session
from torntail.explore.script import Script
from torntail.judge.history import Append, Create, Load
from torntail.scenarios.format import CrashFault, Scenario
from torntail.session import SessionHeader

_ORIGIN = "Seen in a published package of another implementation of this format."


def scenarios() -> Iterator[Scenario]:
    yield from _values()
    yield from _damage()
    yield from _crashes()


# --- values that are taken and not given back -----------------------------------------------------


def _values() -> Iterator[Scenario]:
    yield _plain(
        "a-time-with-a-fraction",
        "An event's time has a fraction",
        "What append takes, load gives back; what load would refuse, append refuses.",
        "RW-13",
        "the event is there with its time",
        _a_time_with_a_fraction,
    )
    yield _plain(
        "a-further-key",
        "An event has a key that the format does not name",
        "What append takes, load gives back; what load would refuse, append refuses.",
        "RW-13",
        "the event is there with its key",
        _a_further_key,
    )
    yield _plain(
        "a-relative-working-directory",
        "A session's working directory is a relative path",
        "A header that create takes is one that load takes.",
        "RW-1",
        "the session is there with its header",
        _a_relative_directory,
    )
    yield _plain(
        "two-ids-of-half-characters",
        "Two ids differ in half a character only",
        "An id that cannot be kept is refused, and never taken for another one.",
        "RW-10",
        "both sessions are there, or the id is refused for what it is",
        _two_half_characters,
    )


def _a_time_with_a_fraction(script: Script) -> None:
    log = session(script)
    log.append(CLOSED)
    log.append([log.event("note", time=1_700_000_000_000.5)], "RW-13")
    script.reopen()
    log.load("RW-13")


def _a_further_key(script: Script) -> None:
    log = session(script)
    log.append(CLOSED)
    log.append([log.event("note", extra={"origin": "plugin"})], "RW-13")
    script.reopen()
    log.load("RW-13")


def _a_relative_directory(script: Script) -> None:
    log = script.session(id="s-1", cwd="projects/w")
    log.append(CLOSED, "RW-1")
    script.reopen()
    log.load("RW-1")


def _two_half_characters(script: Script) -> None:
    for id in ("half \udc00", "half \ud800"):
        script.add(Create(header=SessionHeader(id, 1_700_000_000_000), probes=("RW-10",)))
        log = script.session(id=id, create=False)
        script.add(Append(session=id, events=(log.event("note"),), probes=("RW-10",)))
        script.add(Load(session=id, probes=("RW-10",)))


# --- damage ---------------------------------------------------------------------------------------


def _damage() -> Iterator[Scenario]:
    yield _plain(
        "a-list-over-one-bad-header",
        "One of two sessions has another id in its header than its place",
        "One damaged session never hides the rest.",
        "RW-9",
        "both are listed, the damaged one with the kind of its error",
        _one_bad_header,
    )
    yield _plain(
        "a-file-that-holds-nothing-yet",
        "A first write left an empty file",
        "A log that never came to be does not block its id.",
        "DM-6",
        "the session can be created and written",
        _an_empty_file,
    )


def _one_bad_header(script: Script) -> None:
    session(script, "s-1").append(CLOSED)
    other = session(script, "s-2")
    other.append(CLOSED)
    other.damage("header-id")
    script.list("RW-9")


def _an_empty_file(script: Script) -> None:
    log = session(script)
    first = log.append("TS U")
    log.damage("empty")
    script.add(Create(header=log.header, probes=("DM-6",)))
    script.add(Append(session=log.id, events=tuple(first), probes=("DM-6",)))
    script.add(Load(session=log.id, probes=("DM-6",)))


# --- crashes --------------------------------------------------------------------------------------


def _crashes() -> Iterator[Scenario]:
    load = Load(session="s-1")
    yield scenario(
        "upstream",
        "an-append-whose-bytes-did-not-arrive",
        "Power fails in an append: the file has its new length, and not its new bytes",
        "What a power failure leaves of an append is a torn tail, whatever the encoding.",
        _ORIGIN,
        "CR-3",
        "the load succeeds, and gives what was acknowledged before",
        _two_appends,
        (CrashFault(during=2, model="ordered"),),
    )
    yield scenario(
        "upstream",
        "closers-behind-bytes-that-were-not-synced",
        "An append is killed before its sync, the next process closes the turn, power fails",
        "A closing turn's end commits what stands before it, which is synced first.",
        _ORIGIN,
        "CR-3",
        "the load succeeds, whichever pages arrived",
        _killed_in_a_turn,
        (
            CrashFault(during=2, model="kill"),
            CrashFault(during=0, model="ordered", recovery=(load,)),
        ),
    )


def _two_appends(script: Script) -> None:
    log = session(script)
    log.append("TS")
    log.append("SS")


def _killed_in_a_turn(script: Script) -> None:
    log = session(script)
    log.append("TS U")
    log.append("SS A C C")


def _plain(id: str, title: str, teaches: str, clause: str, outcome: str, write: Write) -> Scenario:
    return scenario("upstream", id, title, teaches, _ORIGIN, clause, outcome, write)
