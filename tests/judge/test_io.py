"""What a store owes when the disk says no, call by call: the rule of `judge.io`, case by case."""

from __future__ import annotations

import msgspec
import pytest

from torntail.judge.capabilities import Capabilities
from torntail.judge.history import (
    Append,
    Create,
    Load,
    LoadedSession,
    Refused,
    Reopen,
    RepairFacts,
    Returned,
)
from torntail.judge.io import IoJudge
from torntail.judge.io_content import clause_of, load_problem, taking_breach, uncut_breach
from torntail.judge.io_steps import IoStep, Revive, Standing, Struck
from torntail.judge.recovery import Answer, Breach
from torntail.session import SessionEvent, SessionHeader, interrupted_turn_closers

HEADER = SessionHeader("a", 0)
LOG = Capabilities(profile="log")
SESSION = Capabilities()
FAILED = Refused("storage", "StorageFailed", "no")
ABSENT = Refused("not_found", "SessionNotFound", "session not found")

EIO = Struck("write", "EIO")
ENOSPC = Struck("write", "ENOSPC")
SHORT = Struck("write", None, 1, 9)
SYNC = Struck("sync", "EIO", own=True)
CUT = Struck("truncate", "EIO")


def events(first: int, count: int, kind: str = "note") -> tuple[SessionEvent, ...]:
    return tuple(
        SessionEvent(kind, seq, 0, {"mark": f"{kind}-{seq}"}) for seq in range(first, first + count)
    )


def append(
    batch: tuple[SessionEvent, ...],
    outcome: Answer | None = None,
    *struck: Struck,
    lifted: bool = False,
    wrote_refused: bool = False,
) -> IoStep:
    call = Append(session="a", events=batch)
    return IoStep(call, outcome or Returned(), struck, None, lifted, wrote_refused)


def load(
    log: tuple[SessionEvent, ...] | Answer,
    *struck: Struck,
    repair: RepairFacts | None = None,
    lifted: bool = False,
) -> IoStep:
    if isinstance(log, tuple):
        log = Returned(session=LoadedSession(HEADER, log, repair))
    return IoStep(Load(session="a"), log, struck, None, lifted)


def reopened(*, lifted: bool = True) -> IoStep:
    return IoStep(Reopen(), Returned(), (), None, lifted)


def revived(next_seq: int) -> IoStep:
    return IoStep(Revive("a"), Returned(), (), next_seq)


CREATED = IoStep(Create(header=HEADER), Returned())


def judged(*steps: IoStep, capabilities: Capabilities = LOG) -> list[Breach]:
    """What the calls break, after a session was created and given events 0 and 1."""
    judge = IoJudge(capabilities)
    taken = [judge.take(step) for step in (CREATED, append(events(0, 2)), *steps)]
    return [breach for breach in (*taken, judge.finished()) if breach is not None]


def clauses(*steps: IoStep, capabilities: Capabilities = LOG) -> list[str]:
    return [breach.clause for breach in judged(*steps, capabilities=capabilities)]


# --- IO-1 ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "broken"),
    [
        ("write", ["IO-1"]),
        ("truncate", ["IO-1"]),
        ("rename", ["IO-1"]),
        ("sync", ["IO-1"]),
        ("sync-directory", ["IO-1"]),
        ("unlink", []),
        ("open", []),
        ("mkdir", []),
    ],
)
def test_which_errors_an_append_must_not_get_over(kind: str, broken: list[str]) -> None:
    assert clauses(append(events(2, 1), None, Struck(kind, "EIO"))) == broken


def test_what_it_took_all_the_same_is_owed() -> None:
    taken = append(events(2, 1), None, SYNC)
    assert clauses(taken, load(events(0, 3))) == ["IO-1"]
    assert clauses(taken, load(events(0, 2))) == ["IO-1", "IO-2"]


def test_a_refused_batch_may_be_there_in_part_until_it_is_settled() -> None:
    failed = append(events(2, 3), FAILED, EIO)
    for kept in range(2, 6):
        assert clauses(failed, load(events(0, kept))) == []
    assert clauses(failed, load(events(0, 1))) == ["IO-2"]
    # By another batch at the same seq, or by what a load has shown.
    other = events(2, 1, "other")
    assert clauses(failed, append(other), load(events(0, 2) + other)) == []
    assert clauses(failed, append(other), load(events(0, 3))) == ["IO-2"]
    settled = RepairFacts()
    assert clauses(failed, load(events(0, 2), repair=settled), load(events(0, 3))) == ["IO-1"]
    assert clauses(failed, load(events(0, 3), repair=settled), load(events(0, 2))) == []


