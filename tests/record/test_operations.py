"""Small scripts, each held whole against the log it must leave, the same on every Python."""

from __future__ import annotations

import errno
import io
import os
import shutil
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from torntail.crash.oplog import (
    ROOT,
    Acknowledged,
    CreateFile,
    Invoked,
    Link,
    MakeDirectory,
    Operation,
    RemoveDirectory,
    Rename,
    SyncAll,
    SyncDirectory,
    SyncFile,
    Truncate,
    Unlink,
    Write,
)
from torntail.record.inprocess import Recorder
from torntail.record.install import install

Script = Callable[[Path], None]

linux_only = pytest.mark.skipif(not hasattr(os, "copy_file_range"), reason="a call of Linux")


def recorded(root: Path, script: Script) -> list[Operation]:
    with Recorder(root) as recorder:
        script(root)
    recorder.check()
    return recorder.operations


def through_os(root: Path) -> None:
    descriptor = os.open(root / "a", os.O_WRONLY | os.O_CREAT, 0o600)
    assert os.write(descriptor, b"hello") == 5
    assert os.write(descriptor, memoryview(bytearray(b" world"))) == 6
    assert os.write(descriptor, b"") == 0
    os.ftruncate(descriptor, 7)
    os.fsync(descriptor)
    os.fdatasync(descriptor)
    os.lseek(descriptor, 2, os.SEEK_SET)
    os.write(descriptor, b"LL")
    os.close(descriptor)
    os.truncate(root / "a", 9)
    os.sync()


def through_positions(root: Path) -> None:
    descriptor = os.open(root / "a", os.O_RDWR | os.O_CREAT)
    os.pwrite(descriptor, b"abc", 4)
    os.writev(descriptor, [b"12", bytearray(b"3")])
    os.pwritev(descriptor, [b"x", b"y"], 1)
    os.truncate(descriptor, 6)
    os.close(descriptor)


def through_appending(root: Path) -> None:
    """An append lands at the end, wherever the position or the call's offset is."""
    one = os.open(root / "a", os.O_RDWR | os.O_CREAT | os.O_APPEND)
    other = os.open(root / "a", os.O_RDWR | os.O_APPEND)
    os.write(one, b"1")
    os.write(other, b"22")
    os.lseek(one, 0, os.SEEK_SET)
    os.write(one, b"333")
    os.close(one)
    os.close(other)


def through_duplicates(root: Path) -> None:
    """Duplicated descriptors share a position, two openings do not."""
    one = os.open(root / "a", os.O_RDWR | os.O_CREAT)
    twin = os.dup(one)
    other = os.open(root / "a", os.O_RDWR)
    os.write(one, b"ab")
    os.write(twin, b"cd")
    os.write(other, b"A")
    target = os.dup2(other, one)
    os.write(target, b"B")
    for descriptor in (one, twin, other):
        os.close(descriptor)


def through_flags(root: Path) -> None:
    """Opening makes, truncates, or does neither."""
    for flags in (
        os.O_CREAT,
        os.O_CREAT | os.O_TRUNC,
        os.O_TRUNC,
        os.O_CREAT,
        0,
    ):
        os.close(os.open(root / "a", os.O_WRONLY | flags))
    with pytest.raises(FileExistsError):
        os.open(root / "a", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_TRUNC)
    os.close(os.open(root / "b", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_EXCL))
    with pytest.raises(FileNotFoundError):
        os.open(root / "missing", os.O_WRONLY | os.O_TRUNC)


def through_synchronous(root: Path) -> None:
    for flag in (os.O_DSYNC, os.O_SYNC):
        descriptor = os.open(root / "a", os.O_WRONLY | os.O_CREAT | os.O_APPEND | flag)
        os.write(descriptor, b"s")
        os.close(descriptor)


def through_names(root: Path) -> None:
    os.makedirs(root / "d" / "e")
    (root / "d" / "a").touch()
    os.link(root / "d" / "a", root / "b")
    os.rename(root / "b", root / "d" / "e" / "c")
    os.replace(root / "d" / "e" / "c", root / "d" / "a")  # One file: nothing happens.
    os.unlink(root / "d" / "e" / "c")
    os.rename(root / "d", root / "f")
    os.write(descriptor := os.open(root / "f" / "a", os.O_WRONLY), b"x")
    os.close(descriptor)
    os.remove(root / "f" / "a")
    os.removedirs(root / "f" / "e")
    root.mkdir(exist_ok=True)


