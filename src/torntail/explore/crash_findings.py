"""A crash violation as a finding: told step by step, its disk kept, its command given.

Decides how a crash is put into words and what a witness directory holds. Does not decide what a
violation is (`judge.recovery`).
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath

import msgspec

from torntail.crash.crashes import GARBAGE, Crash
from torntail.crash.devices import fault_words
from torntail.explore.crash_shard import CrashFinding
from torntail.explore.witness import describe_steps
from torntail.judge.verdict import Finding

__all__ = ["crash_finding", "crash_words", "keep_crash", "keep_disk", "keep_record"]

_MODELS = {
    "kill": "the process is killed",
    "ordered": "power fails (a journaling file system: names in order, unsynced pages in any)",
    "posix": "power fails (only what POSIX promises: whatever is not synced, in any order)",
}


def crash_finding(finding: CrashFinding, command: Sequence[str], witness: str | None) -> Finding:
    """The finding as it stands on a certificate."""
    if finding.fault is not None:
        steps = [*describe_steps(finding.calls, None), fault_words(finding.fault)]
        command = [*command, "--device-faults"]
    elif not finding.chain and finding.clause.startswith("IO-"):
        steps = ["the disk says no during this plan"]
    elif not finding.chain:  # The process that loaded struck disks was lost with its last one.
        steps = ["a device fault strikes the disk of this plan"]
        command = [*command, "--device-faults"]
    else:
        *done, last = describe_steps(finding.calls, None) or ("before the first call",)
        steps = [*done, f"{last}: {crash_words(finding.chain[0])}"]
    for crash in finding.chain[1:-1]:
        steps += ["a new process opens the store and loads", f"meanwhile: {crash_words(crash)}"]
    if len(finding.chain) > 1:
        *between, inside = describe_steps(finding.recovery_calls, None) or ("while it opens",)
        steps += ["a new process opens the store", *between]
        steps.append(f"{inside}: {crash_words(finding.chain[-1])}")
    steps.append("a new process opens the store and loads")
    steps.append(
        f"{finding.session!r}: {finding.acknowledged} of {finding.submitted} submitted events were "
        "acknowledged"
    )
    if finding.lost:
        steps.append(f"lost: {', '.join(finding.lost[:12])}{' …' if finding.lost[12:] else ''}")
    model = " then ".join(crash.model for crash in finding.chain) or (
        "I/O error" if finding.clause.startswith("IO-") else "device fault"
    )
    return Finding(
        clause=finding.clause,
        sentence=finding.sentence,
        case=finding.plan,
        steps=tuple(steps),
        cause=finding.cause,
        command=shlex.join([*command, "--plan", finding.plan, "--only", finding.clause]),
        model=model,
        witness=witness,
    )


def keep_crash(directory: Path, finding: CrashFinding) -> None:
    """Writes the disk as `disk/`, and `crash.json` with the calls and the crashes."""
    keep_record(directory, "crash.json", finding, finding.files, finding.directories)


def keep_record(
    directory: Path,
    name: str,
    finding: msgspec.Struct,
    files: Mapping[str, bytes],
    directories: Iterable[str],
) -> None:
    """Writes a finding's disk as `disk/`, and all else of it under a name."""
    keep_disk(directory, files, directories)
    record = msgspec.to_builtins(finding)
    del record["files"], record["directories"]
    text = json.dumps(record, indent=1, default=repr)
    (directory / name).write_text(text + "\n", encoding="utf-8")


def keep_disk(directory: Path, files: Mapping[str, bytes], directories: Iterable[str]) -> None:
    """Writes a disk as `disk/` into a directory."""
    disk = directory / "disk"
    disk.mkdir(parents=True, exist_ok=True)
    for path in directories:
        (disk / _below(path)).mkdir(parents=True, exist_ok=True)
    for path, content in files.items():
        target = disk / _below(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)


def _below(path: str) -> PurePosixPath:
    """A path of an image; names come from the store, and none may lead elsewhere."""
    parts = [part for part in path.split("/") if part not in ("", ".", "..")]
    return PurePosixPath(*parts)


def crash_words(crash: Crash) -> str:
    """One way to crash, in words."""
    told = _MODELS[crash.model]
    where = f"after file operation {crash.position}"
    if crash.torn is not None:
        where += f", a write, of which {crash.torn} bytes were done"
    parts = [f"{told}, {where}"]
    if crash.names is not None:
        kept = ", ".join(map(str, crash.names)) or "none"
        parts.append(f"unsettled names that survive: {kept}")
    for inode, choice in crash.files or ():
        patches = ", ".join(
            f"bytes {start}–{stop} "
            + ("garbage" if version == GARBAGE else f"of version {version}")
            for start, stop, version in choice.patches
        )
        parts.append(
            f"file {inode} is left with {choice.length} bytes of version {choice.version}"
            + (f", {patches}" if patches else "")
        )
    return "; ".join(parts)
