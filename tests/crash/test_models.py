"""The persistence models: what a crash may leave, held against small logs worked out by hand."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torntail.crash.crashes import Crash, FileChoice, crashes, moments
from torntail.crash.disk import PENDING_VERSIONS, Disk, DiskImage, FileVersions, Model, Name
from torntail.crash.oplog import (
    ROOT,
    CreateFile,
    Exchange,
    Link,
    MakeDirectory,
    Operation,
    OpLog,
    RemoveDirectory,
    Rename,
    SyncAll,
    SyncDirectory,
    SyncFile,
    Truncate,
    Unlink,
    Write,
)

PROFILE = settings(max_examples=200, deadline=None, database=None, derandomize=False)


def folded(model: str, operations: list[Operation]) -> Disk:
    disk = Disk(model)  # type: ignore[arg-type]
    for operation in operations:
        disk = disk.after(operation)
    return disk


def final_images(model: str, operations: list[Operation]) -> set[DiskImage]:
    """Every image a crash after the last operation may leave."""
    *_, last = moments(Disk(model), operations)  # type: ignore[arg-type]
    return {crash.image(last.disk) for crash in crashes(last, model)}  # type: ignore[arg-type]


def files_of(images: set[DiskImage]) -> set[frozenset[tuple[str, bytes]]]:
    return {frozenset(image.files.items()) for image in images}


@st.composite
def logs(draw: st.DrawFn, length: int = 7) -> list[Operation]:
    """Short lawful logs over a few names: small enough for every choice to be visited."""
    operations: list[Operation] = []
    disk = Disk("posix")
    for number in range(1, draw(st.integers(1, length)) + 1):
        files = sorted(disk.files)
        named = sorted(name for name, inode in disk.names.items() if inode in disk.files)
        kinds = ["create", "sync-all"] + (["mkdir"] if len(disk.directories) < 2 else [])
        if files:
            kinds += ["write", "write", "truncate", "fsync", "fsync-directory"]
        if named:
            kinds += ["unlink", "rename", "link", "exchange"]
        kind = draw(st.sampled_from(kinds))
        directory = draw(st.sampled_from(sorted(disk.directories)))
        free = draw(st.sampled_from("abcd"))
        taken = disk.names.get(Name(directory, free))
        match kind:
            case "create" if taken is None:
                operation: Operation = CreateFile(directory, free, number)
            case "mkdir" if taken is None:
                operation = MakeDirectory(directory, free, number)
            case "write":
                inode = draw(st.sampled_from(files))
                size = len(disk.files[inode].visible)
                offset = draw(st.sampled_from([0, size, size + 3]))
                operation = Write(inode, offset, draw(st.sampled_from([b"xy", b"z\n", b"wvu"])))
            case "truncate":
                inode = draw(st.sampled_from(files))
                operation = Truncate(inode, draw(st.integers(0, 5)))
            case "fsync":
                operation = SyncFile(draw(st.sampled_from(files)))
            case "fsync-directory":
                operation = SyncDirectory(directory)
            case "sync-all":
                operation = SyncAll()
            case "unlink":
                operation = Unlink(*draw(st.sampled_from(named)))
            case "rename" if taken is None or taken in disk.files:
                operation = Rename(*draw(st.sampled_from(named)), directory, free)
            case "link" if taken is None:
                source = draw(st.sampled_from(named))
                operation = Link(disk.names[source], directory, free)
            case "exchange":
                one, other = draw(st.sampled_from(named)), draw(st.sampled_from(named))
                operation = Exchange(*one, *other)
            case _:
                continue
        disk = disk.after(operation)
        operations.append(operation)
    return operations


@given(logs())
@PROFILE
def test_each_model_allows_what_the_stricter_one_does(operations: list[Operation]) -> None:
    kill = {
        crash.image(moment.disk)
        for moment in moments(Disk("ordered"), operations)
        for crash in crashes(moment, "kill")
    }
    ordered, posix = (
        {
            crash.image(moment.disk)
            for moment in moments(Disk(model), operations)
            for crash in crashes(moment, model, exhaustive=4096)
        }
        for model in ("ordered", "posix")
    )
    assert kill <= ordered
    if all(len(moment.disk.changes) <= 2 for moment in moments(Disk("posix"), operations)):
        assert ordered <= posix


@given(logs(), st.sampled_from(["ordered", "posix"]))
@PROFILE
def test_after_everything_is_synced_only_the_real_disk_is_left(
    operations: list[Operation], model: str
) -> None:
    visible = folded(model, operations).image()
    assert final_images(model, [*operations, SyncAll()]) == {visible}


@given(logs(), st.sampled_from(["ordered", "posix"]))
@PROFILE
def test_nothing_synced_is_ever_missing(operations: list[Operation], model: str) -> None:
    operations = [*operations, SyncAll(), CreateFile(ROOT, "later", 90), Write(90, 0, b"later")]
    disk = folded(model, operations)
    settled = folded(model, operations[:-2]).image()
    for image in final_images(model, operations):
        kept = {path: data for path, data in image.files.items() if path != "later"}
        assert kept == {p: d for p, d in settled.files.items() if p != "later"}
        assert image.directories == settled.directories
    assert disk.image().files["later"] == b"later"


def test_a_new_file_without_any_fsync() -> None:
    operations: list[Operation] = [CreateFile(ROOT, "log", 1), Write(1, 0, b"ab")]
    allowed = {
        frozenset(),
        frozenset({("log", b"")}),
        frozenset({("log", b"a")}),
        frozenset({("log", b"ab")}),
        frozenset({("log", b"\0\0")}),
    }
    assert files_of(final_images("ordered", operations)) == allowed
    garbage = files_of(final_images("posix", operations)) - allowed
    assert {len(dict(image)["log"]) for image in garbage} == {2}
    # All of it, or the second byte behind a good first one; or that byte is not there yet.
    assert len(garbage) == 3


def test_an_fsync_of_a_new_file_settles_its_name_in_a_journal_only() -> None:
    operations: list[Operation] = [CreateFile(ROOT, "log", 1), Write(1, 0, b"ab"), SyncFile(1)]
    whole = frozenset({("log", b"ab")})
    assert files_of(final_images("ordered", operations)) == {whole}
    assert files_of(final_images("posix", operations)) == {frozenset(), whole}
    assert files_of(final_images("posix", [*operations, SyncDirectory(ROOT)])) == {whole}


def test_a_rename_before_its_data() -> None:
    operations: list[Operation] = [
        CreateFile(ROOT, "new", 1),
        Write(1, 0, b"a"),
        Rename(ROOT, "new", ROOT, "log"),
    ]
    ordered = files_of(final_images("ordered", operations))
    assert ordered == {
        frozenset(),
        frozenset({("new", b"")}),
        frozenset({("new", b"a")}),
        frozenset({("new", b"\0")}),
        frozenset({("log", b"")}),
        frozenset({("log", b"a")}),
        frozenset({("log", b"\0")}),
    }
    both = frozenset({("new", b"a"), ("log", b"a")})
    assert both not in ordered
    assert both in files_of(final_images("posix", operations))


def test_an_overwritten_rename_leaves_the_old_or_the_new_file() -> None:
    operations: list[Operation] = [
        CreateFile(ROOT, "log", 1),
        Write(1, 0, b"old"),
        SyncAll(),
        CreateFile(ROOT, "new", 2),
        Write(2, 0, b"n"),
        SyncFile(2),
        Rename(ROOT, "new", ROOT, "log"),
    ]
    images = files_of(final_images("ordered", operations))
    assert images == {
        frozenset({("log", b"old"), ("new", b"n")}),
        frozenset({("log", b"n")}),
    }


def test_bytes_behind_an_unsynced_truncate_may_come_back() -> None:
    operations: list[Operation] = [
        CreateFile(ROOT, "log", 1),
        Write(1, 0, b"goodTORN"),
        SyncAll(),
        Truncate(1, 4),
        Write(1, 4, b"next"),
    ]
    contents = {dict(image)["log"] for image in files_of(final_images("ordered", operations))}
    assert {b"good", b"goodTORN", b"goodnext", b"good\0\0\0\0", b"goodn", b"goodne"} <= contents
    synced: list[Operation] = [*operations[:4], SyncFile(1), operations[4]]
    contents = {dict(image)["log"] for image in files_of(final_images("ordered", synced))}
    assert contents == {
        b"good",
        b"goodn",
        b"goodne",
        b"goodnex",
        b"goodnext",
        b"good\0\0\0\0",
    }


def test_pages_of_one_write_survive_apart() -> None:
    page = 4096
    data = b"a" * page + b"b" * page + b"c" * 10
    operations: list[Operation] = [CreateFile(ROOT, "log", 1), SyncAll(), Write(1, 0, data)]
    contents = {dict(image)["log"] for image in files_of(final_images("ordered", operations))}
    assert b"\0" * page + data[page:] in contents  # drop one
    assert data[:page] + b"\0" * page + data[2 * page :] in contents
    assert b"\0" * page + b"b" * page in contents  # keep one


def test_sectors_of_one_page_survive_apart() -> None:
    data = b"a" * 512 + b"b" * 512 + b"c" * 512
    operations: list[Operation] = [CreateFile(ROOT, "log", 1), SyncAll(), Write(1, 0, data)]
    contents = {dict(image)["log"] for image in files_of(final_images("ordered", operations))}
    assert data[:512] + b"\0" * 512 + data[1024:] in contents
    assert b"\0" * 512 + data[512:1024] in contents


def test_a_synced_write_is_durable_without_an_fsync() -> None:
    operations: list[Operation] = [
        CreateFile(ROOT, "log", 1),
        SyncAll(),
        Write(1, 0, b"ab", synced=True),
    ]
    assert files_of(final_images("posix", operations)) == {frozenset({("log", b"ab")})}


def test_after_a_kill_unsynced_bytes_are_still_unsynced() -> None:
    disk = folded("ordered", [CreateFile(ROOT, "log", 1), SyncAll(), Write(1, 0, b"ab")])
    *_, moment = moments(disk, [])
    after_kill = Crash("kill", 0).disk_after(disk)
    assert after_kill.files[1].pending
    power = Crash("ordered", 0, None, (), ((1, FileChoice(1, 1)),))
    after_power = power.disk_after(disk)
    assert after_power.files == {1: FileVersions((b"a",))}
    assert power.image(moment.disk) == after_power.image()
    assert after_power.changes == ()


def test_a_lost_directory_takes_what_hangs_on_it() -> None:
    operations: list[Operation] = [
        MakeDirectory(ROOT, "bucket", 1),
        CreateFile(1, "log", 2),
        Write(2, 0, b"a"),
        SyncFile(2),
        SyncDirectory(1),
    ]
    assert frozenset() in files_of(final_images("posix", operations))
    settled = files_of(final_images("posix", [*operations, SyncDirectory(ROOT)]))
    assert settled == {frozenset({("bucket/log", b"a")})}


def test_a_removed_directory_is_gone() -> None:
    operations: list[Operation] = [
        MakeDirectory(ROOT, "bucket", 1),
        SyncAll(),
        RemoveDirectory(ROOT, "bucket"),
    ]
    assert {image.directories for image in final_images("ordered", operations)} == {
        frozenset(),
        frozenset({"bucket"}),
    }


@given(logs())
@PROFILE
def test_a_log_survives_json(operations: list[Operation]) -> None:
    log = OpLog(tuple(operations))
    assert OpLog.from_json(log.to_json()) == log


def test_a_log_with_a_name_that_is_no_text_survives_json() -> None:
    log = OpLog((CreateFile(ROOT, "\udcff", 1),))
    assert OpLog.from_json(log.to_json()) == log


def test_a_directory_never_has_two_names() -> None:
    operations: list[Operation] = [
        MakeDirectory(ROOT, "old", 1),
        SyncAll(),
        Rename(ROOT, "old", ROOT, "new"),
    ]
    directories = {image.directories for image in final_images("posix", operations)}
    assert directories == {frozenset(), frozenset({"old"}), frozenset({"new"})}


def test_a_file_that_is_never_synced_costs_bounded_memory() -> None:
    file = FileVersions()
    for number in range(1000):
        file = file.written(number, b"x", synced=False)
    assert len(file.versions) == PENDING_VERSIONS + 1
    assert (file.durable, file.visible) == (b"", b"x" * 1000)
    assert len(file.writes) == PENDING_VERSIONS
    assert file.writes[0] is None
    assert file.writes[-1] == (999, 1)


@pytest.mark.parametrize("model", ["ordered", "posix"])
def test_an_overwrite_cuts_nothing_off(model: Model) -> None:
    """What is synced behind the range that is written over stays, whatever becomes of the range."""
    operations: list[Operation] = [
        CreateFile(ROOT, "slots", 1),
        Write(1, 0, bytes(range(256)) * 6 + b"z" * 88),
        SyncFile(1),
        SyncDirectory(ROOT),
        Write(1, 512, b"n" * 512),
    ]
    *_, last = moments(Disk(model), operations)
    contents = [crash.image(last.disk).files["slots"] for crash in crashes(last, model)]
    assert {(len(content), content[1024:]) for content in contents} == {
        (1624, (bytes(range(256)) * 6 + b"z" * 88)[1024:])
    }
    assert len(set(contents)) > 2
