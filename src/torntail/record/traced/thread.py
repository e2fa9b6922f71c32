"""A traced thread: its memory, its descriptors, and the places its paths name.

Decides how what a call's arguments stand for is found while the thread is stopped. Everything is
asked of `/proc` at that moment, so duplicated, inherited and passed descriptors need no rule.

Does not cover a child that changes its root directory or mounts.
"""

from __future__ import annotations

import fcntl
import os
import struct

from torntail.record.traced.linux import AT_FDCWD, borrow

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

__all__ = ["Thread", "signed"]

_PATH_BYTES: Final = 4096
_FDINFO_BYTES: Final = 512
_OWN_NAMES: Final = (
    (b"/proc/self/", b"/proc/%d/"),
    (b"/proc/thread-self/", b"/proc/%d/"),
    (b"/dev/fd/", b"/proc/%d/fd/"),
    (b"/dev/stdin", b"/proc/%d/fd/0"),
    (b"/dev/stdout", b"/proc/%d/fd/1"),
    (b"/dev/stderr", b"/proc/%d/fd/2"),
)


class Thread:
    """One traced thread; `child` is the number of the command it descends from.

    `spoken` is where its unfinished output stands in the book, None if there is none.
    """

    __slots__ = ("_memory", "_process", "child", "pid", "spoken")

    def __init__(self, pid: int, child: int) -> None:
        self.pid = pid
        self.child = child
        self.spoken: tuple[int, tuple[int, int]] | None = None
        self._memory = -1
        try:
            # Only for a process's first thread, which is fine: others are asked of `/proc`.
            self._process = os.pidfd_open(pid)
        except OSError:
            self._process = -1

    # --- memory ---------------------------------------------------------------------------------

    def read(self, address: int, count: int) -> bytes:
        """Bytes of the thread's memory, fewer where it ends."""
        if count <= 0:
            return b""
        if self._memory < 0:
            self._memory = os.open(f"/proc/{self.pid}/mem", os.O_RDWR | os.O_CLOEXEC)
        data = b""
        while len(data) < count:
            try:
                piece = os.pread(self._memory, count - len(data), address + len(data))
            except OSError:
                break
            if not piece:
                break
            data = data + piece if data else piece
        return data

    def write(self, address: int, data: bytes) -> None:
        """Puts bytes into the thread's memory."""
        self.read(address, 1)
        os.pwrite(self._memory, data, address)

    def vectors(self, address: int, count: int) -> list[tuple[int, int]]:
        """The address and length of each piece of a call such as `writev`."""
        return list(struct.iter_unpack("QQ", self.read(address, 16 * min(count, 1024))))

    def gather(self, vectors: list[tuple[int, int]], count: int) -> bytes:
        """The first `count` bytes of the pieces."""
        pieces = []
        for address, length in vectors:
            piece = self.read(address, min(length, count))
            pieces.append(piece)
            count -= len(piece)
            if count <= 0:
                break
        return b"".join(pieces)

    def forget_memory(self) -> None:
        """The thread has another memory now (exec)."""
        if self._memory >= 0:
            os.close(self._memory)
            self._memory = -1

    def close(self) -> None:
        """The thread is gone."""
        self.forget_memory()
        if self._process >= 0:
            os.close(self._process)
            self._process = -1

    # --- descriptors ----------------------------------------------------------------------------

    def open_file(self, descriptor: int) -> str:
        """A path that leads to what a descriptor stands for."""
        return f"/proc/{self.pid}/fd/{descriptor & 0xFFFFFFFF}"

    def status(self, descriptor: int) -> os.stat_result | None:
        """The status of an open descriptor, None for one that is not open."""
        own = borrow(self._process, descriptor & 0x7FFFFFFF)
        if own >= 0:
            status = os.fstat(own)
            os.close(own)
            return status
        try:
            return os.stat(self.open_file(descriptor))
        except OSError:
            return None

    def position_and_flags(self, descriptor: int) -> tuple[int, int]:
        """The position and the status flags of an open descriptor; raises OSError."""
        own = borrow(self._process, descriptor & 0x7FFFFFFF)
        if own >= 0:
            try:
                return os.lseek(own, 0, os.SEEK_CUR), fcntl.fcntl(own, fcntl.F_GETFL)
            finally:
                os.close(own)
        info = os.open(
            f"/proc/{self.pid}/fdinfo/{descriptor & 0xFFFFFFFF}", os.O_RDONLY | os.O_CLOEXEC
        )
        try:
            words = os.read(info, _FDINFO_BYTES).split(None, 4)
        finally:
            os.close(info)
        return int(words[1]), int(words[3], 8)

    # --- paths ----------------------------------------------------------------------------------

    def path(self, address: int, directory: int = AT_FDCWD) -> bytes:
        """A path argument, made absolute; b"" if it is empty or no path at all."""
        text, end, _ = self.read(address, _PATH_BYTES).partition(b"\0")
        if not text or not end:
            return b""
        if text.startswith(b"/"):
            for name, own in _OWN_NAMES:
                if text.startswith(name):
                    return own % self.pid + text[len(name) :]
            return text
        return self.directory(directory) + text

    def directory(self, descriptor: int) -> bytes:
        """What relative paths are relative to, with a slash at its end."""
        if signed(descriptor) == AT_FDCWD:
            return b"/proc/%d/cwd/" % self.pid
        return b"/proc/%d/fd/%d/" % (self.pid, descriptor & 0xFFFFFFFF)


def signed(value: int) -> int:
    """The C `int` in a register."""
    value &= 0xFFFFFFFF
    return value - 0x100000000 if value & 0x80000000 else value
