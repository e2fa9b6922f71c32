"""The examples of docs/live.md do what the page says."""

from __future__ import annotations

import ast
import asyncio
import importlib
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.runtime import coordinator
from torntail.explore.cases_lv import LIVE_CASES
from torntail.stores.jsonl import JsonlStore
from torntail.stores.memory import MemoryStore

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> ModuleType:
    monkeypatch.syspath_prepend(EXAMPLES)
    return importlib.import_module(request.param)


@pytest.mark.parametrize("example", ["chat_agent"], indirect=True)
def test_the_chat_goes_on_with_its_session(example: ModuleType, tmp_path: Path) -> None:
    questions = ["Hello\n", "look up the answer\n"]
    first = asyncio.run(example.chat(tmp_path, "s", questions))
    assert first == ["You have asked 1 times.", "I found: forty-two"]
    done = subprocess.run(
        [sys.executable, EXAMPLES / "chat_agent.py", tmp_path, "s"],
        input="And now?\n",
        capture_output=True,
        text=True,
        check=True,
    )
    # The result of the tool counts as a message of the user.
    assert done.stdout == "You have asked 4 times.\n"


def test_the_chat_agent_is_forty_lines() -> None:
    source = (EXAMPLES / "chat_agent.py").read_text(encoding="utf-8")
    lines = [line for line in source.splitlines() if line.strip()]
    assert len(lines) <= 40


@pytest.mark.parametrize("example", ["resume_session"], indirect=True)
def test_the_session_is_resumed(example: ModuleType, tmp_path: Path) -> None:
    with JsonlStore(tmp_path) as store:
        example.die_in_a_tool(store)
    with JsonlStore(tmp_path) as store:
        session = example.go_on(store)
        assert session.turn == 2
        assert store.load("diary").events == session.events()


@pytest.mark.parametrize("example", ["fork_session"], indirect=True)
def test_the_session_is_forked(example: ModuleType) -> None:
    plan, other = example.try_twice(MemoryStore())
    said = [
        [message["content"][0]["text"] for message in session.derive_messages()]
        for session in (plan, other)
    ]
    assert said == [
        ["Where shall we begin?", "With the roof?"],
        ["Where shall we begin?", "With the cellar?"],
    ]


@pytest.mark.parametrize("example", ["custom_event"], indirect=True)
def test_the_event_type_is_kept(example: ModuleType) -> None:
    assert example.use(MemoryStore()) == {1: 4}


@pytest.mark.parametrize("example", ["test_live_layer"], indirect=True)
def test_the_layer_of_the_page_is_tested_by_every_case(example: ModuleType) -> None:
    tests = [name for name in vars(example.TestMyLayer) if name.startswith("test_")]
    assert len(tests) == len(LIVE_CASES)
    for name in tests:
        getattr(example.TestMyLayer(), name)()


# --- the table of coordinator tests -------------------------------------------------------------


def test_the_page_shows_the_tables() -> None:
    shown = coordinator.PAGE.read_text(encoding="utf-8")
    assert shown == coordinator.page(shown), "run python -m tests.runtime.coordinator"
    assert coordinator.table() in shown
    assert coordinator.layers() in shown


def test_every_coordinator_test_has_a_place_or_a_reason() -> None:
    assert list(coordinator.COORDINATOR) == [f"C{number}" for number in range(1, 30)]
    for number, kept in coordinator.COORDINATOR.items():
        assert bool(kept.tests) != bool(kept.reason), number


def test_every_test_that_is_named_exists() -> None:
    named = {test for kept in coordinator.COORDINATOR.values() for test in kept.tests}
    for path, name in sorted(named):
        tree = ast.parse((coordinator.ROOT / path).read_text(encoding="utf-8"))
        functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        assert name in functions, (path, name)
