"""Deciding a history: for each operation, whether the clauses it probes were kept.

Holds every observation against the model's branches. An operation that only prepares (it has no
probes) is judged all the same: when it goes wrong, the clause that owns its kind of call fails,
since otherwise a fault could hide in the preparation of every case. Judging stops at the first
operation that went wrong, because from there on model and store are in different states. Does not
decide what should happen (`model`) or what a clause's judgements add up to (`verdict`).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from torntail.judge.capabilities import Capabilities
from torntail.judge.expected import Branch, ExpectedEntry, ExpectedSession
from torntail.judge.history import (
    Append,
    ChangeCallersCopy,
    Close,
    Create,
    Damage,
    Damaged,
    History,
    Hung,
    Inspect,
    ListedSession,
    ListSessions,
    Load,
    LoadedSession,
    NotPossible,
    Observation,
    Operation,
    Refused,
    Reopen,
    Returned,
    StrangeResult,
    Together,
    TogetherOutcome,
)
from torntail.judge.model import Model
from torntail.judge.words import (
    call_name,
    differing,
    due_words,
    outcome_words,
    right_kind,
    shorten,
    tells,
    wanted_words,
    wrong_kind_words,
)
from torntail.session import SessionEvent, SessionHeader, interrupted_turn_closers, same_json

__all__ = ["Judgement", "Judging", "LiveJudge", "judge"]


class Judgement(msgspec.Struct, frozen=True):
    """That a clause was kept or broken at one operation of a history.

    `situations` names what the operation met, for the obligations (VD-3). `due` tells, of a broken
    one, the call and what the model wanted of it where: another fault may have the same sentence.
    """

    clause: str
    passed: bool
    sentence: str
    index: int
    situations: tuple[str, ...] = ()
    due: str = ""


class Judging(msgspec.Struct, frozen=True):
    """What a history comes to: its judgements, and what could not be done or was only counted.

    `impossible` are damages that could not be made, each with the clauses its loads would have
    probed; `silent_flips` counts flipped bits that came back as data, of `flips` in all;
    `cut_short` is the judgement after which store and model went different ways, so that the rest
    of the history was not judged. `harness_error` says why the history proves nothing (VD-6).
    """

    judgements: tuple[Judgement, ...] = ()
    cut_short: Judgement | None = None
    impossible: tuple[tuple[str, NotPossible], ...] = ()
    flips: int = 0
    silent_flips: int = 0
    harness_error: str | None = None


@dataclass(frozen=True, slots=True)
class _Problem:
    """What is wrong with an outcome; `clause` names the clause whose matter it is, if not the
    probes'.
    """

    sentence: str
    clause: str | None = None


_OWNERS: Final[dict[type, str]] = {
    Create: "RW-7",
    Append: "RW-1",
    Load: "RW-1",
    Inspect: "RW-1",
    ListSessions: "RW-9",
    Reopen: "RW-17",
    Close: "RW-17",
    ChangeCallersCopy: "RW-4",
    Together: "RW-17",
}


def judge(history: History, capabilities: Capabilities) -> Judging:
    """Every clause a history exercised, kept or broken."""
    return _Judge(capabilities).judge(history)


class LiveJudge:
    """Judges a history while it is made, one observation after the other.

    Damage is not followed: a history with it is judged as a whole. `lost` says that store and model
    went different ways, so that nothing further can be judged.
    """

    def __init__(self, capabilities: Capabilities) -> None:
        self._judge = _Judge(capabilities)
        self._observed = 0
        self.lost = False

    @property
    def model(self) -> Model:
        """What the store should hold by now; not to be changed."""
        return self._judge.model

    def observe(self, observation: Observation) -> tuple[Judgement, ...]:
        """What the clauses say of the next observation."""
        before = len(self._judge.judgements)
        if not self.lost:
            self.lost = not self._judge._step(self._observed, observation)
        self._observed += 1
        return tuple(self._judge.judgements[before:])


class _Judge:
    def __init__(self, capabilities: Capabilities) -> None:
        self.model = Model(capabilities)
        self.capabilities = capabilities
        self.i_json = capabilities.values == "i-json"
        self.judgements: list[Judgement] = []
        self.impossible: list[tuple[str, NotPossible]] = []
        self.flips = 0
        self.silent_flips = 0

    def judge(self, history: History) -> Judging:
        harness_error: str | None = None
        cut_short: Judgement | None = None
        skipping: NotPossible | None = None
        for index, observation in enumerate(history):
            operation = observation.operation
            if isinstance(operation, Damage):
                skipping = None
                match observation.outcome:
                    case Damaged() as landed if landed.before == landed.after:
                        harness_error = f"{operation.kind} did not change {landed.path}"
                        break
                    case Damaged() as landed:
                        self.model.damage(operation, landed)
                    case NotPossible() as skipping:
                        self.model.damage(operation, None)
                    case other:
                        harness_error = f"{operation.kind} came to {other}"
                        break
                continue
            if skipping is not None:
                self.impossible.extend((clause, skipping) for clause in operation.probes)
                continue
            if self.model.unpredictable(operation):
                continue
            if not self._step(index, observation):
                if index < len(history) - 1:
                    cut_short = self.judgements[-1]
                break
        return Judging(
            tuple(self.judgements),
            cut_short,
            tuple(self.impossible),
            self.flips,
            self.silent_flips,
            harness_error,
        )

    def _step(self, index: int, observation: Observation) -> bool:
        """Judges one operation; whether the history can be followed further."""
        operation = observation.operation
        branches: list[Branch] = []
        if isinstance(operation, Together):
            problems, branch = self._together(operation, observation)
        else:
            branches = self.model.branches(operation)
            problems, branch = self._match(observation, branches)
        if branch is not None and branch.effect is not None:
            branch.effect()
        if branch is not None and "a flipped bit" in branch.situations:
            self.flips += 1
        owner = operation.probes or (_OWNERS[type(operation)],)
        due = due_words(operation, branch or (branches[0] if branches else None))
        for problem in problems:
            for clause in (problem.clause,) if problem.clause else owner:
                self.judgements.append(Judgement(clause, False, problem.sentence, index, due=due))
        failed = {judgement.clause for judgement in self.judgements if judgement.index == index}
        if branch is not None:
            self.judgements.extend(
                Judgement(clause, True, "", index, branch.situations)
                for clause in operation.probes
                if clause not in failed
            )
        return branch is not None

    # --- one operation --------------------------------------------------------------------------

    def _match(
        self, observation: Observation, branches: list[Branch]
    ) -> tuple[list[_Problem], Branch | None]:
        """What is wrong, and the branch to go on with; None when the store has left the model."""
        operation, outcome = observation.operation, observation.outcome
        match outcome:
            case Hung(seconds):
                return [
                    _Problem(f"{call_name(operation)} had not returned after {seconds:g} s")
                ], None
            case StrangeResult(reason):
                if branches[0].session is not None and branches[0].session.uncertain == "flip":
                    self.silent_flips += 1
                    if "bitflip" not in self.capabilities.detects:
                        return [], branches[0]
                return [_Problem(f"{call_name(operation)} returned {reason}")], None
            case Refused(kind="exit"):
                text = (
                    f"{call_name(operation)} raised {outcome.exception}, which ends the interpreter"
                )
                return [_Problem(text)], None
        first: list[_Problem] | None = None
        for branch in branches:
            if isinstance(outcome, Refused):
                problem = self._wrong_refusal(operation, outcome, branch)
                problems = [problem] if problem else []
            else:
                assert isinstance(outcome, Returned)
                problem = self._wrong_return(operation, outcome, branch)
                problems = [problem] if problem else []
            if not problems:
                return self._side_problems(observation, branch), branch
            first = first or problems
        assert first is not None
        # A refusal for the right reason that does not tell its facts leaves the state known.
        branch = branches[0]
        told_badly = (
            isinstance(outcome, Refused)
            and branch.refusal is not None
            and right_kind(outcome, branch.refusal)
        )
        return first, branch if told_badly else None

    def _wrong_refusal(
        self, operation: Operation, outcome: Refused, branch: Branch
    ) -> _Problem | None:
        said = f"{call_name(operation)} refused with {outcome.exception} ({shorten(outcome.text)})"
        if branch.refusal is None:
            return _Problem(f"{said}, where {wanted_words(branch)}")
        if outcome.kind in branch.refusal.wrong_kinds:
            return _Problem(wrong_kind_words(operation, outcome, branch.refusal))
        if not right_kind(outcome, branch.refusal):
            return _Problem(f"{said}, where {wanted_words(branch)}")
        missing = [
            what
            for what, spellings in branch.refusal.names
            if not any(tells(outcome, spelling) for spelling in spellings)
        ]
        if missing:
            text = f"{said} without naming {' and '.join(missing)}"
            return _Problem(text, branch.refusal.names_clause)
        return None

    def _wrong_return(
        self, operation: Operation, outcome: Returned, branch: Branch
    ) -> _Problem | None:
        if "the empty id" in branch.situations:
            return _Problem(f"{call_name(operation)} accepted the empty id, which must be refused")
        if branch.refusal is not None:
            return _Problem(f"{call_name(operation)} returned, where {wanted_words(branch)}")
        if branch.session is not None:
            if outcome.session is None:
                return _Problem(f"{call_name(operation)} returned no session")
            return self._wrong_session(operation, outcome.session, branch.session)
        if branch.entries is not None:
            if outcome.entries is None:
                return _Problem("list returned no list of sessions")
            return self._wrong_entries(outcome.entries, branch.entries)
        return None

    def _side_problems(self, observation: Observation, branch: Branch) -> list[_Problem]:
        """What is wrong although the outcome is right: header, report, copy, bytes changed."""
        operation, outcome = observation.operation, observation.outcome
        problems = []
        outside = [name for name in observation.changed if name.startswith("../")]
        if outside:
            text = f"{call_name(operation)} wrote outside its directory: {', '.join(outside)}"
            problems.append(_Problem(text, "RW-10"))
        elif observation.changed and not branch.writes:
            looking = isinstance(operation, Inspect | ListSessions)
            text = f"{call_name(operation)} changed {', '.join(observation.changed)}"
            problems.append(_Problem(text, "DM-8" if looking else None))
        expected = branch.session
        if expected is None or not isinstance(outcome, Returned) or outcome.session is None:
            return problems
        if not expected.uncertain:
            problem = self._wrong_header(expected.header, outcome.session.header)
            if problem:
                problems.append(_Problem(f"{call_name(operation)} returned {problem}", "RW-1"))
        report = outcome.session.repair
        if expected.tail is not None:
            problems.extend(self._wrong_report(observation, outcome.session, expected))
        elif not expected.uncertain and report is not None and report.torn_from_line is not None:
            text = "the repair report tells of a torn tail where there is none"
            problems.append(_Problem(text, "DM-2"))
        return problems

    # --- values ---------------------------------------------------------------------------------

    def _wrong_session(
        self, operation: Operation, got: LoadedSession, expected: ExpectedSession
    ) -> _Problem | None:
        if expected.uncertain:
            return self._uncertain(operation, got, expected)
        difference = self._difference(expected.events, got.events)
        return _Problem(f"{call_name(operation)} returned {difference}") if difference else None

    def _uncertain(
        self, operation: Operation, got: LoadedSession, expected: ExpectedSession
    ) -> _Problem | None:
        """After a flip, or a cut of unknown effect: a clean prefix, or data nobody wrote?"""
        clean = self._is_prefix(expected.events, got.events) and (
            self._wrong_header(expected.header, got.header) is None
        )
        if expected.uncertain == "flip":
            self.silent_flips += not clean
            if clean or "bitflip" not in self.capabilities.detects:
                return None
            return _Problem(f"{call_name(operation)} returned data with a flipped bit")
        if clean:
            return None
        return _Problem(
            f"{call_name(operation)} returned events that no prefix of the log explains"
        )

    def _is_prefix(
        self, submitted: tuple[SessionEvent, ...], got: tuple[SessionEvent, ...]
    ) -> bool:
        """Whether `got` is some prefix of `submitted`, closed as it needs to be."""
        same = 0
        for one, other in zip(submitted, got, strict=False):
            if not self._same_event(one, other):
                break
            same += 1
        for length in range(same, -1, -1):
            closers: list[SessionEvent] = []
            if self.capabilities.profile == "session":
                closers = interrupted_turn_closers(submitted[:length])
            if not self._difference((*submitted[:length], *closers), got):
                return True
        return False

    def _difference(
        self, expected: tuple[SessionEvent, ...], got: tuple[SessionEvent, ...]
    ) -> str | None:
        for index, (one, other) in enumerate(zip(expected, got, strict=False)):
            if not self._same_event(one, other):
                return f"a different event at index {index}: {differing(one, other, self.i_json)}"
        if len(expected) != len(got):
            index = min(len(expected), len(got))
            what = "lacks" if len(got) < len(expected) else "has too many:"
            event = (expected if len(got) < len(expected) else got)[index]
            return (
                f"{len(got)} events where {len(expected)} were expected: it {what} "
                f"{event.type} (seq {event.seq})"
            )
        return None

    def _same_event(self, one: SessionEvent, other: SessionEvent) -> bool:
        return same_json(one.to_json(), other.to_json(), i_json=self.i_json)

    def _wrong_header(
        self, expected: SessionHeader | None, got: SessionHeader | None
    ) -> str | None:
        if not self.capabilities.header or expected is None:
            return None
        if got is None:
            return "no header"
        if same_json(expected.to_json(), got.to_json(), i_json=self.i_json):
            return None
        return f"a different header: {differing(expected, got, self.i_json)}"

    def _wrong_report(
        self, observation: Observation, got: LoadedSession, expected: ExpectedSession
    ) -> list[_Problem]:
        """DM-2: the torn tail is reported, and copied when it holds a whole record."""
        tail, report = expected.tail, got.repair
        assert tail is not None
        problems = []
        # A store without reports cannot be held to their content.
        if report is not None:
            pairs = (
                ("line", tail.line, report.torn_from_line),
                ("byte", tail.byte, report.torn_from_byte),
                ("byte count", tail.length, report.torn_bytes),
            )
            problems += [
                _Problem(f"the repair report gives {what} {told} of the torn tail, not {right}")
                for what, right, told in pairs
                if right is not None and right != told
            ]
            if report.torn_from_line is None:
                problems.append(_Problem("the repair report does not tell of the torn tail"))
        copied = tail.copied_marks
        writes = isinstance(observation.operation, Load) and self.capabilities.repairs == "load"
        marks = observation.marks
        if copied and writes and marks is not None and not all(map(marks.get, copied)):
            none = not any(map(marks.get, copied))
            text = "the torn tail held a whole record, and no copy of it was kept"
            problems.append(_Problem(text if none else "the copy of the torn tail is not whole"))
        return [_Problem(problem.sentence, "DM-2") for problem in problems]

    def _wrong_entries(
        self, got: tuple[ListedSession, ...], expected: dict[str, ExpectedEntry]
    ) -> _Problem | None:
        listed: dict[str, list[ListedSession]] = {}
        for entry in got:
            listed.setdefault(entry.session, []).append(entry)
        due = {session for session, wanted in expected.items() if not wanted.optional}
        missing = sorted(due - set(listed))
        if missing:
            return _Problem(f"list has no entry for session {shorten(repr(missing[0]))}")
        unexpected = sorted(set(listed) - set(expected))
        if unexpected:
            return _Problem(f"list has an entry for {shorten(repr(unexpected[0]))}, not in storage")
        for session, wanted in expected.items():
            found = listed.get(session, [])
            if not found:
                continue
            if len(found) > 1 and "identity" not in wanted.errors:
                return _Problem(f"list has {len(found)} entries for session {session!r}")
            if any(self._right_entry(wanted, one) for one in found):
                continue
            one = found[0]
            if wanted.errors:
                kinds = " or ".join(sorted(wanted.errors - {"other"}))
                return _Problem(f"list shows session {session!r} without its error ({kinds})")
            if one.error is not None:
                return _Problem(f"list shows session {session!r} with the error {one.error}")
            problem = self._wrong_header(wanted.header, one.header)
            return _Problem(f"list shows session {session!r} with {problem}")
        return None

    def _right_entry(self, expected: ExpectedEntry, got: ListedSession) -> bool:
        if got.error is not None:
            return got.error in expected.errors
        if expected.header is None:
            return False
        # A list of bare ids is a list, too: a header is compared where it is given.
        return got.header is None or self._wrong_header(expected.header, got.header) is None

    # --- at the same time -----------------------------------------------------------------------

    def _together(
        self, operation: Together, observation: Observation
    ) -> tuple[list[_Problem], Branch | None]:
        """Calls at the same time are right when some order of them explains every outcome."""
        outcome = observation.outcome
        assert isinstance(outcome, TogetherOutcome)
        calls = list(zip(operation.operations, outcome.outcomes, strict=True))
        model = self.model
        try:
            for order in itertools.permutations(calls):
                self.model = model.copy()
                if all(self._explained(call, result) for call, result in order):
                    model = self.model
                    return [], Branch(situations=("calls at the same time",))
        finally:
            self.model = model
        told = "; ".join(f"{call_name(call)} {outcome_words(result)}" for call, result in calls)
        return [_Problem(f"no order of the calls explains what came of them: {told}")], None

    def _explained(self, call: Operation, result: Any) -> bool:
        problems, branch = self._match(Observation(call, result), self.model.branches(call))
        if problems or branch is None:
            return False
        if branch.effect is not None:
            branch.effect()
        return True
