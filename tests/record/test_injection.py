"""An I/O error strikes where it is meant to, does what it says, and is proven to have landed."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from torntail.crash.disk import Disk
from torntail.crash.io_faults import IoFault, SyncFailure, fault_told
from torntail.crash.oplog import CreateFile, SyncFailed, SyncFile, Truncate, Write
from torntail.record.injection import Injection, Seen
from torntail.record.inprocess import Recorder


class Session:
    """A recorder with a fault, and what the op log came to."""

    def __init__(self, root: Path, fault: IoFault | None) -> None:
        self.injection = Injection(fault)
        self.recorder = Recorder(
            root, Disk("ordered"), before=self.injection.before, opening=self.injection.opening
        )
        self.injection.attach(self.recorder)

    def __enter__(self) -> Session:
        self.recorder.start()
        self.injection.begin(0)
        return self

    def __exit__(self, *_: object) -> None:
        self.recorder.stop()
        self.recorder.check()


def opened(root: Path, flags: int = 0) -> int:
    return os.open(root / "log", os.O_WRONLY | os.O_CREAT | flags, 0o600)


def test_without_a_fault_it_tells_what_could_be_struck(tmp_path: Path) -> None:
    with Session(tmp_path, None) as session:
        descriptor = opened(tmp_path)
        os.write(descriptor, b"abc")
        session.injection.begin(1)
        os.fsync(descriptor)
        os.close(descriptor)
        os.close(opened(tmp_path))
    assert session.injection.seen == [
        Seen(0, "create", 1),
        Seen(0, "write", 1, 3),
        Seen(1, "sync", 1),
        Seen(1, "open", 1),
    ]
    assert session.injection.struck == []
    assert not session.injection.landed


def test_the_nth_write_of_a_call_fails_once(tmp_path: Path) -> None:
    with Session(tmp_path, IoFault(during=1, on="write", nth=1)) as session:
        descriptor = opened(tmp_path)
        os.write(descriptor, b"a")
        session.injection.begin(1)
        os.write(descriptor, b"b")
        with pytest.raises(OSError, match="Input/output error") as caught:
            os.write(descriptor, b"c")
        os.write(descriptor, b"d")
        os.close(descriptor)
    assert caught.value.errno == errno.EIO
    assert session.injection.landed
    assert [one.call for one in session.injection.struck] == [1]
    assert (tmp_path / "log").read_bytes() == b"abd"


def test_an_error_that_lasts_strikes_every_one_of_its_kind_until_it_is_lifted(
    tmp_path: Path,
) -> None:
    with Session(tmp_path, IoFault(during=0, on="write", error="ENOSPC", lasts="on")) as session:
        descriptor = opened(tmp_path)
        for call in range(2):
            session.injection.begin(call)
            with pytest.raises(OSError, match="No space left"):
                os.write(descriptor, b"a")
        os.ftruncate(descriptor, 2)
        session.injection.lift()
        os.write(descriptor, b"b")
        os.close(descriptor)
    assert (tmp_path / "log").read_bytes() == b"b\0"


@pytest.mark.parametrize("error", [None, "ENOSPC"])
def test_a_write_is_done_in_part(tmp_path: Path, error: str | None) -> None:
    fault = IoFault(during=0, on="write", error=error, length=2)  # type: ignore[arg-type]
    with Session(tmp_path, fault) as session:
        descriptor = opened(tmp_path)
        if error is None:
            assert os.write(descriptor, b"abcd") == 2
        else:
            with pytest.raises(OSError, match="No space"):
                os.write(descriptor, b"abcd")
        os.close(descriptor)
    assert session.injection.landed
    assert session.recorder.operations == [CreateFile(0, "log", 1), Write(1, 0, b"ab")]


def test_a_write_of_one_byte_cannot_come_short(tmp_path: Path) -> None:
    with Session(tmp_path, IoFault(during=0, on="write", error=None, length=1)) as session:
        descriptor = opened(tmp_path)
        assert os.write(descriptor, b"a") == 1
        os.close(descriptor)
    assert not session.injection.landed


def test_a_read_only_disk_refuses_what_changes_it_and_syncs(tmp_path: Path) -> None:
    fault = IoFault(during=1, error="EROFS", lasts="on")
    with Session(tmp_path, fault) as session:
        descriptor = opened(tmp_path)
        session.injection.begin(1)
        os.fsync(descriptor)
        refused = 0
        for change in (
            lambda: opened(tmp_path),
            lambda: os.mkdir(tmp_path / "made"),
            lambda: os.rename(tmp_path / "log", tmp_path / "other"),
            lambda: os.unlink(tmp_path / "log"),
            lambda: os.truncate(tmp_path / "log", 1),
        ):
            with pytest.raises(OSError, match="Read-only") as caught:
                change()
            refused += caught.value.errno == errno.EROFS
        os.close(os.open(tmp_path / "log", os.O_RDONLY))
        os.close(descriptor)
    assert refused == 5


def test_a_failed_fsync_that_keeps_the_new_bytes(tmp_path: Path) -> None:
    fault = IoFault(during=0, on="sync", sync=SyncFailure(pages="clean-new"))
    with Session(tmp_path, fault) as session:
        descriptor = opened(tmp_path)
        os.write(descriptor, b"new")
        with pytest.raises(OSError, match="Input/output"):
            os.fsync(descriptor)
        os.fsync(descriptor)
        os.close(descriptor)
    assert (tmp_path / "log").read_bytes() == b"new"
    assert session.recorder.operations[2:] == [SyncFailed(1, "clean-new"), SyncFile(1)]
    assert [(one.own, one.again) for one in session.injection.struck] == [(True, False)]


def test_a_failed_fsync_that_puts_the_file_back(tmp_path: Path) -> None:
    fault = IoFault(during=1, on="sync", sync=SyncFailure(pages="clean-old"))
    with Session(tmp_path, fault) as session:
        descriptor = opened(tmp_path)
        os.write(descriptor, b"old")
        os.fsync(descriptor)
        session.injection.begin(1)
        os.write(descriptor, b"new")
        with pytest.raises(OSError, match="Input/output"):
            os.fsync(descriptor)
        assert (tmp_path / "log").read_bytes() == b"old"
        # Its offset stays: a writer that does not append leaves a hole.
        os.write(descriptor, b"!")
        os.close(descriptor)
    assert (tmp_path / "log").read_bytes() == b"old\0\0\0!"
    assert SyncFailed(1, "clean-old", b"old") in session.recorder.operations


def test_an_error_that_is_reported_again(tmp_path: Path) -> None:
    failure = SyncFailure(pages="dirty", reported="again")
    with Session(tmp_path, IoFault(during=0, on="sync", sync=failure)) as session:
        descriptor = opened(tmp_path)
        os.write(descriptor, b"new")
        for _ in range(2):
            with pytest.raises(OSError, match="Input/output"):
                os.fsync(descriptor)
        os.fsync(descriptor)
        os.close(descriptor)
    assert [one.again for one in session.injection.struck] == [False, True]
    assert session.recorder.operations[2:] == [SyncFailed(1, "dirty"), SyncFile(1)]


def test_a_truncation_and_a_directory_fail(tmp_path: Path) -> None:
    with Session(tmp_path, IoFault(during=0, on="truncate")) as session:
        descriptor = opened(tmp_path)
        with pytest.raises(OSError, match="Input/output"):
            os.ftruncate(descriptor, 3)
        os.ftruncate(descriptor, 2)
        os.close(descriptor)
    assert session.recorder.operations[1:] == [Truncate(1, 2)]


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (IoFault(during=0, on="write", error=None, length=3),
         "write 1 of this call is a write that comes short after 3 bytes"),
        (IoFault(during=0, error="EROFS", lasts="on"),
         "file operation 1 of this call fails with EROFS, and so does every one after it"),
        (IoFault(during=0, on="sync", nth=1, sync=SyncFailure(pages="clean-old", reported="again")),
         "sync 2 of this call fails with EIO; its pages are marked clean and hold the old bytes "
         "again, and the next fsync of the file fails once more"),
    ],
)  # fmt: skip
def test_a_fault_in_words(fault: IoFault, told: str) -> None:
    assert fault_told(fault) == told
