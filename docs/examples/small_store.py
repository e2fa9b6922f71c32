"""A small event log: one file a session, durable when `append` returns, mended by `load`."""

import hashlib
import os
import threading
from pathlib import Path

from torntail import Capabilities
from torntail.session import NotJson, encode_event, parse_event


class SyncFailed(OSError):
    """An fsync failed: what it was for may be gone, and syncing it again proves nothing."""


class SmallStore:
    def __init__(self, root):
        self.root, self.next_seq, self.closed = root, {}, False
        self.left, self.dead = {}, set()  # Which file, how long; whose writing has ended here.
        self.mutex = threading.RLock()

    def create(self, header):
        with self.mutex:
            if self.path(header.id).exists() or header.id in self.next_seq:
                raise FileExistsError(f"session {header.id!r} exists already")
            self.next_seq[header.id] = 0  # Nothing is written before the first event.
            self.left[header.id] = None

    def append(self, session, events):
        with self.mutex:
            path, batch = self.path(session), list(events)
            content = b"".join(line_of(event) for event in batch)
            if not batch:
                return
            if session not in self.next_seq:
                self.load(session)
            if session in self.dead:
                raise OSError(f"a write or a sync of {path} failed: open the store again")
            start = self.next_seq[session]
            for expected, event in enumerate(batch, start):
                if event.seq != expected:
                    raise ValueError(f"expected seq {expected}, got {event.seq}")
            if identity(path) != self.left[session]:
                raise OSError(f"{path} is not as it was left: open the store again")
            try:
                self.write(path, os.O_APPEND | os.O_CREAT, content)
            except OSError as error:
                self.undo(path, session, error)
                raise
            self.next_seq[session] = start + len(batch)
            self.left[session] = identity(path)

    def load(self, session):
        with self.mutex:
            path, events, good = self.path(session), [], 0
            content = path.read_bytes()
            for line in content.splitlines(keepends=True):
                if (event := whole_event(line, len(events))) is None:
                    break  # Torn: all before it is kept, and the rest is cut off.
                events.append(event)
                good += len(line)
            if session not in self.next_seq and session not in self.dead:
                try:
                    self.write(path, os.O_APPEND, b"", length=good)
                except SyncFailed:
                    self.dead.add(session)
                    raise
                self.next_seq[session], self.left[session] = len(events), identity(path)
            return events

    def write(self, path, flags, content, length=None):
        descriptor = os.open(path, os.O_WRONLY | flags, 0o600)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            if length is not None:
                os.ftruncate(descriptor, length)
            while content:  # A write may come short.
                content = content[os.write(descriptor, content) :]
            sync(descriptor)
            sync(folder)  # Without it a new file may have no name after a power cut.
        finally:
            os.close(descriptor)
            os.close(folder)

    def undo(self, path, session, error):
        """Takes back what a failed append has left; until that is done, and for good after a failed
        fsync, this object writes no more."""
        self.dead.add(session)
        if self.left[session] is None:
            path.unlink(missing_ok=True)
        else:
            self.write(path, os.O_APPEND, b"", length=self.left[session][-1])
        if not isinstance(error, SyncFailed):
            self.dead.discard(session)

    def path(self, session):
        if self.closed:
            raise ValueError("the store is closed")
        if not session:
            raise ValueError("a session needs an id")
        name = hashlib.sha256(session.encode("utf-8", "surrogatepass")).hexdigest()
        return self.root / f"{name}.jsonl"

    def close(self):
        self.closed = True


def identity(path):
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino, status.st_size


def sync(descriptor):
    try:
        os.fsync(descriptor)
    except OSError as error:
        raise SyncFailed(*error.args) from error


def line_of(event):
    try:
        return encode_event(event) + b"\n"
    except NotJson as error:
        raise ValueError(f"event {event.type!r} (seq {event.seq}) is not JSON: {error}") from None


def whole_event(line, seq):
    try:
        event = parse_event(line.removesuffix(b"\n"))
    except ValueError:
        return None
    return event if line.endswith(b"\n") and event.seq == seq else None


def open_store(root: Path):
    return SmallStore(root)


open_store.capabilities = Capabilities(
    profile="log",
    durability="power",
    detects=frozenset(),
    writers="one-unchecked",
    header=False,
    repairs="none",
    lists=False,
    inspects=False,
    forks=False,
)
