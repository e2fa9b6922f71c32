"""The processes of several writers: which there are, how they end, and what is said without."""

from __future__ import annotations

import os
import shlex
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from tests.zoo.locked import LockedStore
from torntail import certify
from torntail.drive.onlooker import HarnessError, Onlooker
from torntail.drive.target import target_of
from torntail.explore.campaign import Interrupted
from torntail.explore.progress import CaseEnded
from torntail.explore.writers_plans import writers_plans
from torntail.explore.writers_run import WriterProcesses
from torntail.judge.capabilities import Capabilities
from torntail.judge.history import Append, Create, Refused
from torntail.judge.verdict import Certificate
from torntail.judge.writer_steps import Ask, Signal
from torntail.session import SessionEvent, SessionHeader

ALONE = "tests.zoo.locked:alone"
CREATED = Ask("A", Create(header=SessionHeader("a", 0)))


def states(certificate: Certificate) -> dict[str, tuple[str, str]]:
    return {one.clause: (one.state, one.note) for one in certificate.results}


def processes(word: str) -> list[str]:
    """The command lines of running processes that hold a word."""
    found = []
    for name in os.listdir("/proc"):
        try:
            line = Path(f"/proc/{name}/cmdline").read_bytes().decode("utf-8", "replace")
        except OSError:
            continue
        if word in line and "pytest" not in line:
            found.append(line)
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_no_process_is_left_behind_not_even_a_forked_child() -> None:
    alive: list[int] = []

    def look(event: object) -> None:
        if isinstance(event, CaseEnded):
            alive.append(len(processes(ALONE)))

    certificate = certify(ALONE, only=["MW-2"], runs=None, progress=look)
    assert certificate.verdict == "pass"
    assert alive
    assert all(alive)
    assert processes(ALONE) == []

    def interrupt(event: object) -> None:
        if isinstance(event, CaseEnded):
            raise KeyboardInterrupt

    with pytest.raises(Interrupted):
        certify(ALONE, only=["MW-2"], runs=None, progress=interrupt)
    assert processes(ALONE) == []


def test_a_store_that_no_other_process_can_import_is_not_exercised() -> None:
    def closure(root: Path) -> LockedStore:
        return LockedStore(root)

    closure.capabilities = Capabilities(durability="process")  # type: ignore[attr-defined]
    name = f"{__name__}:{closure.__qualname__}"
    reason = f"no other process can import {name}"
    certificate = certify(closure, only=["MW-1"], runs=None)
    assert states(certificate) == {"MW-1": ("not exercised yet", reason)}
    asked = certify(closure, only=["MW-1"], level="process", runs=None)
    assert states(asked) == {"MW-1": ("unknown", reason)}
    assert asked.exit_code == 3


def test_a_module_that_is_here_alone_is_not_exercised(monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = types.ModuleType("made_up_here")
    module.open_store = lambda root: LockedStore(root)
    module.open_store.__module__ = module.__name__
    module.open_store.__qualname__ = "open_store"
    module.open_store.capabilities = Capabilities(durability="process")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    certificate = certify(module.open_store, only=["MW-4"], runs=None)
    state, note = states(certificate)["MW-4"]
    assert state == "not exercised yet"
    assert note.startswith("no other process can serve made_up_here:open_store: there is no module")
    assert certificate.harness_errors == ()


class Opener:
    """A factory that is an object: its name is that of its class, which opens nothing."""

    capabilities = Capabilities(durability="process")

    def __call__(self, root: Path) -> LockedStore:
        return LockedStore(root)


def test_a_factory_that_is_an_object_has_no_name() -> None:
    certificate = certify(Opener(), only=["MW-2"], runs=None)
    state, note = states(certificate)["MW-2"]
    assert (state, note.partition(" import ")[0]) == ("not exercised yet", "no other process can")


def test_a_store_without_durability_is_not_shared() -> None:
    certificate = certify("memory", only=["MW-1"], level="process", runs=None)
    reason = "a store without durability is not shared by processes"
    assert states(certificate) == {"MW-1": ("not applicable", reason)}


def test_each_writer_is_a_driver_of_its_own() -> None:
    serve = f"exec:{shlex.join([sys.executable, '-m', 'torntail.drive.serve'])}"
    certificate = certify(f"{serve} tests.zoo.locked:locked", only=["MW"], runs=None)
    assert certificate.findings == ()
    assert certificate.harness_errors == ()
    assert {name: state for name, (state, _) in states(certificate).items()} == {
        **{f"MW-{number}": "pass" for number in range(1, 5)},
        "MW-5": "not applicable",
    }
    broken = f"{serve} tests.zoo.writers:a_lock_file_is_left_behind"
    certificate = certify(broken, only=["MW-2"], runs=None)
    assert states(certificate)["MW-2"][0] == "fail"
    words = shlex.split(certificate.findings[0].command)
    assert words[:4] == ["torntail", "certify", "--exec", broken.removeprefix("exec:")]


def test_the_same_seed_makes_the_same_histories() -> None:
    claims = Capabilities()
    assert writers_plans(3, claims) == writers_plans(3, claims)
    assert writers_plans(3, claims) != writers_plans(4, claims)
    names = [plan.name for plan in writers_plans(0, claims)]
    assert len(names) == len(set(names))
    assert {plan.clause for plan in writers_plans(0, Capabilities(writers="many"))} == {"MW-5"}
    assert writers_plans(0, Capabilities(writers="one-unchecked")) == []


def test_a_process_that_was_killed_says_nothing_more(tmp_path: Path) -> None:
    event = SessionEvent("note", 0, 0, None)
    late = Ask("A", Append(session="a", events=(event,)))
    target = target_of("tests.zoo.locked:locked")
    with Onlooker(tmp_path) as onlooker, WriterProcesses(target, None, onlooker, 30.0) as crew:
        history = crew.run([CREATED, Signal("A", "kill"), late], tmp_path / "one")
        outcome = history[-1].outcome
        assert isinstance(outcome, Refused)
        assert outcome.kind == "exit"
        # The next history begins with another process.
        assert crew.run([CREATED], tmp_path / "two")[0].outcome == history[0].outcome


def test_a_fork_that_does_not_happen_proves_nothing(tmp_path: Path) -> None:
    serve = shlex.join([sys.executable, "-m", "torntail.drive.serve", "jsonl"])
    target = target_of(f"exec:{serve}")
    with (
        Onlooker(tmp_path) as onlooker,
        WriterProcesses(target, None, onlooker, 30.0) as crew,
        pytest.raises(HarnessError, match="did not fork"),
    ):
        crew.run([CREATED, Signal("A", "fork")], tmp_path / "one")
