"""Starting a command so that nothing it does is missed.

The new process waits until it is traced, then puts the filter before itself, then becomes the
command. Decides what a child inherits: three descriptors, a session of its own, default signals.
"""

from __future__ import annotations

import os

from torntail.record.traced import linux, seccomp

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from typing import Any, Final
else:
    import _signal as signal  # Without enum, which is slow to import.

__all__ = ["Spawned", "spawn"]

_FAILED: Final = 127


class Spawned:
    """A process that has been started: its number, and where it says why it did not become one."""

    __slots__ = ("failure", "pid")

    def __init__(self, pid: int, failure: int) -> None:
        self.pid = pid
        self.failure = failure

    def why_it_failed(self) -> str:
        """Why the command did not start, if it did not; empty otherwise."""
        text = os.read(self.failure, 4096)
        os.close(self.failure)
        return text.decode("utf-8", "replace")


def spawn(request: dict[str, Any], descriptors: list[int], blocked: set[int]) -> Spawned:
    """Starts a command, traced; raises OSError where tracing is refused."""
    ready, go = os.pipe2(os.O_CLOEXEC)
    failure, fail = os.pipe2(os.O_CLOEXEC)
    program = seccomp.program(reads=request["reads"])
    pid = os.fork()
    if pid == 0:
        try:
            os.close(go)
            _become(request, descriptors, blocked, program, ready)
        except BaseException as error:
            text = str(error)
            if getattr(error, "refused", False):
                text = f"refused: {getattr(error, 'strerror', error)}"
            os.write(fail, text.encode("utf-8", "replace"))
        finally:
            os._exit(_FAILED)
    os.close(ready)
    os.close(fail)
    try:
        linux.seize(pid)
    except BaseException:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(failure)
        raise
    finally:
        os.close(go)
    return Spawned(pid, failure)


def _become(
    request: dict[str, Any], descriptors: list[int], blocked: set[int], program: bytes, ready: int
) -> None:
    os.setsid()
    os.chdir(request["cwd"])
    limit = request["memory_limit_bytes"]
    # Above the three, so that none is overwritten before it is used.
    kept = [_above(descriptor) for descriptor in descriptors]
    for number, descriptor in enumerate(kept):
        os.dup2(descriptor, number, inheritable=True)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, blocked)
    os.read(ready, 1)
    try:
        linux.install_filter(program)
    except OSError as error:
        error.refused = True  # type: ignore[attr-defined]
        raise
    if limit is not None:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    os.execvpe(request["argv"][0], request["argv"], request["env"])


def _above(descriptor: int) -> int:
    import fcntl

    return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 10)
