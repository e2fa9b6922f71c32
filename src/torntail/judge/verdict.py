"""What a campaign comes to: the state of each clause, the findings, the certificate.

Decides the three values of VD-1, what is requested at a level (VD-7), what an accepted violation
and an unmet obligation (VD-3) do to the verdict, and the exit code that follows. Does not decide a
single operation (`oracle`) or how any of it is shown (`report`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal, TypeAlias

import msgspec

from torntail.judge.capabilities import Capabilities, claims
from torntail.judge.clauses import CLAUSES, Clause
from torntail.judge.obligations import missing_situations
from torntail.judge.oracle import Judgement, Judging

__all__ = [
    "LIMITS",
    "Certificate",
    "ClauseResult",
    "Counts",
    "Finding",
    "Request",
    "State",
    "Tally",
    "Verdict",
    "healed_clauses",
    "moot_acceptances",
]

Verdict: TypeAlias = Literal["pass", "fail", "unknown", "broken baseline"]
"""VD-1's three values, and the one that says no verdict was reached (VD-2)."""

State: TypeAlias = Literal[
    "pass",
    "counted",
    "fail",
    "unknown",
    "not exercised",
    "not exercised yet",
    "not applicable",
    "not requested",
]
"""What became of a clause; `counted`: looked at, but not judged, not being claimed (DM-7)."""

StoreLevel: TypeAlias = Literal["none", "process", "power"]

_BUILT: Final = frozenset({"RW", "CL", "DM", "CR", "IO", "MW"})
_LEVELS: Final = ("none", "process", "power")

LIMITS: Final = (
    "group LV is not exercised: nothing is said about live sessions",
    "several writers are processes on one machine that take turns, or do the same at once; a child "
    "that lives on is forked of a Python store only; want of permission for a lock is not tried",
    "damage is made between calls, with the store closed; not while it runs",
    "crashes are those of the models kill, ordered and posix over the plans that were run; bytes "
    "that an fsync has made durable are taken to stay (device faults are not part of this)",
    "file operations of a Python store are recorded inside Python: of one that writes by other "
    "means nothing is said about crashes and I/O errors; syncs by foreign code (ctypes, cffi, C "
    "extensions) are not seen, and make a store look worse than it is; sqlite and drivers are "
    "recorded from outside",
    "I/O errors strike writes, opens for writing, syncs and changes of names, never reads; of a "
    "driver an open only where all fails; EINTR does not reach a Python store",
    "IO-3: not judged is a kill between a failed fsync and the cut, followed by a load in the same "
    "boot; nor a power cut after a new store object has taken over bytes that could not be cut off",
)
"""What no certificate of this version covers, whatever its verdict."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be proven: up to which level, and which clauses (`only`, ids or their prefixes).

    `explicit_level`: somebody asked for this level, so that crashes which cannot be tried make the
    verdict unknown.
    """

    level: StoreLevel
    explicit_level: bool = False
    only: tuple[str, ...] = ()
    accepted: dict[str, str] = {}

    def wants(self, clause: str) -> bool:
        """Whether a clause was not left out by `only`."""
        return not self.only or any(_selects(selector, clause) for selector in self.only)

    def requests(self, clause: Clause) -> bool:
        """Whether the level asks for a clause (VD-7)."""
        if clause.level not in _LEVELS:
            return False
        return _LEVELS.index(clause.level) <= _LEVELS.index(self.level)


def _selects(selector: str, clause: str) -> bool:
    return clause == selector or (
        clause.startswith(selector) and clause[len(selector) : len(selector) + 1] == "-"
    )


class Finding(msgspec.Struct, frozen=True):
    """One violation and how to see it again (VD-4).

    `steps` is the smallest history found, one line an operation, the last being the one that went
    wrong; `cause` is equal for findings that show the same fault; `witness` the directory that
    holds the storage and the history, if it was kept.
    """

    clause: str
    sentence: str
    case: str
    steps: tuple[str, ...]
    cause: str
    command: str
    model: str = "no fault"
    witness: str | None = None


