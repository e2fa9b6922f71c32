"""Writes docs/faults.md: `python -m tests.docs.faults_page`.

torntail's own column comes from `torntail.crash.faults`; the other tools' are kept here.
"""

from __future__ import annotations

from pathlib import Path

from torntail.crash.faults import FAULTS, FaultRow

PAGE = Path(__file__).parents[2] / "docs" / "faults.md"

TOOLS = ["AL", "PF", "LZ", "SQ", "RX", "PB", "FD", "TB", "TU", "TM", "SI", "JP", "CM", "LP"]

# Row number → the tools' cells, separated by `|`, in the order of TOOLS.
OTHERS = {
    1: "–|–|–|p exit|Y|–|–|–|Y|–|–|Y|–|p",
    2: "p|–|Y|Y|p|–|–|–|–|–|p|–|–|p",
    3: "Y|Y|Y|Y|Y|Y|Y|p pending|Y|Y|Y|Y|Y|Y",
    4: "p omit-1|Y in group|p 1 file|Y|–|Y blocks|Y|–|–|p|Y|–|Y|–",
    5: "p|Y|–|Y|–|Y|Y|–|–|–|Y|–|Y|p",
    6: "Y 3 parts|–|Y bytes|–|Y|–|Y|–|–|Y|Y|–|p|–",
    7: "Y 4096|–|Y parts|Y|–|Y 4096|Y 512|p|–|Y|?|–|Y|–",
    8: "Y|–|–|–|–|Y|–|–|–|–|?|–|p|p",
    9: "Y|–|–|Y|p|–|Y|Y|–|–|?|–|p|–",
    10: "Y|–|–|–|Y|Y|p|–|–|Y|Y|–|Y|p btrfs",
    11: "Y|Y|Y|–|p|Y|–|–|–|Y|Y|Y|Y|Y",
    12: "Y|–|–|–|–|p|–|–|–|–|?|–|Y|–",
    13: "Y|Y|p trunc|p|p|p|p|–|–|p|?|–|Y|–",
    14: "–|p|–|–|–|–|–|–|–|?|?|–|Y|Y",
    15: "p O_SYNC|p SFR|Y O_*|–|p|p|–|–|–|p|p|–|–|Y",
    16: "–|Y|Y|–|–|–|–|–|–|–|–|–|p|Y",
    17: "p|p|p|–|–|–|–|–|–|–|–|–|Y|Y",
    18: "–|–|–|Y|Y|Y|Y|–|p|Y|Y|–|–|–",
    19: "–|–|–|–|–|–|–|–|–|–|Y short|–|–|–",
    20: "–|–|–|–|–|–|–|–|– (panic policy)|p err only|p err only|–|–|–",
    21: "–|–|–|–|–|–|–|–|–|–|Y|–|–|–",
    22: "–|–|–|Y|Y|Y|Y|Y|Y|Y|Y|–|–|–",
    23: "–|–|–|p|Y|–|Y|Y|Y|Y|?|Y|–|–",
    24: "–|–|–|–|–|–|–|Y misdir|–|–|Y|p copy|–|–",
    25: "–|–|–|–|–|–|–|–|–|–|–|Y|–|–",
    26: "–|–|–|–|–|–|–|–|–|–|–|Y|–|–",
    27: "–|–|–|Y|Y|p|Y|Y|–|p|?|p|–|p",
    28: "checker only|checker only|–|p|Y|p|Y|Y|–|p|?|p|–|p",
    29: "–|–|–|p|–|–|–|–|Y|–|–|Y|–|–",
    30: "–|–|–|Y|–|–|–|n/a|Y|–|–|–|–|–",
    31: "–|–|–|–|–|Y|Y|Y|Y|Y|?|–|–|–",
    32: "–|–|–|p seed|Y seed|Y seed|Y|Y|Y|Y|Y bytes|–|p log|–",
    33: "–|–|–|–|–|–|–|–|Y|–|–|–|–|–",
    34: "–|partial|n/a|–|–|–|–|–|–|–|?|–|p|–",
    35: "Y|Y (symbols)|Y|–|–|–|–|–|–|–|–|Y|n/a|Y",
    36: "Y|Pin|FUSE|Y|Y|Y|Y|Y|Y|Y|Y|root|root+kmod|root+loop",
}

HEAD = """\
# The fault table

What crash testers inject, and who has it, row by row. torntail's own column is made from its fault
vocabulary (`torntail.crash.faults`); a test holds this page against it.

State: **covered**; **partly**: what is missing is said; *planned*; *not planned*, with the reason.
Tier: *in-process*, stores in Python, recorded and crashed as values (see
[how a store is crashed](crashes.md)); *traced child*, a store in any language, its system calls
held; *real file system*, one that is shut down without a flush.

## torntail

"""

LEGEND = """
## The other tools

Y yes · p partial · – no · ? unknown · n/a does not apply. As of November 2026, from each tool's own
code or documentation:

| | tool | source |
| --- | --- | --- |
| AL | ALICE | `github.com/madthanu/alice` |
| PF | Pathfinder, a crash-consistency tester for files and memory-mapped files | code and paper |
| LZ | LazyFS | `github.com/dsrhaslab/lazyfs` |
| SQ | SQLite's own tests | `sqlite.org/testing.html`, crash and I/O-error tests of its VFS |
| RX | RocksDB's own tests | `github.com/facebook/rocksdb`: `db_crashtest.py`, fault-injecting FS |
| PB | Pebble's own tests | `github.com/cockroachdb/pebble`: crashable memory FS, `errorfs` |
| FD | FoundationDB's simulator | `github.com/apple/foundationdb`: `AsyncFileNonDurable` |
| TB | TigerBeetle's simulator | `github.com/tigerbeetle/tigerbeetle`: simulated storage |
| TU | Turso's simulator | `github.com/tursodatabase/turso` (row 3: its pull request 8513) |
| TM | turmoil's file system | `docs.rs/turmoil` |
| SI | store-io-sim | `docs.rs/store-io-sim` |
| JP | Jepsen, with LazyFS | `github.com/jepsen-io/jepsen` |
| CM | CrashMonkey | `github.com/utsaslab/crashmonkey` |
| LP | a real ext4 or XFS on a loop device | shut down by the `GOINGDOWN` ioctl |

Row 24 is also in `moonpool-sim` (`docs.rs/moonpool-sim`).

"""


def own_row(row: FaultRow) -> str:
    state = f"**{row.state}**" if row.state in ("covered", "partly") else f"*{row.state}*"
    where = f"`{row.where}`" if row.where else ""
    return f"| {row.number} | {row.name} | {state} | {row.tier} | {row.note} | {where} |"


def page() -> str:
    own = [
        "| # | fault | state | tier | what to know | where |",
        "| --- | --- | --- | --- | --- | --- |",
        *map(own_row, FAULTS),
    ]
    others = [
        f"| # | fault | {' | '.join(TOOLS)} |",
        f"| --- | --- |{' --- |' * len(TOOLS)}",
        *(
            f"| {row.number} | {row.name} | {' | '.join(OTHERS[row.number].split('|'))} |"
            for row in FAULTS
        ),
    ]
    return HEAD + "\n".join(own) + "\n" + LEGEND + "\n".join(others) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