def test_a_load_that_is_not_durable_or_says_nothing_settles_nothing() -> None:
    failed = append(events(2, 3), FAILED, EIO)
    virtual = RepairFacts(durable=False)
    assert clauses(failed, load(events(0, 2), repair=virtual), load(events(0, 4))) == []
    assert clauses(failed, load(events(0, 2)), load(events(0, 4))) == []


def test_what_was_queued_is_told_from_what_was_left() -> None:
    failed, other = append(events(2, 1), FAILED, EIO), events(2, 1, "other")
    corrupted = load(Refused("corrupted", "SessionCorrupted", "line 4"))
    assert clauses(failed, append(other), corrupted) == ["IO-2"]
    assert clauses(failed, append(other, wrote_refused=True), corrupted) == ["IO-1"]


# --- IO-2 ---------------------------------------------------------------------------------------


def test_without_anything_acknowledged_there_may_be_no_session() -> None:
    judge = IoJudge(LOG)
    for step in (CREATED, append(events(0, 2), FAILED, EIO), load(ABSENT), load(FAILED)):
        assert judge.take(step) is None
    breach = judge.take(load(Refused("corrupted", "SessionCorrupted", "line 1")))
    assert breach is not None
    assert (breach.clause, breach.session) == ("IO-2", "a")
    assert clauses(load(ABSENT)) == ["IO-2"]


def test_closers_follow_whatever_was_kept() -> None:
    turn = (
        SessionEvent("turn/start", 0, 0, {"turn": 1}),
        SessionEvent("step/start", 1, 0, {"turn": 1, "step": 1}),
    )
    standing = Standing(HEADER, turn[:1], (turn,))
    for kept in (1, 2):
        log = (*turn[:kept], *interrupted_turn_closers(turn[:kept]))
        answer = Returned(session=LoadedSession(HEADER, log))
        found = load_problem(answer, standing, SESSION)
        assert (found.count, found.closers, found.problem) == (kept, len(log) - kept, None)
    bare = load_problem(Returned(session=LoadedSession(HEADER, turn)), standing, SESSION)
    assert bare.problem == "load gives at seq 2 what was never submitted there"


def test_when_the_disk_is_well_a_new_object_appends() -> None:
    failed = append(events(2, 1), FAILED, EIO)
    again = append(events(2, 1, "other"), FAILED, lifted=True)
    found = load(events(0, 2), lifted=True)
    assert clauses(failed, again) == []
    assert clauses(failed, reopened(), found, again) == ["IO-2"]
    assert clauses(failed, reopened(lifted=False), load(events(0, 2)), again) == []


def test_reopen_goes_on_behind_what_is_acknowledged() -> None:
    failed = append(events(2, 3), FAILED, EIO)
    assert clauses(failed, revived(2), append(events(2, 1, "other"))) == []
    assert clauses(failed, revived(3), load(events(0, 3), repair=RepairFacts())) == []
    assert clauses(failed, revived(1)) == ["IO-2"]


# --- IO-3 ---------------------------------------------------------------------------------------


def test_after_its_own_fsync_failed_an_object_is_dead_until_reopen() -> None:
    failed, more = append(events(2, 1), FAILED, SYNC), append(events(2, 1, "other"))
    assert clauses(failed, more) == ["IO-3"]
    assert clauses(failed, load(events(0, 2), repair=RepairFacts()), more) == ["IO-3"]
    assert clauses(failed, revived(2), more) == []
    assert clauses(failed, reopened(), load(events(0, 2)), more) == []
    # A directory's fsync, or one of a file that this call had not written to.
    assert clauses(append(events(2, 1), FAILED, Struck("sync-directory", "EIO")), more) == []
    assert clauses(append(events(2, 1), FAILED, Struck("sync", "EIO")), more) == []


def test_what_could_not_be_synced_is_cut_off() -> None:
    standing = Standing(HEADER, events(0, 2), (events(0, 2), events(0, 4)))
    failed = append(events(2, 2), FAILED, SYNC)
    assert uncut_breach("a", failed, 2, standing) is None
    left = uncut_breach("a", failed, 3, standing)
    assert left is not None
    assert left.clause == "IO-3"
    # The cut was tried and failed: more than that nobody can do.
    assert uncut_breach("a", append(events(2, 2), FAILED, SYNC, CUT), 3, standing) is None
    assert uncut_breach("a", append(events(2, 2), FAILED, EIO), 3, standing) is None


