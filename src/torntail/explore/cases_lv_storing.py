"""The cases of LV-1: what a live layer drains, when, and what it makes of a store that says no.

Each case is a function of a layer, its name a sentence, that raises `LiveFinding`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from torntail.explore.live import LiveLayer, expect, happens, in_time, refused
from torntail.explore.live_store import Trouble, TroubledStore
from torntail.explore.live_words import (
    OPEN,
    TURN,
    expect_stored,
    flush,
    same,
    say,
    tool_result,
    turn_start,
    user,
)
from torntail.session import SessionEvent

__all__ = ["STORING"]


def append_does_not_wait_for_the_store(layer: LiveLayer) -> None:
    """LV-1: an append returns while the store is in the middle of a drain."""
    store = TroubledStore()
    session = layer.start(store, "a")
    store.gate.clear()
    try:
        in_time("LV-1", lambda: say(session, *TURN), "append waits for the store")
        happens("LV-1", store.waiting, "a turn/end did not drain the buffer")
        in_time("LV-1", lambda: say(session, turn_start(2)), "append waits for a drain")
    finally:
        store.gate.set()
    session.close()
    expect_stored("LV-1", store, session, "after close")


def a_turn_end_drains(layer: LiveLayer) -> None:
    """LV-1: a turn that has ended is stored without a flush."""
    store = TroubledStore()
    session = layer.start(store, "a")
    say(session, *TURN)
    happens("LV-1", store.appended, "a turn/end did not drain the buffer")
    session.close()


def flush_stores_everything_in_order(layer: LiveLayer) -> None:
    """LV-1: after a flush storage holds the log."""
    store = TroubledStore()
    session = layer.start(store, "a")
    for said in OPEN:
        say(session, said)
        session.flush()
        expect_stored("LV-1", store, session, "after flush")
    header = store.stored_header("a")
    expect("LV-1", header == session.header, "storage holds another header")
    session.close()


def close_drains(layer: LiveLayer) -> None:
    """LV-1: after close storage holds the log, its open turn left open."""
    store = TroubledStore()
    session = layer.start(store, "a")
    say(session, *OPEN)
    session.close()
    expect_stored("LV-1", store, session, "after close")
    refused("LV-1", lambda: say(session, user()), "a closed session takes events")


def a_drain_that_failed_is_told_and_made_good(layer: LiveLayer) -> None:
    """LV-1: the flush raises, keeps the buffer, and the next one stores all of it once."""
    troubles: tuple[Trouble, ...] = ("none stored", "first stored", "all stored")
    for trouble in troubles:
        store = TroubledStore()
        session = layer.start(store, "a")
        say(session, *OPEN[:2])
        session.flush()
        store.troubles.append(trouble)
        say(session, *OPEN[2:])
        where = f"an append that failed with {trouble}"
        refused("LV-1", session.flush, f"{where} is not told by the flush")
        expect("LV-1", len(session.events()) == len(OPEN), f"{where} changed the log")
        # The open turn goes on.
        say(session, tool_result("c1"))
        flush("LV-1", session, f"the flush after {where}")
        expect_stored("LV-1", store, session, f"after {where}")
        expect("LV-1", ("load", "a") not in store.calls, f"{where} was followed by a load")
        session.close()


def a_first_drain_that_failed_is_made_good(layer: LiveLayer) -> None:
    """LV-1: so too where nothing was stored before."""
    troubles: tuple[Trouble, ...] = ("none stored", "first stored", "all stored")
    for trouble in troubles:
        store = TroubledStore(trouble)
        session = layer.start(store, "a")
        say(session, *OPEN)
        where = f"a first append that failed with {trouble}"
        refused("LV-1", session.flush, f"{where} is not told by the flush")
        flush("LV-1", session, f"the flush after {where}")
        expect_stored("LV-1", store, session, f"after {where}")
        session.close()


def a_drain_that_fails_again_is_told_again(layer: LiveLayer) -> None:
    """LV-1: each flush that stores nothing says so, and nothing is reordered meanwhile."""
    store = TroubledStore("none stored", "none stored")
    session = layer.start(store, "a")
    for said in OPEN[:2]:
        say(session, said)
        refused("LV-1", session.flush, "a flush that stored nothing is silent")
    say(session, *OPEN[2:])
    flush("LV-1", session, "the flush after two failures")
    expect_stored("LV-1", store, session, "after two failures")
    session.close()


def other_content_in_storage_is_a_conflict(layer: LiveLayer) -> None:
    """LV-1: what storage holds under a seq of the buffer is looked at, and not written over."""
    store = TroubledStore()
    session = layer.start(store, "a")
    say(session, *OPEN[:2])
    session.flush()
    store.troubles.append("others stored")
    say(session, *OPEN[2:])
    refused("LV-1", session.flush, "an append that failed is not told by the flush")
    held = store.stored("a")
    refused("LV-1", session.flush, "other events under the same seqs are taken for its own")
    expect("LV-1", same(store.stored("a"), held), "other events in storage were written over")
    refused("LV-1", session.close, "close is silent about a conflict")


def what_is_stored_is_what_was_appended(layer: LiveLayer) -> None:
    """LV-1: to change an event later, in anybody's hands, changes neither log nor storage."""
    store = TroubledStore()
    session = layer.start(store, "a")
    told: list[SessionEvent] = []
    session.subscribe(told.append)
    say(session, *OPEN[:1])
    kind, data = user("as it was")
    returned = session.append(kind, data, "append")
    for event_data in (data, returned.data, told[-1].data):
        event_data["content"][0]["text"] = "changed"
    session.flush()
    for place, events in (("log", session.events()), ("storage", store.stored("a"))):
        text = events[1].data["content"][0]["text"]
        expect("LV-1", text == "as it was", f"an event changed by its holder is changed in {place}")
    session.close()


def subscribers_are_told_what_the_log_has(layer: LiveLayer) -> None:
    """LV-1: in order, and never before the log."""
    session = layer.start(TroubledStore(), "a")
    told: list[tuple[int, int]] = []
    session.subscribe(lambda event: told.append((event.seq, len(session.events()))))
    say(session, *OPEN)
    expect("LV-1", [seq for seq, _ in told] == [*range(len(OPEN))], "told in another order")
    expect("LV-1", all(length > seq for seq, length in told), "told before the log has it")
    session.close()


STORING: Final[Sequence[Callable[[LiveLayer], None]]] = (
    append_does_not_wait_for_the_store,
    a_turn_end_drains,
    flush_stores_everything_in_order,
    close_drains,
    a_drain_that_failed_is_told_and_made_good,
    a_first_drain_that_failed_is_made_good,
    a_drain_that_fails_again_is_told_again,
    other_content_in_storage_is_a_conflict,
    what_is_stored_is_what_was_appended,
    subscribers_are_told_what_the_log_has,
)
"""The cases of LV-1."""
