"""What a store under test claims (CONTRACT, "Levels and capabilities").

The certificate proves or refutes exactly these claims and prints what is not claimed. Does not
decide which clause asks for which claim; that stands in the clause table.
"""

from __future__ import annotations

from typing import Literal

import msgspec

__all__ = ["Capabilities", "claims"]


class Capabilities(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The claims of a store; the defaults are those of the JSONL reference store.

    `profile`: `log` is opaque ordered events, `session` also turns and closers.
    `durability`: what an acknowledged event survives. `atomic_batch`: after a crash a batch is
    there whole or not at all. `detects`: which damage load notices. `writers`: what happens when a
    second writer comes. `header`: keeps a header. `checks_seq`: refuses a wrong first seq.
    `creates`: has a `create` of its own. `repairs`: load closes an interrupted turn, durably.
    `values`: `i-json` keeps integers within 2^53-1 only, no sign of zero, no lone surrogates.
    `lists`, `lazy`, `inspects`, `forks`: optional operations.
    """

    profile: Literal["log", "session"] = "session"
    durability: Literal["none", "process", "power"] = "power"
    atomic_batch: bool = False
    detects: frozenset[Literal["torn", "gap", "bitflip"]] = frozenset({"torn", "gap"})
    writers: Literal["one-unchecked", "one-locked", "many"] = "one-locked"
    header: bool = True
    checks_seq: bool = True
    creates: Literal["explicit", "implicit"] = "explicit"
    repairs: Literal["load", "none"] = "load"
    values: Literal["json", "i-json"] = "json"
    lists: bool = True
    lazy: bool = True
    inspects: bool = True
    forks: bool = True


def claims(capabilities: Capabilities, requirement: str) -> bool:
    """Whether a requirement of the clause table (`lazy`, `profile=session`) is claimed."""
    name, _, value = requirement.partition("=")
    claimed = getattr(capabilities, name)
    if not value:
        return bool(claimed)
    return value in claimed if isinstance(claimed, frozenset) else bool(claimed == value)
