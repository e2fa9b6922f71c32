"""The few calls of Linux on x86-64 that tracing needs, over ctypes.

Decides numbers and layouts only. Nothing here is portable: `unavailable` says so before use.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

__all__ = [
    "AT_FDCWD",
    "EVENT_CLONE",
    "EVENT_EXEC",
    "EVENT_FORK",
    "EVENT_SECCOMP",
    "EVENT_STOP",
    "EVENT_VFORK",
    "IN_CALL",
    "OPTIONS",
    "WALL",
    "X86_64",
    "Gone",
    "borrow",
    "call_at_stop",
    "event_message",
    "go_on",
    "go_on_to_exit",
    "install_filter",
    "keep_stopped",
    "result_at_stop",
    "seize",
    "set_argument",
    "set_result",
    "skip_call",
    "unavailable",
]

AT_FDCWD: Final = -100
X86_64: Final = 0xC000003E
WALL: Final = 0x40000000
IN_CALL: Final = 0x80
"""Added to SIGTRAP in the status of a stop at the end of a system call."""

EVENT_FORK: Final = 1
EVENT_VFORK: Final = 2
EVENT_CLONE: Final = 3
EVENT_EXEC: Final = 4
EVENT_SECCOMP: Final = 7
EVENT_STOP: Final = 128

# TRACESYSGOOD, the events above, and EXITKILL: no traced process outlives its tracer.
OPTIONS: Final = 0x1 | 0x2 | 0x4 | 0x8 | 0x10 | 0x80 | 0x100000

_POKEUSER: Final = 6
_CONT: Final = 7
_SYSCALL: Final = 24
_GETEVENTMSG: Final = 0x4201
_SEIZE: Final = 0x4206
_LISTEN: Final = 0x4208
_GET_SYSCALL_INFO: Final = 0x420E

# Offsets into `struct user`.
_ORIGINAL_RAX: Final = 15 * 8
_RAX: Final = 10 * 8
_ARGUMENTS: Final = (14 * 8, 13 * 8, 12 * 8, 7 * 8, 9 * 8, 8 * 8)

_ALL_BITS: Final = 0xFFFFFFFFFFFFFFFF

_SYS_SECCOMP: Final = 317
_SYS_PIDFD_GETFD: Final = 438
_SET_NO_NEW_PRIVILEGES: Final = 38
_SPECULATION_ALLOWED: Final = 4

# Fast: without the global lock's release and without errno, which only a failure needs.
_ptrace = ctypes.PyDLL(None).ptrace
_syscall = ctypes.PyDLL(None).syscall
_libc = ctypes.CDLL(None, use_errno=True)
_NOTHING: Final = ctypes.c_void_p(0)

# struct ptrace_syscall_info: op, arch, instruction and stack pointer, then by op.
_INFO_BYTES: Final = 88
_info = ctypes.create_string_buffer(_INFO_BYTES)
_info_address = ctypes.c_void_p(ctypes.addressof(_info))
_info_bytes = ctypes.c_void_p(_INFO_BYTES)
_called = struct.Struct("=4xI16x7Q").unpack_from
_returned = struct.Struct("=24xq").unpack_from
_message = ctypes.c_ulong()
_message_address = ctypes.c_void_p(ctypes.addressof(_message))


class Gone(Exception):
    """The thread died while it was stopped: only SIGKILL does that."""


def _failed(request: int, pid: int, address: ctypes.c_void_p, data: ctypes.c_void_p) -> None:
    """Raises what a request that has failed fails with; it is made once more to find out."""
    if _libc.ptrace(request, pid, address, data) != -1:
        return
    number = ctypes.get_errno()
    if number == errno.ESRCH:
        raise Gone
    raise OSError(number, f"ptrace({request:#x}): {os.strerror(number)}")


def _request(request: int, pid: int, address: ctypes.c_void_p, data: ctypes.c_void_p) -> None:
    if _ptrace(request, pid, address, data) == -1:
        _failed(request, pid, address, data)


def seize(pid: int) -> None:
    """Begins to trace a process, which goes on running."""
    _request(_SEIZE, pid, _NOTHING, ctypes.c_void_p(OPTIONS))


def go_on(pid: int, signal: int = 0) -> None:
    """Lets a stopped thread run until the next event, delivering a signal to it."""
    if _ptrace(_CONT, pid, _NOTHING, signal) == -1:
        _failed(_CONT, pid, _NOTHING, ctypes.c_void_p(signal))


def go_on_to_exit(pid: int) -> None:
    """Lets a thread that is stopped at the beginning of a call run until the call's end."""
    if _ptrace(_SYSCALL, pid, _NOTHING, _NOTHING) == -1:
        _failed(_SYSCALL, pid, _NOTHING, _NOTHING)


