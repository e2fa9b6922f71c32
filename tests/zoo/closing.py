"""Stores that break one clause of group CL each; `ZOO` says which."""

# An animal is named as its factory is, which a target names like a function.

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec

from tests.zoo.bases import Changing, Filtering
from tests.zoo.plain import PlainStore, factory
from torntail.session import LogScan, SessionEvent

ZOO: dict[str, str] = {}


def _animal(clause: str) -> Any:
    def enter(store: Any) -> Any:
        ZOO[f"{__name__}:{store.__name__}"] = clause
        return factory(store)

    return enter


def _open_number(events: list[SessionEvent], kind: str) -> Any:
    starts = [event.data[kind] for event in events if event.type == f"{kind}/start"]
    return starts[-1] if starts else None


@_animal("CL-1")
class only_its_own_number_ends_a_turn(Filtering):
    def counts(self, event: SessionEvent, before: list[SessionEvent]) -> bool:
        return event.type != "turn/end" or event.data["turn"] == _open_number(before, "turn")


@_animal("CL-1")
class only_its_own_number_ends_a_step(Filtering):
    def counts(self, event: SessionEvent, before: list[SessionEvent]) -> bool:
        return event.type != "step/end" or event.data["step"] == _open_number(before, "step")


@_animal("CL-2")
class only_the_first_message_of_a_step(Filtering):
    def counts(self, event: SessionEvent, before: list[SessionEvent]) -> bool:
        if event.type != "assistant/message":
            return True
        for earlier in reversed(before):
            if earlier.type in ("step/start", "step/end", "turn/start"):
                return True
            if earlier.type == "assistant/message":
                return False
        return True


@_animal("CL-3")
class only_a_result_of_its_own_step_answers(Filtering):
    def counts(self, event: SessionEvent, before: list[SessionEvent]) -> bool:
        return event.type != "tool/result" or event.data["step"] == _open_number(before, "step")


@_animal("CL-3")
class the_first_logged_call_counts(Filtering):
    def counts(self, event: SessionEvent, before: list[SessionEvent]) -> bool:
        return event.type != "tool/call" or not any(
            earlier.type == "tool/call" and earlier.data["callId"] == event.data["callId"]
            for earlier in before
        )


@_animal("CL-4")
class ends_the_step_first(Changing):
    def change(self, closers: list[SessionEvent]) -> list[SessionEvent]:
        ends = [closer for closer in closers if closer.type == "step/end"]
        return ends + [closer for closer in closers if closer.type != "step/end"]


@_animal("CL-4")
class forgets_the_open_step(Changing):
    def change(self, closers: list[SessionEvent]) -> list[SessionEvent]:
        return [closer for closer in closers if closer.type != "step/end"]


@_animal("CL-4")
class answers_one_call(Changing):
    def change(self, closers: list[SessionEvent]) -> list[SessionEvent]:
        results = [closer for closer in closers if closer.type == "tool/result"]
        return results[:1] + closers[len(results) :]


@_animal("CL-5")
class another_text(Changing):
    def change(self, closers: list[SessionEvent]) -> list[SessionEvent]:
        text = json.dumps([closer.to_json() for closer in closers]).replace("by a crash", "")
        return [SessionEvent.from_json(record) for record in json.loads(text)]


@_animal("CL-5")
class results_on_no_surface(Changing):
    def change(self, closers: list[SessionEvent]) -> list[SessionEvent]:
        return [msgspec.structs.replace(closer, surface_op=None) for closer in closers]


@_animal("CL-5")
class the_time_of_the_repair(Changing):
    def change(self, closers: list[SessionEvent]) -> list[SessionEvent]:
        return [
            msgspec.structs.replace(closer, time=max(closer.time, 1_600_000_000_000.25) + 1)
            if closer.type != "turn/end"
            else closer
            for closer in closers
        ]


@_animal("CL-6")
class a_synthetic_result_answers_nothing(Filtering):
    def counts(self, event: SessionEvent, before: list[SessionEvent]) -> bool:
        return event.type != "tool/result" or "error" not in event.data


@_animal("CL-7")
class an_interrupted_turn_commits_nothing(PlainStore):
    def scan(
        self, lines: list[bytes], accept: Callable[[SessionEvent], object], session_id: str
    ) -> LogScan:
        def back(event: SessionEvent) -> object:
            kind = "turn/end" if event.type == "turn/cut" else event.type
            return accept(msgspec.structs.replace(event, type=kind))

        hidden = [
            line.replace(b'"turn/end"', b'"turn/cut"') if b'"kind":"interrupted"' in line else line
            for line in lines
        ]
        return super().scan(hidden, back, session_id)
