"""The cases of group DM: damage that is no crash, and damage as a crash leaves it.

Most cases are one log and many damages, each undone by `restore` before the next. A log is a closed
turn, a second one, and an open turn behind it, so that every damage has a committed region and a
tail to be made in. Does not cover what a crash leaves at each byte (groups CR).
"""

from __future__ import annotations

from typing import Final

from torntail.drive.records import STRICT_VARIANTS
from torntail.explore.script import CaseBook, Log, Script
from torntail.judge.history import Append, Create, DamageKind, Load, Spoiling

__all__ = ["DAMAGE"]

DAMAGE: Final = CaseBook()
_case = DAMAGE.case

_CLOSED: Final = "TS U SS A SE TE"
_OPEN: Final = "TS U SS A:c1 K:c1"
_COMMITTED: Final = 12
"""How many records the two closed turns of `_log` have."""


_WRONG_SEQS: Final[tuple[tuple[DamageKind, int], ...]] = (
    ("delete", 0),
    ("duplicate", 0),
    ("renumber", 1),
)


def _log(script: Script, label: str = "a", *, open_turn: bool = True) -> Log:
    log = script.session(label)
    log.append(_CLOSED)
    log.append(_CLOSED)
    if open_turn:
        log.append(_OPEN)
    return log


def _reload(log: Log, *probes: str) -> None:
    """Looks at a damaged log with every call that can, then loads it, twice."""
    log.inspect(*probes)
    log.script.add(Load(session=log.id, probes=probes))
    log.script.add(Load(session=log.id, probes=probes))


# --- DM-1 -----------------------------------------------------------------------------------------


@_case("DM-1", requires=["detects=torn"], durable=True)
def a_bad_record_in_the_committed_region(script: Script) -> None:
    log = _log(script)
    # Not the last turn/end: garbled, it is no longer there to commit anything.
    for record in (0, script.random.randrange(1, 5), 5, script.random.randrange(6, 11)):
        log.damage("garble", record)
        _reload(log, "DM-1")
        log.append_wrong([log.event("note")], "DM-1")
        if script.capabilities.creates == "explicit":
            script.add(Create(header=log.header, probes=("DM-1",)))
        log.damage("restore")
    log.damage("trail", 7, variant="rubbish")
    _reload(log, "DM-1")


@_case("DM-1", requires=["detects=gap"], durable=True)
def a_wrong_seq_in_the_committed_region(script: Script) -> None:
    log = _log(script)
    for kind, amount in (*_WRONG_SEQS, ("renumber", -1)):
        for record in (script.random.randrange(1, 5), script.random.randrange(6, 11)):
            log.damage(kind, record, amount)
            _reload(log, "DM-1")
            log.damage("restore")


# --- DM-2, DM-3, DM-4 -----------------------------------------------------------------------------


@_case("DM-2", requires=["detects=torn"], durable=True)
def what_was_added_behind_the_end_is_dropped(script: Script) -> None:
    for open_turn in (False, True):
        log = _log(script, "open" if open_turn else "closed", open_turn=open_turn)
        for variant in (
            "fragment",
            "nul-run",
            "nul-line",
            "blank-line",
            "rubbish-line",
            "glued-line",
            "nul-glued-line",
        ):
            log.damage("add", variant=variant)
            _reload(log, "DM-2")
            log.damage("restore")


@_case("DM-2", requires=["detects=torn"], durable=True)
def a_record_cut_anywhere_is_dropped(script: Script) -> None:
    log = _log(script)
    for record in range(_COMMITTED, len(log.events)):
        for amount in (0, 1, script.random.randrange(2, 30), -2, -script.random.randrange(3, 30)):
            log.damage("cut", record, amount)
            _reload(log, "DM-2")
            log.damage("restore")


@_case("DM-2", requires=["detects=torn"], durable=True)
def whole_records_in_the_tail_are_copied(script: Script) -> None:
    log = _log(script)
    for record in (_COMMITTED, _COMMITTED + 2):
        log.damage("garble", record)
        _reload(log, "DM-2")
        script.list("DM-2")
        log.damage("restore")
        # Here the copy can be told from one that leaves out what does not parse.
        log.damage("rewrite", record, variant="NaN")
        _reload(log, "DM-2")
        log.damage("restore")


