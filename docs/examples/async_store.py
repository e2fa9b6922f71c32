"""An asynchronous store that speaks wire dictionaries and keeps its sessions in memory."""

import json

from torntail.session import NotJson, encode_event


class NoSuchSession(Exception):
    pass


class AsyncStore:
    def __init__(self):
        self.announced, self.lines = set(), {}

    async def create(self, header):
        if not header.id:
            raise ValueError("a session needs an id")
        if header.id in self.announced:
            raise FileExistsError(header.id)
        self.announced.add(header.id)

    async def append(self, session, events):
        lines = [line_of(event) for event in events]
        if lines and session not in self.announced:
            raise NoSuchSession(session)
        self.lines.setdefault(session, []).extend(lines)

    async def load(self, session):
        if not self.lines.get(session):
            raise NoSuchSession(session)
        return {"events": [json.loads(line) for line in self.lines[session]]}

    async def list(self):
        return [session for session, lines in self.lines.items() if lines]


def line_of(event):
    try:
        return encode_event(event)
    except NotJson as error:
        raise ValueError(f"event {event.type!r} (seq {event.seq}) is not JSON: {error}") from None


async def open_store(root):
    return AsyncStore()


open_store.error_kinds = {NoSuchSession: "not_found"}
open_store.capabilities = {
    "profile": "log",
    "durability": "none",
    "detects": [],
    "writers": "one-unchecked",
    "header": False,
    "checks_seq": False,
    "repairs": "none",
    "inspects": False,
    "forks": False,
}
