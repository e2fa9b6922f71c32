"""More than one writer: in one process, and in processes of their own, stopped, killed, forked.

Processes are driven over pipes, one command and one answer at a time, so that nothing here waits
for a clock (MW-1 to MW-4).
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.shapes import log
from tests.stores.support import (
    BUCKET,
    HEADER,
    LOG,
    check,
    events,
    files,
    jsonl,
    other,
    place,
    plain,
)
from torntail.session import (
    SessionEvent,
    SessionHeader,
    encode_event,
    interrupted_turn_closers,
    scan_log,
)
from torntail.stores import jsonl_read
from torntail.stores.contract import (
    RepairReport,
    SequenceMismatch,
    SessionCorrupted,
    SessionExists,
    StorageFailed,
    StoreClosed,
    WriterConflict,
)
from torntail.stores.jsonl import JsonlStore
from torntail.stores.lock import WriterLock

OPEN = "T TS U SS A:c1,c2 K:c1 R:c1 K:c2"
LOCK = ".locks/s-1.lock"

AGENT = """
import json, os, signal, sys
from torntail.session import SessionEvent, SessionHeader
from torntail.stores.contract import StoreError
from torntail.stores.jsonl import JsonlStore
from torntail.stores.lock import WriterLock

store = JsonlStore(sys.argv[1])
never, keep = os.pipe()

def create(session_id, cwd=None):
    store.create(SessionHeader(session_id, 1, cwd))

def append(session_id, *seqs):
    store.append(session_id, [SessionEvent("note", seq, 7, None) for seq in seqs])

def load(session_id):
    found = store.load(session_id)
    return [len(found.events), len(found.repair.closers), found.repair.durable]

def fork(*command):
    "A child that tries the command, tells what came of it, and then lives on."
    answers, answer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(answer, answered(command).encode())
        os.close(answer)
        os.close(1)
        os.read(never, 1)
        os._exit(0)
    os.close(answer)
    with open(answers) as found:
        return [child, json.load(found)]

def answered(command):
    name, *arguments = command
    try:
        return json.dumps(calls[name](*arguments))
    except StoreError as error:
        return json.dumps(type(error).__name__)

calls = {"create": create, "append": append, "load": load, "fork": fork,
         "reopen": store.reopen, "close": store.close}
for line in sys.stdin:
    print(answered(json.loads(line)), flush=True)
