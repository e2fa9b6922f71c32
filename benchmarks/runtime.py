"""A live session: what an append costs, how often a turn is synced, how the history grows."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from unittest.mock import patch

from benchmarks.events import TIME, WORDS, session
from benchmarks.measure import Measured, best_of
from torntail.runtime import Session, start
from torntail.session import SessionHeader, encode_event
from torntail.session import vocabulary as words
from torntail.stores.jsonl import JsonlStore

APPEND_BAR_SECONDS = 15e-6
SYNCS_BAR = 2
EVENTS = 100_000
NEW = 20

# The history of a long session may cost so many times what that of a short one does, for the same
# new events: the list of its messages is the caller's own.
GROWTH_BAR = 2.0


def run(directory: Path) -> Iterator[Measured]:
    yield _append(directory)
    yield _syncs(directory)
    yield _history()


def _append(directory: Path) -> Measured:
    chunk = {"type": "text-delta", "index": 0, "text": (WORDS * 3)[:160]}
    rounds, repeats = 20, 2000
    best = float("inf")
    size = 0
    with JsonlStore(directory / "append") as store:
        for number in range(rounds):
            live = start(store, f"s{number}")
            live.add(words.turn_start, turn=1)
            live.add(words.step_start, turn=1, step=1)
            begun = time.process_time()
            for _ in range(repeats):
                live.append("assistant/chunk", {"turn": 1, "step": 1, "chunk": chunk})
            best = min(best, (time.process_time() - begun) / repeats)
            size = len(encode_event(live.events(-1)[0]))
            live.close().wait()
    return Measured(
        "runtime",
        f"Session.append of {size} bytes against {APPEND_BAR_SECONDS * 1e6:.0f} µs (a store behind "
        "it, no subscribers)",
        "s",
        best,
        APPEND_BAR_SECONDS,
        rounds,
        1.0,
    )


def _syncs(directory: Path) -> Measured:
    synced: list[int] = []
    real = os.fsync

    def counted(descriptor: int) -> None:
        synced.append(descriptor)
        real(descriptor)

    with JsonlStore(directory / "syncs") as store, start(store, "s") as live:
        live.add(words.turn_start, turn=1)
        live.add(words.turn_end, turn=1)
        live.flush().wait()
        with patch("os.fsync", counted):
            _turn(live, chunks=1000)
            live.flush().wait()
    return Measured(
        "runtime",
        "fsyncs of a turn of 1,000 chunks, flushed behind a first one, against 2",
        "",
        len(synced),
        SYNCS_BAR,
        1,
        1.0,
    )


def _turn(live: Session, chunks: int) -> None:
    at = {"turn": live.turn + 1, "step": 1}
    live.add(words.turn_start, turn=at["turn"])
    live.add(words.user_message, content=[words.text(WORDS)])
    live.add(words.step_start, **at)
    for index in range(chunks):
        piece = {"type": "text-delta", "index": 0, "text": WORDS[index % 70 :]}
        live.add(words.assistant_chunk, **at, chunk=piece)
    live.add(words.assistant_message, **at, content=[words.text(WORDS)])
    live.add(words.step_end, **at)
    live.add(words.turn_end, turn=at["turn"])


def _history() -> Measured:
    short, long = (
        Session(SessionHeader("s", TIME), islice(session(), events)) for events in (1000, EVENTS)
    )
    for live in (short, long):
        live.derive_messages(private=False)

    def grow(live: Session) -> int:
        for _ in range(NEW):
            live.append("user/message", {"content": [words.text(WORDS)], "source": words.USER})
        return len(live.derive_messages(private=False))

    floor, value = best_of(20, 5, lambda: grow(short), lambda: grow(long))
    return Measured(
        "runtime",
        f"{NEW} messages and the history they make, in a session of {EVENTS} events against one "
        "of 1,000",
        "s",
        value,
        floor,
        20,
        GROWTH_BAR,
    )
