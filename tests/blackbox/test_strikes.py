"""Strikes on a child's calls: each does what a bad disk or a kill does, and the log says so."""

from __future__ import annotations

import errno
import os
import signal
import time

import pytest

from tests.blackbox.support import needs_tracing, python, run, traced
from torntail.crash.io_faults import IoFault, SyncFailure
from torntail.crash.oplog import (
    CreateFile,
    Link,
    Operation,
    Rename,
    SyncFailed,
    SyncFile,
    Truncate,
    Unlink,
    Write,
)
from torntail.record.traced.log import operations_in
from torntail.record.traced.values import (
    Delay,
    Ended,
    Kill,
    Output,
    Refuse,
    Struck,
    refusal_of,
)

pytestmark = needs_tracing

WRITER = """
import errno, os, sys
os.chdir(sys.argv[1])
def said(name, function, *arguments):
    try:
        result = function(*arguments)
    except OSError as error:
        result = errno.errorcode[error.errno]
    os.write(1, b"%s %s\\n" % (name.encode(), str(result).encode()))
    return result
fd = said("open", lambda: os.open("log.tmp", os.O_RDWR | os.O_CREAT))
if isinstance(fd, int):
    said("write", os.write, fd, b"first line\\n")
    said("writev", os.writev, fd, [b"sec", b"ond ", b"line\\n"])
    said("fsync", os.fsync, fd)
    said("fsync", os.fsync, fd)
    said("truncate", os.ftruncate, fd, 15)
    said("link", os.link, "log.tmp", "twin")
    said("rename", os.rename, "log.tmp", "log")
    said("unlink", os.unlink, "twin")
    said("write", os.write, fd, b"last")
    said("pread", os.pread, fd, 100, 0)
"""
WHOLE: list[Operation] = [
    CreateFile(0, "log.tmp", 1),
    Write(1, 0, b"first line\n"),
    Write(1, 11, b"second line\n"),
    SyncFile(1),
    SyncFile(1),
    Truncate(1, 15),
    Link(1, 0, "twin"),
    Rename(0, "log.tmp", 0, "log"),
    Unlink(0, "twin"),
    Write(1, 23, b"last"),
]
WORDS = [
    b"open",
    b"write 11",
    b"writev 12",
    b"fsync None",
    b"fsync None",
    b"truncate None",
    b"link None",
    b"rename None",
    b"unlink None",
    b"write 4",
    b"pread b'first line\\nseco\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00last'",
]


def struck_run(tmp_path, *strikes, **settings):
    process = run(python(WRITER, tmp_path), tmp_path, inject=strikes, **settings)
    return process, [
        b"open" if line.startswith(b"open") and line[5:].isdigit() else line
        for line in process.output.splitlines()
    ]


def test_without_strikes_all_goes_well(tmp_path):
    process, words = struck_run(tmp_path)
    assert words == WORDS
    assert process.operations == WHOLE
    assert process.struck == []


@pytest.mark.parametrize("number", range(10))
def test_a_kill_before_each_operation(number, tmp_path):
    process, _ = struck_run(tmp_path, Kill(nth=number))
    assert process.operations == WHOLE[:number]
    assert process.end == Ended(-signal.SIGKILL, "killed")
    assert [one.strike for one in process.struck] == [Kill(nth=number)]


@pytest.mark.parametrize("number, length, data", [(0, 4, b"firs"), (1, 2, b"se"), (1, 5, b"secon")])
def test_a_torn_write_then_a_kill(number, length, data, tmp_path):
    process, _ = struck_run(tmp_path, Kill(on="write", nth=number, length=length))
    assert process.operations == [*WHOLE[: 1 + number], Write(1, 11 * number, data)]
    assert (tmp_path / "log.tmp").read_bytes() == (b"first line\n" * number) + data
    assert process.end == Ended(-signal.SIGKILL, "killed")


@pytest.mark.parametrize("length", [1, 3, 4, 7, 11])
def test_a_short_write_is_real(length, tmp_path):
    process, words = struck_run(tmp_path, Refuse(on="write", nth=1, error=None, length=length))
    assert words[2] == b"writev %d" % length
    assert process.operations[2] == Write(1, 11, b"second line\n"[:length])
    assert process.operations[3:5] == [SyncFile(1)] * 2


@pytest.mark.parametrize("error", ["EIO", "ENOSPC", "EINTR", "EDQUOT"])
@pytest.mark.parametrize(
    "on, word, index",
    [
        ("create", b"open", 0),
        ("write", b"write", 1),
        ("truncate", b"truncate", 5),
        ("link", b"link", 6),
        ("rename", b"rename", 7),
        ("unlink", b"unlink", 8),
    ],
)
def test_an_error_instead_of_a_call(on, word, index, error, tmp_path):
    if error == "EINTR" and on in ("create", "write", "truncate"):
        # Python tries again and never shows it; then the second attempt goes well.
        process, words = struck_run(tmp_path, Refuse(on=on, error=error))
        assert words == WORDS
        assert process.operations == WHOLE
    else:
        process, words = struck_run(tmp_path, Refuse(on=on, error=error))
        assert words[index] == word + b" " + error.encode()
        # What it was to do was not done.
        assert process.operations[:index] == WHOLE[:index]
    (struck,) = process.struck
    assert struck.kind == on
    assert operations_in(process.entries[: struck.position]) == WHOLE[:index]


def test_an_error_after_some_bytes(tmp_path):
    process, words = struck_run(tmp_path, Refuse(on="write", error="ENOSPC", length=4))
    assert words[1] == b"write ENOSPC"
    assert process.operations[1] == Write(1, 0, b"firs")


