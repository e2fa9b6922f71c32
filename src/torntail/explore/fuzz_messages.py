"""What a fuzzing campaign and its workers say to each other, one line of JSON a message.

Decides the values and that every one of them survives the way: plans hold lone surrogates and
integers of thousands of digits, so the strict codec of sessions writes them. Decides nothing else.
"""

from __future__ import annotations

from typing import Any, Final, Literal, TypeVar

import msgspec

from torntail.explore.fuzz_finding import FuzzFinding
from torntail.judge.capabilities import Capabilities
from torntail.judge.history import Operation
from torntail.session.codec import encode_json, parse_json

__all__ = [
    "CORPUS_FORMAT",
    "CorpusPlan",
    "FuzzMessage",
    "FuzzOrder",
    "FuzzReport",
    "FuzzShare",
    "TrailLine",
    "from_line",
    "to_line",
]

CORPUS_FORMAT: Final = 1
"""The version of a plan file of the corpus."""

_Value = TypeVar("_Value")


class CorpusPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A plan that reached something new: its operations, and what that was."""

    torntail: int
    target: str
    features: tuple[str, ...]
    plan: tuple[Operation, ...]


class FuzzShare(msgspec.Struct, frozen=True, kw_only=True):
    """What one worker is to do.

    Plans come in rounds of equal size, each drawn from a seed of its own; of shard `shard` of
    `shards`, worker `worker` of `workers` takes its part of the rounds from `first_round` on, until
    `examples` plans of the shard are drawn by all, or `seconds` are over. `corpus` are plans tried
    before; `features` what is known already; of a cause in `causes` no further finding is made.
    """

    seed: int
    models: tuple[Literal["kill", "ordered", "posix"], ...]
    images: int
    shard: int = 1
    shards: int = 1
    worker: int = 0
    workers: int = 1
    first_round: int = 0
    examples: int | None = None
    seconds: float | None = None
    corpus: tuple[CorpusPlan, ...] = ()
    features: tuple[str, ...] = ()
    causes: tuple[str, ...] = ()


class FuzzOrder(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker process gets on its standard input; it tells of each call in the file `trail`.

    `scratch` is where its scratch space goes.
    """

    target: str
    capabilities: Capabilities
    durability: Literal["none", "process", "power"] | None
    share: FuzzShare
    scratch: str
    trail: str
    call_timeout: float


class FuzzReport(msgspec.Struct, frozen=True, kw_only=True):
    """Where a share stands.

    `seconds` of processor time were used, `trial_seconds` of them for trying plans, the rest for
    drawing them. `round` is the last begun. `unseen` says why crashes cannot be made of this store.
    `busy`: the store was called, and has not come back.
    """

    plans: int = 0
    replayed: int = 0
    calls: int = 0
    moments: int = 0
    images: int = 0
    distinct: int = 0
    recoveries: int = 0
    executed: dict[str, int] = {}
    situations: dict[str, int] = {}
    seconds: float = 0.0
    trial_seconds: float = 0.0
    shrinking_seconds: float = 0.0
    round: int = -1
    done: bool = False
    busy: bool = False
    unseen: str | None = None
    harness_errors: tuple[str, ...] = ()

    @property
    def moved(self) -> int:
        """A number that grows as long as the store comes back."""
        return self.calls + self.moments + self.images + self.distinct


class FuzzMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A line a worker writes: one of these."""

    report: FuzzReport | None = None
    finding: FuzzFinding | None = None
    interesting: CorpusPlan | None = None
    note: str | None = None
    error: str | None = None


class TrailLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line of a trail: the call that is made next, or that crashed disks are loaded from here."""

    operation: Operation | None = None
    crashing: bool = False


def to_line(value: msgspec.Struct) -> bytes:
    """A message as one line, without its newline."""
    return encode_json(msgspec.to_builtins(value))


def from_line(line: bytes, kind: type[_Value]) -> _Value:
    """The message in a line; raises ValueError if it holds none."""
    record: Any = parse_json(line)
    return msgspec.convert(record, kind)
