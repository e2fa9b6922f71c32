"""What holds of every recording: transparency, threads, continuation, the hook, the check."""

from __future__ import annotations

import builtins
import errno
import io
import mmap
import os
import pickle
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torntail.crash.crashes import Crash
from torntail.crash.disk import Disk, DiskImage
from torntail.crash.oplog import (
    ROOT,
    CreateFile,
    MakeDirectory,
    Operation,
    Rename,
    SyncDirectory,
    SyncFile,
    Truncate,
    Unlink,
    Write,
)
from torntail.record.inprocess import (
    CrashNow,
    Cut,
    Recorder,
    RecordingFailed,
    Unmodelled,
    UnseenWrite,
    disk_of,
)
from torntail.record.install import install, installed
from torntail.record.real import ORIGINALS, Real
from torntail.record.replay import first_difference, replayed
from torntail.record.scratch import Scratch
from torntail.record.slots import Slot
from torntail.record.tree import read_tree

# --- transparency -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "letters", ["", "r", "w", "x", "a", "b", "+", "rw", "wr+", "tb", "U", "wz"]
)
def test_open_answers_as_the_real_one(letters, tmp_path):
    """Every mode, buffer size and mistake, in two directories side by side."""
    install()
    real_root, root = tmp_path / "real", tmp_path / "root"
    real_root.mkdir()
    root.mkdir()

    def answer(function, directory, mode, name, **arguments):
        path = directory / name
        shape: tuple[Any, ...]
        try:
            with function(path, mode, **arguments) as file:
                layers, modes = [type(file)], []
                while not isinstance(file, io.FileIO):
                    assert file.name == str(path)
                    modes.append(file.mode)
                    file = getattr(file, "buffer", None) or file.raw
                    layers.append(type(file))
                raw_class = layers.pop()
                assert issubclass(raw_class, io.FileIO)
                modes.append(file.mode)
                shape = (layers, modes, file.readable(), file.writable(), file.seekable())
        except (OSError, ValueError, TypeError, LookupError, RuntimeWarning) as error:
            shape = (type(error), str(error).replace(str(directory), ""))
        return shape, sorted(os.listdir(directory))

    with Recorder(root) as recorder:
        for mode in {letters + more for more in ("", "b", "t", "+", "b+", "+b", "r", "w", "bb")}:
            for arguments in (
                {},
                {"buffering": 0},
                {"buffering": 1},
                {"buffering": 100},
                {"encoding": "utf-8"},
                {"errors": "bogus", "encoding": "utf-8"},
                {"newline": "x"},
                {"encoding": "no-such-encoding"},
            ):
                for name in ("new", "old"):
                    for directory in (real_root, root):
                        (directory / "new").unlink(missing_ok=True)
                        (directory / "old").write_bytes(b"some bytes")
                    expected = answer(Real.open_file, real_root, mode, name, **arguments)
                    assert answer(open, root, mode, name, **arguments) == expected
    recorder.check()


def test_buffers_are_as_large_as_the_real_ones(tmp_path):
    install()
    data = bytes(range(256)) * 300
    (tmp_path / "root").mkdir()
    with Recorder(tmp_path / "root") as recorder, open(tmp_path / "root" / "a", "wb") as file:
        for byte in data:
            file.write(bytes([byte]))
    lengths = [len(one.data) for one in recorder.operations if isinstance(one, Write)]
    with Real.open_file(tmp_path / "b", "wb") as file:
        size = file.raw._blksize  # type: ignore[attr-defined]
    assert lengths[0] == size
    recorder.check()


def test_the_wrappers_are_no_methods_of_a_class_that_keeps_them(tmp_path):
    install()

    class Store:
        write = os.write
        opened = open

    with Recorder(tmp_path) as recorder:
        store: Any = Store()
        with store.opened(tmp_path / "a", "wb", buffering=0) as file:
            store.write(file.fileno(), b"x")
    assert recorder.operations == [CreateFile(ROOT, "a", 1), Write(1, 0, b"x")]


def test_wrappers_pickle_as_functions_of_os_do():
    install()
    for function in (os.unlink, open):
        assert pickle.loads(pickle.dumps(function)) == function


