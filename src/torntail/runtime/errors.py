"""What a live session refuses, each its own type with the facts as attributes.

Errors of the store itself (`torntail.stores.contract`) pass through as they are; an event that JSON
cannot carry is the store's `NotSerializable`, told at the append already.
"""

from __future__ import annotations

from typing import ClassVar

__all__ = [
    "BufferFull",
    "LiveError",
    "NoStore",
    "SessionClosed",
    "SessionRunning",
    "StorageDiffers",
    "TurnGrammarBroken",
]


class LiveError(Exception):
    """Any refusal of a live session; `session_id` names it.

    `kind` is the word by which a store's errors are known, too.
    """

    kind: ClassVar[str] = "other"

    def __init__(self, message: str, session_id: str) -> None:
        super().__init__(message)
        self.session_id = session_id

    def __str__(self) -> str:
        # Ids are not trusted to be printable.
        return str(self.args[0]).encode("utf-8", "backslashreplace").decode("utf-8")


class TurnGrammarBroken(LiveError):
    """An event that may not come here (LV-2); nothing was appended."""

    def __init__(self, session_id: str, event_type: str, seq: int, problem: str) -> None:
        super().__init__(f"session {session_id!r}, seq {seq}: {problem}", session_id)
        self.event_type = event_type
        self.seq = seq
        self.problem = problem


class SessionClosed(LiveError):
    """An append to a session that is closed, or being closed; or a flush of one given up."""

    kind = "closed"

    def __init__(self, session_id: str) -> None:
        super().__init__(f"session {session_id!r} is closed", session_id)


class SessionRunning(LiveError):
    """A session of this id is running in this process, over the same store (LV-3)."""

    kind = "conflict"

    def __init__(self, session_id: str) -> None:
        super().__init__(
            f"session {session_id!r} is running over this store already; close it first, or fork "
            "it",
            session_id,
        )


class NoStore(LiveError):
    """A call that reads a stored session, without a store to read it from (LV-3)."""

    def __init__(self, call: str, session_id: str) -> None:
        super().__init__(
            f"cannot {call} session {session_id!r} without a store: a session that runs without "
            "one ends with its process",
            session_id,
        )


class BufferFull(LiveError):
    """More waits to be stored than the policy allows: flush before appending on.

    Nothing was appended. `unsaved_bytes` is what waits.
    """

    def __init__(self, session_id: str, unsaved_bytes: int, maximum_bytes: int) -> None:
        super().__init__(
            f"session {session_id!r}: {unsaved_bytes} bytes wait to be stored, {maximum_bytes} are "
            "allowed; flush before appending",
            session_id,
        )
        self.unsaved_bytes = unsaved_bytes
        self.maximum_bytes = maximum_bytes


class StorageDiffers(LiveError):
    """Storage holds something else than this session under the same seq (LV-1).

    `seq` is the first place where they differ. Nothing is written over it.
    """

    kind = "conflict"

    def __init__(self, session_id: str, seq: int, reason: str) -> None:
        super().__init__(f"session {session_id!r}, seq {seq}: {reason}", session_id)
        self.seq = seq
        self.reason = reason
