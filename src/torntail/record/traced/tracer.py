"""The loop that holds a tree of processes by its calls.

Decides order: one mutating call at a time. While a thread is in such a call the tracer waits for
its end and leaves every other stop unanswered, so what the log says came first did. A write into an
output pipe may block, so it is not waited for; it stands in the log where it began, for whoever
reads the pipe may have the bytes from then on.

Does not decide what calls mean (`byte_calls`, `name_calls`) or who asks for all this (`helper`).
"""

from __future__ import annotations

import os
import time

from torntail.record.traced import linux
from torntail.record.traced.book import Book
from torntail.record.traced.byte_calls import BYTE_CALLS
from torntail.record.traced.linux import Gone
from torntail.record.traced.name_calls import NAME_CALLS
from torntail.record.traced.planned import Planned, Spoken
from torntail.record.traced.seccomp import CALLS, CALLS_BY_FLAGS, READS
from torntail.record.traced.strikes import Strikes
from torntail.record.traced.thread import Thread

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections.abc import Callable
    from typing import Any, Final

    from torntail.record.traced.spawn import Spawned
else:
    import _signal as signal  # Without enum, which is slow to import.

__all__ = ["Tracer"]

_NAMES: Final = {**CALLS, **CALLS_BY_FLAGS, **READS}
_HANDLERS: Final = {number: (BYTE_CALLS | NAME_CALLS)[name] for number, name in _NAMES.items()}
_CHILD_ONLY: Final = frozenset({signal.SIGCHLD})
_PATIENCE_SECONDS: Final = 1.0
_HARMLESS: Final = frozenset({"read", "open"})
_END_OF_CALL: Final = signal.SIGTRAP | linux.IN_CALL
_GROUP_STOPS: Final = frozenset({signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU})


class Command:
    """One started command: its first process, how it ended, and what of its tree was left then."""

    __slots__ = ("left", "pid", "reason", "running", "spawned", "status")

    def __init__(self, spawned: Spawned) -> None:
        self.spawned = spawned
        self.pid = spawned.pid
        self.running = False
        self.status: int | None = None
        self.reason = ""
        self.left = 0


