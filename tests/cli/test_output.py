"""What stands on standard output: the results alone, however much a store prints; and no reader."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

NOISY = """
import atexit, os, threading
from tests.zoo.plain import PlainStore, factory

print("printed at import")
atexit.register(lambda: os.write(1, b"printed at exit"))

class Noisy(PlainStore):
    def append(self, session_id, events):
        print("printed from Python")
        os.write(1, b"printed to the descriptor")
        os.system("echo printed by a child")
        super().append(session_id, events)

noisy = factory(Noisy, durability="none")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "noisy_store.py").write_text(NOISY)
    return tmp_path


def command(folder: Path, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "torntail", *arguments]


def environment(folder: Path) -> dict[str, str]:
    path = [str(ROOT / "src"), str(ROOT), str(folder), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path)}


def torntail(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(folder, *arguments),
        cwd=folder,
        env=environment(folder),
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_certificate_on_standard_output_is_json_whatever_the_store_prints(folder: Path) -> None:
    done = torntail(folder, "certify", "noisy_store:noisy", "--only", "RW-1", "--json", "-")
    assert json.loads(done.stdout)["target"] == "noisy_store:noisy"
    assert done.returncode == 0
    for how in ("at import", "at exit", "from Python", "to the descriptor", "by a child"):
        assert f"printed {how}" in done.stderr


@pytest.mark.parametrize("workers", ["0", "1"])
def test_a_fuzzed_store_prints_to_standard_error(folder: Path, workers: str) -> None:
    limits = ("--max-examples", "1", "--seed", "1", "--workers", workers)
    done = torntail(folder, "fuzz", "noisy_store:noisy", *limits)
    assert done.stdout.startswith("noisy_store:noisy · level none · seed 1\n")
    assert "printed" not in done.stdout
    assert "printed from Python" in done.stderr


def test_a_replayed_store_prints_to_standard_error(folder: Path) -> None:
    corpus = folder / "corpus" / "gap"
    corpus.mkdir(parents=True)
    source = next(iter(sorted((ROOT / "fault-scenarios" / "gap").glob("*.json"))))
    shutil.copy(source, corpus)
    done = torntail(folder, "replay", "corpus", "--store", "noisy_store:noisy", "--json", "-")
    assert [one["scenario"] for one in json.loads(done.stdout)["results"]] == [source.stem]
    assert "printed at import" in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("explain", "CR-1"),
        ("scenarios", str(ROOT / "fault-scenarios")),
        ("certify", "memory", "--only", "RW-5"),
        ("inspect", "--help"),
    ],
    ids=lambda arguments: arguments[0],
)
def test_where_nobody_reads_the_command_ends_quietly(
    folder: Path, arguments: tuple[str, ...]
) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        command(folder, *arguments),
        cwd=folder,
        env=environment(folder),
        stdout=writing,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, b"")