@pytest.mark.parametrize(
    ("step", "excused"),
    [
        (append(events(2, 1), FAILED, SYNC), False),
        (append(events(2, 1), FAILED, SYNC, CUT), True),
        (append(events(2, 1), FAILED, EIO, CUT), False),
        (load(events(0, 2), Struck("sync", "EIO"), repair=RepairFacts(durable=False)), True),
    ],
)
def test_power_cuts_are_not_judged_where_nobody_could_know(step: IoStep, excused: bool) -> None:
    judge = IoJudge(LOG)
    for one in (CREATED, append(events(0, 2)), step):
        assert judge.take(one) is None
    assert not judge.excused
    judge.take(reopened())
    assert judge.excused is excused


# --- IO-4 ---------------------------------------------------------------------------------------


def test_a_short_write_is_no_error() -> None:
    assert clauses(append(events(2, 1), None, SHORT)) == []
    assert clauses(append(events(2, 1), FAILED, SHORT)) == ["IO-4"]
    assert clauses(append(events(2, 2), None, SHORT), load(events(0, 3))) == ["IO-4"]


def test_with_room_again_the_same_object_goes_on() -> None:
    failed, refused = append(events(2, 1), FAILED, ENOSPC), append(events(2, 1), FAILED)
    assert clauses(failed, refused, revived(2), append(events(2, 1))) == []
    assert clauses(failed, refused) == ["IO-4"]
    assert clauses(failed, refused, reopened(), load(events(0, 2)), append(events(2, 1))) == [
        "IO-4"
    ]
    assert clauses(failed) == []  # It was not asked.
    assert clauses(append(events(2, 1), FAILED, EIO), refused) == []
    assert clauses(append(events(2, 1), FAILED, ENOSPC, CUT), refused) == []


def test_a_repeat_after_no_space_is_of_io_4() -> None:
    corrupted = load(Refused("corrupted", "SessionCorrupted", "line 4"))
    went_on = append(events(2, 1))
    assert clauses(append(events(2, 1), FAILED, ENOSPC), went_on, corrupted) == ["IO-4"]
    assert clauses(append(events(2, 1), FAILED, EIO), went_on, corrupted) == ["IO-2"]


# --- IO-5 ---------------------------------------------------------------------------------------


def test_a_load_that_is_struck_returns_what_it_owes() -> None:
    assert clauses(load(events(0, 2), EIO, repair=RepairFacts(durable=False))) == []
    assert clauses(load(FAILED, EIO)) == ["IO-5"]
    assert clauses(load(events(0, 1), EIO)) == ["IO-5"]
    modest = msgspec.structs.replace(LOG, repairs="none")
    assert clauses(load(FAILED, EIO), capabilities=modest) == []


def test_an_append_stands_behind_what_was_shown() -> None:
    turn = (SessionEvent("turn/start", 0, 0, {"turn": 1}),)
    shown = (*turn, *interrupted_turn_closers(turn))
    more = events(2, 1)
    judge = IoJudge(SESSION)
    for step in (
        CREATED,
        append(turn),
        load(shown, EIO, repair=RepairFacts(durable=False)),
        append(more),
    ):
        assert judge.take(step) is None
    assert judge.standings["a"].acknowledged == (*shown, *more)
    breach = judge.take(load((*turn, *more)))
    assert breach is not None
    assert breach.clause == "IO-5"


# --- IO-6, and which clause ---------------------------------------------------------------------


def test_an_append_to_a_file_that_was_taken_raises_and_writes_nothing() -> None:
    for how in ("unlinked", "replaced by a copy", "cut", "emptied"):
        assert taking_breach("a", how, FAILED, None, wrote=False) is None
        taken = taking_breach("a", how, Returned(), None, wrote=True)
        assert taken is not None
        assert taken.clause == "IO-6"
    assert taking_breach("a", "cut", FAILED, None, wrote=True) is not None
    again = Returned(session=LoadedSession(HEADER, ()))
    assert taking_breach("a", "unlinked", FAILED, again, wrote=True) is None
    headless = Refused("never_materialised", "NeverMaterialised", "")
    assert taking_breach("a", "unlinked", FAILED, headless, wrote=True) is not None


@pytest.mark.parametrize(
    ("step", "power", "clause"),
    [
        (append(events(2, 1), FAILED, SYNC), True, "IO-3"),
        (append(events(2, 1), FAILED, SYNC), False, "IO-2"),
        (append(events(2, 1), FAILED, EIO), True, "IO-2"),
        (append(events(2, 1), None, SHORT), True, "IO-4"),
        (load(events(0, 2), EIO), True, "IO-5"),
    ],
)
def test_which_clause_a_wrong_disk_breaks(step: IoStep, power: bool, clause: str) -> None:
    standing = Standing(HEADER, events(0, 2), (events(0, 2),))
    assert clause_of([step], standing, "load lacks something", power=power) == clause
