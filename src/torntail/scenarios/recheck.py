"""Judging a recorded run again, without running its store.

A run keeps what was asked and what came back: the history of a plan (`history.json`), or what was
owed and what came of a crashed disk (`crash.json`). Decides whether the recorded finding shows
again by today's judge, and what else does. Does not decide what a violation is (`judge`).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import msgspec

from torntail.judge.capabilities import Capabilities
from torntail.judge.evidence import Evidence
from torntail.judge.history import Damage, History, NotPossible
from torntail.judge.oracle import judge
from torntail.scenarios.format import RecordedFinding
from torntail.scenarios.outcome import ReplayFinding, cause_of

__all__ = ["NoRun", "Rechecked", "keep_crash_evidence", "recheck", "unrecorded"]

_MAXIMUM_BYTES: Final = 64 << 20


class NoRun(ValueError):
    """A directory that holds no run that can be judged; the text says why and what to do."""


class Rechecked(msgspec.Struct, frozen=True, kw_only=True):
    """What a run came to: the recorded finding if there is one, and the findings of today.

    `shows`: the recorded one is among these.
    """

    directory: str
    recorded: RecordedFinding | None
    findings: tuple[ReplayFinding, ...]
    shows: bool
    unknown: str = ""


class _KeptCrash(msgspec.Struct, frozen=True, kw_only=True):
    """What `crash.json` says of a finding, as far as it is judged again."""

    clause: str
    sentence: str
    session: str
    evidence: Evidence | None = None


def keep_crash_evidence(directory: Path, evidence: Evidence, finding: ReplayFinding) -> None:
    """Writes a `crash.json` that can be judged again."""
    kept = _KeptCrash(
        clause=finding.clause,
        sentence=finding.sentence,
        session=finding.session,
        evidence=evidence,
    )
    directory.mkdir(parents=True, exist_ok=True)
    text = json.dumps(msgspec.to_builtins(kept), indent=1)
    (directory / "crash.json").write_text(text + "\n", encoding="ascii")


def recheck(directory: Path, capabilities: Capabilities | None = None) -> list[Rechecked]:
    """Judges a run again, and each run below `directory`; raises `NoRun`.

    `capabilities` are what the store claims, for a run that does not say it.
    """
    if not directory.is_dir():
        raise NoRun(f"{directory} is no directory: name a run, as in .torntail/runs/<id>")
    runs = [
        found
        for found in (directory, *sorted(directory.glob("*/")))
        if (found / "history.json").is_file() or (found / "crash.json").is_file()
    ]
    if not runs:
        raise NoRun(f"{directory} holds neither history.json nor crash.json: name a run")
    return [_recheck(run, capabilities) for run in runs]


def unrecorded(directory: Path) -> list[Path]:
    """The findings of a run of which only the steps were kept: nothing that can be judged again."""
    return [
        found
        for found in sorted(directory.glob("*/"))
        if (found / "steps.txt").is_file()
        and not (found / "history.json").is_file()
        and not (found / "crash.json").is_file()
    ]


def _recheck(directory: Path, capabilities: Capabilities | None) -> Rechecked:
    crash = directory / "crash.json"
    if crash.is_file():
        kept: _KeptCrash = _read(crash, _KeptCrash)
        recorded = RecordedFinding(
            clause=kept.clause,
            sentence=kept.sentence,
            cause=cause_of(kept.clause, kept.sentence),
            session=kept.session,
        )
        if kept.evidence is None:
            return _rechecked(directory, recorded, [], "the store's answers were not kept")
        breaches = kept.evidence.breaches()
        found = [_finding(one.clause, one.sentence, one.session) for one in breaches]
        return _rechecked(directory, recorded, found)
    claims = _claims(directory) or capabilities
    if claims is None:
        raise NoRun(f"{directory} does not say what the store claims: name it with --store")
    history: History = _read(directory / "history.json", History)
    judging = judge(history, claims)
    findings = [_finding(one.clause, one.sentence) for one in judging.judgements if not one.passed]
    impossible = any(
        isinstance(one.operation, Damage) and isinstance(one.outcome, NotPossible)
        for one in history
    )
    unknown = judging.harness_error or ("a damage was not possible" if impossible else "")
    return _rechecked(directory, _recorded(directory), findings, unknown)


def _finding(clause: str, sentence: str, session: str = "") -> ReplayFinding:
    return ReplayFinding(
        clause=clause, sentence=sentence, cause=cause_of(clause, sentence), session=session
    )


def _rechecked(
    directory: Path,
    recorded: RecordedFinding | None,
    findings: list[ReplayFinding],
    unknown: str = "",
) -> Rechecked:
    causes = {(one.clause, one.cause) for one in findings}
    return Rechecked(
        directory=str(directory),
        recorded=recorded,
        findings=tuple(findings),
        shows=recorded is not None and (recorded.clause, recorded.cause) in causes,
        unknown=unknown,
    )


def _read(path: Path, kind: Any) -> Any:
    try:
        if path.stat().st_size > _MAXIMUM_BYTES:
            raise NoRun(f"{path} is longer than {_MAXIMUM_BYTES} bytes")
        return msgspec.convert(json.loads(path.read_bytes()), kind)
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise NoRun(f"{path} is no record of a run: {error}") from error


def _claims(directory: Path) -> Capabilities | None:
    path = directory / "claims.json"
    claims: Capabilities | None = _read(path, Capabilities) if path.is_file() else None
    return claims


def _recorded(directory: Path) -> RecordedFinding | None:
    """The finding a campaign's witness is about: its folder is called by the clause."""
    _, _, clause_id = directory.name.partition("-")
    steps = directory / "steps.txt"
    if not clause_id or not steps.is_file():
        return None
    lines = steps.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    sentence = lines[-1].removesuffix(" (not every time)") if lines else ""
    return RecordedFinding(clause=clause_id, sentence=sentence, cause=cause_of(clause_id, sentence))
