"""Write-behind: when a session is drained, in which thread or loop, and what a failure leaves."""

from __future__ import annotations

import asyncio
import gc
import threading
from contextlib import suppress
from typing import Any

import pytest

from tests.runtime.stores import AsyncStore
from torntail.explore.live_store import TroubledStore
from torntail.runtime import (
    BufferFull,
    Session,
    SessionClosed,
    SessionRunning,
    StorageDiffers,
    WritePolicy,
    close_all,
    fork,
    resume,
    start,
)
from torntail.session import SessionHeader, encode_header
from torntail.session import vocabulary as words
from torntail.stores.contract import SessionExists, StorageFailed
from torntail.stores.jsonl import JsonlStore
from torntail.stores.memory import MemoryStore

NEVER = 3600.0


def turn(session: Session, number: int) -> None:
    session.add(words.turn_start, turn=number)
    session.add(words.user_message, content=[words.text(f"turn {number}")])
    session.add(words.turn_end, turn=number)


def note(session: Session, *numbers: int) -> None:
    for number in numbers:
        session.append("note", number)


def end_of_drains() -> None:
    """Waits until no drain is under way: their threads end by themselves."""
    while drains := [one for one in threading.enumerate() if one.name.startswith("torntail ses")]:
        for thread in drains:
            # Another test's forgotten session may be starting one just now.
            with suppress(RuntimeError):
                thread.join()


def notes(store: Any, session_id: str = "s") -> list[Any]:
    return [event.data for event in store.inspect(session_id).events]


# --- when ---------------------------------------------------------------------------------------


def test_nothing_is_drained_before_it_is_due() -> None:
    store = TroubledStore()
    session = start(store, "s", policy=WritePolicy(window_seconds=NEVER, checkpoints=False))
    note(session, 1, 2)
    session.checkpoint().wait()
    assert (store.calls, session.saved) == ([], 0)
    session.flush().wait()
    assert (store.calls, session.saved) == ([("create", "s"), ("append", "s")], 2)
    session.close().wait()


def test_a_checkpoint_drains_where_the_policy_asks_for_it() -> None:
    store = TroubledStore()
    with start(store, "s") as session:
        note(session, 1)
        session.checkpoint().wait()
        assert session.saved == 1


def test_a_window_drains_what_came_while_it_ran() -> None:
    store = TroubledStore()
    with start(store, "s", policy=WritePolicy(window_seconds=0.0)) as session:
        note(session, 1)
        assert store.appended.wait(20)
        store.appended.clear()
        note(session, 2)
        assert store.appended.wait(20)


def test_a_flush_with_nothing_new_calls_nothing() -> None:
    store = TroubledStore()
    with start(store, "s") as session:
        note(session, 1)
        session.flush().wait()
        calls = list(store.calls)
        session.flush().wait()
        assert store.calls == calls
    assert store.calls == calls


def test_a_session_without_events_leaves_nothing_in_the_store() -> None:
    store = TroubledStore()
    start(store, "s").close().wait()
    assert store.calls == []


def test_one_drain_holds_all_that_waited() -> None:
    store = TroubledStore()
    session = start(store, "s")
    note(session, *range(1000))
    session.flush().wait()
    assert store.calls == [("create", "s"), ("append", "s")]
    session.close().wait()


def test_no_thread_is_left_when_there_is_nothing_to_do() -> None:
    session = start(MemoryStore(), "s")
    note(session, 1)
    session.flush().wait()
    end_of_drains()
    session.close().wait()
    # It comes back when it is needed.
    session = resume(session._write_behind.claim.store, "s").wait()  # type: ignore[union-attr]
    note(session, 2)
    session.close().wait()


# --- from where ---------------------------------------------------------------------------------


def test_an_asynchronous_store_runs_in_the_loop_of_its_session() -> None:
    store = AsyncStore()

    async def main() -> asyncio.AbstractEventLoop:
        async with start(store, "s") as session:
            note(session, 1, 2)
            await session.flush()
            assert session.saved == 2
        resumed = await resume(store, "s")
        turn(resumed, 1)
        child = await fork(store, "s", new_id="child")
        await close_all([resumed, child])
        return asyncio.get_running_loop()

    loop = asyncio.run(main())
    assert store.loops == {loop}
    assert len(store.inner.inspect("s").events) == 5


