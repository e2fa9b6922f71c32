"""What is said, and by whom: outputs and marks, two programs, many roots, many tracers at once."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

from tests.blackbox.support import ENVIRONMENT, needs_tracing, python, run, traced
from tests.blackbox.test_trees import FAMILY, TALKER
from torntail.crash.oplog import (
    Acknowledged,
    CreateFile,
    Invoked,
    Operation,
    OpLog,
    SyncFile,
    Write,
)
from torntail.record.traced.process import TracedProcess
from torntail.record.traced.values import Ended, Output

pytestmark = needs_tracing


def test_output_that_nobody_reads_holds_up_nobody_else(tmp_path):
    """A full pipe blocks the thread that speaks; the others work on, and their work is seen."""
    code = """
import os, sys, threading
threading.Thread(target=os.write, args=(1, bytes(1 << 20)), daemon=True).start()
fd = os.open(sys.argv[1] + "/log", os.O_WRONLY | os.O_CREAT)
for line in sys.stdin.buffer:
    os.write(fd, line)
    os.write(2, b"done\\n")
"""
    ours, theirs = os.pipe()
    with (
        open(ours, "rb") as errors,
        open(theirs, "wb") as other,
        traced(python(code, tmp_path), tmp_path, stderr=other) as process,
    ):
        for _ in range(3):
            process.stdin.write(b"x\n")
            assert errors.readline() == b"done\n"
        log = [e for e in process.operations if isinstance(e, Write)]
        assert log == [Write(1, 2 * number, b"x\n") for number in range(3)]
        process.stdin.close()
        process.wait()
    spoken = [e.data for e in process.entries if isinstance(e, Output)]
    # Cut off in its writing by the end of the process: nobody can tell how much went out.
    assert [len(data) for data in spoken] == [1 << 20]


def test_marks_by_hand_stand_before_what_follows(tmp_path):
    with traced(python(TALKER, tmp_path), tmp_path) as process:
        for call in range(2):
            process.stdin.write(b"line\n")
            process.stdout.readline()
            process.mark(Invoked(call))
    process.check()
    assert process.operations == [
        CreateFile(0, "log", 1),
        *(Write(1, 0, b"line\n"), SyncFile(1), Invoked(0)),
        *(Write(1, 5, b"line\n"), SyncFile(1), Invoked(1)),
    ]


def test_many_at_once_do_not_disturb_each_other(tmp_path):
    """Each has a helper of its own; the threads of this process do not matter."""

    def one(number: int) -> bytes:
        root = tmp_path / str(number)
        root.mkdir()
        process = run(python(FAMILY, root), root, cwd=root)
        assert len(process.operations) == 15
        return process.output

    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(one, range(6))) == [b""] * 6


def test_two_writers_stand_in_one_log(tmp_path):
    with traced(python(TALKER, tmp_path), tmp_path) as one:
        with TracedProcess(python(TALKER, tmp_path), beside=one, env=ENVIRONMENT) as other:
            for word in (b"1\n", b"2\n", b"3\n"):
                for writer in (one, other):
                    writer.stdin.write(word)
                    writer.stdout.readline()
            other.kill()
            one.stdin.write(b"alone\n")
            one.stdout.readline()
        one.stdin.close()
        assert one.wait() == Ended(0)
    one.check()
    spoken = [(e.child, e.data) for e in one.entries if isinstance(e, Output)]
    pairs = [(child, b"did %d\n" % n) for n in (1, 2, 3) for child in (0, 1)]
    assert spoken == [*pairs, (0, b"did alone\n")]
    assert (tmp_path / "log").read_bytes() == b"1\n1\n2\n2\n3\n3\nalone\n"


def test_one_process_serves_many_roots(tmp_path):
    code = """
import os, sys
for line in sys.stdin.buffer:
    fd = os.open(line[:-1] + b"/log", os.O_WRONLY | os.O_CREAT)
    os.write(fd, line)
    os.fsync(fd)
    os.close(fd)
    os.write(1, b"done\\n")
"""
    recordings = []
    roots = [tmp_path / str(number) for number in range(3)]
    for root in roots:
        root.mkdir()
    with traced(python(code), roots[0]) as process:
        for root in roots:
            recording = process.recording if root is roots[0] else process.record(root)
            process.stdin.write(os.fsencode(root) + b"\n")
            process.stdout.readline()
            recording.check()
            recordings.append(recording)
        process.stdin.close()
        process.wait()
    for root, recording in zip(roots, recordings, strict=True):
        assert recording.entries == [
            CreateFile(0, "log", 1),
            Write(1, 0, os.fsencode(root) + b"\n"),
            SyncFile(1),
            Output(b"done\n"),
        ]


def test_marks_stand_where_a_line_ends(tmp_path):
    code = """
import os, sys
fd = os.open(sys.argv[1] + "/log", os.O_WRONLY | os.O_CREAT)
for number in range(3):
    os.write(fd, b"x")
    os.write(1, b"noise\\nacknow")
    os.fsync(fd)
    os.write(1, b"ledged %d\\nacknowledged" % number)
    os.write(1, b"\\n")
"""
    process = run(python(code, tmp_path), tmp_path)

    def marks(child: int, line: bytes) -> list[Acknowledged]:
        return [Acknowledged(int(line.split()[1]))] if b"acknowledged " in line else []

    expected: list[Operation] = [CreateFile(0, "log", 1)]
    for number in range(3):
        expected += [Write(1, number, b"x"), SyncFile(1), Acknowledged(number)]
    assert process.log(marks) == OpLog(tuple(expected))
    assert OpLog.from_json(process.log(marks).to_json()) == process.log(marks)
