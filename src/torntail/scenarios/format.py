"""What a scenario is: the frozen values that a file under `fault-scenarios/` stands for.

A scenario names operations, never a seed: the same file gives the same operations and the same
faults on every run and every Python. Decides the fields, their meaning and their limits. Does not
decide how the text is read and written (`reading`, `text`) or how a scenario is run (`replay`).
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import msgspec

from torntail.crash.crashes import Crash
from torntail.crash.devices import DeviceFault
from torntail.crash.disk import Model
from torntail.crash.io_faults import IoFault
from torntail.judge.capabilities import Capabilities
from torntail.judge.history import Operation

__all__ = [
    "MAXIMUM_DATA_BYTES",
    "MAXIMUM_FILE_BYTES",
    "MAXIMUM_OPERATIONS",
    "SCENARIO_CLASSES",
    "SCENARIO_VERSION",
    "CrashFault",
    "DeviceStrike",
    "Expectation",
    "Fault",
    "FileFault",
    "LoadWord",
    "RecordedFinding",
    "Scenario",
    "ScenarioClass",
]

SCENARIO_VERSION: Final = 1

MAXIMUM_FILE_BYTES: Final = 4 << 20
"""A longer file is no scenario."""

MAXIMUM_OPERATIONS: Final = 10_000
"""Of plan and recoveries together."""

MAXIMUM_DATA_BYTES: Final = 16 << 20
"""Of all the files that stand there before the plan, with their runs written out."""

ScenarioClass = Literal[
    "reading-and-writing",
    "torn-tail",
    "mid-tool",
    "gap",
    "damage",
    "durability",
    "repair",
    "io-error",
    "device",
    "field-report",
    "upstream",
]
"""The folders of `fault-scenarios/`."""

SCENARIO_CLASSES: Final[tuple[str, ...]] = ScenarioClass.__args__  # type: ignore[attr-defined]

LoadWord: TypeAlias = Literal[
    "", "ok", "corrupted", "version", "identity", "never_materialised", "not_found"
]
"""What a load comes to; the empty word leaves it to the contract."""


class _Part(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """What all parts of a file share: unknown fields are refused."""


class CrashFault(_Part, frozen=True, kw_only=True, tag_field="fault", tag="crash"):
    """The process is killed, or power fails, in the call `during` of the plan; -1 is before it.

    Of several crash faults each later one strikes the recovery from the one before: a new process
    opens the store and makes the calls of `recovery`, and `during` counts these. What they append
    is renumbered where the recovered log has another length. `crash` is the very one that was seen,
    meant for a store whose operations up to it have the digest `operations`; for any other store,
    and where it is None, every crash of the model in that call is tried.
    """

    during: int
    model: Model
    operations: str = ""
    crash: Crash | None = None
    recovery: tuple[Operation, ...] = ()


class DeviceStrike(_Part, frozen=True, kw_only=True, tag_field="fault", tag="device"):
    """The device breaks its promises after the plan, as `strike` says; see `crash.devices`.

    `operations` as in `CrashFault`; other stores are struck by every fault of that kind.
    """

    operations: str = ""
    strike: DeviceFault


class FileFault(_Part, frozen=True, kw_only=True, tag_field="fault", tag="file"):
    """Before the plan a file stands in the store's directory, as someone found it.

    Only for stores of the layout `layout`. `path` is relative and stays below the root. In a
    scenario's text the bytes stand under `content`, in pieces that a person can read (`text`).
    """

    path: str
    layout: Literal["jsonl"] = "jsonl"
    data: bytes = b""


Fault: TypeAlias = CrashFault | IoFault | DeviceStrike | FileFault


class Expectation(_Part, frozen=True, kw_only=True):
    """What is to hold: no violation of `clause`; `outcome` says in one sentence what that means.

    `loads`, for a session found in a file, is what its first load is to give: `ok` with so many
    `events` and `closers`, or the kind of error. `line` and `byte` are what the error names or,
    with `ok`, where a torn tail of `torn_bytes` began that was dropped; `copy_kept` whether a copy
    of it was made.
    """

    clause: str
    outcome: str
    session: str = ""
    loads: LoadWord = ""
    events: int | None = None
    closers: int | None = None
    line: int | None = None
    byte: int | None = None
    torn_bytes: int | None = None
    copy_kept: bool | None = None


class RecordedFinding(_Part, frozen=True, kw_only=True):
    """The violation that was seen when the scenario was saved.

    `cause` is equal for sentences that differ in names and numbers alone (`findings.cause_of`).
    """

    clause: str
    sentence: str
    cause: str
    session: str = ""
    store: str = ""


class Scenario(_Part, frozen=True, kw_only=True, rename={"kind": "class"}):
    """One saved case.

    `store` is the TARGET it is run on unless another is named, opened with `durability` if that is
    given; `capabilities` replace what that store claims. `level` is what its faults ask of a store.
    `kills` are the stores of the zoo that it breaks. `teaches` and `origin` are one sentence each.
    """

    torntail: Literal[1]
    id: str
    kind: ScenarioClass
    title: str
    teaches: str = ""
    origin: str = ""
    store: str = "jsonl"
    durability: Literal["none", "process", "power"] | None = None
    capabilities: Capabilities | None = None
    level: Literal["none", "process", "power"] = "power"
    plan: tuple[Operation, ...]
    faults: tuple[Fault, ...] = ()
    expect: tuple[Expectation, ...]
    kills: tuple[str, ...] = ()
    finding: RecordedFinding | None = None
