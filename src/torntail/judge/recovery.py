"""Deciding a recovery: whether what a store gave back after a crash is what it owed.

Pure checks of CR-1 to CR-11 over what was loaded, loaded again and appended after a crash. Events
are compared as Python values first and as JSON values where these differ. Does not decide which
crashes are tried (`explore`) or what a store owes (`ledger`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from torntail.judge.capabilities import Capabilities
from torntail.judge.history import (
    Hung,
    ListedSession,
    LoadedSession,
    Refused,
    Returned,
    StrangeResult,
)
from torntail.judge.ledger import Debt, Ledger
from torntail.session import (
    SessionEvent,
    SessionHeader,
    TranscriptError,
    derive_messages,
    interrupted_turn_closers,
    same_json,
    transcript_problems,
    turn_grammar_problem,
)
from torntail.session.turns import TurnTracker

__all__ = [
    "ABSENT",
    "Answer",
    "Breach",
    "Continuation",
    "FirstCalls",
    "Recovery",
    "RecoveryJudge",
    "common_prefix",
    "judge_continuation",
    "judge_list",
    "same_events",
    "told",
]

Answer = Returned | Refused | Hung | StrangeResult

ABSENT: Final = frozenset({"not_found", "never_materialised"})


class Breach(NamedTuple):
    """A clause that a recovery broke, in which session, and how."""

    clause: str
    session: str
    sentence: str
    lost: tuple[str, ...] = ()


class Continuation(msgspec.Struct, frozen=True):
    """What came of going on after a recovery (CR-5, CR-10).

    `wrong` answers an append at a wrong first seq; `appended` an append of `events` at the right
    one; `loaded` the load after it by a fresh store. `created` is set where the session had to be
    made anew.
    """

    events: tuple[SessionEvent, ...]
    appended: Answer
    loaded: Answer
    wrong: Answer | None = None
    created: Answer | None = None


class FirstCalls(msgspec.Struct, frozen=True):
    """What the same disk comes to when another call than a load of every session is the first.

    `listed` is the answer of `list`, `alone` of the load of one session and no other, `created` of
    `create` where the load finds nothing. `appended`: an append without a load before it, loaded by
    a fresh object; `lasting`: load, append and load by one and the same object.
    """

    listed: Answer | None = None
    alone: Mapping[str, Answer] = {}
    created: Mapping[str, Answer] = {}
    appended: Mapping[str, Continuation] = {}
    lasting: Mapping[str, Continuation] = {}


class Recovery(msgspec.Struct, frozen=True):
    """What a store made of one disk image.

    `loads` are the answers to the first load of each session, `again` to a second one by a fresh
    store object, during which the files in `changed_again` changed. `listed` is what `list` gave
    in between. `continued` per session where the recovery was continued; `first_calls` where the
    disk was also begun with otherwise (`judge.first_calls`).
    """

    loads: Mapping[str, Answer]
    again: Mapping[str, Answer] = {}
    changed_again: tuple[str, ...] = ()
    listed: Answer | None = None
    continued: Mapping[str, Continuation] = {}
    first_calls: FirstCalls | None = None


class RecoveryJudge:
    """Judges the recoveries of one plan.

    What depends on a debt and an answer alone is worked out once: many images are judged against
    few of either. They are told apart by identity, and kept as long as the judge.
    """

    def __init__(self, capabilities: Capabilities) -> None:
        self.capabilities = capabilities
        self._closers: dict[tuple[int, int], tuple[SessionEvent, ...]] = {}
        self._lawful: dict[int, bool] = {}
        self._problems: dict[int, str | None] = {}
        self._loads: dict[tuple[str, int, int], tuple[Breach, ...]] = {}
        self._continued: dict[tuple[int, int], tuple[Breach, ...]] = {}
        self._kept: list[object] = []

    def breaches(self, recovery: Recovery, ledger: Ledger) -> Iterator[Breach]:
        """Every breach of the CR clauses in a recovery from a crash with this ledger."""
        for session, answer in recovery.loads.items():
            debt = ledger.sessions.get(session)
            if debt is None:
                yield from _not_announced(session, answer)
                continue
            key = session, id(answer), id(debt)
            breaches = self._loads.get(key)
            if breaches is None:
                breaches = self._loads[key] = tuple(self._load(session, answer, debt))
                self._kept += answer, debt
            yield from breaches
            if not breaches:
                yield from _judge_again(session, recovery, self.capabilities)
                yield from self._continuation(session, recovery, debt)
        yield from judge_list(recovery, ledger)

    def closers(self, submitted: tuple[SessionEvent, ...], kept: int) -> tuple[SessionEvent, ...]:
        """The closers of the first `kept` submitted events."""
        if self.capabilities.profile != "session":
            return ()
        key = (id(submitted), kept)
        closers = self._closers.get(key)
        if closers is None:
            closers = tuple(interrupted_turn_closers(submitted[:kept]))
            self._closers[key] = closers
            self._kept.append(submitted)
        return closers

    def _load(self, session: str, answer: Answer, debt: Debt) -> Iterator[Breach]:
        capabilities = self.capabilities
        if not isinstance(answer, Returned) or answer.session is None:
            absent = isinstance(answer, Refused) and answer.kind in ABSENT
            if debt.acknowledged:
                # Not to find what was acknowledged is to have lost it.
                clause = "CR-1" if absent else "CR-3"
                lost = tuple(_named(event) for event in debt.submitted[: debt.acknowledged])
                yield Breach(clause, session, f"load {told(answer)}", lost)
            elif not absent:
                clause = "CR-10" if debt.busy in ("create", "first flush") else "CR-3"
                yield Breach(clause, session, f"load {told(answer)}")
            return
        events = answer.session.events
        kept = common_prefix(debt.submitted, events, capabilities)
        closers = self.closers(debt.submitted, kept)
        if kept < debt.acknowledged:
            lost_events = debt.submitted[kept : debt.acknowledged]
            yield Breach(
                "CR-1",
                session,
                f"{len(lost_events)} acknowledged event(s) from seq {kept} on are lost",
                tuple(_named(event) for event in lost_events),
            )
        elif not same_events(events[kept:], closers, capabilities):
            yield Breach("CR-2", session, _invention(events[kept:], closers, kept))
        elif capabilities.atomic_batch and kept not in debt.boundaries:
            yield Breach("CR-8", session, f"a batch is there in part: {kept} events of it are kept")
        elif capabilities.profile == "session":
            problem = self._unanswered(answer.session, debt.submitted)
            if problem is not None:
                yield Breach("CR-9", session, problem)
        if capabilities.header and not _same_header(answer.session.header, debt.header):
            yield Breach("CR-6", session, "the header is not the one that was given")

    def _continuation(self, session: str, recovery: Recovery, debt: Debt) -> tuple[Breach, ...]:
        continued = recovery.continued.get(session)
        if continued is None:
            return ()
        key = (id(continued), id(debt.header))
        if key not in self._continued:
            self._kept += continued, debt.header
            self._continued[key] = tuple(
                judge_continuation(session, recovery, debt, self.capabilities)
            )
        return self._continued[key]

    def _unanswered(self, loaded: LoadedSession, submitted: tuple[SessionEvent, ...]) -> str | None:
        """What a provider would refuse in a log whose plan kept the grammar (CR-9)."""
        lawful = self._lawful.get(id(submitted))
        if lawful is None:
            lawful = turn_grammar_problem(submitted) is None and _answers_its_calls(submitted)
            self._lawful[id(submitted)] = lawful
            self._kept.append(submitted)
        if not lawful:
            return None
        key = id(loaded.events)
        if key not in self._problems:
            self._problems[key] = _history_problem(loaded.events)
            self._kept.append(loaded.events)
        return self._problems[key]


def _answers_its_calls(events: Iterable[SessionEvent]) -> bool:
    """Whether no closed step leaves a call without its result.

    One id twice in a message is answered once (CL-2), which no provider takes for both.
    """
    tracker = TurnTracker()
    for event in events:
        if event.type in ("step/end", "turn/end") and tracker.open_calls:
            return False
        if event.type == "assistant/message" and _repeats_a_call(event.data):
            return False
        tracker.feed(event)
    return True


def _repeats_a_call(data: Any) -> bool:
    content = data.get("content") if isinstance(data, dict) else None
    calls = [
        block.get("id")
        for block in (content if isinstance(content, list) else ())
        if isinstance(block, dict) and block.get("type") == "tool-call"
    ]
    return any(calls.count(call) > 1 for call in calls)


def _not_announced(session: str, answer: Answer) -> Iterator[Breach]:
    if isinstance(answer, Refused) and answer.kind in ABSENT | {"other"}:
        return
    yield Breach("CR-10", session, f"a session nobody had announced yet {told(answer)}")


def _judge_again(session: str, recovery: Recovery, capabilities: Capabilities) -> Iterator[Breach]:
    again = recovery.again.get(session)
    if again is None:
        return
    first = recovery.loads[session]
    if isinstance(first, Returned) and first.session is not None:
        if not isinstance(again, Returned) or again.session is None:
            yield Breach("CR-4", session, f"the second load {told(again)}")
        elif not same_events(first.session.events, again.session.events, capabilities):
            yield Breach("CR-4", session, "the second load gives other events than the first")
        elif recovery.changed_again:
            changed = ", ".join(recovery.changed_again)
            yield Breach("CR-4", session, f"the second load wrote to {changed}")
    elif not isinstance(again, Refused):
        yield Breach("CR-4", session, f"the second load {told(again)}, the first {told(first)}")


def judge_continuation(
    session: str, recovery: Recovery, debt: Debt, capabilities: Capabilities
) -> Iterator[Breach]:
    """Every breach of CR-5, CR-6 and CR-10 in what became of a session that was gone on with."""
    continued = recovery.continued.get(session)
    if continued is None:
        return
    first = recovery.loads[session]
    clause = "CR-5"
    before: tuple[SessionEvent, ...] = ()
    if isinstance(first, Returned) and first.session is not None:
        before = first.session.events
    else:
        clause = "CR-10"
        if capabilities.creates == "explicit" and not isinstance(continued.created, Returned):
            what = told(continued.created) if continued.created else "was not tried"
            yield Breach(clause, session, f"create after the crash {what}")
            return
    if capabilities.checks_seq and isinstance(continued.wrong, Returned):
        yield Breach("CR-5", session, "an append at a wrong first seq was taken")
        return
    if not isinstance(continued.appended, Returned):
        sentence = f"append at seq {len(before)} {told(continued.appended)}"
        yield Breach(clause, session, sentence)
        return
    loaded = continued.loaded
    expected = before + continued.events
    if capabilities.profile == "session":
        expected += tuple(interrupted_turn_closers(expected))
    if not isinstance(loaded, Returned) or loaded.session is None:
        yield Breach(clause, session, f"the load after a further append {told(loaded)}")
    elif not same_events(loaded.session.events, expected, capabilities):
        kept = common_prefix(expected, loaded.session.events, capabilities)
        yield Breach(
            clause,
            session,
            f"after a further append load gives {len(loaded.session.events)} events that agree "
            f"with the {len(expected)} expected up to seq {kept}",
        )
    elif capabilities.header and not _same_header(loaded.session.header, debt.header):
        yield Breach("CR-6", session, "the header changed when the session went on")


def judge_list(recovery: Recovery, ledger: Ledger) -> Iterator[Breach]:
    """Every breach of CR-6 and CR-11 in what `list` gave."""
    if recovery.listed is None:
        return
    if not isinstance(recovery.listed, Returned) or recovery.listed.entries is None:
        yield Breach("CR-6", "", f"list {told(recovery.listed)}")
        return
    entries: dict[str, ListedSession] = {}
    for entry in recovery.listed.entries:
        if entry.session in entries:
            yield Breach("CR-6", entry.session, "list shows the session twice")
        entries[entry.session] = entry
    for session in entries:
        if session not in recovery.loads:
            yield Breach("CR-11", session, "list shows a session that nobody made")
    for session, answer in recovery.loads.items():
        found = isinstance(answer, Returned) and answer.session is not None
        if not found and not (isinstance(answer, Refused) and answer.kind in ABSENT):
            continue  # What is wrong with its body, a list need not see.
        entry_found = session in entries and entries[session].error is None
        if session in ledger.sessions and found != entry_found:
            shows = "shows" if entry_found else "does not show"
            yield Breach("CR-6", session, f"list {shows} the session, but load {told(answer)}")


# --- comparing ----------------------------------------------------------------------------------


def common_prefix(
    left: Sequence[SessionEvent], right: Sequence[SessionEvent], capabilities: Capabilities
) -> int:
    """How many events two logs begin with alike."""
    length = min(len(left), len(right))
    if left[:length] == right[:length]:
        return length
    for index in range(length):
        if not _same_event(left[index], right[index], capabilities):
            return index
    return length


def same_events(
    left: Sequence[SessionEvent], right: Sequence[SessionEvent], capabilities: Capabilities
) -> bool:
    """Whether two logs are equal."""
    return len(left) == len(right) and common_prefix(left, right, capabilities) == len(left)


def _same_event(left: SessionEvent, right: SessionEvent, capabilities: Capabilities) -> bool:
    return left == right or same_json(
        left.to_json(), right.to_json(), i_json=capabilities.values == "i-json"
    )


def _same_header(left: SessionHeader | None, right: SessionHeader) -> bool:
    return left is not None and (left == right or same_json(left.to_json(), right.to_json()))


def _history_problem(events: Sequence[SessionEvent]) -> str | None:
    try:
        problems = transcript_problems(derive_messages(events, private=False))
    except TranscriptError as error:
        return str(error)
    return problems[0] if problems else None


def _invention(rest: Iterable[SessionEvent], closers: Sequence[SessionEvent], kept: int) -> str:
    rest = list(rest)
    for index, event in enumerate(rest):
        if index >= len(closers):
            return f"seq {kept + index} ({event.type}) was never submitted and closes nothing"
        if event != closers[index]:
            return (
                f"seq {kept + index} is {_named(event)} where the closer "
                f"{_named(closers[index])} is due"
            )
    return f"the closer {_named(closers[len(rest)])} at seq {kept + len(rest)} is missing"


def _named(event: SessionEvent) -> str:
    return f"{event.seq} {event.type}"


def told(answer: Answer) -> str:
    """An answer as the end of a sentence."""
    match answer:
        case Refused():
            return f"refused ({answer.exception}): {answer.text}"
        case Hung(seconds):
            return f"had not returned after {seconds:g} s"
        case StrangeResult(reason):
            return f"returned {reason}"
        case Returned(session=LoadedSession(events=events)):
            return f"returned {len(events)} events"
    return "returned"
