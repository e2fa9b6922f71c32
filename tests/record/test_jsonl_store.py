"""The reference store, seen: its log of each call is the write path, operation for operation."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from tests.shapes import event_lines, log
from torntail.crash.crashes import Crash
from torntail.crash.disk import Disk
from torntail.crash.oplog import (
    ROOT,
    Acknowledged,
    CreateFile,
    Invoked,
    Link,
    MakeDirectory,
    Operation,
    OpLog,
    Rename,
    SyncDirectory,
    SyncFile,
    Truncate,
    Unlink,
    Write,
)
from torntail.record.inprocess import Recorder
from torntail.record.scratch import Scratch
from torntail.record.slots import Slot
from torntail.session import SessionEvent, SessionHeader, encode_event
from torntail.stores.jsonl import JsonlStore

HEADER = SessionHeader(id="s-1", created_at=1_700_000_000_000, cwd="/w")
BUCKET = "cwd-" + hashlib.sha256(b"/w").hexdigest()[:12]
LOG = "s-1.jsonl"

# In the order in which a new store makes them.
LOCKS, LOCK, FOLDER, FILE = 1, 2, 3, 4
SYNC_NAMES = [SyncDirectory(FOLDER), SyncDirectory(ROOT)]


def events(shape: str, start: int = 0) -> list[SessionEvent]:
    return [SessionEvent.from_json(json.loads(line)) for line in event_lines(shape)][start:]


def lines(some: list[SessionEvent]) -> bytes:
    return b"".join(encode_event(event) + b"\n" for event in some)


def first_flush(data: bytes) -> list[Operation]:
    """What creating a session and storing its first events does to an empty root."""
    return [
        MakeDirectory(ROOT, ".locks", LOCKS),
        CreateFile(LOCKS, "s-1.lock", LOCK),
        MakeDirectory(ROOT, BUCKET, FOLDER),
        CreateFile(FOLDER, LOG + ".tmp", FILE),
        Write(FILE, 0, data),
        SyncFile(FILE),
        Link(FILE, FOLDER, LOG),
        Unlink(FOLDER, LOG + ".tmp"),
        *SYNC_NAMES,
    ]


def test_create_and_append(tmp_path):
    turn, start, end = events("T"), events("T TS")[6:], events("T TS TE T")[7:]
    with Recorder(tmp_path) as recorder, JsonlStore(tmp_path) as store:
        for call, action in enumerate(
            (
                lambda: store.create(HEADER),
                lambda: store.append("s-1", turn),
                lambda: store.append("s-1", start),
                lambda: store.append("s-1", end),
                lambda: store.load("s-1"),
            )
        ):
            recorder.mark(Invoked(call))
            action()
            recorder.mark(Acknowledged(call))
    recorder.check()
    first = log("H T")
    length = len(first)
    middle = length + len(lines(start))
    # A write is cut before each turn/end, and what precedes it synced.
    pieces = [lines(end[:1]) + lines(end[1:-1]), lines(end[-1:])]
    assert recorder.operations == [
        Invoked(0),
        Acknowledged(0),
        Invoked(1),
        *first_flush(first),
        Acknowledged(1),
        Invoked(2),
        Write(FILE, length, lines(start)),
        SyncFile(FILE),
        Acknowledged(2),
        Invoked(3),
        Write(FILE, middle, pieces[0]),
        SyncFile(FILE),
        Write(FILE, middle + len(pieces[0]), pieces[1]),
        SyncFile(FILE),
        Acknowledged(3),
        Invoked(4),
        Acknowledged(4),
    ]
    assert OpLog.from_json(recorder.log.to_json()) == recorder.log


def test_without_durability_there_is_no_sync(tmp_path):
    with Recorder(tmp_path) as recorder, JsonlStore(tmp_path, "process") as store:
        store.create(HEADER)
        store.append("s-1", events("T"))
    recorder.check()
    assert recorder.operations == [
        one for one in first_flush(log("H T")) if not isinstance(one, SyncFile | SyncDirectory)
    ]


@pytest.mark.parametrize("torn", [1, 10])
def test_repair_continues_the_log(torn, tmp_path):
    """A kill in the middle of an append, and the repair by the next process: one history."""
    whole, cut_turn = events("T"), events("T TS U")[6:]
    with Recorder(tmp_path) as recorder, JsonlStore(tmp_path) as store:
        store.create(HEADER)
        store.append("s-1", whole)
        store.append("s-1", cut_turn)
    position = max(index for index, one in enumerate(recorder.operations) if isinstance(one, Write))
    write = recorder.operations[position]
    assert isinstance(write, Write)
    last = lines(cut_turn[-1:])
    cut = len(write.data) - len(last) + torn
    disk = Disk("ordered")
    for operation in recorder.operations[:position]:
        disk = disk.after(operation)
    disk = disk.after(Write(write.inode, write.offset, write.data[:cut]))
    with Scratch() as scratch, Slot(scratch) as slot:
        slot.hold(Crash("kill", position + 1, cut).image(disk))
        with Recorder(slot.path, disk) as again, JsonlStore(slot.path) as store:
            result = store.load("s-1")
        again.check()
        assert set(slot.changed()) == {f"{BUCKET}/{LOG}"}
    kept = write.offset + cut - torn
    closers = lines(result.events[-1:])
    assert again.operations == [
        SyncFile(FILE),
        *SYNC_NAMES,
        Truncate(FILE, kept),
        SyncFile(FILE),
        Write(FILE, kept, closers),
        SyncFile(FILE),
    ]


def test_repair_keeps_a_copy_of_whole_records(tmp_path):
    damaged = log("H T TS U X:note") + b"torn\n" + log("H T TS U X:note").splitlines(True)[-1]
    (tmp_path / BUCKET).mkdir()
    (tmp_path / BUCKET / LOG).write_bytes(damaged)
    with Recorder(tmp_path) as recorder, JsonlStore(tmp_path) as store:
        result = store.load("s-1")
    recorder.check()
    assert result.repair.copy_kept is not None
    copy = Path(result.repair.copy_kept).name
    start = len(log("H T TS U X:note"))
    # The folder and the log stood there; the lock's folder, the lock and the copy are new.
    assert recorder.operations == [
        MakeDirectory(ROOT, ".locks", 3),
        CreateFile(3, "s-1.lock", 4),
        SyncFile(2),
        SyncDirectory(1),
        SyncDirectory(ROOT),
        CreateFile(1, f"{LOG}.torn.tmp", 5),
        Write(5, 0, damaged[start:]),
        SyncFile(5),
        Rename(1, f"{LOG}.torn.tmp", 1, copy),
        SyncDirectory(1),
        Truncate(2, start),
        SyncFile(2),
        Write(2, start, lines(result.events[-1:])),
        SyncFile(2),
    ]
