"""Judging histories written by hand: what is right passes, what is wrong is named."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from torntail.judge.capabilities import Capabilities
from torntail.judge.history import (
    Append,
    Close,
    Create,
    Damage,
    Damaged,
    Hung,
    Inspect,
    ListedSession,
    ListSessions,
    Load,
    LoadedSession,
    NotPossible,
    Observation,
    Operation,
    Outcome,
    Refused,
    Reopen,
    RepairFacts,
    Returned,
    StrangeResult,
    Together,
    TogetherOutcome,
)
from torntail.judge.oracle import Judging, judge
from torntail.session import SessionEvent, SessionHeader

CLAIMS = Capabilities()
HEADER = SessionHeader("s", 1, cwd="/w")
OK = Returned()


def event(seq: int, kind: str = "note", **data: Any) -> SessionEvent:
    return SessionEvent(kind, seq, 10 + seq, {"mark": f"m{seq}", **data})


NOTES = tuple(event(seq) for seq in range(3))
TURN = (
    event(0, "turn/start", turn=1),
    event(1, "user/message"),
    event(2, "turn/end", turn=1),
    event(3, "turn/start", turn=2),
    event(4, "user/message"),
)
CLOSER = SessionEvent("turn/end", 5, 14, {"turn": 2, "reason": {"kind": "interrupted"}})


def returned(*events: SessionEvent, header: Any = HEADER, repair: Any = None) -> Returned:
    return Returned(session=LoadedSession(header, events, repair))


def refused(kind: str, text: str = "no", **facts: Any) -> Refused:
    return Refused(kind, "Error", text, facts)


def told(*steps: tuple[Operation, Outcome], claims: Capabilities = CLAIMS) -> Judging:
    return judge(tuple(Observation(*step) for step in steps), claims)


def failures(judging: Judging) -> list[tuple[str, str]]:
    return [(one.clause, one.sentence) for one in judging.judgements if not one.passed]


CREATED = (Create(header=HEADER), OK)
STORED = (Append(session="s", events=NOTES), OK)
OPEN = (Append(session="s", events=TURN), OK)


def load(*probes: str) -> Load:
    return Load(session="s", probes=probes)


def test_what_comes_back_whole_passes() -> None:
    judging = told(CREATED, STORED, (load("RW-1"), returned(*NOTES)))
    assert [(one.clause, one.passed, one.index) for one in judging.judgements] == [
        ("RW-1", True, 2)
    ]
    assert judging.judgements[0].situations == ("a load",)


@pytest.mark.parametrize(
    ("outcome", "sentence"),
    [
        (
            returned(*NOTES[:2]),
            "load returned 2 events where 3 were expected: it lacks note (seq 2)",
        ),
        (
            returned(*NOTES, event(3)),
            "load returned 4 events where 3 were expected: it has too many: note (seq 3)",
        ),
        (
            returned(NOTES[0], event(1, mark="other"), NOTES[2]),
            "load returned a different event at index 1: data is {'mark': 'other'}, "
            "not {'mark': 'm1'}",
        ),
        (returned(*NOTES, header=None), "load returned no header"),
        (
            returned(*NOTES, header=SessionHeader("s", 1)),
            "load returned a different header: cwd is missing",
        ),
        (
            refused("other", "boom"),
            "load refused with Error (boom), where it has to succeed",
        ),
        (Hung(2.0), "load had not returned after 2 s"),
        (StrangeResult("int 7"), "load returned int 7"),
        (refused("exit"), "load raised Error, which ends the interpreter"),
        (Returned(), "load returned no session"),
    ],
)
def test_what_does_not_is_named(outcome: Outcome, sentence: str) -> None:
    assert failures(told(CREATED, STORED, (load("RW-1"), outcome))) == [("RW-1", sentence)]


def test_one_is_not_true() -> None:
    one, true = event(0, value=1), event(0, value=True)
    history = (CREATED, (Append(session="s", events=(one,)), OK), (load("RW-12"), returned(true)))
    assert [clause for clause, _ in failures(told(*history))] == ["RW-12"]


def test_a_fault_of_preparation_fails_the_clause_that_owns_the_call() -> None:
    append = Append(session="s", events=NOTES)
    judging = told(CREATED, (append, refused("other")), (load("RW-16"), refused("not_found")))
    assert [clause for clause, _ in failures(judging)] == ["RW-1"]
    assert judging.cut_short == judging.judgements[-1]


@pytest.mark.parametrize(
    ("outcome", "passed"),
    [
        (refused("sequence", "expected 3, got 5"), True),
        (refused("sequence", "bad seq", expected=3, got=5), True),
        (refused("other", "wanted seq 3 but got 5"), True),
        (refused("sequence", "out of order"), False),
        (refused("sequence", "expected 13, got 5"), False),
        (refused("not_found", "expected 3, got 5"), False),
        (OK, False),
    ],
)
def test_a_refused_seq_names_both_numbers(outcome: Outcome, passed: bool) -> None:
    wrong = Append(session="s", events=(event(5),), probes=("RW-2",))
    judging = told(CREATED, STORED, (wrong, outcome))
    assert [one.passed for one in judging.judgements] == [passed]


def test_closers_are_stored_by_load_and_not_by_inspect() -> None:
    judging = told(
        CREATED,
        OPEN,
        (Inspect(session="s", probes=("DM-8",)), returned(*TURN, CLOSER)),
        (Append(session="s", events=(event(5, "user/message"),)), OK),
        (load("RW-1"), returned(*TURN, event(5, "user/message"), _closer(6, 15))),
        (Append(session="s", events=(event(7),), probes=("RW-1",)), OK),
    )
    assert failures(judging) == []
    assert len(judging.judgements) == 3


def _closer(seq: int, time: int) -> SessionEvent:
    return msgspec.structs.replace(CLOSER, seq=seq, time=time)


def test_looking_that_writes_is_dm_8_even_in_preparation() -> None:
    step = Observation(Inspect(session="s"), returned(*NOTES), ("log",))
    judging = judge((Observation(*CREATED), Observation(*STORED), step), CLAIMS)
    assert failures(judging) == [("DM-8", "inspect changed log")]


def test_writing_outside_is_rw_10() -> None:
    step = Observation(STORED[0], OK, ("../other",))
    judging = judge((Observation(*CREATED), step), CLAIMS)
    assert failures(judging) == [("RW-10", "append wrote outside its directory: ../other")]


def test_after_close_every_call_says_closed() -> None:
    steps = (CREATED, STORED, (Close(probes=("RW-17",)), OK))
    assert failures(told(*steps, (load("RW-17"), refused("closed")))) == []
    assert failures(told(*steps, (load("RW-17"), refused("other", "I/O on closed file")))) == []
    assert failures(told(*steps, (load("RW-17"), returned(*NOTES)))) == [
        ("RW-17", "load returned, where it has to refuse (closed)")
    ]
    assert failures(told(*steps, (Close(probes=("RW-17",)), refused("closed")))) != []


def test_of_two_calls_at_once_some_order_explains_both() -> None:
    rivals = tuple(Append(session="s", events=(event(3, value=value),)) for value in "ab")
    both = Together(operations=rivals, probes=("RW-17",))
    late = refused("sequence", "expected 4, got 3")
    fair = (both, TogetherOutcome((late, OK)))
    judging = told(CREATED, STORED, fair, (load("RW-17"), returned(*NOTES, event(3, value="b"))))
    assert failures(judging) == []
    unfair = failures(told(CREATED, STORED, (both, TogetherOutcome((OK, OK)))))
    assert [clause for clause, _ in unfair] == ["RW-17"]
    assert unfair[0][1].startswith("no order of the calls explains what came of them")


# --- damage ---------------------------------------------------------------------------------------


def landed(byte: int, size: int, line: int = 4) -> Damaged:
    return Damaged("d/s.jsonl", "before", "after", line, byte, size, 20)


@pytest.mark.parametrize(
    ("outcome", "passed"),
    [
        (refused("corrupted", "line 4 of s.jsonl does not parse"), True),
        (refused("other", "s.jsonl:4: bad"), True),
        (refused("corrupted", "damaged", path="d/s.jsonl", line=4), True),
        (refused("corrupted", "line 4"), False),
        (refused("corrupted", "s.jsonl is damaged"), False),
        (refused("not_found", "line 4 of s.jsonl"), False),
        (returned(*TURN, CLOSER), False),
        (returned(TURN[0], TURN[1]), False),
    ],
)
def test_damage_in_the_committed_region_is_refused_with_its_place(
    outcome: Outcome, passed: bool
) -> None:
    judging = told(
        CREATED,
        OPEN,
        (Damage(session="s", kind="garble", record=1), landed(40, 100)),
        (load("DM-1"), outcome),
    )
    assert [one.passed for one in judging.judgements] == [passed]


def test_the_torn_tail_is_reported_to_the_byte() -> None:
    cut = (Damage(session="s", kind="cut", record=4, amount=7), landed(80, 87, line=6))
    closer = SessionEvent("turn/end", 4, 13, {"turn": 2, "reason": {"kind": "interrupted"}})

    def report(**facts: Any) -> list[tuple[str, str]]:
        outcome = returned(*TURN[:4], closer, repair=RepairFacts(**facts))
        return failures(told(CREATED, OPEN, cut, (load("DM-2"), outcome)))

    assert report(torn_from_line=6, torn_from_byte=80, torn_bytes=7) == []
    assert report(torn_from_line=6, torn_from_byte=80, torn_bytes=6) == [
        ("DM-2", "the repair report gives byte count 6 of the torn tail, not 7")
    ]
    assert ("DM-2", "the repair report does not tell of the torn tail") in report()


def test_a_whole_record_in_the_torn_tail_is_copied() -> None:
    garbled = Observation(Damage(session="s", kind="garble", record=3), landed(60, 100))
    outcome = returned(*TURN[:3])

    def loaded(marks: dict[str, int]) -> list[tuple[str, str]]:
        step = Observation(load("DM-2"), outcome, (), marks)
        history = (Observation(*CREATED), Observation(*OPEN), garbled, step)
        return failures(judge(history, CLAIMS))

    assert loaded({"m0": 1, "m4": 1}) == []
    assert loaded({"m0": 1}) == [
        ("DM-2", "the torn tail held a whole record, and no copy of it was kept")
    ]


def test_a_wrong_seq_in_the_tail_is_refused_or_cut_and_never_taken() -> None:
    moved = (Damage(session="s", kind="renumber", record=4, amount=3), landed(80, 100, line=6))
    closer = SessionEvent("turn/end", 4, 13, {"turn": 2, "reason": {"kind": "interrupted"}})
    steps = (CREATED, OPEN, moved)
    assert failures(told(*steps, (load("DM-3"), refused("corrupted", "s.jsonl line 6")))) == []
    cut = told(*steps, (load("DM-3"), returned(*TURN[:4], closer)))
    assert cut.judgements[0].situations == ("the tail was cut at a wrong seq",)
    assert failures(told(*steps, (load("DM-3"), returned(*TURN, CLOSER)))) != []


def test_a_record_without_newline_is_kept() -> None:
    cut = (Damage(session="s", kind="cut", record=2, amount=-1), landed(40, 60))
    judging = told(CREATED, OPEN, cut, (load("DM-4"), returned(*TURN[:3])))
    assert failures(judging) == []
    assert "a record without newline was kept" in judging.judgements[0].situations


def test_a_flip_is_counted_or_judged() -> None:
    flip = (Damage(session="s", kind="flip", record=1, amount=9), landed(20, 60))
    silent = (load("DM-7"), returned(NOTES[0], event(1, mark="m3"), NOTES[2]))
    counted = told(CREATED, STORED, flip, silent)
    assert (counted.flips, counted.silent_flips, failures(counted)) == (1, 1, [])
    claims = Capabilities(detects=frozenset({"torn", "gap", "bitflip"}))
    assert failures(told(CREATED, STORED, flip, silent, claims=claims)) == [
        ("DM-7", "load returned data with a flipped bit")
    ]
    seen = told(CREATED, STORED, flip, (load("DM-7"), refused("corrupted")), claims=claims)
    assert (seen.flips, seen.silent_flips, failures(seen)) == (1, 0, [])


def test_restore_undoes_damage_and_repair() -> None:
    judging = told(
        CREATED,
        OPEN,
        (Damage(session="s", kind="cut", record=3, amount=0), landed(60, 60)),
        (load(), returned(*TURN[:3])),
        (Damage(session="s", kind="restore"), Damaged("root", "a", "b")),
        (load("RW-1"), returned(*TURN, CLOSER)),
    )
    assert failures(judging) == []


def test_a_damage_that_did_not_land_proves_nothing() -> None:
    damage = Damage(session="s", kind="garble", record=1)
    judging = told(
        CREATED, OPEN, (damage, Damaged("s.jsonl", "same", "same")), (load("DM-1"), refused("x"))
    )
    assert judging.harness_error == "garble did not change s.jsonl"
    assert judging.judgements == ()


def test_a_damage_that_is_not_possible_is_said_for_each_clause_it_was_for() -> None:
    damage = Damage(session="s", kind="crlf")
    moot = NotPossible("rows have no line ends", moot=True)
    judging = told(CREATED, STORED, (damage, moot), (load("DM-5"), refused("x")))
    assert judging.impossible == (("DM-5", moot),)
    assert judging.judgements == ()


def test_list_shows_every_log_and_its_error() -> None:
    other = SessionHeader("t", 1)
    steps = (
        CREATED,
        STORED,
        (Create(header=other), OK),
        (Append(session="t", events=NOTES), OK),
        (Damage(session="s", kind="header-garble"), Damaged("s.jsonl", "a", "b", 1, 0, 50, 0)),
    )

    def listed(*entries: ListedSession) -> list[tuple[str, str]]:
        outcome = Returned(entries=entries)
        return failures(told(*steps, (ListSessions(probes=("RW-9",)), outcome)))

    bad, good = ListedSession("s", None, "corrupted"), ListedSession("t", other)
    assert listed(bad, good) == []
    assert listed(good) == [("RW-9", "list has no entry for session 's'")]
    assert listed(ListedSession("s", HEADER), good) == [
        ("RW-9", "list shows session 's' without its error (corrupted)")
    ]
    assert listed(bad, good, ListedSession("u")) == [
        ("RW-9", "list has an entry for 'u', not in storage")
    ]


def test_reopening_loses_what_was_only_announced() -> None:
    judging = told(CREATED, (Reopen(), OK), (load("RW-6"), refused("not_found")))
    assert [one.passed for one in judging.judgements] == [True]


def test_a_history_survives_json() -> None:
    history = tuple(Observation(*step) for step in (CREATED, OPEN, (load("RW-1"), refused("x"))))
    record = msgspec.json.decode(msgspec.json.encode(history))
    assert msgspec.convert(record, tuple[Observation, ...]) == history


# --- words and doubts -----------------------------------------------------------------------------


def test_a_refusal_that_says_something_untrue_is_named() -> None:
    empty = Create(header=SessionHeader("", 1), probes=("RW-10",))
    exists = Refused("exists", "FileExistsError", "'/root' exists")
    assert failures(told((empty, exists))) == [
        (
            "RW-10",
            "create refused as exists (FileExistsError: '/root' exists); an error other than "
            "exists or not found is due",
        )
    ]
    assert failures(told((empty, OK))) == [
        ("RW-10", "create accepted the empty id, which must be refused")
    ]


NOT_LAZY = Capabilities(lazy=False)
NOT_FOUND = refused("not_found")
LISTED = Returned(entries=(ListedSession("s", HEADER),))
EMPTY = Returned(entries=())


@pytest.mark.parametrize("loaded", [returned(), NOT_FOUND], ids=["empty", "not found"])
@pytest.mark.parametrize("listed", [LISTED, EMPTY], ids=["listed", "left out"])
def test_without_lazy_a_session_without_events_is_there_or_not(
    loaded: Outcome, listed: Outcome
) -> None:
    steps: list[tuple[Operation, Outcome]]
    steps = [CREATED, (load(), loaded), (ListSessions(), listed)]
    assert failures(told(*steps, STORED, (load(), returned(*NOTES)), claims=NOT_LAZY)) == []
    # After it was opened again, too; and it can be appended to, or is unknown.
    again = [*steps, (Reopen(), OK), (load(), loaded), (ListSessions(), listed)]
    assert failures(told(*again, claims=NOT_LAZY)) == []
    appended = STORED if loaded != NOT_FOUND else (STORED[0], NOT_FOUND)
    assert failures(told(*again, appended, claims=NOT_LAZY)) == []
    # With the first event it is there.
    losses: list[tuple[Operation, Outcome]] = [(load(), NOT_FOUND), (ListSessions(), EMPTY)]
    for lost in losses:
        assert len(failures(told(*steps, STORED, lost, claims=NOT_LAZY))) == 1
    # What claims `lazy` has no choice.
    assert bool(failures(told(*steps))) == (loaded != NOT_FOUND or listed != EMPTY)


def test_without_lazy_an_id_is_still_created_once() -> None:
    assert failures(told(CREATED, CREATED, claims=NOT_LAZY)) != []
    assert failures(told(CREATED, (CREATED[0], refused("exists")), claims=NOT_LAZY)) == []
    reopened = (CREATED, (Reopen(), OK))
    for outcome in (OK, refused("exists")):
        assert failures(told(*reopened, (CREATED[0], outcome), claims=NOT_LAZY)) == []


def test_a_broken_promise_tells_what_was_due() -> None:
    unknown = told((load("RW-14"), returned())).judgements[-1]
    assert unknown.due == "load: it has to refuse (not found) (load of an unknown id)"
    open_turn = told(CREATED, OPEN, (load("RW-1"), returned())).judgements[-1]
    assert open_turn.due == "load: it has to succeed (a load, an open turn was closed)"