class ClauseResult(msgspec.Struct, frozen=True):
    """What became of one clause: its state, how often it was exercised, and why it is not more."""

    clause: str
    state: State
    executed: int = 0
    note: str = ""
    accepted: str | None = None


class Counts(msgspec.Struct, frozen=True):
    """How much was done.

    Of the crashes: plans driven, moments at which a crash was placed, images worked out, distinct
    images loaded, and distinct disks recovered to, in so many seconds. Of the I/O errors: runs,
    disks loaded after a crash in one, and which file operations were struck, by kind.
    """

    cases: int = 0
    operations: int = 0
    judgements: int = 0
    damages: int = 0
    flips: int = 0
    silent_flips: int = 0
    plans: int = 0
    moments: int = 0
    images: int = 0
    distinct_images: int = 0
    recoveries: int = 0
    crash_seconds: float = 0.0
    io_runs: int = 0
    io_images: int = 0
    io_struck: dict[str, int] = {}


class Tally:
    """Adds up judgements, clause by clause."""

    def __init__(self, capabilities: Capabilities, request: Request) -> None:
        self._capabilities = capabilities
        self._request = request
        self._planned: set[str] = set()
        self._executed: dict[str, int] = {}
        self._failed: dict[str, str] = {}
        self._situations: dict[str, set[str]] = {}
        self._impossible: dict[str, list[tuple[str, bool]]] = {}
        self._cut_short: dict[str, Judgement] = {}
        self._flips = 0
        self._silent_flips = 0
        self._harness_errors: list[str] = []
        self._uncrashed: str | None = "no crash was tried"
        self._unstruck: str | None = None
        self._unshared: str | None = None

    @property
    def flips(self) -> tuple[int, int]:
        """How many bits were flipped, and how many of them came back silently."""
        return self._flips, self._silent_flips

    @property
    def harness_errors(self) -> tuple[str, ...]:
        """What went wrong in torntail itself."""
        return tuple(self._harness_errors)

    def failed(self, clause: str) -> bool:
        """Whether a violation of a clause is known by now."""
        return clause in self._failed

    def plan(self, clauses: Iterable[str]) -> None:
        """There is a case for these clauses, whether or not it will be reached."""
        self._planned.update(clauses)

    def add(self, judging: Judging, clauses: Iterable[str]) -> None:
        """Takes the judgements of one history, which was made for these clauses."""
        if judging.cut_short is not None:
            for clause in clauses:
                self._cut_short.setdefault(clause, judging.cut_short)
        for judgement in judging.judgements:
            clause = judgement.clause
            self._executed[clause] = self._executed.get(clause, 0) + 1
            if not judgement.passed:
                self._failed.setdefault(clause, judgement.sentence)
            self._situations.setdefault(clause, set()).update(judgement.situations)
        for clause, impossible in judging.impossible:
            self._impossible.setdefault(clause, []).append((impossible.reason, impossible.moot))
        self._flips += judging.flips
        self._silent_flips += judging.silent_flips
        if judging.harness_error:
            self.harness_error(judging.harness_error)

    def add_crashes(
        self,
        executed: Mapping[str, int],
        failed: Iterable[tuple[str, str]],
        situations: Iterable[str],
    ) -> None:
        """Takes what the crashes came to: checks per clause, breaches, and what occurred."""
        self._uncrashed = None
        for clause, count in executed.items():
            self._executed[clause] = self._executed.get(clause, 0) + count
            self._situations.setdefault(clause, set()).update(situations)
        for clause, sentence in failed:
            self._executed.setdefault(clause, 1)
            self._failed.setdefault(clause, sentence)

    def moot(self, clause: str, reason: str) -> None:
        """What a clause is about cannot arise with this store."""
        self._impossible.setdefault(clause, []).append((reason, True))

    def not_crashed(self, reason: str) -> None:
        """No crash could be tried, for a reason that the certificate gives."""
        self._uncrashed = reason

    def not_struck(self, reason: str) -> None:
        """No I/O error could be tried, for a reason that the certificate gives."""
        self._unstruck = reason

    def not_shared(self, reason: str) -> None:
        """No second process could open the store, for a reason that the certificate gives."""
        self._unshared = reason

    def harness_error(self, text: str) -> None:
        """A case proved nothing because of torntail itself: no clause may pass on it (VD-6)."""
        self._harness_errors.append(text)

    def results(self) -> tuple[ClauseResult, ...]:
        """The state of every clause of the contract that concerns a store."""
        return tuple(
            self._result(clause)
            for clause in CLAUSES.values()
            if clause.group != "VD" and self._request.wants(clause.id)
        )

    def _result(self, clause: Clause) -> ClauseResult:
        state: State
        executed = self._executed.get(clause.id, 0)
        accepted = self._request.accepted.get(clause.id)
        if clause.id in self._failed:
            return ClauseResult(clause.id, "fail", executed, self._failed[clause.id], accepted)
        lacking = [need for need in clause.requires if not claims(self._capabilities, need)]
        if lacking:
            note = f"not claimed: {', '.join(lacking)}"
            return ClauseResult(clause.id, "not applicable", executed, note)
        if clause.group not in _BUILT:
            if clause.level in _LEVELS and not self._request.requests(clause):
                return ClauseResult(clause.id, "not requested", note=f"level {self._request.level}")
            return ClauseResult(clause.id, "not exercised yet")
        if not self._request.requests(clause):
            return ClauseResult(clause.id, "not requested", note=f"level {self._request.level}")
        untried = self._uncrashed if clause.group in ("CR", "IO") else None
        if clause.group == "IO":
            untried = untried or self._unstruck
        elif clause.group == "MW":
            untried = self._unshared
        if untried is not None:
            # By default what cannot be seen is said; asked for by name, it is missing.
            state = "unknown" if self._request.explicit_level else "not exercised yet"
            return ClauseResult(clause.id, state, note=untried)
        cut_short = self._cut_short.get(clause.id)
        if cut_short is not None:
            note = f"a case ended early, {cut_short.clause} being violated: {cut_short.sentence}"
            return ClauseResult(clause.id, "unknown", executed, note)
        impossible = self._impossible.get(clause.id, [])
        moot = [reason for reason, is_moot in impossible if is_moot]
        if not executed:
            if impossible and len(moot) == len(impossible):
                return ClauseResult(clause.id, "not applicable", note=moot[0])
            if clause.id not in self._planned and self._capabilities.durability == "none":
                note = "a store without durability has nothing to damage"
                return ClauseResult(clause.id, "not applicable", note=note)
            reason = impossible[0][0] if impossible else "no case came so far"
            return ClauseResult(clause.id, "not exercised", note=reason)
        missing = missing_situations(
            clause.id,
            frozenset(self._situations.get(clause.id, ())),
            claimed=_claimed(self._capabilities),
            damage_moot=bool(moot) or self._capabilities.durability == "none",
        )
        if missing:
            return ClauseResult(clause.id, "unknown", executed, f"never met: {'; '.join(missing)}")
        counted = clause.id == "DM-7" and "bitflip" not in self._capabilities.detects
        state = "counted" if counted else "pass"
        return ClauseResult(clause.id, state, executed, self._note(clause))

    def _note(self, clause: Clause) -> str:
        if clause.id == "DM-7":
            note = f"{self._silent_flips} of {self._flips} flips came back silently"
            claimed = "bitflip" in self._capabilities.detects
            return note if claimed else f"{note} (bitflip is not claimed)"
        situations = self._situations.get(clause.id, ())
        if clause.id == "DM-3" and "the tail was cut at a wrong seq" in situations:
            return "cuts the tail at a wrong seq instead of refusing"
        return ""


