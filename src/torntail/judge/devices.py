"""Deciding a load after a device fault: counted, and a breach only where the contract says so.

A fault of the device takes away what durability rests on, so that CR-1 and CR-3 say nothing here.
What is left are DM-1 (refuse as the contract says, and not a byte changes; or return) and, for a
store that claims `detects: bitflip`, CR-2. Does not decide which faults are tried (`explore`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Literal, TypeAlias

from torntail.judge.capabilities import Capabilities
from torntail.judge.history import Hung, LoadedSession, Refused, Returned
from torntail.judge.ledger import Debt
from torntail.judge.recovery import Answer, Breach, common_prefix, same_events
from torntail.session import interrupted_turn_closers, same_json

__all__ = ["DEVICE_OUTCOMES", "DeviceCounts", "DeviceOutcome", "device_breach", "device_outcome"]

DeviceOutcome: TypeAlias = Literal[
    "whole", "repaired", "refused", "absent", "silently changed", "error"
]

DEVICE_OUTCOMES: Final[tuple[DeviceOutcome, ...]] = (
    "whole",
    "repaired",
    "refused",
    "absent",
    "silently changed",
    "error",
)
"""From best to worst. `whole`: all that was submitted and its closers. `repaired`: a shorter clean
prefix and its closers. `refused`: an error the contract knows for damage, or one of the store's
own. `absent`: *not found* or *never materialised*. `silently changed`: events that were never
submitted or another header, as if nothing had happened. `error`: an answer that is none of these.
"""

DeviceCounts: TypeAlias = Mapping[str, Mapping[str, int]]
"""Kind of fault → outcome → how many images."""

_ABSENT: Final = frozenset({"not_found", "never_materialised"})
# An exception of the store's own is a refusal, as everywhere in DM; these say something else.
_REFUSALS: Final = frozenset({"corrupted", "version", "identity", "storage", "other"})


def device_outcome(answer: Answer, debt: Debt, capabilities: Capabilities) -> DeviceOutcome:
    """What a load after a device fault came to, all of `debt` having been acknowledged."""
    match answer:
        case Refused(kind=kind) if kind in _ABSENT:
            return "absent"
        case Refused(kind=kind):
            return "refused" if kind in _REFUSALS else "error"
        case Hung():
            return "error"
        case Returned(session=LoadedSession() as loaded):
            header = loaded.header
            if capabilities.header and (
                header is None or not same_json(header.to_json(), debt.header.to_json())
            ):
                return "silently changed"
            kept = common_prefix(debt.submitted, loaded.events, capabilities)
            closers = (
                tuple(interrupted_turn_closers(debt.submitted[:kept]))
                if capabilities.profile == "session"
                else ()
            )
            if not same_events(loaded.events[kept:], closers, capabilities):
                return "silently changed"
            return "whole" if kept == len(debt.submitted) else "repaired"
    return "silently changed"


def device_breach(
    session: str,
    answer: Answer,
    outcome: DeviceOutcome,
    capabilities: Capabilities,
    changed: Iterable[str] = (),
) -> Breach | None:
    """The clause such a load broke, if any; `changed` are the struck files whose bytes it changed.

    A shorter log and a refusal break none.
    """
    match outcome:
        case "silently changed" if "bitflip" in capabilities.detects:
            sentence = (
                "bitflip is claimed, and after a device fault load returned what was never "
                "submitted, without a word"
            )
            return Breach("CR-2", session, sentence)
        case "error":
            return Breach("DM-1", session, f"after a device fault load {_told(answer)}")
        case "refused":
            paths = ", ".join(changed)
            if paths:
                return Breach("DM-1", session, f"load refused the damage and changed {paths}")
    return None


def _told(answer: Answer) -> str:
    match answer:
        case Refused(kind="exit"):
            return f"raised {answer.exception}, which ends the interpreter"
        case Refused():
            return f"refused as if it were {answer.kind} ({answer.exception}): {answer.text}"
        case Hung(seconds):
            return f"had not returned after {seconds:g} s"
    return "gave no answer"