def test_an_asynchronous_store_serves_plain_threads_in_one_loop() -> None:
    store = AsyncStore()
    with start(store, "s") as session, start(store, "t") as other:
        note(session, 1)
        note(other, 2)
        session.flush().wait()
    assert (notes(store.inner, "s"), notes(store.inner, "t")) == ([1], [2])
    assert len(store.loops) == 1


def test_a_loop_is_not_blocked_by_what_needs_it() -> None:
    async def main() -> None:
        session = start(AsyncStore(), "s")
        note(session, 1)
        work = session.flush()
        with pytest.raises(RuntimeError, match="await it"):
            work.wait()
        await work
        work.wait()
        await session.close()

    asyncio.run(main())


def test_a_loop_that_has_ended_is_an_error_and_no_hang() -> None:
    async def main() -> Session:
        session = start(AsyncStore(), "s")
        note(session, 1)
        return session

    session = asyncio.run(main())
    with pytest.raises(RuntimeError, match="loop"):
        session.close().wait()


def test_a_synchronous_store_does_not_hold_up_the_loop() -> None:
    store = TroubledStore()

    async def main() -> None:
        async with start(store, "s") as session:
            note(session, 1)
            store.gate.clear()
            work = session.flush()
            while not store.waiting.is_set():
                await asyncio.sleep(0)
            # The loop runs on while the store is in the middle of an append.
            note(session, 2)
            assert not work.done
            store.gate.set()
            await work

    asyncio.run(main())
    assert notes(store) == [1, 2]


def test_a_waiter_that_is_cancelled_does_not_cancel_the_flush() -> None:
    store = TroubledStore()

    async def main() -> None:
        session = start(store, "s")
        note(session, 1)
        store.gate.clear()
        waiter = asyncio.ensure_future(_awaited(session))
        while not store.waiting.is_set():
            await asyncio.sleep(0)
        waiter.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiter
        store.gate.set()
        await session.close()

    asyncio.run(main())
    assert notes(store) == [1]


async def _awaited(session: Session) -> None:
    await session.flush()


# --- what does not fit --------------------------------------------------------------------------


def test_append_refuses_before_memory_has_no_end() -> None:
    store = TroubledStore()
    session = start(store, "s", policy=WritePolicy(maximum_unsaved_bytes=1000))
    assert not session.crowded
    session.append("note", "x" * 600)
    assert session.crowded
    with pytest.raises(BufferFull) as refused:
        session.append("note", "x" * 600)
    assert (refused.value.maximum_bytes, len(session)) == (1000, 1)
    session.flush().wait()
    assert not session.crowded
    session.append("note", "x" * 600)
    session.close().wait()
    assert [len(text) for text in notes(store)] == [600, 600]


def test_what_is_larger_than_the_buffer_passes_alone() -> None:
    store = TroubledStore()
    with start(store, "s", policy=WritePolicy(maximum_unsaved_bytes=1000)) as session:
        session.append("note", "x" * 5000)
    assert [len(text) for text in notes(store)] == [5000]


# --- failures -----------------------------------------------------------------------------------


