"""`contract_suite`: what each state of a clause makes of its test, plain and with two workers."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from tests.plugin.support import FAILED, Project, section
from tests.zoo import reading
from torntail import contract_suite
from torntail.drive.target import TargetError
from torntail.judge.clauses import CLAUSES, UnknownClauseError

WORKERS = pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["plain", "two workers"])

STORES = """\
from torntail import contract_suite

EMPTY = "tests.zoo.reading:empty_batch_for_an_unknown_id_fails"
ONLY = ["RW-5", "RW-6", "CL-1"]

TestRight = contract_suite("tests.zoo.plain:PlainStore", only=ONLY)
TestBroken = contract_suite(EMPTY, name="mine", only=ONLY)
TestTwice = contract_suite(EMPTY, name="twice", only=["RW-5"], seed=2)
"""

CONFTEST = """\
import msgspec
import torntail.plugin.suite as suite

real = suite.certify

def certify(target, **options):
    with open("campaigns.txt", "a") as file:
        print(target.name, options["seed"], ",".join(options["only"]), file=file)
    certificate = real(target, **options)
    if options["seed"] == 2:
        (first,) = certificate.findings
        second = msgspec.structs.replace(first, sentence="it sings\\x1b[2J\\ud800", cause="another")
        certificate = msgspec.structs.replace(certificate, findings=(first, second))
    return certificate

suite.certify = certify
"""

EMPTY = "tests.zoo.reading:empty_batch_for_an_unknown_id_fails"


def names_of(suite: type) -> list[str]:
    return [name for name in vars(suite) if name.startswith("test_")]


def test_a_suite_has_one_test_for_each_clause_of_a_store() -> None:
    expected = [
        f"test_{clause.id.lower().replace('-', '_')}"
        for clause in CLAUSES.values()
        if clause.group not in ("LV", "VD")
    ]
    suite = contract_suite("jsonl")
    assert names_of(suite) == expected
    assert inspect.getdoc(suite.test_rw_5) == (
        "RW-5: An empty batch does nothing, also for an unknown id."
    )
    assert suite.__module__ == __name__


def test_only_leaves_the_other_tests_out() -> None:
    suite = contract_suite("jsonl", only=["DM-2", "CL"])
    assert names_of(suite) == [*(f"test_cl_{number}" for number in range(1, 8)), "test_dm_2"]


@pytest.mark.parametrize(
    ("factory", "told"),
    [
        (None, "contract_suite was given NoneType"),
        ("jsonlx", "did you mean jsonl?"),
        (lambda: None, "cannot be called with one argument"),
    ],
)
def test_what_is_no_store_is_refused_at_once(factory: object, told: str) -> None:
    with pytest.raises(TargetError, match=told.replace("?", r"\?")):
        contract_suite(factory)  # type: ignore[arg-type]


def _needs_more(root: Path, more: str) -> None:
    """No factory."""


def test_a_factory_that_needs_more_is_refused_without_a_further_traceback() -> None:
    with pytest.raises(TargetError) as caught:
        contract_suite(_needs_more)  # type: ignore[arg-type]
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__
    assert len(str(caught.value).splitlines()) == 1


def test_a_clause_that_is_none_is_refused_at_once() -> None:
    factory = reading.empty_batch_for_an_unknown_id_fails
    with pytest.raises(UnknownClauseError, match="did you mean RW-"):
        contract_suite(factory, only=["RW-l"])
    with pytest.raises(UnknownClauseError, match="about torntail itself"):
        contract_suite(factory, accept={"VD-1": "no"})


@WORKERS
def test_a_broken_store_fails_at_its_clause_only(
    project: Project, workers: tuple[str, ...]
) -> None:
    project.write("conftest.py", CONFTEST)
    project.write("test_stores.py", STORES)
    result = project.run("--junitxml=junit.xml", *workers)
    assert result.ret == FAILED
    refused = "append refused with SessionNotFound (session 'a-863133dd' not found), where it has"
    again = "pytest test_stores.py::TestBroken::test_rw_5 --torntail-seed=0"
    failure = section(result.outlines, "TestBroken.test_rw_5")
    assert [line for line in failure if not line.startswith("witness: ")] == [
        f"RW-5 violated: {refused} to succeed",
        "An empty batch does nothing, also for an unknown id.",
        "1. append to 'a-863133dd' no events → SessionNotFound: session 'a-863133dd' not found",
        again,
    ]
    # Complete, in an order that does not depend on which worker was first.
    told = section(result.outlines, "torntail")
    assert [told[0], told[1], *told[3:]] == [
        f"mine: RW-5 violated: {refused} to succeed",
        f"  {again}",
        "twice: RW-5 violated: it sings\\x1b[2J\\ud800",
        "  pytest test_stores.py::TestTwice::test_rw_5 --torntail-seed=2",
    ]
    outcomes = result.parseoutcomes()
    assert outcomes["passed"] == 5
    assert "it sings\\x1b[2J\\ud800" in "\n".join(result.outlines)
    properties = project.properties()
    assert properties["test_stores.TestBroken.test_rw_5"] == {
        "torntail.clause": ["RW-5"],
        "torntail.store": ["mine"],
        "torntail.seed": ["0"],
        "torntail.finding": [f"RW-5 violated: {refused} to succeed"],
        "torntail.command": [again],
    }
    assert properties["test_stores.TestRight.test_cl_1"] == {
        "torntail.clause": ["CL-1"],
        "torntail.store": ["tests.zoo.plain:PlainStore"],
        "torntail.seed": ["0"],
    }
    # Each once in the run, whoever needed it, and with all clauses, whichever were needed.
    campaigns = (project.path / "campaigns.txt").read_text().splitlines()
    assert sorted(campaigns) == [
        "tests.zoo.plain:PlainStore 0 RW-5,RW-6,CL-1",
        f"{EMPTY} 0 RW-5,RW-6,CL-1",
        f"{EMPTY} 2 RW-5",
    ]


def test_the_command_of_a_failure_shows_it_again(project: Project) -> None:
    project.write(
        "inner/test_crash.py",
        "from torntail import contract_suite\n"
        'STORE = "tests.zoo.crashing:renames_before_fsync"\n'
        'TestCrash = contract_suite(STORE, only=["CR-1", "CR-6", "RW-5"], images=5000)\n',
    )
    options = ["--torntail-seed=7", "--torntail-images=100"]
    result = project.run("inner", *options)
    assert result.ret == FAILED
    told = section(result.outlines, "torntail")
    command = " ".join(["  pytest inner/test_crash.py::TestCrash::test_cr_1", *options])
    assert {line.partition(" violated: ")[0] for line in told[:-1]} == {
        "tests.zoo.crashing:renames_before_fsync: CR-1"
    }
    assert told[-1] == command
    again = project.run_command(command.strip())
    assert again.ret == FAILED
    assert section(again.outlines, "torntail") == told


STATES = """\
from torntail import Capabilities, contract_suite
from tests.zoo import strangers
from tests.zoo.plain import PlainStore

