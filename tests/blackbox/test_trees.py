"""Trees of processes: who is followed, who is waited for, who is killed, and when."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.blackbox.support import (
    ENVIRONMENT,
    gone,
    needs_tracing,
    python,
    run,
    traced,
)
from torntail.crash.oplog import (
    CreateFile,
    Unlink,
    Write,
)
from torntail.record.traced.process import TracedProcess
from torntail.record.traced.values import Ended, Output

pytestmark = needs_tracing


def wait_for(condition) -> None:
    """Waits until something outside this process is so."""
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.005)


# --- followed -----------------------------------------------------------------------------------

FAMILY = """
import os, subprocess, sys
root = sys.argv[1]
def write(name):
    fd = os.open(root + "/" + name, os.O_WRONLY | os.O_CREAT)
    os.write(fd, name.encode())
    os.fsync(fd)
write("parent")
if os.fork() == 0:
    write("forked")
    if os.fork() == 0:
        write("grandchild")
        os._exit(0)
    os.wait()
    os._exit(0)
os.wait()
subprocess.run(["/bin/sh", "-c", "echo shell > shell; echo more >> shell; rm parent"], cwd=root)
os.execv(sys.executable, [sys.executable, "-S", "-c", "open('exec', 'w').write('exec')"])
"""


def test_forks_and_execs_are_followed(tmp_path):
    process = run(python(FAMILY, tmp_path), tmp_path, cwd=tmp_path)
    made = [e.name for e in process.operations if isinstance(e, CreateFile)]
    assert made == ["parent", "forked", "grandchild", "shell", "exec"]
    written = [e.data for e in process.operations if isinstance(e, Write)]
    assert written == [b"parent", b"forked", b"grandchild", b"shell\n", b"more\n", b"exec"]
    assert [e.name for e in process.operations if isinstance(e, Unlink)] == ["parent"]
    assert process.end == Ended(0)


EXEC_IN_A_THREAD = """
import os, sys, threading, time
os.chdir(sys.argv[1])
def appends(name):
    fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    while True:
        os.write(fd, b"x")
for number in range(3):
    threading.Thread(target=appends, args=(f"t{number}",), daemon=True).start()
def becomes():
    time.sleep(0.05)
    os.execv(sys.executable, [sys.executable, "-S", "-c", "print('another')"])
threading.Thread(target=becomes).start()
appends("main")
"""


def test_an_exec_in_a_second_thread_sweeps_the_others_away(tmp_path):
    """Whatever call they are in: the log still replays to the directory."""
    process = run(python(EXEC_IN_A_THREAD, tmp_path), tmp_path)
    assert process.output == b"another\n"
    assert process.end == Ended(0)
    assert len(process.operations) > 4


EXIT_IN_A_THREAD = EXEC_IN_A_THREAD.replace(
    'os.execv(sys.executable, [sys.executable, "-S", "-c", "print(\'another\')"])', "os._exit(3)"
)


def test_an_exit_in_a_second_thread_ends_the_others_in_their_calls(tmp_path):
    process = run(python(EXIT_IN_A_THREAD, tmp_path), tmp_path)
    assert process.end.code == 3


KILLED_IN_ITS_CALLS = """
import os, sys, threading, time
os.chdir(sys.argv[1])
data = b"x" * 10_000_000
def works(me):
    fd = os.open(f"a{me}", os.O_WRONLY | os.O_CREAT)
    while True:
        os.pwrite(fd, data, 0)
        os.link(f"a{me}", f"b{me}")
        os.rename(f"a{me}", f"c{me}")
        os.mkdir(f"d{me}")
        os.unlink(f"b{me}")
        os.rename(f"c{me}", f"a{me}")
        os.rmdir(f"d{me}")
        os.ftruncate(fd, 5)
for me in range(3):
    threading.Thread(target=works, args=(me,), daemon=True).start()
