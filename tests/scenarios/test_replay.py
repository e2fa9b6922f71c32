"""Replays: the broken store fails by the recorded finding each time, the reference store passes."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tests.scenarios import corpus_shapes, found_stores
from tests.scenarios.make_corpus import repinned
from torntail.crash.crashes import Crash
from torntail.crash.disk import EMPTY_IMAGE
from torntail.crash.oplog import Invoked
from torntail.drive.target import target_of
from torntail.explore.crash_calls import CrashCalls
from torntail.explore.room import scratch_base
from torntail.judge.capabilities import Capabilities
from torntail.judge.history import Append, Create, Load
from torntail.record.scratch import Scratch
from torntail.record.slots import Slot
from torntail.scenarios.files import load_scenario
from torntail.scenarios.format import (
    CrashFault,
    Expectation,
    FileFault,
    RecordedFinding,
    Scenario,
)
from torntail.scenarios.from_finding import crash_faults
from torntail.scenarios.outcome import Replay, operations_digest
from torntail.scenarios.replay import Replayer, StoreChoice, replay
from torntail.session import SessionEvent, SessionHeader

CORPUS = Path(__file__).parents[2] / "fault-scenarios"
# One of each way of carrying out: a crash, two in a row, a device fault, a history, damage.
BROKEN = {
    "durability/no-fsync": "tests.zoo.crashing:no_fsync",
    "repair/cut-not-synced-before-closers": "tests.zoo.crashing:cut_not_synced_before_closers",
    "device/ends-the-process-over-damage": "tests.zoo.devices:ends_the_process_over_damage",
    "reading-and-writing/orders-by-time": "tests.zoo.reading:orders_by_time",
    "torn-tail/keeps-no-copy": "tests.zoo.damage:keeps_no_copy",
}


def load(name: str) -> Scenario:
    return load_scenario(CORPUS / f"{name}.json")


def turn(seq: int = 0) -> tuple[SessionEvent, ...]:
    return (
        SessionEvent("turn/start", seq, 1, {"turn": 1}),
        SessionEvent("turn/end", seq + 1, 2, {"turn": 1, "reason": {"kind": "completed"}}),
    )


def scenario(*, expect: str = "CR-1", **fields: object) -> Scenario:
    plan = (
        Create(header=SessionHeader("s-1", 1, "/w")),
        Append(session="s-1", events=turn()),
    )
    given: dict[str, object] = {
        "torntail": 1,
        "id": "mine",
        "kind": "durability",
        "title": "Mine",
        "plan": plan,
        "expect": (Expectation(clause=expect, outcome="it holds"),),
    }
    return Scenario(**{**given, **fields})  # type: ignore[arg-type]


@pytest.mark.parametrize(("name", "store"), BROKEN.items(), ids=[*BROKEN])
def test_the_broken_store_shows_the_recorded_finding_each_time(name: str, store: str) -> None:
    saved = load(name)
    assert saved.finding is not None
    recorded = (saved.finding.clause, saved.finding.sentence, saved.finding.cause)
    replays = []
    for _ in range(3):
        with Replayer(StoreChoice(store)) as replayer:
            replays.append(replayer.replay(saved))
    assert replays[0] == replays[1] == replays[2]
    assert replays[0].status == "failed"
    assert all(replays[0].landed)
    found = {(one.clause, one.sentence, one.cause) for one in replays[0].findings}
    assert recorded in found


@pytest.mark.slow
@pytest.mark.parametrize(("name", "store"), BROKEN.items(), ids=[*BROKEN])
def test_twenty_of_twenty(name: str, store: str) -> None:
    saved = load(name)
    assert len({repr(replay(saved, store)) for _ in range(20)}) == 1


@pytest.mark.parametrize("name", BROKEN)
def test_the_reference_store_keeps_what_the_broken_one_does_not(name: str) -> None:
    first = replay(load(name))
    assert (first.status, first.findings, first.reason) == ("fixed", (), "")
    assert replay(load(name)) == first


@pytest.mark.parametrize("store", ["jsonl", "tests.zoo.careful:careful"])
def test_stores_that_survive_pass_the_shapes_of_crashes(store: str) -> None:
    with Replayer(StoreChoice(store)) as replayer:
        replays = [
            replayer.replay(one) for one in (*corpus_shapes.mid_tool(), *corpus_shapes.write_path())
        ]
    assert {one.scenario: (one.status, one.reason) for one in replays} == {
        one.scenario: ("fixed", "") for one in replays
    }
    assert all(all(one.landed) for one in replays)


@pytest.mark.parametrize(("store", "clause"), found_stores.ZOO.items(), ids=[*found_stores.ZOO])
def test_a_store_that_reads_a_found_file_wrongly_is_caught(store: str, clause: str) -> None:
    caught = set()
    with Replayer(StoreChoice(store)) as replayer:
        for path in sorted((CORPUS / "field-report").glob("*.json")):
            caught |= {one.clause for one in replayer.replay(load_scenario(path)).findings}
            if clause in caught:
                break
    assert clause in caught


def test_a_store_in_the_same_layout_is_not_accused() -> None:
    with Replayer(StoreChoice("tests.scenarios.found_stores:sound")) as replayer:
        replays = [
            replayer.replay(load_scenario(path))
            for path in sorted((CORPUS / "field-report").glob("*.json"))
        ]
    assert {one.status for one in replays} == {"fixed"}


# --- what proves nothing --------------------------------------------------------------------------


def test_a_crash_in_a_call_that_was_refused_did_not_land() -> None:
    plan = (
        Create(header=SessionHeader("s-1", 1, "/w")),
        Append(session="s-1", events=turn(5)),
    )
    got = replay(scenario(plan=plan, faults=(CrashFault(during=1, model="kill"),)))
    assert (got.status, got.landed) == ("unknown", (False,))
    assert "call 2, in which the crash falls, was refused" in got.reason


def test_an_expectation_that_nothing_tests_is_unknown() -> None:
    got = replay(scenario(expect="RW-4"))
    assert got.status == "unknown"
    assert got.reason == 'no call of the plan tests RW-4: give one "probes": ["RW-4"]'


def test_a_damage_that_finds_no_place_is_unknown() -> None:
    saved = load("torn-tail/half-a-record")
    plan = tuple(
        msgspec.structs.replace(one, record=999) if hasattr(one, "record") else one
        for one in saved.plan
    )
    got = replay(msgspec.structs.replace(saved, plan=plan))
    assert got.status == "unknown"


def test_what_cannot_be_seen_from_inside_is_unknown() -> None:
    got = replay(scenario(faults=(CrashFault(during=1, model="kill"),)), "tests.zoo.unseen:unseen")
    assert got.status == "unknown"
    assert "not seen from inside Python" in got.reason


# --- what does not apply --------------------------------------------------------------------------


def test_more_is_asked_of_a_store_than_it_claims_only_on_demand() -> None:
    power = scenario(faults=(CrashFault(during=1, model="ordered"),))
    weak = replay(power, "jsonl", durability="process")
    # Its own store: run as it is, and violated.
    assert weak.status == "failed"
    elsewhere = msgspec.structs.replace(power, store="tests.zoo.careful:careful")
    skipped = replay(elsewhere, "jsonl", durability="process")
    assert (skipped.status, skipped.reason) == (
        "skipped",
        "asks for durability power, and the store claims process; --level power replays it all "
        "the same",
    )
    assert replay(elsewhere, "jsonl", durability="process", level="power").status == "failed"
    assert replay(elsewhere, "memory").status == "skipped"


def test_a_clause_that_is_not_claimed_is_skipped() -> None:
    got = replay(scenario(expect="CR-8", faults=(CrashFault(during=1, model="kill"),)))
    assert (got.status, got.reason) == ("skipped", "the store does not claim atomic_batch")


def test_a_clause_held_in_part_is_replayed() -> None:
    claims = Capabilities(checks_seq=False)
    kill = CrashFault(during=1, model="kill")
    assert replay(scenario(expect="CR-5", capabilities=claims, faults=(kill,))).status == "fixed"


def test_what_a_store_was_seen_to_violate_is_replayed_on_it_whatever_it_claims() -> None:
    wanted = scenario(expect="CR-8", faults=(CrashFault(during=1, model="kill"),))
    found = RecordedFinding(clause="CR-8", sentence="s", cause="c")
    assert replay(msgspec.structs.replace(wanted, finding=found)).status == "fixed"


def test_a_found_file_is_for_its_layout() -> None:
    found = scenario(
        plan=(Load(session="s-1"),),
        faults=(FileFault(path="cwd-d1bb8ca35467/s-1.jsonl", data=b""),),
        expect="DM-6",
    )
    expected = Expectation(clause="DM-6", outcome="none", session="s-1", loads="never_materialised")
    found = msgspec.structs.replace(found, expect=(expected,))
    assert replay(found).status == "fixed"
    assert replay(found, "sqlite").status == "skipped"
    wrong = msgspec.structs.replace(expected, loads="corrupted")
    failed = replay(msgspec.structs.replace(found, expect=(wrong,)))
    assert failed.status == "failed"
    assert "where it has to refuse as corrupted" in failed.findings[0].sentence


def test_claims_in_the_file_go_for_its_own_store_alone() -> None:
    claims = Capabilities(atomic_batch=True)
    batch = scenario(
        expect="CR-8", capabilities=claims, faults=(CrashFault(during=1, model="kill"),)
    )
    assert replay(batch).status == "fixed"  # A first flush is whole or not there.
    assert replay(batch, "tests.zoo.careful:careful").status == "skipped"


# --- a crash written by hand ----------------------------------------------------------------------


def pinned(name: str = "durability/no-fsync") -> tuple[Scenario, CrashFault]:
    # Pinned anew: the stores of the zoo may do other operations than when it was saved.
    saved = repinned(load(name))
    (fault,) = saved.faults
    assert isinstance(fault, CrashFault)
    assert fault.crash is not None
    return saved, fault


def test_a_store_that_did_the_same_gets_the_very_crash() -> None:
    saved, _ = pinned()
    assert replay(saved, "tests.zoo.crashing:no_fsync").images == 1
    assert replay(saved, "jsonl").images > 5


@pytest.mark.parametrize(
    "changes",
    [
        {"position": 10**9},
        {"names": (10**6,)},
        {"files": ((99, None),)},
    ],
)
def test_an_impossible_crash_is_not_believed(changes: dict[str, object]) -> None:
    saved, fault = pinned()
    assert fault.crash is not None
    if "files" in changes:
        assert fault.crash.files
        choice = msgspec.structs.replace(fault.crash.files[0][1], length=10**12)
        changes = {"files": ((fault.crash.files[0][0], choice),)}
    crash = msgspec.structs.replace(fault.crash, **changes)
    odd = msgspec.structs.replace(fault, crash=crash)
    got = replay(msgspec.structs.replace(saved, faults=(odd,)), "tests.zoo.crashing:no_fsync")
    # All crashes of the model in that call are tried instead.
    assert got.images > 1
    assert got.status == "failed"


def test_the_number_of_disks_is_bounded() -> None:
    saved = load("durability/zeros-in-front-of-a-turn-end")
    from torntail.scenarios.crash_replay import CrashLimits

    assert replay(saved, limits=CrashLimits(images=7)).images == 7


def test_an_explained_replay_tells_the_story() -> None:
    got: Replay = replay(load("torn-tail/a-turn-end-but-for-its-newline"), explain=True)
    told = "\n".join(got.story)
    assert "1. create 's-1', cwd '/w' →" not in told
    assert told.startswith("1. create 's-1', cwd '/w'\n2. append to 's-1' seq 0–5")
    assert "DM-4 holds: " in told


def test_an_explained_crash_shows_the_disk_and_the_clause() -> None:
    saved = load("durability/no-fsync")
    told = replay(saved, "tests.zoo.crashing:no_fsync", explain=True).story
    assert any("power fails" in line for line in told)
    assert "on the disk then:" in told
    assert any(line.startswith("CR-1 violated in ") for line in told)
    assert "  Nothing acknowledged is lost: |P| ≥ |A|." in told
    assert all(line.isprintable() for line in told)


def test_a_crash_in_a_call_that_has_done_nothing_yet_shows_again_exactly() -> None:
    # Fuzzing crashes one call alone, and so from the moment on at which it has begun.
    saved = load("durability/no-fsync")
    target = target_of("tests.zoo.crashing:no_fsync")
    event = SessionEvent("note", 1, 2, {})
    plan = (*saved.plan, Append(session="a-2a92a913", events=(event,)))
    with Scratch(scratch_base()) as scratch, Slot(scratch) as slot:
        calls = CrashCalls(target, slot)
        calls.hold(EMPTY_IMAGE)
        operations = calls.record(plan, None).operations
        begun = operations.index(Invoked(2)) + 1
        crash = Crash("ordered", begun, names=(), files=())
        (fault,) = crash_faults(plan, (crash,), calls)
    assert (fault.during, fault.crash) == (2, crash)
    assert fault.operations == operations_digest(operations[:begun])