def keep_stopped(pid: int) -> None:
    """Leaves a thread in its group stop, until SIGCONT."""
    _request(_LISTEN, pid, _NOTHING, _NOTHING)


def event_message(pid: int) -> int:
    """What goes with an event: the new process, or the former thread of an exec."""
    _request(_GETEVENTMSG, pid, _NOTHING, _message_address)
    return _message.value


def call_at_stop(pid: int) -> tuple[int, ...]:
    """The manner (X86_64 or another), number and six arguments of the call a thread begins."""
    if _ptrace(_GET_SYSCALL_INFO, pid, _info_bytes, _info_address) == -1:
        _failed(_GET_SYSCALL_INFO, pid, _info_bytes, _info_address)
    call: tuple[int, ...] = _called(_info)
    return call


def result_at_stop(pid: int) -> int:
    """What a call returned: a negative error number if it failed."""
    if _ptrace(_GET_SYSCALL_INFO, pid, _info_bytes, _info_address) == -1:
        _failed(_GET_SYSCALL_INFO, pid, _info_bytes, _info_address)
    result: int = _returned(_info)[0]
    return result


def borrow(process: int, descriptor: int) -> int:
    """An own descriptor of what one of a process stands for, for `process`, a pidfd; or -1."""
    answer: int = _syscall(_SYS_PIDFD_GETFD, process, descriptor, 0)
    return answer


def set_argument(pid: int, index: int, value: int) -> None:
    """Exchanges an argument of the call a thread is about to make."""
    _request(_POKEUSER, pid, ctypes.c_void_p(_ARGUMENTS[index]), ctypes.c_void_p(value))


def set_result(pid: int, value: int) -> None:
    """Exchanges what a call returns."""
    _request(_POKEUSER, pid, ctypes.c_void_p(_RAX), ctypes.c_void_p(value & _ALL_BITS))


def skip_call(pid: int, result: int) -> None:
    """Has a thread not make the call it is about to make, but see `result` of it."""
    _request(_POKEUSER, pid, ctypes.c_void_p(_ORIGINAL_RAX), ctypes.c_void_p(_ALL_BITS))
    set_result(pid, result)


def install_filter(program: bytes) -> None:
    """Puts a BPF program before all further calls of this process and its children.

    Raises OSError where the kernel or a container refuses it.
    """
    if _libc.prctl(_SET_NO_NEW_PRIVILEGES, 1, 0, 0, 0):
        number = ctypes.get_errno()
        raise OSError(number, f"prctl: {os.strerror(number)}")
    code = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("HxxxxxxQ", len(program) // 8, ctypes.addressof(code))
    for flags in (_SPECULATION_ALLOWED, 0):
        if not _libc.syscall(_SYS_SECCOMP, 1, flags, header):
            return
    number = ctypes.get_errno()
    raise OSError(number, f"seccomp: {os.strerror(number)}")


def unavailable() -> str | None:
    """Why this machine cannot trace, in a line, or None if nothing is known against it."""
    if sys.platform != "linux":
        return f"tracing needs Linux, this is {sys.platform}"
    machine = os.uname().machine
    if machine != "x86_64" or sys.maxsize < 2**32:
        return f"tracing needs x86-64, this is {machine}"
    return None
