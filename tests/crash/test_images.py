"""What the crashes at a moment leave: nothing is lost by leaving equal ones out, and keys hold."""

from __future__ import annotations

from itertools import product

from hypothesis import assume, given
from hypothesis import strategies as st

from tests.crash.test_models import PROFILE, folded, logs
from torntail.crash.choices import (
    GARBAGE,
    FileChoice,
    file_choices,
    name_choices,
    newest_choices,
)
from torntail.crash.crashes import Crash, Images, Moment, image_key, moments
from torntail.crash.disk import Disk, DiskImage, Model
from torntail.crash.oplog import ROOT, CreateFile, Operation, SyncAll, SyncFile, Truncate, Write

MODELS = st.sampled_from(["ordered", "posix"])


def all_combinations(moment: Moment, model: Model) -> set[DiskImage]:
    """What is left by each set of names with each choice of each file, equal ones among them."""
    disk = moment.disk
    files = [file_choices(disk.files[inode], model) for inode in disk.pending_files]
    return {
        Crash(model, 0, None, names, tuple(zip(disk.pending_files, chosen, strict=True))).image(
            disk
        )
        for names in name_choices(disk)
        for chosen in product(*files)
    }


@given(logs(length=5), MODELS)
@PROFILE
def test_leaving_out_what_is_equal_loses_nothing(operations: list[Operation], model: Model) -> None:
    *_, last = moments(Disk(model), operations)
    found = [left.image for left in Images(model, exhaustive=1 << 30).at(last)]
    assert set(found) == all_combinations(last, model)


@given(logs(length=12), MODELS | st.just("kill"))
@PROFILE
def test_a_key_is_that_of_its_image(operations: list[Operation], model: Model) -> None:
    images = Images(model)
    before = None
    for moment in moments(Disk(model), operations):
        for left in images.at(moment, since=before):
            assert left.image == left.crash.image(moment.disk)
            assert left.key == image_key(left.image)
        if moment.torn is None:
            before = moment.disk


@given(logs(length=12), MODELS)
@PROFILE
def test_moments_that_share_their_work_leave_the_same(
    operations: list[Operation], model: Model
) -> None:
    images = Images(model)
    for moment in moments(Disk(model), operations):
        shared = [(left.key, left.crash) for left in images.at(moment)]
        assert shared == [(left.key, left.crash) for left in Images(model).at(moment)]


@given(logs(length=7), MODELS)
@PROFILE
def test_what_the_last_operation_has_no_part_in_was_there_before(
    operations: list[Operation], model: Model
) -> None:
    everything = [*moments(Disk(model), operations, tears="synced")]
    # Of more names than four not all sets are tried.
    assume(all(sum(map(len, moment.disk.changes)) <= 4 for moment in everything))
    images = Images(model, exhaustive=1 << 30)
    seen: set[int] = set()
    before = None
    for moment in everything:
        seen |= {left.key for left in images.at(moment, since=before)}
        assert {left.key for left in images.at(moment)} <= seen
        if moment.torn is None:
            before = moment.disk


def test_garbage_in_all_of_two_writes_is_new_with_the_second() -> None:
    operations: list[Operation] = [
        CreateFile(ROOT, "log", 1),
        Write(1, 3, b"xy"),
        Write(1, 0, b"xy"),
    ]
    file = folded("posix", operations).files[1]
    garbage = FileChoice(5, 0, ((0, 5, GARBAGE),))
    assert garbage in newest_choices(file, "posix")
    assert garbage not in newest_choices(file.written(0, b"zz", synced=False), "posix")


@given(logs(length=12))
@PROFILE
def test_versions_begin_alike(operations: list[Operation]) -> None:
    for file in folded("posix", operations).files.values():
        length = file.common_length
        assert {version[:length] for version in file.versions} == {file.durable[:length]}
        for choice in file_choices(file, "posix"):
            assert choice.content(file)[:length] + choice.content(file, length) == choice.content(
                file
            )


def test_a_file_whose_name_is_lost_is_no_choice() -> None:
    operations: list[Operation] = [CreateFile(ROOT, "log", 1), Write(1, 0, b"ab")]
    *_, last = moments(Disk("ordered"), operations)
    left = [one.image.files for one in Images("ordered").at(last)]
    assert left == [{}, {"log": b""}, {"log": b"a"}, {"log": b"\0\0"}, {"log": b"ab"}]


def test_the_common_length_of_a_file_that_is_cut() -> None:
    operations: list[Operation] = [
        CreateFile(ROOT, "log", 1),
        Write(1, 0, b"0123456789"),
        SyncAll(),
        Write(1, 10, b"ab"),
    ]
    assert folded("posix", operations).files[1].common_length == 10
    operations.append(Truncate(1, 4))
    assert folded("posix", operations).files[1].common_length == 4
    operations.append(SyncFile(1))
    assert folded("posix", operations).files[1].common_length == 4


def test_of_a_write_only_what_it_takes_part_in_is_newest() -> None:
    operations: list[Operation] = [
        CreateFile(ROOT, "log", 1),
        Write(1, 0, b"ab"),
        Write(1, 2, b"c"),
    ]
    file = folded("posix", operations).files[1]
    newest = newest_choices(file, "posix")
    assert newest == [one for one in file_choices(file, "posix") if one in newest]
    assert {choice.content(file) for choice in newest} > {b"abc", b"ab\0", b"\0\0c"}
    assert b"a" not in {choice.content(file) for choice in newest}
