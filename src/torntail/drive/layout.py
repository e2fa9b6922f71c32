"""Where in storage each record stands, and how a damage told in records is made there.

A store's format is unknown, so records are found by the marks in their data: in a file with one
record a line, or in the rows of a database (`rows`). What fits neither is opaque; then only cuts at
the end of its largest file are made. Every damage is a pure function from a file's bytes to its
bytes, and `apply` proves that it landed. Runs in the onlooker process, all stores being closed.
Does not decide what a damage means for a load (`judge.model`).
"""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from torntail.drive.records import addition, damage_header, damage_record
from torntail.drive.rows import RowLog, damage_rows, find_rows, is_database
from torntail.judge.history import Damage, Damaged, NotPossible

__all__ = ["Damager", "TextLog", "damage_text", "find_text"]


@dataclass(frozen=True, slots=True)
class TextLog:
    """A file with one record a line, the first event on line `first` (counted from 0)."""

    path: Path
    first: int


@dataclass(frozen=True, slots=True)
class TextDamage:
    """A file's new bytes, and where its damaged record begins: line (from 0), byte, length."""

    content: bytes
    line: int
    byte: int
    length: int


class Damager:
    """Makes damages and remembers, for each storage, what stood there before."""

    def __init__(self) -> None:
        self._root: Path | None = None
        self._found: dict[str, TextLog | RowLog | None] = {}

    def apply(
        self, root: Path, damage: Damage, marks: dict[str, dict[int, str]]
    ) -> Damaged | NotPossible:
        """Makes a damage and says where it landed."""
        if root != self._root:
            self._root, self._found = root, {}
        kept = root.parent.with_name(root.parent.name + ".kept")
        if damage.kind == "restore":
            return _restore(root, kept)
        if not kept.exists() and root.exists():
            shutil.copytree(root, kept, symlinks=True)
        if damage.kind == "root-is-a-file":
            _remove(root)
            root.write_bytes(b"this is not a directory\n")
            return Damaged(root.name, "a directory", "a file")
        if damage.kind == "cut-bytes":
            return _cut_largest(root, damage.amount)
        log = self._find(root, damage.session, marks)
        if isinstance(log, RowLog):
            return damage_rows(log, root, damage)
        if log is None:
            if not any(_files(root)):
                return NotPossible("nothing is stored in files", moot=False)
            return NotPossible("no file or table was found with one record a line", moot=False)
        if damage.kind in ("misplace", "second-place"):
            return _misplace(root, log, self._find(root, damage.other, marks), damage.kind)
        return _damage_file(root, log, damage)

    def _find(
        self, root: Path, session: str, marks: dict[str, dict[int, str]]
    ) -> TextLog | RowLog | None:
        if session not in self._found:
            self._found[session] = _locate(root, session, marks.get(session, {}))
        return self._found[session]


def _locate(root: Path, session: str, marks: dict[int, str]) -> TextLog | RowLog | None:
    if not marks:
        return None
    for path in _files(root):
        if is_database(path):
            found = find_rows(path, session, marks)
            if found is not None:
                return found
        else:
            first = find_text(path.read_bytes(), marks)
            if first is not None:
                return TextLog(path, first)
    return None


def _files(root: Path) -> Iterator[Path]:
    if root.is_dir():
        yield from sorted(path for path in root.rglob("*") if path.is_file())


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _restore(root: Path, kept: Path) -> Damaged | NotPossible:
    if not kept.exists():
        return NotPossible("nothing was damaged yet", moot=False)
    _remove(root)
    kept.rename(root)
    return Damaged(root.name, "as damaged", "as before")


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


# --- text files -----------------------------------------------------------------------------------


def find_text(content: bytes, marks: dict[int, str]) -> int | None:
    """The line of the first event, if every mark stands on a line of its own, in order."""
    lines = content.split(b"\n")
    first: int | None = None
    for index, mark in marks.items():
        found = [number for number, line in enumerate(lines) if mark.encode("ascii") in line]
        if len(found) != 1 or found[0] < index:
            return None
        if first is None:
            first = found[0] - index
        elif found[0] - index != first:
            return None
    return first


