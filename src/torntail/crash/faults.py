"""The fault table: what crash testers inject, and where torntail stands on each, row by row.

Decides the numbering and what is said about this version; `docs/faults.md` is made from it. A row
says `covered` only where the code named in `where` does it. Does not inject anything.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

__all__ = ["FAULTS", "FaultRow", "State", "Tier"]

Tier = Literal["in-process", "traced child", "real file system"]
"""Which part covers a row, or will: the recorder and models inside Python; a traced process of any
language; a file system that is shut down without a flush."""

State = Literal["covered", "partly", "planned", "not planned"]


class FaultRow(msgspec.Struct, frozen=True):
    """One row: its number, the fault, the tier, the state, the code that does it, and what to know.

    `where` is a dotted name, empty where nothing is there yet.
    """

    number: int
    name: str
    tier: Tier
    state: State
    where: str = ""
    note: str = ""


_CRASHES: Final = "torntail.crash.crashes.crashes"
_TEARS: Final = "torntail.crash.choices.tear_points"
_DISK: Final = "torntail.crash.disk.Disk"
_DEVICES: Final = "torntail.crash.devices."
_IO: Final = "torntail.crash.io_faults.IoFault"
_RUN: Final = "torntail.explore.crash_run.CrashRun"

FAULTS: Final[tuple[FaultRow, ...]] = (
    FaultRow(1, "real process kill -9, random time", "traced child", "planned", "",
             "the model `kill` gives the disk of every such kill"),
    FaultRow(2, "kill at the Nth chosen syscall / failpoint", "traced child", "planned", "",
             "the model `kill` visits every file operation and cuts inside every write"),
    FaultRow(3, "lose all unsynced data", "in-process", "covered", _CRASHES,
             "the strictest disk of every position"),
    FaultRow(4, "any subset of unsynced writes survives", "in-process", "covered", _CRASHES,
             "all combinations when they are few; else each alone lost, each alone kept, a spread"),
    FaultRow(5, "reorder across files", "in-process", "covered", _CRASHES,
             "files are left independently of each other"),
    FaultRow(6, "torn write: prefix", "in-process", "covered", _TEARS,
             "0, 1, middle, all but one, around newlines, at page and sector edges"),
    FaultRow(7, "torn write: 512/4096 holes inside one write", "in-process", "covered", _CRASHES,
             "each page and sector alone lost and alone kept"),
    FaultRow(8, "size grown, data = NUL", "in-process", "covered", _CRASHES),
    FaultRow(9, "size grown / sector = garbage or stale", "in-process", "covered", _CRASHES,
             "stale: what stood there before an unsynced truncate; garbage: model `posix` only"),
    FaultRow(10, "file synced but name lost (no dir fsync)", "in-process", "covered", _DISK,
             "model `posix`; under `ordered` the fsync of a new file keeps its name"),
    FaultRow(11, "rename persisted before data", "in-process", "covered", _CRASHES),
    FaultRow(12, "rename non-atomic (both gone / both present)", "in-process", "covered", _DISK,
             "model `posix`; a journal (`ordered`) keeps a rename whole"),
    FaultRow(13, "unlink / truncate delayed or partial", "in-process", "covered", _CRASHES),
    FaultRow(14, "fsync ≠ fdatasync (size, dirent)", "in-process", "partly", _DISK,
             "fdatasync is taken for an fsync: it is never weaker here than an fsync"),
    FaultRow(15, "sync_file_range, O_SYNC/O_DSYNC, RWF_DSYNC", "in-process", "partly",
             "torntail.crash.oplog.Write",
             "O_SYNC, O_DSYNC, RWF_SYNC, RWF_DSYNC; sync_file_range, which Python cannot call, "
             "not"),
    FaultRow(16, "mmap / msync stores", "traced child", "planned", "",
             "in-process such a write is noticed, and the store is not judged"),
    FaultRow(17, "fallocate / punch / copy_file_range", "in-process", "partly",
             "torntail.crash.oplog.OpLog",
             "posix_fallocate as a longer file, copy_file_range and sendfile as writes; no holes"),
    FaultRow(18, "write error EIO/ENOSPC at N, once or sticky", "in-process", "covered", _IO,
             "every kind of file operation, also EROFS and EACCES, none or a part of a write done; "
             "IO-1, IO-2, IO-4, IO-5"),
    FaultRow(19, "short write / EINTR", "in-process", "partly", _IO,
             "short writes (IO-4); EINTR in the traced child, CPython retries it"),
    FaultRow(20, "fsync fails, page clean, later fsync OK (4 variants)", "in-process", "covered",
             "torntail.crash.io_faults.SyncFailure",
             "six: clean with the new bytes, clean with the old ones, still dirty; each reported "
             "once or again (IO-3)"),
    FaultRow(21, "fsync lies (returns 0, nothing durable)", "in-process", "covered",
             _DEVICES + "LyingSync", "`--device-faults`, apart from the verdict"),
    FaultRow(22, "read EIO / short read", "traced child", "planned"),
    FaultRow(23, "bit rot in committed data", "in-process", "covered", _DEVICES + "BitRot",
             "`--device-faults`; and each kind of record by DM-7"),
    FaultRow(24, "lost (phantom) / misdirected write", "in-process", "covered",
             _DEVICES + "MisdirectedWrite",
             "`--device-faults`; pages and sectors, healed when written back again"),
    FaultRow(25, "stale chunk or file restored (rollback)", "in-process", "covered",
             _DEVICES + "RolledBackFile", "`--device-faults`"),
    FaultRow(26, "external truncation of the file", "in-process", "covered", _DEVICES + "CutFile",
             "`--device-faults`, the store being closed; under a live writer IO-6"),
    FaultRow(27, "crash or error DURING recovery (double crash)", "in-process", "covered", _RUN,
             "crashes, two levels deep (CR-7); I/O errors in a load (IO-5)"),
    FaultRow(28, "crash → reopen → append → crash/reopen → read", "in-process", "covered", _RUN,
             "CR-5"),
    FaultRow(29, "two live writers + crash of one", "traced child", "partly",
             "torntail.explore.writers_run.WriterProcesses",
             "processes of their own, not traced: one is killed between its calls"),
    FaultRow(30, "OOM / allocation failure", "traced child", "planned", "",
             "as a memory limit on the child"),
    FaultRow(31, "slow disk / latency", "traced child", "planned"),
    FaultRow(32, "deterministic replay of a saved case", "in-process", "covered",
             "torntail.explore.crash_findings.crash_finding",
             "by seed and plan, as a finding's command says; of a saved file planned"),
    FaultRow(33, "shrinks a failing case", "in-process", "partly",
             "torntail.explore.campaign.certify",
             "histories without a crash; plans that are crashed are tried small ones first"),
    FaultRow(34, "removes duplicate states", "in-process", "covered", _RUN,
             "by content; both counts are reported"),
    FaultRow(35, "any-language store, no source change", "traced child", "planned"),
    FaultRow(36, "runs unprivileged in CI", "in-process", "covered",
             "torntail.record.inprocess.Recorder", "the traced child is to do so, too"),
)  # fmt: skip
"""Every row of the table, in order."""