def through_directory_descriptors(root: Path) -> None:
    (root / "d").mkdir()
    top = os.open(root, os.O_RDONLY)
    below = os.open("d", os.O_RDONLY, dir_fd=top)
    os.close(os.open("a", os.O_WRONLY | os.O_CREAT, dir_fd=below))
    os.mkdir("e", dir_fd=below)
    os.link("a", "b", src_dir_fd=below, dst_dir_fd=top)
    os.rename("a", "c", src_dir_fd=below, dst_dir_fd=top)
    os.fsync(below)
    os.fsync(top)
    os.unlink("c", dir_fd=top)
    os.rmdir("e", dir_fd=below)
    os.close(below)
    os.close(top)


def through_a_changing_directory(root: Path) -> None:
    before = os.getcwd()
    os.chdir(root)
    try:
        os.mkdir("d/")
        with open("d/../d//a", "w") as file:
            file.write("x")
        os.rename(b"d/a", b"b")
    finally:
        os.chdir(before)


def through_text(root: Path) -> None:
    with open(root / "a", "w", encoding="utf-8") as file:
        file.write("one\n")
        file.flush()
        os.fsync(file.fileno())
        file.write("two")
        file.write("three")
        os.fsync(file)  # Of what was flushed.
    with open(root / "a", "a", encoding="utf-8") as file:
        print("four", file=file)


def through_buffers(root: Path) -> None:
    with open(root / "a", "wb", buffering=4) as file:
        file.write(b"123")
        file.write(b"45678")
    with open(root / "a", "r+b") as file:
        assert file.read(2) == b"12"
        file.write(b"XY")
        file.seek(6)
        file.truncate()
    with open(root / "a", "ab", buffering=0) as file:
        file.writelines([b"p", b"q"])
        file.truncate(3)
    with open(root / "b", "xb") as file:
        pass
    with pytest.raises(FileExistsError):
        open(root / "b", "x")  # noqa: SIM115
    with open(root / "b", "w+"):
        pass


def through_raw_files(root: Path) -> None:
    with io.FileIO(str(root / "a"), "w") as file:
        file.write(b"abc")
        file.seek(1)
        file.truncate()
        with os.fdopen(os.dup(file.fileno()), "wb") as twin:
            twin.write(b"z")
    with open(os.open(root / "a", os.O_WRONLY | os.O_APPEND), "wb", buffering=0) as file:
        file.write(b"end")


def through_pathlib(root: Path) -> None:
    (root / "d").mkdir()
    path = root / "d" / "a"
    path.write_text("text")
    path.write_bytes(b"bytes")
    path.touch()
    path.rename(root / "b").replace(root / "c")
    (root / "l").hardlink_to(root / "c")
    with (root / "c").open("ab") as file:
        file.write(b"!")
    (root / "c").unlink()
    (root / "c").unlink(missing_ok=True)
    (root / "d").rmdir()


def through_shutil(root: Path) -> None:
    (root / "a").write_bytes(b"0123456789")
    shutil.copyfile(root / "a", root / "b")
    shutil.copy2(root / "a", root / "b")
    shutil.move(root / "b", root / "c")
    with open(root / "a", "rb") as source, open(root / "c", "ab") as target:
        shutil.copyfileobj(source, target, 4)
    shutil.copytree(root, root.parent / f"{root.name}-copy")
    shutil.copytree(root.parent / f"{root.name}-copy", root / "t")
    shutil.rmtree(root / "t")


def through_tempfile(root: Path) -> None:
    descriptor, name = tempfile.mkstemp(dir=root)
    os.rename(name, root / "a")
    os.write(descriptor, b"1")
    os.close(descriptor)
    with tempfile.NamedTemporaryFile(dir=root) as file:
        file.write(b"2")
        os.link(file.name, root / "b")
    with tempfile.TemporaryFile(dir=root) as file:
        file.write(b"never has a name, or none for long")
    with tempfile.TemporaryDirectory(dir=root) as directory:
        (Path(directory) / "c").touch()


def through_copies_of_ranges(root: Path) -> None:
    (root / "a").write_bytes(b"0123456789")
    source = os.open(root / "a", os.O_RDONLY)
    target = os.open(root / "b", os.O_RDWR | os.O_CREAT)
    assert os.sendfile(target, source, 2, 3) == 3
    assert os.sendfile(target, source, None, 100) == 10
    assert os.copy_file_range(source, target, 4, 0, 1) == 4
    os.lseek(source, 8, os.SEEK_SET)
    assert os.copy_file_range(source, target, 100) == 2
    os.posix_fallocate(target, 0, 5)
    os.posix_fallocate(target, 10, 10)
    os.close(source)
    os.close(target)


