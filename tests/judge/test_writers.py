"""What several writers owe, step by step: the rule of `judge.writers`, without a process."""

from __future__ import annotations

import pytest

from torntail.judge.capabilities import Capabilities
from torntail.judge.history import (
    Append,
    Close,
    Create,
    Hung,
    Load,
    LoadedSession,
    Outcome,
    Refused,
    RepairFacts,
    Returned,
    TogetherOutcome,
)
from torntail.judge.oracle import Judging
from torntail.judge.writer_steps import (
    Age,
    Ask,
    AtOnce,
    Hear,
    Signal,
    SignalKind,
    Tell,
    WriterObservation,
)
from torntail.judge.writers import judge_writers
from torntail.session import SessionEvent, SessionHeader, interrupted_turn_closers

HEADER = SessionHeader("a", 0, "/one")
LOCKED = Capabilities()
MANY = Capabilities(writers="many")
CONFLICT = Refused("conflict", "WriterConflict", "another writer holds it")
SEQUENCE = Refused("sequence", "SequenceMismatch", "expected 2")
FAILED = Refused("storage", "StorageFailed", "no")
VIRTUAL = RepairFacts(durable=False)


def notes(first: int, count: int = 2, name: str = "n") -> tuple[SessionEvent, ...]:
    return tuple(
        SessionEvent("note", seq, 0, f"{name}-{seq}") for seq in range(first, first + count)
    )


TURN = (SessionEvent("turn/start", 0, 0, {"turn": 1}),)
CLOSED = (*TURN, *interrupted_turn_closers(TURN))


def ask(
    writer: str, call, outcome: Outcome | None = None, changed: tuple[str, ...] = ()
) -> WriterObservation:
    return WriterObservation(Ask(writer, call), outcome or Returned(), changed)


def create(writer: str, outcome: Outcome | None = None) -> WriterObservation:
    return ask(writer, Create(header=HEADER), outcome)


def append(
    writer: str, events, outcome: Outcome | None = None, changed: tuple[str, ...] = ()
) -> WriterObservation:
    return ask(writer, Append(session="a", events=tuple(events)), outcome, changed)


def load(
    writer: str,
    events,
    repair: RepairFacts | None = None,
    changed: tuple[str, ...] = (),
    header: SessionHeader | None = HEADER,
) -> WriterObservation:
    session = LoadedSession(header, tuple(events), repair)
    return ask(writer, Load(session="a"), Returned(session=session), changed)


def signal(writer: str, kind: SignalKind) -> WriterObservation:
    return WriterObservation(Signal(writer, kind))


def at_once(first: Outcome, second: Outcome, seq: int = 0) -> WriterObservation:
    asks = tuple(
        Ask(name, Append(session="a", events=notes(seq, name=name))) for name in ("A", "B")
    )
    outcome = TogetherOutcome((first, second))  # type: ignore[arg-type]
    return WriterObservation(AtOnce(asks), outcome)


def told(*steps: WriterObservation, clause: str = "MW-1", claims: Capabilities = LOCKED) -> Judging:
    return judge_writers(steps, clause, claims)


def broken(judging: Judging) -> list[tuple[str, str]]:
    return [(one.clause, one.sentence) for one in judging.judgements if not one.passed]


BEGUN = (create("A"), append("A", notes(0)))
ENDED = ask("A", Close())


# --- MW-1 -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("outcome", "changed", "sentence"),
    [
        (CONFLICT, (), None),
        (Refused("other", "Error", "database is locked"), (), None),
        (Returned(), (), "B's append was acknowledged while A holds the session"),
        (FAILED, (), "B's append refused with StorageFailed (no)"),
        (SEQUENCE, (), "B's append refused with SequenceMismatch (expected 2)"),
        (Hung(10.0), (), "B's append did not return"),
        (CONFLICT, ("log",), "B's append was refused, and changed log"),
    ],
)
def test_a_second_writer_is_refused_before_anything_is_written(outcome, changed, sentence) -> None:
    found = broken(told(*BEGUN, append("B", notes(2), outcome, changed)))
    assert len(found) == (sentence is not None)
    for clause, text in found:
        assert clause == "MW-1"
        assert text.partition(": it has")[0] == sentence


def test_one_that_was_shown_another_log_may_go_by_its_seq() -> None:
    steps = (*BEGUN, load("B", notes(0)), append("A", notes(2)), append("B", notes(4), SEQUENCE))
    assert broken(told(*steps)) == []


def test_the_holder_goes_on_after_it_was_stopped() -> None:
    stopped = (*BEGUN, signal("A", "stop"), append("B", notes(2), CONFLICT))
    steps = (*stopped, WriterObservation(Age()), signal("A", "continue"))
    right = told(*steps, append("A", notes(2)))
    assert broken(right) == []
    assert right.judgements[-1].situations == ("a stopped writer went on",)
    assert broken(told(*steps, append("A", notes(2), CONFLICT))) == [
        ("MW-1", "A's append refused with WriterConflict (another writer holds it)")
    ]


def test_what_a_stopped_one_was_told_to_append_counts_when_it_is_heard() -> None:
    call = Append(session="a", events=notes(2, name="told"))
    steps = (
        *BEGUN,
        signal("A", "stop"),
        WriterObservation(Tell("A", call)),
        append("B", notes(2), CONFLICT),
        signal("A", "continue"),
        WriterObservation(Hear("A")),
        ENDED,
    )
    assert broken(told(*steps, load("B", [*notes(0), *notes(2, name="told")]))) == []
    assert broken(told(*steps, load("B", [*notes(0), *notes(2)]))) == [
        ("MW-1", "B's load gives 4 events where 4 are due, alike up to event 2")
    ]