class Tracer:
    """All traced threads, and the book they write.

    `while_waiting` is called once a second while a call takes long.
    """

    def __init__(self, while_waiting: Callable[[], object]) -> None:
        self._while_waiting = while_waiting
        self.book: Book | None = None
        self.strikes = Strikes()
        self.commands: list[Command] = []
        self.ended: list[int] = []
        self.outputs: dict[tuple[int, int], int] = {}
        self._threads: dict[int, Thread] = {}
        self._unborn: dict[int, int] = {}
        self._backlog: list[tuple[int, int]] = []
        self._waiting_to_speak: dict[tuple[int, int], list[tuple[int, int]]] = {}
        self._sleeping: list[tuple[float, Thread, Planned]] = []

    # --- commands -------------------------------------------------------------------------------

    def add(self, spawned: Spawned, output: tuple[int, int] | None) -> int:
        """Takes a started command; gives its number."""
        number = len(self.commands)
        self.commands.append(Command(spawned))
        self._threads[spawned.pid] = Thread(spawned.pid, number)
        if output is not None:
            self.outputs[output] = number
        return number

    def kill(self, number: int, reason: str) -> None:
        """Kills a command and all that descends from it."""
        command = self.commands[number]
        if command.status is None and not command.reason:
            command.reason = reason
        for thread in list(self._threads.values()):
            if thread.child == number:
                _kill(thread.pid)

    def alive(self, number: int) -> bool:
        """Whether anything of a command's tree is left."""
        return any(thread.child == number for thread in self._threads.values())

    @property
    def speaking(self) -> bool:
        """Whether a write into an output pipe has begun and is not known to have ended."""
        return bool(self._waiting_to_speak)

    # --- the loop -------------------------------------------------------------------------------

    def step(self) -> bool:
        """Handles what has happened; False if nothing has."""
        if self._sleeping:
            self._wake()
        if self._backlog:
            self._handle(*self._backlog.pop(0))
            return True
        try:
            pid, status = os.waitpid(-1, linux.WALL | os.WNOHANG)
        except ChildProcessError:
            return False
        if pid:
            self._handle(pid, status)
        return bool(pid)

    def next_wake(self) -> float | None:
        """When the first delayed call is due, by the monotonic clock."""
        return min(when for when, _, _ in self._sleeping) if self._sleeping else None

    def _handle(self, pid: int, status: int) -> None:
        thread = self._threads.get(pid)
        if thread is None:
            # Stopped at its birth before its parent has told of it; or gone again.
            if os.WIFSTOPPED(status):
                self._unborn[pid] = status
            else:
                self._unborn.pop(pid, None)
        elif os.WIFSTOPPED(status):
            try:
                self._stopped(thread, status)
            except Gone:
                pass  # Its end is told on its own.
        else:
            self._ended(thread, status)

    def _stopped(self, thread: Thread, status: int) -> None:
        number, event = os.WSTOPSIG(status), status >> 16
        if self.commands[thread.child].reason:
            _kill(thread.pid)
        elif event == linux.EVENT_SECCOMP:
            self._call(thread, status)
        elif event in (linux.EVENT_FORK, linux.EVENT_VFORK, linux.EVENT_CLONE):
            self._born(linux.event_message(thread.pid), thread.child)
            linux.go_on(thread.pid)
        elif event == linux.EVENT_EXEC:
            self._became(thread)
        elif event == linux.EVENT_STOP:
            if number in _GROUP_STOPS:
                linux.keep_stopped(thread.pid)
            else:
                linux.go_on(thread.pid)
        elif number == _END_OF_CALL:
            if thread.spoken is not None:
                self._spoke(thread, linux.result_at_stop(thread.pid))
            linux.go_on(thread.pid)
        elif event:
            linux.go_on(thread.pid)
        else:
            linux.go_on(thread.pid, number)

    def _born(self, pid: int, child: int) -> None:
        self._threads[pid] = Thread(pid, child)
        status = self._unborn.pop(pid, None)
        if status is not None:
            self._backlog.append((pid, status))

    def _became(self, thread: Thread) -> None:
        """An exec: the thread has the process to itself, under the number of its first one."""
        former = linux.event_message(thread.pid)
        if former != thread.pid:
            other = self._threads.pop(former, None)
            if other is not None:
                other.close()
        thread.forget_memory()
        command = self.commands[thread.child]
        if thread.pid == command.pid:
            command.running = True
        linux.go_on(thread.pid)

    def _ended(self, thread: Thread, status: int) -> None:
        if thread.spoken is not None:
            self._spoke(thread, None)
        thread.close()
        del self._threads[thread.pid]
        command = self.commands[thread.child]
        if thread.pid == command.pid:
            command.status = status
            if not command.reason:
                command.left = sum(one.child == thread.child for one in self._threads.values())
            # Whoever is left is not waited for: a command is over when its first process is.
            for other in list(self._threads.values()):
                if other.child == thread.child:
                    _kill(other.pid)
        if not self._threads:
            # Those whose parent was killed before it could tell of them.
            for pid in self._unborn:
                _kill(pid)
        if command.status is not None and not self.alive(thread.child):
            self.ended.append(thread.child)

    # --- calls ----------------------------------------------------------------------------------

    def _call(self, thread: Thread, status: int) -> None:
        manner, number, *arguments = linux.call_at_stop(thread.pid)
        book = self.book
        handler = _HANDLERS.get(number) if manner == linux.X86_64 else None
        if handler is None:
            reason = f"was changed, perhaps, by call {number:#x}, which is no x86-64 call"
            if book is not None:
                book.problems.append(("unmodelled", "", reason))
        elif book is not None:
            planned = handler(book, self.outputs, thread, arguments)
            if planned is not None:
                if book.maps:
                    book.maps.look()
                if isinstance(planned, Spoken):
                    self._speak(thread, status, planned, book)
                else:
                    self._strike_or_run(thread, planned, book)
                return
        linux.go_on(thread.pid)

    def _strike_or_run(self, thread: Thread, planned: Planned, book: Book) -> None:
        strike = self.strikes.hit(planned.kind, planned.inode, planned.length, book)
        if strike is not None:
            self._strike(thread, planned, book, strike)
        elif planned.kind in _HARMLESS:
            linux.go_on(thread.pid)
        else:
            self._run(thread, planned, book)
            linux.go_on(thread.pid)

    def _run(self, thread: Thread, planned: Planned, book: Book) -> None:
        """Lets a call be carried out and logs it; the thread stands at the call's end then."""
        linux.go_on_to_exit(thread.pid)
        while True:
            pid, status = os.waitpid(-1, linux.WALL | os.WNOHANG)
            if pid == thread.pid:
                break
            if pid:
                self._backlog.append((pid, status))
            elif signal.sigtimedwait(_CHILD_ONLY, _PATIENCE_SECONDS) is None:
                self._while_waiting()
        if not os.WIFSTOPPED(status) or os.WSTOPSIG(status) != _END_OF_CALL:
            # Killed, or swept away by another thread's exec.
            self._backlog.append((pid, status))
            self._find_out(planned, book)
            raise Gone
        try:
            result = linux.result_at_stop(thread.pid)
            if result < 0:
                return
            planned.finish(result)
        except (Gone, OSError):
            # Killed right behind its call; or another thread closed the descriptor meanwhile.
            self._find_out(planned, book)
            return
        if planned.kind == "sync":
            self.strikes.synced(planned.inode, book)

    def _find_out(self, planned: Planned, book: Book) -> None:
        """Logs what a call did whose end was not seen, as far as the directory tells."""
        if planned.happened is None:
            if planned.kind in ("write", "truncate"):
                book.entries.append(("unfinished", planned.inode))
        elif planned.happened():
            planned.finish(0)

    # --- output ---------------------------------------------------------------------------------

    def _speak(self, thread: Thread, status: int, spoken: Spoken, book: Book) -> None:
        waiting = self._waiting_to_speak.get(spoken.key)
        if waiting is not None:
            waiting.append((thread.pid, status))
            return
        self._waiting_to_speak[spoken.key] = []
        thread.spoken = (len(book.entries), spoken.key)
        book.entries.append(("output", spoken.child, spoken.data))
        linux.go_on_to_exit(thread.pid)

    def _spoke(self, thread: Thread, count: int | None) -> None:
        """Corrects the log by what was really written; all of it if nobody can tell."""
        assert thread.spoken is not None
        (index, key), thread.spoken = thread.spoken, None
        self._backlog.extend(self._waiting_to_speak.pop(key))
        if count is not None and self.book is not None and index < len(self.book.entries):
            tag, child, data = self.book.entries[index]
            self.book.entries[index] = (tag, child, data[: max(count, 0)])

    # --- strikes --------------------------------------------------------------------------------

    def _strike(self, thread: Thread, planned: Planned, book: Book, strike: dict[str, Any]) -> None:
        act, pid = strike["act"], thread.pid
        if act == "delay":
            when = time.monotonic() + strike["seconds"]
            self._sleeping.append((when, thread, planned))
            return
        length = min(strike["length"], planned.length)
        error = strike["error"]
        if planned.cut is None or (not length and (error or act == "kill")):
            if act == "kill":
                self.kill(thread.child, "killed")
                return
            # A second report of one failure leaves the pages as they are.
            if planned.kind == "sync" and strike["pages"] != "" and planned.inode is not None:
                self.strikes.sync_failed(strike, planned.inode, book)
            linux.skip_call(pid, -error)
            linux.go_on(pid)
            return
        undo = planned.cut(length)
        self._run(thread, planned, book)
        if act == "kill":
            self.kill(thread.child, "killed")
            return
        if undo is not None:
            undo()
        if error:
            linux.set_result(pid, -error)
        linux.go_on(pid)

    def _wake(self) -> None:
        """Carries out the delayed calls that are due."""
        now = time.monotonic()
        due = [one for one in self._sleeping if one[0] <= now]
        self._sleeping = [one for one in self._sleeping if one[0] > now]
        for _, thread, planned in due:
            if self.book is None or self._threads.get(thread.pid) is not thread:
                continue
            try:
                self._run(thread, planned, self.book)
                linux.go_on(thread.pid)
            except Gone:
                pass


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