def _damage_file(root: Path, log: TextLog, damage: Damage) -> Damaged | NotPossible:
    before = log.path.read_bytes()
    result = damage_text(before, log.first, damage)
    if isinstance(result, NotPossible):
        return result
    log.path.write_bytes(result.content)
    after = log.path.read_bytes()
    return Damaged(
        log.path.relative_to(root).as_posix(),
        _digest(before),
        _digest(after),
        line=result.line + 1,
        byte=result.byte,
        size=len(after),
        record_bytes=result.length,
    )


def damage_text(content: bytes, first: int, damage: Damage) -> TextDamage | NotPossible:
    """The bytes of a log, whose first event is on line `first`, after a damage."""
    lines = re.findall(rb"[^\n]*\n|[^\n]+\Z", content)
    if damage.kind.startswith("header-") or damage.kind in ("empty", "nul-file"):
        return _damage_header(lines, first, damage)
    if damage.kind == "crlf":
        return TextDamage(content.replace(b"\n", b"\r\n"), 0, 0, 0)
    number = len(lines) if damage.kind == "add" else first + damage.record
    if damage.kind != "add" and number >= len(lines):
        return NotPossible(f"the log has no record {damage.record}", moot=False)
    byte = sum(len(line) for line in lines[:number])
    before, behind = b"".join(lines[:number]), b"".join(lines[number + 1 :])
    if damage.kind == "add":
        added = addition(lines[-1].rstrip(b"\n"), damage.variant)
        return TextDamage(before + added, number, byte, 0)
    line = lines[number]
    record = line.removesuffix(b"\n")
    length = len(record)
    new: bytes | NotPossible
    match damage.kind:
        case "delete":
            new = b""
        case "duplicate":
            new = line + line
            number, byte = number + 1, byte + len(line)
        case "cut":
            keep = damage.amount if damage.amount >= 0 else len(line) + damage.amount
            if not 0 <= keep < len(line):
                return NotPossible(f"the record has only {len(line)} bytes", moot=False)
            new, behind = line[:keep], b""
        case "trail" if damage.variant == "no newline" and behind:
            return NotPossible("the record is not the last one", moot=False)
        case _:
            new = damage_record(record, damage)
            if not isinstance(new, NotPossible) and damage.variant != "no newline":
                new += b"\n"
    if isinstance(new, NotPossible):
        return new
    return TextDamage(before + new + behind, number, byte, length)


def _damage_header(lines: list[bytes], first: int, damage: Damage) -> TextDamage | NotPossible:
    if first != 1:
        return NotPossible("the first line is not the header", moot=first == 0)
    line, rest = lines[0], b"".join(lines[1:])
    header = line.removesuffix(b"\n")
    new: bytes | NotPossible
    match damage.kind:
        case "header-only":
            new = header
        case "header-cut":
            new = header[: len(header) // 2]
        case "empty":
            new = b""
        case "nul-file":
            new = b"\0" * len(header)
        case _:
            new = damage_header(header, damage)
            if not isinstance(new, NotPossible):
                new += b"\n" + rest
    if isinstance(new, NotPossible):
        return new
    return TextDamage(new, 0, 0, 0)


# --- whole files ----------------------------------------------------------------------------------


def _misplace(
    root: Path, log: TextLog, other: TextLog | RowLog | None, kind: str
) -> Damaged | NotPossible:
    if not isinstance(other, TextLog) or other.path == log.path:
        return NotPossible("the sessions do not stand in files of their own", moot=True)
    target = other.path if kind == "misplace" else other.path.with_name(log.path.name)
    if kind == "second-place" and target.exists():
        return NotPossible("the place of a log depends on its id alone", moot=True)
    before = target.read_bytes() if target.exists() else b""
    shutil.copyfile(log.path, target)
    after = target.read_bytes()
    return Damaged(target.relative_to(root).as_posix(), _digest(before), _digest(after))


def _cut_largest(root: Path, amount: int) -> Damaged | NotPossible:
    files = [path for path in _files(root) if not is_database(path) and path.stat().st_size]
    if not files:
        return NotPossible("nothing is stored in files", moot=False)
    path = max(files, key=lambda file: file.stat().st_size)
    before = path.read_bytes()
    path.write_bytes(before[: max(len(before) - amount, 0)])
    after = path.read_bytes()
    return Damaged(
        path.relative_to(root).as_posix(), _digest(before), _digest(after), size=len(after)
    )