class Own:
    def __new__(cls, root):
        return PlainStore(root)
    capabilities = {"durability": "process", "lists": False}

LOCKED = Capabilities(durability="process", writers="one-locked")

async def opened_later(root):
    return PlainStore(root)
opened_later.capabilities = PlainStore.capabilities

TestOwn = contract_suite(Own, only=["RW-5", "RW-9"])
TestHereAlone = contract_suite(lambda root: Own(root), capabilities=LOCKED, only=["MW-1"])
TestAsync = contract_suite(opened_later, only=["RW-6"])
TestNotAsked = contract_suite("memory", only=["CR-1"])
TestNotSeen = contract_suite("tests.zoo.unseen:unseen", only=["CR-1"], level="power", images=50)
TestAccepted = contract_suite(
    "tests.zoo.reading:empty_batch_for_an_unknown_id_fails",
    only=["RW-5", "RW-6"], accept={"RW-5": "known, issue 12"},
)
TestBaseline = contract_suite(strangers.Silent, only=["RW-5"])
TestNoStore = contract_suite(lambda root: None, name="nothing", only=["RW-5"])
"""


def test_what_a_state_makes_of_a_test(project: Project) -> None:
    project.write("test_states.py", STATES)
    result = project.run("-rsxf", "-p", "no:randomly", "--import-mode=importlib")
    lines = section(result.outlines, "short test summary info")
    told = sorted(line for line in lines if "test_states" in line or "SKIPPED" in line)
    seen = "file operations of this store are not seen from inside Python"
    assert [line.partition(" - ")[0] for line in told if line[:5] != "SKIPP"] == [
        "FAILED test_states.py::TestBaseline::test_rw_5",
        "FAILED test_states.py::TestNoStore::test_rw_5",
        "FAILED test_states.py::TestNotSeen::test_cr_1",
        "XFAIL test_states.py::TestAccepted::test_rw_5",
    ]
    skipped = sorted(line.partition(": ")[2] for line in told if line[:5] == "SKIPP")
    assert skipped == [
        "CR-1 not requested: level none",
        "MW-1 not exercised yet: no other process can import test_states:<lambda>",
        "RW-9 not applicable: not claimed: lists",
    ]
    result.assert_outcomes(passed=3, failed=3, skipped=3, xfailed=1)
    assert [line for line in section(result.outlines, "torntail") if "pytest" not in line] == [
        "tests.zoo.strangers:Silent: nothing is proven: broken baseline: load returned NoneType "
        "None, which is no session",
        "nothing: nothing is proven: test_states:<lambda> returned None: return the store it opens",
        f"tests.zoo.unseen:unseen: CR-1 unknown: {seen}: " + seen_of(result, seen),
    ]


def seen_of(result: pytest.RunResult, seen: str) -> str:
    line = next(line for line in result.outlines if line.startswith(f"CR-1 unknown: {seen}"))
    return line.partition(f"{seen}: ")[2]


def test_without_the_plugin_a_suite_is_a_class_of_tests(project: Project) -> None:
    project.write("test_stores.py", STORES)
    result = project.run("-p", "no:torntail", "-k", "TestBroken")
    result.assert_outcomes(passed=2, failed=1, deselected=4)
    failure = section(result.outlines, "TestBroken.test_rw_5")
    assert failure[-1] == "pytest test_stores.py::TestBroken::test_rw_5 -p no:torntail"
    result.stdout.no_fnmatch_line("*= torntail =*")
