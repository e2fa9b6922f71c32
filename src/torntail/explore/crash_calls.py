"""The calls a crash campaign makes on a store: recorded, on a crashed disk, and after a recovery.

Decides how many store objects there are and what each is asked: one for a recorded history between
two reopenings; after a crash one that loads, one that loads again and lists, and one that goes on
with a session, whose log another one loads. Does not decide which disks are tried
(`crash_expansion`) or what the answers should be (`judge.recovery`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from torntail.crash.disk import EMPTY_IMAGE, Disk, DiskImage
from torntail.crash.oplog import Acknowledged, Invoked, Operation, Write
from torntail.drive.inline_store import InlineStore
from torntail.drive.target import Target
from torntail.explore.apart import CAN_WORK_APART, worked_apart
from torntail.judge.capabilities import Capabilities
from torntail.judge.history import (
    MARK_PATTERN,
    Append,
    Create,
    History,
    Load,
    Observation,
    Reopen,
    Returned,
)
from torntail.judge.history import Operation as Call
from torntail.judge.recovery import Answer, Continuation, FirstCalls
from torntail.record.inprocess import Recorder
from torntail.record.slots import Slot
from torntail.session import SessionEvent, SessionHeader

__all__ = [
    "CrashCalls",
    "Followed",
    "Recording",
    "answer_of",
    "further_events",
    "sessions_of",
]


_MARK: Final = re.compile(MARK_PATTERN)
"""What stands in the data of every event of a plan (`Script.mark`)."""


@dataclass(frozen=True, slots=True)
class Recording:
    """A history with the file operations it caused."""

    operations: tuple[Operation, ...]
    history: History


class Followed(NamedTuple):
    """What became of a recovered disk: loaded again, what that changed, listed, and gone on with.

    `listed` is None where the store does not list.
    """

    again: Mapping[str, Answer]
    changed: tuple[str, ...]
    listed: Answer | None
    continued: Mapping[str, Continuation]


class CrashCalls:
    """A target in the directory of a slot; `began` is called before it is let loose on a disk."""

    def __init__(
        self, target: Target, slot: Slot, began: Callable[[], object] = lambda: None
    ) -> None:
        self.target = target
        self.capabilities = target.capabilities
        self.slot = slot
        self.began = began
        self._root = Path(slot.path)
        self._touched = True
        self._logs: frozenset[str] = frozenset()
        self._names_process = False

    # --- the disk -------------------------------------------------------------------------------

    def hold(self, image: DiskImage) -> None:
        """Puts an image before the store."""
        self.slot.hold(image, untouched=not self._touched)

    def left(self) -> DiskImage | None:
        """The disk that a load left, or None when it is as it was; asked for once a load."""
        changed = self.slot.changed()
        self._touched = False
        return self.slot.image(untouched=True) if changed else None

    # --- calls ----------------------------------------------------------------------------------

    def record(self, calls: Sequence[Call], disk: Disk | None) -> Recording:
        """Makes calls on the store in the slot, recording its file operations.

        A store that writes down which process it is in makes them in one that is dead afterwards.
        """
        self.began()
        if self._names_process:
            return self._record_apart(calls, disk)
        begin = EMPTY_IMAGE if disk is None else disk.image()
        recording = self._record(calls, disk)
        if disk is None:
            self._logs = frozenset(filter(self._holds_events, self.slot.changed()))
        if CAN_WORK_APART and _names_process(recording):
            self._names_process = True
            self.hold(begin)
            return self._record_apart(calls, disk)
        return recording

    def _record_apart(self, calls: Sequence[Call], disk: Disk | None) -> Recording:
        self._touched = True
        return worked_apart(lambda: self._record(calls, disk))

    def _record(self, calls: Sequence[Call], disk: Disk | None) -> Recording:
        history: list[Observation] = []
        store: InlineStore | None = None
        with Recorder(self.slot.path, disk) as recorder:
            for index, call in enumerate(calls):
                recorder.mark(Invoked(index))
                if isinstance(call, Reopen) and store is not None:
                    store.close()
                    store = None
                if store is None:
                    store = self._open()
                outcome = answer_of(store, call, self.capabilities)
                history.append(Observation(call, outcome))
                recorder.mark(Acknowledged(index))
            if store is not None:
                store.close()
            recorder.check()
        return Recording(tuple(recorder.operations), tuple(history))

    def load_all(self, sessions: Sequence[str]) -> dict[str, Answer]:
        """A fresh store object's answers for each session of the disk in the slot."""
        self.began()
        store = self._open()
        if not isinstance(store.opened, Returned):
            return dict.fromkeys(sessions, store.opened)
        answers: dict[str, Answer] = {session: store.load(session) for session in sessions}
        store.close()
        return answers

    def follow(
        self, answers: Mapping[str, Answer], headers: Mapping[str, SessionHeader]
    ) -> Followed:
        """Loads a recovered disk again, lists it, and goes on with each session that has a header.

        `answers` are those of the first load.
        """
        listed: Answer | None = None
        store = self._open()
        again = {session: store.load(session) for session in answers}
        if self.capabilities.lists:
            listed = store.list()
        store.close()
        return self._followed(again, listed, answers, headers)

    def _followed(
        self,
        again: Mapping[str, Answer],
        listed: Answer | None,
        answers: Mapping[str, Answer],
        headers: Mapping[str, SessionHeader],
    ) -> Followed:
        """What the second loads have changed, and how each session that has a header goes on."""
        changed = tuple(filter(self._is_log, self.slot.changed()))
        continued = {
            session: self._continue(session, answer, headers[session])
            for session, answer in answers.items()
            if session in headers
        }
        return Followed(again, changed, listed, continued)

    def first_calls(
        self,
        image: DiskImage,
        answers: Mapping[str, Answer],
        headers: Mapping[str, SessionHeader],
    ) -> FirstCalls:
        """Begins with other calls on the disk whose loads gave `answers`, each time on the whole of
        it.
        """
        listed: Answer | None = None
        store = self._begin(image)
        if not isinstance(store.opened, Returned):
            return FirstCalls()  # It opened on this disk before: what became of that is judged.
        if self.capabilities.lists:
            listed = store.list()
        store.close()
        alone: dict[str, Answer] = {}
        created: dict[str, Answer] = {}
        appended: dict[str, Continuation] = {}
        lasting: dict[str, Continuation] = {}
        for session, answer in answers.items():
            if len(answers) > 1:
                store = self._begin(image)
                alone[session] = store.load(session)
                store.close()
            if session not in headers:
                continue
            if not isinstance(answer, Returned) or answer.session is None:
                if self.capabilities.creates == "explicit":
                    store = self._begin(image)
                    created[session] = store.create(headers[session])
                    store.close()
                continue
            events = further_events(answer.session.events)
            store = self._begin(image)
            outcome = store.append(session, events)
            store.close()
            store = self._open()
            appended[session] = Continuation(events, outcome, store.load(session))
            store.close()
            # A closed turn: what becomes of a turn that its own writer still has open, no clause of
            # this group says.
            events = events[:2]
            store = self._begin(image)
            store.load(session)
            outcome = store.append(session, events)
            lasting[session] = Continuation(events, outcome, store.load(session))
            store.close()
        return FirstCalls(listed, alone, created, appended, lasting)

    def _is_log(self, path: str) -> bool:
        """Whether a changed file is one that a second load may not write (CR-4).

        A log is known by the events in it, or because it had some when the plan was recorded. Of a
        store that keeps them in no form that could be read, every file counts.
        """
        return not self._logs or path in self._logs or self._holds_events(path)

    def _holds_events(self, path: str) -> bool:
        return any(_MARK.search(content) for content in self.slot.versions(path))

    def _begin(self, image: DiskImage) -> InlineStore:
        self.hold(image)
        return self._open()

    def _open(self) -> InlineStore:
        self._touched = True
        return InlineStore(self.target.factory, self._root)

    def _continue(self, session: str, answer: Answer, header: SessionHeader) -> Continuation:
        store = self._open()
        created = wrong = None
        before: Sequence[SessionEvent] = ()
        if isinstance(answer, Returned) and answer.session is not None:
            before = answer.session.events
        elif self.capabilities.creates == "explicit":
            created = store.create(header)
        events = further_events(before)
        if self.capabilities.checks_seq and before:
            wrong = store.append(session, further_events(before[:-1]))
        appended = store.append(session, events)
        store.close()
        store = self._open()
        loaded = store.load(session)
        store.close()
        return Continuation(events, appended, loaded, wrong, created)


