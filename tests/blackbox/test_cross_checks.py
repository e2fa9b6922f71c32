"""Three witnesses of one deed: the recorder inside Python, the tracer, and strace agree."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.blackbox.programs import PROGRAMS
from tests.blackbox.support import ENVIRONMENT, needs, needs_tracing, program, python, run
from torntail.crash.oplog import ROOT, CreateFile, Operation, Rename, SyncFile, Truncate, Write
from torntail.record.inprocess import Recorder
from torntail.record.install import uninstall
from torntail.record.traced.values import Output

pytestmark = needs_tracing


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_in_process_and_traced_logs_are_equal(name, tmp_path):
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.mkdir()
    outside.mkdir()
    before = os.getcwd()
    try:
        with Recorder(inside) as recorder:
            PROGRAMS[name](str(inside))
    finally:
        os.chdir(before)
        uninstall()
    recorder.check()
    process = run(program(name, outside), outside)
    assert process.operations == recorder.operations
    assert len(process.operations) > 10


def test_a_continued_recording_is_one_log(tmp_path):
    """The log of a second process, on the disk that the first one left, is the in-process one."""
    logs: list[list[Operation]] = []
    for recorded_inside in (True, False):
        root = tmp_path / str(recorded_inside)
        root.mkdir()
        first = run(program("jsonl_store", root), root)
        disk = first.disk
        for operation in first.operations:
            disk = disk.after(operation)
        if recorded_inside:
            with Recorder(root, disk) as recorder:
                PROGRAMS["bytes_of_files"](str(root))
            recorder.check()
            uninstall()
            logs.append(recorder.operations)
        else:
            second = run(program("bytes_of_files", root), root, disk=disk)
            logs.append(second.operations)
    assert logs[0] == logs[1]


STRACE_CALLS = "openat,write,pwrite64,writev,ftruncate,fsync,fdatasync,rename,renameat,renameat2"
ONE_THREAD = """
import os, sys
os.chdir(sys.argv[1])
log = os.open("log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
for number in range(12):
    os.write(log, b"%d" % number * (number + 1))
    if number % 4 == 3:
        os.fsync(log)
temporary = os.open("new", os.O_WRONLY | os.O_CREAT, 0o600)
os.pwrite(temporary, b"abc", 5)
os.writev(temporary, [b"d", b"ef"])
os.ftruncate(temporary, 4)
os.fdatasync(temporary)
os.rename("new", "old")
"""


@needs("strace")
def test_the_log_is_that_of_strace_on_one_thread(tmp_path):
    """strace's lines, read as operations; the tracer's log, turned into the same words."""
    one, other = tmp_path / "one", tmp_path / "other"
    one.mkdir()
    other.mkdir()
    listing = tmp_path / "listing"
    strace = ["strace", "-y", "-s", "200", "-e", f"trace={STRACE_CALLS}", "-o", str(listing)]
    subprocess.run([*strace, *python(ONE_THREAD, one)], env=ENVIRONMENT, check=True)
    process = run(python(ONE_THREAD, other), other)
    assert [_words(operation) for operation in process.operations] == list(
        _words_of_strace(listing.read_text(), str(one))
    )


def _words(operation: Operation) -> tuple[object, ...]:
    match operation:
        case CreateFile(_, name, _):
            return ("create", name)
        case Write(inode, _, data):
            return ("write", {1: "log", 2: "new"}[inode], len(data))
        case SyncFile(inode):
            return ("sync", {1: "log", 2: "new"}[inode])
        case Truncate(_, length):
            return ("truncate", "new", length)
        case Rename(_, name, _, new_name):
            return ("rename", name, new_name)
    raise AssertionError(operation)


def _words_of_strace(listing: str, root: str):
    """The same, of lines such as `write(3</sessions/log>, "00", 2) = 2`."""
    for line in listing.splitlines():
        call, _, rest = line.partition("(")
        result = re.search(r"= (\d+)(?:<([^>]*)>)?$", line)
        if result is None:
            continue
        on = re.match(r"\d+<([^>]*)>", rest)
        name = on[1].removeprefix(root + "/") if on and on[1].startswith(root + "/") else None
        if call == "openat" and "O_CREAT" in line and result[2].startswith(root + "/"):
            yield "create", result[2].removeprefix(root + "/")
        elif name and call in ("write", "pwrite64", "writev"):
            yield "write", name, int(result[1])
        elif name and call in ("fsync", "fdatasync"):
            yield "sync", name
        elif name and call == "ftruncate":
            yield "truncate", name, int(rest.rpartition(")")[0].split(", ")[1])
        elif call.startswith("rename"):
            yield "rename", *re.findall(r'"([^"]*)"', line)


FOUR_THREADS = """
import os, sys, threading
os.chdir(sys.argv[1])
log = os.open("log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
barrier = threading.Barrier(4)
def work(me):
    barrier.wait()
    own = os.open(f"own-{me}", os.O_WRONLY | os.O_CREAT, 0o600)
    for number in range(40):
        os.write(log, b"%d:%d\\n" % (me, number))
        os.pwrite(own, b"%d" % number, number)
        if number % 8 == 7:
            os.fsync(own)
            os.rename(f"own-{me}", f"next-{me}") if number == 7 else None
            os.write(1, b"done %d %d\\n" % (me, number))
threads = [threading.Thread(target=work, args=(me,)) for me in range(4)]
[one.start() for one in threads]
[one.join() for one in threads]
"""


def _four_threads_are_right(root: Path) -> None:
    """Appends stand in the log in the order of the file, and each output behind its sync."""
    process = run(python(FOUR_THREADS, root), root)
    entries = process.entries
    log = next(e.inode for e in entries if isinstance(e, CreateFile) and e.name == "log")
    appended = [e for e in entries if isinstance(e, Write) and e.inode == log]
    assert [e.offset for e in appended] == [
        sum(len(e.data) for e in appended[:index]) for index in range(len(appended))
    ]
    assert b"".join(e.data for e in appended) == (root / "log").read_bytes()
    owners = {
        e.inode: int(e.name[4:]) for e in entries if isinstance(e, CreateFile) and e.inode != log
    }
    synced = dict.fromkeys(range(4), 0)
    said = dict.fromkeys(range(4), 0)
    for entry in entries:
        if isinstance(entry, SyncFile):
            synced[owners[entry.inode]] += 1
        elif isinstance(entry, Output):
            me = int(entry.data.split()[1])
            said[me] += 1
            assert said[me] == synced[me]
    assert said == dict.fromkeys(range(4), 5)
    assert len(appended) == 160


@pytest.mark.parametrize("number", range(3))
def test_four_threads_stand_in_their_order(number, tmp_path):
    _four_threads_are_right(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(20))
def test_four_threads_stand_in_their_order_always(number, tmp_path):
    _four_threads_are_right(tmp_path)


NODE = """
const fs = require('fs').promises
const path = require('path')
async function main(root) {
  const file = await fs.open(path.join(root, 'log'), 'a')
  for (let number = 0; number < 20; number++) await file.appendFile(`line ${number}\\n`)
  await file.sync()
  await file.close()
  await Promise.all([0, 1, 2, 3].map(async (one) => {
    await fs.writeFile(path.join(root, `${one}.tmp`), 'x'.repeat(5000))
    await fs.rename(path.join(root, `${one}.tmp`), path.join(root, `${one}`))
  }))
  console.log('ok')
}
main(process.argv[1])
"""


@needs("node")
def test_node_with_io_uring_falls_back_and_is_seen(tmp_path):
    node = shutil.which("node")
    assert node is not None
    process = run(
        [node, "-e", NODE, str(tmp_path)],
        tmp_path,
        env={**ENVIRONMENT, "UV_USE_IO_URING": "1"},
    )
    assert process.output == b"ok\n"
    log = next(e.inode for e in process.operations if isinstance(e, CreateFile) and e.name == "log")
    written = b"".join(
        e.data for e in process.operations if isinstance(e, Write) and e.inode == log
    )
    assert written == b"".join(b"line %d\n" % number for number in range(20))
    assert SyncFile(log) in process.operations
    renames = [e for e in process.operations if isinstance(e, Rename)]
    assert sorted(e.new_name for e in renames) == ["0", "1", "2", "3"]


def test_the_helper_needs_no_slow_module(tmp_path):
    """What it imports is what each traced child waits for."""
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]);"
        " import torntail.record.traced.helper;"
        " print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    )
    sources = ENVIRONMENT["PYTHONPATH"].split(os.pathsep)[0]
    found = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code, sources], capture_output=True, text=True
    )
    assert {"typing", "enum", "msgspec", "collections", "dataclasses"}.isdisjoint(
        found.stdout.split()
    )
    assert "ctypes" in found.stdout.split()


def test_what_stands_in_the_root_keeps_its_inode(tmp_path):
    (tmp_path / "old").write_bytes(b"was here")
    code = "import os, sys; os.truncate(sys.argv[1] + '/old', 3)"
    process = run(python(code, tmp_path), tmp_path)
    inode = next(i for place, i in process.disk.names.items() if place == (ROOT, "old"))
    assert process.operations == [Truncate(inode, 3)]
