"""Hypothesis strategies for JSON values and events, with the values that have broken readers."""

from __future__ import annotations

import sys
from typing import Any

from hypothesis import strategies as st

from torntail.session.events import MAXIMUM_SEQ, SessionEvent

ODD_TEXTS = (
    "",
    "\u2028",
    "\u2029",
    "\u0085",
    "\u001c\u001d\u001e\u001f",
    "\x00",
    "\ufeff",
    "\ufffe",
    "\ud800",
    "\udfff",
    "\udc00\ud800",
    "\U0001f600",
    "\U0010ffff",
    '"\\/\b\f\n\r\t',
    "\x7f",
    "\\ud83d\\ude00",
    "e\u0301",
    "{[}]",
)
ODD_NUMBERS: tuple[int | float, ...] = (
    0,
    -1,
    2**53 - 1,
    2**53,
    2**53 + 1,
    2**63 - 1,
    2**63,
    2**64 - 1,
    2**64,
    -(2**63) - 1,
    10**4300 - 1,
    -(10**4300) + 1,
    -0.0,
    0.0,
    1.0,
    5e-324,
    -5e-324,
    sys.float_info.min,
    sys.float_info.max,
    -sys.float_info.max,
    1e16,
    1e21,
    1e-7,
    0.1 + 0.2,
)

# A joined pair equals its character (RW-12), so that halves drawn side by side are kept as halves
# on purpose: `same_json` is what must see them as equal.
texts = st.one_of(
    st.sampled_from(ODD_TEXTS),
    st.text(max_size=8),
    st.text(st.characters(categories=["Cs"]), max_size=3),
    st.lists(st.sampled_from(ODD_TEXTS), min_size=2, max_size=3).map("".join),
)
# By index, since a strategy's repr would otherwise spell out thousands of digits.
numbers = st.one_of(
    st.integers(0, len(ODD_NUMBERS) - 1).map(lambda index: ODD_NUMBERS[index]),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
)
scalars = st.one_of(st.none(), st.booleans(), numbers, texts)


def _joined(text: str) -> str:
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def _members(values: st.SearchStrategy[Any], **bounds: Any) -> st.SearchStrategy[dict[str, Any]]:
    # Unique also once halves are joined; colliding keys have their own test.
    pairs = st.lists(
        st.tuples(texts, values), max_size=4, unique_by=lambda pair: _joined(pair[0]), **bounds
    )
    return pairs.map(dict)


values = st.recursive(
    scalars, lambda inner: st.one_of(st.lists(inner, max_size=4), _members(inner)), max_leaves=12
)

_ENVELOPE = {"type", "seq", "time", "data", "surfaceOp", "sourceEventSeqs"}

events = st.builds(
    SessionEvent,
    type=texts.filter(bool),
    seq=st.one_of(st.integers(0, MAXIMUM_SEQ), st.sampled_from([0, MAXIMUM_SEQ])),
    time=numbers,
    data=values,
    surface_op=st.one_of(st.none(), st.just("append"), values),
    source_event_seqs=st.one_of(st.none(), st.lists(st.integers(0, 99), max_size=3)),
    extra=st.one_of(
        st.none(), _members(values, min_size=1).filter(lambda found: _ENVELOPE.isdisjoint(found))
    ),
)
