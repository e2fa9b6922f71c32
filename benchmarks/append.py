"""An acknowledged append against `orjson.dumps` of each event, one write and the same fsyncs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import orjson

from benchmarks.events import TIME, batch
from benchmarks.measure import Measured, file_system, medians
from torntail.session import SessionHeader
from torntail.stores.jsonl import JsonlStore

PLANS = ((1, 300, 1.5), (1000, 60, 5.0))


def run(directory: Path) -> Iterator[Measured]:
    kind = file_system(directory)
    on_disk = kind != "tmpfs"
    for size, rounds, bar in PLANS:
        # Made beforehand: neither side is charged for making events, both for encoding them.
        batches = [batch(size, start=number * size) for number in range(rounds + 1)]
        records = [[event.to_json() for event in events] for events in batches]
        bare = os.open(directory / f"floor-{size}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with JsonlStore(directory / f"store-{size}") as store:
            store.create(SessionHeader("s", TIME))
            store.append("s", batches[0])

            def floor(number: int, bare: int = bare, records: list = records) -> None:
                lines = [orjson.dumps(record) for record in records[number + 1]]
                os.write(bare, b"\n".join([*lines, b""]))
                os.fsync(bare)

            def subject(number: int, store: JsonlStore = store, batches: list = batches) -> None:
                store.append("s", batches[number + 1])

            floor_time, value = medians(rounds, floor, subject)
        os.close(bare)
        yield Measured(
            "append",
            f"JSONL append and fsync, batch of {size} (about 300 bytes each, on {kind})",
            "s",
            value,
            floor_time,
            rounds,
            bar,
            applies=on_disk,
            note="" if on_disk else "tmpfs: reported only",
        )
