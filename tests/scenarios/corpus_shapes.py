"""The scenarios that are written by hand: torn tails, gaps, crashes inside the tools of a turn, the
write path, and what is known of other implementations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from torntail.crash.disk import Model
from torntail.crash.io_faults import IoFault, SyncFailure
from torntail.explore.script import Log, Script
from torntail.judge.capabilities import Capabilities
from torntail.judge.history import Append, Create, Load, Reopen
from torntail.scenarios.format import CrashFault, Expectation, Scenario, ScenarioClass

CLOSED = "TS U SS A SE TE"
OPEN = "TS U SS A:c1 K:c1"

Write = Callable[[Script], None]


def session(script: Script, name: str = "s-1") -> Log:
    return script.session(id=name, cwd="/w")


def scenario(
    kind: ScenarioClass,
    id: str,
    title: str,
    teaches: str,
    origin: str,
    clause: str,
    outcome: str,
    write: Write,
    faults: tuple[CrashFault | IoFault, ...] = (),
    also: tuple[Expectation, ...] = (),
) -> Scenario:
    script = Script(f"scenario/{id}", Capabilities())
    write(script)
    level = "process"
    if any(not isinstance(fault, CrashFault) or fault.model != "kill" for fault in faults):
        level = "power"
    return Scenario(
        torntail=1,
        id=id,
        kind=kind,
        title=title,
        teaches=teaches,
        origin=origin,
        level=level,  # type: ignore[arg-type]
        plan=tuple(script.operations),
        faults=faults,
        expect=(Expectation(clause=clause, outcome=outcome), *also),
    )


def scenarios() -> Iterator[Scenario]:
    yield from torn_tails()
    yield from gaps()
    yield from mid_tool()
    yield from write_path()
    yield from io_errors()
    yield from other_implementations()


# --- torn tails -----------------------------------------------------------------------------------


def _reload(log: Log, *probes: str) -> None:
    log.inspect(*probes)
    log.script.add(Load(session=log.id, probes=probes))
    log.script.add(Load(session=log.id, probes=probes))


def _damaged(clause: str, kind: Any, record: int = 0, amount: int = 0, variant: str = "") -> Write:
    """Two closed turns and an open one, damaged, looked at, loaded twice, and gone on with."""

    def write(script: Script) -> None:
        log = session(script)
        log.append(CLOSED)
        log.append(CLOSED)
        log.append(OPEN)
        log.damage(kind, record, amount, variant)
        _reload(log, clause)

    return write


def _gone_on_with(kind: Any, record: int = 0, amount: int = 0, variant: str = "") -> Write:
    """A closed turn, damaged behind its end, appended to, read by the next process."""

    def write(script: Script) -> None:
        log = session(script)
        log.append(CLOSED)
        log.damage(kind, record, amount, variant)
        log.append(CLOSED, "DM-2")
        script.reopen()
        log.load("DM-2")

    return write


_TORN: tuple[tuple[str, str, str, str, Write], ...] = (
    (
        "half-a-record",
        "The last record is there by half",
        "What does not parse behind the last turn's end is dropped, and the open turn is closed.",
        "DM-2",
        _damaged("DM-2", "cut", 15, 40),
    ),
    (
        "one-byte-of-a-record",
        "One byte of the last record arrived",
        "The torn tail begins at the first byte of the line that does not parse, be it one brace.",
        "DM-2",
        _damaged("DM-2", "cut", 16, 1),
    ),
    (
        "a-record-but-for-its-brace",
        "The last record lacks its closing brace and newline",
        "A record is complete with its closing brace, and a byte less is none.",
        "DM-2",
        _damaged("DM-2", "cut", 16, -2),
    ),
    (
        "a-record-but-for-its-newline",
        "The last record lacks its newline alone",
        "A record that is whole but for its newline is kept, and the newline added.",
        "DM-4",
        _damaged("DM-4", "cut", 16, -1),
    ),
    (
        "a-turn-end-but-for-its-newline",
        "The end of the last turn lacks its newline alone",
        "A turn whose end is whole but for the newline is over, and is not closed a second time.",
        "DM-4",
        _damaged("DM-4", "cut", 11, -1),
    ),
    (
        "cut-between-records",
        "The log ends after a whole record, its open turn in the middle",
        "A log cut at a line's end has no torn tail, only a turn to close.",
        "DM-2",
        _damaged("DM-2", "cut", 15, 0),
    ),
    (
        "a-fragment-behind-the-end",
        "A fragment of a record follows the last whole one",
        "A fragment is dropped, and work goes on where the log was whole.",
        "DM-2",
        _gone_on_with("add", variant="fragment"),
    ),
    (
        "zeros-behind-the-end",
        "A run of zeros follows the last record",
        "Zeros where a file grew before its data are a torn tail like any other.",
        "DM-2",
        _gone_on_with("add", variant="nul-run"),
    ),
    (
        "a-line-of-zeros",
        "A line of zeros, newline and all, follows the last record",
        "A newline makes no record of what does not parse.",
        "DM-2",
        _damaged("DM-2", "add", variant="nul-line"),
    ),
    (
        "a-blank-line",
        "A blank line follows the last record",
        "A blank line is no record, and is dropped with what follows it.",
        "DM-2",
        _damaged("DM-2", "add", variant="blank-line"),
    ),
    (
        "a-line-of-rubbish",
        "A line of rubbish follows the last record",
        "Rubbish behind the committed region is a torn tail and no corruption.",
        "DM-2",
        _damaged("DM-2", "add", variant="rubbish-line"),
    ),
    (
        "a-record-glued-to-a-fragment",
        "A whole record stands behind a fragment, on its line",
        "What a store wrote behind a fragment is on no line of its own, and a copy of it is kept.",
        "DM-2",
        _damaged("DM-2", "add", variant="glued-line"),
    ),
    (
        "a-record-glued-to-zeros",
        "A whole record stands behind zeros, on their line",
        "Zeros in front of a record spoil the line, and are not skipped to reach it.",
        "DM-2",
        _damaged("DM-2", "add", variant="nul-glued-line"),
    ),
    (
        "a-bad-record-before-whole-ones",
        "In the open turn a record is rubbish, and whole ones follow it",
        "The whole records behind the first bad line are copied aside before they are cut off.",
        "DM-2",
        _damaged("DM-2", "garble", 13),
    ),
    (
        "rubbish-behind-a-record",
        "Rubbish follows the last record on its own line",
        "A whole record at the start of a line is kept whatever follows it on that line.",
        "DM-4",
        _damaged("DM-4", "trail", 16, variant="rubbish"),
    ),
    (
        "a-fragment-on-the-line-of-a-turn-end",
        "The last turn's end is followed by a fragment on its line",
        "The end of a turn commits it even where the next record was glued to it.",
        "DM-4",
        _damaged("DM-4", "trail", 11, variant="fragment"),
    ),
)


def torn_tails() -> Iterator[Scenario]:
    for id, title, teaches, clause, write in _TORN:
        origin = "A shape that a kill or a power cut leaves of an append-only log."
        outcome = "the load keeps what is whole, drops and reports the rest, and closes the turn"
        yield scenario("torn-tail", id, title, teaches, origin, clause, outcome, write)
    for id, kind, title, teaches in (
        ("an-empty-file", "empty", "The log's file has no bytes", "No header, no session."),
        (
            "half-a-header",
            "header-cut",
            "The file holds half a header and nothing else",
            "Half a header is a session that never was, and its id can be taken again.",
        ),
        (
            "a-file-of-zeros",
            "nul-file",
            "The file holds zeros alone",
            "A file that grew and got no data is a session that never was.",
        ),
    ):
        yield scenario(
            "torn-tail",
            id,
            title,
            teaches if len(teaches) > 30 else "Without a header there is no session to be read.",
            "What a crash leaves of a first flush that is not made under another name.",
            "DM-6",
            "the load says never materialised, and the next first flush moves the file aside",
            _never_materialised(kind),
        )
    yield scenario(
        "torn-tail",
        "a-header-and-no-newline",
        "The file holds a whole header without its newline",
        "A header alone is a session without events, and the newline is added.",
        "What a crash leaves of a header that was written by itself.",
        "DM-6",
        "the load gives no events, and the session goes on at seq 0",
        _header_only,
    )


def _never_materialised(kind: Any) -> Write:
    def write(script: Script) -> None:
        log = session(script)
        events = log.append(CLOSED)
        log.damage(kind)
        script.add(Load(session=log.id, probes=("DM-6",)))
        script.list("DM-6")
        script.add(Create(header=log.header, probes=("DM-6",)))
        script.add(Append(session=log.id, events=tuple(events), probes=("DM-6",)))
        script.add(Load(session=log.id, probes=("DM-6",)))

    return write


def _header_only(script: Script) -> None:
    log = session(script)
    events = log.append(CLOSED)
    log.damage("header-only")
    log.inspect("DM-6")
    script.add(Load(session=log.id, probes=("DM-6",)))
    script.add(Append(session=log.id, events=tuple(events), probes=("DM-6",)))
    script.reopen()
    script.add(Load(session=log.id, probes=("DM-6",)))


# --- gaps -----------------------------------------------------------------------------------------


def gaps() -> Iterator[Scenario]:
    places = (
        ("committed", "in a turn that is over", 8, "DM-1"),
        ("tail", "in the open turn", 14, "DM-3"),
    )
    kinds: tuple[tuple[str, str, int, str, str], ...] = (
        ("missing", "delete", 0, "is missing", "A crash takes bytes away and never a whole line."),
        ("twice", "duplicate", 0, "stands twice", "Two writers that share a seq leave a repeat."),
        ("ahead", "renumber", 1, "has a seq too high", "A counter that ran ahead leaves a gap."),
        ("back", "renumber", -3, "has a seq too low", "A counter kept in memory steps back."),
    )
    for place, where, record, clause in places:
        for id, kind, amount, what, teaches in kinds:
            yield scenario(
                "gap",
                f"a-record-{id}-{place}",
                f"A record {what} {where}",
                f"{teaches} So the log is refused and not mended.",
                "The gaps and repeats that second writers and lost counters leave in the field.",
                clause,
                "the load refuses and names file and line, and not a byte changes",
                _damaged(clause, kind, record, amount),
            )
    yield scenario(
        "gap",
        "a-wrong-seq-behind-a-bad-line",
        "A wrong seq stands behind a line that does not parse",
        "Behind the first bad line seqs are not looked at: all of it is the torn tail.",
        "Rule DM-3 of the contract, the other way round.",
        "DM-3",
        "the tail is dropped from the bad line on, and a copy is kept",
        _behind_a_bad_line,
    )
    yield scenario(
        "gap",
        "a-wrong-seq-before-a-bad-line",
        "A wrong seq stands in front of a line that does not parse",
        "A well-formed record with a wrong seq is refused even where a torn tail follows it.",
        "Rule DM-3 of the contract.",
        "DM-3",
        "the load refuses, and not a byte changes",
        _before_a_bad_line,
    )


def _behind_a_bad_line(script: Script) -> None:
    log = session(script)
    log.append(CLOSED)
    log.append(CLOSED)
    log.append(OPEN)
    log.damage("renumber", 15, 5)
    log.damage("garble", 13)
    _reload(log, "DM-3")


def _before_a_bad_line(script: Script) -> None:
    log = session(script)
    log.append(CLOSED)
    log.append(CLOSED)
    log.append(OPEN)
    log.damage("renumber", 12, 2)
    log.damage("garble", 14)
    _reload(log, "DM-3")


# --- crashes inside the tools of a turn -----------------------------------------------------------


def _batches(*batches: str) -> Write:
    def write(script: Script) -> None:
        log = session(script)
        for batch in batches:
            log.append(batch)

    return write


_MID_TOOL: tuple[tuple[str, str, str, tuple[str, ...]], ...] = (
    (
        "before-the-message",
        "killed while the message with its calls is written",
        "Before the message there is no call to answer: the step and the turn are closed.",
        ("TS U SS", "A:c1,c2"),
    ),
    (
        "between-message-and-first-call",
        "killed between the message and its first call",
        "A call that was asked for and never begun is answered all the same.",
        ("TS U SS A:c1,c2", "K:c1"),
    ),
    (
        "between-two-calls",
        "killed between the first call and the second",
        "The answer to a call that was logged points at it, the other has nothing to point at.",
        ("TS U SS A:c1,c2", "K:c1", "K:c2"),
    ),
    (
        "before-the-first-result",
        "killed before the first of two results",
        "Both calls are answered, in the order in which the message asked for them.",
        ("TS U SS A:c1,c2 K:c1 K:c2", "R:c1"),
    ),
    (
        "between-parallel-results",
        "killed between two results that came in another order",
        "Only the call without a result is answered, be it the first.",
        ("TS U SS A:c1,c2 K:c1 K:c2", "R:c2", "R:c1"),
    ),
    (
        "after-the-last-result",
        "killed between the last result and the end of the step",
        "Nothing is left to answer, and the step and the turn are closed.",
        ("TS U SS A:c1,c2 K:c1 K:c2 R:c1", "R:c2", "SE"),
    ),
    (
        "after-the-step-of-the-tools",
        "killed between the end of the step and that of the turn",
        "With no step open only the turn is closed.",
        ("TS U SS A:c1 K:c1 R:c1 SE", "TE"),
    ),
    (
        "a-whole-tool-step-in-one-batch",
        "killed anywhere in a batch of message, calls and results",
        "Wherever a batch is torn, each call in what is left is answered once.",
        ("TS U SS", "A:c1,c2 K:c1 R:c1 K:c2 R:c2 SE TE"),
    ),
    (
        "an-id-of-an-earlier-turn",
        "killed in a turn that uses the id of an earlier call again",
        "A result of an earlier turn answers no call of this one.",
        ("TS U SS A:c1 K:c1 R:c1 SE TE", "TS U SS A:c1", "K:c1"),
    ),
)


def mid_tool() -> Iterator[Scenario]:
    origin = "The places in a turn with tools at which an agent can be killed."
    models: tuple[tuple[Model, str], ...] = (("kill", ""), ("ordered", "-power-cut"))
    for id, title, teaches, batches in _MID_TOOL:
        for model, suffix in models:
            if suffix and id not in ("between-parallel-results", "a-whole-tool-step-in-one-batch"):
                continue
            yield scenario(
                "mid-tool",
                f"{id}{suffix}",
                f"A turn is {title}" if not suffix else f"Power fails: a turn is {title}",
                teaches,
                origin,
                "CR-9",
                "every call is answered exactly once, and the turn is closed",
                _batches(*batches),
                (CrashFault(during=len(batches), model=model),),
                (Expectation(clause="CR-1", outcome="nothing acknowledged is lost"),),
            )
    yield scenario(
        "mid-tool",
        "one-id-twice-in-a-message",
        "A store is opened again after the one result of two calls that share an id",
        "A repeated id is one call, and its one result answers it.",
        "A bug report: the second result of two calls with one id vanished.",
        "CL-2",
        "no call is left to answer, and the step and the turn are closed",
        _one_id_twice,
    )
    for model, name in (("kill", "killed"), ("posix", "cut off by a power failure")):
        yield scenario(
            "mid-tool",
            f"inside-the-repair-{'kill' if model == 'kill' else 'power-cut'}",
            f"A turn with open calls is killed, and its repair is {name}",
            "A repair that was begun is gone on with, and ends in the same log.",
            "A crash of the process that mends what an earlier crash left.",
            "CR-7",
            "the load after both crashes gives what the load after the first one gave",
            _batches("TS U SS A:c1,c2 K:c1", "R:c1"),
            (
                CrashFault(during=2, model="kill"),
                CrashFault(during=0, model=model, recovery=(Load(session="s-1"),)),
            ),
            (Expectation(clause="CR-9", outcome="every call is answered exactly once"),),
        )


def _one_id_twice(script: Script) -> None:
    log = session(script)
    log.append("TS U SS A:c1,c1")
    log.append("K:c1")
    log.append("R:c1")
    script.reopen()
    log.load("CL-2")


# --- the write path -------------------------------------------------------------------------------


def write_path() -> Iterator[Scenario]:
    origin = "A kind of bug seen again and again in the session logs of agents."
    yield scenario(
        "durability",
        "appended-behind-a-torn-fragment",
        "A process is killed inside a write, and the next one appends",
        "Whoever appends without cutting off a fragment makes one bad line of two records.",
        origin,
        "CR-5",
        "the torn record is cut off before anything is appended",
        _batches("TS U", "SS A SE TE"),
        (CrashFault(during=2, model="kill"),),
    )
    yield scenario(
        "durability",
        "a-first-flush-that-power-cuts-short",
        "Power fails during the first flush of a session",
        "A name that is durable before the bytes are leaves a file of length zero.",
        origin,
        "CR-10",
        "there is no session and its id can be taken, or there is a whole one",
        _batches(CLOSED),
        (CrashFault(during=1, model="posix"),),
    )
    yield scenario(
        "durability",
        "acknowledged-and-not-synced",
        "Power fails after two appends were acknowledged",
        "An append that returned is on the disk, not only in the page cache.",
        origin,
        "CR-1",
        "both acknowledged batches are there",
        _batches("TS U SS", "A SE TE"),
        (CrashFault(during=2, model="ordered"),),
    )
    yield scenario(
        "durability",
        "a-name-that-is-not-synced",
        "Power fails after the first append was acknowledged",
        "A synced file without a synced name, and without synced folders, is lost whole.",
        origin,
        "CR-1",
        "the session is found under its name",
        _batches(CLOSED),
        (CrashFault(during=1, model="posix"),),
    )
    yield scenario(
        "durability",
        "zeros-in-front-of-a-turn-end",
        "Power fails while a batch of several turns of many pages is written",
        "A turn's end that is durable before the pages in front of it commits a hole.",
        origin,
        "CR-3",
        "the load succeeds, whichever pages of the batch arrived",
        _many_pages,
        (CrashFault(during=2, model="ordered"),),
        (Expectation(clause="CR-1", outcome="the first, acknowledged turn is there"),),
    )
    yield scenario(
        "durability",
        "a-later-turn-and-a-crash",
        "A process is killed in its third turn",
        "Whoever writes the whole file anew for each append can lose the turns before.",
        origin,
        "CR-1",
        "the two turns that were acknowledged are there",
        _batches(CLOSED, CLOSED, CLOSED),
        (CrashFault(during=3, model="kill"),),
    )
    yield scenario(
        "durability",
        "a-crash-then-an-append-then-power-fails",
        "A process is killed in a turn, the next one goes on, and power fails",
        "What a process finds may be in the page cache only, and is synced before it is built on.",
        origin,
        "CR-1",
        "what the second process acknowledged is there, with all that stands before it",
        _batches("TS U SS A:c1", "K:c1"),
        (
            CrashFault(during=2, model="kill"),
            CrashFault(
                during=1,
                model="ordered",
                recovery=(Load(session="s-1"), Append(session="s-1", events=_turn(9))),
            ),
        ),
    )
    yield scenario(
        "durability",
        "two-sessions-and-a-power-cut",
        "Power fails while one of two sessions is written",
        "A crash in one session leaves the others as they were.",
        "Rule CR-6 of the contract.",
        "CR-6",
        "the other session is unchanged, and a list shows both",
        _two_sessions,
        (CrashFault(during=3, model="posix"),),
        (Expectation(clause="CR-1", outcome="nothing acknowledged is lost"),),
    )
    yield scenario(
        "durability",
        "a-reopened-store-and-a-kill",
        "A store is closed in the middle of a turn, opened again, and killed",
        "A turn that was left open is closed by whoever appends next, also without a load.",
        "A session that a user goes back to after leaving it in the middle of a turn.",
        "CR-2",
        "the closers of the first turn stand before the second, whole or in part",
        _reopened,
        (CrashFault(during=3, model="kill"),),
    )


def _turn(seq: int) -> tuple[Any, ...]:
    log = session(Script("scenario/turn", Capabilities()))
    log.turn = 1
    events = log.write(CLOSED)
    return tuple(
        type(event)(event.type, seq + index, event.time, event.data, event.surface_op)
        for index, event in enumerate(events)
    )


def _many_pages(script: Script) -> None:
    log = session(script)
    log.append(CLOSED)
    events = log.write(f"{CLOSED} {CLOSED}")
    padded = []
    for event in events:
        if event.type in ("assistant/message", "user/message"):
            event = type(event)(
                event.type,
                event.seq,
                event.time,
                {**event.data, "note": "x" * 5_000},
                event.surface_op,
            )
        padded.append(event)
    log.append(padded)


def _two_sessions(script: Script) -> None:
    one, other = session(script, "s-1"), session(script, "s-2")
    one.append(CLOSED)
    other.append("TS U SS A:c1")


def _reopened(script: Script) -> None:
    log = session(script)
    log.append("TS U SS A:c1")
    script.reopen()
    # Appended without a load: the closers of the open turn come first.
    log.load()
    script.operations.pop()
    log.append(CLOSED)


# --- the disk says no -----------------------------------------------------------------------------

_TWO_TURNS = ("TS U SS A SE TE", "TS U SS A SE TE")

_IO_ERRORS: tuple[tuple[str, str, str, str, str, IoFault], ...] = (
    (
        "no-room-in-the-middle-of-a-record",
        "The disk is full in the middle of an append, and room comes back",
        "A part of a record that is left behind spoils the good one that follows it.",
        "IO-4",
        "what was written of the batch is cut off, and the same batch goes through later",
        IoFault(during=2, on="write", error="ENOSPC", length=40),
    ),
    (
        "no-room-from-then-on",
        "The disk is full, and stays full",
        "A store that cannot write refuses, and what it acknowledged before can be loaded.",
        "IO-2",
        "the append raises, and the first turn loads",
        IoFault(during=2, on="write", error="ENOSPC", length=40, lasts="on"),
    ),
    (
        "an-append-that-cannot-be-written",
        "A write fails with EIO",
        "An error of a write is told to the caller and nothing is queued in secret.",
        "IO-1",
        "the append raises, and its events do not come to light later",
        IoFault(during=2, on="write"),
    ),
    (
        "a-write-that-comes-short",
        "A write stores 40 bytes of a batch and says so",
        "A short write is no error, and is continued where it stopped.",
        "IO-4",
        "the append returns, and the whole batch is there",
        IoFault(during=2, on="write", error=None, length=40),
    ),
    (
        "a-failed-sync-whose-pages-are-clean",
        "An fsync fails, and the next one succeeds without writing anything",
        "After a failed fsync a later one proves nothing about the same bytes.",
        "IO-3",
        "the writer is dead until it is reopened, and what is acknowledged later is durable",
        IoFault(during=2, on="sync", sync=SyncFailure(pages="clean-new")),
    ),
    (
        "a-failed-sync-that-takes-the-bytes-back",
        "An fsync fails, and the file reads as before the write",
        "Some file systems drop what they could not write, and the cursor is then too far.",
        "IO-3",
        "the writer is dead until it is reopened, and what is acknowledged later is durable",
        IoFault(during=2, on="sync", sync=SyncFailure(pages="clean-old")),
    ),
    (
        "a-first-flush-that-cannot-be-synced",
        "The fsync of a new session's file fails",
        "A session whose file could not be synced is not there, or is there whole.",
        "IO-1",
        "the append raises, and the id can be used once the disk is well",
        IoFault(during=1, on="sync"),
    ),
    (
        "a-folder-that-cannot-be-synced",
        "The fsync of a folder fails while a session is made",
        "A name that could not be made durable is no reason to acknowledge.",
        "IO-1",
        "the append raises",
        IoFault(during=1, on="sync-directory"),
    ),
)


def io_errors() -> Iterator[Scenario]:
    for id, title, teaches, clause, outcome, fault in _IO_ERRORS:
        yield scenario(
            "io-error",
            id,
            title,
            teaches,
            "An error of the disk at one operation of one append.",
            clause,
            outcome,
            _batches(*_TWO_TURNS),
            (fault,),
        )
    yield scenario(
        "io-error",
        "a-repair-that-cannot-be-written",
        "A session with an open turn is loaded from storage that has become read-only",
        "A repair that cannot be written is shown all the same, marked as not durable.",
        "A session that is looked at on a disk mounted read-only after an error.",
        "IO-5",
        "the load gives the events and their closers, and no append is taken",
        _repaired_later,
        (IoFault(during=3, error="EROFS", lasts="on"),),
    )


def _repaired_later(script: Script) -> None:
    log = session(script)
    log.append("TS U SS A:c1 K:c1")
    script.reopen()
    log.load()


# --- what is known of other implementations -------------------------------------------------------


def other_implementations() -> Iterator[Scenario]:
    origin = "A fault of another implementation of this format, which its own tests do not show."
    yield scenario(
        "upstream",
        "a-turn-end-behind-a-single-sync",
        "Power fails while a batch that ends its turn is written",
        "A batch that ends in a turn's end needs a sync in front of it, or it commits a hole.",
        origin,
        "CR-3",
        "the load succeeds, whichever pages arrived",
        _one_long_turn,
        (CrashFault(during=2, model="ordered"),),
    )
    yield scenario(
        "upstream",
        "a-null-record",
        "A record in a turn that is over is null",
        "JSON that is no object is no record, and no reason to crash.",
        origin,
        "DM-1",
        "the load refuses it as corruption and names the line",
        _damaged("DM-1", "rewrite", 7, variant="null"),
    )
    yield scenario(
        "upstream",
        "a-whole-turn-without-its-newline",
        "A turn is complete but for the newline of its end",
        "A completed turn that is read as interrupted gets a second end.",
        origin,
        "DM-4",
        "the turn is over, and work goes on behind it",
        _turn_without_newline,
    )
    yield scenario(
        "upstream",
        "events-behind-damage-in-an-open-turn",
        "In an open turn a record is rubbish, and acknowledged ones follow",
        "What is cut off behind damage is reported, and copied aside, and not dropped in silence.",
        origin,
        "DM-2",
        "the tail is dropped, reported, and a copy of it kept",
        _damaged("DM-2", "garble", 12),
    )
    yield scenario(
        "upstream",
        "a-call-left-before-a-step-end",
        "A step ends while one of its calls has no result, and the process is killed",
        "The end of a step clears its calls, and nothing is made up for them later.",
        origin,
        "CR-2",
        "the closers are those of the turn alone",
        _batches("TS U SS A:c1,c2 K:c1 R:c1 SE", "SS C"),
        (CrashFault(during=2, model="kill"),),
    )
    yield scenario(
        "upstream",
        "an-id-of-another-folder",
        "An id that exists is created again with another working directory",
        "An id is unique in the store, whatever its working directory.",
        origin,
        "RW-7",
        "the second create is refused",
        _same_id_elsewhere,
    )
    yield scenario(
        "upstream",
        "a-torn-tail-and-text-of-several-bytes",
        "A torn tail follows records whose text is longer in bytes than in characters",
        "The place to cut at is counted in bytes of the file, not of what would be written now.",
        origin,
        "DM-2",
        "the tail is cut at its first byte, and work goes on",
        _several_bytes,
    )


def _one_long_turn(script: Script) -> None:
    log = session(script)
    log.append("TS U")
    events = log.write("SS A SE TE")
    long = events[1]
    events[1] = type(long)(
        long.type, long.seq, long.time, {**long.data, "note": "x" * 9_000}, long.surface_op
    )
    log.append(events)


def _turn_without_newline(script: Script) -> None:
    log = session(script)
    log.append(CLOSED)
    log.damage("cut", 5, -1)
    script.add(Load(session=log.id, probes=("DM-4",)))
    log.append(CLOSED, "DM-4")
    script.reopen()
    log.load("DM-4")


def _same_id_elsewhere(script: Script) -> None:
    log = session(script)
    log.append(CLOSED)
    header = type(log.header)(log.id, log.header.created_at, "/elsewhere")
    script.add(Create(header=header, probes=("RW-7",)))
    script.add(Reopen())
    script.add(Create(header=header, probes=("RW-7",)))


def _several_bytes(script: Script) -> None:
    log = session(script)
    events = log.write("TS U SS A SE TE")
    odd = events[3]
    data = {**odd.data, "note": "größer 言葉 \u2028 \x00"}
    events[3] = type(odd)(odd.type, odd.seq, odd.time, data, odd.surface_op)
    log.append(events)
    log.damage("add", variant="fragment")
    log.append(CLOSED, "DM-2")
    script.reopen()
    log.load("DM-2")
