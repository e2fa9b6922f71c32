"""What cannot be traced or modelled is named: nothing is missed in silence."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from types import SimpleNamespace

import pytest

from tests.blackbox.support import ENVIRONMENT, compiled, needs_tracing, python, run, traced
from tests.blackbox.test_trees import TALKER
from torntail.record.problems import Unmodelled, UnseenWrite
from torntail.record.traced.values import TracingUnavailable

pytestmark = needs_tracing


def test_a_command_that_is_not_there(tmp_path):
    with pytest.raises(OSError, match=r"'no-such-program' cannot be run: .*No such file"):
        traced(["no-such-program"], tmp_path).start()


@pytest.mark.parametrize(
    "number, reason", [(101, "ptrace.*: Operation not permitted"), (317, "seccomp: Operation")]
)
def test_where_tracing_is_forbidden_it_says_so(number, reason, tmp_path):
    """As a container may forbid it: another filter, which answers EPERM."""
    code = f"""
import errno, struct
from torntail.record.traced import linux
from torntail.record.traced.process import TracedProcess
from torntail.record.traced.values import TracingUnavailable
code = [(0x20, 0, 0, 0), (0x15, 0, 1, {number}), (6, 0, 0, 0x50000 | errno.EPERM)]
code = [struct.pack("HBBI", *one) for one in [*code, (6, 0, 0, 0x7fff0000)]]
linux.install_filter(b"".join(code))
try:
    TracedProcess(["true"], root={str(tmp_path)!r}).start()
except TracingUnavailable as error:
    print(error)
"""
    found = subprocess.run(
        [sys.executable, "-c", code], env=ENVIRONMENT, capture_output=True, text=True, check=True
    )
    assert re.fullmatch(f"tracing is refused: {reason}.*\n", found.stdout), found


@pytest.mark.parametrize(
    "machine, reason",
    [
        (("linux", "aarch64"), "tracing needs x86-64, this is aarch64"),
        (("darwin", "arm64"), "tracing needs Linux, this is darwin"),
    ],
)
def test_on_other_machines_it_says_so(machine, reason, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "platform", machine[0])
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(machine=machine[1]))
    with pytest.raises(TracingUnavailable, match=f"^{reason}$"):
        traced(["true"], tmp_path).start()


STATIC = r"""
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>
int main(int count, char **arguments) {
    chdir(arguments[1]);
    int file = open("log.tmp", O_WRONLY | O_CREAT, 0600);
    write(file, "static", 6);
    fsync(file);
    rename("log.tmp", "log");
    write(1, "done\n", 5);
    return 0;
}
"""


def test_a_static_program_is_seen(tmp_path):
    root = tmp_path / "root"
    root.mkdir()
    process = run([compiled(tmp_path, STATIC, "-static"), str(root)], root)
    assert [type(e).__name__ for e in process.entries] == [
        "CreateFile",
        "Write",
        "SyncFile",
        "Rename",
        "Output",
    ]


OLD_CALLS = r"""
#include <fcntl.h>
int main(int count, char **arguments) {
    /* creat by the 32-bit gate. */
    long result;
    char *path = arguments[1];
    __asm__ volatile("int $0x80" : "=a"(result) : "a"(20), "b"(path), "c"(0600));
    return 0;
}
"""


def test_a_call_by_the_32_bit_gate_is_named(tmp_path):
    root = tmp_path / "root"
    root.mkdir()
    with pytest.raises(Unmodelled, match="no x86-64 call"):
        run([compiled(tmp_path, OLD_CALLS, "-static"), str(root / "x")], root)


def test_a_symbolic_link_is_named(tmp_path):
    code = "import os, sys; os.symlink('x', sys.argv[1] + '/link')"
    with pytest.raises(Unmodelled, match="'link': is a symbolic link"):
        run(python(code, tmp_path), tmp_path)


def test_a_write_past_the_tracer_is_named(tmp_path):
    with traced(python(TALKER, tmp_path), tmp_path) as process:
        process.stdin.write(b"one\n")
        process.stdout.readline()
        (tmp_path / "other").write_bytes(b"by somebody else")
        (tmp_path / "log").write_bytes(b"ONE\n")
    with pytest.raises(UnseenWrite, match="'log': differs at byte 0"):
        process.check()
    (tmp_path / "log").write_bytes(b"one\n")
    with pytest.raises(UnseenWrite, match="'other': is there"):
        process.check()


def test_a_file_renamed_into_the_root_is_named(tmp_path):
    root, other = tmp_path / "root", tmp_path / "other"
    root.mkdir()
    other.touch()
    code = "import os, sys; os.rename(sys.argv[1], sys.argv[2])"
    with pytest.raises(Unmodelled, match="'new': was renamed in from outside"):
        run(python(code, other, root / "new"), root)


def test_a_root_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        traced(["true"], tmp_path / "nowhere").start()


def test_asynchronous_interfaces_do_not_exist_for_the_child(tmp_path):
    code = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
for number in (425, 206):
    print(libc.syscall(number, 8, 0), os.strerror(ctypes.get_errno()))
"""
    process = run(python(code), tmp_path)
    assert process.output == b"-1 Function not implemented\n" * 2
