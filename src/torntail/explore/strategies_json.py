"""JSON values as Hypothesis strategies, with those that have broken readers.

Decides which values are worth drawing for a store that claims `json` (RW-12: every code point, lone
surrogates, integers of any size, the edges of doubles) and for one that claims `i-json`. Does not
decide where in an event they stand (`strategies`).
"""

from __future__ import annotations

import sys
from typing import Any, Final, Literal

from hypothesis import strategies as st

from torntail.session import SessionEvent
from torntail.session.events import MAXIMUM_SEQ

__all__ = ["ODD_NUMBERS", "ODD_TEXTS", "json_events", "json_numbers", "json_texts", "json_values"]

Values = Literal["json", "i-json"]

ODD_TEXTS: Final = (
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
    '{"type":"turn/end","seq":0,"time":0,"data":{}}',
)
"""Texts that a reader may take for something else: line ends, lone surrogates, whole records."""

ODD_NUMBERS: Final[tuple[int | float, ...]] = (
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
"""Numbers at the edges of what 53 bits, 64 bits, doubles and 4,300 digits hold."""

_ENVELOPE: Final = {"type", "seq", "time", "data", "surfaceOp", "sourceEventSeqs"}


def json_texts(claimed: Values = "json") -> st.SearchStrategy[str]:
    """Texts; with lone surrogates only where a store claims to keep them.

    A joined pair equals its character (RW-12), so halves drawn side by side are kept as halves on
    purpose.
    """
    if claimed == "i-json":
        odd = [text for text in ODD_TEXTS if _is_clean(text)]
        pieces = st.sampled_from(odd)
        return st.one_of(
            pieces, st.text(max_size=8), st.lists(pieces, min_size=2, max_size=3).map("".join)
        )
    return st.one_of(
        st.sampled_from(ODD_TEXTS),
        st.text(max_size=8),
        # text() by itself never draws a surrogate.
        st.text(st.characters(categories=["Cs"]), max_size=3),
        st.lists(st.sampled_from(ODD_TEXTS), min_size=2, max_size=3).map("".join),
    )


def json_numbers(claimed: Values = "json") -> st.SearchStrategy[int | float]:
    """Numbers; with i-json only integers that a double holds, and no negative zero."""
    if claimed == "i-json":
        edge = 2**53 - 1
        return st.one_of(
            st.integers(-edge, edge),
            st.floats(allow_nan=False, allow_infinity=False).map(lambda value: value + 0.0),
        ).filter(lambda value: abs(value) <= edge or type(value) is float)
    # By index, since a strategy's repr would otherwise spell out thousands of digits.
    return st.one_of(
        st.integers(0, len(ODD_NUMBERS) - 1).map(lambda index: ODD_NUMBERS[index]),
        st.integers(),
        st.floats(allow_nan=False, allow_infinity=False),
    )


def json_values(claimed: Values = "json") -> st.SearchStrategy[Any]:
    """Any JSON value, nested a little."""
    scalars = st.one_of(st.none(), st.booleans(), json_numbers(claimed), json_texts(claimed))
    return st.recursive(
        scalars,
        lambda inner: st.one_of(st.lists(inner, max_size=4), _members(inner, claimed)),
        max_leaves=12,
    )


def json_events(claimed: Values = "json") -> st.SearchStrategy[SessionEvent]:
    """Any event at all, with any type, seq and data."""
    values = json_values(claimed)
    extra = _members(values, claimed, min_size=1)
    return st.builds(
        SessionEvent,
        type=json_texts(claimed).filter(bool),
        seq=st.one_of(st.integers(0, MAXIMUM_SEQ), st.sampled_from([0, MAXIMUM_SEQ])),
        time=json_numbers(claimed),
        data=values,
        surface_op=st.one_of(st.none(), st.just("append"), values),
        source_event_seqs=st.one_of(st.none(), st.lists(st.integers(0, 99), max_size=3)),
        extra=st.one_of(st.none(), extra.filter(lambda found: _ENVELOPE.isdisjoint(found))),
    )


def _members(
    values: st.SearchStrategy[Any], claimed: Values, **bounds: Any
) -> st.SearchStrategy[dict[str, Any]]:
    # Unique also once halves are joined; keys that collide then are no value of JSON.
    pairs = st.lists(
        st.tuples(json_texts(claimed), values),
        max_size=4,
        unique_by=lambda pair: _joined(pair[0]),
        **bounds,
    )
    return pairs.map(dict)


def _joined(text: str) -> str:
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def _is_clean(text: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in text)
