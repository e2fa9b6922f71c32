"""One file a session, one event a line, durable when `append` returns."""

import os
import threading
from hashlib import sha256

from torntail.session import encode_event, parse_event


class TinyStore:
    def __init__(self, root):
        self.root, self.mended, self.closed = root, set(), False
        self.mutex = threading.RLock()

    def append(self, session, events):
        with self.mutex:
            path, lines = self.path(session), b"".join(map(line_of, events))
            if path.exists() and session not in self.mended:
                self.load(session)
            if lines:
                self.write(path, lines)
                self.mended.add(session)

    def load(self, session):
        with self.mutex:
            path, events, good = self.path(session), [], 0
            for line in path.read_bytes().splitlines(keepends=True):
                try:
                    events.append(parse_event(line[:-1]))
                except ValueError:
                    break  # Torn by a crash: the rest is cut off.
                good += len(line)
            if session not in self.mended:
                os.truncate(path, good)
                self.write(path, b"")
                self.mended.add(session)
            return events

    def write(self, path, lines):
        folder = os.open(self.root, os.O_RDONLY)
        with open(path, "ab") as file:
            file.write(lines)
            file.flush()
            os.fsync(file.fileno())
        os.fsync(folder)  # Without it a new file may have no name after a power cut.
        os.close(folder)

    def path(self, session):
        if self.closed or not session:
            raise ValueError("the store is closed" if self.closed else "a session needs an id")
        return self.root / sha256(session.encode("utf-8", "surrogatepass")).hexdigest()

    def close(self):
        self.closed = True


def line_of(event):
    try:
        return encode_event(event) + b"\n"
    except ValueError as error:
        raise ValueError(f"{event.type} (seq {event.seq}): {error}") from None
