"""What every store checks before anything is written: headers, batches, sequence.

Decides RW-2, RW-3 and the refusals of `create`, the same for all reference stores.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from torntail.session import (
    FORMAT_VERSION,
    NotJson,
    SessionEvent,
    SessionHeader,
    encode_event,
    encode_header,
    parse_header,
)
from torntail.stores.contract import (
    InvalidSessionId,
    NotSerializable,
    SequenceMismatch,
    UnsupportedVersion,
)

__all__ = ["Record", "accept_batch", "accept_header", "check_sequence"]


class Record(NamedTuple):
    """An event on its way to storage: its line (without newline), type and seq."""

    line: bytes
    type: str
    seq: int


def accept_header(header: SessionHeader) -> tuple[bytes, SessionHeader]:
    """The line of a header and a private copy of it.

    Raises `InvalidSessionId`, `UnsupportedVersion` for a version that `load` would refuse, and
    `NotSerializable`.
    """
    if not header.id:
        raise InvalidSessionId(header.id, "is empty")
    if header.version != FORMAT_VERSION:
        raise UnsupportedVersion(header.id, "the header given", header.version)
    try:
        line = encode_header(header)
    except NotJson as error:
        raise NotSerializable(header.id, "session", 0, str(error)) from None
    copy = parse_header(line)
    if len(copy.extra or ()) != len(header.extra or ()):
        # A further key that bears the name of an attribute would be lost, or become it.
        reason = "extra names a key that the header has itself"
        raise NotSerializable(header.id, "session", 0, reason)
    return line, copy


def accept_batch(session_id: str, events: Iterable[SessionEvent]) -> list[Record]:
    """The encoded batch: the private copy of RW-4; raises `NotSerializable` (RW-3)."""
    batch = []
    for event in events:
        try:
            batch.append(Record(encode_event(event), event.type, event.seq))
        except NotJson as error:
            raise NotSerializable(session_id, event.type, event.seq, str(error)) from None
    return batch


def check_sequence(session_id: str, batch: Sequence[Record], next_seq: int) -> None:
    """Refuses a batch that does not continue the log at `next_seq`, or has a gap (RW-2)."""
    for index, record in enumerate(batch):
        if record.seq != next_seq + index:
            raise SequenceMismatch(session_id, next_seq + index, record.seq, index)
