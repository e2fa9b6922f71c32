"""Stores that are rude to their process, or to the machine, when a crash is behind them.

Each keeps its promises in every other way, or hides that it does not: what comes of it is a finding
or a harness error with the cause, never a hang and never a pass that was not earned.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.zoo.careful import CarefulStore
from tests.zoo.hostile import _Hostile
from tests.zoo.plain import factory
from torntail.session import SessionEvent

ELSEWHERE = "TORNTAIL_TESTS_ELSEWHERE"
"""Names the directory in which `writes_elsewhere` keeps what no crash takes from it."""

MEETING = "TORNTAIL_TESTS_MEETING"
"""Names the pipe through which `meets` tells its process."""


class _KeepsOutside(CarefulStore):
    """Syncs nothing, and has every log a second time where no crash comes."""

    def sync(self, descriptor: int) -> None:
        pass

    def copy_of(self, path: Path) -> Path:
        raise NotImplementedError

    def put(self, path: Path, content: bytes) -> None:
        super().put(path, content)
        with self.copy_of(path).open("ab") as file:
            file.write(content)


class WritesBeside(_KeepsOutside):
    def copy_of(self, path: Path) -> Path:
        return self.root.parent / f"{path.stem}.copy"


class WritesElsewhere(_KeepsOutside):
    def copy_of(self, path: Path) -> Path:
        return Path(os.environ.get(ELSEWHERE, tempfile.gettempdir())) / f"{path.stem}.copy"


class WritesLate(CarefulStore):
    """Hands the bytes of an append to a thread, which writes them when the store is closed."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.closing = threading.Event()

    def append_batch(
        self, path: Path, batch: Iterable[SessionEvent], lines: Iterable[bytes]
    ) -> None:
        content = b"".join(line + b"\n" for line in lines)

        def write() -> None:
            self.closing.wait()
            self.put(path, content)

        threading.Thread(target=write, daemon=True).start()

    def close(self) -> None:
        super().close()
        self.closing.set()


class ClosesOutputs(_Hostile):
    def strike(self) -> None:
        for descriptor in (1, 2):
            try:
                os.close(descriptor)
            except OSError:
                pass


class ClosesEverything(_Hostile):
    def strike(self) -> None:
        os.closerange(3, 256)


class ChangesDirectory(_Hostile):
    """Goes into a directory that is gone at once."""

    def strike(self) -> None:
        directory = tempfile.mkdtemp(dir=self.root)
        os.chdir(directory)
        os.rmdir(directory)


class TakesTheAlarm(_Hostile):
    """Switches off the alarm that might wake it, and hangs."""

    def strike(self) -> None:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGALRM, signal.SIG_IGN)
        threading.Event().wait()


class InstallsHandlers(_Hostile):
    """Wants no signal to end it."""

    def strike(self) -> None:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGALRM, signal.SIGTERM, signal.SIGINT):
                signal.signal(number, signal.SIG_IGN)


class KilledByItsAlarm(_Hostile):
    def strike(self) -> None:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGALRM)


class ShrinksTheStack(_Hostile):
    def strike(self) -> None:
        depth, frame = 0, sys._getframe()
        while frame.f_back is not None:
            depth, frame = depth + 1, frame.f_back
        sys.setrecursionlimit(depth + 24)


class LeavesAChild(_Hostile):
    """Forks a child, once, that stays and holds whatever was open."""

    forked = False

    def strike(self) -> None:
        if not LeavesAChild.forked:
            LeavesAChild.forked = True
            if os.fork() == 0:
                while True:
                    signal.pause()


class LeavesAThread(_Hostile):
    """Starts a thread, once, that the interpreter would wait for at its end."""

    started = False

    def strike(self) -> None:
        if not LeavesAThread.started:
            LeavesAThread.started = True
            threading.Thread(target=threading.Event().wait, daemon=False).start()


class WillNotBeNamed(Exception):
    """Raises at whatever is asked of it."""

    def __str__(self) -> str:
        raise SystemExit(0)

    __repr__ = __str__

    @property
    def kind(self) -> str:
        raise KeyboardInterrupt


class RaisesMoreOddly(_Hostile):
    def strike(self) -> None:
        raise WillNotBeNamed


class Meets(_Hostile):
    """Tells its process, and waits until it ends."""

    def strike(self) -> None:
        with open(os.environ[MEETING], "w", encoding="ascii") as pipe:
            pipe.write(f"{os.getpid()}\n")
        threading.Event().wait()


writes_beside = factory(WritesBeside, durability="power")
writes_elsewhere = factory(WritesElsewhere, durability="power")
writes_late = factory(WritesLate, durability="power")
closes_outputs = factory(ClosesOutputs, durability="power")
closes_everything = factory(ClosesEverything, durability="power")
changes_directory = factory(ChangesDirectory, durability="power")
takes_the_alarm = factory(TakesTheAlarm, durability="power")
installs_handlers = factory(InstallsHandlers, durability="power")
killed_by_its_alarm = factory(KilledByItsAlarm, durability="power")
shrinks_the_stack = factory(ShrinksTheStack, durability="power")
leaves_a_child = factory(LeavesAChild, durability="power")
leaves_a_thread = factory(LeavesAThread, durability="power")
raises_more_oddly = factory(RaisesMoreOddly, durability="power")
meets = factory(Meets, durability="power")


class MakesHolesWithoutEnd(CarefulStore):
    """Reserves a terabyte, which takes no room, beside each log."""

    def first_flush(self, path: Path, header: bytes, lines: Sequence[bytes]) -> None:
        with path.with_suffix(".reserve").open("wb") as file:
            file.truncate(1 << 40)
        super().first_flush(path, header, lines)


class MakesAHoleForAMoment(CarefulStore):
    """Tries out how long a log may become, and takes it back."""

    def first_flush(self, path: Path, header: bytes, lines: Sequence[bytes]) -> None:
        with path.with_suffix(".reserve").open("wb") as file:
            file.truncate(1 << 40)
        path.with_suffix(".reserve").unlink()
        super().first_flush(path, header, lines)


class MakesAHoleAfterACrash(_Hostile):
    def strike(self) -> None:
        with (self.root / "reserve").open("wb") as file:
            file.truncate(1 << 40)


makes_holes_without_end = factory(MakesHolesWithoutEnd, durability="power")
makes_a_hole_for_a_moment = factory(MakesAHoleForAMoment, durability="power")
makes_a_hole_after_a_crash = factory(MakesAHoleAfterACrash, durability="power")