def _claimed(capabilities: Capabilities) -> frozenset[str]:
    needs = {need for clause in CLAUSES.values() for need in clause.requires}
    return frozenset(need for need in needs if claims(capabilities, need))


class Certificate(msgspec.Struct, frozen=True, kw_only=True):
    """What was proven about a store, what was refuted, and what was not looked at.

    `device_faults`: kind of fault → what a load came to → how many disks; no part of the verdict.
    """

    torntail: str
    target: str
    seed: int
    capabilities: Capabilities
    request: Request
    results: tuple[ClauseResult, ...]
    findings: tuple[Finding, ...] = ()
    counts: Counts = Counts()
    healed: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    limits: tuple[str, ...] = LIMITS
    baseline_error: str | None = None
    harness_errors: tuple[str, ...] = ()
    device_faults: dict[str, dict[str, int]] = {}
    command: str = ""
    python: str = ""
    format: int = 1

    @property
    def verdict(self) -> Verdict:
        """Pass, fail or unknown (VD-1); no verdict where the baseline is broken (VD-2)."""
        if self.baseline_error is not None:
            return "broken baseline"
        if any(result.state == "fail" and result.accepted is None for result in self.results):
            return "fail"
        open_states = ["unknown", "not exercised"]
        if self.harness_errors or any(
            self._is_open(result, open_states) for result in self.results
        ):
            return "unknown"
        if not any(result.state in ("pass", "counted", "fail") for result in self.results):
            # Nothing passes in a void (VD-6).
            return "unknown"
        return "pass"

    def _is_open(self, result: ClauseResult, states: list[str]) -> bool:
        return result.state in states and CLAUSES[result.clause].level in _LEVELS

    @property
    def exit_code(self) -> int:
        """0 pass, 1 violated, 3 unknown, 4 broken baseline."""
        return {"pass": 0, "fail": 1, "unknown": 3, "broken baseline": 4}[self.verdict]

    @property
    def not_claimed(self) -> tuple[str, ...]:
        """What the contract knows and this store does not claim."""
        needs = sorted({need for clause in CLAUSES.values() for need in clause.requires})
        lacking = [need for need in needs if not claims(self.capabilities, need)]
        if self.capabilities.durability != "power":
            lacking.append("durability=power")
        if "bitflip" not in self.capabilities.detects:
            lacking.append("detects=bitflip")
        if self.capabilities.values != "json":
            lacking.append("values=json")
        return tuple(lacking)

    def to_json(self) -> dict[str, Any]:
        """The certificate as JSON values, with its verdict."""
        # Through text, so that what is returned is what a file would hold: lists, not tuples.
        record: dict[str, Any] = json.loads(json.dumps(msgspec.to_builtins(self)))
        record["capabilities"]["detects"] = sorted(self.capabilities.detects)
        return {"verdict": self.verdict, **record, "not_claimed": list(self.not_claimed)}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Certificate:
        """The certificate that JSON values stand for; raises `ValueError` if they are none."""
        if record.get("format") != 1:
            raise ValueError(f"format {record.get('format')!r} is not 1")
        fields = {
            key: value for key, value in record.items() if key not in ("verdict", "not_claimed")
        }
        try:
            return msgspec.convert(fields, cls)
        except msgspec.ValidationError as error:
            raise ValueError(str(error)) from error


def healed_clauses(accepted: Iterable[str], results: Iterable[ClauseResult]) -> tuple[str, ...]:
    """Accepted violations that did not occur any more."""
    states = {result.clause: result.state for result in results}
    return tuple(clause for clause in accepted if states.get(clause) == "pass")


def moot_acceptances(accepted: Iterable[str], results: Iterable[ClauseResult]) -> tuple[str, ...]:
    """A note for each accepted violation of a clause that is not asked of the store any more."""
    found = {result.clause: result for result in results}
    return tuple(
        f"{clause} was accepted as violated and is not applicable now ({found[clause].note})"
        for clause in accepted
        if clause in found and found[clause].state == "not applicable"
    )
