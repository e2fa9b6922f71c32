"""When two JSON values are the same value.

Decides what "equal as JSON values" means wherever a contract clause says so (RW-1, RW-12). Does not
cover: how values are read and written (`codec`).
"""

from __future__ import annotations

import math

from torntail.session.codec import join_surrogates
from torntail.session.events import Json

__all__ = ["same_json"]


def same_json(left: Json, right: Json, *, i_json: bool = False) -> bool:
    """Whether two values are equal as JSON values.

    Key order does not count; `1` and `1.0` are the same number; `0` and `-0.0` are not, unless
    `i_json` (a store that claims no more than I-JSON may lose the sign); surrogate halves that form
    a pair equal the character.
    """
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, int | float) and isinstance(right, int | float):
        if left != right:
            return False
        return bool(i_json or left or _sign(left) == _sign(right))
    if isinstance(left, str) and isinstance(right, str):
        return left == right or join_surrogates(left) == join_surrogates(right)
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return len(left) == len(right) and all(
            same_json(one, other, i_json=i_json) for one, other in zip(left, right, strict=True)
        )
    if isinstance(left, dict) and isinstance(right, dict):
        if len(left) != len(right):
            return False
        if left.keys() != right.keys():
            left = {join_surrogates(key): member for key, member in left.items()}
            right = {join_surrogates(key): member for key, member in right.items()}
        return left.keys() == right.keys() and all(
            same_json(member, right[key], i_json=i_json) for key, member in left.items()
        )
    return left is None and right is None


def _sign(zero: float) -> float:
    return math.copysign(1.0, zero)