def test_what_os_says_is_supported_stays_so():
    install()
    assert os.open in os.supports_dir_fd
    assert os.truncate in os.supports_fd
    assert {os.open, os.stat, os.unlink, os.rmdir} <= os.supports_dir_fd


def test_classes_stay_what_they_were(tmp_path):
    install()

    class Own(io.FileIO):
        pass

    with Real.open_file(tmp_path / "a", "wb", buffering=0) as file:
        assert isinstance(file, io.FileIO)
        assert not isinstance(file, Own)
    with Own(tmp_path / "a", "w") as file:
        assert isinstance(file, io.FileIO | io.RawIOBase)
        assert not isinstance(3, io.FileIO)


def test_uninstall_leaves_no_trace():
    script = """
import builtins, io, os, tempfile, posix, types
holder = types.ModuleType("holder")
exec("from os import fsync, write; from io import open as other_open", holder.__dict__)
import sys; sys.modules["holder"] = holder
def state():
    closer = tempfile._TemporaryFileCloser
    return (
        {name: value for name, value in vars(os).items() if callable(value)},
        io.open, io.FileIO, builtins.open, dict(vars(holder)),
        set(os.supports_dir_fd), set(os.supports_fd),
        [getattr(value, "__defaults__", None) for value in vars(closer).values()],
    )
from torntail.record.install import install, installed, uninstall
before = state()
install(); install()
assert installed() and os.write is not posix.write
assert holder.write == os.write and holder.other_open == open
assert any(os.unlink in (one or ()) for one in state()[-1])
kept = os.write
uninstall(); uninstall()
assert not installed() and state() == before
assert kept(1, b"fine") == 4
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"fine", b"")


def test_pyfakefs_beside_the_wrappers(tmp_path):
    """It exchanges the functions of `os` that it finds in modules; ours must not be among them."""
    fake = pytest.importorskip("pyfakefs.fake_filesystem_unittest")
    path = tmp_path / "only-in-the-fake-system"

    def write_in_fake_system() -> None:
        with fake.Patcher():
            os.makedirs(path.parent)
            path.write_text("fake")
            assert path.read_text() == "fake"

    with Recorder(tmp_path) as recorder:
        write_in_fake_system()
        path.write_text("real")
        path.unlink()
    recorder.check()
    assert len(recorder.operations) == 3
    # It remembers from its first start in which modules it found what.
    with fake.Patcher(use_cache=False):
        os.makedirs(path.parent)
        with open(path, "w") as file:
            file.write("fake")
    fake.Patcher.clear_fs_cache()
    assert os.listdir(tmp_path) == []


def test_a_recorder_takes_its_own_wrappers_away(tmp_path):
    with Recorder(tmp_path):
        assert installed()
    assert not installed()
    install()
    with Recorder(tmp_path):
        pass
    assert installed()


def test_one_recording_at_a_time(tmp_path):
    with Recorder(tmp_path), pytest.raises(RuntimeError, match="already records"):
        Recorder(tmp_path).start()
    with Recorder(tmp_path):
        pass


def test_a_recording_that_goes_on(tmp_path):
    recorder = Recorder(tmp_path)
    with recorder:
        (tmp_path / "a").touch()
    with recorder:
        (tmp_path / "b").touch()
    recorder.check()
    assert len(recorder.operations) == 2


def test_a_forked_child_records_nothing(tmp_path):
    script = """
import os, sys
from torntail.record.inprocess import Recorder, UnseenWrite
with Recorder(sys.argv[1]) as recorder:
    child = os.fork()
    if not child:
        open(sys.argv[1] + "/a", "w").close()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
assert recorder.operations == []
try:
    recorder.check()
except UnseenWrite as error:
    print(error.path)
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)],
        capture_output=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"a\n", b"")


# --- threads ------------------------------------------------------------------------------------


