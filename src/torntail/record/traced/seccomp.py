"""The filter that stops a child only on calls that matter, as a BPF program.

Decides which calls stop. A call that can be told harmless by its flags passes: an `open` for
reading, a private mapping. io_uring and Linux's asynchronous I/O do not exist for the child, for
what they write is seen by no tracer; callers fall back. A call in the 32-bit or x32 manner stops,
whatever it is.
"""

from __future__ import annotations

import errno
import os
import struct

from torntail.record.traced.linux import X86_64

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

__all__ = ["CALLS", "READS", "program"]

_X32_BIT: Final = 0x40000000

_ALLOW: Final = 0x7FFF0000
_TRACE: Final = 0x7FF00000
_MISSING: Final = 0x00050000 | errno.ENOSYS
_FORBIDDEN: Final = 0x00050000 | errno.EPERM

_TMPFILE_BIT: Final = os.O_TMPFILE & ~os.O_DIRECTORY
_WRITES: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | _TMPFILE_BIT
_MAP_SHARED: Final = 1
_MAP_ANONYMOUS: Final = 0x20
_CLONE_UNTRACED: Final = 0x00800000
_CLONES: Final = (0x40049409, 0x4020940D)

CALLS: Final = {
    1: "write",
    18: "pwrite64",
    20: "writev",
    26: "msync",
    40: "sendfile",
    74: "fsync",
    75: "fdatasync",
    76: "truncate",
    77: "ftruncate",
    82: "rename",
    83: "mkdir",
    84: "rmdir",
    85: "creat",
    86: "link",
    87: "unlink",
    88: "symlink",
    133: "mknod",
    162: "sync",
    258: "mkdirat",
    259: "mknodat",
    263: "unlinkat",
    264: "renameat",
    265: "linkat",
    266: "symlinkat",
    275: "splice",
    285: "fallocate",
    296: "pwritev",
    306: "syncfs",
    316: "renameat2",
    326: "copy_file_range",
    328: "pwritev2",
    437: "openat2",
}
"""Calls that always stop."""

CALLS_BY_FLAGS: Final = {2: "open", 257: "openat", 9: "mmap", 16: "ioctl"}
"""Calls that stop if their flags say so."""

READS: Final = {0: "read", 17: "pread64", 19: "readv", 295: "preadv", 327: "preadv2"}
"""Calls that stop only where reads are to be struck."""

_DENIED: Final = (425, 206)  # io_uring_setup, io_setup

_NUMBER: Final = 0
_ARCHITECTURE_OFFSET: Final = 4


def _argument(index: int) -> int:
    return 16 + 8 * index


def _load(offset: int) -> bytes:
    return struct.pack("HBBI", 0x20, 0, 0, offset)


def _return(value: int) -> bytes:
    return struct.pack("HBBI", 0x06, 0, 0, value)


def _equal(value: int, then: int, otherwise: int) -> bytes:
    return struct.pack("HBBI", 0x15, then, otherwise, value)


def _at_least(value: int, then: int, otherwise: int) -> bytes:
    return struct.pack("HBBI", 0x35, then, otherwise, value)


def _any_bit(value: int, then: int, otherwise: int) -> bytes:
    return struct.pack("HBBI", 0x45, then, otherwise, value)


def program(*, reads: bool) -> bytes:
    """The filter; with `reads`, reads stop as well."""
    traced = [*CALLS, *READS] if reads else list(CALLS)
    code = [
        _load(_ARCHITECTURE_OFFSET),
        _equal(X86_64, 1, 0),
        _return(_TRACE),
        _load(_NUMBER),
        # -1 is no call at all: one that was struck out.
        _equal(0xFFFFFFFF, 0, 1),
        _return(_ALLOW),
        _at_least(_X32_BIT, 0, 1),
        _return(_TRACE),
    ]
    for number in traced:
        code += [_equal(number, 0, 1), _return(_TRACE)]
    for number in _DENIED:
        code += [_equal(number, 0, 1), _return(_MISSING)]
    for number, flags in ((2, 1), (257, 2)):
        code += _if_any_bit(number, flags, _WRITES)
    code += _if_any_bit(56, 0, _CLONE_UNTRACED, _FORBIDDEN)
    code += [
        _equal(9, 0, 5),
        _load(_argument(3)),
        _any_bit(_MAP_ANONYMOUS, 2, 0),
        _any_bit(_MAP_SHARED, 0, 1),
        _return(_TRACE),
        _return(_ALLOW),
        _equal(16, 0, 5),
        _load(_argument(1)),
        _equal(_CLONES[0], 1, 0),
        _equal(_CLONES[1], 0, 1),
        _return(_TRACE),
        _return(_ALLOW),
        _return(_ALLOW),
    ]
    return b"".join(code)


def _if_any_bit(number: int, argument: int, bits: int, answer: int = _TRACE) -> list[bytes]:
    return [
        _equal(number, 0, 4),
        _load(_argument(argument)),
        _any_bit(bits, 0, 1),
        _return(answer),
        _return(_ALLOW),
    ]
