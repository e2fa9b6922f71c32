"""The one object whose bound methods stand in the place of the functions of `os`.

Decides that a process records one directory at a time, and that a forked child records nothing:
what it writes is found by the check of its parent's recording.
"""

from __future__ import annotations

import os
from typing import Final

from torntail.record.byte_calls import ByteCalls
from torntail.record.name_calls import NameCalls

__all__ = ["CALLS"]


class Calls(NameCalls, ByteCalls):
    """All wrappers over `os`."""

    def __reduce__(self) -> str:
        # A function of `os` can be pickled by its name, and so can what stands in its place.
        return "CALLS"


CALLS: Final = Calls()


def _record_nothing() -> None:
    CALLS.ledger = None


os.register_at_fork(after_in_child=_record_nothing)