def test_threads_leave_a_log_in_the_order_of_effects(tmp_path):
    """Appends of several threads to one file: the offsets must go up with the log."""
    gate = threading.Barrier(4)

    def work(number: int) -> None:
        descriptor = os.open(tmp_path / "shared", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        gate.wait()
        for index in range(100):
            os.write(descriptor, f"{number}:{index}\n".encode())
            own = tmp_path / f"{number}"
            own.write_bytes(b"x" * index)
            own.rename(tmp_path / f"moved-{number}")
            os.fsync(descriptor)
        os.close(descriptor)

    with Recorder(tmp_path) as recorder:
        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    recorder.check()
    shared = next(
        one.inode for one in recorder.operations if isinstance(one, CreateFile) and one.name
    )
    end = 0
    for one in recorder.operations:
        if isinstance(one, Write) and one.inode == shared:
            assert one.offset == end
            end += len(one.data)
    assert end == (tmp_path / "shared").stat().st_size
    created = [one for one in recorder.operations if isinstance(one, CreateFile)]
    assert len({one.inode for one in created}) == len(created) == 401


def test_a_write_that_waits_outside_holds_up_nobody(tmp_path):
    """A full pipe blocks one thread; another must still be able to write, and to empty it."""
    read, write = os.pipe()
    with Recorder(tmp_path) as recorder:
        writer = threading.Thread(target=lambda: os.write(write, bytes(1 << 20)))
        writer.start()
        (tmp_path / "a").write_bytes(b"x")
        left = 1 << 20
        while left:
            left -= len(os.read(read, left))
        writer.join()
    os.close(read)
    os.close(write)
    recorder.check()


def test_a_file_that_is_never_closed(tmp_path):
    def forget() -> None:
        open(tmp_path / "a", "wb").write(b"x")  # noqa: SIM115

    with Recorder(tmp_path) as recorder, pytest.warns(ResourceWarning):
        forget()
    assert recorder.operations == [CreateFile(ROOT, "a", 1), Write(1, 0, b"x")]


# --- continuation -------------------------------------------------------------------------------


def test_what_stood_there_is_the_disk_a_recording_begins_on(tmp_path):
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "a").write_bytes(b"old")
    os.link(tmp_path / "d" / "a", tmp_path / "z")
    (tmp_path / "b").touch()
    with Recorder(tmp_path) as recorder:
        with open(tmp_path / "z", "ab") as file:
            file.write(b"+new")
        (tmp_path / "c").touch()
    recorder.check()
    assert recorder.disk.image() == DiskImage(
        {"d/a": b"old", "z": b"old", "b": b""}, frozenset({"d"})
    )
    assert recorder.disk.image().links == (("d/a", "z"),)
    written, created = recorder.operations
    assert isinstance(written, Write)
    assert written == Write(written.inode, 3, b"+new")
    assert created == CreateFile(ROOT, "c", 4)
    assert recorder.disk.after(written).image().files["d/a"] == b"old+new"


def test_a_recording_continues_a_disk(tmp_path):
    """After a kill: the same inodes, what was unsynced still unsynced, no number used twice."""
    with Recorder(tmp_path) as first:
        (tmp_path / "gone").touch()
        (tmp_path / "gone").unlink()
        (tmp_path / "d").mkdir()
        (tmp_path / "d" / "log").write_bytes(b"one\n")
    disk = Disk("posix")
    for operation in first.operations:
        disk = disk.after(operation)
    with Scratch(tmp_path) as scratch, Slot(scratch) as slot:
        slot.hold(Crash("kill", len(first.operations)).image(disk))
        with Recorder(slot.path, disk) as second:
            with open(slot.path + "/d/log", "ab") as file:
                file.write(b"two\n")
            Path(slot.path, "new").touch()
        second.check()
    assert second.operations == [Write(3, 4, b"two\n"), CreateFile(ROOT, "new", 4)]
    for operation in second.operations:
        disk = disk.after(operation)
    assert disk.files[3].durable == b""
    assert disk.files[3].visible == b"one\ntwo\n"


def test_a_directory_that_does_not_hold_the_disk(tmp_path):
    with pytest.raises(FileNotFoundError):
        Recorder(tmp_path, disk_of(DiskImage({"a": b""}, frozenset())))
    (tmp_path / "a").write_bytes(b"other")
    with Recorder(tmp_path, disk_of(DiskImage({"a": b""}, frozenset()))) as recorder:
        pass
    with pytest.raises(UnseenWrite, match="differs at byte 0"):
        recorder.check()


# --- the hook -----------------------------------------------------------------------------------


