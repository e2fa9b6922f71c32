"""Plans of realistic session work, from a seed: what is driven while a crash may come.

A plan is a list of operations on a few sessions at once: turns with steps, parallel tool calls,
chunks, batches of one event to many pages, a store opened again in mid-turn, a fork, an abandoned
turn, odd values. Small plans are worth crashing everywhere, large ones by sample: a plan of many
sessions or of a long log says in which of its calls. Decides what is done, never what should come
of it (`judge`).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any, Final

import msgspec

from torntail.explore.script import Case, Log, Script
from torntail.judge.capabilities import Capabilities
from torntail.judge.history import Append, Create, Operation
from torntail.session import SessionEvent, interrupted_turn_closers

__all__ = ["UnknownPlanError", "crash_plan", "crash_plans", "is_sparse"]

_SMALL_STEPS: Final = 4
_LARGE_STEPS: Final = 14
_LONG_LINE_BYTES: Final = 110_000
_EQUAL_SHARE: Final = 0.3
_ODD_TEXTS: Final = (
    "\u2028\u2029\u0085",
    "\x00",
    '{"type":"turn/end","seq":0,"time":0,"data":{}}',
    "\n\r\t\\\"'",
    "é" * 700,
)


class UnknownPlanError(ValueError):
    """No plan has this name."""

    def __init__(self, name: str) -> None:
        names = ", ".join(_SHAPES)
        super().__init__(f"no plan is named {name!r}: there are {names}, small-N and large-N")


def crash_plans(seed: int, capabilities: Capabilities) -> Iterator[Case]:
    """Plans without end; the same seed gives the same plans. Every fourth is a large one.

    The first ones are fixed shapes, so that what every campaign must reach does not hang on luck.
    """
    for name in _SHAPES:
        yield crash_plan(seed, capabilities, name)
    for number in count():
        yield crash_plan(seed, capabilities, _improvised_name(number))


def crash_plan(seed: int, capabilities: Capabilities, name: str) -> Case:
    """The plan of that name; raises `UnknownPlanError`."""
    if name in _SHAPES:
        script = Script(f"{seed}/crash/{name}", capabilities)
        _SHAPES[name](script)
        calls = tuple(script.operations)
        return Case(name, (), calls, _some_calls(script, _CRASHED_CALLS.get(name, 0)))
    _, _, digits = name.partition("-")
    if not digits.isdecimal() or len(digits) > 9 or name != _improvised_name(int(digits)):
        raise UnknownPlanError(name)
    script = Script(f"{seed}/crash/{int(digits)}", capabilities)
    _Improvisation(script).play(_LARGE_STEPS if name.startswith("large") else _SMALL_STEPS)
    return Case(name, (), tuple(script.operations))


def is_sparse(name: str) -> bool:
    """Whether the plan of that name is crashed in some of its calls only."""
    return name in _CRASHED_CALLS


def _improvised_name(number: int) -> str:
    return f"{'large' if number % 4 == 3 else 'small'}-{number}"


# --- fixed shapes -------------------------------------------------------------------------------


def _first_turn(script: Script) -> None:
    log = script.session()
    log.append("TS U SS A SE TE")


def _turn_by_turn(script: Script) -> None:
    log = script.session()
    log.append("TS U")
    log.append("SS")
    log.append("A:c1,c2")
    log.append("K:c1 K:c2")
    log.append("R:c2")
    log.append("R:c1 SE TE")
    log.append("TS U SS C C A SE TE")


def _two_turns_in_one_batch(script: Script) -> None:
    log = script.session()
    log.append("TS U SS A SE TE")
    log.append("TS U SS A:c1 K:c1 R:c1 SE TE TS U SS A SE TE")


def _a_batch_of_many_pages(script: Script) -> None:
    log = script.session()
    log.append("TS U SS")
    chunks = log.write(" ".join(["C"] * 30))
    log.append([_padded(event, 400) for event in chunks])
    end = [*log.write("A SE TE")]
    log.append([_padded(end[0], 9000), *end[1:]])


def _an_abandoned_turn(script: Script) -> None:
    log = script.session()
    log.append("TS U SS A:c1,c2 K:c1")
    script.reopen()
    log.load()
    log.append("TS U SS A SE TE")


def _append_without_load(script: Script) -> None:
    log = script.session()
    log.append("TS U SS A:c1")
    script.reopen()
    if script.durable:
        log.events.extend(_closers(log, script.capabilities))
    log.append("TS U SS A SE TE")


def _two_sessions(script: Script) -> None:
    one, other = script.session("a"), script.session("b", cwd=None)
    one.append("TS U SS A:c1")
    other.append("TS U SS A SE TE")
    one.append("K:c1 R:c1 SE TE")
    other.append("TS U")


def _a_fork(script: Script) -> None:
    """The source goes on behind the point at which its child was forked off, and so does that."""
    source = script.session("a")
    source.append("TS U SS A:c1")
    child = _forked(script, source, "b")
    source.append("K:c1 R:c1 SE TE")
    child.append("TS U")


def _eight_sessions(script: Script) -> None:
    logs = [script.session(label) for label in "abcdefgh"]
    for number, log in enumerate(logs):
        log.append("TS U SS A:c1" if number % 2 else "TS U SS C A SE TE")
    for log in logs[1::4]:
        log.append("K:c1 R:c1 SE TE")
    script.reopen()
    for log in logs[::3]:
        log.load()
    for log in logs[::2]:
        log.append("TS U")


def _a_long_log(script: Script) -> None:
    """Some hundred events, and a line that no buffer holds."""
    log = script.session()
    for turn in range(26):
        log.append("TS U SS" + " C" * 7)
        if turn == 13:
            log.append([_padded(log.write("A")[0], _LONG_LINE_BYTES)])
        log.append("A SE TE")
    script.reopen()
    log.load()
    log.append("TS U SS C A:c1 K:c1")
    log.append("R:c1 SE TE")


_SHAPES: Final[dict[str, Callable[[Script], None]]] = {
    "first-turn": _first_turn,
    "turn-by-turn": _turn_by_turn,
    "two-turns-in-one-batch": _two_turns_in_one_batch,
    "a-batch-of-many-pages": _a_batch_of_many_pages,
    "an-abandoned-turn": _an_abandoned_turn,
    "append-without-load": _append_without_load,
    "eight-sessions": _eight_sessions,
    "a-long-log": _a_long_log,
    "two-sessions": _two_sessions,
    "a-fork": _a_fork,
}

_CRASHED_CALLS: Final = {"eight-sessions": 9, "a-long-log": 9}


def _some_calls(script: Script, count: int) -> tuple[int, ...]:
    """At most `count` calls, the largest and the last among them."""
    calls = script.operations
    if not count:
        return ()
    chosen = {len(calls) - 1, max(range(len(calls)), key=lambda call: _written(calls[call]))}
    others = [call for call in range(len(calls)) if call not in chosen]
    chosen.update(script.random.sample(others, count - len(chosen)))
    return tuple(sorted(chosen))


def _written(call: Operation) -> int:
    return len(repr(call.events)) if isinstance(call, Append) else 0


def _forked(script: Script, source: Log, label: str) -> Log:
    """A child with the source's prefix and its closers (LV-4)."""
    prefix = list(source.events)
    fields: dict[str, Any] = {"parent_session": source.id, "seed_length": len(prefix)}
    child = script.session(label, **(fields if script.capabilities.forks else {}))
    child.turn = source.turn
    child.append([*prefix, *_closers(source, script.capabilities)])
    return child


