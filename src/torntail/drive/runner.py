"""Running a plan against a store: operations in, history out.

Decides that every store object is closed before its storage is damaged and opened again after, and
what of the storage counts as a session's data. Does not decide what should happen (`judge`).
"""

from __future__ import annotations

import copy
import datetime
import functools
import shutil
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import msgspec

from torntail.drive.child_store import ChildStore
from torntail.drive.onlooker import Onlooker, Storage, StoredFile
from torntail.drive.python_store import CallOutcome, PythonStore
from torntail.drive.target import Target
from torntail.judge.history import (
    Append,
    ChangeCallersCopy,
    Close,
    Create,
    Damage,
    Damaged,
    History,
    Hung,
    Inspect,
    ListSessions,
    Load,
    NotPossible,
    Observation,
    Operation,
    Outcome,
    Refused,
    Reopen,
    Returned,
    Spoiling,
    Together,
    TogetherOutcome,
    mark_of,
)
from torntail.session import SessionEvent

__all__ = ["Runner", "given_events", "hangs", "keep_storage", "run_history"]

CALL_TIMEOUT_SECONDS: Final = 30.0


def run_history(
    target: Target,
    operations: Iterable[Operation],
    directory: Path,
    onlooker: Onlooker,
    *,
    timeout: float = CALL_TIMEOUT_SECONDS,
) -> History:
    """Runs a plan in a fresh directory and says what happened; the storage is left there.

    After a call that hangs nothing more is tried: each further one could take as long.
    """
    history: list[Observation] = []
    stuck = False
    with Runner(target, directory, onlooker, timeout=timeout) as runner:
        for operation in operations:
            if stuck and not isinstance(operation, Damage):
                history.append(Observation(operation, Hung(timeout)))
                continue
            observation = runner.run(operation)
            stuck = stuck or hangs(observation.outcome)
            history.append(observation)
    return tuple(history)


def hangs(outcome: Outcome) -> bool:
    """Whether a call did not come back, alone or among others."""
    if isinstance(outcome, TogetherOutcome):
        return any(isinstance(one, Hung) for one in outcome.outcomes)
    return isinstance(outcome, Hung)