def test_a_failure_nobody_awaits_is_logged_and_made_good(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = TroubledStore("none stored")
    session = start(store, "s")
    turn(session, 1)
    end_of_drains()
    assert [record.getMessage()[:38] for record in caplog.records] == [
        "session 's' could not be stored yet: s"
    ]
    session.flush().wait()
    assert len(store.stored("s")) == 3
    session.close().wait()


def test_after_a_failure_the_window_does_not_try_again_and_again() -> None:
    store = TroubledStore()
    store.troubles = ["none stored"] * 50
    session = start(store, "s", policy=WritePolicy(window_seconds=0.0))
    note(session, 1)
    while not session._write_behind.failures:  # type: ignore[union-attr]
        store.waiting.wait()
    calls = store.calls.count(("append", "s"))
    note(session, 2, 3, 4)
    end_of_drains()
    assert store.calls.count(("append", "s")) == calls
    store.troubles.clear()
    session.flush().wait()
    assert notes(store) == [1, 2, 3, 4]
    session.close().wait()


def test_several_failures_at_close_come_together() -> None:
    store = TroubledStore("none stored", "none stored")
    session = start(store, "s", policy=WritePolicy(window_seconds=0.0))
    note(session, 1)
    while not session._write_behind.failures:  # type: ignore[union-attr]
        store.waiting.wait()
    with pytest.raises(ExceptionGroup) as failed:
        session.close().wait()
    assert [type(error) for error in failed.value.exceptions] == [StorageFailed, StorageFailed]
    # The events are still there, and close may be tried again.
    session.close().wait()
    assert notes(store) == [1]


def test_all_are_closed_whatever_becomes_of_one() -> None:
    store, broken = TroubledStore(), TroubledStore("none stored")
    sessions = [start(store, "a"), start(broken, "b"), start(store, "c")]
    for session in sessions:
        note(session, 1)
    with pytest.raises(ExceptionGroup) as failed:
        close_all(sessions).wait()
    assert [str(error) for error in failed.value.exceptions] == [
        "session 'b': append of a disk failed: the disk says no; call reopen() before appending "
        "again"
    ]
    assert (notes(store, "a"), notes(store, "c")) == ([1], [1])
    close_all(sessions).wait()
    assert notes(broken, "b") == [1]


def test_an_id_that_is_taken_in_storage_is_refused_at_the_first_flush_and_for_ever() -> None:
    store = MemoryStore()
    with start(store, "s") as first:
        note(first, 1)
    second = start(store, "s")
    note(second, 2)
    for _attempt in range(2):
        with pytest.raises(SessionExists):
            second.flush().wait()
    assert notes(store) == [1]


def test_an_id_that_was_loaded_is_taken() -> None:
    store = MemoryStore()
    with start(store, "s") as first:
        note(first, 1)
    store.load("s")
    second = start(store, "s")
    second.append("note", 1)
    with pytest.raises(SessionExists):
        second.flush().wait()


def test_an_id_that_another_store_object_took_is_never_taken_for_ours(tmp_path: Any) -> None:
    with JsonlStore(tmp_path) as store:
        session = start(store, "s")
        note(session, 1)

        class Late(JsonlStore):
            """Makes the session between its announcement and its first flush."""

            def append(self, session_id: str, events: Any) -> None:
                with JsonlStore(tmp_path) as other, suppress(SessionExists):
                    other.create(session.header)
                    other.append("s", session.events())
                super().append(session_id, events)

        store.__class__ = Late
        # Not even where it looks the same: one of the two would write behind the other's back.
        for _attempt in range(2):
            with pytest.raises(SessionExists):
                session.flush().wait()


def test_storage_that_lost_what_it_acknowledged_is_a_conflict() -> None:
    store = TroubledStore()
    session = start(store, "s")
    note(session, 1, 2)
    session.flush().wait()
    store.troubles.append("none stored")
    note(session, 3)
    with pytest.raises(StorageFailed):
        session.flush().wait()
    del store._inner._sessions["s"].lines[1:]
    with pytest.raises(StorageDiffers, match="holds 1 events where 2 were acknowledged") as told:
        session.flush().wait()
    assert told.value.seq == 1


def test_another_session_of_the_id_is_told_by_its_header() -> None:
    store = TroubledStore("all stored")
    session = start(store, "s", cwd="/here")
    note(session, 1)
    with pytest.raises(StorageFailed):
        session.flush().wait()
    other = SessionHeader("s", session.header.created_at, "/elsewhere")
    store._inner._sessions["s"].header = encode_header(other)
    with pytest.raises(StorageDiffers, match="another session of this id"):
        session.flush().wait()


def test_storage_that_holds_more_than_the_log_is_a_conflict() -> None:
    store = TroubledStore()
    session = start(store, "s")
    note(session, 1)
    session.flush().wait()
    store.troubles.append("all stored")
    note(session, 2)
    with pytest.raises(StorageFailed):
        session.flush().wait()
    line = store._inner._sessions["s"].lines[1]
    store._inner._sessions["s"].lines.append(line.replace(b'"seq":1', b'"seq":2'))
    with pytest.raises(StorageDiffers, match="never appended here"):
        session.flush().wait()


def test_a_store_that_cannot_reopen_is_simply_tried_again() -> None:
    store = TroubledStore()

    class Bare:
        """The two calls that every store has."""

        create = store._inner.create
        failures = 1

        def append(self, session_id: str, events: Any) -> None:
            if self.failures:
                self.failures -= 1
                raise OSError("not now")
            store._inner.append(session_id, events)

    session = start(Bare(), "s")
    note(session, 1)
    with pytest.raises(OSError, match="not now"):
        session.flush().wait()
    session.close().wait()
    assert notes(store) == [1]


def test_a_store_that_forgets_an_announcement_is_told_again() -> None:
    store = TroubledStore()
    append = store.append

    def forgetful(session_id: str, events: Any) -> None:
        if store.calls.count(("create", session_id)) == 1:
            del store._inner._sessions[session_id]
            raise OSError("not now")
        append(session_id, events)

    store.append = forgetful  # type: ignore[method-assign]
    session = start(store, "s")
    note(session, 1)
    with pytest.raises(OSError, match="not now"):
        session.flush().wait()
    session.close().wait()
    assert notes(store) == [1]


def test_no_thread_for_a_drain_is_a_drain_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    store = TroubledStore()
    session = start(store, "s")

    def cannot(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", cannot)
        turn(session, 1)
        assert len(session) == 3
        with pytest.raises(RuntimeError, match="new thread"):
            session.flush().wait()
    session.close().wait()
    assert len(store.stored("s")) == 3


def test_failures_in_the_background_are_not_kept_without_end() -> None:
    store = TroubledStore()
    store.troubles = ["none stored"] * 20
    session = start(store, "s")
    for number in range(1, 13):
        turn(session, number)
        end_of_drains()
    with pytest.raises(ExceptionGroup) as failed:
        session.close().wait()
    assert len(failed.value.exceptions) == 9
    store.troubles.clear()
    session.close().wait()
    assert len(store.stored("s")) == 36


def test_what_cannot_be_stored_can_be_given_up() -> None:
    store = TroubledStore()
    session = start(store, "s")
    note(session, 1)
    session.flush().wait()
    store.troubles.append("others stored")
    note(session, 2, 3)
    with pytest.raises(StorageFailed):
        session.flush().wait()
    with pytest.raises(StorageDiffers):
        session.close().wait()
    assert session.abandon() == 2
    with pytest.raises(SessionClosed):
        session.flush().wait()
    with pytest.raises(SessionClosed):
        note(session, 4)
    with resume(store, "s").wait() as resumed:
        assert len(resumed) == 3


# --- ids ----------------------------------------------------------------------------------------


def test_one_live_session_of_an_id_over_a_store() -> None:
    store, elsewhere = MemoryStore(), MemoryStore()
    session = start(store, "s")
    with pytest.raises(SessionRunning):
        start(store, "s")
    start(elsewhere, "s").close().wait()
    session.close().wait()
    start(store, "s").close().wait()


def test_a_forgotten_session_gives_its_id_free() -> None:
    store = MemoryStore()
    session = start(store, "s")
    del session
    gc.collect()
    start(store, "s").close().wait()


def test_a_forgotten_session_is_stored_before_its_id_is_free() -> None:
    store = TroubledStore()
    store.gate.clear()
    session = start(store, "s")
    note(session, 1, 2)
    del session
    gc.collect()
    with pytest.raises(SessionRunning):
        start(store, "s")
    store.gate.set()
    assert store.appended.wait(20)
    end_of_drains()
    gc.collect()
    assert notes(store) == [1, 2]
    resume(store, "s").wait().close().wait()
