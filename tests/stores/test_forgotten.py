"""Store objects that are forgotten, and appends that find a session taken."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

from torntail.session import SessionEvent, SessionHeader
from torntail.stores.contract import WriterConflict
from torntail.stores.jsonl import JsonlStore


def note(seq: int) -> SessionEvent:
    return SessionEvent("note", seq, 0, {})


def test_a_store_forgotten_without_close_frees_the_session(tmp_path: Path) -> None:
    store = JsonlStore(tmp_path)
    store.create(SessionHeader("a", 0))
    store.append("a", [note(0)])
    del store
    gc.collect()
    with JsonlStore(tmp_path) as other:
        other.append("a", [note(1)])
        assert [event.seq for event in other.load("a").events] == [0, 1]


def test_an_append_that_met_a_conflict_looks_anew_the_next_time(tmp_path: Path) -> None:
    with JsonlStore(tmp_path) as other:
        with JsonlStore(tmp_path) as writer:
            writer.create(SessionHeader("a", 0))
            writer.append("a", [note(0)])
            with pytest.raises(WriterConflict):
                other.append("a", [note(1)])
            writer.append("a", [note(1)])
        other.append("a", [note(2)])
        assert [event.seq for event in other.load("a").events] == [0, 1, 2]
