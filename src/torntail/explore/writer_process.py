"""A process that writes to a Python store: `drive.serve`, which can fork when told to.

The child does nothing, and lives on with all that it inherited until it is killed: locks that are
files are what matters. Started by `writers_run`, with what it serves as JSON on its command line.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Final

import msgspec

from torntail.drive.serve import Server
from torntail.drive.target import Durability, TargetError, target_of
from torntail.judge.capabilities import Capabilities

__all__ = ["FORK", "WriterOrder", "main"]

FORK: Final = "fork"
"""The call that no other driver knows."""


class WriterOrder(msgspec.Struct, frozen=True, kw_only=True):
    """What a writer serves: a target that it imports by its name."""

    target: str
    capabilities: Capabilities
    durability: Durability | None


class _ForkingServer(Server):
    def answer(self, line: bytes) -> bytes:
        request = json.loads(line)
        if request.get("call") != FORK:
            return super().answer(line)
        heard, tell = os.pipe()
        child = os.fork()
        if child == 0:
            _live_on(tell)
        os.close(tell)
        # Only then has the child done what the store does in one, such as letting go of a lock.
        lives = os.read(heard, 1)
        os.close(heard)
        return b'{"id":%d,"result":{"lives":%s}}\n' % (
            request["id"],
            b"true" if lives else b"false",
        )


def _live_on(tell: int) -> None:
    """What a child does: says that it is there, and nothing more."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nothing, number)
    os.write(tell, b"!")
    os.close(tell)
    while True:
        signal.pause()


def main() -> int:
    """Serves until the input ends; 2 where the target cannot be had here, with the reason."""
    order = msgspec.json.decode(sys.argv[1], type=WriterOrder)
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    # What the store prints is not to be taken for an answer.
    os.dup2(2, 1)
    try:
        target = target_of(
            order.target, capabilities=order.capabilities, durability=order.durability
        )
    except TargetError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    _ForkingServer(target).serve(sys.stdin.buffer, answers)
    return 0


if __name__ == "__main__":
    sys.exit(main())