def test_the_hook_sees_each_operation_before_it_is_done(tmp_path):
    seen: list[Operation] = []

    def before(operation: Operation) -> None:
        assert len(recorder.operations) == len(seen)
        seen.append(operation)

    recorder = Recorder(tmp_path, before=before)
    with recorder:
        (tmp_path / "d").mkdir()
        with open(tmp_path / "d" / "a", "ab") as file:
            file.write(b"123")
            file.flush()
            os.write(file.fileno(), b"45")
            os.pwrite(file.fileno(), b"6", 0)
            os.fsync(file.fileno())
            file.truncate(1)
        with open(tmp_path / "d" / "a", "r+b") as changed:
            changed.seek(1)
            changed.write(b"x")
        (tmp_path / "d" / "a").rename(tmp_path / "b")
        (tmp_path / "b").unlink()
        (tmp_path / "b").unlink(missing_ok=True)
        (tmp_path / "d").rmdir()
        os.sync()
    assert seen == recorder.operations
    recorder.check()


def test_the_hook_refuses_operations(tmp_path):
    """An error raised in the place of any operation: nothing done, nothing logged."""

    def script() -> None:
        (tmp_path / "d").mkdir()
        descriptor = os.open(tmp_path / "d" / "a", os.O_CREAT | os.O_WRONLY)
        try:
            os.write(descriptor, b"x")
            os.ftruncate(descriptor, 0)
            os.fsync(descriptor)
            os.link(tmp_path / "d" / "a", tmp_path / "b")
            os.rename(tmp_path / "b", tmp_path / "c")
            os.unlink(tmp_path / "c")
        finally:
            os.close(descriptor)

    for index in range(8):
        count = iter(range(index + 1))

        def before(operation: Operation, count: Iterator[int] = count, index: int = index) -> None:
            if next(count) == index:
                raise OSError(errno.EIO, "injected")

        with (
            Recorder(tmp_path, before=before) as recorder,
            pytest.raises(OSError, match="injected"),
        ):
            script()
        recorder.check()
        assert len(recorder.operations) == index
        shutil.rmtree(tmp_path / "d", ignore_errors=True)
        for name in ("b", "c"):
            (tmp_path / name).unlink(missing_ok=True)


def test_the_hook_cuts_writes(tmp_path):
    cuts: Iterator[Cut | CrashNow] = iter(
        [Cut(2), Cut(1, OSError(errno.ENOSPC, "full")), Cut(3, CrashNow()), CrashNow()]
    )

    def before(operation: Operation) -> Cut | None:
        if not isinstance(operation, Write):
            return None
        cut = next(cuts)
        if isinstance(cut, CrashNow):
            raise cut
        return cut

    with Recorder(tmp_path, before=before) as recorder:
        descriptor = os.open(tmp_path / "a", os.O_CREAT | os.O_WRONLY)
        assert os.write(descriptor, b"abcd") == 2
        with pytest.raises(OSError, match="full"):
            os.write(descriptor, b"efgh")
        with pytest.raises(CrashNow):
            os.writev(descriptor, [b"ij", b"klm"])
        with pytest.raises(CrashNow):
            os.write(descriptor, b"nopq")
        os.close(descriptor)
    recorder.check()
    assert (tmp_path / "a").read_bytes() == b"abeijk"
    assert [one.data for one in recorder.operations[1:] if isinstance(one, Write)] == [
        b"ab",
        b"e",
        b"ijk",
    ]


# --- the check ----------------------------------------------------------------------------------


def unseen_write(root: Path) -> None:
    """A real function kept where no exchange of references reaches it."""
    descriptor = os.open(root / "a", os.O_WRONLY | os.O_CREAT)
    os.write(descriptor, b"seen")
    Real.write(descriptor, b"unseen")
    os.close(descriptor)


def unseen_truncate(root: Path) -> None:
    (root / "a").write_bytes(b"12345")
    descriptor = os.open(root / "a", os.O_RDWR)
    Real.ftruncate(descriptor, 3)
    os.close(descriptor)


def unseen_unlink(root: Path) -> None:
    (root / "a").touch()
    Real.unlink(root / "a")


def unseen_creation(root: Path) -> None:
    os.close(Real.open_descriptor(root / "a", os.O_CREAT | os.O_WRONLY))