"""


class Agent:
    """A process with a store of its own over `root`."""

    def __init__(self, root: Path) -> None:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        self.process = subprocess.Popen(
            [sys.executable, "-c", AGENT, str(root)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        self.children: list[int] = []

    def send(self, *command: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()

    def answer(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def __call__(self, *command: Any) -> Any:
        self.send(*command)
        return self.answer()

    def fork(self, *command: Any) -> Any:
        """What came of the command in a forked child, which lives on until the test ends."""
        child, found = self("fork", *command)
        self.children.append(child)
        return found

    def stop(self) -> None:
        self.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WNOWAIT)

    def go_on(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def end(self) -> None:
        for child in self.children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def agents(tmp_path: Path) -> Iterator[tuple[Agent, Agent]]:
    pair = Agent(tmp_path), Agent(tmp_path)
    yield pair
    for agent in pair:
        agent.end()


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    made = Agent(tmp_path)
    yield made
    made.end()


def locked(root: Path, name: str = LOCK) -> bool:
    """Whether anyone holds the lock; asks the kernel, not the store."""
    with (root / name).open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False


def virtual(shape: str, reason: str) -> RepairReport:
    closers = tuple(interrupted_turn_closers(events(shape)))
    return RepairReport(closers=closers, durable=False, reason=reason)


# --- two store objects in one process -----------------------------------------------------------


def test_two_stores_of_one_process_conflict(tmp_path: Path) -> None:  # MW-1, MW-3
    with jsonl(tmp_path) as first, jsonl(tmp_path) as second:
        first.create(HEADER)
        first.append("s-1", events(OPEN))
        assert locked(tmp_path)
        for _ in range(2):
            found = second.load("s-1")
            held = f"session 's-1': another writer holds the session: {tmp_path / LOCK}"
            whole = [*events(OPEN), *interrupted_turn_closers(events(OPEN))]
            check(found, whole, virtual(OPEN, held))
            for attempt in (13, 16, 0):
                with pytest.raises(WriterConflict):
                    second.append("s-1", [other(attempt)])
            with pytest.raises(WriterConflict):
                second.reopen("s-1")
        with jsonl(tmp_path) as third, pytest.raises(WriterConflict):
            third.append("s-1", [other(13)])
        assert files(tmp_path) == {LOG: log(f"H {OPEN}")}
        first.append("s-1", [other(13)])
        first.close()
        grown = [*events(OPEN), other(13)]
        closers = interrupted_turn_closers(grown)
        check(second.load("s-1"), [*grown, *closers], RepairReport(closers=tuple(closers)))
        second.append("s-1", [other(17)])


def test_a_whole_log_is_read_under_a_live_writer(tmp_path: Path) -> None:  # MW-3
    with jsonl(tmp_path) as first, jsonl(tmp_path) as second:
        first.create(HEADER)
        first.append("s-1", events("T"))
        check(second.load("s-1"), events("T"))
        with pytest.raises(WriterConflict):
            second.append("s-1", [other(6)])
        first.append("s-1", [other(6)])
        check(second.load("s-1"), [*events("T"), other(6)])


def test_a_torn_write_in_progress_is_not_mended(tmp_path: Path) -> None:  # MW-3
    """A reader may see half a batch; only the holder of the lock may cut it."""
    with jsonl(tmp_path) as first, jsonl(tmp_path) as second:
        first.create(HEADER)
        first.append("s-1", events("T"))
        with (tmp_path / LOG).open("ab") as file:
            file.write(b'{"type":"half')
        found = second.load("s-1")
        assert plain(found.events) == plain(events("T"))
        assert not found.repair.durable
        assert files(tmp_path) == {LOG: log("H T") + b'{"type":"half'}


@pytest.mark.parametrize("shape", ["T", "T TS"])
def test_a_stale_cursor_is_caught(tmp_path: Path, shape: str) -> None:  # MW-4
    """By the storage, not by memory: also where the number of events happens to be the same."""
    with jsonl(tmp_path) as first, jsonl(tmp_path) as second:
        first.create(HEADER)
        first.append("s-1", events(shape))
        seen = len(second.load("s-1").events)
        first.append("s-1", [other(len(events(shape)))])
        first.close()
        before = files(tmp_path)
        for _ in range(2):
            with pytest.raises(WriterConflict):
                second.append("s-1", [other(seen)])
            assert files(tmp_path) == before
        assert not locked(tmp_path)
        found = second.load("s-1").events
        second.append("s-1", [other(len(found))])
        check(second.load("s-1"), [*found, other(len(found))])


def test_a_closed_turn_in_place_of_the_virtual_closer_is_a_conflict(tmp_path: Path) -> None:
    """The seq fits, but event 7 is not the one this store was shown (MW-4)."""
    with jsonl(tmp_path) as first, jsonl(tmp_path) as second:
        first.create(HEADER)
        first.append("s-1", events("T TS"))
        assert second.load("s-1").events[7].data["reason"] == {"kind": "interrupted"}
        first.append("s-1", events("T TS TE", 7))
        first.close()
        with pytest.raises(WriterConflict):
            second.append("s-1", [other(8)])
        assert files(tmp_path) == {LOG: log("H T TS TE")}
        check(second.load("s-1"), events("T TS TE"))
        second.append("s-1", [other(8)])


def test_a_writer_that_comes_and_goes_just_before_the_lock_is_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log is looked at once more under the lock (MW-4)."""
    real = JsonlStore._read
    with jsonl(tmp_path) as first, jsonl(tmp_path) as second:
        first.create(HEADER)
        first.append("s-1", events("T TS"))
        second.load("s-1")

        def grown_behind_it(self: JsonlStore, session_id: str, *rest: Any) -> Any:
            found = real(self, session_id, *rest)
            if self is second and len(found.events) == 7:
                first.append("s-1", events("T TS TE", 7))
                first.close()
            return found

        monkeypatch.setattr(JsonlStore, "_read", grown_behind_it)
        with pytest.raises(WriterConflict):
            second.append("s-1", [other(8)])
        assert files(tmp_path) == {LOG: log("H T TS TE")}
        assert not locked(tmp_path)


def test_what_was_shown_under_a_lock_holds_when_the_lock_is_free(tmp_path: Path) -> None:
    with jsonl(tmp_path) as first, jsonl(tmp_path) as second:
        first.create(HEADER)
        first.append("s-1", events("T TS"))
        shown = second.load("s-1").events
        first.close()
        second.append("s-1", [other(8)])
        check(second.load("s-1"), [*shown, other(8)])


