"""The contract's clauses as data: what a crash-safe session store promises.

One table holds every clause with its id, full text, short summary, the level that asks for it
and the capabilities a store must claim to be held to it. Tests, verdicts, certificates and
reports all cite ids from here, so they cannot drift apart; ``docs/contract.md`` carries the same
text for reading, and a test compares the two.

The table decides what a clause *is* and whom it concerns. It does not decide whether a store
keeps it (that is the oracle's and the verdict's), which cases exercise it, or which situations
must have occurred before it may pass.

A requirement is a string in one of two forms, named after the contract's capability table:

``name``
    The yes/no capability is claimed: ``lazy``, ``lists``, ``header``, ``inspects``, ``forks``,
    ``checks_seq``, ``atomic_batch``.
``name=value``
    The capability has that value, or, where it is a set, contains it: ``profile=session``,
    ``creates=explicit``, ``repairs=load``, ``writers=one-locked``, ``writers=many``,
    ``detects=torn``, ``detects=gap``.

All of a clause's requirements must be met. They say when a store is held to the clause at all;
a single case may ask for more (the wrong-seq cases of DM-1 also need ``detects=gap``), and a
store that does not claim ``checks_seq`` is held to all of CR-5 but the refusal of another seq. DM-7
requires nothing: a store that does not claim ``bitflip`` is still exercised, and the silent flips
are counted instead of judged.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

Level: TypeAlias = Literal["none", "process", "runtime", "harness"]
"""What asks for a clause.