def unseen_and_then_removed(root: Path) -> None:
    unseen_creation(root)
    os.unlink(root / "a")


def unseen_and_then_renamed(root: Path) -> None:
    unseen_creation(root)
    os.rename(root / "a", root / "b")


def unseen_unlink_before_a_creation(root: Path) -> None:
    (root / "a").touch()
    Real.unlink(root / "a")
    (root / "a").touch()


def unseen_link(root: Path) -> None:
    (root / "a").touch()
    (root / "b").touch()
    Real.unlink(root / "a")
    Real.link(root / "b", root / "a")


def through_sqlite(root: Path) -> None:
    connection = sqlite3.connect(root / "a")
    connection.execute("create table t (x)")
    connection.commit()
    connection.close()


def through_a_map(root: Path) -> None:
    (root / "a").write_bytes(bytes(10))
    with open(root / "a", "r+b") as file, mmap.mmap(file.fileno(), 10) as mapped:
        mapped[3:5] = b"xx"


def by_a_child(root: Path) -> None:
    subprocess.run([sys.executable, "-c", f"open({str(root / 'a')!r}, 'w')"], check=True)


@pytest.mark.parametrize(
    "script, reason",
    [
        (unseen_write, "differs at byte 4 (10 bytes, by the log 4)"),
        (unseen_truncate, "differs at byte 3 (3 bytes, by the log 5)"),
        (unseen_unlink, "the log makes it, but it is not there"),
        (unseen_creation, "is there, but the log does not make it"),
        (unseen_and_then_removed, "was made by a call that was not seen, and removed"),
        (unseen_and_then_renamed, "was made by a call that was not seen, and renamed"),
        (unseen_unlink_before_a_creation, "was removed by a call that was not seen"),
        (unseen_link, "its hard links are not those of the log"),
        (through_sqlite, "is there, but the log does not make it"),
        (through_a_map, "differs at byte 3 (10 bytes, by the log 10)"),
        (by_a_child, "is there, but the log does not make it"),
    ],
)
def test_unseen(script, reason, tmp_path):
    with Recorder(tmp_path) as recorder:
        script(tmp_path)
    with pytest.raises(UnseenWrite) as caught:
        recorder.check()
    assert (caught.value.path, caught.value.reason) == ("a", reason)
    assert str(caught.value) == f"a write was not seen: 'a': {reason}"


def test_an_unseen_write_is_named_by_its_whole_path(tmp_path):
    with Recorder(tmp_path) as recorder:
        (tmp_path / "d" / "e").mkdir(parents=True)
        unseen_and_then_renamed(tmp_path / "d" / "e")
    with pytest.raises(UnseenWrite) as caught:
        recorder.check()
    assert caught.value.path == "d/e/a"


def test_the_recorded_directory_is_gone(tmp_path):
    (tmp_path / "d").mkdir()
    with Recorder(tmp_path / "d") as recorder:
        os.rmdir(tmp_path / "d")
    with pytest.raises(UnseenWrite, match="the recorded directory"):
        recorder.check()


def symbolic_link(root: Path) -> None:
    os.symlink("nowhere", root / "a")


def pipe(root: Path) -> None:
    os.mkfifo(root / "a")


def from_outside(root: Path) -> None:
    path = root.parent / "outside"
    path.write_bytes(b"x")
    path.rename(root / "a")


def link_from_outside(root: Path) -> None:
    path = root.parent / "outside"
    path.write_bytes(b"x")
    os.link(path, root / "a")


def directory_to_outside(root: Path) -> None:
    (root / "a").mkdir()
    (root / "a").rename(root.parent / "outside")


@pytest.mark.parametrize(
    "script", [symbolic_link, pipe, from_outside, link_from_outside, directory_to_outside]
)
def test_unmodelled(script, tmp_path):
    root = tmp_path / "root"
    root.mkdir()
    with Recorder(root) as recorder:
        script(root)
    with pytest.raises(Unmodelled) as caught:
        recorder.check()
    assert caught.value.path == "a"
    assert str(caught.value).startswith("an operation is not modelled: 'a': ")
    assert isinstance(caught.value, RecordingFailed)