@pytest.mark.parametrize(("first", "second"), [(Returned(), CONFLICT), (CONFLICT, Returned())])
def test_of_two_first_flushes_at_once_either_may_be_the_one(first, second) -> None:
    winner = "A" if isinstance(first, Returned) else "B"
    steps = create("A"), create("B"), at_once(first, second), ask(winner, Close())
    right = told(*steps, load("C", notes(0, name=winner)))
    assert broken(right) == []
    assert "two appends at once" in right.judgements[2].situations
    loser = "B" if winner == "A" else "A"
    assert len(broken(told(*steps, load("C", notes(0, name=loser))))) == 1


def test_of_two_first_flushes_at_once_not_both_may_come_off() -> None:
    judging = told(create("A"), create("B"), at_once(Returned(), Returned()), ENDED)
    assert broken(judging) == [("MW-1", "at once, A's append returned and B's append returned")]
    assert judging.cut_short == judging.judgements[-1]


def test_the_header_is_that_of_the_writer_that_was_first() -> None:
    other = SessionHeader("a", 0, "/two")
    assert broken(told(*BEGUN, ENDED, load("B", notes(0), header=other))) == [
        ("MW-1", "B's load gives the header that another was to have")
    ]


# --- MW-2 -----------------------------------------------------------------------------------------


def test_a_lock_dies_with_its_process() -> None:
    killed = (*BEGUN, signal("A", "kill"))
    right = told(*killed, load("B", notes(0)), append("B", notes(2)), clause="MW-2")
    assert broken(right) == []
    assert right.judgements[-1].situations == ("a writer was killed that held the session",)
    assert broken(told(*killed, append("B", notes(2), CONFLICT))) == [
        ("MW-2", "B's append refused with WriterConflict (another writer holds it)")
    ]


def test_a_repair_after_a_kill_is_durable() -> None:
    killed = (create("A"), append("A", TURN), signal("A", "kill"))
    assert broken(told(*killed, load("B", CLOSED, RepairFacts(), ("log",)))) == []
    assert broken(told(*killed, load("B", CLOSED, VIRTUAL))) == [
        ("MW-2", "B's load does not make its repair durable, and no other holds the session")
    ]


# --- MW-3 -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seen", "sentence"),
    [
        (load("B", CLOSED, VIRTUAL), None),
        (load("B", CLOSED), None),
        (load("B", ()), None),
        (load("B", CLOSED, RepairFacts()), "marks closers as durable that are not in storage"),
        (load("B", CLOSED, VIRTUAL, ("log",)), "changed log"),
        (load("B", TURN, VIRTUAL), "gives no prefix of the log with its closers"),
        (ask("B", Load(session="a"), CONFLICT), "refused with WriterConflict"),
    ],
)
def test_a_load_under_a_live_writer_writes_nothing(seen, sentence) -> None:
    found = broken(told(create("A"), append("A", TURN), seen))
    assert len(found) == (sentence is not None)
    for clause, text in found:
        assert clause == "MW-3"
        assert text.startswith(f"B's load under A's lock {sentence}")


def test_closers_that_were_only_shown_are_no_part_of_the_log() -> None:
    steps = (create("A"), append("A", TURN), load("B", CLOSED, VIRTUAL), append("A", notes(1)))
    assert broken(told(*steps)) == []


# --- MW-4 -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("outcome", "changed", "right"),
    [
        (CONFLICT, (), True),
        (SEQUENCE, (), True),
        (Returned(), (), False),
        (SEQUENCE, ("log",), False),
    ],
)
def test_a_stale_cursor_is_caught(outcome, changed, right) -> None:
    before = (*BEGUN, load("B", notes(0)), append("A", notes(2)), ENDED)
    judging = told(*before, append("B", notes(2), outcome, changed))
    assert [clause for clause, _ in broken(judging)] == ([] if right else ["MW-4"])
    assert judging.judgements[-1].clause == "MW-4"
    assert judging.judgements[-1].situations == ("a stale cursor",)


def test_a_load_may_take_the_session_or_not() -> None:
    begun = (*BEGUN, ENDED, load("A", notes(0)), load("B", notes(0)))
    taken = (append("B", notes(2), CONFLICT), append("A", notes(2)))
    free = (append("B", notes(2)), ask("B", Close()), append("A", notes(2), SEQUENCE))
    assert broken(told(*begun, *taken)) == broken(told(*begun, *free)) == []
    both = told(*begun, append("B", notes(2)), ask("B", Close()), append("A", notes(2)))
    assert [clause for clause, _ in broken(both)] == ["MW-4"]


# --- MW-5 -----------------------------------------------------------------------------------------


def test_of_many_one_has_the_first_seq_and_all_go_on() -> None:
    right = told(
        *BEGUN,
        at_once(SEQUENCE, Returned(), 2),
        append("A", notes(4)),
        append("B", notes(4), CONFLICT),
        append("B", notes(6)),
        clause="MW-5",
        claims=MANY,
    )
    assert broken(right) == []
    met = {situation for one in right.judgements for situation in one.situations}
    assert met == {"two appends at once", "another had the first seq", "an append went on"}


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (at_once(Returned(), Returned(), 2), "A's append returned and B's append returned"),
        (at_once(SEQUENCE, CONFLICT, 2), "and B's append refused with WriterConflict"),
        (append("B", notes(0)), "B's append was acknowledged at seq 0"),
        (append("B", notes(2), CONFLICT), "B's append refused with WriterConflict"),
    ],
)
def test_of_many_neither_both_nor_none(wrong, words) -> None:
    [(clause, sentence)] = broken(told(*BEGUN, wrong, clause="MW-5", claims=MANY))
    assert clause == "MW-5"
    assert words in sentence
