"""Directories that hold images: equal to them after any history, and nothing left behind."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torntail.crash.disk import Disk, DiskImage
from torntail.crash.oplog import ROOT, CreateFile, Write
from torntail.record import held as held_module
from torntail.record import scratch, slots
from torntail.record.real import Real
from torntail.record.scratch import Scratch, ScratchFull, memory_directory
from torntail.record.slots import Slot
from torntail.record.tree import ForeignEntry, read_file

SETTINGS = settings(max_examples=150, deadline=None, database=None, derandomize=False)


@pytest.fixture
def space(tmp_path):
    with Scratch(tmp_path) as opened:
        yield opened


@pytest.fixture
def slot(space):
    with Slot(space) as opened:
        yield opened


def held(slot: Slot) -> DiskImage:
    """What the directory holds; its modes are looked at too."""
    for path in Path(slot.path).rglob("*"):
        mode = stat.S_IMODE(path.lstat().st_mode)
        assert mode == (0o700 if path.is_dir() else 0o600)
    return slot.image()


def image(files: dict[str, bytes], *directories: str, links: tuple = ()) -> DiskImage:
    return DiskImage(files, frozenset(directories), links)


# --- random images, with and without loads in between -------------------------------------------

CONTENTS = st.one_of(
    st.binary(max_size=5),
    st.builds(lambda length, tail: b"0123456789" * length + tail, st.integers(0, 3), st.binary()),
    st.sampled_from([b"a" * 70_000, b"a" * 69_999 + b"b", b"a" * 80_000, b"b" * 66_000]),
)


@st.composite
def images(draw: st.DrawFn) -> DiskImage:
    directories = draw(st.sets(st.sampled_from(["a", "d", "d/e", "f"])))
    if "d/e" in directories:
        directories.add("d")
    names = ["b", "c", "z"] + [f"{directory}/{name}" for directory in directories for name in "xy"]
    if "a" not in directories:
        names.append("a")
    files = draw(st.dictionaries(st.sampled_from(names), CONTENTS, max_size=5))
    linked = draw(st.lists(st.sampled_from(sorted(files)), unique=True)) if files else []
    links: tuple[tuple[str, ...], ...] = ()
    if len(linked) > 1:
        links = (tuple(sorted(linked)),)
        for path in linked:
            files[path] = files[linked[0]]
    return DiskImage(files, frozenset(directories), links)


def overwrite(root: Path, path: Path) -> None:
    with open(path, "r+b") as file:
        file.write(b"!")


def append(root: Path, path: Path) -> None:
    with open(path, "ab") as file:
        file.write(b"+")


def cut(root: Path, path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def remove(root: Path, path: Path) -> None:
    path.unlink()


def rewrite(root: Path, path: Path) -> None:
    (root / "tmp").write_bytes(path.read_bytes() + b"?")
    (root / "tmp").replace(path)


def move(root: Path, path: Path) -> None:
    path.rename(root / "moved")


def link(root: Path, path: Path) -> None:
    os.link(path, root / "linked")


def make(root: Path, path: Path) -> None:
    (root / "new" / "deep").mkdir(parents=True)
    (root / "new" / "deep" / "file").write_bytes(b"x")
    (root / "new" / "link").symlink_to("nowhere")


def replace_directory(root: Path, path: Path) -> None:
    if path.parent != root:
        path.parent.rename(root / "old")
        shutil.copytree(root / "old", path.parent)
        append(root, path)


def remove_directory(root: Path, path: Path) -> None:
    if path.parent != root:
        shutil.rmtree(path.parent)


def replace_by_directory(root: Path, path: Path) -> None:
    path.unlink()
    path.mkdir()


def replace_by_link(root: Path, path: Path) -> None:
    path.rename(root / "behind")
    path.symlink_to(root / "behind")


def forbid(root: Path, path: Path) -> None:
    path.chmod(0)
    path.parent.chmod(0o500)


def empty(root: Path, path: Path) -> None:
    shutil.rmtree(root)


def exchange_root(root: Path, path: Path) -> None:
    shutil.copytree(root, root.with_name("other"), symlinks=True)
    shutil.rmtree(root)
    root.with_name("other").rename(root)


LOADS: list[Callable[[Path, Path], None]] = [
    overwrite,
    append,
    cut,
    remove,
    rewrite,
    move,
    link,
    make,
    replace_directory,
    remove_directory,
    replace_by_directory,
    replace_by_link,
    forbid,
    empty,
    exchange_root,
]


def as_tree(root: str) -> dict[str, object]:
    """A directory by other means than the slot's: names, and bytes or what else they are."""
    tree: dict[str, object] = {}
    for path in Path(root).rglob("*") if os.path.isdir(root) else ():
        name = str(path.relative_to(root))
        if path.is_symlink():
            tree[name] = "link"
        else:
            tree[name] = "directory" if path.is_dir() else path.read_bytes()
    return tree