@_case("DM-2", requires=["detects=torn"], durable=True)
def work_goes_on_behind_a_dropped_tail(script: Script) -> None:
    log = script.session()
    log.append(_CLOSED)
    log.damage("add", variant="fragment")
    log.load("DM-2")
    log.append(_CLOSED, "DM-2")
    script.reopen()
    log.load("DM-2")
    log.damage("add", variant="nul-run")
    log.append(_CLOSED, "DM-2")
    script.reopen()
    log.load("DM-2")


@_case("DM-2", requires=["detects=torn"], durable=True)
def a_file_that_lost_its_end(script: Script) -> None:
    # All that can be done to a log whose format nobody knows: a prefix, or a refusal.
    log = _log(script)
    for amount in (1, 2, script.random.randrange(3, 40), script.random.randrange(40, 400)):
        log.damage("cut-bytes", amount=amount)
        script.add(Load(session=log.id, probes=("DM-2",)))
        log.damage("restore")


@_case("DM-3", requires=["detects=gap"], durable=True)
def a_wrong_seq_in_the_tail(script: Script) -> None:
    log = _log(script)
    for kind, amount in (*_WRONG_SEQS, ("renumber", -3)):
        for record in (_COMMITTED + 1, _COMMITTED + 3):
            log.damage(kind, record, amount)
            _reload(log, "DM-3")
            log.damage("restore")


@_case("DM-3", requires=["detects=gap", "detects=torn"], durable=True)
def seqs_behind_a_bad_line_are_not_looked_at(script: Script) -> None:
    log = _log(script)
    log.damage("renumber", _COMMITTED + 3, 5)
    log.damage("garble", _COMMITTED + 1)
    _reload(log, "DM-3")
    log.damage("restore")
    log.damage("renumber", _COMMITTED, 2)
    log.damage("garble", _COMMITTED + 2)
    _reload(log, "DM-3")


@_case("DM-4", requires=["detects=torn"], durable=True)
def a_record_that_lacks_its_newline_is_kept(script: Script) -> None:
    log = _log(script)
    for record in (11, _COMMITTED, _COMMITTED + 2, len(log.events) - 1):
        log.damage("cut", record, -1)
        _reload(log, "DM-4")
        log.damage("restore")
    log.damage("cut", 11, -1)
    script.add(Load(session=log.id, probes=("DM-4",)))
    del log.events[_COMMITTED:]
    log.append(_CLOSED, "DM-4")
    script.reopen()
    log.load("DM-4")


@_case("DM-4", requires=["detects=torn"], durable=True)
def a_record_followed_by_rubbish_is_kept(script: Script) -> None:
    log = _log(script)
    for record in (11, _COMMITTED + 1, len(log.events) - 1):
        for variant in ("rubbish", "fragment"):
            log.damage("trail", record, variant=variant)
            _reload(log, "DM-4")
            log.damage("restore")
    log.damage("trail", -1, variant="no newline")
    _reload(log, "DM-4")


# --- DM-5 -----------------------------------------------------------------------------------------


@_case("DM-5", durable=True, requires=["detects=torn"])
def records_are_read_strictly(script: Script) -> None:
    log = script.session()
    log.append(_CLOSED)
    log.append("TS U SS A SE")
    for variant in STRICT_VARIANTS:
        # In the committed region it is refused, in the tail it is torn.
        log.damage("rewrite", script.random.randrange(1, 5), variant=variant)
        script.add(Load(session=log.id, probes=("DM-5",)))
        log.damage("restore")
        log.damage("rewrite", script.random.randrange(6, 11), variant=variant)
        script.add(Load(session=log.id, probes=("DM-5",)))
        log.damage("restore")


@_case("DM-5", durable=True)
def carriage_returns_are_accepted_and_never_written(script: Script) -> None:
    log = _log(script, open_turn=False)
    log.damage("crlf")
    script.add(Load(session=log.id, probes=("DM-5",)))
    log.append("TS U", "DM-5")
    script.reopen()
    log.load("DM-5")


