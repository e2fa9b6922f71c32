r"""Recording what a child process does to a directory, and striking it there. Linux on x86-64.

    with TracedProcess(["node", "driver.mjs"], root=root) as process:
        process.stdin.write(b'{"open": 1}\n')
        process.stdout.readline()
        process.stdin.close()
        process.wait()
    process.check()
    crashes_of(process.disk, process.log())

Needs no root, no compiler and nothing of the child: any language, threads, children of its own. At
most one call of the whole tree that changes something is in progress at a time, so the log is the
order in which things happened; what the child writes to its standard output stands in it, too.

A command is over when its first process is; what is left of its tree is killed then, at a deadline,
and when this object is closed or this process dies. Not covered: see `docs/traced.md`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from torntail.crash.disk import Disk
from torntail.crash.oplog import Operation, OpLog
from torntail.record.inprocess import difference, disk_of
from torntail.record.problems import Unmodelled, UnseenWrite
from torntail.record.replay import replayed
from torntail.record.traced.client import Client, HelperGone
from torntail.record.traced.log import (
    LineMarks,
    Mark,
    beginning,
    entries_of,
    marked,
    operations_in,
    without_shared,
)
from torntail.record.traced.values import (
    Ended,
    Entry,
    Strike,
    Struck,
    TracingUnavailable,
    fields_of,
)
from torntail.record.tree import ForeignEntry, read_tree

__all__ = ["Recording", "TracedProcess"]


class Recording:
    """What traced commands do below `root`, from a moment on.

    With `disk` it continues that disk, as `inprocess.Recorder` does.
    """

    def __init__(self, client: Client, root: Path | str, disk: Disk | None) -> None:
        self.root = os.path.abspath(root)
        self.disk = disk_of(read_tree(self.root)) if disk is None else disk
        self._client = client
        self._entries: list[Entry] = []
        self._taken = 0
        self._problems: list[tuple[str, str, str]] = []
        self._struck: list[tuple[int, int, str, int | None, int, bool]] = []
        self._outside: str | None = None
        self._strikes: list[Strike] = []
        self._over = False

    def request(self) -> dict[str, Any]:
        """What the helper needs to begin."""
        names, next_inode = beginning(self.disk)
        return {"root": self.root, "names": names, "next_inode": next_inode}

    def arm(self, strikes: Iterable[Strike]) -> None:
        """Has strikes count calls from now on."""
        new = list(strikes)
        if new:
            self._client.ask("arm", strikes=[fields_of(strike) for strike in new])
            self._strikes += new

    def lift(self) -> None:
        """The disk is well again: nothing strikes until more is armed."""
        self._client.ask("lift")

    def mark(self, mark: Mark) -> None:
        """Puts a call's mark into the log, after all that has taken effect."""
        tag = mark.__struct_config__.tag
        self._client.ask("mark", entry=(tag, mark.call))

    def refresh(self) -> None:
        """Fetches what has been recorded since."""
        if self._over:
            return
        reply = self._client.ask("entries", first=self._taken)
        _, raw, self._problems, self._struck, self._outside = reply
        self._taken += len(raw)
        self._entries += entries_of(self.disk, self.root, self._entries, raw)

    def finish(self) -> None:
        """Fetches the rest; nothing follows."""
        self.refresh()
        self._over = True

    @property
    def entries(self) -> list[Entry]:
        """All that was recorded up to now, in order; not to be changed."""
        self.refresh()
        return self._entries

    @property
    def operations(self) -> list[Operation]:
        """The operations up to now."""
        return operations_in(self.entries)

    @property
    def struck(self) -> list[Struck]:
        """The strikes that hit, in order."""
        self.refresh()
        return [
            Struck(position, self._strikes[number], kind, inode, size, again)
            for position, number, kind, inode, size, again in self._struck
        ]

    @property
    def outside(self) -> str | None:
        """The first file outside the root that was opened for writing, if any was.

        Devices and Python's compiled modules do not count.
        """
        self.refresh()
        return self._outside

    def log(self, marks: LineMarks | None = None) -> OpLog:
        """The op log up to now, with the marks that lines of output stand for."""
        if marks is None:
            return OpLog(tuple(self.operations))
        return OpLog(tuple(marked(self.entries, marks)))

    def check(self) -> None:
        """Holds the log against the real directory, when no command is in the midst of a change.

        Raises `UnseenWrite` or `Unmodelled` with the name of a file and what is wrong with it.
        """
        operations = self.operations
        # First what explains the most: an operation without a word also leaves a difference.
        for kind, path, reason in sorted(self._problems, key=lambda one: one[0] == "unseen"):
            raise (UnseenWrite if kind == "unseen" else Unmodelled)(path, reason)
        try:
            found = without_shared(read_tree(self.root))
        except ForeignEntry as error:
            raise Unmodelled(error.path, "is neither a regular file nor a directory") from error
        except FileNotFoundError as error:
            name = os.path.relpath(error.filename, self.root)
            raise UnseenWrite("" if name == "." else name, "is gone") from error
        expected = without_shared(replayed(self.disk, operations).image())
        differs = difference(found, expected)
        if differs is not None:
            raise UnseenWrite(*differs)


