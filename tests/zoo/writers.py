"""Stores that break where several processes write; `ZOO` names the clause that catches each."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.zoo import locked
from tests.zoo.plain import factory
from torntail.session import SessionEvent
from torntail.stores.contract import LoadResult, StorageFailed, WriterConflict

ZOO: dict[str, str] = {}


def _animal(clause: str) -> Any:
    def enter(store: Any) -> Any:
        ZOO[f"{__name__}:{store.__name__}"] = clause
        writers = "many" if clause == "MW-5" else "one-locked"
        return factory(store, writers=writers)

    return enter


# --- MW-1 -----------------------------------------------------------------------------------------


@_animal("MW-1")
class takes_no_lock(locked.LockedStore):
    """Claims a lock and takes none."""

    def take(self, session_id: str) -> None:
        pass


@_animal("MW-1")
class locks_what_it_loads_only(locked.LockedStore):
    """A session that was created here is appended to without the lock."""

    def take(self, session_id: str) -> None:
        if session_id not in self.announced and session_id not in self.next_seq:
            super().take(session_id)


@_animal("MW-1")
class lock_is_gone_when_the_log_is_closed(locked.LockedStore):
    """A POSIX record lock on the log itself goes with the first descriptor of it that is closed."""

    def take(self, session_id: str) -> None:
        if session_id in self.locks or not self.places(session_id):
            return
        descriptor = os.open(self.find(session_id)[0], os.O_RDWR)
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            raise WriterConflict(session_id, self.root, "another writer holds it") from None
        self.locks[session_id] = descriptor


@_animal("MW-1")
class locks_by_folder(locked.LockedStore):
    """The lock stands in the folder of the log, so that two folders have two."""

    def lock_path(self, session_id: str) -> Path:
        header = self.announced.get(session_id)
        folder = self.new_path(header).parent if header else self.find(session_id)[0].parent
        return folder / f"{self.name(session_id)}.lock"

    def check_storage(self, session_id: str) -> None:
        if session_id not in self.announced:
            super().check_storage(session_id)


@_animal("MW-1")
class the_second_first_flush_writes_over_the_first(locked.LockedStore):
    """The lock is taken behind the first flush, which removes what is in its place."""

    def append(self, session_id: str, events: Iterable[SessionEvent]) -> None:
        begins = session_id in self.announced
        super().append(session_id, events)
        if begins:
            with contextlib.suppress(WriterConflict):
                self.take(session_id)

    def take(self, session_id: str) -> None:
        if session_id not in self.announced:
            super().take(session_id)

    def check_storage(self, session_id: str) -> None:
        if session_id not in self.announced:
            super().check_storage(session_id)
        for path in self.places(session_id) if session_id in self.announced else ():
            path.unlink()


@_animal("MW-1")
class an_old_lock_is_taken_over(locked.LockedStore):
    """A lock file that was not touched for some minutes is taken for one that was left behind."""

    def take(self, session_id: str) -> None:
        path = self.lock_path(session_id)
        is_held = session_id in self.locks or not path.exists()
        if not is_held and time.time() - path.stat().st_mtime > 600:
            path.unlink()
        super().take(session_id)


@_animal("MW-1")
class waits_for_the_lock(locked.LockedStore):
    """A second writer waits until the first lets go."""

    def take(self, session_id: str) -> None:
        if session_id not in self.locks:
            descriptor = self.opened(self.lock_path(session_id))
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            self.locks[session_id] = descriptor


# --- MW-2 -----------------------------------------------------------------------------------------


class LockFileStore(locked.LockedStore):
    """The lock is a file that holds a pid, made by one and removed by `close`."""

    def take(self, session_id: str) -> None:
        path = self.lock_path(session_id)
        if session_id in self.locks:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and not self.is_alive(int(path.read_text())):
            path.unlink()
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            raise WriterConflict(session_id, path, "another writer holds it") from None
        os.write(descriptor, str(os.getpid()).encode())
        self.locks[session_id] = descriptor

    def is_alive(self, process: int) -> bool:
        return True

    def give_back(self, session_id: str) -> None:
        if session_id in self.locks:
            os.close(self.locks.pop(session_id))
            self.lock_path(session_id).unlink(missing_ok=True)


@_animal("MW-2")
class a_lock_file_is_left_behind(LockFileStore):
    """Whoever is killed leaves the file that says that it writes."""


@_animal("MW-2")
class a_lock_is_alive_by_its_pid(LockFileStore):
    """A lock is good as long as a process has that pid, which one that is not reaped has."""

    def is_alive(self, process: int) -> bool:
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return False
        return True


@_animal("MW-2")
class a_child_keeps_the_lock(locked.LockedStore):
    """A forked child keeps what it inherits, the lock among it."""

    def give_up(self) -> None:
        pass


# --- MW-3 -----------------------------------------------------------------------------------------


@_animal("MW-3")
class repairs_what_another_writes(locked.LockedStore):
    """Loads without the lock, and closes the turn of the writer that has it."""

    def take_to_load(self, session_id: str) -> None:
        pass


@_animal("MW-3")
class says_that_all_is_durable(locked.LockedStore):
    """Under another's lock writes nothing, and does not say so."""

    def look(self, session_id: str) -> LoadResult:
        result = super().look(session_id)
        return replace(result, repair=replace(result.repair, durable=True))


@_animal("MW-3")
class does_not_load_under_a_writer(locked.LockedStore):
    """Refuses to load what another has locked."""

    def look(self, session_id: str) -> LoadResult:
        raise WriterConflict(session_id, self.root, "another writer holds it")


@_animal("MW-3")
class shows_an_open_turn(locked.LockedStore):
    """Under another's lock gives the events without closers."""

    def look(self, session_id: str) -> LoadResult:
        result = super().look(session_id)
        kept = len(result.events) - len(result.repair.closers)
        return replace(result, events=result.events[:kept])


# --- MW-4 -----------------------------------------------------------------------------------------


@_animal("MW-4")
class goes_by_what_it_remembers(locked.LockedStore):
    """Takes the lock, and takes storage for what it was when it was loaded."""

    def check_storage(self, session_id: str) -> None:
        if session_id in self.announced:
            super().check_storage(session_id)


@_animal("MW-4")
class refuses_what_is_stale_after_writing_it(locked.LockedStore):
    """Looks at the storage when the batch is in it."""

    def check_storage(self, session_id: str) -> None:
        if session_id in self.announced:
            super().check_storage(session_id)

    def append(self, session_id: str, events: Iterable[SessionEvent]) -> None:
        known = self.sizes.get(session_id)
        stored = self.size(session_id) if self.places(session_id) else None
        super().append(session_id, events)
        if known is not None and known != stored:
            raise WriterConflict(session_id, self.root, "another writer has changed it")


# --- MW-5 -----------------------------------------------------------------------------------------


@_animal("MW-5")
class many_by_memory(locked.ManyStore):
    """Each of many writers counts by itself."""

    def check_storage(self, session_id: str) -> None:
        if session_id in self.announced:
            super().check_storage(session_id)


@_animal("MW-5")
class the_late_one_is_out(locked.ManyStore):
    """The one that was late can append no more."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.late: set[str] = set()

    def append(self, session_id: str, events: Iterable[SessionEvent]) -> None:
        if session_id in self.late:
            raise StorageFailed(session_id, self.root, "append", "an earlier one failed")
        try:
            super().append(session_id, events)
        except Exception:
            self.late.add(session_id)
            raise
