"""Small stores that several processes may write, made to be broken in one place at a time.

`LockedStore` lets one writer append and others look, `ManyStore` lets each append whose first seq
is the next. Every step that makes them safe has one method that a member of the zoo can override.
"""

from __future__ import annotations

import fcntl
import os
import weakref
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from tests.zoo.plain import Events, PlainStore, factory
from torntail.session import SessionEvent, SessionHeader
from torntail.stores.contract import LoadResult, SequenceMismatch, SessionExists, WriterConflict


class LockedStore(PlainStore):
    """Holds a lock by `flock` from the first append or load of a session until it is closed."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.locks: dict[str, int] = {}
        self.sizes: dict[str, int] = {}
        _STORES.add(self)

    # --- the calls ------------------------------------------------------------------------------

    def append(self, session_id: str, events: Iterable[SessionEvent]) -> None:
        with self.mutex:
            self.check_open()
            batch = list(events)
            self.encode_batch(session_id, batch)
            if not batch or not (session_id in self.announced or self.places(session_id)):
                super().append(session_id, batch)
                return
            held = session_id in self.locks
            self.take(session_id)
            try:
                self.check_storage(session_id)
                super().append(session_id, batch)
            except Exception:
                if not held:
                    self.give_back(session_id)
                raise
            self.note_size(session_id)

    def load(self, session_id: str) -> LoadResult:
        with self.mutex:
            self.check_open()
            self.find(session_id)
            try:
                self.take_to_load(session_id)
            except WriterConflict:
                result = self.look(session_id)
                if session_id not in self.announced:
                    self.next_seq[session_id] = len(result.events)
                    self.sizes[session_id] = -1 if result.repair.closers else self.size(session_id)
                return result
            result = super().load(session_id)
            self.note_size(session_id)
            return result

    def close(self) -> None:
        for session_id in list(self.locks):
            self.give_back(session_id)
        super().close()

    # --- what the animals break -----------------------------------------------------------------

    def take(self, session_id: str) -> None:
        """Takes the lock without waiting, unless it is held."""
        if session_id in self.locks:
            return
        descriptor = self.opened(self.lock_path(session_id))
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise WriterConflict(session_id, self.root, "another writer holds it") from None
        self.locks[session_id] = descriptor

    def take_to_load(self, session_id: str) -> None:
        self.take(session_id)

    def give_back(self, session_id: str) -> None:
        """Unlocked, not only closed: a forked child may have a copy."""
        descriptor = self.locks.pop(session_id, None)
        if descriptor is not None:
            fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)

    def give_up(self) -> None:
        """In a forked child: the lock is the parent's."""
        for descriptor in self.locks.values():
            os.close(descriptor)
        self.locks.clear()

    def check_storage(self, session_id: str) -> None:
        """The log is still what this object has seen of it."""
        if session_id in self.announced:
            if self.places(session_id):
                raise WriterConflict(session_id, self.root, "another writer has begun it")
        elif session_id in self.sizes and self.sizes[session_id] != self.size(session_id):
            raise WriterConflict(session_id, self.root, "another writer has changed it")

    def look(self, session_id: str) -> LoadResult:
        """Under another's lock: as a load, and nothing is written."""
        result = self.inspect(session_id)
        return replace(result, repair=replace(result.repair, durable=False, reason="held"))

    # --- what no animal breaks ------------------------------------------------------------------

    def lock_path(self, session_id: str) -> Path:
        return self.root / "locks" / self.name(session_id)

    def opened(self, path: Path) -> int:
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(path, os.O_RDWR | os.O_CREAT, 0o600)

    def size(self, session_id: str) -> int:
        return self.find(session_id)[0].stat().st_size

    def note_size(self, session_id: str) -> None:
        self.sizes[session_id] = self.size(session_id)


_STORES: weakref.WeakSet[LockedStore] = weakref.WeakSet()


def _give_up_all() -> None:
    for store in list(_STORES):
        store.give_up()


os.register_at_fork(after_in_child=_give_up_all)


class EagerStore(LockedStore):
    """A session is in storage as soon as it is created."""

    def create(self, header: SessionHeader) -> None:
        super().create(header)
        try:
            self.take(header.id)
        except WriterConflict:
            del self.announced[header.id]
            raise
        path = self.new_path(self.announced.pop(header.id))
        path.parent.mkdir(parents=True, exist_ok=True)
        self.write(path, self.encode_header(header))
        self.next_seq[header.id] = 0
        self.note_size(header.id)


class OpaqueStore(LockedStore):
    """A log of opaque events that begins with its first append."""

    def append(self, session_id: str, events: Iterable[SessionEvent]) -> None:
        batch = list(events)
        if batch and session_id not in self.announced and not self.places(session_id):
            self.create(SessionHeader(session_id, 0))
        super().append(session_id, batch)

    def closers(self, events: Events) -> Events:
        return []


class ManyStore(LockedStore):
    """Locks for as long as an append takes, and looks at the storage each time."""

    def create(self, header: SessionHeader) -> None:
        if self.places(header.id):
            raise SessionExists(header.id)
        super().create(header)

    def append(self, session_id: str, events: Iterable[SessionEvent]) -> None:
        with self.mutex:
            try:
                super().append(session_id, events)
            finally:
                self.give_back(session_id)

    def load(self, session_id: str) -> LoadResult:
        with self.mutex:
            try:
                return super().load(session_id)
            finally:
                self.give_back(session_id)

    def check_storage(self, session_id: str) -> None:
        if session_id in self.announced:
            super().check_storage(session_id)
        else:
            self.next_seq[session_id] = self.stored_seq(session_id)

    def stored_seq(self, session_id: str) -> int:
        return len(self.read(session_id)[3])

    def check_sequence(self, session_id: str, batch: Sequence[SessionEvent], next_seq: int) -> None:
        if batch[0].seq != next_seq:
            raise SequenceMismatch(session_id, next_seq, batch[0].seq)
        super().check_sequence(session_id, batch, next_seq)


locked = factory(LockedStore, writers="one-locked")
eager = factory(EagerStore, writers="one-locked", lazy=False)
opaque = factory(
    OpaqueStore,
    writers="one-locked",
    profile="log",
    repairs="none",
    creates="implicit",
    header=False,
    lazy=False,
)
many = factory(ManyStore, writers="many")
alone = factory(LockedStore, writers="one-locked")
"""For a test that looks for processes of its own."""
