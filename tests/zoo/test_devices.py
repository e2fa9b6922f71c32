"""Device faults are counted; only DM-1, and CR-2 where bitflip is claimed, may come of them."""

from __future__ import annotations

import pytest

from tests.zoo import devices
from torntail import certify
from torntail.crash.devices import DEVICE_FAULTS, fault_name
from torntail.drive.target import target_of
from torntail.explore.crash_campaign import WorkerLoss, crash_campaign
from torntail.judge.verdict import Certificate

CAUGHT = {target: clause for target, clause in devices.ZOO.items() if clause is not None}


def struck(target: str, clause: str, plan: str = "turn-by-turn", **options) -> Certificate:
    """Without crashes, which the level does not ask for."""
    return certify(
        target,
        level="none",
        only=[clause],
        device_faults=True,
        workers=options.pop("workers", 0),
        plan=plan,
        runs=None,
        **options,
    )


def total(certificate: Certificate, outcome: str) -> int:
    return sum(outcomes.get(outcome, 0) for outcomes in certificate.device_faults.values())


@pytest.mark.parametrize(("target", "clause"), CAUGHT.items(), ids=[*CAUGHT])
def test_what_a_device_fault_shows_is_caught(target: str, clause: str) -> None:
    certificate = struck(target, clause)
    findings = [one for one in certificate.findings if one.model == "device fault"]
    assert {finding.clause for finding in findings} == {clause}
    assert certificate.exit_code == 1
    plan = findings[0].case
    assert findings[0].command.endswith(f"--device-faults --plan {plan} --only {clause}")


@pytest.mark.parametrize(
    "target", ["jsonl", *(target for target, clause in devices.ZOO.items() if clause is None)]
)
def test_what_is_only_counted_accuses_nobody(target: str) -> None:
    certificate = struck(target, "RW-5")
    assert (certificate.verdict, certificate.findings) == ("pass", ())
    assert certificate.device_faults.keys() == {fault_name(kind) for kind in DEVICE_FAULTS}
    assert total(certificate, "repaired") > 5
    assert total(certificate, "refused") > 5
    silent = total(certificate, "silently changed")
    assert (silent == 0) if target.endswith("keeps_a_checksum") else (silent > 2)
    assert certificate.to_json()["device_faults"] == certificate.device_faults
    assert Certificate.from_json(certificate.to_json()) == certificate


def test_claiming_bitflip_and_keeping_it_is_not_accused() -> None:
    certificate = struck("tests.zoo.devices:keeps_a_checksum", "CR-2")
    assert certificate.findings == ()


def test_a_plan_is_struck_again_as_its_command_says() -> None:
    target = "tests.zoo.devices:claims_bitflip_without_a_checksum"
    here = struck(target, "CR-2")
    worker = struck(target, "CR-2", workers=1)
    assert here.findings == worker.findings
    assert {finding.case for finding in here.findings} == {"turn-by-turn"}
    assert here.device_faults == worker.device_faults


def test_a_store_that_hangs_over_damage_is_a_finding_and_ends() -> None:
    target = target_of("tests.zoo.devices:hangs_over_damage")
    result = crash_campaign(
        target, (), seed=0, images=0, plan="first-turn", workers=1, hang_seconds=3, device_plans=1
    )
    reason = "a call had not returned after 3 s"
    assert result.losses == [WorkerLoss("first-turn", reason, devices=True)]


def test_no_faults_are_tried_unasked_and_none_where_nothing_is_durable() -> None:
    assert certify("jsonl", only=["DM-8"], runs=None).device_faults == {}
    assert struck("memory", "RW-5").device_faults == {}