def left_by(slot: Slot, *, untouched: bool) -> object:
    """What a slot says it holds, with the links, or which error it raises."""
    try:
        found = slot.image(untouched=untouched)
    except (ForeignEntry, OSError) as error:
        return type(error)
    return found, found.links


@SETTINGS
@given(
    st.lists(st.tuples(images(), st.none() | st.sampled_from(LOADS), st.integers(0)), max_size=6),
    st.booleans(),
    st.integers(0, 64),
    st.booleans(),
)
def test_any_history_ends_in_the_image(history, fresh_inodes, kept_open, look):
    with pytest.MonkeyPatch.context() as patch, Scratch() as space:
        patch.setattr(slots, "_KEPT_OPEN", kept_open)
        before = len(os.listdir("/proc/self/fd")) if sys.platform == "linux" else 0
        with Slot(space, fresh_inodes=fresh_inodes) as slot:
            for wanted, load, number in history:
                slot.hold(wanted, untouched=look)
                assert held(slot) == wanted
                assert slot.image().links == wanted.links
                assert slot.changed() == ()
                if load is not None and wanted.files:
                    old = as_tree(slot.path)
                    paths = sorted(wanted.files)
                    load(Path(slot.path), Path(slot.path, paths[number % len(paths)]))
                    new = as_tree(slot.path)
                    differences = {name for name in {*old, *new} if old.get(name) != new.get(name)}
                    assert set(slot.changed()) == differences
                    assert left_by(slot, untouched=True) == left_by(slot, untouched=False)
        assert os.listdir(space.path) in ([], ["other"])
        if before:
            assert len(os.listdir("/proc/self/fd")) == before


# --- single rules -------------------------------------------------------------------------------


def test_the_least_work(slot):
    """A file whose bytes stay is not touched, and one that is changed keeps its inode."""
    slot.hold(image({"a": b"one", "d/b": b"two"}, "d"))
    inodes = [os.stat(f"{slot.path}/{name}").st_ino for name in ("a", "d/b")]
    changes = [os.stat(f"{slot.path}/{name}").st_ctime_ns for name in ("a", "d")]
    slot.hold(image({"a": bytes(bytearray(b"one")), "d/b": b"2"}, "d"))
    assert [os.stat(f"{slot.path}/{name}").st_ino for name in ("a", "d/b")] == inodes
    assert [os.stat(f"{slot.path}/{name}").st_ctime_ns for name in ("a", "d")] == changes


def test_a_write_of_equal_length_in_the_same_instant_is_seen(slot):
    for number in range(50):
        slot.hold(image({"a": b"%05d" % number}))
        with open(f"{slot.path}/a", "r+b") as file:
            file.write(b"x")
        assert slot.changed() == ("a",)


def test_equal_bytes_are_no_change(slot):
    slot.hold(image({"a": b"same", "b": b""}))
    path = Path(slot.path, "a")
    path.write_bytes(b"same")
    os.utime(Path(slot.path, "b"))
    assert slot.changed() == ()
    (path.parent / "tmp").write_bytes(b"same")
    (path.parent / "tmp").replace(path)
    assert slot.changed() == ()
    slot.hold(image({"a": b"other"}))
    assert held(slot) == image({"a": b"other"})


def test_a_store_that_keeps_a_file_open(space):
    """By default it keeps writing to the slot's file; with fresh inodes, or renewed, it cannot."""
    for arguments, renew, expected in (
        ({}, False, b"LATE"),
        ({"fresh_inodes": True}, False, b"next"),
        ({}, True, b"next"),
    ):
        with Slot(space, **arguments) as slot:
            slot.hold(image({"a": b"first"}))
            with open(f"{slot.path}/a", "r+b", buffering=0) as leaked:
                leaked.write(b"x")
                slot.hold(image({"a": b"next"}), renew=renew)
                leaked.seek(0)
                leaked.write(b"LATE")
            assert slot.image().files["a"] == expected
            assert slot.changed() == (("a",) if expected == b"LATE" else ())


def test_untouched_takes_the_last_look_for_granted(slot):
    slot.hold(image({"a": b"one"}))
    Path(slot.path, "a").write_bytes(b"changed")
    Path(slot.path, "b").touch()
    assert slot.changed() == ("a", "b")
    slot.hold(image({"a": b"one"}), untouched=True)
    assert held(slot) == image({"a": b"one"})
    assert slot.changed() == ()


