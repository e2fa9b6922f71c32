"""Carrying out many scenario files in a process of their own, whatever a store does to it.

Decides what a store that hangs or ends its process comes to (a violation: the scenario it happened
in has failed), that the files after it are carried out by the next process, and that a limit of
time makes what was not reached unknown.
"""

from __future__ import annotations

import json
import os
import queue
import selectors
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from torntail.crash.io_faults import IoFault
from torntail.explore.room import SCRATCH_VARIABLE, case_scratch
from torntail.scenarios.files import ScenarioError, load_scenario
from torntail.scenarios.format import CrashFault, DeviceStrike, Scenario
from torntail.scenarios.outcome import Replay, ReplayFinding, cause_of
from torntail.scenarios.worker import Line, ReplayOrder

__all__ = ["FileResult", "replay_files"]

_MOST_WORKERS: Final = 8
_FILES_FOR_A_WORKER: Final = 12
"""Fewer are not worth a further process."""

_PATIENCE_SECONDS: Final = 20.0
"""How long, beyond a call's time, a worker may be silent."""


@dataclass(frozen=True, slots=True)
class FileResult:
    """What a file came to: a replay, or an error of the file or of the target.

    After `shrink` and `save`: where it was written, after how many tries, or why the finding does
    not show.
    """

    path: Path
    replay: Replay | None = None
    error: str | None = None
    saved: str | None = None
    not_shown: str | None = None
    tried: int = 0


