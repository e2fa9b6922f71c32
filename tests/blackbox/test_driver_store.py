"""Stores behind drivers give the same outcomes as the same stores called in Python."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import pytest

from tests.blackbox.support import DRIVERS, example_in_c, needs
from torntail.drive.child_store import ChildStore, Driver, ask_store
from torntail.drive.conformance import check_driver
from torntail.drive.protocol import NotCarried
from torntail.drive.python_store import PythonStore
from torntail.drive.target import TargetError, target_of
from torntail.judge.history import LoadedSession, Refused, RepairFacts, Returned
from torntail.session import SessionEvent, SessionHeader

SERVE = [sys.executable, "-m", "torntail.drive.serve"]
TIME = 1_700_000_000_000
SECONDS = 120.0

ODD_VALUES: dict[str, Any] = {
    "halves": ["\ud800", "a\udc00b", "\ud83d\ude00"],
    "separators": "\u2028\u2029\u0085\x00\x1c",
    "big": [2**53, 2**64, -(10**4300 - 1)],
    "zeros": [0.0, -0.0, 5e-324, 1e300],
    "\ud801 key": {"__proto__": 1, "": None},
}


def header(session: str = "s", **more: Any) -> SessionHeader:
    return SessionHeader(session, TIME, cwd="/work", **more)


def note(seq: int, **data: Any) -> SessionEvent:
    return SessionEvent("note", seq, TIME, data)


def nested(levels: int) -> Any:
    value: Any = []
    for _ in range(levels - 1):
        value = [value]
    return value


@pytest.fixture(scope="module")
def jsonl():
    driver = Driver([*SERVE, "jsonl"], seconds=SECONDS)
    yield driver
    driver.close()


def test_the_outcomes_are_those_of_the_object(jsonl, tmp_path):
    target = target_of("jsonl")

    def outcomes(store: PythonStore | ChildStore) -> list[Any]:
        given = [
            store.opened,
            store.create(header()),
            store.create(header()),
            store.append("s", []),
            store.append("s", [note(0, **ODD_VALUES), note(1, deep=nested(197))]),
            store.append("s", [note(5)]),
            store.append("t", [note(0)]),
            store.load("s"),
            store.load("nobody"),
            store.inspect("s"),
            store.create(header("\ud800/..", extra={"further": [1]})),
            store.append("\ud800/..", [SessionEvent("turn/start", 0, TIME, {"turn": 1})]),
            store.load("\ud800/.."),
            store.list(),
            store.close(),
            store.close(),
            store.load("s"),
        ]
        store.end()
        return given

    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    expected = outcomes(target.open(here, timeout=SECONDS))
    assert outcomes(ChildStore(jsonl, there, timeout=SECONDS)) == expected
    assert [outcome for outcome in expected if isinstance(outcome, Refused)] != []


def test_what_a_store_has_to_refuse_reaches_it(jsonl, tmp_path):
    store = ChildStore(jsonl, tmp_path, timeout=SECONDS)
    store.create(header())
    wrong = [
        SessionEvent("", 0, TIME, {}),
        SessionEvent("note", -1, TIME, {}),
        SessionEvent("note", True, TIME, {}),
        SessionEvent("note", 0, "now", {}),  # type: ignore[arg-type]
        note(0, deep=nested(260)),
    ]
    kinds = [getattr(store.append("s", [event]), "kind", "returned") for event in wrong]
    assert kinds == ["not_serializable"] * 5
    assert store.load("s").kind == "not_found"  # type: ignore[union-attr]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), b"bytes", {1}, {1: 2}, object()])
def test_what_json_has_no_words_for_is_not_sent(jsonl, tmp_path, value):
    store = ChildStore(jsonl, tmp_path, timeout=SECONDS)
    with pytest.raises(NotCarried):
        store.append("s", [note(0, value=value)])
    assert store.close() == Returned()


def test_calls_together_are_sent_together_and_each_has_its_answer(jsonl, tmp_path):
    store = ChildStore(jsonl, tmp_path, timeout=SECONDS)
    store.create(header())
    calls: list[Callable[[], Any]] = [
        functools.partial(store.append, "s", [note(0)]),
        functools.partial(store.append, "s", [note(1)]),
        functools.partial(store.load, "nobody"),
        functools.partial(store.load, "s"),
        Returned,
    ]
    first, second, unknown, loaded, own = store.together(calls)
    assert (first, second, own) == (Returned(), Returned(), Returned())
    assert isinstance(unknown, Refused)
    assert isinstance(loaded, Returned)
    assert loaded.session is not None
    assert loaded.session.events == (note(0), note(1))


def test_one_process_serves_many_roots(jsonl, tmp_path):
    one, other = tmp_path / "one", tmp_path / "other"
    one.mkdir()
    other.mkdir()
    started = jsonl.started
    for root in (one, other):
        given = ask_store(
            jsonl,
            str(root),
            [
                ("create", {"header": header()}),
                ("append", {"session": "s", "events": [note(0, root=root.name)]}),
                ("load", {"session": "s"}),
            ],
            SECONDS,
        )
        expected = LoadedSession(header(), (note(0, root=root.name),), RepairFacts())
        assert given == [Returned(), Returned(), Returned(session=expected)]
    assert jsonl.started == started


def test_a_long_log_passes_both_ways(jsonl, tmp_path):
    store = ChildStore(jsonl, tmp_path, timeout=SECONDS)
    store.create(header())
    long = note(0, text="x" * 5_000_000)
    assert store.append("s", [long]) == Returned()
    loaded = store.load("s")
    assert isinstance(loaded, Returned)
    assert loaded.session is not None
    assert loaded.session.events == (long,)


def test_what_a_python_store_prints_is_no_answer(tmp_path):
    (tmp_path / "loud.py").write_text(
        "from torntail.stores.memory import MemoryStore\n"
        "class Loud(MemoryStore):\n"
        "    def load(self, session_id):\n"
        "        print('loading', flush=True)\n"
        "        return super().load(session_id)\n"
        "def open_store(root):\n"
        "    return Loud()\n"
    )
    driver = Driver([*SERVE, "loud:open_store"], directory=tmp_path, seconds=SECONDS)
    store = ChildStore(driver, tmp_path, timeout=SECONDS)
    outcome = store.load("s")
    assert isinstance(outcome, Refused)
    assert outcome.kind == "not_found"
    driver.close()


def test_a_python_store_that_exits_ends_its_driver(tmp_path):
    (tmp_path / "quitter.py").write_text(
        "from torntail.stores.memory import MemoryStore\n"
        "class Quitter(MemoryStore):\n"
        "    def load(self, session_id):\n"
        "        raise SystemExit(0)\n"
        "def open_store(root):\n"
        "    return Quitter()\n"
    )
    driver = Driver([*SERVE, "quitter:open_store"], directory=tmp_path, seconds=SECONDS)
    store = ChildStore(driver, tmp_path, timeout=SECONDS)
    outcome = store.load("s")
    assert isinstance(outcome, Refused)
    assert outcome.kind == "exit"
    assert "exit code 70" in outcome.text
    driver.close()


# --- targets --------------------------------------------------------------------------------------


def test_a_command_is_a_target_with_the_claims_of_its_hello():
    command = f"{sys.executable} -m torntail.drive.serve sqlite"
    target = target_of(f"exec:{command}", durability="process")
    assert target.driver is not None
    expected = target_of("sqlite").capabilities
    assert target.capabilities.atomic_batch
    assert target.capabilities.durability == "process"
    assert target.capabilities.detects == expected.detects
    assert target.arguments == ("--exec", command)
    assert target_of("sqlite").arguments == ("sqlite",)
    target.driver.close()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("exec:", "--exec needs a command"),
        ("exec:'", "is no command: No closing quotation"),
        ("exec:/nowhere/driver", "/nowhere/driver cannot be run: No such file or directory"),
        ("exec:true", "true does not answer hello: "),
    ],
)
def test_a_command_that_is_no_driver_is_a_mistake_of_the_caller(name, text):
    with pytest.raises(TargetError) as raised:
        target_of(name)
    assert text in str(raised.value)


# --- drivers that are shown -----------------------------------------------------------------------


def broken_rules(command: list[str]) -> list[str]:
    return [
        f"{rule}: {problem}" for rule, problem in check_driver(command, seconds=SECONDS) if problem
    ]


def test_the_python_driver_keeps_the_rules():
    assert broken_rules([*SERVE, "sqlite"]) == []


@needs("node")
def test_the_node_driver_keeps_the_rules():
    assert broken_rules(["node", str(DRIVERS / "node" / "example.mjs")]) == []


def test_the_c_driver_keeps_the_rules_and_is_short(tmp_path):
    assert broken_rules([example_in_c(tmp_path)]) == []
    assert len((DRIVERS / "c" / "example.c").read_text().splitlines()) < 150
