"""Session ids and working directories as names of files and folders.

Decides the layout of era S, so that a session written by the original loads here and the other way
round: `<root>/cwd-<12 hex of sha256(cwd)>/<encoded id>.jsonl`, or `_no-cwd` for a session without a
working directory. The mapping of ids to names is injective and never leaves its folder (RW-10).
"""

from __future__ import annotations

import hashlib
import re
from typing import Final

from torntail.session import join_surrogates

__all__ = [
    "LOG_SUFFIX",
    "MAXIMUM_NAME_BYTES",
    "NO_CWD_BUCKET",
    "bucket_name",
    "companion_name",
    "decode_segment",
    "encode_segment",
    "is_bucket_name",
]

LOG_SUFFIX: Final = ".jsonl"
NO_CWD_BUCKET: Final = "_no-cwd"
MAXIMUM_NAME_BYTES: Final = 255
"""The longest file name of the common file systems."""

_LONE_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_UNSAFE_UNIT: Final = re.compile("[^A-Za-z0-9._-]")
_ESCAPE: Final = re.compile("~([0-9A-F]{4})")
_BUCKET: Final = re.compile(r"cwd-[0-9a-f]{12}\Z")


def encode_segment(session_id: str) -> str:
    """The file name (without suffix) of an id.

    `A-Z a-z 0-9 . _ -` are kept, every other UTF-16 code unit becomes `~XXXX`, and so do the dots
    of a whole `.` or `..`. The empty id, which the caller refuses, gives the empty name.
    """
    if session_id in (".", ".."):
        return session_id.replace(".", "~002E")
    return _UNSAFE_UNIT.sub(_escaped, session_id)


def _escaped(character: re.Match[str]) -> str:
    units = character.group().encode("utf-16-be", "surrogatepass").hex().upper()
    return "".join(f"~{units[start : start + 4]}" for start in range(0, len(units), 4))


def decode_segment(name: str) -> str | None:
    """The id a file name (without suffix) stands for, or None if no id encodes to that name."""
    text = _ESCAPE.sub(lambda unit: chr(int(unit.group(1), 16)), name)
    session_id = join_surrogates(text)
    return session_id if session_id and encode_segment(session_id) == name else None


def bucket_name(cwd: str | None) -> str:
    """The folder of all sessions with this working directory."""
    if cwd is None:
        return NO_CWD_BUCKET
    # Half a character has no bytes in UTF-8; the original hashes U+FFFD in its place.
    text = _LONE_SURROGATE.sub("\ufffd", join_surrogates(cwd))
    return f"cwd-{hashlib.sha256(text.encode('utf-8')).hexdigest()[:12]}"


def is_bucket_name(name: str) -> bool:
    """Whether a folder of this name holds sessions."""
    return name == NO_CWD_BUCKET or _BUCKET.match(name) is not None


def companion_name(encoded_id: str, suffix: str) -> str:
    """The name of a file that stands beside a log: lock, temporary file, kept copy.

    Short ids are readable in it; for an id whose name would be too long a digest stands in, behind
    `~~`, which no encoded id contains: a short id must not share its lock with a long one.
    """
    name = encoded_id + suffix
    if len(name) <= MAXIMUM_NAME_BYTES:
        return name
    return f"~~{hashlib.sha256(encoded_id.encode('ascii')).hexdigest()[:32]}{suffix}"
