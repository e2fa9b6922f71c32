"""Calling a store: which shapes are understood, which words exceptions get, what cannot hang."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from torntail.drive.python_store import PythonStore
from torntail.judge.history import (
    Hung,
    ListedSession,
    LoadedSession,
    Refused,
    RepairFacts,
    Returned,
    StrangeResult,
)
from torntail.session import SessionEvent, SessionHeader
from torntail.stores.contract import (
    ListEntry,
    LoadResult,
    RepairReport,
    SequenceMismatch,
    SessionCorrupted,
)

HEADER = SessionHeader("s", 1)
EVENT = SessionEvent("note", 0, 1, {"k": [1]})
EVERY_SHAPE = [
    LoadResult(HEADER, [EVENT], RepairReport()),
    (HEADER, [EVENT]),
    (HEADER.to_json(), (EVENT.to_json(),)),
    {"header": HEADER, "events": [EVENT]},
    {"meta": {"version": 0, "id": "s", "createdAt": 1}, "events": [EVENT.to_json()]},
]


class Answering:
    """Every call gives what `answer` gives."""

    def __init__(self, answer: Callable[[], Any]) -> None:
        self.create = self.append = self.load = self.inspect = self.list = lambda *arguments: (
            answer()
        )


@pytest.fixture
def opened() -> Iterator[Callable[..., PythonStore]]:
    stores: list[PythonStore] = []

    def make(answer: Callable[[], Any], timeout: float = 30, **attributes: Any) -> PythonStore:
        def factory(root: Path) -> Answering:
            return Answering(answer)

        factory.__dict__.update(attributes)
        stores.append(PythonStore(factory, Path("/somewhere/of/it"), timeout=timeout))
        assert stores[-1].opened == Returned()
        return stores[-1]

    yield make
    for store in stores:
        store.end()


@pytest.mark.parametrize("shape", EVERY_SHAPE)
def test_every_shape_of_a_session_is_understood(opened: Any, shape: Any) -> None:
    outcome = opened(lambda: shape).load("s")
    repair = RepairFacts() if isinstance(shape, LoadResult) else None
    assert outcome == Returned(session=LoadedSession(HEADER, (EVENT,), repair))


@pytest.mark.parametrize("shape", EVERY_SHAPE)
def test_a_coroutine_is_awaited(opened: Any, shape: Any) -> None:
    async def answer() -> Any:
        await asyncio.sleep(0)
        return shape

    outcome = opened(answer).inspect("s")
    assert outcome.session.events == (EVENT,)


@pytest.mark.parametrize(
    "answer", [None, 7, "text", {"events": [7]}, (HEADER, [{"type": "note"}]), {"header": HEADER}]
)
def test_what_is_no_session_is_strange(opened: Any, answer: Any) -> None:
    assert isinstance(opened(lambda: answer).load("s"), StrangeResult)


def test_every_shape_of_a_list_is_understood(opened: Any) -> None:
    error = SessionCorrupted("b", "file", 1, "bad", 0)
    answer = [
        "a",
        HEADER,
        HEADER.to_json(),
        ListEntry("b", None, error),
        {"session_id": "c", "header": None, "error": "version"},
    ]
    assert opened(lambda: answer).list() == Returned(
        entries=(
            ListedSession("a"),
            ListedSession("s", HEADER),
            ListedSession("s", HEADER),
            ListedSession("b", None, "corrupted"),
            ListedSession("c", None, "version"),
        )
    )
    assert isinstance(opened(lambda: {"a": 1}).list(), StrangeResult)
    assert isinstance(opened(lambda: [{}]).list(), StrangeResult)


class Own(Exception):
    pass


class Kindly(Exception):
    kind = "conflict"


class Boasting(Exception):
    kind = "exit"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (SequenceMismatch("s", 3, 5), "sequence"),
        (FileNotFoundError(2, "no"), "not_found"),
        (KeyError("s"), "not_found"),
        (FileExistsError(17, "yes"), "exists"),
        (PermissionError(13, "no"), "other"),
        (Kindly(), "conflict"),
        (Boasting(), "other"),
        (Own(), "closed"),
        (TimeoutError(), "other"),
        (SystemExit(1), "exit"),
        (KeyboardInterrupt(), "exit"),
        (GeneratorExit(), "exit"),
    ],
)
def test_an_exception_is_known_by_a_word(opened: Any, error: BaseException, kind: str) -> None:
    def answer() -> None:
        raise error

    outcome = opened(answer, error_kinds={Own: "closed"}).load("s")
    assert isinstance(outcome, Refused)
    assert (outcome.kind, outcome.exception) == (kind, type(error).__name__)


def test_facts_are_told_without_the_temporary_directory(opened: Any) -> None:
    def answer() -> None:
        raise SessionCorrupted("s", Path("/somewhere/of/it/b/s.jsonl"), 4, "bad", 80)

    outcome = opened(answer).load("s")
    assert outcome.text == (
        "session 's' is corrupted at line 4 (byte 80) of b/s.jsonl: bad; nothing was changed"
    )
    assert outcome.facts == {
        "session_id": "s",
        "path": "b/s.jsonl",
        "line": 4,
        "byte": 80,
        "reason": "bad",
    }


@pytest.mark.parametrize("in_loop", [False, True])
def test_a_call_that_does_not_come_back_hangs_once(opened: Any, in_loop: bool) -> None:
    async def forever() -> None:
        await asyncio.Event().wait()

    release = threading.Event()
    store = opened(forever if in_loop else release.wait, timeout=0.2)
    assert store.load("s") == Hung(0.2)
    assert store.close() == Hung(0.2)
    release.set()


def test_what_was_given_and_received_can_be_changed(opened: Any) -> None:
    shared = LoadResult(HEADER, [SessionEvent("note", 0, 1, {"k": [1]})], RepairReport())
    store = opened(lambda: shared)
    before = store.load("s")
    store.change_received()
    assert store.load("s") != before
    assert before == Returned(session=LoadedSession(HEADER, (EVENT,), RepairFacts()))


def test_calls_at_the_same_time_meet(opened: Any) -> None:
    meeting = threading.Barrier(3, timeout=30)
    store = opened(lambda: meeting.wait() and None)
    calls = [lambda: store.append("s", [])] * 3
    assert store.together(calls) == (Returned(),) * 3


def test_coroutines_at_the_same_time_meet(opened: Any) -> None:
    waiting: list[asyncio.Event] = []

    async def answer() -> None:
        gate = asyncio.Event()
        waiting.append(gate)
        if len(waiting) == 3:
            for one in waiting:
                one.set()
        await gate.wait()

    store = opened(answer)
    calls = [lambda: store.append("s", [])] * 3
    assert store.together(calls) == (Returned(),) * 3
