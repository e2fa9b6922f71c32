"""What a failed fsync leaves: pages a later fsync passes over, and a file that is put back."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from torntail.crash.crashes import crashes, moments
from torntail.crash.disk import PAGE_BYTES, Disk, DiskImage, FileVersions
from torntail.crash.failed_sync import surviving
from torntail.crash.oplog import (
    ROOT,
    CreateFile,
    Operation,
    OpLog,
    SyncAll,
    SyncFailed,
    SyncFile,
    Truncate,
    Write,
)
from torntail.record.replay import replayed

PROFILE = settings(max_examples=200, deadline=None, database=None, derandomize=False)
PAGE = PAGE_BYTES


@st.composite
def logs(draw: st.DrawFn) -> list[Operation]:
    """One file that is written, cut and synced, sometimes in vain, over three pages."""
    operations: list[Operation] = [CreateFile(ROOT, "log", 1)]
    disk = Disk("ordered").after(operations[0])
    for _ in range(draw(st.integers(1, 9))):
        kind = draw(st.sampled_from(["write", "write", "cut", "sync", "fails", "put back"]))
        size = len(disk.files[1].visible)
        match kind:
            case "write":
                offset = draw(st.sampled_from([0, size, PAGE, 2 * PAGE - 2]))
                length = draw(st.sampled_from([1, 3, PAGE]))
                operation: Operation = Write(
                    1, offset, draw(st.sampled_from([b"a", b"b"])) * length
                )
            case "cut":
                operation = Truncate(1, draw(st.sampled_from([0, size // 2, PAGE, size])))
            case "sync":
                operation = SyncFile(1)
            case "fails":
                operation = SyncFailed(1, draw(st.sampled_from(["clean-new", "dirty"])))
            case _:
                operation = SyncFailed(1, "clean-old", disk.files[1].durable)
        operations.append(operation)
        disk = disk.after(operation)
    return operations


def folded(operations: list[Operation], model: str = "ordered") -> Disk:
    disk = Disk(model)  # type: ignore[arg-type]
    for operation in operations:
        disk = disk.after(operation)
    return disk


def contents(operations: list[Operation], model: str = "ordered") -> set[bytes | None]:
    """Every content of the log that a power cut after the last operation may leave."""
    *_, last = moments(Disk(model), operations)  # type: ignore[arg-type]
    images: list[DiskImage] = [crash.image(last.disk) for crash in crashes(last, model)]  # type: ignore[arg-type]
    return {image.files.get("log") for image in images}


@given(logs())
@PROFILE
def test_the_visible_bytes_are_those_of_a_replay(operations: list[Operation]) -> None:
    visible = folded(operations).files[1].visible
    assert replayed(Disk("ordered"), operations).files[1].visible == visible


@given(logs())
@PROFILE
def test_a_lost_page_is_the_same_for_every_fsync_until_it_is_written(
    operations: list[Operation],
) -> None:
    """A page that is not lost is what programs see; a lost one is what was durable before."""
    before = folded(operations).files[1]
    after = before.synced()
    assert after.visible == before.visible
    assert len(after.durable) == len(before.visible)
    for page in range(-(-len(before.visible) // PAGE)):
        piece = slice(page * PAGE, (page + 1) * PAGE)
        seen = before.visible[piece]
        if page in before.lost:
            assert (
                after.durable[piece] == before.durable[piece].ljust(len(seen), b"\0")[: len(seen)]
            )
        else:
            assert after.durable[piece] == seen
    assert after.synced().durable == after.durable


@given(logs(), st.sampled_from(["ordered", "posix"]))
@PROFILE
def test_writing_it_again_makes_it_durable_after_all(
    operations: list[Operation], model: str
) -> None:
    visible = folded(operations).files[1].visible
    again: list[Operation] = [*operations, Write(1, 0, visible), SyncFile(1), SyncAll()]
    assert contents(again, model) == {visible}


@given(logs())
@PROFILE
def test_a_log_with_failures_survives_json(operations: list[Operation]) -> None:
    log = OpLog(tuple(operations))
    assert OpLog.from_json(log.to_json()) == log


def test_the_second_fsync_of_clean_pages_makes_nothing_durable() -> None:
    base: list[Operation] = [CreateFile(ROOT, "log", 1), Write(1, 0, b"old"), SyncAll()]
    failed = [*base, Write(1, 3, b"new"), SyncFailed(1, "clean-new"), SyncFile(1)]
    assert folded(failed).files[1] == FileVersions(
        (b"old\0\0\0", b"oldnew"), (None,), frozenset({0})
    )
    assert {b"old\0\0\0", b"oldnew"} <= contents(failed)
    dirty = [*base, Write(1, 3, b"new"), SyncFailed(1, "dirty"), SyncFile(1)]
    assert contents(dirty) == {b"oldnew"}
    reverted = [*base, Write(1, 3, b"new"), SyncFailed(1, "clean-old", b"old")]
    assert contents(reverted) == {b"old"}
    assert folded(reverted).files[1].visible == b"old"


def test_a_write_into_a_lost_page_makes_all_of_it_dirty_again() -> None:
    operations: list[Operation] = [
        CreateFile(ROOT, "log", 1),
        SyncAll(),
        Write(1, 0, b"a" * PAGE + b"b" * 10),
        SyncFailed(1, "clean-new"),
        Write(1, PAGE + 10, b"c"),
        SyncFile(1),
    ]
    assert folded(operations).files[1].durable == b"\0" * PAGE + b"b" * 10 + b"c"


def test_cutting_lost_bytes_off_and_syncing_settles_the_file() -> None:
    operations: list[Operation] = [
        CreateFile(ROOT, "log", 1),
        Write(1, 0, b"kept"),
        SyncAll(),
        Write(1, 4, b"x" * 2 * PAGE),
        SyncFailed(1, "clean-new"),
        Truncate(1, 4),
        SyncFile(1),
    ]
    assert folded(operations).files[1] == FileVersions((b"kept",))
    assert contents(operations) == {b"kept"}


def test_what_survives_has_the_visible_length() -> None:
    assert surviving(b"ab", b"abcdef", {0}, 4) == b"ab\0\0ef"
    assert surviving(b"abcdefgh", b"xy", {0, 1}, 4) == b"ab"
    assert surviving(b"", b"", {0}, 4) == b""
