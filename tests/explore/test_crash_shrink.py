"""A crash finding tells the smallest history that shows it, and keeps it with the disk."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import msgspec

from torntail import Capabilities, certify
from torntail.crash.crashes import Crash
from torntail.crash.disk import Model
from torntail.drive.target import target_of
from torntail.explore.crash_campaign import crash_campaign
from torntail.explore.crash_shard import CrashFinding, Share, ShareReport, crash_share
from torntail.explore.crash_shrink import smallest_history
from torntail.explore.sound_calls import sound_calls
from torntail.judge.history import Append, Create, Load, Operation, Reopen
from torntail.record.scratch import Scratch
from torntail.record.slots import Slot
from torntail.session import SessionEvent, SessionHeader

CLAIMS = Capabilities()
MODELS: tuple[Model, ...] = ("kill", "ordered", "posix")


def create(session: str) -> Create:
    return Create(header=SessionHeader(session, 0))


def events(*kinds: str, first: int = 0, sources: list[int] | None = None) -> tuple:
    return tuple(
        SessionEvent(kind, first + index, 0, {}, source_event_seqs=sources)
        for index, kind in enumerate(kinds)
    )


def append(session: str, *kinds: str, first: int = 0, sources: list[int] | None = None) -> Append:
    return Append(session=session, events=events(*kinds, first=first, sources=sources))


def sound(*calls: Operation) -> tuple[Operation, ...]:
    return sound_calls(calls, CLAIMS)


# --- calls that make sense without others ---------------------------------------------------------


def test_nothing_changes_where_nothing_was_dropped() -> None:
    calls = (
        create("a"),
        append("a", "turn/start", "note"),
        Reopen(),
        Load(session="a"),
        append("a", "turn/start", first=3),
        Reopen(),
        append("a", "note", first=5, sources=[0, 4]),
    )
    # A load closes the turn, and so does an append to a session that was not loaded.
    assert sound(*calls) == (*calls[:-1], append("a", "note", first=5, sources=[0]))
    assert sound(*calls[:-1]) == calls[:-1]


def test_events_are_numbered_anew_and_still_refer_to_each_other() -> None:
    kept = sound(create("a"), append("a", "note", first=4), append("a", "x", first=7, sources=[4]))
    assert kept == (create("a"), append("a", "note"), append("a", "x", first=1, sources=[0]))


def test_what_makes_no_sense_is_left_out() -> None:
    assert sound(append("a", "note"), Load(session="a")) == ()
    assert sound(create("a"), Load(session="a"), append("a")) == (create("a"),)
    # Announced only, a session is gone when the store is opened again.
    calls = (create("a"), Reopen(), append("a", "note"))
    assert sound(*calls) == (create("a"), Reopen())
    assert sound(create("a"), append("a", "note"), create("a")) == sound(*calls[:1], calls[2])


# --- small histories ------------------------------------------------------------------------------


def found(target: str, clause: str, plan: str | None = None) -> CrashFinding:
    """The first violation of a clause, with the history of its plan."""
    findings: list[CrashFinding] = []
    share = Share(models=MODELS, seed=0, images=4_000, sought=frozenset({clause}), plan=plan)
    with Scratch() as scratch, Slot(scratch) as slot:
        crash_share(
            target_of(target), share, slot=slot, found=findings.append, tick=lambda report: None
        )
    return next(finding for finding in findings if finding.clause == clause)


def shortened(target: str, finding: CrashFinding, reports: list[ShareReport]) -> CrashFinding:
    with Scratch() as scratch, Slot(scratch) as slot:
        return smallest_history(target_of(target), finding, seed=0, slot=slot, tick=reports.append)


def told(calls: Iterable[Operation]) -> list[str]:
    """The calls without what their values are."""
    words = []
    for call in calls:
        match call:
            case Create(header=header):
                words.append(f"create {header.id[0]}")
            case Append(session=session, events=batch):
                kinds = " ".join(f"{event.seq} {event.type}" for event in batch)
                words.append(f"append {session[0]}: {kinds}")
            case Load(session=session):
                words.append(f"load {session[0]}")
            case _:
                words.append(type(call).__name__.lower())
    return words


ONE_FSYNC = "tests.zoo.crashing:one_fsync_for_a_whole_batch"


def test_the_whole_history_that_is_left() -> None:
    finding = found(ONE_FSYNC, "CR-3", plan="turn-by-turn")
    assert told(finding.calls) == [
        "create a",
        "append a: 0 turn/start 1 user/message",
        "append a: 2 step/start",
        "append a: 3 assistant/message",
        "append a: 4 tool/call 5 tool/call",
        "append a: 6 tool/result",
        "append a: 7 tool/result 8 step/end 9 turn/end",
    ]
    reports: list[ShareReport] = []
    shorter = shortened(ONE_FSYNC, finding, reports)
    # What was acknowledged, and a batch whose turn/end stands behind a hole of one sector.
    assert told(shorter.calls) == [
        "create a",
        "append a: 0 tool/result",
        "append a: 1 tool/result 2 turn/end",
    ]
    assert (shorter.clause, shorter.cause) == (finding.clause, finding.cause)
    assert (shorter.submitted, shorter.acknowledged) == (3, 1)
    assert [crash.model for crash in shorter.chain] == ["ordered"]
    assert reports[-1].distinct > 0


def test_other_sessions_are_dropped() -> None:
    target = "tests.zoo.crashing:no_fsync_on_append"
    finding = found(target, "CR-1", plan="two-sessions")
    assert {call.split()[1][0] for call in told(finding.calls)} == {"a", "b"}
    shorter = shortened(target, finding, [])
    assert told(shorter.calls)[0] == "create " + finding.session[0]
    assert {call.split()[1][0] for call in told(shorter.calls)} == {finding.session[0]}


def test_what_does_not_show_again_stays_as_it_was() -> None:
    finding = found(ONE_FSYNC, "CR-3")
    assert shortened("jsonl", finding, []) == finding
    elsewhere = msgspec.structs.replace(finding, cause="another")
    assert shortened(ONE_FSYNC, elsewhere, []) == elsewhere


def test_a_device_fault_has_no_history_to_shorten() -> None:
    finding = msgspec.structs.replace(found(ONE_FSYNC, "CR-3"), chain=())
    reports: list[ShareReport] = []
    assert shortened(ONE_FSYNC, finding, reports) == finding
    assert reports == []


def test_workers_shorten_as_this_process_does() -> None:
    here, there = (
        crash_campaign(
            target_of(ONE_FSYNC), MODELS, seed=0, images=300, sought=["CR-3"], workers=workers
        )
        for workers in (0, 1)
    )
    assert here.findings == there.findings
    assert (here.histories, here.shortened) == (there.histories, there.shortened)
    assert here.shortened == len(here.findings) >= 1
    assert all(sound_calls(one.calls, CLAIMS) == one.calls for one in here.findings)


def test_a_witness_keeps_the_small_history(tmp_path: Path) -> None:
    target = "tests.zoo.crashing:a_lock_file_by_pid"
    certificate = certify(target, only=["CR-10"], images=300, workers=0, runs=tmp_path / "runs")
    finding = certificate.findings[0]
    assert finding.case == "first-turn"
    assert finding.command.endswith("--plan first-turn --only CR-10")
    kept = json.loads((Path(finding.witness or "") / "crash.json").read_text())
    calls = msgspec.convert(kept["calls"], tuple[Operation, ...])
    assert told(calls) == ["create a", "append a: 0 turn/start"]
    assert msgspec.convert(kept["chain"], tuple[Crash, ...])[0].model == "kill"
    assert len(finding.steps) == 4
