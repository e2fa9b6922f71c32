"""Where cases are run, and that a full disk is no fault of the store's."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from tests.zoo.plain import PlainStore, factory
from torntail import certify
from torntail.cli import main
from torntail.explore import room
from torntail.judge.verdict import Certificate
from torntail.record.slots import Slot
from torntail.session import SessionEvent
from torntail.stores.contract import LoadResult


def test_a_small_memory_file_system_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "memory").mkdir()
    monkeypatch.setattr(room, "_MEMORY", tmp_path / "memory")
    for free, chosen in ((64 << 20, False), (8 << 30, True)):
        usage = SimpleNamespace(free=free)
        monkeypatch.setattr(shutil, "disk_usage", lambda path, usage=usage: usage)
        with room.case_scratch() as scratch:
            assert (scratch.parent == tmp_path / "memory") is chosen


@factory
class meets_a_full_disk(PlainStore):
    def append(self, session_id: str, events: Iterable[SessionEvent]) -> None:
        batch = list(events)
        if len(batch) == 7:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super().append(session_id, batch)


def test_a_full_disk_leaves_a_case_unknown() -> None:
    certificate = certify(meets_a_full_disk, only=["RW-1"], runs=None)
    assert (certificate.verdict, certificate.findings) == ("unknown", ())
    assert "no room left" in certificate.harness_errors[0]


# --- scratch space for crashes --------------------------------------------------------------------

CLAUSE = ["CR-1"]


def unknown_for_lack_of_room(certificate: Certificate, scratch: Path) -> None:
    assert (certificate.verdict, certificate.exit_code, certificate.findings) == ("unknown", 3, ())
    (error,) = certificate.harness_errors
    assert error.startswith(f"crashing: no room left in {scratch}")
    assert error.endswith(": set TORNTAIL_SCRATCH to a directory with more room")
    assert list(scratch.iterdir()) == []


def full(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_scratch_space_that_is_full_is_said_and_cleaned_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(room.SCRATCH_VARIABLE, str(tmp_path))
    monkeypatch.setattr(Slot, "_become", full)
    certificate = certify("jsonl", level="power", only=CLAUSE, workers=0, runs=None)
    unknown_for_lack_of_room(certificate, tmp_path)


@factory
class meets_a_full_disk_after_a_crash(PlainStore):
    def load(self, session_id: str) -> LoadResult:
        result = super().load(session_id)
        if result.repair.closers:
            full()
        return result


def test_a_store_that_meets_a_full_disk_is_not_accused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(room.SCRATCH_VARIABLE, str(tmp_path))
    certificate = certify(
        meets_a_full_disk_after_a_crash, level="process", only=CLAUSE, workers=0, runs=None
    )
    unknown_for_lack_of_room(certificate, tmp_path)


SMALL = """
import sys
from pathlib import Path
import subprocess
scratch = Path(sys.argv[1])
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", scratch], check=True)
command = [sys.executable, "-m", "torntail", "certify", "jsonl", "--level", "power"]
done = subprocess.run([*command, *sys.argv[2:]], capture_output=True, text=True)
print(done.returncode, [path.name for path in scratch.iterdir()])
print(done.stdout, done.stderr)
"""


@pytest.mark.parametrize("workers", ["0", "1"])
def test_a_small_memory_file_system_fills_up(workers: str, tmp_path: Path) -> None:
    """On a real file system, mounted where only the child sees it."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    unshare = ["unshare", "--user", "--map-root-user", "--mount"]
    try:
        subprocess.run([*unshare, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no private mounts can be had here: {error}")
    arguments = ["--only", "CR-1", "--plan", "a-batch-of-many-pages", "--workers", workers]
    done = subprocess.run(
        [*unshare, sys.executable, "-c", SMALL, str(scratch), *arguments],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": ":".join(sys.path), "TORNTAIL_SCRATCH": str(scratch)},
        capture_output=True,
        text=True,
    )
    assert done.stdout.splitlines()[0] == "3 []", done.stdout + done.stderr
    said = " ".join(done.stdout.split())
    assert f"no room left in {scratch}" in said
    assert "set TORNTAIL_SCRATCH to a directory with more room" in said


FULL_AT_ONCE = """
import sys
from pathlib import Path
import subprocess
scratch = Path(sys.argv[1])
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k,nr_inodes=3", "tmpfs", scratch], check=True)
(scratch / "full").write_bytes(bytes(4096))
(scratch / "of-names").touch()
done = subprocess.run([sys.executable, "-m", "torntail", *sys.argv[2:]], capture_output=True)
print(done.returncode, [path.name for path in scratch.iterdir()])
print(done.stdout.decode(), done.stderr.decode())
"""

SCENARIO = Path(__file__).parents[2] / "fault-scenarios" / "durability" / "no-fsync.json"


@pytest.mark.parametrize(
    "arguments",
    [
        ("certify", "jsonl", "--only", "CR-1"),
        ("fuzz", "jsonl", "--max-examples", "1", "--workers", "1"),
        ("fuzz", "jsonl", "--max-examples", "1", "--workers", "0"),
        ("replay", str(SCENARIO), "--store", "jsonl"),
        ("shrink", str(SCENARIO), "-o", "small.json", "--store", "tests.zoo.crashing:no_fsync"),
    ],
    ids=["certify", "fuzz", "fuzz-here", "replay", "shrink"],
)
def test_scratch_space_that_is_full_from_the_start_is_named(
    arguments: tuple[str, ...], tmp_path: Path
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    unshare = ["unshare", "--user", "--map-root-user", "--mount"]
    try:
        subprocess.run([*unshare, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no private mounts can be had here: {error}")
    done = subprocess.run(
        [*unshare, sys.executable, "-c", FULL_AT_ONCE, str(scratch), *arguments],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": ":".join(sys.path), "TORNTAIL_SCRATCH": str(scratch)},
        capture_output=True,
        text=True,
    )
    first, *rest = done.stdout.splitlines()
    assert first in ("3 ['full', 'of-names']", "3 ['of-names', 'full']"), done.stdout + done.stderr
    said = " ".join(" ".join(rest).split())
    assert f"no room left in {scratch}" in said
    assert "set TORNTAIL_SCRATCH to a directory with more room" in said


def test_a_place_for_scratch_that_is_none_is_a_mistake_in_the_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(room.SCRATCH_VARIABLE, str(tmp_path / "none"))
    result = CliRunner().invoke(main, ["certify", "memory", "--only", "RW-5"])
    assert result.exit_code == 2
    said = f"torntail: TORNTAIL_SCRATCH={tmp_path}/none is no directory that can be written to\n"
    assert result.stderr == said
