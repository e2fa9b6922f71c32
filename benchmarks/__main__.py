"""`python -m benchmarks [SUBJECT …]`: what things cost, as ratios to a floor."""

from __future__ import annotations

import argparse
import json
import platform
import shutil
import sys
import tempfile
from pathlib import Path

from benchmarks import (
    append,
    crash,
    fuzz,
    load,
    memory,
    runtime,
    scenarios,
    sqlite,
    traced,
)
from benchmarks.measure import Measured, file_system

SUBJECTS = {
    "load": load.run,
    "append": append.run,
    "memory": memory.run,
    "sqlite": sqlite.run,
    "crash": crash.run,
    "fuzz": fuzz.run,
    "scenarios": scenarios.run,
    "traced": traced.run,
    "runtime": runtime.run,
}


def main() -> int:
    arguments = _arguments()
    results: list[Measured] = []
    print(f"Python {platform.python_version()}, {platform.machine()}, ratios to a floor measured")
    print(f"in the same run; files in {arguments.directory} ({file_system(arguments.directory)})")
    for name in arguments.subjects or SUBJECTS:
        folder = Path(tempfile.mkdtemp(prefix=".torntail-benchmark-", dir=arguments.directory))
        try:
            for result in SUBJECTS[name](folder):
                results.append(result)
                print(_line(result), flush=True)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    if arguments.json is not None:
        report = {
            "python": platform.python_version(),
            "machine": platform.machine(),
            "system": platform.system(),
            "file_system": file_system(arguments.directory),
            "results": [result.to_json() for result in results],
        }
        arguments.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    missed = [result for result in results if result.met is False]
    print(f"{len(missed)} bar(s) missed" if missed else "every bar met")
    return 1 if missed and arguments.check else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("subjects", nargs="*", metavar="SUBJECT", help=", ".join(SUBJECTS))
    parser.add_argument("--json", type=Path, metavar="PATH", help="write the results as JSON")
    parser.add_argument(
        "--directory",
        type=Path,
        default=Path.cwd(),
        help="where the files are made and removed again; a disk, not tmpfs (default: here)",
    )
    parser.add_argument("--check", action="store_true", help="exit 1 when a bar is missed")
    arguments = parser.parse_args()
    unknown = sorted(set(arguments.subjects) - set(SUBJECTS))
    if unknown:
        parser.error(f"unknown subject {unknown[0]!r}; choose from {', '.join(SUBJECTS)}")
    if not arguments.directory.is_dir():
        parser.error(f"--directory {arguments.directory}: not a directory")
    return arguments


def _line(result: Measured) -> str:
    verdict = "        "
    if result.met is not None:
        verdict = "met     " if result.met else "NOT MET "
    bar = "" if result.bar is None else f" (bar {result.bar:g})"
    amounts = f"{_amount(result.value, result.unit)} against {_amount(result.floor, result.unit)}"
    note = f"; {result.note}" if result.note else ""
    return (
        f"{verdict} {result.ratio:6.2f}×{bar:<10}  {result.name}: {amounts}, "
        f"{result.rounds} round(s){note}"
    )


def _amount(value: float, unit: str) -> str:
    if unit == "s":
        for factor, name in ((1, "s"), (1e3, "ms"), (1e6, "µs")):
            if value * factor >= 1:
                return f"{value * factor:.3g} {name}"
        return f"{value * 1e9:.3g} ns"
    if unit == "B":
        return f"{value / 2**20:.1f} MiB"
    return f"{value:.2f}{unit}"


if __name__ == "__main__":
    sys.exit(main())
