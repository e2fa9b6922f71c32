"""What several processes did to one store, and what came of it: the values of the clauses MW.

As `history`, of which the calls and their outcomes are taken. A step is made by one process, or by
several at once; every process has one store object over the same storage. Decides nothing.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from torntail.judge.history import Append, Close, Create, Inspect, Load, Outcome, Reopen, Returned

__all__ = [
    "Age",
    "Ask",
    "AtOnce",
    "Hear",
    "Signal",
    "SignalKind",
    "Tell",
    "WriterCall",
    "WriterObservation",
    "WriterStep",
    "WritersHistory",
]

WriterCall: TypeAlias = Create | Append | Load | Inspect | Close | Reopen
"""What a process may be asked; `Reopen` is a new store object in the same process."""


class Ask(msgspec.Struct, frozen=True, tag_field="step", tag="ask"):
    """A process makes a call, and its answer is awaited."""

    writer: str
    call: WriterCall


class Tell(msgspec.Struct, frozen=True, tag_field="step", tag="tell"):
    """A process is told to make a call; nothing is awaited."""

    writer: str
    call: WriterCall


class Hear(msgspec.Struct, frozen=True, tag_field="step", tag="hear"):
    """The answer to what a process was told is awaited."""

    writer: str


class AtOnce(msgspec.Struct, frozen=True, tag_field="step", tag="at-once"):
    """Several processes are told to make a call, and then all are heard."""

    asks: tuple[Ask, ...]


SignalKind: TypeAlias = Literal["stop", "continue", "kill", "fork"]


class Signal(msgspec.Struct, frozen=True, tag_field="step", tag="signal"):
    """A process is stopped, continued or killed (SIGSTOP, SIGCONT, SIGKILL), or forks a child that
    does nothing and lives on.
    """

    writer: str
    kind: SignalKind


class Age(msgspec.Struct, frozen=True, tag_field="step", tag="age"):
    """The times of all files in storage are put back by an hour."""


WriterStep: TypeAlias = Ask | Tell | Hear | AtOnce | Signal | Age


class WriterObservation(msgspec.Struct, frozen=True):
    """A step, what came of its call, and which files with data it changed."""

    step: WriterStep
    outcome: Outcome = Returned()
    changed: tuple[str, ...] = ()


WritersHistory: TypeAlias = tuple[WriterObservation, ...]
