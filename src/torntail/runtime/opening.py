"""Where a live session comes from: started anew, resumed, or forked from another.

Decides LV-3 and LV-4. Starting reads and writes nothing; the other two read the store.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

from torntail.runtime.claims import Claim
from torntail.runtime.errors import LiveError, NoStore
from torntail.runtime.live_session import Session, epoch_milliseconds
from torntail.runtime.store_calls import StoreCalls
from torntail.runtime.work import Work, begin
from torntail.runtime.write_behind import WritePolicy
from torntail.session import SessionHeader, interrupted_turn_closers
from torntail.session.events import Json

__all__ = ["fork", "resume", "start"]

Clock = Callable[[], int | float]


def start(
    store: Any = None,
    session_id: str | None = None,
    *,
    cwd: str | None = None,
    extra: dict[str, Json] | None = None,
    policy: WritePolicy | None = None,
    clock: Clock = epoch_milliseconds,
) -> Session:
    """A new session, over a store or without one; under an id that is made up if none is given.

    `cwd` and further keys, `extra`, go into the header. Nothing is read or written: that the id is
    taken in storage is told by the first flush (`SessionExists`); that a session of it runs here
    already, at once (`SessionRunning`).
    """
    chosen = uuid.uuid4().hex if session_id is None else session_id
    header = SessionHeader(chosen, clock(), cwd, extra=extra)
    if store is None:
        return Session(header, clock=clock)
    return Session(
        header,
        clock=clock,
        calls=StoreCalls(store),
        claim=Claim(store, header.id),
        policy=policy,
    )


def resume(
    store: Any,
    session_id: str,
    *,
    policy: WritePolicy | None = None,
    clock: Clock = epoch_milliseconds,
) -> Work[Session]:
    """The stored session, running again: its interrupted turn closed, its numbers going on.

    `await` it, or `wait()` for it. Takes the writer's lock at once: a session that another process
    runs is refused (`WriterConflict`), as is one that runs in this process (`SessionRunning`).
    Raises `NoStore` without a store, and what `load` and `reopen` raise.
    """
    if store is None:
        raise NoStore("resume", session_id)
    calls = StoreCalls(store)
    claim = Claim(store, session_id)

    def load() -> Session:
        try:
            loaded = calls.call("load", session_id)
            # Takes the writer's lock, or says who has it; under it nothing changes any more.
            if calls.has("reopen") and (
                calls.call("reopen", session_id) != len(loaded.events) or not loaded.repair.durable
            ):
                loaded = calls.call("load", session_id)
            if not loaded.repair.durable:
                reason = loaded.repair.reason or "the store does not say why"
                raise LiveError(
                    f"session {session_id!r} cannot be written to: {reason}", session_id
                )
            return Session(
                loaded.header,
                loaded.events,
                clock=clock,
                calls=calls,
                claim=claim,
                policy=policy,
                created=True,
                repair=loaded.repair,
            )
        except BaseException:
            claim.free()
            raise

    return begin(load, "torntail resume", calls.loop)


def fork(
    store: Any,
    session_id: str,
    *,
    at: int | None = None,
    new_id: str | None = None,
    policy: WritePolicy | None = None,
    clock: Clock = epoch_milliseconds,
) -> Work[Session]:
    """A new session that begins with the events stored of another, which is not touched.

    `at` says how many of them, all if not given; what the source holds in memory only does not
    count. A turn that is open there is closed in the child. The child is durable before it is given
    back: `await` it, or `wait()` for it. Raises `ValueError` for an `at` outside the source,
    `NoStore` without a store, and what `inspect`, `create` and `append` raise.
    """
    if store is None:
        raise NoStore("fork", session_id)
    calls = StoreCalls(store)
    child_id = uuid.uuid4().hex if new_id is None else new_id
    claim = Claim(store, child_id)

    def copy() -> Session:
        try:
            # Not load, which would close the turn of a source that is running.
            source = calls.call("inspect", session_id)
            stored = source.events[: len(source.events) - len(source.repair.closers)]
            length = len(stored) if at is None else at
            if not 1 <= length <= len(stored):
                raise ValueError(f"at is {length}: session {session_id!r} has 1 to {len(stored)}")
            seed = stored[:length]
            events = [*seed, *interrupted_turn_closers(seed)]
            header = SessionHeader(
                child_id,
                clock(),
                source.header.cwd,
                parent_session=source.header.id,
                seed_length=length,
            )
            calls.call("create", header)
            calls.call("append", child_id, events)
            return Session(
                header,
                events,
                clock=clock,
                calls=calls,
                claim=claim,
                policy=policy,
                created=True,
            )
        except BaseException:
            claim.free()
            raise

    return begin(copy, "torntail fork", calls.loop)
