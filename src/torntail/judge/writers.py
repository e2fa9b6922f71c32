"""Deciding what several writers of one store came to: the clauses MW-1 to MW-5.

A history is a sequence of steps, each made by one process or by two at once, and what came of it.
Holds every step against what storage should hold by then, who holds the session, and what each
process has been shown. What two did at once is right if either order explains it. Judging stops at
the first step that went wrong. Does not decide which steps are made (`explore.writers_plans`) or
what a clause needs before it may pass (`obligations`).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace
from typing import Final

from torntail.judge.capabilities import Capabilities
from torntail.judge.expected import EXISTS, Refusal
from torntail.judge.history import (
    Append,
    Close,
    Create,
    Hung,
    Inspect,
    Load,
    LoadedSession,
    Outcome,
    Refused,
    Reopen,
    Returned,
    StrangeResult,
    TogetherOutcome,
)
from torntail.judge.oracle import Judgement, Judging
from torntail.judge.recovery import common_prefix, same_events
from torntail.judge.words import call_name, outcome_words, right_kind
from torntail.judge.writer_steps import (
    Age,
    Ask,
    AtOnce,
    Hear,
    Signal,
    SignalKind,
    Tell,
    WriterCall,
    WriterObservation,
    WritersHistory,
)
from torntail.judge.written import WrittenLog, closers_of, length_shown
from torntail.session import SessionHeader, same_json

__all__ = ["judge_writers"]


def judge_writers(history: WritersHistory, clause: str, capabilities: Capabilities) -> Judging:
    """The clauses that a history of several writers exercised, kept or broken.

    `clause` is what the history is about: it answers for steps that are no clause's own matter.
    """
    return _Judge(clause, capabilities).judge(history)


_CONFLICT_WORDS: Final = ("conflict", "lock", "busy", "another", "writer", "in use")
_CONFLICT: Final = Refusal(frozenset({"conflict"}), words=_CONFLICT_WORDS)
_STALE: Final = Refusal(frozenset({"conflict", "sequence"}), words=(*_CONFLICT_WORDS, "seq"))
_KILLED: Final = "a writer was killed that held the session"
_KILLED_FORKED: Final = f"{_KILLED}, and a child of it lived on"
_LATE: Final = Refusal(_STALE.kinds | EXISTS.kinds, words=(*_STALE.words, *EXISTS.words))


@dataclass(frozen=True, slots=True)
class _Verdict:
    """What a call comes to: the clause it exercises, what is wrong with it, the log after it."""

    clause: str
    log: WrittenLog
    problem: str | None = None
    situations: tuple[str, ...] = ()


@dataclass(slots=True)
class _Judge:
    clause: str
    capabilities: Capabilities
    logs: dict[str, WrittenLog] = field(default_factory=dict)
    headers: dict[tuple[str, str], SessionHeader] = field(default_factory=dict)
    told: dict[str, WriterCall] = field(default_factory=dict)
    continued: frozenset[str] = frozenset()
    forked: frozenset[str] = frozenset()
    judgements: list[Judgement] = field(default_factory=list)

    def judge(self, history: WritersHistory) -> Judging:
        for index, observation in enumerate(history):
            for verdict in self._verdicts(observation):
                sentence = verdict.problem or ""
                judgement = Judgement(
                    verdict.clause, not sentence, sentence, index, verdict.situations
                )
                self.judgements.append(judgement)
                if sentence:
                    cut = judgement if index < len(history) - 1 else None
                    return Judging(tuple(self.judgements), cut_short=cut)
        return Judging(tuple(self.judgements))

    def _verdicts(self, observation: WriterObservation) -> list[_Verdict]:
        """What the clauses say of a step; what it changes is taken over."""
        match observation.step:
            case Ask(writer, call):
                return self._settled(writer, call, observation.outcome, observation.changed)
            case Tell(writer, call):
                self.told[writer] = call
            case Hear(writer):
                call = self.told.pop(writer)
                return self._settled(writer, call, observation.outcome, observation.changed)
            case AtOnce(asks):
                assert isinstance(observation.outcome, TogetherOutcome)
                return self._at_once(asks, observation.outcome.outcomes)
            case Signal(writer, kind):
                self._signalled(writer, kind)
            case Age():
                pass
        return []

    def _signalled(self, writer: str, kind: SignalKind) -> None:
        if kind == "kill":
            self._let_go(writer, _KILLED_FORKED if writer in self.forked else _KILLED)
        elif kind == "continue":
            self.continued |= {writer}
        elif kind == "fork":
            self.forked |= {writer}

    def _let_go(self, writer: str, killed: str = "") -> None:
        for session, log in self.logs.items():
            self.logs[session] = log.without(writer, killed)
        for known in [known for known in self.headers if known[0] == writer]:
            del self.headers[known]

    def _settled(
        self, writer: str, call: WriterCall, outcome: Outcome, changed: tuple[str, ...]
    ) -> list[_Verdict]:
        verdict = self._verdict(writer, call, outcome, changed)
        match call:
            case Create(header=header) if isinstance(outcome, Returned):
                self.headers[writer, header.id] = header
            case Append(session=session) | Load(session=session) | Inspect(session=session):
                self.logs[session] = verdict.log
            case Close() | Reopen():
                self._let_go(writer)
        return [verdict]

    # --- at once --------------------------------------------------------------------------------

    def _at_once(self, asks: tuple[Ask, ...], outcomes: tuple[Outcome, ...]) -> list[_Verdict]:
        logs = dict(self.logs)
        verdicts: list[_Verdict] = []
        for order in itertools.permutations(zip(asks, outcomes, strict=True)):
            self.logs = dict(logs)
            verdicts = [
                verdict
                for ask, outcome in order
                for verdict in self._settled(ask.writer, ask.call, outcome, ())
            ]
            if not any(verdict.problem for verdict in verdicts):
                return [
                    replace(one, situations=(*one.situations, "two appends at once"))
                    for one in verdicts
                ]
        first = next(verdict for verdict in verdicts if verdict.problem)
        words = [
            f"{ask.writer}'s {call_name(ask.call)} {outcome_words(outcome)}"
            for ask, outcome in zip(asks, outcomes, strict=True)
        ]
        clause = "MW-5" if self._is_open_to_many else first.clause
        return [replace(first, clause=clause, problem=f"at once, {' and '.join(words)}")]

    @property
    def _is_open_to_many(self) -> bool:
        return self.capabilities.writers == "many"

    # --- one call -------------------------------------------------------------------------------

    def _verdict(
        self, writer: str, call: WriterCall, outcome: Outcome, changed: tuple[str, ...]
    ) -> _Verdict:
        match call:
            case Append():
                return self._append(writer, call, outcome, changed)
            case Load(session=session) | Inspect(session=session):
                return self._load(writer, call, session, outcome, changed)
        problem = None if isinstance(outcome, Returned) else self._told(writer, call, outcome)
        exists = isinstance(outcome, Refused) and right_kind(outcome, _LATE)
        if isinstance(call, Create) and exists:
            # A store that is not lazy already shows what the other has created.
            problem = None
        return _Verdict(self.clause, WrittenLog(), problem)

    def _append(
        self, writer: str, call: Append, outcome: Outcome, changed: tuple[str, ...]
    ) -> _Verdict:
        log = self.logs.get(call.session, WrittenLog())
        first = call.events[0].seq
        fits = first == len(log.events)
        others = log.possible - {writer}
        situations: tuple[str, ...]
        virtual = log.known_to(writer) == -1
        closers = closers_of(log.events, self.capabilities)
        if self._is_open_to_many:
            refusal = None if fits else _STALE
            situations = ("another had the first seq",) if refusal else ("an append went on",)
            return self._decided(
                writer, call, outcome, changed, _Verdict("MW-5", log, None, situations), refusal
            )
        if log.holder not in (None, writer):
            # One that was shown another log may go by that first.
            knows = log.known_to(writer) in (None, len(log.events))
            refusal = _CONFLICT if fits and knows else _LATE
            situations = ("an append under another's lock",)
            return self._decided(
                writer, call, outcome, changed, _Verdict("MW-1", log, None, situations), refusal
            )
        if log.holder is None and not fits and (log.known_to(writer) is not None or log.events):
            # Appended where the log is no longer, or where closers stand that were only shown.
            if virtual and isinstance(outcome, Returned) and first == len(log.events + closers):
                log = replace(log, events=log.events + closers)
                return _Verdict("MW-4", self._appended(writer, call, log))
            verdict = _Verdict("MW-4", log, None, ("a stale cursor",))
            return self._decided(writer, call, outcome, changed, verdict, _STALE)
        clause = "MW-2" if log.orphaned else self.clause
        situations = ()
        if log.orphaned:
            situations = (log.orphaned,)
        elif writer in self.continued and log.holder == writer:
            situations = ("a stopped writer went on",)
        verdict = _Verdict(clause, log, None, situations)
        if others and isinstance(outcome, Refused) and right_kind(outcome, _CONFLICT):
            # One that has loaded may hold the session without having written.
            holder = next(iter(others)) if len(others) == 1 else None
            return replace(verdict, log=replace(log, holder=holder))
        return self._decided(writer, call, outcome, changed, verdict, None)

    def _decided(
        self,
        writer: str,
        call: Append,
        outcome: Outcome,
        changed: tuple[str, ...],
        verdict: _Verdict,
        refusal: Refusal | None,
    ) -> _Verdict:
        """An append that has to be refused so and write nothing, or has to succeed."""
        log = verdict.log
        if refusal is None:
            if isinstance(outcome, Returned):
                return replace(verdict, log=self._appended(writer, call, log))
            return replace(verdict, problem=self._told(writer, call, outcome))
        kinds = "conflict" if verdict.clause == "MW-1" else "conflict or sequence"
        if isinstance(outcome, Returned):
            why = (
                f"while {log.holder} holds the session"
                if log.holder not in (None, writer) and not self._is_open_to_many
                else f"at seq {call.events[0].seq}, where storage has come to {len(log.events)}"
            )
            text = f"{writer}'s append was acknowledged {why}: it has to be refused as {kinds}"
            return replace(verdict, problem=text)
        if not isinstance(outcome, Refused) or not right_kind(outcome, refusal):
            told = self._told(writer, call, outcome)
            return replace(verdict, problem=f"{told}: it has to be refused as {kinds}")
        if changed:
            text = f"{writer}'s append was refused, and changed {', '.join(changed)}"
            return replace(verdict, problem=text)
        return verdict

    def _appended(self, writer: str, call: Append, log: WrittenLog) -> WrittenLog:
        events = log.events + call.events
        header = log.header or self.headers.get((writer, call.session))
        many = self._is_open_to_many
        log = replace(
            log,
            events=events,
            header=header,
            holder=None if many else writer,
            possible=frozenset(),
            orphaned="",
        )
        return log.showing(writer, len(events))

    def _load(
        self,
        writer: str,
        call: Load | Inspect,
        session: str,
        outcome: Outcome,
        changed: tuple[str, ...],
    ) -> _Verdict:
        log = self.logs.get(session, WrittenLog())
        if log.holder not in (None, writer):
            return self._load_beside(writer, call, outcome, changed, log)
        clause = "MW-2" if log.orphaned else self.clause
        verdict = _Verdict(clause, log)
        loaded = self._session(outcome)
        if loaded is None:
            return replace(verdict, problem=self._told(writer, call, outcome))
        closers = closers_of(log.events, self.capabilities)
        due = log.events + closers
        if not same_events(due, loaded.events, self.capabilities):
            common = common_prefix(due, loaded.events, self.capabilities)
            text = (
                f"{writer}'s {call_name(call)} gives {len(loaded.events)} events where "
                f"{len(due)} are due, alike up to event {common}"
            )
            return replace(verdict, problem=text)
        if self.capabilities.header and log.header is not None:
            header = loaded.header
            if header is None or not same_json(header.to_json(), log.header.to_json()):
                text = f"{writer}'s {call_name(call)} gives the header that another was to have"
                return replace(verdict, problem=text)
        if isinstance(call, Inspect):
            return verdict
        durable = loaded.repair is None or loaded.repair.durable
        if closers and not durable and not log.possible - {writer} and self._stores_closers:
            text = (
                f"{writer}'s load does not make its repair durable, and no other holds the session"
            )
            return replace(verdict, problem=text)
        if self._stores_closers and durable:
            log = replace(log, events=due)
        shown = len(log.events) if durable or not closers else -1
        log = replace(log.showing(writer, shown), possible=log.possible | {writer})
        return replace(verdict, log=log)

    def _load_beside(
        self,
        writer: str,
        call: Load | Inspect,
        outcome: Outcome,
        changed: tuple[str, ...],
        log: WrittenLog,
    ) -> _Verdict:
        """MW-3: a look at a session that another process holds."""
        situations: tuple[str, ...] = ("a load under a live writer",)
        verdict = _Verdict("MW-3", log, None, situations)
        beside = f"{writer}'s {call_name(call)} under {log.holder}'s lock"
        if changed:
            return replace(verdict, problem=f"{beside} changed {', '.join(changed)}")
        loaded = self._session(outcome)
        if loaded is None:
            return replace(verdict, problem=f"{beside} {outcome_words(outcome)}")
        cut = length_shown(log.events, loaded.events, self.capabilities)
        if cut is None:
            text = f"{beside} gives no prefix of the log with its closers"
            return replace(verdict, problem=text)
        closers = len(loaded.events) - cut
        if closers:
            verdict = replace(verdict, situations=(*situations, "an open turn was shown closed"))
            marked = loaded.repair is not None and loaded.repair.durable
            if marked and isinstance(call, Load):
                text = f"{beside} marks closers as durable that are not in storage"
                return replace(verdict, problem=text)
        if isinstance(call, Inspect):
            return verdict
        return replace(verdict, log=log.showing(writer, -1 if closers else cut))

    # --- words and values -----------------------------------------------------------------------

    @property
    def _stores_closers(self) -> bool:
        return self.capabilities.repairs == "load"

    def _session(self, outcome: Outcome) -> LoadedSession | None:
        return outcome.session if isinstance(outcome, Returned) else None

    def _told(self, writer: str, call: WriterCall, outcome: Outcome) -> str:
        assert isinstance(outcome, Returned | Refused | Hung | StrangeResult)
        return f"{writer}'s {call_name(call)} {outcome_words(outcome)}"
