"""`torntail certify --exec`: a store of any language gets its certificate."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.blackbox.support import DRIVERS, example_in_c, needs, needs_tracing
from torntail import certify
from torntail.cli import main
from torntail.judge.verdict import Certificate

HOSTILE = Path(__file__).with_name("hostile_drivers.py")


def states(certificate: Certificate) -> dict[str, str]:
    return {result.clause: result.state for result in certificate.results}


def serve(name: str) -> str:
    return f"exec:{sys.executable} -m torntail.drive.serve {name}"


@needs_tracing
def test_the_c_example_keeps_what_it_claims(tmp_path):
    binary = example_in_c(tmp_path)
    certificate = certify(f"exec:{binary}", images=400, workers=1, runs=None)
    assert certificate.findings == ()
    assert certificate.harness_errors == ()
    found = states(certificate)
    passed = {"RW-1", "RW-2", "RW-8", "RW-10", "RW-12", "CR-1", "CR-2", "CR-3", "CR-4", "CR-5"}
    assert {clause: found[clause] for clause in passed} == dict.fromkeys(passed, "pass")
    notes = {one.clause: one.note for one in certificate.results if one.state == "not applicable"}
    assert notes["RW-3"] == "the driver protocol carries JSON only"


@needs("node")
def test_the_node_example_keeps_what_it_claims_without_crashes():
    command = f"exec:node {DRIVERS / 'node' / 'example.mjs'}"
    certificate = certify(command, level="none", runs=None)
    assert certificate.verdict == "pass"


@needs_tracing
def test_a_store_that_syncs_too_little_is_found_out_and_its_command_shows_it_again():
    certificate = certify(
        serve("tests.zoo.crashing:syncs_turn_ends_only"),
        only=["CR-1"],
        images=600,
        workers=1,
        runs=None,
    )
    assert states(certificate)["CR-1"] == "fail"
    words = shlex.split(certificate.findings[0].command)
    assert words[:3] == ["torntail", "certify", "--exec"]
    assert words[3] == serve("tests.zoo.crashing:syncs_turn_ends_only").removeprefix("exec:")


@pytest.mark.parametrize("name", ["rubbish", "exit_in_the_middle", "unknown_kind"])
def test_a_driver_that_breaks_the_rules_fails_at_the_baseline(name):
    command = f"exec:{sys.executable} -I -S {HOSTILE} {name}"
    certificate = certify(command, level="none", runs=None)
    assert certificate.verdict == "broken baseline"
    assert certificate.baseline_error is not None
    assert certificate.exit_code == 4


@pytest.mark.parametrize("arguments", [[], ["jsonl", "--exec", "true"]])
def test_either_a_target_or_a_command_is_named(arguments):
    result = CliRunner().invoke(main, ["certify", *arguments])
    assert result.exit_code == 2
    assert "name either TARGET or --exec COMMAND" in result.output


def test_a_command_that_is_no_driver_is_a_usage_error():
    result = CliRunner().invoke(main, ["certify", "--exec", "/nowhere/driver"])
    assert result.exit_code == 2
    assert "/nowhere/driver cannot be run" in result.output


def test_fuzz_does_not_speak_to_drivers_yet():
    result = CliRunner().invoke(main, ["fuzz", serve("jsonl"), "--max-examples", "1"])
    assert result.exit_code == 2
    assert "fuzz does not speak to drivers yet" in result.output