``none`` and ``process`` are the levels of VD-7, the lowest that requests the clause (``power``
requests the same clauses as ``process``, under more models of a crash). ``runtime`` clauses bind
the live session and ``harness`` clauses torntail itself; neither is requested of a store.
"""


@dataclass(frozen=True, slots=True)
class Clause:
    """One promise of the contract.

    ``sentence`` is the clause's full text as the contract has it, Markdown included; ``summary``
    is at most 70 characters, for tables. ``requires`` is described at the top of this module.
    """

    id: str
    group: str
    sentence: str
    level: Level
    requires: tuple[str, ...]
    summary: str


class UnknownClauseError(KeyError):
    """There is no clause of that id; ``close_matches`` holds the ids that come near."""

    def __init__(self, clause_id: str, close_matches: tuple[str, ...]) -> None:
        super().__init__(clause_id)
        self.clause_id = clause_id
        self.close_matches = close_matches

    def __str__(self) -> str:
        # KeyError would print the repr of its argument alone.
        message = f"no clause {self.clause_id!r} in the contract"
        if self.close_matches:
            message += f"; did you mean {' or '.join(self.close_matches)}?"
        return message


class NotJudgedError(UnknownClauseError):
    """The clause, or group of clauses, is about torntail itself: no run of a store judges it."""

    def __str__(self) -> str:
        return f"{self.clause_id} is about torntail itself and is not judged by a run over a store"


@dataclass(frozen=True, slots=True)
class _Group:
    title: str
    level: Level


@dataclass(frozen=True, slots=True)
class _Row:
    """A clause as written below: group and level follow from the id."""

    id: str
    requires: tuple[str, ...]
    summary: str
    sentence: str


_GROUPS: Final = {
    "RW": _Group("Reading and writing", "none"),
    "CR": _Group("After a crash", "process"),
    "CL": _Group("Closers (profile `session`)", "none"),
    "DM": _Group("Damage that is not a crash", "none"),
    "IO": _Group("When the disk says no", "process"),
    "MW": _Group("More than one at a time", "process"),
    "LV": _Group("The live session (runtime layer, not the store)", "runtime"),
    "VD": _Group("The verdict", "harness"),
}

# Laid out by hand: one head line a clause, its text below.
# fmt: off
_ROWS: Final = (
    _Row("RW-1", (), "load returns what was appended",
        "`load` after `append` returns the same header and events, in order, chunks included, "
        "equal as JSON values; in profile `session` followed by the closers if a turn is open. "
        "These are then stored, and the next seq is |L|. The writer's own `load` does this "
        "too; to look only, call `inspect`."),
    _Row("RW-2", ("checks_seq",), "a batch with a wrong first seq is refused",
        "The first seq of a batch must be the stored next seq, and a batch is contiguous; "
        "otherwise `append` refuses, naming expected and got, and stores nothing. `append` to "
        "a stored session that this store object neither created nor loaded first does what "
        "`load` does."),
    _Row("RW-3", (), "what JSON cannot carry is refused",
        "A batch with anything JSON cannot carry (NaN, ±Infinity, bytes, sets, dates, cycles, "
        "a non-string key) is refused, naming the event's type and seq, and stores nothing."),
    _Row("RW-4", (), "append and load hand over private copies",
        "`append` takes a private copy: changing an event afterwards changes nothing stored. "
        "The same for `load`'s result."),
    _Row("RW-5", (), "an empty batch does nothing",
        "An empty batch does nothing, also for an unknown id."),
    _Row("RW-6", ("lazy",), "create is lazy: nothing stored before the first event",
        "`create` is lazy: nothing in storage, nothing in `list`, `load` says *not found*, "
        "until the first non-empty append."),
    _Row("RW-7", ("creates=explicit",), "create of an existing id is refused",
        "`create` of an id that exists, in memory or storage, is refused; an id is unique in "
        "the store, whatever its cwd."),
    _Row("RW-8", (), "an unknown id is not found, and told apart from cannot look",
        "`load` and `append` of an unknown id say *not found*. Absence is told apart from "
        '"cannot look" (permission, not a directory).'),
    _Row("RW-9", ("lists",), "list gives one entry per log, damaged ones included",
        "`list` gives one entry per log in storage, under the id its place names: the header, "
        "or the kind of error when the header cannot be read or contradicts its place. *Never "
        "materialised* logs are left out. Bodies are not read: damage there shows at `load` "
        "and `inspect`. One damaged session never hides the rest."),
    _Row("RW-10", (), "any id is safe: stored faithfully or refused",
        "Any id is safe: `..`, separators, NUL, lone surrogates, 300 characters, names that "
        "differ only by case on a case-blind file system. It is stored faithfully or refused "
        "with a clear error, never mixed up with another session and never outside the root. "
        "The mapping to a name is injective. The empty id is refused."),
    _Row("RW-11", (), "sessions do not touch each other",
        "Sessions do not touch each other."),
    _Row("RW-12", (), "values survive as far as claimed",
        "Values survive as far as `values` claims: U+2028/2029/0085, U+0000, lone surrogates, "
        "every code point, integers of any size up to 4,300 digits, `-0.0`, the smallest and "
        "largest doubles, 200 levels of nesting, a line of 64 MiB. Two adjacent surrogate "
        "halves that form a pair equal that character."),
    _Row("RW-13", (), "unknown event types are kept, time is opaque",
        "Unknown event types are kept verbatim; time is opaque (may repeat or go back)."),
    _Row("RW-14", ("header",), "an unknown format version is refused, the file untouched",
        "The header carries the format version, 0. Any other version is refused by `load` with "
        "its own error, the file untouched; `list` still shows it."),
    _Row("RW-15", ("header",), "a header under another id's name is its own error",
        "A header's id that differs from the id its place names is its own error; no append "
        "may then touch the file. An id found in two places is the same error naming both; "
        "neither is touched."),
    _Row("RW-16", (), "order is by seq alone",
        "Order is by seq alone, never by time or id; equal consecutive events are all kept."),
    _Row("RW-17", (), "calls on one session are serialised; close is final",
        "Calls on one session from several threads or tasks are serialised. After `close` "
        "every call raises *closed*; `close` twice is harmless and frees the lock."),
    _Row("CR-1", (), "nothing acknowledged is lost",
        "Nothing acknowledged is lost: |P| ≥ |A|."),
    _Row("CR-2", (), "nothing is invented",
        "Nothing is invented: L = P + K(P), event for event."),
    _Row("CR-3", (), "a crash alone never makes a session unloadable",
        "If anything was acknowledged, `load` succeeds. Otherwise it succeeds, or says *not "
        "found* or *never materialised*. A crash alone yields no other error."),
    _Row("CR-4", (), "loading again gives the same and writes nothing",
        "`load` again gives the same L and writes nothing."),
    _Row("CR-5", (), "appending goes on at the next seq",
        "Appending goes on at seq |L|; any other first seq is refused; a fresh load then gives "
        "L + the new events + their closers."),
    _Row("CR-6", (), "header, other sessions and list are unharmed",
        "The header is unchanged; other sessions are unchanged; `list` shows an id without "
        "error exactly when `load` finds its header."),
    _Row("CR-7", ("repairs=load",), "a crash inside the repair ends in the same log",
        "A crash inside the repair, at any point, any number of times, ends in the same L."),
    _Row("CR-8", ("atomic_batch",), "a batch is there whole or not at all",
        "With `atomic_batch`, P ends on a batch boundary; for such a store the torn tail "
        "begins with the first record of the batch that is not whole."),
    _Row("CR-9", ("profile=session",), "every call cut off by the crash is answered once",
        "Every call pending when the crash cut a turn is answered exactly once in L. Where the "
        "plan keeps the turn grammar and each closed step of S answers its calls, the history "
        "derived from L by LV-5 alone, without the mending view, is valid for a provider: "
        "every call answered once, directly after its message; no result without its call."),
    _Row("CR-10", (), "a crash inside create or first flush leaves a usable store",
        "A crash inside `create` or the first flush, of the first session or of a new store "
        "(folders, schema, version row), leaves either no session (and the id can be created "
        "and appended to) or a loadable one as in CR-1, CR-2, CR-8. The store stays usable."),
    _Row("CR-11", (), "no stale temporary file is mistaken for data",
        "After recovery the store holds no stale temporary files that a later operation could "
        "mistake for data."),
    _Row("CL-1", ("profile=session",), "turn and step events open and close the state",
        "`turn/start` opens the turn, forgets step and pending. `turn/end` clears all. "
        "`step/start` opens a step. `step/end` closes it and clears pending."),
    _Row("CL-2", ("profile=session",), "each tool-call block is pending, once",
        "Each `tool-call` block of an `assistant/message` is pending; a repeated id stays one "
        "entry at its first place, its step becomes the later message's and a noted seq is "
        "forgotten."),
    _Row("CL-3", ("profile=session",), "tool/call notes its seq, tool/result removes by id",
        "`tool/call` notes its seq on a pending id (the last one counts); it never creates "
        "one. `tool/result` removes by id alone."),
    _Row("CL-4", ("profile=session",), "results, then step/end, then turn/end interrupted",
        "No open turn, no closers. Otherwise, in this order: one error `tool/result` per "
        "pending call, `step/end` if a step is open, `turn/end {kind: interrupted}`."),
    _Row("CL-5", ("profile=session",), "the exact content of the closers",
        "seq continues from the last event; time is the last event's time; a result carries "
        "the open turn, the message's step, `isError: true`, error `{name: InterruptedError, "
        "code: interrupted}`, `surfaceOp: append`, `sourceEventSeqs: [seq of its tool/call]` "
        "if that was logged, and one text block: `Tool call interrupted by a crash; no result "
        "was recorded.` (Other dialects are compared by structure.)"),
    _Row("CL-6", ("profile=session",), "closing a partly closed log gives the missing closers",
        "closers(e + k[:i]) == k[i:] for k = closers(e) and every i."),
    _Row("CL-7", ("profile=session",), "a stored turn/end interrupted is a commit point",
        "A `turn/end interrupted` in storage is a commit point like any other."),
    _Row("DM-1", ("detects=torn",), "damage in the committed region is refused as corruption",
        "A record that does not parse, or a wrong seq, in the committed region: `load` refuses "
        "with *corruption*, naming file and line (or row) and reason; not a byte changes."),
    _Row("DM-2", ("detects=torn",), "the torn tail is dropped, reported, and copied if it matters",
        "After the committed region, the first line that does not parse and everything behind "
        "it are the torn tail; it begins at that line's first byte (but see DM-4). It is "
        "dropped before the closers are written, and reported (line, byte, byte count). If a "
        "whole line in it is a complete record, a copy of the torn tail is first made durable "
        "beside the log, named after the log, the offset and a digest of the bytes, so that a "
        "repeated repair makes no second copy and no reader takes it for a log."),
    _Row("DM-3", ("detects=gap",), "a good record with a wrong seq is refused",
        "A well-formed record with a wrong seq (gap, repeat, step back) standing before the "
        "first line that does not parse is refused, also after the last turn/end: crashes "
        "destroy bytes, they do not forge good records. Behind a line that does not parse, "
        "seqs are not looked at; DM-1 or DM-2 decides. (Third-party stores may cut the tail "
        "instead; the certificate says which.)"),
    _Row("DM-4", ("detects=torn",), "a complete record at the cut is kept",
        "If the first line of the tail that does not parse, or the end of the file without "
        "newline, begins with a complete record that passes the full check and carries the "
        "expected seq, that record is kept whatever follows it, and the torn tail starts after "
        "it. Order: copy (DM-2), cut, fsync, newline, fsync, closers."),
    _Row("DM-5", (), "records are read strictly",
        "Strict reading. A record has a non-empty string `type`, an integer `seq` 0…2^53−1, a "
        "number `time` and `data` of any JSON value; further keys are kept verbatim; at most "
        "200 levels counted from the record's own brace. Repeated keys at any depth, "
        "NaN/Infinity, `1e999`, invalid UTF-8, raw surrogates, a BOM, a blank line, a record "
        "that is not an object, a bool or string or float seq: all unparsable. CRLF line ends "
        "are accepted and never written. NUL runs are just unparsable bytes. `append` refuses "
        "whatever `load` would refuse."),
    _Row("DM-6", ("header",), "a file without a whole header is never materialised",
        "A file without any newline that is not exactly one complete header (zero bytes, cut "
        "header, NULs only): *never materialised*, its own error; the next first flush, under "
        "the lock, moves it aside as a copy and goes on. Exactly one complete header without "
        "newline: zero events, newline added. A first line that ends in a newline and is no "
        "header: corruption at line 1, never overwritten."),
    _Row("DM-7", (), "a flipped bit is never returned as data",
        "With `detects: bitflip`, any single flipped bit is refused or repaired, never "
        "returned as data. Without it the certificate counts how many flips came back silently."),
    _Row("DM-8", ("inspects",), "inspect and list never write",
        "`inspect` and `list` never write."),
    _Row("IO-1", (), "a storage error makes append raise",
        "An error from write, fsync, rename or truncate makes `append` raise; nothing is "
        "swallowed and nothing is queued in secret."),
    _Row("IO-2", (), "after an error the acknowledged prefix still loads",
        "After an error the acknowledged prefix still loads. After a failed write the store "
        "cuts back to the last acknowledged length and syncs; if that fails the writer is dead."),
    _Row("IO-3", (), "after a failed fsync the writer is dead until reopened",
        "After a failed fsync, ENOSPC included, the store cuts back as best it can, raises, "
        "and the writer is dead until `reopen` or a new store object; no later successful "
        "fsync turns those bytes into acknowledged ones. Not judged, and printed as a limit: a "
        "kill between the failed fsync and the cut, followed by a load in the same boot."),
    _Row("IO-4", (), "short writes go on, EINTR is retried, ENOSPC can pass",
        "Short writes are continued; EINTR is retried; ENOSPC from write that goes away lets "
        "work continue with no gap and no repeat."),
    _Row("IO-5", ("repairs=load",), "load works where the repair cannot be written",
        "When the repair cannot be written (read-only, full), `load` still returns L, marked "
        "not durable, and `append` is refused until a repair succeeds. SQLite on read-only "
        "media: database and WAL are copied to a private temporary folder and read there; "
        "`immutable` only when neither `-wal` nor `-journal` lies beside it."),
    _Row("IO-6", (), "append refuses when its file was replaced or removed",
        "A session file replaced, truncated or unlinked under a live writer: `append` refuses; "
        "it never re-creates a file without a header."),
    _Row("MW-1", ("writers=one-locked",), "of two writers at most one can append",
        "Two writers on one session: at most one can append; the other gets *conflict* before "
        "anything is written, also across processes, also when the first is stopped and "
        "continued, also for two first flushes of one id."),
    _Row("MW-2", ("writers=one-locked",), "a lock dies with its process",
        "A lock dies with its process, also when a child it forked lives on: no stale lock "
        "after SIGKILL, no guess by pid or age."),
    _Row("MW-3", ("writers=one-locked",), "only the holder of the lock repairs",
        "Only a holder of the writer lock repairs. `load` while another holds it, or where the "
        "lock cannot be had (permission, read-only), gives a consistent prefix with virtual "
        "closers, marked not durable, and writes nothing."),
    _Row("MW-4", ("writers=one-locked",), "a stale cursor is caught by looking at the storage",
        "A stale cursor is caught at the next append by looking at the storage, not at memory."),
    _Row("MW-5", ("writers=many",), "of two appends with one first seq exactly one wins",
        "With `many`, of two appends with one first seq exactly one is acknowledged; the other "
        "gets *sequence mismatch* or *conflict*; both may go on."),
    _Row("LV-1", (), "write-behind drains at flush, turn/end and close",
        "A live session appends synchronously in memory; a write-behind buffer drains at the "
        "awaited flush, at every turn/end, and at close. A failed drain keeps the buffer in "
        "order. The next flush reopens a dead writer with `reopen` (the open turn goes on), "
        "drops from the buffer what storage already holds under the same seq with equal "
        "content, and retries the rest; different content is a conflict."),
    _Row("LV-2", (), "the live session enforces turn grammar",
        "The session enforces turn grammar: no nested turn or step, numbers contiguous, core "
        "events inside their turn and step, a result needs an earlier call. Loaded events are "
        "taken as they are; the grammar binds new ones."),
    _Row("LV-3", (), "resume continues the loaded session",
        "`resume(id)` loads, continues turn numbers, and runs on the resumed id; without a "
        "store it fails with a clear error."),
    _Row("LV-4", ("forks",), "a fork is the durable prefix; the source is untouched",
        "A fork is the source's durable prefix plus closers in the child only, header with "
        "`parentSession` and `seedLength` (the events copied from the source, closers not "
        "included); the source is untouched; the child is durable before its id is announced."),
    _Row("LV-5", (), "the message history is derived, never stored",
        "The message history is derived, never stored: `append` surface events add, `replace` "
        "splices a range; chunks and other types are ignored."),
    _Row("VD-1", (), "pass, fail or unknown; unknown never exits 0",
        "Three values: pass, fail, unknown. Unknown never exits 0."),
    _Row("VD-2", (), "a broken baseline is told apart, with exit 4",
        "Baseline: create, append one closed turn without chunks, load, and, unless durability "
        "is `none`, close, reopen, load. If that fails: *broken baseline*, exit 4. Every other "
        "failure without faults is a finding, exit 1."),
    _Row("VD-3", (), "a situation that never occurred leaves a clause unknown",
        "Each clause lists situations that must have occurred (a torn tail was recovered, a "
        "crash fell inside a repair, a call was open at a crash, an fsync failed and a later "
        "one worked…). A campaign that missed one ends unknown for that clause."),
    _Row("VD-4", (), "every violation carries its witness and its command",
        "Every violation carries: clause id, one sentence, the smallest history found, the "
        "disk image, the weakest model that shows it, and the one command that shows it again."),
    _Row("VD-5", (), "no check without a store that breaks it",
        "No check without a store that breaks it: for each clause the test suite holds at "
        "least one deliberately broken store (or live session) which that clause, and "
        "preferably only that clause, catches."),
    _Row("VD-6", (), "nothing passes in a void",
        "Nothing passes in a void: a clause with no executed case is *not exercised*; an empty "
        "store class is refused. Every fault is proven to have landed (the kill fell inside "
        "the append, the cut removed n bytes), else the case is a harness error."),
    _Row("VD-7", (), "the level says what is to be proven",
        "`--level none|process|power` is what is to be proven: `none` = RW, CL, DM; `process` "
        "adds the `kill` model; `power` adds `ordered` and `posix`, and the certificate says "
        "apart whether it holds on `ordered` only. Default: what the store claims. Clauses "
        "outside the level are *not requested* and do not touch the exit code; *unknown* is "
        "for requested ones. A level above the claim is tested all the same, and the "
        "certificate says so."),
)
# fmt: on


def _clause_of(row: _Row) -> Clause:
    group, _, _ = row.id.partition("-")
    return Clause(
        id=row.id,
        group=group,
        sentence=row.sentence,
        level=_GROUPS[group].level,
        requires=row.requires,
        summary=row.summary,
    )


GROUPS: Final[Mapping[str, str]] = MappingProxyType(
    {name: group.title for name, group in _GROUPS.items()}
)
"""The groups in the contract's order, each with its heading."""

