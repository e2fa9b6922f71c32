"""What judgements add up to: states, verdict, exit code."""

from __future__ import annotations

from typing import Any

import pytest

from torntail.judge.capabilities import Capabilities
from torntail.judge.clauses import CLAUSES
from torntail.judge.history import NotPossible
from torntail.judge.obligations import OBLIGATIONS, missing_situations
from torntail.judge.oracle import Judgement, Judging
from torntail.judge.verdict import Certificate, ClauseResult, Request, Tally

CLAIMS = Capabilities()


def kept(clause: str) -> Judging:
    situations = tuple(name for need in OBLIGATIONS[clause] for name in need.any_of)
    return Judging((Judgement(clause, True, "", 0, situations),))


def broken(clause: str) -> Judging:
    return Judging((Judgement(clause, False, "it broke", 0),))


def state(clause: str, *judgings: Judging, claims: Capabilities = CLAIMS, **request: Any) -> Any:
    tally = Tally(claims, Request(level="power", only=(clause,), **request))
    tally.plan([clause])
    for judging in judgings:
        tally.add(judging, [clause])
    (result,) = tally.results()
    return result


def certificate(*results: ClauseResult, **fields: Any) -> Certificate:
    fields.setdefault("request", Request(level="power"))
    return Certificate(
        torntail="0", target="x", seed=0, capabilities=CLAIMS, results=results, **fields
    )


def test_every_exercised_clause_has_obligations() -> None:
    groups = {"RW", "CL", "DM", "CR", "IO", "MW"}
    assert set(OBLIGATIONS) == {one.id for one in CLAUSES.values() if one.group in groups}


def test_a_clause_passes_when_it_was_kept_and_nothing_is_owed() -> None:
    assert state("DM-2", kept("DM-2")) == ClauseResult("DM-2", "pass", 1)


def test_flips_are_counted_where_they_are_not_claimed() -> None:
    assert state("DM-7", kept("DM-7")).state == "counted"
    claims = Capabilities(detects=frozenset({"torn", "gap", "bitflip"}))
    assert state("DM-7", kept("DM-7"), claims=claims).state == "pass"


def test_one_violation_fails_whatever_else_was_kept() -> None:
    result = state("DM-2", kept("DM-2"), broken("DM-2"), kept("DM-2"))
    assert result == ClauseResult("DM-2", "fail", 3, "it broke")


def test_without_a_case_it_is_not_exercised() -> None:
    assert state("DM-2").state == "not exercised"
    opaque = Judging(impossible=(("DM-2", NotPossible("opaque", moot=False)),))
    assert state("DM-2", opaque) == ClauseResult("DM-2", "not exercised", 0, "opaque")
    moot = Judging(impossible=(("DM-2", NotPossible("no rows", moot=True)),))
    assert state("DM-2", moot) == ClauseResult("DM-2", "not applicable", 0, "no rows")


def test_an_unmet_obligation_leaves_it_unknown() -> None:
    some = Judging((Judgement("DM-2", True, "", 0, ("a torn tail was dropped",)),))
    result = state("DM-2", some)
    assert result.state == "unknown"
    assert result.note == "never met: a torn tail with whole records was copied"


def test_a_case_that_ended_early_leaves_it_unknown() -> None:
    other = Judgement("RW-1", False, "append failed", 1)
    result = state("DM-2", kept("DM-2"), Judging((other,), other))
    assert result.state == "unknown"
    assert result.note == "a case ended early, RW-1 being violated: append failed"


def test_what_is_not_claimed_is_not_asked() -> None:
    claims = Capabilities(detects=frozenset())
    assert state("DM-2", claims=claims).note == "not claimed: detects=torn"


def test_groups_that_are_not_built_never_pass() -> None:
    assert state("CR-1").state == "not exercised yet"
    tally = Tally(CLAIMS, Request(level="none", only=("CR-1",)))
    assert tally.results() == (ClauseResult("CR-1", "not requested", note="level none"),)


def test_obligations_are_asked_of_those_whom_they_concern() -> None:
    nothing: frozenset[str] = frozenset()
    loads = frozenset({"append", "a load"})
    assert missing_situations("RW-1", loads, claimed=nothing, damage_moot=False) == ()
    claimed = frozenset({"profile=session"})
    assert missing_situations("RW-1", loads, claimed=claimed, damage_moot=False) == (
        "an open turn was closed",
    )
    assert missing_situations("DM-6", nothing, claimed=nothing, damage_moot=True) == ()


COUNTED = ClauseResult("DM-7", "counted", 96)
PASS, FAIL = ClauseResult("RW-1", "pass", 1), ClauseResult("RW-2", "fail", 1, "it broke")
ACCEPTED = ClauseResult("RW-2", "fail", 1, "it broke", "known")
VOID, YET = ClauseResult("RW-3", "not exercised"), ClauseResult("CR-1", "not exercised yet")


@pytest.mark.parametrize(
    ("results", "fields", "verdict", "code"),
    [
        ([PASS], {}, "pass", 0),
        ([PASS, YET], {}, "pass", 0),
        ([PASS, COUNTED], {}, "pass", 0),
        ([PASS, YET], {"request": Request(level="power", explicit_level=True)}, "pass", 0),
        ([PASS, FAIL, VOID], {}, "fail", 1),
        ([PASS, ACCEPTED], {}, "pass", 0),
        ([PASS, VOID], {}, "unknown", 3),
        ([PASS], {"harness_errors": ("the cut removed nothing",)}, "unknown", 3),
        ([YET], {}, "unknown", 3),
        ([], {}, "unknown", 3),
        ([PASS], {"baseline_error": "no"}, "broken baseline", 4),
    ],
)
def test_the_verdict(results: Any, fields: Any, verdict: str, code: int) -> None:
    result = certificate(*results, **fields)
    assert (result.verdict, result.exit_code) == (verdict, code)


def test_a_certificate_survives_json() -> None:
    before = certificate(PASS, ACCEPTED, YET, notes=("half \ud800",), healed=("RW-5",))
    assert Certificate.from_json(before.to_json()) == before
    with pytest.raises(ValueError, match="format 2 is not 1"):
        Certificate.from_json({**before.to_json(), "format": 2})
    with pytest.raises(ValueError, match="missing required field"):
        Certificate.from_json({"format": 1})