def replay_files(
    order: ReplayOrder,
    *,
    seconds: float | None = None,
    done: Callable[[FileResult], object] = lambda result: None,
    workers: int | None = None,
) -> list[FileResult]:
    """Carries out an order in worker processes; `done` gets the results in the order of the files.

    After `seconds` what is not finished is unknown. `workers` is by default one for each core.
    """
    end = None if seconds is None else time.monotonic() + seconds
    count = workers or min(os.cpu_count() or 1, _MOST_WORKERS)
    count = max(1, min(count, len(order.paths) // _FILES_FOR_A_WORKER))
    if count == 1:
        results: list[FileResult] = []

        def take(result: FileResult) -> None:
            results.append(result)
            done(result)

        _carry_out(order, end, take)
        return results
    shares = [order.paths[number::count] for number in range(count)]
    queues: list[queue.SimpleQueue[FileResult | BaseException]] = [
        queue.SimpleQueue() for _ in shares
    ]
    stop = threading.Event()
    threads = [
        threading.Thread(target=_share, args=(order, share, end, results_of, stop))
        for share, results_of in zip(shares, queues, strict=True)
    ]
    for thread in threads:
        thread.start()
    try:
        return [_next(queues[index % count], done) for index in range(len(order.paths))]
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def _next(
    results: queue.SimpleQueue[FileResult | BaseException], done: Callable[[FileResult], object]
) -> FileResult:
    result = results.get()
    if isinstance(result, BaseException):
        raise result
    done(result)
    return result


def _share(
    order: ReplayOrder,
    paths: tuple[str, ...],
    end: float | None,
    results: queue.SimpleQueue[FileResult | BaseException],
    stop: threading.Event,
) -> None:
    """The files of one thread, each of which has a worker process of its own."""
    try:
        _carry_out(msgspec.structs.replace(order, paths=paths), end, results.put, stop)
    except BaseException as error:
        results.put(error)


def _carry_out(
    order: ReplayOrder,
    end: float | None,
    take: Callable[[FileResult], None],
    stop: threading.Event | None = None,
) -> None:
    taken = 0

    def counted(result: FileResult) -> None:
        nonlocal taken
        taken += 1
        take(result)

    while taken < len(order.paths) and not (stop is not None and stop.is_set()):
        left = order.paths[taken:]
        _run_worker(msgspec.structs.replace(order, paths=left), end, counted, stop)


def _run_worker(
    order: ReplayOrder,
    end: float | None,
    take: Callable[[FileResult], None],
    stop: threading.Event | None,
) -> None:
    """One process, until it is through, hangs, dies, or the time is up; takes at least one file.

    Where `stop` is set nobody wants to know any more.
    """
    taken = 0
    # Its scratch space is ours, so that it is gone with a worker that is killed.
    with case_scratch() as scratch, tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "torntail.scenarios.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
                SCRATCH_VARIABLE: str(scratch),
            },
            start_new_session=True,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            try:
                process.stdin.write(json.dumps(msgspec.to_builtins(order)).encode("ascii") + b"\n")
                process.stdin.close()
            except BrokenPipeError:
                pass  # What became of it is seen below.
            silent = order.call_timeout + _PATIENCE_SECONDS
            listener = _Listener(process.stdout.fileno(), silent, end, stop)
            for line in listener:
                if line.beat:
                    continue
                path = Path(order.paths[line.index])
                take(
                    FileResult(
                        path, line.replay, line.error, line.saved, line.not_shown, line.tried
                    )
                )
                taken += 1
            if taken == len(order.paths) or listener.ended == "stopped":
                return
            if listener.ended == "late":
                for path_text in order.paths[taken:]:
                    take(_late(Path(path_text)))
                return
            if listener.ended == "silent":
                process.kill()
            code = process.wait()
            if listener.ended == "silent":
                reason = f"a call had not returned after {silent:g} s"
            elif code < 0:
                reason = f"the store's process was killed by signal {-code}"
            else:
                reason = f"the store's process ended with exit code {code}"
            errors.seek(0)
            take(_lost(Path(order.paths[taken]), order, reason, errors.read()[-4000:]))
        finally:
            process.kill()
            process.wait()
            process.stdout.close()


class _Listener:
    """The lines of a worker; `ended` says why there are no more: closed, silent, late or
    stopped.
    """

    def __init__(
        self,
        descriptor: int,
        silent: float,
        end: float | None,
        stop: threading.Event | None,
    ) -> None:
        self._descriptor = descriptor
        self._silent = silent
        self._end = end
        self._stop = stop
        self.ended = ""

    def __iter__(self) -> Iterator[Line]:
        buffer, heard = b"", time.monotonic()
        with selectors.DefaultSelector() as selector:
            selector.register(self._descriptor, selectors.EVENT_READ)
            while not self.ended:
                now = time.monotonic()
                if self._stop is not None and self._stop.is_set():
                    self.ended = "stopped"
                elif self._end is not None and now >= self._end:
                    self.ended = "late"
                elif now - heard > self._silent:
                    self.ended = "silent"
                elif selector.select(timeout=0.5):
                    chunk = os.read(self._descriptor, 1 << 20)
                    heard = time.monotonic()
                    *lines, buffer = (buffer + chunk).split(b"\n")
                    for line in lines:
                        yield msgspec.convert(json.loads(line), Line)
                    if not chunk:
                        self.ended = "closed"


def _late(path: Path) -> FileResult:
    replay = Replay(
        scenario=path.stem, store="", status="unknown", reason="the time was up before its end"
    )
    return FileResult(path, replay)


def _lost(path: Path, order: ReplayOrder, reason: str, errors: bytes) -> FileResult:
    """What a scenario came to whose process was lost."""
    try:
        scenario = load_scenario(path)
    except ScenarioError as error:
        return FileResult(path, error=str(error))
    if b"Traceback (most recent call last)" in errors and "exit code 1" in reason:
        # Of ours: the store's own exceptions are outcomes.
        last = errors.decode("utf-8", "replace").strip().splitlines()[-1]
        replay = Replay(
            scenario=scenario.id,
            store=order.target or scenario.store,
            status="unknown",
            reason=f"torntail itself failed: {last}",
        )
        return FileResult(path, replay)
    clause = _clause_of_loss(scenario)
    finding = ReplayFinding(clause=clause, sentence=reason, cause=cause_of(clause, reason))
    replay = Replay(
        scenario=scenario.id,
        store=order.target or scenario.store,
        status="failed",
        findings=(finding,),
        landed=(True,) * len(scenario.faults),
    )
    return FileResult(path, replay)


def _clause_of_loss(scenario: Scenario) -> str:
    """What a store breaks that ends or hangs the process that uses it."""
    for fault in scenario.faults:
        if isinstance(fault, CrashFault):
            return "CR-3"
        if isinstance(fault, DeviceStrike):
            return "DM-1"
        if isinstance(fault, IoFault):
            return "IO-1"
    return scenario.expect[0].clause
