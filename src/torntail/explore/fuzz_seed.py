"""Seeds of fuzzing runs: an integer, or the hash of a commit, so that CI needs no counter.

Decides what a text stands for. Does not decide what is drawn from a seed (`fuzz_share`).
"""

from __future__ import annotations

import hashlib
import re

__all__ = ["BadSeed", "seed_of"]


class BadSeed(ValueError):
    """A seed is neither an integer nor a commit hash."""


def seed_of(text: str) -> int:
    """The seed in a text: an integer, or the hash of a commit; raises `BadSeed`."""
    if re.fullmatch(r"[0-9]{1,20}", text):
        return int(text)
    if re.fullmatch(r"[0-9a-fA-F]{7,64}", text):
        return int.from_bytes(hashlib.sha256(text.lower().encode("ascii")).digest()[:8], "big")
    raise BadSeed(f"{text!r} is neither an integer nor a commit hash (7 to 64 hexadecimal digits)")