def test_of_an_image_only_what_changed_is_read(slot, monkeypatch):
    slot.hold(image({"a": b"one", "d/b": b"two"}, "d"))
    Path(slot.path, "d/new").write_bytes(b"new")
    Path(slot.path, "d/b").write_bytes(b"changed")
    Path(slot.path, "d/e").mkdir()
    assert slot.changed() == ("d/b", "d/e", "d/new")
    read = []

    def reading(path):
        read.append(path)
        return read_file(path)

    monkeypatch.setattr(held_module, "read_file", reading)
    left = image({"a": b"one", "d/b": b"changed", "d/new": b"new"}, "d", "d/e")
    assert slot.image(untouched=True) == left
    assert read == [f"{slot.path}/d/new"]


def test_a_new_name_of_a_held_file_is_a_link(slot):
    slot.hold(image({"d/a": b"one"}, "d"))
    os.link(f"{slot.path}/d/a", f"{slot.path}/d/b")
    assert slot.changed() == ("d/b",)
    assert slot.image(untouched=True).links == (("d/a", "d/b"),)


@pytest.mark.parametrize("untouched", [False, True])
def test_what_no_image_can_hold(slot, untouched):
    slot.hold(image({}))
    os.mkfifo(f"{slot.path}/pipe")
    assert slot.changed() == ("pipe",)
    with pytest.raises(ForeignEntry, match="'pipe' is neither"):
        slot.image(untouched=untouched)
    slot.hold(image({}))
    assert held(slot) == image({})


def test_many_files(space):
    """More than are kept open."""
    many = {f"{number:04}": b"%d" % number for number in range(300)}
    with Slot(space) as slot:
        slot.hold(image(many))
        Path(slot.path, "0299").write_bytes(b"changed")
        assert slot.changed() == ("0299",)
        slot.hold(image(many))
        assert slot.image() == image(many)


def test_a_closed_slot(space):
    slot = Slot(space)
    with pytest.raises(ValueError, match="no image"):
        slot.changed()
    slot.hold(image({"a": b""}))
    slot.close()
    slot.close()
    assert not os.path.exists(slot.path)
    with pytest.raises(ValueError, match="closed"):
        slot.hold(image({}))


