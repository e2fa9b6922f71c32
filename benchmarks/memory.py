"""Peak memory of a load and of an inspect, each in a process of its own, against the file size."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.events import write_log
from benchmarks.measure import Measured
from torntail.stores.paths import NO_CWD_BUCKET

INSPECT_BAR_BYTES = 8 << 20

_PRELUDE = """
import resource, sys
from pathlib import Path
import orjson
from torntail.stores.inspection import inspect_log
from torntail.stores.jsonl import JsonlStore
root, path = Path(sys.argv[1]), Path(sys.argv[2])
def peak():
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # ru_maxrss would begin with the peak of the process that started this one.
    return 1024 * int(status.split("VmHWM:")[1].split()[0])
before = peak()
"""
_EPILOGUE = "\nprint(peak() - before)\n"
_ACTIONS = {
    "floor": "kept = [orjson.loads(l) for l in path.read_bytes().split(b'\\n')[1:-1]]",
    "load": "kept = JsonlStore(root).load('s')",
    "inspect": "kept = inspect_log(path)",
}


def run(directory: Path) -> Iterator[Measured]:
    bucket = directory / NO_CWD_BUCKET
    bucket.mkdir()
    path = bucket / "s.jsonl"
    events, size = write_log(path, "s", size=30 << 20)
    peaks = {name: _peak(action, directory, path) for name, action in _ACTIONS.items()}
    about = f"{events} events, {size} bytes"
    yield Measured(
        "memory", f"peak of a load against the file size ({about})", "B", peaks["load"], size, 1
    )
    yield Measured(
        "memory",
        f"peak of a load against read, split and orjson.loads ({about})",
        "B",
        peaks["load"],
        peaks["floor"],
        1,
    )
    yield Measured(
        "memory",
        f"peak of an inspect against {INSPECT_BAR_BYTES >> 20} MiB ({about})",
        "B",
        peaks["inspect"],
        INSPECT_BAR_BYTES,
        1,
        1.0,
    )


def _peak(action: str, root: Path, path: Path) -> int:
    command = [sys.executable, "-c", _PRELUDE + action + _EPILOGUE, str(root), str(path)]
    answer = subprocess.run(command, check=True, capture_output=True, text=True)
    return int(answer.stdout)
