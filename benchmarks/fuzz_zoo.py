"""How soon fuzzing finds each store of the zoo: `python -m benchmarks.fuzz_zoo [--seconds 30] …`.

Each store is fuzzed from several seeds, ending with the first finding that was made small. Prints,
per store and seed, after how long it was found, in how many plans and disks, and how many
operations its history has; then the median and the most. Without names all stores of the zoo.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time

from tests.zoo import crashing, io_errors
from torntail.explore.fuzz import fuzz


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fuzz_zoo", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--every", type=int, default=1, help="only each so manieth store")
    parser.add_argument("--workers", type=int, default=None)
    arguments = parser.parse_args()
    targets = [
        target
        for target in [*crashing.ZOO, *io_errors.ZOO][:: arguments.every]
        if not arguments.names or target.partition(":")[2] in arguments.names
    ]
    operations: list[int] = []
    missed = []
    for target in targets:
        for seed in range(1, arguments.seeds + 1):
            began = time.monotonic()
            result = fuzz(
                target,
                seed=seed,
                max_time_seconds=arguments.seconds,
                stop_at_first=True,
                workers=arguments.workers,
            )
            seconds = time.monotonic() - began
            if not result.findings:
                missed.append((target, seed))
                print(f"{target} seed {seed}: NOT FOUND, {result.total.plans} plans")
                continue
            finding = result.findings[0].finding
            operations.append(len(finding.operations))
            print(
                f"{target} seed {seed}: {finding.clause} in {seconds:.1f} s "
                f"({result.total.seconds:.1f} s of processor), {result.total.plans} plans, "
                f"{result.total.distinct} images, {len(finding.operations)} operations, "
                f"{finding.model}",
                flush=True,
            )
    if operations:
        print(
            f"{len(operations)} found, {len(missed)} missed; operations: median "
            f"{statistics.median(operations):g}, most {max(operations)}"
        )
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