class Runner:
    """Live store objects over one storage; a context manager that closes them."""

    def __init__(
        self, target: Target, directory: Path, onlooker: Onlooker, *, timeout: float
    ) -> None:
        self._target = target
        self._onlooker = onlooker
        self._timeout = timeout
        self._root = directory / "case" / "root"
        self._root.mkdir(parents=True)
        self._stores: dict[int, PythonStore | ChildStore] = {}
        self._marks: dict[str, dict[int, str]] = {}
        self._data_files: set[str] = set()
        self._before: Storage = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._close_all()

    def run(self, operation: Operation) -> Observation:
        """Runs one operation."""
        if isinstance(operation, Damage):
            outcome: Outcome = self._damage(operation)
            self._before = self._onlooker.snapshot(self._root)
            return Observation(operation, outcome)
        outcome = self._call(operation)
        if isinstance(operation, Append) and isinstance(outcome, Returned):
            marks = self._marks.setdefault(operation.session, {})
            for event in operation.events:
                mark = mark_of(event)
                if mark is not None:
                    marks[event.seq] = mark
        return self._observe(operation, outcome)

    def _observe(self, operation: Operation, outcome: Outcome) -> Observation:
        before, after = self._before, self._onlooker.snapshot(self._root)
        self._before = after
        self._data_files |= {name for name, file in after.items() if file.marks}
        # Where no mark is found anywhere (a compressed log), any file may hold the data.
        opaque = bool(self._marks) and not self._data_files
        changed = tuple(
            name
            for name in sorted(before.keys() | after.keys())
            if (name in self._data_files or name.startswith("../") or opaque)
            and (before.get(name) or _NOTHING)[:2] != (after.get(name) or _NOTHING)[:2]
        )
        marks: dict[str, int] = {}
        for file in after.values():
            for mark, count in file.marks.items():
                marks[mark] = marks.get(mark, 0) + count
        return Observation(operation, outcome, changed, marks)

    # --- calls ----------------------------------------------------------------------------------

    def open(self, number: int) -> PythonStore | ChildStore:
        """The live store object of that number, opened if there is none yet."""
        if number not in self._stores:
            self._stores[number] = self._target.open(self._root, timeout=self._timeout)
        return self._stores[number]

    def _call(self, operation: Operation) -> Outcome:
        match operation:
            case Reopen():
                outcome = self._end(operation.store)
                if not isinstance(outcome, Returned):
                    return outcome
                return self.open(operation.store).opened
            case Together():
                store = self.open(operation.store)
                calls = [
                    functools.partial(self._plain_call, store, call)
                    for call in operation.operations
                ]
                outcome_of_all = TogetherOutcome(store.together(calls))
                for call, outcome in zip(
                    operation.operations, outcome_of_all.outcomes, strict=True
                ):
                    if isinstance(call, Append) and isinstance(outcome, Returned):
                        for event in call.events:
                            self._marks.setdefault(call.session, {})[event.seq] = (
                                mark_of(event) or ""
                            )
                return outcome_of_all
        store = self.open(operation.store)
        if not isinstance(store.opened, Returned):
            return store.opened
        return self._plain_call(store, operation)

    def _plain_call(self, store: PythonStore | ChildStore, operation: Operation) -> CallOutcome:
        match operation:
            case Create():
                if self._target.capabilities.creates == "implicit":
                    return Returned()
                return store.create(operation.header)
            case Append():
                return store.append(operation.session, given_events(operation))
            case Load():
                return store.load(operation.session)
            case Inspect():
                return store.inspect(operation.session)
            case ListSessions():
                return store.list()
            case Close():
                return store.close()
            case ChangeCallersCopy(what="appended"):
                store.change_given()
                return Returned()
            case ChangeCallersCopy():
                store.change_received()
                return Returned()
        raise AssertionError(f"no call for {operation}")

    # --- opening, closing, damaging -------------------------------------------------------------

    def _end(self, number: int) -> CallOutcome:
        store = self._stores.pop(number, None)
        if store is None:
            return Returned()
        outcome = store.close()
        store.end()
        # A store that was closed already may refuse a second time; that is judged at `Close`.
        return outcome if not isinstance(outcome, Refused) else Returned()

    def _close_all(self) -> None:
        for number in list(self._stores):
            self._end(number)

    def _damage(self, operation: Damage) -> Damaged | NotPossible:
        self._close_all()
        outcome = self._onlooker.damage(self._root, operation, self._marks)
        if isinstance(outcome, NotPossible) and self._target.capabilities.durability == "none":
            return NotPossible("a store without durability has nothing to damage", moot=True)
        if isinstance(outcome, Damaged):
            self._data_files.add(outcome.path)
        return outcome


_NOTHING: Final = StoredFile("", 0, {})


# --- what a store is given ------------------------------------------------------------------------


def given_events(operation: Append) -> list[SessionEvent]:
    """The events of an append as the store gets them: copies, one of them spoiled if so planned."""
    events = [copy.deepcopy(event) for event in operation.events]
    if operation.spoiled is not None:
        index = operation.spoiled.index
        events[index] = _spoiled(events[index], operation.spoiled.how)
    return events


def _spoiled(event: SessionEvent, how: Spoiling) -> SessionEvent:
    envelope: dict[str, dict[str, Any]] = {
        "empty-type": {"type": ""},
        "negative-seq": {"seq": -1},
        "boolean-seq": {"seq": bool(event.seq)},
        "float-seq": {"seq": float(event.seq)},
        "text-time": {"time": "now"},
        "nan-time": {"time": float("nan")},
        "nan-in-a-further-key": {"extra": {"futureKey": [float("nan")]}},
        "bytes-in-the-surface": {"surface_op": {"op": b"bytes"}},
    }
    if how in envelope:
        return msgspec.structs.replace(event, **envelope[how])
    cycle: list[Any] = []
    cycle.append(cycle)
    deep: list[Any] = []
    for _ in range(250):
        deep = [deep]
    values: dict[str, Any] = {
        "nan": float("nan"),
        "infinity": float("inf"),
        "minus-infinity": float("-inf"),
        "bytes": b"bytes",
        "set": {1, 2},
        "date": datetime.date(2026, 1, 1),
        "cycle": cycle,
        "integer-key": {1: "one"},
        "object": object(),
        "too-deep": deep,
        "too-many-digits": 10**4300,
    }
    return msgspec.structs.replace(event, data={**event.data, "spoiled": [values[how]]})


def keep_storage(directory: Path, target: Path) -> None:
    """Copies the storage a history left behind to where a witness keeps it."""
    source = directory / "case" / "root"
    if source.is_dir():
        shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True)
    elif source.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
