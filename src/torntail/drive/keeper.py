"""Runs one command and sees to it that nothing of it is left: a process of its own.

    python -I -S keeper.py SOCKET [--lingers] COMMAND…

The command gets a session of its own, so that it has no terminal and Ctrl-C is not for it, and the
standard streams of this process. When it ends, when the other end of the socket says so or is
closed, and so also when its owner dies, all its descendants are killed, those that became daemons,
too. Says in marshalled dictionaries, each behind its length, how the command began and ended.
With `--lingers` that is said at once, and all else comes with the end of the other end: until then
what the command started lives on, and the command itself is dead but not yet reaped.
Imports nothing of torntail. Off Linux descendants that left the process group are not found.
"""

from __future__ import annotations

import ctypes
import marshal
import os
import select
import signal
import socket
import sys
from typing import Any

_BECOME_REAPER = 36
_ROUNDS = 200


def main() -> None:
    """Runs the command named on the command line."""
    line = socket.socket(fileno=int(sys.argv[1]))
    line.set_inheritable(False)
    lingers = sys.argv[2] == "--lingers"
    command = sys.argv[3:] if lingers else sys.argv[2:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_BECOME_REAPER, 1, 0, 0, 0)
    heard, rang = os.pipe()
    os.set_blocking(heard, False)
    os.set_blocking(rang, False)
    signal.set_wakeup_fd(rang, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    try:
        child = os.posix_spawnp(command[0], command, os.environ, setsid=True)
    except OSError as error:
        _say(line, {"failed": error.strerror})
        return
    # The pipes are the command's: were they open here as well, its end would not show.
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nothing, number)
    _say(line, {"pid": child})
    status: int | None = None
    while status is None:
        ready = select.select([line.fileno(), heard], [], [])[0]
        if heard in ready:
            os.read(heard, 4096)
        status = _ended(child) if lingers else _reap(child)
        if line.fileno() in ready:
            break
    if lingers and status is not None:
        _say(line, {"code": os.waitstatus_to_exitcode(status), "left": 0})
        select.select([line.fileno()], [], [])
        _kill_all(child, True)
        return
    left = len(_descendants()) if status is not None else 0
    own = _kill_all(child, status is not None)
    status = own if status is None else status
    _say(line, {"code": os.waitstatus_to_exitcode(status or 0), "left": left})


def _ended(child: int) -> int | None:
    """The status of the command, if it has ended; it is left as it is, for others to see."""
    found = os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    if found is None:
        return None
    return found.si_status << 8 if found.si_code == os.CLD_EXITED else found.si_status


def _reap(child: int) -> int | None:
    """Takes in what has ended; the status of the command, if that is among it."""
    status = None
    while True:
        try:
            pid, one = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return status
        if pid == 0:
            return status
        if pid == child:
            status = one


def _kill_all(child: int, ended: bool) -> int | None:
    """Kills every descendant, until there is none; the status of the command, if it was alive."""
    status = None
    for _ in range(_ROUNDS):
        pids = _descendants()
        if not ended and status is None:
            pids.append(child)
        for pid in pids:
            _kill(os.kill, pid)
        _kill(os.killpg, child)
        while True:
            try:
                # After the kill the wait is short, but a new orphan may come meanwhile.
                pid, one = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return status
            if pid == 0:
                break
            if pid == child:
                status = one
        select.select([], [], [], 0.005)
    return status


def _kill(call: Any, pid: int) -> None:
    try:
        call(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass


def _descendants() -> list[int]:
    """The processes below this one that have not ended."""
    if sys.platform != "linux":
        return []
    above: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    fields = file.read().rpartition(b")")[2].split()
            except OSError:
                continue
            if fields[0] != b"Z":
                above[int(name)] = int(fields[1])
    found: list[int] = []
    reached = {os.getpid()}
    while True:
        more = [pid for pid, parent in above.items() if parent in reached and pid not in reached]
        if not more:
            return found
        found += more
        reached.update(more)


def _say(line: socket.socket, message: dict[str, Any]) -> None:
    data = marshal.dumps(message)
    try:
        line.sendall(len(data).to_bytes(4, "little") + data)
    except OSError:
        pass  # The owner is gone; all that matters now is that nothing is left.


if __name__ == "__main__":
    main()
