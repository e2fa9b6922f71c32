"""The calls of a crash campaign on a store behind a driver: recorded by the tracer, loaded by a
worker process that is not traced.

As `crash_calls`, and makes the calls that belong together in one go, since each time of waiting for
another process costs more than a load. A driver that hangs, dies or talks nonsense over a disk
gives an outcome for that disk; the process is started anew for the next.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from torntail.crash.disk import Disk, DiskImage
from torntail.crash.oplog import Acknowledged, Invoked, Operation
from torntail.drive.child_store import StoreCall, ask_each, ask_store
from torntail.drive.python_store import CallOutcome
from torntail.drive.target import Target
from torntail.explore.crash_calls import CrashCalls, Followed, Recording, further_events
from torntail.explore.traced_driver import TracedDriver
from torntail.judge.capabilities import Capabilities
from torntail.judge.history import Append, Create, Hung, Load, Observation, Reopen, Returned
from torntail.judge.history import Operation as Call
from torntail.judge.recovery import Answer, Continuation, FirstCalls
from torntail.record.slots import Slot
from torntail.session import SessionEvent, SessionHeader

__all__ = ["CALL_SECONDS", "TracedCalls", "TracedRecords", "calls_on", "requests_of"]

CALL_SECONDS: Final = 10.0
"""How long a call may take: less than a worker may be silent, whose disk would not be known."""

_IMPATIENT_SECONDS: Final = 5.0
"""How long a call may take once another one was seen to hang."""


def calls_on(target: Target, slot: Slot, began: Callable[[], object] = lambda: None) -> CrashCalls:
    """The calls on a target, wherever its store lives."""
    if target.driver is not None:
        return TracedCalls(target, slot, began)
    if target.recorder is not None:
        return TracedRecords(target, slot, began)
    return CrashCalls(target, slot, began)


class TracedRecords(CrashCalls):
    """A target recorded by the tracer, in the directory of a slot; its loads are made here."""

    def __init__(
        self,
        target: Target,
        slot: Slot,
        began: Callable[[], object] = lambda: None,
        *,
        timeout: float = CALL_SECONDS,
    ) -> None:
        super().__init__(target, slot, began)
        driver = target.driver or target.recorder
        assert driver is not None
        self._driver = driver
        self._traced = TracedDriver.of(driver)
        self.timeout = timeout

    def close(self) -> None:
        """Ends the traced process; it is started anew when there is more to record."""
        self._traced.close()

    # --- recording ------------------------------------------------------------------------------

    def record(self, calls: Sequence[Call], disk: Disk | None) -> Recording:
        """Makes calls on a store in the slot, recording the file operations of its process.

        Raises `RecordingFailed`, also where this machine cannot trace.
        """
        self.began()
        self._touched = True
        self._traced.seconds = self.timeout
        take = self._traced.take(self.slot.path, disk, len(calls))
        history: list[Observation] = []
        unanswered: list[Operation] = []
        for index, call in enumerate(calls):
            take.invoke(index)
            if isinstance(call, Reopen):
                take.close()
            outcomes = take.ask(index, requests_of(call, self.capabilities))
            outcome: CallOutcome = outcomes[0] if outcomes else Returned()
            history.append(Observation(call, outcome))
            if take.broken:
                # No answer came, and none will: what was asked is over all the same.
                unanswered.append(Acknowledged(index))
                for later, one in enumerate(calls[index + 1 :], index + 1):
                    history.append(Observation(one, take.gone))
                    unanswered += [Invoked(later), Acknowledged(later)]
                break
        take.close()
        return Recording((*take.finish(), *unanswered), tuple(history))

    def _create(self, header: SessionHeader) -> list[StoreCall]:
        if self.capabilities.creates == "implicit":
            return []
        return [("create", {"header": header})]


class TracedCalls(TracedRecords):
    """A target with a driver, which is also asked on a crashed disk."""

    # --- on a crashed disk ----------------------------------------------------------------------

    def load_all(self, sessions: Sequence[str]) -> dict[str, Answer]:
        """A fresh store's answers for each session of the disk in the slot."""
        self.began()
        _, answers = self._ask_each([("load", {"session": session}) for session in sessions])
        return dict(zip(sessions, answers, strict=True))

    def follow(
        self, answers: Mapping[str, Answer], headers: Mapping[str, SessionHeader]
    ) -> Followed:
        """As in `CrashCalls`."""
        calls: list[StoreCall] = [("load", {"session": session}) for session in answers]
        if self.capabilities.lists:
            calls.append(("list", {}))
        _, given = self._ask_each(calls)
        again = dict(zip(answers, given, strict=False))
        listed = given[-1] if self.capabilities.lists else None
        return self._followed(again, listed, answers, headers)

    def first_calls(
        self,
        image: DiskImage,
        answers: Mapping[str, Answer],
        headers: Mapping[str, SessionHeader],
    ) -> FirstCalls:
        """As in `CrashCalls`."""
        listed: Answer | None = None
        self.hold(image)
        calls: list[StoreCall] = [("list", {})] if self.capabilities.lists else []
        opened, given = self._ask_each(calls)
        if not isinstance(opened, Returned):
            return FirstCalls()  # It opened on this disk before: what became of that is judged.
        if given:
            listed = given[0]
        alone: dict[str, Answer] = {}
        created: dict[str, Answer] = {}
        appended: dict[str, Continuation] = {}
        lasting: dict[str, Continuation] = {}
        for session, answer in answers.items():
            load: StoreCall = ("load", {"session": session})
            if len(answers) > 1:
                alone[session] = self._ask_on(image, [load])[0]
            if session not in headers:
                continue
            if not isinstance(answer, Returned) or answer.session is None:
                if self.capabilities.creates == "explicit":
                    created[session] = self._ask_on(image, self._create(headers[session]))[0]
                continue
            events = further_events(answer.session.events)
            append: StoreCall = ("append", {"session": session, "events": events})
            outcome = self._ask_on(image, [append])[0]
            appended[session] = Continuation(events, outcome, self._ask([load])[0])
            append = ("append", {"session": session, "events": events[:2]})
            _, outcome, loaded = self._ask_on(image, [load, append, load])
            lasting[session] = Continuation(events[:2], outcome, loaded)
        return FirstCalls(listed, alone, created, appended, lasting)

    def _ask_on(self, image: DiskImage, calls: Sequence[StoreCall]) -> list[CallOutcome]:
        self.hold(image)
        return self._ask(calls)

    def _continue(self, session: str, answer: Answer, header: SessionHeader) -> Continuation:
        before: Sequence[SessionEvent] = ()
        calls: list[StoreCall] = []
        if isinstance(answer, Returned) and answer.session is not None:
            before = answer.session.events
        else:
            calls += self._create(header)
        creates = bool(calls)
        refuses = self.capabilities.checks_seq and bool(before)
        events = further_events(before)
        if refuses:
            wrong_events = further_events(before[:-1])
            calls.append(("append", {"session": session, "events": wrong_events}))
        calls.append(("append", {"session": session, "events": events}))
        given = self._ask(calls)
        loaded = self._ask([("load", {"session": session})])[0]
        created = given.pop(0) if creates else None
        wrong = given.pop(0) if refuses else None
        return Continuation(events, given[0], loaded, wrong, created)

    def _ask(self, calls: Sequence[StoreCall]) -> list[CallOutcome]:
        self._touched = True
        return self._heard(ask_store(self._driver, self.slot.path, calls, self.timeout))

    def _ask_each(self, calls: Sequence[StoreCall]) -> tuple[CallOutcome, list[CallOutcome]]:
        self._touched = True
        opened, outcomes = ask_each(self._driver, self.slot.path, calls, self.timeout)
        return opened, self._heard(outcomes)

    def _heard(self, outcomes: list[CallOutcome]) -> list[CallOutcome]:
        if any(isinstance(one, Hung) for one in outcomes):
            self.timeout = min(self.timeout, _IMPATIENT_SECONDS)
        return outcomes


def requests_of(call: object, capabilities: Capabilities) -> list[StoreCall]:
    """What a call of a plan asks of a driver; nothing where the store does not have it."""
    match call:
        case Create(header=header) if capabilities.creates == "explicit":
            return [("create", {"header": header})]
        case Append(session=session, events=events):
            return [("append", {"session": session, "events": events})]
        case Load(session=session):
            return [("load", {"session": session})]
    return []