def through_unlinked_files(root: Path) -> None:
    """A file without a name is still written; its inode number may come back as another file."""
    descriptor = os.open(root / "a", os.O_RDWR | os.O_CREAT)
    os.unlink(root / "a")
    os.write(descriptor, b"gone")
    os.close(descriptor)
    for _ in range(3):
        (root / "a").write_bytes(b"x")
        (root / "a").unlink()


def through_failures(root: Path) -> None:
    """What failed leaves no entry."""
    (root / "d").mkdir()
    (root / "d" / "a").touch()
    for call in (
        lambda: os.rmdir(root / "d"),
        lambda: os.mkdir(root / "d"),
        lambda: os.unlink(root / "b"),
        lambda: os.unlink(root / "d"),
        lambda: os.rename(root / "b", root / "c"),
        lambda: os.link(root / "b", root / "c"),
        lambda: os.link(root / "d" / "a", root / "d"),
        lambda: os.open(root / "missing" / "a", os.O_WRONLY | os.O_CREAT),
        lambda: os.open(root / "d", os.O_WRONLY | os.O_CREAT),
        lambda: os.truncate(root / "b", 0),
        lambda: os.truncate(root / "d" / "a", -1),
        lambda: os.write(99_999, b"x"),
        lambda: os.fsync(99_999),
        lambda: (root / "d").open("wb"),
    ):
        with pytest.raises(OSError, match=r"Errno"):
            call()
    with open(root / "d" / "a", "rb") as file, pytest.raises(OSError, match=r"Errno"):
        os.write(file.fileno(), b"x")


def outside(root: Path) -> None:
    """Whatever is done elsewhere leaves no entry."""
    elsewhere = root.parent / f"{root.name}-elsewhere"
    (elsewhere / "d").mkdir(parents=True)
    with open(elsewhere / "a", "w") as file:
        file.write("x")
        os.fsync(file.fileno())
    os.rename(elsewhere / "a", elsewhere / "b")
    os.link(elsewhere / "b", elsewhere / "c")
    (elsewhere / "b").unlink()
    for directory in (elsewhere, root.parent):
        descriptor = os.open(directory, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)
    os.symlink("c", elsewhere / "s")
    read, write = os.pipe()
    os.write(write, b"x")
    os.close(write)
    os.close(read)
    shutil.rmtree(elsewhere)


def leaving(root: Path) -> None:
    """A name that goes elsewhere is a name removed, and the file no longer looked at."""
    with open(root / "a", "wb", buffering=0) as file:
        os.rename(root / "a", root.parent / f"{root.name}-left")
        file.write(b"not recorded")


