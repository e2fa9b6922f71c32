"""A store that would end the harness, or whose results are not what they seem."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from torntail import certify
from torntail.drive import exits, python_store
from torntail.drive.python_store import PythonStore
from torntail.drive.target import TargetError, target_of
from torntail.judge.history import Hung, Refused, StrangeResult
from torntail.session import SessionEvent, SessionHeader

EVENT = SessionEvent("note", 0, 1, {})


def _answering(answer: Any) -> Any:
    class Store:
        def load(self, session_id: str) -> Any:
            return answer()

    return lambda root: Store()


@pytest.mark.parametrize(
    "end",
    [
        lambda: os._exit(0),
        lambda: os.execv("/bin/true", ["true"]),
        lambda: os.execl("/bin/true", "true"),
    ],
)
def test_a_store_cannot_end_the_process(end: Any, tmp_path: Path) -> None:
    with exits.refused() as attempts:
        store = PythonStore(_answering(end), tmp_path)
        outcome = store.load("s")
    store.end()
    assert isinstance(outcome, Refused)
    assert (outcome.kind, outcome.exception) == ("exit", "EndsProcess")
    assert len(attempts) == 1


def test_a_child_may_end_itself_and_so_may_the_process_afterwards() -> None:
    code = (
        "import os\nfrom torntail.drive import exits\n"
        "with exits.refused() as attempts:\n"
        "    child = os.fork()\n"
        "    if child == 0:\n        os._exit(7)\n"
        "    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])\n"
        "print(status, attempts, flush=True)\nos._exit(3)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("7 []\n", 3)


ENDING = """
import threading
from os import _exit
from tests.zoo.plain import PlainStore, factory

class Ending(PlainStore):
    def load(self, session_id):
        if not self.places(session_id):
            {}
        return super().load(session_id)

ending = factory(Ending)
"""


@pytest.mark.parametrize(
    ("how", "code"),
    [("_exit(0)", 1), ("threading.Thread(target=_exit, args=[0], daemon=True).start()", 3)],
    ids=["in a call", "in a thread"],
)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_an_exit_is_never_a_pass(
    how: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"ending_{code}"
    (tmp_path / f"{name}.py").write_text(ENDING.format(how), encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    certificate = certify(f"{name}:ending", only=["RW-8"], runs=None)
    assert certificate.exit_code == code


def _raising() -> Iterator[SessionEvent]:
    yield EVENT
    raise RuntimeError("in the middle")


def _hanging() -> Iterator[SessionEvent]:
    yield EVENT
    time.sleep(60)


class Opaque:
    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)

    def __repr__(self) -> str:
        raise RuntimeError("no repr")


def test_lazy_results_are_consumed_in_the_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(python_store, "_MOST", 100)
    header = SessionHeader("s", 1)
    for events, kind in (
        (_raising, StrangeResult),
        (_hanging, Hung),
        (lambda: itertools.repeat(EVENT), StrangeResult),
    ):
        answer = lambda events=events: (header, events())  # noqa: E731
        store = PythonStore(_answering(answer), tmp_path, timeout=0.5)
        assert isinstance(store.load("s"), kind)
        store.end()


def test_an_object_that_answers_nothing_is_a_strange_result(tmp_path: Path) -> None:
    store = PythonStore(_answering(Opaque), tmp_path)
    assert isinstance(store.load("s"), StrangeResult)
    store.change_received()
    store.end()


class Odd(Exception):
    @property
    def kind(self) -> str:
        raise RuntimeError("kind")

    def __str__(self) -> str:
        raise RuntimeError("str")


def test_an_exception_that_tells_nothing_is_a_refusal(tmp_path: Path) -> None:
    def answer() -> Any:
        raise Odd

    store = PythonStore(_answering(answer), tmp_path)
    outcome = store.load("s")
    store.end()
    assert isinstance(outcome, Refused)
    assert outcome.kind == "other"


@pytest.mark.parametrize("kinds", [7, {KeyError: "notfound"}])
def test_error_kinds_are_checked(kinds: Any) -> None:
    def opened(root: Path) -> None: ...

    opened.error_kinds = kinds  # type: ignore[attr-defined]
    with pytest.raises(TargetError, match="error_kinds"):
        target_of(opened)
