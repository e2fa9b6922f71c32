"""A call that is about to change the recorded directory, or to say something.

Decides what the tracer needs to know of any call: what kind of operation it is, what to log when
it succeeds, and how a write is made shorter. What each call means is in `byte_calls` and
`name_calls`.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    Finish = Callable[[int], object]
    Undo = Callable[[], object]

__all__ = ["Planned", "Spoken"]


class Planned:
    """A call of kind `kind` (an `IoOperation`, or `read`, `open`) on `inode`.

    `finish` is given what the call returned, unless it failed. `cut` makes a write or read shorter
    and gives what undoes that in the child's memory; None where there is nothing to cut. `length`
    is the number of bytes to be written. `happened` finds out whether a call took effect whose
    process was killed in it; None where only the bytes of the file tell.
    """

    __slots__ = ("cut", "finish", "happened", "inode", "kind", "length")

    def __init__(
        self,
        kind: str,
        finish: Finish,
        inode: int | None = None,
        length: int = 0,
        cut: Callable[[int], Undo | None] | None = None,
        happened: Callable[[], bool] | None = None,
    ) -> None:
        self.kind = kind
        self.finish = finish
        self.inode = inode
        self.length = length
        self.cut = cut
        self.happened = happened


class Spoken:
    """Output: `data` is about to be written to the pipe `key` of command `child`."""

    __slots__ = ("child", "data", "key")

    def __init__(self, child: int, key: tuple[int, int], data: bytes) -> None:
        self.child = child
        self.key = key
        self.data = data
