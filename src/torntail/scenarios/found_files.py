"""Deciding loads of files that stood in a store before the plan, as a scenario expects them.

The first load of such a session is held against the expectation: so many events, which are the
records of the file, and their closers; or an error of the right kind that tells the line, and not a
byte changes. The second load gives the same and writes nothing. What comes after a successful load
is judged by the oracle, as if the session had been appended. Records are read here with the plain
JSON parser, not with the project's own reader. Pure; does not decide what to expect.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from torntail.judge.capabilities import Capabilities
from torntail.judge.expected import Refusal
from torntail.judge.history import (
    Append,
    Create,
    History,
    Hung,
    Load,
    LoadedSession,
    Observation,
    Refused,
    Returned,
)
from torntail.judge.oracle import Judging, judge
from torntail.judge.recovery import same_events
from torntail.judge.words import outcome_words, right_kind, tells
from torntail.scenarios.format import Expectation, FileFault, Scenario
from torntail.session import SessionHeader, interrupted_turn_closers, same_json

__all__ = ["FoundFailure", "judge_found_files"]

Digests = Mapping[str, str]
"""Path → digest of the file there."""

_WORDS: Final[dict[str, tuple[str, ...]]] = {
    "never_materialised": ("materiali",),
    "not_found": ("not found", "no such", "unknown"),
    "identity": ("id",),
}


@dataclass(frozen=True, slots=True)
class FoundFailure:
    """A clause that was not kept, in which session, how, and at which operation."""

    clause: str
    session: str
    sentence: str
    index: int


def judge_found_files(
    scenario: Scenario,
    history: History,
    storage: Sequence[Digests],
    capabilities: Capabilities,
) -> tuple[list[FoundFailure], Judging | None]:
    """What was not kept, and the judging of what came after the loads.

    `storage` are the digests of all files before each operation, and after the last.
    """
    judging = _Judging(scenario, capabilities)
    for index, observation in enumerate(history):
        changed = _changed(storage[index], storage[index + 1])
        judging.look(index, observation, changed)
        if judging.failures:
            return judging.failures, None
    return [], judge(tuple(judging.later), capabilities) if judging.later else None


class _Judging:
    """Follows a history: which files were loaded, and what is left to the oracle."""

    def __init__(self, scenario: Scenario, capabilities: Capabilities) -> None:
        self.scenario = scenario
        self.capabilities = capabilities
        self.expected = {one.session: one for one in scenario.expect if one.loads}
        self.settled: dict[str, LoadedSession] = {}
        self.refused: set[str] = set()
        self.failures: list[FoundFailure] = []
        self.later: list[Observation] = []

    def look(self, index: int, observation: Observation, changed: list[str]) -> None:
        operation, outcome = observation.operation, observation.outcome
        session: str = getattr(operation, "session", "")
        expected = self.expected.get(session)
        if expected is None:
            self.later.append(observation)
            return
        loads = isinstance(operation, Load)
        if session in self.settled:
            if loads:
                problem = self._again_problem(session, outcome, changed)
                self._fail("CR-4", session, problem, index)
            else:
                # From here on the oracle knows what the session is to hold.
                self.later += _as_if_appended(operation.store, session, self.settled[session])
                del self.expected[session]
                self.later.append(observation)
            return
        if not loads:
            self._look_at_refused(index, observation, expected, changed)
            return
        problem = _load_problem(self.scenario, expected, outcome, self.capabilities)
        if problem is None and isinstance(outcome, Refused) and changed:
            problem = f"load refused and changed {', '.join(changed)}"
        self._fail(expected.clause, session, problem, index)
        if isinstance(outcome, Returned) and outcome.session is not None:
            self.settled[session] = outcome.session
        else:
            self.refused.add(session)

    def _look_at_refused(
        self, index: int, observation: Observation, expected: Expectation, changed: list[str]
    ) -> None:
        """A call other than a load on a session that load has refused."""
        operation, outcome = observation.operation, observation.outcome
        if expected.loads == "never_materialised" and isinstance(operation, Append):
            # The session begins anew, and is the oracle's like any other.
            del self.expected[expected.session]
            self.later.append(observation)
            return
        problem = None
        if isinstance(operation, Append) and not isinstance(outcome, Refused):
            problem = f"append to a log that load refused {outcome_words(outcome)}"
        elif changed:
            problem = f"a call on a log that load refused changed {', '.join(changed)}"
        self._fail(expected.clause, expected.session, problem, index)

    def _fail(self, clause: str, session: str, problem: str | None, index: int) -> None:
        if problem is not None:
            self.failures.append(FoundFailure(clause, session, problem, index))

    def _again_problem(self, session: str, outcome: Any, changed: list[str]) -> str | None:
        if not isinstance(outcome, Returned) or outcome.session is None:
            return f"the second load {outcome_words(outcome)}"
        first = self.settled[session].events
        if not same_events(first, outcome.session.events, self.capabilities):
            return "the second load gives other events than the first"
        return f"the second load wrote to {', '.join(changed)}" if changed else None


def _changed(before: Digests, after: Digests) -> list[str]:
    """The files that stood there before and are not what they were."""
    return sorted(path for path in before if before[path] != after.get(path))


def _as_if_appended(store: int, session: str, loaded: LoadedSession) -> Iterator[Observation]:
    """A history that leaves a session as the load found it, mended."""
    header = loaded.header or SessionHeader(session, 0)
    yield Observation(Create(header=header, store=store), Returned())
    if loaded.events:
        append = Append(session=session, events=loaded.events, store=store)
        yield Observation(append, Returned())


# --- one load ---------------------------------------------------------------------------------


def _load_problem(
    scenario: Scenario, expected: Expectation, outcome: Any, capabilities: Capabilities
) -> str | None:
    """What is wrong with the load of a file, if anything."""
    if isinstance(outcome, Hung):
        return f"load had not returned after {outcome.seconds:g} s"
    if expected.loads != "ok":
        if not isinstance(outcome, Refused):
            what = expected.loads.replace("_", " ")
            return f"load {outcome_words(outcome)}, where it has to refuse ({what})"
        words = _WORDS.get(expected.loads, ())
        if not right_kind(outcome, Refusal(frozenset({expected.loads}), words=words)):
            what = expected.loads.replace("_", " ")
            return f"load {outcome_words(outcome)}, where it has to refuse as {what}"
        if expected.line is not None and not tells(outcome, expected.line):
            return f"load {outcome_words(outcome)} without naming line {expected.line}"
        return None
    if not isinstance(outcome, Returned) or outcome.session is None:
        return f"load {outcome_words(outcome)}, where it has to succeed"
    return _session_problem(scenario, expected, outcome.session, capabilities)


def _session_problem(
    scenario: Scenario, expected: Expectation, loaded: LoadedSession, capabilities: Capabilities
) -> str | None:
    kept = len(loaded.events) if expected.events is None else expected.events
    if len(loaded.events) < kept:
        return f"load returned {len(loaded.events)} events, where the file holds {kept}"
    records = _records(scenario, expected.session)
    for index, (event, record) in enumerate(zip(loaded.events[:kept], records, strict=False)):
        if not same_json(event.to_json(), record):
            return f"load returned another event than the file holds at seq {index}"
    closers: Sequence[Any] = ()
    if capabilities.profile == "session":
        closers = interrupted_turn_closers(loaded.events[:kept])
        if expected.closers not in (None, len(closers)):
            return f"{len(closers)} closers are due by its events, and {expected.closers} expected"
    if not same_events(loaded.events[kept:], closers, capabilities):
        more = len(loaded.events) - kept
        return f"load returned {more} events behind the {kept} kept, where {len(closers)} are due"
    report = loaded.repair
    if expected.torn_bytes is not None and report is not None:
        told = (report.torn_from_line, report.torn_from_byte, report.torn_bytes)
        due = (expected.line, expected.byte, expected.torn_bytes)
        if any(want is not None and got != want for got, want in zip(told, due, strict=True)):
            return f"load reports a torn tail at {told}, where {due} is due (line, byte, length)"
        if expected.copy_kept is not None and report.copy_kept != expected.copy_kept:
            kept_word = "kept no copy" if expected.copy_kept else "kept a copy"
            return f"load reports that it {kept_word} of the torn tail"
    return None


def _records(scenario: Scenario, session: str) -> list[Any]:
    """The records of a session's file behind its header, as far as lines begin with JSON."""
    for fault in scenario.faults:
        if not isinstance(fault, FileFault) or session not in fault.path:
            continue
        records = []
        for line in fault.data.split(b"\n")[1:]:
            try:
                record, _ = json.JSONDecoder().raw_decode(line.decode("utf-8").lstrip())
            except (ValueError, RecursionError):
                break
            records.append(record)
        return records
    return []