class TracedProcess:
    """A command, traced from its first instruction on; start it with `with` or `start`.

    `argv` is found on the `PATH` of `env`. With `stdin` and `stdout` the child talks through pipes,
    `process.stdin` and `process.stdout`; without, it has those of this process, and its output is
    not recorded. `inject` strikes from the start. `reads` makes strikes on reads possible, which
    slows the child. `deadline_seconds` after its start the command is killed.
    `memory_limit_bytes` bounds its address space. `beside` another process means: by the same
    tracer, into the same recording, as a second writer; `root`, `disk` and `inject` are then its.

    Raises `TracingUnavailable` on entering, or OSError if the command cannot be run.
    """

    stdin: IO[bytes]
    stdout: IO[bytes]
    pid: int

    def __init__(
        self,
        argv: Sequence[str | os.PathLike[str]],
        root: Path | str | None = None,
        disk: Disk | None = None,
        *,
        inject: Sequence[Strike] = (),
        env: Mapping[str, str] | None = None,
        cwd: Path | str | None = None,
        stdin: bool = True,
        stdout: bool = True,
        stderr: int | IO[Any] | None = None,
        reads: bool | None = None,
        deadline_seconds: float | None = None,
        memory_limit_bytes: int | None = None,
        beside: TracedProcess | None = None,
    ) -> None:
        if (root is None) == (beside is None):
            raise ValueError("either a root or a process beside which this one runs")
        self._root = root
        self._disk = disk
        self._inject = list(inject)
        self._beside = beside
        self._pipes = (stdin, stdout)
        self._stderr = stderr
        if reads is None:
            reads = any(strike.on == "read" for strike in inject)
        self._request: dict[str, Any] = {
            "argv": [os.fspath(word) for word in argv],
            "env": dict(os.environ if env is None else env),
            "cwd": os.path.abspath(cwd or "."),
            "output": stdout,
            "reads": reads,
            "deadline_seconds": deadline_seconds,
            "memory_limit_bytes": memory_limit_bytes,
        }
        self._client: Client | None = None
        self._number: int | None = None
        self._opened: list[IO[bytes]] = []

    # --- beginning and end ----------------------------------------------------------------------

    def start(self) -> Self:
        """Starts the command; gives itself."""
        if self._client is not None:
            raise RuntimeError("it was started already")
        if self._beside is not None:
            self._client = self._beside._running()
            self.recording: Recording = self._beside.recording
            self._command(self._client)
            return self
        assert self._root is not None
        self._client = Client()
        try:
            self.recording = Recording(self._client, self._root, self._disk)
            # Its reply is waited for only with the next one, while the helper is starting.
            self._client.send("record", **self.recording.request())
            self._client.reply()
            self.recording.arm(self._inject)
            self._command(self._client)
        except BaseException:
            self.close()
            raise
        return self

    def _command(self, client: Client) -> None:
        descriptors = []
        theirs = []
        with_stdin, with_stdout = self._pipes
        try:
            if with_stdin:
                end, ours = os.pipe2(os.O_CLOEXEC)
                theirs.append(end)
                self.stdin = os.fdopen(ours, "wb", buffering=0)
                self._opened.append(self.stdin)
            descriptors.append(theirs[-1] if with_stdin else 0)
            if with_stdout:
                ours, end = os.pipe2(os.O_CLOEXEC)
                theirs.append(end)
                self.stdout = os.fdopen(ours, "rb")
                self._opened.append(self.stdout)
            descriptors.append(theirs[-1] if with_stdout else 1)
            stderr = 2 if self._stderr is None else self._stderr
            descriptors.append(stderr if isinstance(stderr, int) else stderr.fileno())
            reply = client.ask("start", tuple(descriptors), **self._request)
        finally:
            for descriptor in theirs:
                os.close(descriptor)
        if reply[0] == "failed":
            if reply[1].startswith("refused: "):
                raise TracingUnavailable(f"tracing is refused: {reply[1][9:]}")
            raise OSError(f"{self._request['argv'][0]!r} cannot be run: {reply[1]}")
        _, self._number, self.pid = reply

    def close(self) -> None:
        """Kills what still runs and lets go of everything; again is harmless."""
        for file in self._opened:
            try:
                file.close()
            except BrokenPipeError:
                pass  # What was not flushed, nobody is there to read.
        client, self._client = self._client, None
        if client is None:
            return
        try:
            if self._number is not None and client.ended(self._number, 0) is None:
                client.ask("kill", number=self._number)
                client.ended(self._number, None)
            if self._beside is None and hasattr(self, "recording"):
                self.recording.finish()
        except HelperGone:
            pass  # Whoever asks for what was recorded is told.
        finally:
            if self._beside is None:
                client.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def helper_pid(self) -> int:
        """The process that traces."""
        return self._running().pid

    def _running(self) -> Client:
        if self._client is None:
            raise RuntimeError("it is not running")
        return self._client

    # --- while it runs --------------------------------------------------------------------------

    def wait(self, timeout_seconds: float | None = None) -> Ended | None:
        """How the command ended, when all of its tree has; None if it has not within the time."""
        client = self._running()
        assert self._number is not None
        news = client.ended(self._number, timeout_seconds)
        if news is None:
            return None
        _, _, status, reason, left = news
        return Ended(os.waitstatus_to_exitcode(status), reason, left)

    def kill(self) -> Ended:
        """SIGKILL for the whole tree, between two calls."""
        self._running().ask("kill", number=self._number)
        ended = self.wait()
        assert ended is not None
        return ended

    def record(self, root: Path | str, disk: Disk | None = None) -> Recording:
        """Ends the recording and begins another, elsewhere: one process may serve many roots.

        To be called while the command waits for its next request. What it still holds open below
        the former root is no longer seen. Strikes are forgotten.
        """
        client = self._running()
        self.recording.finish()
        recording = Recording(client, root, disk)
        client.ask("record", **recording.request())
        self.recording = recording
        return recording

    def arm(self, *strikes: Strike) -> None:
        """Has strikes count calls from now on."""
        self.recording.arm(strikes)

    def mark(self, mark: Mark) -> None:
        """Puts a call's mark into the log: `Invoked`, say, before its request is sent."""
        self.recording.mark(mark)

    # --- what was recorded ----------------------------------------------------------------------

    @property
    def disk(self) -> Disk:
        """The disk on which the recording began."""
        return self.recording.disk

    @property
    def entries(self) -> list[Entry]:
        """Operations, outputs and failed syncs up to now, in order."""
        return self.recording.entries

    @property
    def operations(self) -> list[Operation]:
        """The operations up to now."""
        return self.recording.operations

    @property
    def struck(self) -> list[Struck]:
        """The strikes that hit, in order."""
        return self.recording.struck

    def log(self, marks: LineMarks | None = None) -> OpLog:
        """The op log up to now; see `Recording.log`."""
        return self.recording.log(marks)

    def check(self) -> None:
        """Holds the log against the real directory; see `Recording.check`."""
        self.recording.check()