time.sleep(float(sys.argv[2]))
os.kill(os.getpid(), 9)
"""


@pytest.mark.parametrize("milliseconds", [20, 35, 50, 65])
def test_a_kill_in_the_midst_of_calls_leaves_what_the_log_says(milliseconds, tmp_path):
    """Whoever is in a call then never tells how it went: the directory does."""
    process = run(python(KILLED_IN_ITS_CALLS, tmp_path, milliseconds / 1000), tmp_path)
    assert process.end == Ended(-signal.SIGKILL)


def test_exit_codes_and_signals_pass_through(tmp_path):
    assert run(python("raise SystemExit(7)"), tmp_path).end == Ended(7)
    code = "import os; os.kill(os.getpid(), 15)"
    assert run(python(code), tmp_path).end == Ended(-signal.SIGTERM)
    code = (
        "import os, signal;"
        " signal.signal(signal.SIGUSR1, lambda *_: os.write(1, b'caught\\n'));"
        " os.kill(os.getpid(), signal.SIGUSR1)"
    )
    process = run(python(code), tmp_path)
    assert (process.output, process.end) == (b"caught\n", Ended(0))


# --- stopped and continued ----------------------------------------------------------------------

TALKER = """
import os, sys
fd = os.open(sys.argv[1] + "/log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
for line in sys.stdin.buffer:
    os.write(fd, line)
    os.fsync(fd)
    os.write(1, b"did " + line)
"""


def test_a_stopped_child_goes_on_when_continued(tmp_path):
    with traced(python(TALKER, tmp_path), tmp_path) as process:
        process.stdin.write(b"one\n")
        assert process.stdout.readline() == b"did one\n"
        os.kill(process.pid, signal.SIGSTOP)
        stat = Path(f"/proc/{process.pid}/stat")
        wait_for(lambda: stat.read_text().rpartition(")")[2].split()[0] in "tT")
        process.stdin.write(b"two\n")
        # It stays stopped: the request is not taken.
        assert process.wait(0.2) is None
        assert [e.data for e in process.operations if isinstance(e, Write)] == [b"one\n"]
        os.kill(process.pid, signal.SIGCONT)
        assert process.stdout.readline() == b"did two\n"
        process.stdin.close()
        assert process.wait() == Ended(0)
    process.check()
    written = [e.data for e in process.entries if isinstance(e, Write | Output)]
    assert written == [b"one\n", b"did one\n", b"two\n", b"did two\n"]


# --- killed -------------------------------------------------------------------------------------

LEAVES_OTHERS = """
import os, sys, time
for number in range(3):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.write(1, b"%d\\n" % os.getpid())
            while True:
                time.sleep(1000)
        os._exit(0)
    os.wait()
while True:
    time.sleep(1000)
"""


def _family_of(process: TracedProcess) -> list[int]:
    return [int(process.stdout.readline()) for _ in range(3)]


def test_nobody_is_left_when_the_first_process_ends(tmp_path):
    with traced(python(LEAVES_OTHERS), tmp_path) as process:
        left = _family_of(process)
        os.kill(process.pid, signal.SIGTERM)
        end = process.wait()
        assert end == Ended(-signal.SIGTERM, left_running=3)
        assert [gone(pid) for pid in left] == [True] * 3


def test_nobody_is_left_when_the_block_is_left(tmp_path):
    with traced(python(LEAVES_OTHERS), tmp_path) as process:
        left = [process.pid, *_family_of(process)]
    assert [gone(pid) for pid in left] == [True] * 4


def test_nobody_is_left_at_the_deadline(tmp_path):
    with traced(python(LEAVES_OTHERS), tmp_path, deadline_seconds=2) as process:
        # Until nobody is there to say anything.
        left = [process.pid, *map(int, process.stdout)]
        assert process.wait() == Ended(-signal.SIGKILL, "deadline")
        assert {gone(pid) for pid in left} == {True}


def test_nobody_is_left_when_the_helper_is_killed(tmp_path):
    with traced(python(LEAVES_OTHERS), tmp_path) as process:
        left = [process.pid, *_family_of(process)]
        os.kill(process.helper_pid, signal.SIGKILL)
        wait_for(lambda: all(gone(pid) for pid in left))
        with pytest.raises(RuntimeError, match="helper is gone"):
            process.wait()


def test_nobody_is_left_when_the_parent_is_killed(tmp_path):
    code = f"""
import sys, time
from torntail.record.traced.process import TracedProcess
process = TracedProcess({python(LEAVES_OTHERS)!r}, root={str(tmp_path)!r}).start()
for _ in range(3):
    print(int(process.stdout.readline()), flush=True)
time.sleep(1000)
"""
    with subprocess.Popen(
        [sys.executable, "-c", code], env=ENVIRONMENT, stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdout is not None
        left = [int(parent.stdout.readline()) for _ in range(3)]
        parent.kill()
    wait_for(lambda: all(gone(pid) for pid in left))


def test_a_kill_falls_between_two_calls(tmp_path):
    code = """
import os, sys
fd = os.open(sys.argv[1] + "/log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
os.write(1, b"begun\\n")
while True:
    os.write(fd, b"a line of some length\\n")
"""
    with traced(python(code, tmp_path), tmp_path) as process:
        process.stdout.readline()
        assert process.kill() == Ended(-signal.SIGKILL, "killed by the harness")
    process.check()