CLAUSES: Final[Mapping[str, Clause]] = MappingProxyType({row.id: _clause_of(row) for row in _ROWS})
"""Every clause by its id, in the contract's order."""


def clause(clause_id: str) -> Clause:
    """Return the clause of that id.

    Raises:
        UnknownClauseError: there is none; a :class:`KeyError` that names the nearest ids.
    """
    try:
        return CLAUSES[clause_id]
    except KeyError:
        near = difflib.get_close_matches(clause_id.strip().upper(), CLAUSES, n=3, cutoff=0.6)
        raise UnknownClauseError(clause_id, tuple(near)) from None


def check_selector(selector: str) -> None:
    """Raises unless that is the id of a clause, or of a group, that a run can judge.

    Raises:
        UnknownClauseError: there is none; or, as `NotJudgedError`, it is about torntail itself.
    """
    if selector not in GROUPS:
        clause(selector)
    if _GROUPS[selector.partition("-")[0]].level == "harness":
        raise NotJudgedError(selector, ())


def clauses_in_group(group: str) -> tuple[Clause, ...]:
    """Return the clauses of a group such as ``"RW"``, in the contract's order.

    Raises:
        KeyError: there is no such group.
    """
    if group not in GROUPS:
        raise KeyError(f"no group {group!r} in the contract; the groups are {', '.join(GROUPS)}")
    return tuple(entry for entry in CLAUSES.values() if entry.group == group)
