"""What the expansions of a plan share: equal answers are one, and are counted and judged alike."""

from __future__ import annotations

from torntail.crash.disk import DiskImage
from torntail.drive.target import target_of
from torntail.explore.crash_calls import CrashCalls, Followed, further_events
from torntail.explore.crash_counts import Counts, count_recovery
from torntail.explore.crash_search import Limits, PlanSearch
from torntail.explore.script import Case
from torntail.judge.history import LoadedSession, Refused, RepairFacts, Returned
from torntail.judge.ledger import Debt, Ledger
from torntail.judge.recovery import Answer, Recovery, RecoveryJudge
from torntail.record.scratch import Scratch
from torntail.record.slots import Slot
from torntail.session import SessionHeader

TARGET = target_of("jsonl")
CAPABILITIES = TARGET.capabilities
HEADER = SessionHeader("a", 0)


def loaded(count: int, *, torn_bytes: int | None = None) -> Returned:
    repair = None if torn_bytes is None else RepairFacts(torn_bytes=torn_bytes)
    return Returned(session=LoadedSession(HEADER, further_events(())[:count], repair))


def search(slot: Slot) -> PlanSearch:
    return PlanSearch(
        Case("plan", (), ()),
        ["a", "b"],
        CrashCalls(TARGET, slot),
        ("kill",),
        0,
        Limits(),
        Counts(),
        lambda violation: None,
        lambda counts: None,
        RecoveryJudge(CAPABILITIES),
    )


def test_equal_answers_are_one_and_others_are_not() -> None:
    with Scratch() as scratch, Slot(scratch) as slot:
        plan = search(slot)
        first = plan.one("a", loaded(2), 1)
        assert plan.one("a", loaded(2), 1) is first
        assert plan.one("a", loaded(2), 2) is first
        others: list[Answer] = [
            loaded(1),
            loaded(2, torn_bytes=3),
            Refused("corrupted", "Corrupted", "line 2"),
            Refused("corrupted", "Corrupted", "line 3"),
        ]
        for disk in (1, 2):
            assert [plan.one("a", other, disk) for other in others] == others
        # Where a tail was torn makes no difference to a judge, and whether one was, none to his
        # verdict, but it is counted.
        assert plan.one("a", loaded(2, torn_bytes=9), 3) is others[1]
        assert plan.one("a", loaded(2, torn_bytes=0), 3) is first


def test_a_recovery_is_one_for_equal_answers_on_one_disk() -> None:
    with Scratch() as scratch, Slot(scratch) as slot:
        plan = search(slot)
        followed = Followed({}, (), None, {})
        answer, other = plan.one("a", loaded(2), 1), plan.one("a", loaded(1), 1)
        first = plan.recovery({"a": answer}, 1, followed)
        assert first == Recovery({"a": answer})
        assert plan.recovery({"a": answer}, 1, followed) is first
        assert plan.recovery({"a": other}, 1, followed) == Recovery({"a": other})
        assert plan.recovery({"a": answer}, 2, followed) is not first


def test_a_recovery_of_many_images_is_counted_as_often() -> None:
    events = further_events(())
    ledger = Ledger({"a": Debt(HEADER, events, 2, busy="append")})
    recovery = Recovery({"a": loaded(2, torn_bytes=4)})
    judge = RecoveryJudge(CAPABILITIES)
    once, often = Counts(), Counts()
    count_recovery(once, recovery, ledger, judge, times=1, nested=False)
    count_recovery(often, recovery, ledger, judge, times=7, nested=False)
    tested = ("CR-1", "CR-2", "CR-3", "CR-4", "CR-5", "CR-6", "CR-9", "CR-11")
    assert once.executed == dict.fromkeys(tested, 1)
    assert once.situations == dict.fromkeys(
        (
            "a crash after an acknowledgement",
            "a crash that lost what was not acknowledged",
            "a turn was open at a crash",
            "a torn tail was recovered",
        ),
        1,
    )
    assert often.executed == dict.fromkeys(tested, 7)
    assert often.situations == dict.fromkeys(once.situations, 7)


def test_a_judge_does_not_take_a_new_answer_for_one_that_is_gone() -> None:
    """Values are told apart by identity, which is free again as soon as a value is gone."""
    events = further_events(())
    judge = RecoveryJudge(CAPABILITIES)
    for number in range(200):
        lost = number % 2
        ledger = Ledger({"a": Debt(HEADER, events[:2], 2)})
        breaches = list(judge.breaches(Recovery({"a": loaded(2 - lost)}), ledger))
        assert [breach.clause for breach in breaches] == ["CR-1"] * lost


def test_a_disk_that_a_load_left_is_held_again_as_it_was() -> None:
    with Scratch() as scratch, Slot(scratch) as slot:
        calls = CrashCalls(TARGET, slot)
        empty = DiskImage({}, frozenset())
        calls.hold(empty)
        assert calls.left() is None
        image = DiskImage({"stray": b"bytes"}, frozenset())
        calls.hold(image)
        calls.load_all(["a"])
        assert calls.left() is None
        calls.hold(empty)
        assert slot.image() == empty
