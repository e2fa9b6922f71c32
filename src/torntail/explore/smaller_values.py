"""The same calls with smaller values in them: short names and texts, small numbers, little payload.

Decides which values are made smaller, how, and in which order: all at once, one kind at a time, one
call at a time. What a log means is left alone: types, ids of calls, numbers of turns, marks. Does
not decide whether smaller calls still show a fault, or how long that is sought.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

import msgspec

from torntail.judge.history import (
    MARK_KEY,
    Append,
    Create,
    Damage,
    Inspect,
    Load,
    Operation,
    Together,
)
from torntail.session import SessionEvent
from torntail.session.turns import EVENT_KINDS

__all__ = ["renamed", "short_names", "smaller_values", "volume"]

Calls: TypeAlias = tuple[Operation, ...]
_Change: TypeAlias = Callable[[Operation], Operation]

_MEANINGFUL: Final = frozenset(
    {MARK_KEY, "callId", "id", "type", "kind", "name", "arguments", "turn", "step"}
)
"""Keys whose values say what an event is."""

_LETTERS: Final = "abcdefghijklmnopqrstuvwxyz"


def volume(calls: Sequence[Operation]) -> int:
    """How much stands in calls: the characters it takes to write them."""
    return len(repr(msgspec.to_builtins(calls)))


def smaller_values(calls: Calls) -> Iterator[Calls]:
    """Calls with smaller values than these, the boldest first; some are no smaller."""
    names = short_names(calls)
    yield _everywhere(renamed(calls, names), _CHANGES)
    yield renamed(calls, names)
    for change in _CHANGES:
        yield _everywhere(calls, [change])
    for name, short in names.items():
        if short not in names:
            yield renamed(calls, {name: short})
    alone = [_CHANGES, *([change] for change in (*_CHANGES, *_CUTS))]
    for index in reversed(range(len(calls))):
        for changes in alone:
            changed = _everywhere(calls[index : index + 1], changes)
            yield (*calls[:index], *changed, *calls[index + 1 :])


def _everywhere(calls: Calls, changes: Sequence[_Change]) -> Calls:
    for change in changes:
        calls = tuple(map(change, calls))
    return calls


# --- names of sessions ------------------------------------------------------------------------


def short_names(calls: Sequence[Operation]) -> dict[str, str]:
    """A letter for each session, in the order in which they are created."""
    created = dict.fromkeys(call.header.id for call in calls if isinstance(call, Create))
    return dict(zip(created, _LETTERS, strict=False))


def renamed(calls: Sequence[Operation], names: Mapping[str, str]) -> Calls:
    """The calls with other names for sessions."""
    return tuple(_renamed(call, names) for call in calls)


def _renamed(call: Operation, names: Mapping[str, str]) -> Operation:
    replace = msgspec.structs.replace
    match call:
        case Create(header=header):
            parent = header.parent_session
            parent = None if parent is None else names.get(parent, parent)
            name = names.get(header.id, header.id)
            return replace(call, header=replace(header, id=name, parent_session=parent))
        case Append(session=session) | Load(session=session) | Inspect(session=session):
            return replace(call, session=names.get(session, session))
        case Damage(session=session, other=other):
            return replace(call, session=names.get(session, session), other=names.get(other, other))
        case Together(operations=operations):
            return replace(call, operations=renamed(operations, names))
    return call


# --- what stands in a call --------------------------------------------------------------------


def _of_events(change: Callable[[SessionEvent], SessionEvent]) -> _Change:
    """The change of a call that a change of its events makes."""

    def changed(call: Operation) -> Operation:
        if isinstance(call, Append):
            return msgspec.structs.replace(call, events=tuple(map(change, call.events)))
        return call

    return changed


def _of_data(change: Callable[[Any], Any]) -> _Change:
    """The change of a call that a change of each value in its events' data makes."""

    def deep(value: Any) -> Any:
        if isinstance(value, list):
            return [deep(member) for member in value]
        if isinstance(value, dict):
            return {
                key: member
                if key in _MEANINGFUL and not isinstance(member, list | dict)
                else deep(member)
                for key, member in value.items()
            }
        return change(value)

    return _of_events(lambda event: msgspec.structs.replace(event, data=deep(event.data)))


def _plain_header(call: Operation) -> Operation:
    """A header made at time 0 in a short folder, without further keys."""
    if not isinstance(call, Create):
        return call
    cwd = call.header.cwd
    header = msgspec.structs.replace(
        call.header, created_at=0, cwd=None if cwd is None else cwd[:2], extra=None
    )
    return msgspec.structs.replace(call, header=header)


def _without_payload(event: SessionEvent) -> SessionEvent:
    """An event without further keys and, where its type means nothing, with its mark alone."""
    event = msgspec.structs.replace(event, extra=None)
    if event.type in EVENT_KINDS:
        return event
    marked = isinstance(event.data, dict) and MARK_KEY in event.data
    data = {MARK_KEY: event.data[MARK_KEY]} if marked else None
    return msgspec.structs.replace(event, data=data)


def _at_time_0(event: SessionEvent) -> SessionEvent:
    return msgspec.structs.replace(event, time=0)


def _short_text(value: Any) -> Any:
    return value[:1] if isinstance(value, str) else value


def _small_number(value: Any) -> Any:
    """0 or 1, of the same kind."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    return type(value)(bool(value))


def _cut(start: int, stop: int) -> _Change:
    """Keeps of each text what stands between two of its quarters."""

    def cut(value: Any) -> Any:
        if not isinstance(value, str):
            return value
        return value[len(value) * start // 4 : -(-len(value) * stop // 4)]

    return _of_data(cut)


_CHANGES: Final[Sequence[_Change]] = (
    _plain_header,
    _of_events(_at_time_0),
    _of_events(_without_payload),
    _of_data(_short_text),
    _of_data(_small_number),
)
_CUTS: Final[Sequence[_Change]] = (_cut(0, 2), _cut(2, 4), _cut(1, 4), _cut(0, 3))