def _names_process(recording: Recording) -> bool:
    """Whether the id of this process was written anywhere."""
    number = re.compile(rb"(?<!\d)%d(?!\d)" % os.getpid())
    writes = [one for one in recording.operations if isinstance(one, Write)]
    return any(number.search(one.data) for one in writes)


def answer_of(store: InlineStore, call: object, capabilities: Capabilities) -> Answer:
    """What a store object answers to a call; a call that it does not have returns."""
    if not isinstance(store.opened, Returned):
        return store.opened
    match call:
        case Create(header=header) if capabilities.creates == "explicit":
            return store.create(header)
        case Append(session=session, events=events):
            return store.append(session, events)
        case Load(session=session):
            return store.load(session)
    return Returned()


def sessions_of(calls: Sequence[Call]) -> list[str]:
    """The sessions that calls create, append to or load, each once."""
    return list(
        dict.fromkeys(
            call.header.id if isinstance(call, Create) else call.session
            for call in calls
            if isinstance(call, Create | Append | Load)
        )
    )


def further_events(before: Sequence[SessionEvent]) -> tuple[SessionEvent, ...]:
    """A little more work behind a log: a closed turn and the beginning of another."""
    turn = sum(event.type == "turn/start" for event in before) + 1
    time = before[-1].time if before else 0
    shapes: list[tuple[str, dict[str, Any]]] = [
        ("turn/start", {"turn": turn, "trigger": {"kind": "injection"}}),
        ("turn/end", {"turn": turn, "reason": {"kind": "completed"}}),
        ("turn/start", {"turn": turn + 1, "trigger": {"kind": "injection"}}),
    ]
    return tuple(
        SessionEvent(kind, len(before) + index, time, data)
        for index, (kind, data) in enumerate(shapes)
    )
