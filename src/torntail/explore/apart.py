"""Work done by a process of its own, which is dead when its result is there.

For what a store writes about its process: a lock file that names the process holds as long as that
lives, so a crash is only one if the process that was recorded is gone. Decides how the result comes
back, and that a child never outlives its parent for long. Not for platforms without fork.
"""

from __future__ import annotations

import os
import pickle
import signal
import threading
from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["CAN_WORK_APART", "NothingCameBack", "worked_apart"]

CAN_WORK_APART = hasattr(os, "fork")

_Result = TypeVar("_Result")


class NothingCameBack(Exception):
    """The process ended without a result, or with one that cannot be sent."""


def worked_apart(work: Callable[[], _Result]) -> _Result:
    """What `work` gives in a child process; raises what it raises there, or `NothingCameBack`."""
    receiving, sending = os.pipe()
    child = os.fork()
    if not child:
        os.close(receiving)
        _serve(work, sending)
    os.close(sending)
    try:
        with os.fdopen(receiving, "rb") as pipe:
            answer = pipe.read()
    finally:
        # It has nothing left to do, or is not waited for any more.
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    if not answer:
        raise NothingCameBack
    failed, result = pickle.loads(answer)
    if failed:
        raise result
    return result  # type: ignore[no-any-return]


def _serve(work: Callable[[], Any], sending: int) -> None:
    """Does the work, and ends this process."""
    parent = os.getppid()
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    try:
        try:
            answer = pickle.dumps((False, work()))
        except Exception as error:
            answer = pickle.dumps((True, error))
        with os.fdopen(sending, "wb") as pipe:
            pipe.write(answer)
    finally:
        # Not `_exit`, which is guarded where stores are run, and nothing of the parent's at exit.
        os.kill(os.getpid(), signal.SIGKILL)


def _end_with(parent: int) -> None:
    timer = threading.Event()
    while not timer.wait(0.5):
        if os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGKILL)