def test_an_unseen_link_is_unmodelled(tmp_path):
    with Recorder(tmp_path) as recorder:
        ORIGINALS["symlink"]("nowhere", tmp_path / "a")
    with pytest.raises(Unmodelled, match="neither a regular file nor a directory"):
        recorder.check()


# --- random work --------------------------------------------------------------------------------

NAMES = st.sampled_from(["a", "b", "d", "d/a", "d/b", "d/e", "d/e/a"])
STEPS = st.one_of(
    st.tuples(st.just("mkdir"), NAMES),
    st.tuples(st.just("rmdir"), NAMES),
    st.tuples(st.just("unlink"), NAMES),
    st.tuples(st.just("rename"), NAMES, NAMES),
    st.tuples(st.just("link"), NAMES, NAMES),
    st.tuples(st.just("open"), NAMES, st.sampled_from(["wb", "ab", "xb", "r+b"])),
    st.tuples(st.just("write"), st.integers(0, 3), st.binary(max_size=6)),
    st.tuples(st.just("seek"), st.integers(0, 3), st.integers(0, 12)),
    st.tuples(st.just("truncate"), st.integers(0, 3), st.integers(0, 12)),
    st.tuples(st.just("close"), st.integers(0, 3)),
    st.tuples(st.just("fsync"), st.integers(0, 3)),
)


def perform(root: Path, files: list[io.FileIO], step: tuple) -> None:
    match step:
        case ("mkdir" | "rmdir" | "unlink" as name, path):
            getattr(os, name)(root / path)
        case ("rename" | "link" as name, path, other):
            getattr(os, name)(root / path, root / other)
        case ("open", path, mode):
            files.append(open(root / path, mode, buffering=0))  # noqa: SIM115
        case (_, index, *_) if index >= len(files):
            pass
        case ("write", index, data):
            files[index].write(data)
        case ("seek" | "truncate" as name, index, offset):
            getattr(files[index], name)(offset)
        case ("close", index):
            files.pop(index).close()
        case ("fsync", index):
            os.fsync(files[index])


@settings(max_examples=100, deadline=None, database=None, derandomize=False)
@given(st.lists(STEPS, max_size=25), st.lists(STEPS, max_size=25))
def test_replay_of_any_work_is_the_real_directory(before, steps):
    """And the fast replay agrees with the disks of the crash room, in every model."""
    install()  # Files opened before the recording are written in it.
    with Scratch() as scratch:
        root = Path(scratch.new_directory())
        files: list[io.FileIO] = []

        def work(some: list[tuple]) -> None:
            for step in some:
                try:
                    perform(root, files, step)
                except OSError:
                    pass

        try:
            work(before)
            with Recorder(root) as recorder:
                work(steps)
            recorder.check()
        finally:
            for file in files:
                file.close()
        found = read_tree(str(root))
        for model in ("kill", "ordered", "posix"):
            disk = replace(recorder.disk, model=model)
            fast = replayed(disk, recorder.operations)
            for operation in recorder.operations:
                disk = disk.after(operation)
            assert disk.image() == fast.image() == found
            assert disk.image().links == fast.image().links == found.links
            assert disk.settled().image() == found


@given(st.binary(), st.binary())
def test_first_difference(one, other):
    at = first_difference(one, other)
    assert one[:at] == other[:at]
    assert at == min(len(one), len(other)) or one[at] != other[at]


def test_the_switch(tmp_path):
    install()
    assert os.write != Real.write
    assert builtins.open is io.open
    with open(tmp_path / "a", "wb", buffering=0) as file:
        assert file.write(b"nobody records") == 14
        assert file.truncate(3) == 3


def test_operations_on_a_disk_made_by_hand(tmp_path):
    assert replayed(
        Disk("kill"),
        [
            MakeDirectory(ROOT, "d", 1),
            CreateFile(1, "a", 2),
            Write(2, 3, b"x"),
            Truncate(2, 6),
            SyncFile(2),
            SyncDirectory(1),
            Rename(1, "a", ROOT, "b"),
            CreateFile(1, "c", 3),
            Unlink(1, "c"),
        ],
    ).image() == DiskImage({"b": b"\0\0\0x\0\0"}, frozenset({"d"}))
