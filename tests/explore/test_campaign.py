"""The campaign as a library: what it takes, what it keeps, what it never does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.zoo import strangers
from tests.zoo.plain import PlainStore, factory
from torntail import Capabilities, certify
from torntail.drive.target import TargetError
from torntail.explore import room
from torntail.explore.campaign import CampaignEnded, CampaignStarted, CaseEnded
from torntail.judge.clauses import UnknownClauseError
from torntail.judge.verdict import Certificate


def _states(certificate: Certificate) -> dict[str, str]:
    return {result.clause: result.state for result in certificate.results}


def test_the_same_seed_makes_the_same_certificate() -> None:
    first, second = (certify("jsonl", only=["RW-1", "DM-2"], seed=9, runs=None) for _ in range(2))
    assert first == second
    assert certify("jsonl", only=["RW-1", "DM-2"], seed=10, runs=None) != first


def test_progress_is_one_stream_of_values() -> None:
    events: list[Any] = []
    certificate = certify("memory", only=["RW-5", "RW-6"], progress=events.append, runs=None)
    assert events[0] == CampaignStarted("memory", 2)
    assert [type(event) for event in events[1:]] == [CaseEnded, CaseEnded, CampaignEnded]
    assert events[-1].certificate == certificate


def test_only_selects_clauses_and_groups() -> None:
    certificate = certify("memory", only=["RW-1", "CL"], runs=None)
    assert list(_states(certificate)) == ["RW-1", *(f"CL-{number}" for number in range(1, 8))]


def test_a_clause_that_does_not_exist_is_refused() -> None:
    with pytest.raises(UnknownClauseError):
        certify("memory", only=["RW-99"])
    with pytest.raises(UnknownClauseError, match="did you mean RW-"):
        certify("memory", only=["RW-l"])
    for selector in ("VD-1", "VD"):
        with pytest.raises(UnknownClauseError, match="is about torntail itself"):
            certify("memory", only=[selector])


def test_a_level_above_the_claim_is_said() -> None:
    certificate = certify("memory", only=["RW-5"], level="power", runs=None)
    assert certificate.notes == ("the level power is above what is claimed (durability none)",)


def test_what_is_not_built_is_named_and_never_passed() -> None:
    for level in (None, "none"):
        certificate = certify("memory", only=["LV-1", "LV-4", "RW-5"], level=level, runs=None)
        assert certificate.verdict == "pass"
        states = _states(certificate)
        assert {states[clause] for clause in states if clause != "RW-5"} == {"not exercised yet"}


def test_the_budget_leaves_clauses_unexercised() -> None:
    certificate = certify("memory", only=["RW-1", "RW-5"], budget=1e-9, runs=None)
    assert _states(certificate) == {"RW-1": "not exercised", "RW-5": "not exercised"}
    assert certificate.exit_code == 3


def test_accepted_violations_do_not_fail_and_healed_ones_are_named() -> None:
    target = "tests.zoo.reading:empty_batch_for_an_unknown_id_fails"
    certificate = certify(
        target, only=["RW-5", "RW-6"], accept={"RW-5": "known", "RW-6": "was known"}, runs=None
    )
    assert _states(certificate) == {"RW-5": "fail", "RW-6": "pass"}
    assert certificate.verdict == "pass"
    assert certificate.healed == ("RW-6",)


def test_a_broken_baseline_is_no_finding() -> None:
    certificate = certify(strangers.Silent, runs=None)
    assert (certificate.verdict, certificate.exit_code) == ("broken baseline", 4)
    assert certificate.baseline_error == "load returned NoneType None, which is no session"
    assert certificate.findings == ()


def test_a_witness_is_kept_where_git_does_not_see_it(tmp_path: Path) -> None:
    runs = tmp_path / ".torntail" / "runs"
    certificate = certify("tests.zoo.damage:keeps_no_copy", only=["DM-2"], runs=runs)
    witness = Path(certificate.findings[0].witness or "")
    assert (tmp_path / ".torntail" / ".gitignore").read_text() == "*\n"
    assert list(witness.glob("storage/*/*.jsonl"))
    history = json.loads((witness / "history.json").read_text())
    assert [step["operation"]["operation"] for step in history][-2:] == ["damage", "load"]
    assert certificate.findings[0].sentence in (witness / "steps.txt").read_text()


def test_a_witness_shows_what_was_found_and_nothing_else() -> None:
    target = strangers.shrinks_to_something_else
    certificate = certify(target, only=["RW-14"], runs=None)
    (result,) = certificate.results
    found = certificate.findings[0]
    assert found.sentence == result.note == "load returned, where it has to refuse (version)"
    # Without these two steps, load would have to say "not found", which is another promise.
    assert any("append" in step for step in found.steps)
    assert any("the header's version made" in step for step in found.steps)


def test_accepted_and_not_applicable_now_is_said() -> None:
    claims = Capabilities(durability="process", lists=False)
    certificate = certify(
        factory(PlainStore),
        capabilities=claims,
        only=["RW-5", "RW-9"],
        accept={"RW-9": "known", "RW-1": "not looked at"},
        runs=None,
    )
    said = "RW-9 was accepted as violated and is not applicable now (not claimed: lists)"
    assert said in certificate.notes
    assert certificate.healed == ()


def test_flips_that_are_not_claimed_are_counted() -> None:
    certificate = certify("jsonl", only=["DM-7"], runs=None)
    assert _states(certificate) == {"DM-7": "counted"}
    assert certificate.results[0].note.endswith("came back silently (bitflip is not claimed)")
    assert certificate.verdict == "pass"
    assert certificate.to_json()["results"][0]["state"] == "counted"


def test_nothing_is_kept_without_findings(tmp_path: Path) -> None:
    certify("memory", only=["RW-5"], runs=tmp_path / ".torntail" / "runs")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("stop", [KeyboardInterrupt, RuntimeError])
def test_the_scratch_directory_is_removed_in_any_case(
    stop: type[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "_MEMORY", tmp_path)

    def interrupt(event: Any) -> None:
        if isinstance(event, CaseEnded):
            assert list(tmp_path.iterdir())
            raise stop

    with pytest.raises(stop):
        certify("jsonl", only=["RW-1"], progress=interrupt, runs=None)
    assert list(tmp_path.iterdir()) == []


# --- strangers ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "target", [strangers.AsyncWireStore, strangers.opened_by_a_coroutine, strangers.opaque_events]
)
def test_a_store_of_another_make_is_understood(target: Any) -> None:
    certificate = certify(target, only=["RW-1", "RW-3", "RW-4", "RW-8", "RW-17", "DM-5"], runs=None)
    assert certificate.findings == ()
    assert certificate.verdict == "pass"


def test_storage_nobody_can_read_is_not_certified() -> None:
    certificate = certify(strangers.compressed, only=["DM-1", "DM-2", "DM-5"], runs=None)
    assert certificate.findings == ()
    assert _states(certificate) == {"DM-1": "not exercised", "DM-2": "unknown", "DM-5": "unknown"}
    assert certificate.results[0].note == "no file or table was found with one record a line"


def test_a_hanging_call_is_a_finding() -> None:
    certificate = certify(strangers.hangs, only=["RW-8"], call_timeout=0.5, runs=None)
    assert [finding.sentence for finding in certificate.findings] == [
        "load had not returned after 0.5 s"
    ]


@pytest.mark.parametrize(
    ("target", "name"),
    [(strangers.exits, "SystemExit"), (strangers.interrupts, "KeyboardInterrupt")],
)
def test_a_store_that_ends_the_interpreter_is_a_finding(target: Any, name: str) -> None:
    certificate = certify(target, only=["RW-8"], runs=None)
    assert [finding.sentence for finding in certificate.findings] == [
        f"load raised {name}, which ends the interpreter"
    ]


@pytest.mark.parametrize(
    ("target", "what"),
    [
        (strangers.returns_none, "returned None: return the store it opens"),
        (strangers.raises, "raised PermissionError when called with an empty directory"),
        (strangers.takes_nothing, "cannot be called with one argument"),
        (strangers.NoInspect, "has no inspect: return an object with these calls, or claim"),
        (strangers.NoInspect, "claims are read from the factory's attribute `capabilities`"),
    ],
)
def test_a_factory_that_leads_to_no_store_is_the_callers_mistake(target: Any, what: str) -> None:
    with pytest.raises(TargetError, match=what) as caught:
        certify(target, only=["RW-5"])
    assert "\n" not in str(caught.value)


def test_capabilities_given_go_before_those_of_the_factory() -> None:
    claims = Capabilities(durability="process", lists=False)
    certificate = certify(factory(PlainStore), capabilities=claims, only=["RW-9"], runs=None)
    assert certificate.capabilities == claims
    assert _states(certificate) == {"RW-9": "not applicable"}


def test_a_fault_in_the_preparation_is_no_pass() -> None:
    """RW-2 is never reached when every append fails; it must not pass for lack of trying."""

    class Late(PlainStore):
        def check_sequence(self, session_id: str, batch: Any, next_seq: int) -> None:
            if len(batch) == 3:
                raise RuntimeError("three is too many")
            super().check_sequence(session_id, batch, next_seq)

    certificate = certify(factory(Late), only=["RW-17"], runs=None)
    assert certificate.verdict != "pass"
