"""Stores under a device that breaks its promises; `ZOO` says which clause knows, or none.

Each is `CarefulStore` with another promise about, or another answer to, damaged bytes.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.zoo.careful import CarefulStore
from tests.zoo.plain import Lines, factory
from torntail.session import LogScan, Outcome, SessionEvent, SessionHeader
from torntail.stores.contract import SequenceMismatch

ZOO: dict[str, str | None] = {}

BITFLIP = frozenset({"torn", "gap", "bitflip"})


def _animal(clause: str | None, **claims: Any) -> Any:
    def enter(store: Any) -> Any:
        ZOO[f"{__name__}:{store.__name__}"] = clause
        return factory(store, **{"durability": "power", **claims})

    return enter


@_animal(None)
class believes_every_byte(CarefulStore):
    """Claims no more than it keeps: a flipped bit in a text comes back as data, and is counted."""


@_animal("CR-2", detects=BITFLIP)
class claims_bitflip_without_a_checksum(CarefulStore):
    """Says that it notices a flipped bit, and keeps no checksum."""


@_animal(None, detects=BITFLIP, lists=False)
class keeps_a_checksum(CarefulStore):
    """The same promise, kept by a checksum at the end of each line."""

    def encode_header(self, header: SessionHeader) -> bytes:
        return _checked(super().encode_header(header).removesuffix(b"\n")) + b"\n"

    def encode(self, event: SessionEvent) -> bytes:
        return _checked(super().encode(event))

    def write_closers(self, path: Path, closers: list[SessionEvent]) -> None:
        if closers:
            self.settle(path)
            self.append_batch(path, closers, [self.encode(closer) for closer in closers])

    def scan(
        self, lines: Lines, accept: Callable[[SessionEvent], object], session_id: str
    ) -> LogScan:
        return super().scan([_opened(line) for line in lines], accept, session_id)


def _checked(line: bytes) -> bytes:
    return b"%s %08x" % (line, zlib.crc32(line))


def _opened(line: bytes) -> bytes:
    """The line with blanks for its checksum, or as long a one that does not parse."""
    text = line.removesuffix(b"\n")
    body, checksum = text[:-9], text[-9:]
    if checksum != b" %08x" % zlib.crc32(body):
        return b"?" + line[1:]
    return body + b" " * 9 + line[len(text) :]


@_animal("DM-1")
class tidies_what_it_refuses(CarefulStore):
    """Refuses a corrupt log, having cut it where the damage begins."""

    def check_outcome(self, session_id: str, path: Path, scan: LogScan) -> None:
        if scan.outcome is Outcome.CORRUPT and scan.damage is not None:
            self.cut(path, scan.damage.byte)
        super().check_outcome(session_id, path, scan)


@_animal("DM-1")
class ends_the_process_over_damage(CarefulStore):
    """Takes a corrupt log for a reason to leave."""

    def check_outcome(self, session_id: str, path: Path, scan: LogScan) -> None:
        if scan.outcome is Outcome.CORRUPT:
            raise SystemExit("corrupt log")
        super().check_outcome(session_id, path, scan)


@_animal("DM-1")
class calls_damage_a_wrong_seq(CarefulStore):
    """Tells the caller that it made a mistake."""

    def check_outcome(self, session_id: str, path: Path, scan: LogScan) -> None:
        if scan.outcome is Outcome.CORRUPT:
            raise SequenceMismatch(session_id, 0, 1)
        super().check_outcome(session_id, path, scan)


class HangsOverDamage(CarefulStore):
    """Waits for a corrupt log to get better."""

    def check_outcome(self, session_id: str, path: Path, scan: LogScan) -> None:
        if scan.outcome is Outcome.CORRUPT:
            time.sleep(3600)
        super().check_outcome(session_id, path, scan)


# Not in the table: each clause that damages a log would wait for it.
hangs_over_damage = factory(HangsOverDamage, durability="power")
