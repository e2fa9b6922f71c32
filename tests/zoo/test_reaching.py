"""What breaks only in long logs, long lines, many sessions or forks is reached, and found."""

from __future__ import annotations

from itertools import islice

import pytest

from tests.zoo import reaching
from torntail import certify
from torntail.drive.target import target_of
from torntail.explore.plans import crash_plan, crash_plans
from torntail.explore.script import Case
from torntail.judge.history import Append, Create
from torntail.session import encode_event


@pytest.mark.parametrize(("target", "clause"), reaching.ZOO.items(), ids=[*reaching.ZOO])
def test_a_store_that_breaks_in_one_plan_is_caught_there(target: str, clause: str) -> None:
    plan = reaching.PLANS[target]
    certificate = certify(target, only=[clause], plan=plan, workers=0, runs=None)
    states = {result.clause: result.state for result in certificate.results}
    assert states == {clause: "fail"}
    assert {finding.case for finding in certificate.findings} == {plan}
    assert certificate.harness_errors == ()


@pytest.mark.parametrize("target", ["jsonl", "tests.zoo.careful:careful"])
@pytest.mark.parametrize("plan", ["a-long-log", "eight-sessions"])
def test_a_store_that_survives_is_not_accused_there(target: str, plan: str) -> None:
    certificate = certify(target, only=["CR-1", "CR-2"], plan=plan, workers=0, runs=None)
    assert certificate.findings == ()
    assert certificate.exit_code == 0


def test_a_call_of_a_plan_that_is_refused_without_a_fault_is_a_finding() -> None:
    target = "tests.zoo.reaching:refuses_a_long_log"
    certificate = certify(
        target, only=["RW-1", "CR-1"], plan="a-long-log", workers=0, runs=None, seed=3
    )
    states = {result.clause: result.state for result in certificate.results}
    assert states == {"RW-1": "fail", "CR-1": "pass"}
    (finding,) = certificate.findings
    assert (finding.clause, finding.model) == ("RW-1", "no fault")
    assert finding.sentence.startswith("append refused with WriterConflict")
    assert finding.command == (
        f"torntail certify {target} --seed 3 --plan a-long-log --only RW-1 --only CR-1"
    )
    assert len(finding.steps) > 20


def test_where_that_was_not_asked_for_nothing_is_proven() -> None:
    target = "tests.zoo.reaching:refuses_a_long_log"
    certificate = certify(target, only=["CR-1"], plan="a-long-log", workers=0, runs=None)
    assert certificate.findings == ()
    (error,) = certificate.harness_errors
    assert error.startswith(
        "crashing: without any fault, plan a-long-log breaks RW-1: append refused"
    )
    assert certificate.exit_code == 3


def test_the_fixed_plans_reach_these_sizes() -> None:
    capabilities = target_of("jsonl").capabilities
    plans = [*islice(crash_plans(0, capabilities), 10)]

    def lines(case: Case) -> list[int]:
        appends = [call for call in case.operations if isinstance(call, Append)]
        return [len(encode_event(event)) for call in appends for event in call.events]

    def headers(case: Case) -> list[Create]:
        return [call for call in case.operations if isinstance(call, Create)]

    assert max(len(lines(plan)) for plan in plans) > 300
    assert max(sum(lines(plan)) for plan in plans) > 150_000
    assert max(max(lines(plan)) for plan in plans) > 100_000
    assert max(len(headers(plan)) for plan in plans) == 8
    assert any(call.header.parent_session for plan in plans for call in headers(plan))


@pytest.mark.parametrize("name", ["a-long-log", "eight-sessions"])
def test_a_large_plan_is_crashed_in_some_of_its_calls(name: str) -> None:
    plan = crash_plan(0, target_of("jsonl").capabilities, name)
    assert len(plan.crashed) == 9
    assert plan.crashed[-1] == len(plan.operations) - 1
    largest = max(
        (len(repr(call.events)), number)
        for number, call in enumerate(plan.operations)
        if isinstance(call, Append)
    )
    assert largest[1] in plan.crashed


@pytest.mark.parametrize("images", [200, 1_000])
def test_no_more_images_are_loaded_than_were_asked_for(images: int) -> None:
    certificate = certify("jsonl", only=["CR"], images=images, workers=0, runs=None)
    assert certificate.counts.distinct_images == images