@pytest.mark.parametrize("call", ["pwrite", "open_descriptor", "mkdir", "ftruncate"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk(call, code, slot, monkeypatch):
    before = image({"a": b"long before"})
    after = image({"a": b"", "b": b"new", "d/c": b"x"}, "d")
    slot.hold(before)

    def full(*arguments: object, **named: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(Real, call, full)
    with pytest.raises(ScratchFull) as caught:
        slot.hold(after)
    assert os.path.dirname(slot.path) in str(caught.value)
    assert "free some" in str(caught.value)
    assert caught.value.errno == code
    monkeypatch.undo()
    slot.hold(after)
    assert held(slot) == after


def test_a_disk_that_fills_in_the_middle_of_a_write(slot, monkeypatch):
    slot.hold(image({"a": b"0123456789"}))
    calls = iter([True, False])

    def filling(descriptor: int, data: bytes, offset: int) -> int:
        if next(calls):
            return os.pwrite(descriptor, data[:4], offset)
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(Real, "pwrite", filling)
    with pytest.raises(ScratchFull):
        slot.hold(image({"a": b"abcdefghij"}))
    monkeypatch.undo()
    slot.hold(image({"a": b"0123456789"}))
    assert held(slot) == image({"a": b"0123456789"})


# --- scratch space ------------------------------------------------------------------------------


def test_scratch_says_where_it_is(tmp_path):
    path, reason = memory_directory()
    assert reason.startswith(f"{path} (")
    with Scratch() as space:
        assert space.place == reason
        assert os.path.dirname(space.path) == path
    with Scratch(tmp_path) as space:
        assert space.place == f"{tmp_path} (as given)"


def test_a_small_memory_file_system_is_passed_over(monkeypatch, tmp_path):
    monkeypatch.setattr(scratch, "_ROOM_BYTES", 1 << 62)
    path, reason = memory_directory()
    assert path != "/dev/shm"
    assert "less than" in reason or "no mem" in reason


def test_nothing_is_left_when_closed(tmp_path):
    with Scratch(tmp_path) as space:
        Slot(space).hold(image({"d/a": b"x"}, "d"))
        os.chmod(f"{space.path}/1/d", 0o500)
        assert len(os.listdir(tmp_path)) == 2
    assert space.closed
    space.close()
    assert os.listdir(tmp_path) == []


def test_nothing_is_left_when_forgotten(tmp_path):
    Scratch(tmp_path)
    assert os.listdir(tmp_path) == []


CHILD = """
import os, sys
import signal
# A process started in the background of a script ignores interrupts, and so would this one.
signal.signal(signal.SIGINT, signal.default_int_handler)
from torntail.crash.disk import DiskImage
from torntail.record.scratch import Scratch
from torntail.record.slots import Slot
space = Scratch(sys.argv[1])
slot = Slot(space)
slot.hold(DiskImage({"a": b"x"}, frozenset()))
if not os.fork():
    sys.exit()
os.wait()
assert os.path.exists(slot.path + "/a")
print("ready", flush=True)
"""


def child(tmp_path: Path, more: str) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [sys.executable, "-c", CHILD + more, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    return process


@pytest.mark.parametrize("end", ["pass", "sys.exit(3)", "raise RuntimeError"])
def test_nothing_is_left_at_exit(end, tmp_path):
    with child(tmp_path, end) as process:
        process.wait()
    assert os.listdir(tmp_path) == []


def test_nothing_is_left_by_an_interrupt(tmp_path):
    with child(tmp_path, "sys.stdin.read()") as process:
        assert len(os.listdir(tmp_path)) == 2
        process.send_signal(signal.SIGINT)
        process.wait()
    assert os.listdir(tmp_path) == []


def test_what_a_killed_process_left_is_removed_by_the_next(tmp_path):
    (tmp_path / "torntail-scratch-of-somebody").mkdir()
    with child(tmp_path, "sys.stdin.read()") as process:
        ours = {"torntail-scratch-of-somebody"}
        theirs = set(os.listdir(tmp_path)) - ours
        assert len(theirs) == 2
        with Scratch(tmp_path):
            assert theirs < set(os.listdir(tmp_path))
        process.kill()
        process.wait()
        assert set(os.listdir(tmp_path)) == theirs | ours
        with Scratch(tmp_path) as space:
            path = os.path.basename(space.path)
            assert set(os.listdir(tmp_path)) == {path, f"{path}.lock"} | ours
    assert set(os.listdir(tmp_path)) == ours


def test_what_is_not_clearly_ours_is_left(tmp_path):
    name = "torntail-scratch-0123456789abcdef"
    (tmp_path / "precious").mkdir()
    (tmp_path / name).symlink_to("precious")
    (tmp_path / f"{name}.lock").touch()
    (tmp_path / "torntail-scratch-fedcba9876543210").mkdir()
    (tmp_path / "torntail-scratch-fedcba9876543210.lock").symlink_to("precious")
    (tmp_path / "torntail-scratch-0.lock").touch()
    before = sorted(os.listdir(tmp_path))
    with Scratch(tmp_path):
        pass
    assert sorted(os.listdir(tmp_path)) == before


def test_a_lock_taken_by_the_janitor_is_no_lock(tmp_path, monkeypatch):
    """Between the making of a lock file and its locking, another may remove it as a dead one's."""
    others = iter([True, False])
    flock = fcntl.flock

    def taken(descriptor: int, operation: int) -> None:
        if next(others):
            for path in tmp_path.iterdir():
                path.unlink()
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", taken)
    with Scratch(tmp_path) as space:
        assert os.path.exists(space.path + ".lock")
    assert os.listdir(tmp_path) == []


def test_a_full_place(tmp_path, monkeypatch):
    def full(*arguments: object, **named: object) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(Real, "mkdir", full)
    with pytest.raises(ScratchFull, match="scratch space"):
        Scratch(tmp_path)
    assert os.listdir(tmp_path) == []


def test_files_are_as_old_as_they_were_last_written_and_no_time_comes_twice(tmp_path):
    disk = Disk("kill")
    for operation in (
        CreateFile(ROOT, "log", 1),
        CreateFile(ROOT, "index", 2),
        Write(1, 0, b"one"),
        Write(2, 0, b"1"),
    ):
        disk = disk.after(operation)
    earlier = disk.image()
    later = disk.after(Write(1, 0, b"two")).image()

    def times() -> list[int]:
        return [os.stat(f"{own.path}/{name}").st_mtime_ns for name in ("log", "index")]

    with Scratch(tmp_path) as opened, Slot(opened) as own:
        own.hold(earlier)
        log, index = times()
        assert log < index < time.time_ns()
        own.hold(later)
        assert times()[0] > index == times()[1]
        own.hold(DiskImage({"log": b"one", "index": b"1"}, frozenset(), written=earlier.written))
        assert log < times()[0] < index == times()[1]
        with open(f"{own.path}/index", "ab") as file:
            file.write(b"2")
        assert own.changed() == ("index",)
        found = own.image(untouched=True)
        assert found.written["log"] < found.written["index"]
        own.hold(found)
        assert times()[0] < times()[1] != index