def test_an_error_from_then_on(tmp_path):
    process, words = struck_run(
        tmp_path, Refuse(on="write", nth=1, error="ENOSPC", length=0, lasts="on")
    )
    assert [words[1], words[2], words[9]] == [b"write 11", b"writev ENOSPC", b"write ENOSPC"]
    assert [one.kind for one in process.struck] == ["write", "write"]


@pytest.mark.parametrize("pages", ["clean-new", "clean-old", "dirty"])
@pytest.mark.parametrize("reported", ["once", "again"])
def test_a_failed_fsync(pages, reported, tmp_path):
    fault = IoFault(during=0, on="sync", sync=SyncFailure(pages=pages, reported=reported))
    process, words = struck_run(tmp_path, refusal_of(fault))
    assert words[3:5] == [b"fsync EIO", b"fsync EIO" if reported == "again" else b"fsync None"]
    entries = [e for e in process.entries if not isinstance(e, Output)]
    old = b"" if pages == "clean-old" else None
    assert entries[3] == SyncFailed(1, pages, old)
    if pages == "clean-old":
        # Nothing of it was ever synced; the descriptor is where it was.
        assert (tmp_path / "log").read_bytes() == bytes(23) + b"last"
    else:
        assert (tmp_path / "log").read_bytes() == b"first line\nseco" + bytes(8) + b"last"
    assert process.operations.count(SyncFile(1)) == (reported == "once")


def test_a_failed_fsync_reverts_to_what_was_synced(tmp_path):
    strike = Refuse(on="sync", nth=1, sync=SyncFailure(pages="clean-old"))
    code = """
import os, sys
fd = os.open(sys.argv[1] + "/log", os.O_WRONLY | os.O_CREAT)
os.write(fd, b"durable"); os.fsync(fd)
os.pwrite(fd, b"lost and gone", 3)
try:
    os.fsync(fd)
except OSError:
    pass
"""
    run(python(code, tmp_path), tmp_path, inject=[strike])
    assert (tmp_path / "log").read_bytes() == b"durable"


def test_reads_are_struck_where_asked_for(tmp_path):
    _, words = struck_run(tmp_path, Refuse(on="read", error="EIO"))
    assert words[10] == b"pread EIO"
    _, words = struck_run(tmp_path, Refuse(on="read", error=None, length=5))
    assert words[10] == b"pread b'first'"


@pytest.mark.parametrize("on", ["open", "any"])
def test_the_opening_of_a_file_that_is_there(on, tmp_path):
    (tmp_path / "log.tmp").touch()
    _, words = struck_run(tmp_path, Refuse(on=on, error="EMFILE"))
    assert words == [b"open EMFILE"]
    # A kill counts what stands in the log.
    process, _ = struck_run(tmp_path, Kill(nth=0))
    assert process.output.startswith(b"open")


def test_what_cannot_come_short_is_passed_over(tmp_path):
    process, words = struck_run(tmp_path, Refuse(on="write", error=None, length=11))
    assert words[1:3] == [b"write 11", b"writev 11"]
    assert [one.kind for one in process.struck] == ["write"]


def test_storage_that_cannot_be_written_lets_syncs_succeed(tmp_path):
    _, words = struck_run(tmp_path, Refuse(on="any", nth=3, error="EROFS", lasts="on"))
    assert words[3:7] == [b"fsync None", b"fsync None", b"truncate EROFS", b"link EROFS"]


def test_strikes_armed_later_count_from_then_on(tmp_path):
    code = """
import os, sys
fd = os.open(sys.argv[1] + "/log", os.O_WRONLY | os.O_CREAT)
for line in sys.stdin.buffer:
    try:
        os.write(1, b"%d\\n" % os.write(fd, line))
    except OSError as error:
        os.write(1, b"%s\\n" % os.strerror(error.errno).encode())
"""
    with traced(python(code, tmp_path), tmp_path) as process:
        answers = []
        for number in range(4):
            if number == 1:
                process.arm(Refuse(on="write", nth=1, error="ENOSPC"))
            process.stdin.write(b"line\n")
            answers.append(process.stdout.readline())
        process.stdin.close()
        process.wait()
    process.check()
    no_space = os.strerror(errno.ENOSPC).encode() + b"\n"
    assert answers == [b"5\n", b"5\n", no_space, b"5\n"]
    strike = Refuse(on="write", nth=1, error="ENOSPC")
    assert process.struck == [Struck(5, strike, "write", 1, 5)]


def test_a_slow_disk_delays_a_sync_and_nobody_else(tmp_path):
    code = """
import os, sys, threading
os.chdir(sys.argv[1])
slow = os.open("slow", os.O_WRONLY | os.O_CREAT)
fast = os.open("fast", os.O_WRONLY | os.O_CREAT)
def sync():
    os.fsync(slow)
thread = threading.Thread(target=sync)
thread.start()
while thread.is_alive():
    os.pwrite(fast, b"x", 0)
"""
    begun = time.monotonic()
    process = run(python(code, tmp_path), tmp_path, inject=[Delay(seconds=0.3)])
    assert time.monotonic() - begun > 0.3
    index = process.operations.index(SyncFile(1))
    assert Write(2, 0, b"x") in process.operations[:index]


def test_a_memory_limit_holds(tmp_path):
    code = "x = bytearray(1 << 30)"
    process = run(
        python(code), tmp_path, memory_limit_bytes=1 << 29, stderr=os.open(os.devnull, os.O_RDWR)
    )
    assert process.end == Ended(1)


def test_an_error_that_does_not_exist_is_refused(tmp_path):
    with pytest.raises(ValueError, match="there is no error 'EFOO'"):
        traced(python(WRITER, tmp_path), tmp_path, inject=[Refuse(error="EFOO")]).start()