@_case("DM-5")
def append_refuses_what_load_would_refuse(script: Script) -> None:
    log = script.session()
    log.append("X:note")
    hows: tuple[Spoiling, ...] = (
        "too-deep",
        "too-many-digits",
        "empty-type",
        "negative-seq",
        "boolean-seq",
        "float-seq",
        "text-time",
        "nan-time",
    )
    for how in hows:
        if script.capabilities.values == "i-json" and how == "too-many-digits":
            continue
        log.append_wrong(log.write("X:note"), "DM-5", spoiled=(0, how))
    script.reopen()
    log.load("DM-5")
    log.append([log.event("note", extra={"futureKey": [1, {"k": None}]})], "DM-5")
    log.load("DM-5")


# --- DM-6, DM-7, DM-8 -----------------------------------------------------------------------------


@_case("DM-6", requires=["header"], durable=True)
def a_file_without_a_whole_header(script: Script) -> None:
    log = script.session()
    log.append("X:note X:note")
    kinds: tuple[DamageKind, ...] = ("empty", "header-cut", "nul-file")
    for kind in kinds:
        log.damage(kind)
        script.add(Load(session=log.id, probes=("DM-6",)))
        log.inspect("DM-6")
        script.list("DM-6")
        if script.capabilities.creates == "explicit":
            script.add(Create(header=log.header, probes=("DM-6",)))
            script.add(Append(session=log.id, events=tuple(log.events), probes=("DM-6",)))
            script.add(Load(session=log.id, probes=("DM-6",)))
        log.damage("restore")


@_case("DM-6", requires=["header"], durable=True)
def a_header_without_newline_is_a_log_without_events(script: Script) -> None:
    log = script.session()
    log.append("X:note X:note")
    events = list(log.events)
    log.damage("header-only")
    log.inspect("DM-6")
    script.add(Load(session=log.id, probes=("DM-6",)))
    script.add(Append(session=log.id, events=tuple(events), probes=("DM-6",)))
    script.reopen()
    script.add(Load(session=log.id, probes=("DM-6",)))


@_case("DM-6", requires=["header"], durable=True)
def a_first_line_that_is_no_header_is_never_overwritten(script: Script) -> None:
    log = script.session()
    log.append("X:note X:note")
    log.damage("header-garble")
    script.add(Load(session=log.id, probes=("DM-6",)))
    log.inspect("DM-6")
    log.append_wrong([log.event("note")], "DM-6")
    if script.capabilities.creates == "explicit":
        script.add(Create(header=log.header, probes=("DM-6",)))


FLIPS: Final = 96
HEADER_FLIPS: Final = 24
"""How many single bits are flipped in a run; which ones, the seed decides."""


@_case("DM-7", durable=True)
def single_bits_are_flipped(script: Script) -> None:
    log = _log(script)
    for _ in range(FLIPS):
        record = script.random.randrange(len(log.events))
        log.damage("flip", record, script.random.randrange(8 * 4096))
        script.add(Load(session=log.id, probes=("DM-7",)))
        log.damage("restore")
    if script.capabilities.header:
        for _ in range(HEADER_FLIPS):
            log.damage("header-flip", amount=script.random.randrange(8 * 4096))
            script.add(Load(session=log.id, probes=("DM-7",)))
            log.damage("restore")


@_case("DM-8", requires=["inspects"])
def looking_writes_nothing(script: Script) -> None:
    log = script.session()
    log.append(_CLOSED)
    log.append(_OPEN)
    log.inspect("DM-8")
    script.list("DM-8")
    log.inspect("DM-8")
    # Had one of them closed the turn, this seq would be taken.
    log.append("R:c1", "DM-8")
    script.reopen()
    log.inspect("DM-8")
    script.list("DM-8")
    log.load()
    log.inspect("DM-8")


@_case("DM-8", requires=["inspects"], durable=True)
def looking_at_damage_writes_nothing(script: Script) -> None:
    log = _log(script)
    damages: tuple[tuple[DamageKind, int, str], ...] = (
        ("add", 0, "fragment"),
        ("garble", _COMMITTED + 1, ""),
        ("trail", -1, "rubbish"),
        ("garble", 3, ""),
    )
    for kind, record, variant in damages:
        log.damage(kind, record, variant=variant)
        log.inspect("DM-8")
        script.list("DM-8")
        log.damage("restore")