# --- improvised plans ---------------------------------------------------------------------------


class _Improvisation:
    """Work on one to three sessions, step by step, as an agent would do it."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.chance: random.Random = script.random
        # Of its own, so that what else a plan holds does not hang on it.
        self.repeats = random.Random(f"{script.token}/repeats")
        self.logs: list[Log] = []
        self.waiting: dict[str, list[str]] = {}
        self.calls = 0

    def play(self, steps: int) -> None:
        """Writes about so many operations."""
        self._begin()
        while len(self.script.operations) < steps:
            draw = self.chance.random()
            if draw < 0.06 and len(self.logs) < 3:
                self._begin()
            elif draw < 0.12 and self.script.durable:
                self._interrupt()
            elif draw < 0.16 and self.script.capabilities.forks:
                self._fork()
            else:
                self._work(self.chance.choice(self.logs))

    def _begin(self) -> None:
        label = "abc"[len(self.logs)]
        cwd = self.chance.choice(["/projects/" + self.script.token, "/wörk", None])
        self.logs.append(self.script.session(label, cwd=cwd))

    def _interrupt(self) -> None:
        """The process ends and another goes on, with a load or straight away."""
        self.script.reopen()
        for log in self.logs:
            if not log.events:
                # Announced only, and gone with the process.
                self.script.add(Create(header=log.header))
                continue
            if self.chance.random() < 0.7:
                log.load()
            else:
                log.events.extend(_closers(log, self.script.capabilities))
                self._work(log)
            self.waiting.pop(log.id, None)

    def _fork(self) -> None:
        sources = [log for log in self.logs if log.events]
        if sources and len(self.logs) < 3:
            source = self.chance.choice(sources)
            self.logs.append(_forked(self.script, source, "abc"[len(self.logs)]))

    def _work(self, log: Log) -> None:
        """The next piece of a turn, one event to a whole turn in a batch."""
        open_turn = bool(interrupted_turn_closers(log.events))
        waiting = self.waiting.get(log.id, [])
        if not open_turn:
            words = self.chance.choice(
                ["TS U", "TS U SS", "TS U SS A SE TE", "TS U SS C C C A SE TE", "TS"]
            )
            if words.startswith("TS U SS A") and self.chance.random() < 0.4:
                words += " TS U SS A SE TE"
        elif waiting:
            answered = waiting[: self.chance.randrange(1, len(waiting) + 1)]
            self.chance.shuffle(answered)
            words = " ".join(f"K:{call} R:{call}" for call in answered)
            self.waiting[log.id] = [call for call in waiting if call not in answered]
        elif not _in_step(log):
            words = self.chance.choice(["SS", "TE", "SS C C"])
        else:
            words = self.chance.choice(["C", "C C C", "A", "calls", "SE", "SE TE", "A SE TE"])
            if words == "calls":
                count = self.chance.randrange(1, 4)
                names = [f"c{self.calls + index}" for index in range(count)]
                self.calls += count
                self.waiting[log.id] = names
                words = "A:" + ",".join(names)
        events = log.write(words)
        log.append(self._repeated(log, [self._varied(event) for event in events]))

    def _repeated(self, log: Log, events: list[SessionEvent]) -> list[SessionEvent]:
        """With chunks that are equal to the one before them, but for seq, as a model sends them."""
        before = log.events[-1] if log.events else None
        for index, event in enumerate(events):
            same = before is not None and before.type == event.type == "assistant/chunk"
            if same and before is not None and self.repeats.random() < _EQUAL_SHARE:
                events[index] = event = msgspec.structs.replace(before, seq=event.seq)
            before = event
        return events

    def _varied(self, event: SessionEvent) -> SessionEvent:
        draw = self.chance.random()
        if draw < 0.05:
            return _padded(event, self.chance.choice([300, 3_000, 9_000]))
        if draw < 0.15:
            return _noted(event, self.chance.choice(_ODD_TEXTS))
        return event


def _in_step(log: Log) -> bool:
    return any(closer.type == "step/end" for closer in interrupted_turn_closers(log.events))


def _closers(log: Log, capabilities: Capabilities) -> list[SessionEvent]:
    if capabilities.profile != "session":
        return []
    return interrupted_turn_closers(log.events)


def _padded(event: SessionEvent, length: int) -> SessionEvent:
    return _noted(event, "x" * length)


def _noted(event: SessionEvent, text: str) -> SessionEvent:
    return msgspec.structs.replace(event, data={**event.data, "note": text})