LOGS: dict[Script, list[Operation]] = {
    through_os: [
        CreateFile(ROOT, "a", 1),
        Write(1, 0, b"hello"),
        Write(1, 5, b" world"),
        Truncate(1, 7),
        SyncFile(1),
        SyncFile(1),
        Write(1, 2, b"LL"),
        Truncate(1, 9),
        SyncAll(),
    ],
    through_positions: [
        CreateFile(ROOT, "a", 1),
        Write(1, 4, b"abc"),
        Write(1, 0, b"123"),
        Write(1, 1, b"xy"),
        Truncate(1, 6),
    ],
    through_appending: [
        CreateFile(ROOT, "a", 1),
        Write(1, 0, b"1"),
        Write(1, 1, b"22"),
        Write(1, 3, b"333"),
    ],
    through_duplicates: [
        CreateFile(ROOT, "a", 1),
        Write(1, 0, b"ab"),
        Write(1, 2, b"cd"),
        Write(1, 0, b"A"),
        Write(1, 1, b"B"),
    ],
    through_flags: [
        CreateFile(ROOT, "a", 1),
        Truncate(1, 0),
        Truncate(1, 0),
        CreateFile(ROOT, "b", 2),
    ],
    through_synchronous: [
        CreateFile(ROOT, "a", 1),
        Write(1, 0, b"s", synced=True),
        Write(1, 1, b"s", synced=True),
    ],
    through_names: [
        MakeDirectory(ROOT, "d", 1),
        MakeDirectory(1, "e", 2),
        CreateFile(1, "a", 3),
        Link(3, ROOT, "b"),
        Rename(ROOT, "b", 2, "c"),
        Rename(2, "c", 1, "a"),
        Unlink(2, "c"),
        Rename(ROOT, "d", ROOT, "f"),
        Write(3, 0, b"x"),
        Unlink(1, "a"),
        RemoveDirectory(1, "e"),
        RemoveDirectory(ROOT, "f"),
    ],
    through_directory_descriptors: [
        MakeDirectory(ROOT, "d", 1),
        CreateFile(1, "a", 2),
        MakeDirectory(1, "e", 3),
        Link(2, ROOT, "b"),
        Rename(1, "a", ROOT, "c"),
        SyncDirectory(1),
        SyncDirectory(ROOT),
        Unlink(ROOT, "c"),
        RemoveDirectory(1, "e"),
    ],
    through_a_changing_directory: [
        MakeDirectory(ROOT, "d", 1),
        CreateFile(1, "a", 2),
        Write(2, 0, b"x"),
        Rename(1, "a", ROOT, "b"),
    ],
    through_text: [
        CreateFile(ROOT, "a", 1),
        Write(1, 0, b"one\n"),
        SyncFile(1),
        SyncFile(1),
        Write(1, 4, b"twothree"),
        Write(1, 12, b"four\n"),
    ],
    through_buffers: [
        CreateFile(ROOT, "a", 1),
        Write(1, 0, b"123"),
        Write(1, 3, b"45678"),
        Write(1, 2, b"XY"),
        Truncate(1, 6),
        Write(1, 6, b"p"),
        Write(1, 7, b"q"),
        Truncate(1, 3),
        CreateFile(ROOT, "b", 2),
        Truncate(2, 0),
    ],
    through_raw_files: [
        CreateFile(ROOT, "a", 1),
        Write(1, 0, b"abc"),
        Truncate(1, 1),
        Write(1, 1, b"z"),
        Write(1, 2, b"end"),
    ],
    through_pathlib: [
        MakeDirectory(ROOT, "d", 1),
        CreateFile(1, "a", 2),
        Write(2, 0, b"text"),
        Truncate(2, 0),
        Write(2, 0, b"bytes"),
        Rename(1, "a", ROOT, "b"),
        Rename(ROOT, "b", ROOT, "c"),
        Link(2, ROOT, "l"),
        Write(2, 5, b"!"),
        Unlink(ROOT, "c"),
        RemoveDirectory(ROOT, "d"),
    ],
    through_copies_of_ranges: [
        CreateFile(ROOT, "a", 1),
        Write(1, 0, b"0123456789"),
        CreateFile(ROOT, "b", 2),
        Write(2, 0, b"234"),
        Write(2, 3, b"0123456789"),
        Write(2, 1, b"0123"),
        Write(2, 13, b"89"),
        Truncate(2, 20),
    ],
    through_unlinked_files: [
        CreateFile(ROOT, "a", 1),
        Unlink(ROOT, "a"),
        Write(1, 0, b"gone"),
        *(
            operation
            for inode in (2, 3, 4)
            for operation in (
                CreateFile(ROOT, "a", inode),
                Write(inode, 0, b"x"),
                Unlink(ROOT, "a"),
            )
        ),
    ],
    through_failures: [MakeDirectory(ROOT, "d", 1), CreateFile(1, "a", 2)],
    outside: [],
    leaving: [CreateFile(ROOT, "a", 1), Unlink(ROOT, "a")],
}


@pytest.mark.parametrize(
    "script",
    [
        pytest.param(
            script,
            marks=linux_only if script is through_copies_of_ranges else (),
            id=script.__name__,
        )
        for script in LOGS
    ],
)
def test_log_of(script, tmp_path):
    assert recorded(tmp_path, script) == LOGS[script]


def test_shutil(tmp_path):
    root = tmp_path / "root"
    root.mkdir()
    operations = recorded(root, through_shutil)
    begin = [
        CreateFile(ROOT, "a", 1),
        Write(1, 0, b"0123456789"),
        CreateFile(ROOT, "b", 2),
        Write(2, 0, b"0123456789"),
        Truncate(2, 0),
        Write(2, 0, b"0123456789"),
        Rename(ROOT, "b", ROOT, "c"),
        Write(2, 10, b"0123456789"),
        MakeDirectory(ROOT, "t", 3),
    ]
    assert operations[: len(begin)] == begin
    # In which order a tree is copied or removed is not for this test.
    rest = operations[len(begin) :]
    created = {one.name for one in rest if isinstance(one, CreateFile)}
    removed = {one.name for one in rest if isinstance(one, Unlink)}
    assert created == removed == {"a", "c"}
    assert rest[-1] == RemoveDirectory(ROOT, "t")


