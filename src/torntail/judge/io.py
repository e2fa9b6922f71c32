"""Deciding IO-1 to IO-6: which answers and which later contents are right when the disk says no.

The rule, derived from the clauses and the words A, S and *indeterminate* of the contract:

- IO-1. While an `append` runs, an error of a write, a truncate, a rename or an fsync (of a file or
  a directory) makes it raise. An error of any other operation may be got over; what then counts is
  that the batch is really there. What an append that raised has left behind may shrink, but never
  grow: a batch that comes to light later, or together with the next one, was queued in secret.
- Indeterminate. Before the next settled call storage holds A, or A and any prefix of the batch that
  raised. An acknowledged append settles it: what follows A is that batch alone. A load that is not
  marked *not durable* settles it as what it returned; so does `reopen`, as the seq it returned.
- IO-2. Every load, by the same object, by a new one, after a kill and after a power cut, returns A
  at least, and what follows is such a prefix and its closers. While nothing is acknowledged it may
  say that there is no session. Once the disk is well again a new object can append.
- IO-3. When the fsync of a file that this append has written to fails, none of the batch is left
  when it raises, unless cutting it off failed as well; and the object takes no further append to
  this session before `reopen`; loading is no `reopen`. After any failed fsync, what is acknowledged
  later survives every power cut.
- IO-4. A write that comes short is no error: `append` returns. When ENOSPC from write alone was the
  trouble and there is room again, the same object goes on: with the same batch at once, after a
  `load`, or after `reopen`; and what is then loaded has no gap, no repeat and no rubbish.
- IO-5. A load that is struck returns L all the same. One that says its repair is durable leaves
  nothing for the next load to write. An append after it that is acknowledged stands, whole, behind
  L. For stores that claim `repairs: load`.
- IO-6. After the file of a session was unlinked, replaced (by equal bytes, too), cut or emptied,
  the next append by the same object raises, and leaves no file that has no header.

Not judged, because nobody could know better: power cuts after a new store object, in the same boot,
has taken over bytes whose fsync failed, where the object before it could not cut them off (the cut
failed as well, or a kill came first) or had only found them (the fsync belonged to a load). Nor is
it judged by which kind of error a call raises, nor what `create` and `close` answer.

Pure. Does not decide which faults are tried, nor where a store is crashed afterwards (`explore`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from torntail.judge.capabilities import Capabilities
from torntail.judge.history import Append, Create, Hung, Load, Refused, Reopen, Returned
from torntail.judge.io_content import clause_of, closers_of, is_own_sync, load_problem, told
from torntail.judge.io_steps import Events, IoStep, Revive, Standing, Struck
from torntail.judge.recovery import Breach

__all__ = ["MUST_RAISE", "IoJudge"]

MUST_RAISE: Final = frozenset({"write", "truncate", "rename", "sync", "sync-directory"})
_CHECKS: Final = frozenset({"sequence", "conflict", "closed", "not_found", "exists"})


class IoJudge:
    """Judges the calls of one run, in order; `standings` is what is owed after the last one.

    A breach of IO-1 says only that a call returned which should have raised, and the run goes on;
    after any other nothing more can be said of it.
    """

    def __init__(
        self, capabilities: Capabilities, standings: Mapping[str, Standing] | None = None
    ) -> None:
        self.capabilities = capabilities
        self.standings: dict[str, Standing] = dict(standings or {})
        self.past: list[IoStep] = []
        self.excused = False

    # --- what may be in storage -----------------------------------------------------------------

    def during(self, step: IoStep) -> dict[str, Standing]:
        """What is owed while a call runs: what it submits may be there."""
        standings = dict(self.standings)
        match step.call:
            case Create(header=header) if header.id not in standings:
                standings[header.id] = Standing(header)
            case Append(session=session, events=events) if events and session in standings:
                standing = standings[session]
                base = self._base(standing, events[0].seq)
                if base is not None:
                    standings[session] = _also(standing, base + events)
        return standings

    def _base(self, standing: Standing, seq: int) -> Events | None:
        """The log that an append which begins at `seq` goes on from."""
        logs = (standing.acknowledged, *standing.alternatives)
        closed = (log + closers_of(log, self.capabilities) for log in logs)
        shown = () if standing.shown is None else (standing.shown,)
        return next((log for log in (*shown, *logs, *closed) if len(log) == seq), None)

    # --- one call -------------------------------------------------------------------------------

    def take(self, step: IoStep) -> Breach | None:
        """Judges the next call and adds it to the past."""
        breach = self._judged(step)
        self.past.append(step)
        return breach

    def _judged(self, step: IoStep) -> Breach | None:
        match step.call:
            case Create(header=header):
                known = self.standings.get(header.id)
                unknown = known is None or not known.announced
                if isinstance(step.outcome, Returned) and unknown:
                    self.standings[header.id] = Standing(header)
            case Append(session=session, events=events) if events:
                return self._append(session, events, step)
            case Load(session=session) if session in self.standings:
                return self._load(session, step)
            case Reopen():
                self._opened_anew()
            case Revive(session) if session in self.standings:
                return self._revived(session, step)
        if isinstance(step.outcome, Hung):
            return Breach("IO-2", "", f"a call {told(step.outcome)}")
        return None

    def _append(self, session: str, events: Events, step: IoStep) -> Breach | None:
        standing = self.standings.get(session)
        if standing is None:
            return None
        base = self._base(standing, events[0].seq)
        if isinstance(step.outcome, Returned):
            breach = self._wrongly_taken(session, standing, step)
            # What it took is owed all the same: a later load may show more than this one sentence.
            if base is not None:
                log = base + events
                self.standings[session] = msgspec.structs.replace(
                    standing,
                    refused=tuple(event for event in standing.refused if event not in events),
                    acknowledged=log,
                    alternatives=(log,),
                    shown=None,
                    touched=True,
                    announced=True,
                    unrepaired=False,
                )
            return breach
        if not isinstance(step.outcome, Refused):
            return Breach("IO-1", session, f"append {told(step.outcome)}")
        if step.struck and not step.errors and not standing.dead and not standing.unrepaired:
            return Breach("IO-4", session, f"a write came short, and append {told(step.outcome)}")
        if self._well(step) and (standing.touched or not standing.announced):
            sentence = f"a new object, the disk being well, {told(step.outcome)} on append"
            return Breach("IO-2", session, sentence)
        if base is not None and (step.errors or step.outcome.kind not in _CHECKS):
            standing = _also(standing, base + events)
            refused = (*standing.refused, *events)
            standing = msgspec.structs.replace(standing, refused=refused)
        if standing.touched and any(is_own_sync(one) for one in step.errors):
            standing = msgspec.structs.replace(standing, dead=True)
        self.standings[session] = standing
        return None

    def _wrongly_taken(self, session: str, standing: Standing, step: IoStep) -> Breach | None:
        failed = [one for one in step.errors if one.kind in MUST_RAISE]
        if failed:
            sentence = f"append returned, though {_words(failed[0])}"
            return Breach("IO-1", session, sentence)
        if standing.dead:
            sentence = (
                "append was taken by an object whose fsync had failed, without reopen in between"
            )
            return Breach("IO-3", session, sentence)
        return None

    def _load(self, session: str, step: IoStep) -> Breach | None:
        standing = self.standings[session]
        answer = step.outcome
        kept = load_problem(answer, standing, self.capabilities)
        if kept.problem is not None:
            struck = bool(step.errors)
            if struck and self.capabilities.repairs != "load" and isinstance(answer, Refused):
                return None
            return Breach(self._clause(standing, step, kept.problem), session, kept.problem)
        if not isinstance(answer, Returned) or answer.session is None:
            return None
        events = answer.session.events
        report = answer.session.repair
        standing = msgspec.structs.replace(standing, shown=events, touched=True)
        if report is not None and not report.durable:
            standing = msgspec.structs.replace(standing, unrepaired=True)
        elif report is not None or len(standing.alternatives) == 1:
            # Without a report a store has no way to say that what it shows is not settled.
            mended = report is not None and (
                kept.closers or report.torn_bytes or report.newline_added
            )
            standing = msgspec.structs.replace(
                standing,
                acknowledged=events if mended else standing.acknowledged,
                alternatives=(events,),
                unrepaired=False,
            )
        self.standings[session] = standing
        return None

    def _revived(self, session: str, step: IoStep) -> Breach | None:
        standing = self.standings[session]
        count = step.next_seq
        if not isinstance(step.outcome, Returned) or count is None:
            return None
        if count < len(standing.acknowledged):
            sentence = f"reopen goes on at seq {count}, {len(standing.acknowledged)} events being "
            return Breach("IO-2", session, sentence + "acknowledged")
        logs = tuple(log[:count] for log in standing.alternatives if len(log) >= count)
        self.standings[session] = msgspec.structs.replace(
            standing,
            alternatives=logs or standing.alternatives,
            shown=None,
            dead=False,
            unrepaired=False,
            touched=True,
        )
        return None

    def _opened_anew(self) -> None:
        """A new store object: it knows nothing, and no death of the one before."""
        self.excused = self.excused or _uncut(self.past)
        for session, standing in self.standings.items():
            self.standings[session] = msgspec.structs.replace(
                standing,
                shown=None,
                touched=False,
                announced=bool(standing.acknowledged) and standing.announced,
                dead=False,
                unrepaired=False,
            )

    def _well(self, step: IoStep) -> bool:
        """Whether this call is made by a new object, nothing having failed since it was opened."""
        for past in (step, *reversed(self.past)):
            if past.struck or not past.lifted:
                return False
            if isinstance(past.call, Reopen):
                return True
        return False

    def finished(self) -> Breach | None:
        """What can be said at the end only: whether work went on when there was room again."""
        errors = [one for step in self.past for one in step.errors]
        if not errors or any(one.kind != "write" or one.error != "ENOSPC" for one in errors):
            return None
        struck = False
        tried: str | None = None
        for step in self.past:
            if struck and isinstance(step.call, Reopen):
                break
            if struck and isinstance(step.call, Append) and not step.struck:
                if isinstance(step.outcome, Returned):
                    return None
                tried = step.call.session
            struck = struck or (bool(step.struck) and isinstance(step.call, Append))
        if tried is None:
            return None
        sentence = "after ENOSPC, though there was room again, the same object took no append"
        return Breach("IO-4", tried, sentence)

    # --- which clause ---------------------------------------------------------------------------

    def _clause(self, standing: Standing, step: IoStep, problem: str) -> str:
        return clause_of([*self.past, step], standing, problem, power=False)


def _uncut(past: Sequence[IoStep]) -> bool:
    """Whether bytes whose fsync failed may stand there although the store did what it could."""
    for step in past:
        syncs = [index for index, one in enumerate(step.errors) if one.kind == "sync"]
        if not syncs:
            continue
        if not isinstance(step.call, Append) or not step.errors[syncs[0]].own:
            return True
        if any(one.kind != "write" for one in step.errors[syncs[0] + 1 :]):
            return True
    return False


def _also(standing: Standing, log: Events) -> Standing:
    if log in standing.alternatives:
        return standing
    return msgspec.structs.replace(standing, alternatives=(*standing.alternatives, log))


def _words(struck: Struck) -> str:
    what = {"sync": "an fsync", "sync-directory": "the fsync of a directory"}.get(
        struck.kind, f"a {struck.kind}"
    )
    return f"{what} failed ({struck.error})"