@pytest.mark.parametrize("call", ["load", "reopen", "append"])
def test_a_call_that_fails_keeps_no_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """Here the log turns out damaged after the lock was taken."""
    place(tmp_path, log("H T TS"))
    real = JsonlStore._read
    seen: list[str] = []

    def damaged_meanwhile(self: JsonlStore, session_id: str, *rest: Any) -> Any:
        seen.append(session_id)
        found = real(self, session_id, *rest)
        place(tmp_path, log("H T RAW:00 LF TS TE"))
        return found

    monkeypatch.setattr(JsonlStore, "_read", damaged_meanwhile)
    with jsonl(tmp_path) as store:
        with pytest.raises(SessionCorrupted):
            store.append("s-1", [other(8)]) if call == "append" else getattr(store, call)("s-1")
        assert len(seen) == 2
        assert not locked(tmp_path)
    assert files(tmp_path) == {LOG: log("H T RAW:00 LF TS TE")}


def test_a_load_that_finds_it_mended_keeps_no_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place(tmp_path, log("H T TS"))
    real = JsonlStore._read

    def mended_meanwhile(self: JsonlStore, session_id: str, *rest: Any) -> Any:
        found = real(self, session_id, *rest)
        place(tmp_path, log("H T TS TE"))
        return found

    monkeypatch.setattr(JsonlStore, "_read", mended_meanwhile)
    with jsonl(tmp_path) as store:
        check(store.load("s-1"), events("T TS TE"))
        assert not locked(tmp_path)


@pytest.mark.parametrize("change", ["other bytes", "other file", "no change"])
def test_a_change_that_shows_in_no_size_and_no_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """Between the first look and the lock; only the bytes, or the inode, tell of it (MW-4)."""
    path = place(tmp_path, log(f"H {OPEN}"))
    after = log(f"H {OPEN}").replace(b"1700000000000", b"1700000000009")
    if change != "other bytes":
        after = path.read_bytes()
    real = WriterLock.acquire

    def late(self: WriterLock) -> None:
        real(self)
        status = path.stat()
        if change == "other bytes":
            path.write_bytes(after)
        elif change == "other file":
            path.with_name("new").write_bytes(after)
            path.with_name("new").replace(path)
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
        assert path.stat().st_mtime_ns == status.st_mtime_ns

    monkeypatch.setattr(WriterLock, "acquire", late)
    scans = count_scans(monkeypatch)
    with jsonl(tmp_path) as store:
        found = store.load("s-1")
        assert found.repair.durable
        closers = found.events[len(events(OPEN)) :]
        expected = after + b"".join(encode_event(closer) + b"\n" for closer in closers)
        assert closers
        assert files(tmp_path) == {LOG: expected}
        assert found.header.created_at == json.loads(after.splitlines()[0])["createdAt"]
        assert len(scans) == (1 if change == "no change" else 2)


@pytest.mark.parametrize("large", [False, True])
def test_a_log_is_decided_once_where_its_bytes_could_be_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, large: bool
) -> None:
    chunk = encode_event(other(len(events(OPEN)), "x" * (1 << 19))) + b"\n" if large else b""
    place(tmp_path, log(f"H {OPEN}") + chunk + b'{"type":"torn')
    scans = count_scans(monkeypatch)
    with jsonl(tmp_path) as store:
        assert store.load("s-1").repair.torn_bytes == 13
    assert len(scans) == (2 if large else 1)


