"""What fuzzing keeps between runs: a directory for each run, and the corpus of interesting plans.

    .torntail/.gitignore
    .torntail/runs/<time>-<random>/   run.json, lock, and a folder for each finding
    .torntail/corpus/<target>/        plans that reached something new, one a file

Every file is written aside and renamed, so that it is there whole or not at all, and each run has a
directory of its own, locked as long as the run lives. Decides names, bounds, and that a file of the
corpus that is damaged or of another version is left out with a note. Does not decide which plans
are interesting (`fuzz_share`).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import re
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import msgspec

from torntail.explore.crash_findings import keep_crash
from torntail.explore.fuzz_finding import FuzzFinding
from torntail.explore.fuzz_messages import CORPUS_FORMAT, CorpusPlan, from_line, to_line
from torntail.explore.io_findings import keep_io
from torntail.explore.witness import keep_history
from torntail.judge.capabilities import Capabilities

__all__ = ["CannotWrite", "Corpus", "RunDirectory", "prepare"]

MOST_PLANS: Final = 200
"""Plans of one target in the corpus; of more the oldest go."""

MOST_PLAN_BYTES: Final = 128 << 10
"""A plan that is longer is not kept."""


class CannotWrite(OSError):
    """A run's files cannot be written; the text says where and why."""

    def __init__(self, path: Path, cause: OSError) -> None:
        super().__init__(cause.errno, f"{path}: {cause.strerror}")
        self.path = path
        self.reason = cause.strerror or str(cause)

    def __str__(self) -> str:
        full = self.errno in (errno.ENOSPC, errno.EDQUOT)
        advice = "free some room, or run elsewhere" if full else "choose another directory"
        return f"{self.path} cannot be written ({self.reason}): {advice}"


def prepare(directory: Path) -> None:
    """Makes a folder below `.torntail`, which git is told to ignore; raises `CannotWrite`."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        above = next((one for one in directory.parents if one.name == ".torntail"), None)
        if above is not None and not (above / ".gitignore").exists():
            _write(above / ".gitignore", b"*\n")
    except OSError as error:
        raise CannotWrite(directory, error) from error


def _write(path: Path, content: bytes) -> None:
    """A file whole or not at all."""
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name[:40]}-", dir=path.parent)
    try:
        with open(descriptor, "wb") as file:
            file.write(content)
            os.fchmod(descriptor, 0o644)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


# --- a run ----------------------------------------------------------------------------------------


class RunDirectory:
    """The directory of one run, locked until it is closed; a context manager."""

    def __init__(self, runs: Path) -> None:
        prepare(runs)
        try:
            name = time.strftime("%Y%m%d-%H%M%S-")
            self.path = Path(tempfile.mkdtemp(prefix=name, dir=runs))
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
            self._lock = os.open(self.path / "lock", flags, 0o600)
        except OSError as error:
            raise CannotWrite(runs, error) from error
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._kept = 0

    def __enter__(self) -> RunDirectory:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Lets go of the lock; again is harmless."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def write(self, record: dict[str, Any]) -> None:
        """Writes `run.json`; raises `CannotWrite`."""
        text = json.dumps(record, indent=1, ensure_ascii=True, default=str) + "\n"
        try:
            _write(self.path / "run.json", text.encode("ascii"))
        except OSError as error:
            raise CannotWrite(self.path, error) from error

    def keep(self, finding: FuzzFinding, capabilities: Capabilities) -> Path:
        """Keeps the witness of a finding, as `certify` keeps its own; raises `CannotWrite`."""
        self._kept += 1
        directory = self.path / f"{self._kept:02d}-{finding.clause}"
        try:
            directory.mkdir()
            if finding.crash is not None:
                keep_crash(directory, finding.crash)
            if finding.error is not None:
                keep_io(directory, finding.error)
            if finding.history:
                keep_history(directory, finding.history, finding.sentence, capabilities)
            else:
                text = "".join(f"{number}. {one}\n" for number, one in enumerate(finding.steps, 1))
                text += f"\n{finding.sentence} (model: {finding.model})\n"
                (directory / "steps.txt").write_text(text, "utf-8", "backslashreplace")
        except OSError as error:
            raise CannotWrite(directory, error) from error
        return directory


# --- the corpus -----------------------------------------------------------------------------------


class Corpus:
    """The interesting plans of one target below `directory`; `notes` tell what was left out."""

    def __init__(self, directory: Path, target: str) -> None:
        self.target = target
        readable = re.sub(r"[^A-Za-z0-9._-]+", "-", target).strip("-.")[-60:] or "store"
        # Two names may read alike.
        self.path = directory / f"{readable}-{hashlib.sha256(target.encode()).hexdigest()[:8]}"
        self.notes: list[str] = []
        self.features: set[str] = set()

    def load(self) -> tuple[CorpusPlan, ...]:
        """The plans of earlier runs, the oldest first."""
        plans = []
        for path in self._files():
            plan = self._read(path)
            if plan is not None:
                plans.append(plan)
                self.features.update(plan.features)
        return tuple(plans)

    def add(self, plan: CorpusPlan) -> bool:
        """Keeps a plan if it reached something that no other did; whether it was kept."""
        new = set(plan.features) - self.features
        if not new:
            return False
        self.features |= new
        line = to_line(plan)
        if len(line) > MOST_PLAN_BYTES:
            return False
        name = hashlib.sha256(line).hexdigest()[:16]
        try:
            prepare(self.path)
            files = self._files()
            for old in files[: max(len(files) - MOST_PLANS + 1, 0)]:
                # Another run may have removed it, too.
                old.unlink(missing_ok=True)
            _write(self.path / f"{name}.json", line + b"\n")
        except OSError as error:
            self._note(f"the corpus in {self.path} cannot be written: {error.strerror}")
            return False
        return True

    def _files(self) -> list[Path]:
        try:
            found = [path for path in self.path.iterdir() if path.suffix == ".json"]
        except OSError:
            return []
        ages: dict[Path, int] = {}
        for path in found:
            if not path.name.startswith("."):
                with contextlib.suppress(OSError):
                    ages[path] = path.lstat().st_mtime_ns
        return sorted(ages, key=lambda path: (ages[path], path.name))

    def _read(self, path: Path) -> CorpusPlan | None:
        try:
            if not path.is_file():
                raise ValueError("it is not a regular file")
            if path.stat().st_size > MOST_PLAN_BYTES + 1:
                raise ValueError("it is too long")
            content = path.read_bytes().removesuffix(b"\n")
            version = _version(content)
            if version != CORPUS_FORMAT:
                raise ValueError(f"its version is {version!r}, not {CORPUS_FORMAT}")
            plan = from_line(content, CorpusPlan)
            if plan.target != self.target:
                raise ValueError(f"it is for {plan.target}")
            return plan
        except (OSError, ValueError, TypeError, RecursionError) as error:
            self._note(f"{path} is left out: {error}")
            return None

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)


def _version(content: bytes) -> Any:
    class _Version(msgspec.Struct):
        torntail: Any = None

    return from_line(content, _Version).torntail
