"""What happened to a store whose disk said no, as values: the calls, the faults, and what is owed.

Decides the vocabulary that driver and judge of I/O errors exchange. Does not decide which answers
are right (`io`) or which faults are tried (`explore`).
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import msgspec

from torntail.judge.history import Append, Create, Load, Operation, Reopen
from torntail.judge.recovery import Answer
from torntail.session import SessionEvent, SessionHeader

__all__ = [
    "TAKINGS",
    "IoCall",
    "IoStep",
    "Revive",
    "Standing",
    "Struck",
    "Take",
    "Taking",
    "call_session",
]

Events: TypeAlias = tuple[SessionEvent, ...]

Taking: TypeAlias = Literal[
    "unlinked", "replaced by a copy", "replaced by an older copy", "cut", "emptied"
]
"""What the driver does to a session's file under a live writer (IO-6)."""

TAKINGS: Final[tuple[Taking, ...]] = (
    "unlinked",
    "replaced by a copy",
    "replaced by an older copy",
    "cut",
    "emptied",
)


class Struck(msgspec.Struct, frozen=True):
    """A file operation that the fault struck during a call.

    `kind` is a word of `crash.io_faults.IoOperation`, `error` the name of the errno, None for a
    short write. `done` of `size` bytes of a write were carried out. `own`: an fsync of a file to
    which this call had written. `again`: an error that had been reported once already.
    """

    kind: str
    error: str | None
    done: int = 0
    size: int = 0
    own: bool = False
    again: bool = False


class Revive(msgspec.Struct, frozen=True, tag_field="operation", tag="revive"):
    """`reopen(session)` of the store object, where it has one."""

    session: str


class Take(msgspec.Struct, frozen=True, tag_field="operation", tag="take"):
    """The driver changes the session's file, in `path`, while the store object lives."""

    session: str
    how: Taking
    path: str = ""


IoCall: TypeAlias = Operation | Revive | Take


class IoStep(msgspec.Struct, frozen=True):
    """One call, what came of it, and what struck it.

    `next_seq` is what `reopen` returned. `lifted`: the fault was over before this call began.
    `wrote_refused`: an append wrote events that an earlier one had raised over and that are not
    its own.
    """

    call: IoCall
    outcome: Answer
    struck: tuple[Struck, ...] = ()
    next_seq: int | None = None
    lifted: bool = False
    wrote_refused: bool = False

    @property
    def errors(self) -> tuple[Struck, ...]:
        """The operations that failed; a short write is none."""
        return tuple(one for one in self.struck if one.error is not None)


class Standing(msgspec.Struct, frozen=True):
    """What a store owes of one session at a moment, some of its calls having failed.

    `acknowledged` is A. Each of `alternatives` begins with it: storage holds a prefix of one of
    them that is no shorter than A, which is S of the contract where an append that failed may have
    been followed by another one that has not returned. `shown` is what the last load of this store
    object gave. `touched`: the object has created or loaded the session. `dead`: an fsync of its
    own bytes has failed, and it may not append before `reopen` (IO-3). `unrepaired`: its last load
    was marked not durable. `refused` are the events of appends that raised.
    """

    header: SessionHeader
    acknowledged: Events = ()
    alternatives: tuple[Events, ...] = ((),)
    shown: Events | None = None
    touched: bool = True
    announced: bool = True
    dead: bool = False
    unrepaired: bool = False
    refused: Events = ()


def call_session(call: IoCall) -> str | None:
    """The session a call is about."""
    match call:
        case Create(header=header):
            return header.id
        case Append(session=session) | Load(session=session):
            return session
        case Revive(session) | Take(session=session):
            return session
        case Reopen():
            return None
    return None