def count_scans(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """A list that grows with each scan of a log."""
    scans: list[None] = []
    real = scan_log

    def counted(*arguments: Any, **options: Any) -> Any:
        scans.append(None)
        return real(*arguments, **options)

    monkeypatch.setattr(jsonl_read, "scan_log", counted)
    return scans


def test_one_lock_file_per_id_whatever_its_cwd(tmp_path: Path) -> None:
    with jsonl(tmp_path) as first, jsonl(tmp_path) as second:
        first.create(HEADER)
        second.create(SessionHeader("s-1", 1, cwd="/elsewhere"))
        first.append("s-1", events("T"))
        for _ in range(2):
            with pytest.raises(WriterConflict):
                second.append("s-1", events("T"))
        first.close()
        with pytest.raises(SessionExists):
            second.append("s-1", events("T"))
        assert files(tmp_path) == {LOG: log("H T")}
        assert (tmp_path / LOCK).stat().st_size == 0
        assert [path.name for path in (tmp_path / ".locks").iterdir()] == ["s-1.lock"]


def test_the_lock_file_is_no_way_out_of_the_root(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / ".locks").mkdir(parents=True)
    (root / LOCK).symlink_to(tmp_path / "outside")
    with jsonl(root) as store:
        store.create(HEADER)
        with pytest.raises(StorageFailed):
            store.append("s-1", events("T"))
    assert [path.name for path in tmp_path.iterdir()] == ["root"]
    assert files(root) == {}


def test_where_the_lock_cannot_be_had_load_still_reads(tmp_path: Path) -> None:  # MW-3
    place(tmp_path, log("H T TS"))
    (tmp_path / ".locks").write_bytes(b"in the way")
    with jsonl(tmp_path) as store:
        found = store.load("s-1")
        assert plain(found.events[:7]) == plain(events("T TS"))
        assert len(found.events) == 8
        assert not found.repair.durable
        with pytest.raises(StorageFailed):
            store.append("s-1", [other(8)])
    assert (tmp_path / LOG).read_bytes() == log("H T TS")


def test_a_repair_seen_halfway_is_no_corruption(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # MW-3
    """The reader has the torn tail when a writer cuts it and writes closers over its place."""
    torn = b'{"type":"torn","seq":7,"time":1,"data":"' + b"x" * 40
    place(tmp_path, log(f"H {OPEN}") + torn)
    real = jsonl_read._blocks
    with jsonl(tmp_path) as reader, jsonl(tmp_path) as writer:
        mended: list[int] = []

        def slowly(descriptor: int, limit: int | None) -> Iterator[bytes]:
            if mended:
                yield from real(descriptor, limit)
                return
            mended.append(1)
            begun = os.read(descriptor, 1 << 20)
            writer.load("s-1")
            whole = begun + os.read(descriptor, 1 << 20)
            end = whole.index(torn)
            yield whole[:end]
            yield from whole[end:].splitlines(keepends=True)

        monkeypatch.setattr(jsonl_read, "_blocks", slowly)
        found = reader.inspect("s-1")
        closers = interrupted_turn_closers(events(OPEN))
        assert mended
        check(found, [*events(OPEN), *closers])


def test_a_batch_may_come_from_a_thread_that_uses_the_store(tmp_path: Path) -> None:
    """No lock of the store is held while the caller's iterable runs."""
    with jsonl(tmp_path) as store:

        def produced() -> Iterator[SessionEvent]:
            helper = threading.Thread(target=store.inspect, args=("s-1",))
            helper.start()
            helper.join()
            yield other(1)

        store.create(HEADER)
        store.append("s-1", [other(0)])
        store.append("s-1", produced())
        check(store.load("s-1"), [other(0), other(1)])


# --- processes ----------------------------------------------------------------------------------


def test_two_processes(agents: tuple[Agent, Agent], tmp_path: Path) -> None:  # MW-1, MW-3
    first, second = agents
    place(tmp_path, log("H T TS"))
    assert first("reopen", "s-1") == 7
    assert first("append", "s-1", 7) is None
    before = files(tmp_path)
    assert second("append", "s-1", 8) == "WriterConflict"
    assert second("load", "s-1") == [9, 1, False]
    assert second("append", "s-1", 9) == "WriterConflict"
    assert second("reopen", "s-1") == "WriterConflict"
    assert files(tmp_path) == before
    assert first("append", "s-1", 8) is None
    assert first("close") is None
    assert second("append", "s-1", 9) == "WriterConflict"
    assert second("load", "s-1") == [10, 1, True]
    assert second("append", "s-1", 10) is None
    assert first("load", "s-1") == "StoreClosed"


def test_a_stopped_writer_keeps_its_lock(
    agents: tuple[Agent, Agent], tmp_path: Path
) -> None:  # MW-1
    first, second = agents
    place(tmp_path, log("H T"))
    assert first("append", "s-1", 6) is None
    first.stop()
    assert second("load", "s-1") == [7, 0, True]
    assert second("append", "s-1", 7) == "WriterConflict"
    first.go_on()
    assert first("append", "s-1", 7) is None
    assert second("append", "s-1", 7) == "WriterConflict"
    assert len(events("T")) + 2 == files(tmp_path)[LOG].count(b"\n") - 1


def test_a_killed_writer_leaves_no_lock(
    agents: tuple[Agent, Agent], tmp_path: Path
) -> None:  # MW-2
    first, second = agents
    place(tmp_path, log("H T TS"))
    assert first("reopen", "s-1") == 7
    assert second("load", "s-1") == [8, 1, False]
    first.kill()
    assert second("load", "s-1") == [8, 1, True]
    assert second("append", "s-1", 8) is None


def test_a_killed_writer_whose_child_lives_on_leaves_no_lock(
    agents: tuple[Agent, Agent], tmp_path: Path
) -> None:  # MW-2
    first, second = agents
    place(tmp_path, log("H T"))
    assert first("append", "s-1", 6) is None
    assert first.fork("load", "s-1") == "StorageFailed"
    assert second("append", "s-1", 7) == "WriterConflict"
    first.kill()
    os.kill(first.children[0], 0)  # It does live on.
    assert second("append", "s-1", 7) is None


def test_a_forked_child_cannot_write_and_takes_no_lock_away(
    agents: tuple[Agent, Agent], tmp_path: Path
) -> None:  # MW-1, MW-2
    first, second = agents
    place(tmp_path, log("H T"))
    assert first("append", "s-1", 6) is None
    before = files(tmp_path)
    assert first.fork("append", "s-1", 7) == "StorageFailed"
    assert first.fork("reopen", "s-1") == "StorageFailed"
    assert first.fork("create", "new") == "StorageFailed"
    assert first.fork("close") is None
    assert files(tmp_path) == before
    assert locked(tmp_path)
    assert second("append", "s-1", 7) == "WriterConflict"
    assert first("append", "s-1", 7) is None
    assert first("close") is None
    assert not locked(tmp_path)


def test_two_first_flushes_of_one_id(agents: tuple[Agent, Agent], tmp_path: Path) -> None:  # MW-1
    first, second = agents
    assert first("create", "s-1", "/w") is None
    assert second("create", "s-1", "/elsewhere") is None
    assert first("append", "s-1", 0) is None
    assert second("append", "s-1", 0) == "WriterConflict"
    assert second("load", "s-1") == [1, 0, True]
    assert second("append", "s-1", 1) == "WriterConflict"
    assert files(tmp_path).keys() == {LOG}


def test_a_race_for_the_first_flush(agents: tuple[Agent, Agent], tmp_path: Path) -> None:
    """Both at once, in a new store and in two working directories: one wins, again and again."""
    for number in range(15):
        name = f"s-{number}"
        for agent, cwd in zip(agents, ("/w", "/elsewhere"), strict=True):
            assert agent("create", name, cwd) is None
        for agent in agents:
            agent.send("append", name, 0)
        assert sorted(map(str, (agent.answer() for agent in agents))) == ["None", "WriterConflict"]
        assert len([path for path in files(tmp_path) if path.endswith(f"/{name}.jsonl")]) == 1


def test_two_processes_make_one_new_store(
    agents: tuple[Agent, Agent], tmp_path: Path
) -> None:  # CR-10, RW-11
    """Folders that both are about to make are made once, and neither fails for it."""
    for number in range(15):
        for agent, cwd in zip(agents, ("/a", "/b"), strict=True):
            assert agent("create", f"{cwd}-{number}", f"{cwd}{number}") is None
        for agent, cwd in zip(agents, ("/a", "/b"), strict=True):
            agent.send("append", f"{cwd}-{number}", 0)
        assert [agent.answer() for agent in agents] == [None, None]
    assert len(files(tmp_path)) == 30


def test_folders_that_appear_while_they_are_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process makes the deepest folder between two of our calls."""
    real = os.mkdir
    root = tmp_path / "a" / "b"

    def mkdir(path: Any, *rest: Any) -> None:
        real(path, *rest)
        if Path(path) == root:
            real(root / ".locks", 0o700)
            real(root / BUCKET, 0o700)

    monkeypatch.setattr(os, "mkdir", mkdir)
    with jsonl(root) as store:
        store.create(HEADER)
        store.append("s-1", events("T"))
    assert files(root) == {LOG: log("H T")}


def test_many_writers_one_log(agents: tuple[Agent, Agent], tmp_path: Path) -> None:  # MW-1, MW-4
    """Each takes the session when the other has closed it; no event is lost or doubled."""
    place(tmp_path, log("H T"))
    with jsonl(tmp_path) as store:
        store.append("s-1", [other(6)])
    first, second = agents
    assert first("append", "s-1", 7) is None
    first.kill()
    assert second("append", "s-1", 8) is None
    second.kill()
    with jsonl(tmp_path) as store:
        check(store.load("s-1"), [*events("T"), *map(other, (6, 7, 8))])
        with pytest.raises(SequenceMismatch):
            store.append("s-1", [other(8)])
    with pytest.raises(StoreClosed):
        store.load("s-1")
