"""The cases shaped after public bug reports: files, and what a load of each must come to."""

from __future__ import annotations

import base64
import json
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torntail.session import SessionEvent

_FILE = Path(__file__).parent / "session" / "data" / "field-reports.jsonl"


@dataclass(frozen=True)
class Case:
    """One file. `expect` is in the words of the file of cases, `note` tells what was reported."""

    name: str
    shape: str
    session_id: str
    content: bytes
    expect: dict[str, Any]
    note: str

    def place(self, root: Path) -> Path:
        """Puts the file where a store with this root looks for it."""
        # The first twelve hex digits of SHA-256 of "/w".
        bucket = root / "cwd-d1bb8ca35467"
        bucket.mkdir(parents=True)
        path = bucket / f"{self.session_id}.jsonl"
        path.write_bytes(self.content)
        return path


def _case(record: dict[str, Any]) -> Case:
    if "file_base64" in record:
        content = base64.b64decode(record["file_base64"])
    else:
        content = zlib.decompress(base64.b64decode(record["file_zlib_base64"]))
    return Case(
        record["name"],
        record["shape"],
        record["session_id"],
        content,
        record["expect"],
        record["note"],
    )


CASES = [_case(json.loads(line)) for line in _FILE.read_bytes().split(b"\n") if line]


def closers_in_short(closers: list[SessionEvent]) -> list[list[Any]]:
    """Closers in the form of the cases: `[type, seq, …]`."""
    short: list[list[Any]] = []
    for closer in closers:
        data = closer.data
        more: list[Any] = []
        if closer.type == "tool/result":
            more = [data["callId"], data["step"], closer.source_event_seqs]
        elif closer.type == "step/end":
            more = [data["step"]]
        elif closer.type == "turn/end":
            more = [data["reason"]["kind"]]
        short.append([closer.type, closer.seq, *more])
    return short
