"""Calls that Python's own functions do not make, made by number."""

from __future__ import annotations

import pytest

from tests.blackbox.support import needs_tracing, python, run
from torntail.crash.oplog import (
    CreateFile,
    Exchange,
    MakeDirectory,
    Rename,
    SyncAll,
    Truncate,
    Unlink,
    Write,
)
from torntail.record.problems import Unmodelled

pytestmark = needs_tracing

BEGIN = """
import ctypes, os, struct, sys
os.chdir(sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *arguments):
    long = [ctypes.c_long(one) if isinstance(one, int) else one for one in arguments]
    result = libc.syscall(ctypes.c_long(number), *long)
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result
HERE = -100
fd = os.open("a", os.O_RDWR | os.O_CREAT)
os.write(fd, b"0123456789")
"""
FIRST = [CreateFile(0, "a", 1), Write(1, 0, b"0123456789")]


@pytest.mark.parametrize(
    "code, expected",
    [
        (
            "os.mkdir('d'); call(316, HERE, b'a', HERE, b'd', 2)",
            [MakeDirectory(0, "d", 2), Exchange(0, "a", 0, "d")],
        ),
        ("call(316, HERE, b'a', HERE, b'b', 1)", [Rename(0, "a", 0, "b")]),
        (
            # Twice, and the file behind the second name is the first one's.
            "os.close(os.open('b', os.O_CREAT)); call(316, HERE, b'a', HERE, b'b', 2);"
            " os.truncate('b', 4)",
            [CreateFile(0, "b", 2), Exchange(0, "a", 0, "b"), Truncate(1, 4)],
        ),
        ("call(85, b'b', 0o600)", [CreateFile(0, "b", 2)]),
        ("call(85, b'a', 0o600)", [Truncate(1, 0)]),
        (
            "call(437, HERE, b'b', struct.pack('QQQ', os.O_CREAT | os.O_WRONLY, 0o600, 0), 24)",
            [CreateFile(0, "b", 2)],
        ),
        ("call(133, b'b', 0o100600, 0)", [CreateFile(0, "b", 2)]),
        ("call(259, HERE, b'b', 0o600, 0)", [CreateFile(0, "b", 2)]),
        ("call(258, HERE, b'd', 0o700)", [MakeDirectory(0, "d", 2)]),
        ("call(263, HERE, b'a', 0)", [Unlink(0, "a")]),
        ("call(285, fd, 3, 2, 3)", [Write(1, 2, bytes(3))]),
        ("call(285, fd, 3, 8, 30)", [Write(1, 8, bytes(2))]),
        ("call(285, fd, 16, 8, 4)", [Truncate(1, 12), Write(1, 8, bytes(2))]),
        ("call(285, fd, 1, 0, 5000)", []),
        ("call(285, fd, 0, 0, 14)", [Truncate(1, 14)]),
        ("call(277, fd, 0, 0, 7)", []),
        ("call(306, fd)", [SyncAll()]),
        (
            "r, w = os.pipe(); os.write(w, b'piped'); call(275, r, 0, fd, 0, 5, 0)",
            [Write(1, 10, b"piped")],
        ),
        (
            "r, w = os.pipe(); os.write(w, b'piped');"
            " call(275, r, 0, fd, struct.pack('q', 3), 5, 0)",
            [Write(1, 3, b"piped")],
        ),
        (
            # Appended by the call's own flag, whatever the offset.
            "data = ctypes.create_string_buffer(b'xy'); vector = struct.pack('QQ',"
            " ctypes.addressof(data), 2); call(328, fd, vector, 1, 0, 0, 0x10)",
            [Write(1, 10, b"xy")],
        ),
        ("t = os.open('.', os.O_TMPFILE | os.O_WRONLY); os.write(t, b'nameless')", []),
    ],
)
def test_a_call(code, expected, tmp_path):
    process = run(python(BEGIN + code, tmp_path), tmp_path)
    assert process.operations == [*FIRST, *expected]


@pytest.mark.parametrize(
    "code, problem",
    [
        ("call(285, fd, 32, 0, 4096)", "had its space changed by fallocate"),
        ("os.mkfifo('pipe')", "'pipe': was made by mknod"),
        (
            "t = os.open('.', os.O_TMPFILE | os.O_WRONLY);"
            " call(265, HERE, b'/proc/self/fd/%d' % t, HERE, b'named', 0x400)",
            "'named': is a link to a file outside, or to one without a name",
        ),
        (
            "r, w = os.pipe(); os.write(w, b'piped'); call(275, r, 0, 1, 0, 5, 0)",
            "output was spliced",
        ),
    ],
)
def test_a_call_without_a_word(code, problem, tmp_path):
    with pytest.raises(Unmodelled, match=problem):
        run(python(BEGIN + "os.ftruncate(fd, 8192)\n" + code, tmp_path), tmp_path)