def test_tempfile(tmp_path):
    operations = recorded(tmp_path, through_tempfile)
    # The temporary names are random, and a file without a name may have had one for a moment.
    first, second, *_ = operations
    assert isinstance(first, CreateFile)
    assert second == Rename(ROOT, first.name, ROOT, "a")
    assert Write(1, 0, b"1") in operations
    assert Write(2, 0, b"2") in operations
    assert Link(2, ROOT, "b") in operations
    assert isinstance(operations[-1], RemoveDirectory)
    assert sorted(os.listdir(tmp_path)) == ["a", "b"]


def test_marks_stand_in_the_same_order(tmp_path):
    with Recorder(tmp_path) as recorder:
        recorder.mark(Invoked(0))
        os.mkdir(tmp_path / "d")
        recorder.mark(Acknowledged(0))
    assert recorder.log.operations == (
        Invoked(0),
        MakeDirectory(ROOT, "d", 1),
        Acknowledged(0),
    )


def test_root_by_a_link_and_files_by_a_link(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    with Recorder(tmp_path / "link") as recorder:
        (tmp_path / "real" / "a").touch()
        (tmp_path / "link" / "b").touch()
        os.symlink(tmp_path / "real" / "a", tmp_path / "to-a")
        with open(tmp_path / "to-a", "w") as file:
            file.write("x")
    recorder.check()
    assert recorder.operations == [
        CreateFile(ROOT, "a", 1),
        CreateFile(ROOT, "b", 2),
        Truncate(1, 0),
        Write(1, 0, b"x"),
    ]


def test_a_short_write_is_logged_short(tmp_path):
    """A real one: a limit on the size of files lets the first part of a write through."""
    import resource
    import signal

    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        with Recorder(tmp_path) as recorder:
            descriptor = os.open(tmp_path / "a", os.O_WRONLY | os.O_CREAT)
            resource.setrlimit(resource.RLIMIT_FSIZE, (10, hard))
            assert os.write(descriptor, b"0123456789abc") == 10
            with pytest.raises(OSError, match=os.strerror(errno.EFBIG)):
                os.write(descriptor, b"x")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)
        os.close(descriptor)
    assert recorder.operations == [CreateFile(ROOT, "a", 1), Write(1, 0, b"0123456789")]
    recorder.check()


def test_a_file_opened_before_the_recording(tmp_path):
    install()
    with open(tmp_path / "a", "wb", buffering=0) as file:
        with Recorder(tmp_path) as recorder:
            os.rename(tmp_path / "a", tmp_path / "b")
            file.write(b"x")
        recorder.check()
    assert recorder.operations == [Rename(ROOT, "a", ROOT, "b"), Write(1, 0, b"x")]


def test_modes_are_those_of_the_real_calls(tmp_path):
    before = os.umask(0o022)
    try:
        with Recorder(tmp_path):
            open(tmp_path / "a", "w").close()
            os.close(os.open(tmp_path / "b", os.O_CREAT | os.O_WRONLY, 0o600))
            os.mkdir(tmp_path / "c", 0o700)
    finally:
        os.umask(before)
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in "abc"]
    assert modes == [0o644, 0o600, 0o700]


@pytest.mark.skipif(not hasattr(os, "RWF_DSYNC"), reason="flags of Linux")
def test_flags_of_single_writes(tmp_path):
    with Recorder(tmp_path) as recorder:
        descriptor = os.open(tmp_path / "a", os.O_RDWR | os.O_CREAT)
        os.pwritev(descriptor, [b"ab"], 0, os.RWF_DSYNC)
        os.pwritev(descriptor, [b"cd"], 0, os.RWF_APPEND)
        os.write(descriptor, b"X")
        os.close(descriptor)
        appending = os.open(tmp_path / "a", os.O_WRONLY | os.O_APPEND)
        os.pwrite(appending, b"e", 0)
        os.close(appending)
    recorder.check()
    assert recorder.operations == [
        CreateFile(ROOT, "a", 1),
        Write(1, 0, b"ab", synced=True),
        Write(1, 2, b"cd"),
        Write(1, 0, b"X"),
        Write(1, 4, b"e"),
    ]
