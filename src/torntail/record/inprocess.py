"""Recording what a store of this process does to its directory.

    with Recorder(root) as recorder:
        store = Store(root)
        recorder.mark(Invoked(0))
        ...
        recorder.mark(Acknowledged(0))
    recorder.check()
    crashes_of(recorder.disk, recorder.log)

Files are real and the operations are carried out by the real functions; only those below `root`
that succeed are logged, in the order in which they took effect, threads included. What is missed is
a hole in the log and not a wrong crash, and `check` finds it by replaying the log.

Whoever makes many recordings, or wants to see a store whose modules keep the functions of `os` by
name, calls `install.install()` first, before the store is imported: the wrappers then stay.

Not seen (see `install` for the ways around the wrappers): writes by C extensions such as sqlite3,
by child processes, through a writable `mmap`, and by `os.splice`. `check` finds those by what they
leave behind. It cannot find a write whose effect is gone at the end, or an fsync made past the
wrappers, which would make a store look worse than it is; the ptrace recorder sees both.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

from torntail.crash.disk import Disk, DiskImage, FileVersions, Name
from torntail.crash.oplog import ROOT, Acknowledged, Inode, Invoked, Operation, OpLog
from torntail.record.calls import CALLS
from torntail.record.install import install, installed, uninstall
from torntail.record.ledger import Before, CrashNow, Cut, Ledger, Opening
from torntail.record.problems import RecordingFailed, Unmodelled, UnseenWrite
from torntail.record.replay import first_difference, replayed
from torntail.record.tree import ForeignEntry, TooLarge, read_tree

__all__ = [
    "Before",
    "CrashNow",
    "Cut",
    "Recorder",
    "RecordingFailed",
    "Unmodelled",
    "UnseenWrite",
    "difference",
    "disk_of",
]


class Recorder:
    """A recording of the operations below `root`, an existing directory.

    With `disk` the recording continues that disk: `root` must hold its visible tree, and the log
    uses its inodes. Without, what stands in `root` is taken to be durable; `disk` then tells what
    that was. `before` is asked before each operation (`ledger.Before`), `opening` before a file
    that is there is opened for writing (`ledger.Opening`).
    """

    def __init__(
        self,
        root: Path | str,
        disk: Disk | None = None,
        *,
        before: Before | None = None,
        opening: Opening | None = None,
    ) -> None:
        self.root = os.path.abspath(root)
        self.disk = disk_of(read_tree(self.root)) if disk is None else disk
        self._ledger = Ledger(self.root, self.disk, before, opening)
        self._installed = False

    # --- recording ------------------------------------------------------------------------------

    def start(self) -> Self:
        """Begins or goes on; raises RuntimeError while another recorder of this process does.

        Puts the wrappers in place if they do not stand, and then `stop` takes them away again.
        """
        if CALLS.ledger is self._ledger:
            return self
        if CALLS.ledger is not None:
            raise RuntimeError(f"this process already records {CALLS.ledger.root!r}")
        self._installed = not installed()
        install()
        CALLS.ledger = self._ledger
        return self

    def stop(self) -> None:
        """Ends the recording; again is harmless."""
        if CALLS.ledger is self._ledger:
            CALLS.ledger = None
            if self._installed:
                uninstall()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def mark(self, mark: Invoked | Acknowledged) -> None:
        """Puts a call's mark into the log, after all that has taken effect."""
        with self._ledger.lock:
            self._ledger.operations.append(mark)

    # --- what was recorded ----------------------------------------------------------------------

    @property
    def operations(self) -> list[Operation]:
        """The log as it grows; not to be changed."""
        return self._ledger.operations

    @property
    def log(self) -> OpLog:
        """The log so far."""
        with self._ledger.lock:
            return OpLog(tuple(self._ledger.operations))

    def real_path(self, inode: Inode) -> str | None:
        """Where a file of the log stands now; None when it has no name."""
        ledger = self._ledger
        with ledger.lock:
            for place, named in ledger.names.items():
                if named == inode:
                    return f"{self.root}/{ledger.path_of(place)}"
        return None

    def check(self) -> None:
        """Holds the log against the real directory.

        Raises `UnseenWrite` or `Unmodelled`, with the name of a file and what is wrong with it. Do
        not call it while a database that locks by POSIX locks is open: reading its files would
        drop them.
        """
        ledger = self._ledger
        with ledger.lock:
            unmodelled = [one for one in ledger.problems if isinstance(one, Unmodelled)]
            # First what explains the most: an operation without a word also leaves a difference.
            for problem in (*unmodelled, *ledger.problems):
                raise problem
            try:
                found = read_tree(self.root)
            except TooLarge as error:
                raise Unmodelled(error.path, error.reason) from error
            except ForeignEntry as error:
                raise Unmodelled(error.path, "is neither a regular file nor a directory") from error
            except FileNotFoundError as error:
                raise UnseenWrite(ledger.relative(error.filename), "is gone") from error
            expected = replayed(self.disk, ledger.operations).image()
            differs = difference(found, expected)
            if differs is not None:
                raise UnseenWrite(*differs)


def disk_of(image: DiskImage) -> Disk:
    """The disk that durably holds an image, its inodes numbered in order of the paths.

    Its model is `kill`; `dataclasses.replace` gives it another.
    """
    inodes: dict[str, Inode] = {"": ROOT}
    first_paths = {path: paths[0] for paths in image.links for path in paths}
    names: dict[Name, Inode] = {}
    files: dict[Inode, FileVersions] = {}
    for path in sorted((*image.directories, *image.files)):
        above, _, name = path.rpartition("/")
        first = first_paths.get(path, path)
        if first not in inodes:
            inodes[first] = len(inodes)
            if path in image.files:
                files[inodes[first]] = FileVersions((image.files[path],))
        names[Name(inodes[above], name)] = inodes[first]
    directories = frozenset({ROOT, *(inodes[path] for path in image.directories)})
    return replace(
        Disk("kill"), files=files, names=names, durable_names=names, directories=directories
    )


def difference(found: DiskImage, expected: DiskImage) -> tuple[str, str] | None:
    """The first path on which the real directory and the replayed log differ, and how."""
    if found == expected and found.links == expected.links:
        return None
    paths = {*found.files, *found.directories, *expected.files, *expected.directories}
    for path in sorted(paths):
        is_file, should_be_file = path in found.files, path in expected.files
        is_there = is_file or path in found.directories
        if not should_be_file and path not in expected.directories:
            return path, "is there, but the log does not make it"
        if not is_there:
            return path, "the log makes it, but it is not there"
        if is_file != should_be_file:
            return path, "is a file or a directory, and by the log it is the other"
        if is_file and found.files[path] != expected.files[path]:
            real_bytes, logged = found.files[path], expected.files[path]
            return path, (
                f"differs at byte {first_difference(real_bytes, logged)}"
                f" ({len(real_bytes)} bytes, by the log {len(logged)})"
            )
    return min(set(found.links) ^ set(expected.links))[0], "its hard links are not those of the log"
