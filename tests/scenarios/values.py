"""Scenarios of all kinds, as Hypothesis makes them."""

from __future__ import annotations

import json
from typing import Any

import msgspec
from hypothesis import strategies as st

from torntail.crash.choices import FileChoice
from torntail.crash.crashes import Crash
from torntail.crash.devices import BitRot, CutFile, LostWrite, LyingSync, RolledBackFile
from torntail.crash.io_faults import IoFault, SyncFailure
from torntail.explore.sound_calls import created_sessions, strangers
from torntail.judge.capabilities import Capabilities
from torntail.judge.history import (
    Append,
    ChangeCallersCopy,
    Close,
    Create,
    Damage,
    Inspect,
    ListSessions,
    Load,
    Reopen,
    Spoiled,
    Together,
)
from torntail.scenarios.format import (
    SCENARIO_CLASSES,
    CrashFault,
    DeviceStrike,
    Expectation,
    FileFault,
    RecordedFinding,
    Scenario,
)
from torntail.session import SessionEvent, SessionHeader
from torntail.session.codec import join_surrogates

ODD = ["\u2028", "\x00", "\\", '"', "\ufeff", "\x7f", "\ud800", "é", "👩‍🚀", "\u202e"]


def texts(smallest: int = 0) -> st.SearchStrategy[str]:
    pieces = st.one_of(st.sampled_from(ODD), st.text(max_size=4), st.text("ab", max_size=30))
    joined = st.lists(pieces, min_size=smallest, max_size=4).map("".join).map(join_surrogates)
    return joined.filter(lambda text: len(text) >= smallest)


words = st.text("abcdefgh -", min_size=1, max_size=20).filter(str.strip)
counts = st.integers(0, 5_000)


def json_values() -> st.SearchStrategy[Any]:
    plain = st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.integers(10**40, 10**42),
        st.floats(allow_nan=False, allow_infinity=False),
        texts(),
    )
    return st.recursive(
        plain,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts(), inner, max_size=3),
    )


times = st.integers(0, 2**53) | st.floats(0, 1e300)
extra_keys = st.dictionaries(texts(1).map("x".__add__), json_values(), min_size=1, max_size=2)

headers = st.builds(
    SessionHeader,
    id=texts(1),
    created_at=times,
    cwd=st.none() | texts(),
    parent_session=st.none() | texts(),
    seed_length=st.none() | counts,
    version=st.just(0),
    extra=st.none() | extra_keys,
)
events = st.builds(
    SessionEvent,
    texts(1),
    st.integers(0, 2**53 - 1),
    times,
    json_values(),
    st.none() | st.just("append") | st.just({"op": "replace"}),
    st.none() | st.lists(counts, max_size=3),
    st.none() | extra_keys,
)
probes = st.lists(st.sampled_from(["RW-1", "DM-2", "CL-4"]), max_size=2).map(tuple)
stores = st.integers(0, 3)


def _call(operation: Any, **fields: Any) -> st.SearchStrategy[Any]:
    return st.builds(operation, probes=probes, store=stores, **fields)


def _with_a_variant(damage: Damage) -> Damage:
    return msgspec.structs.replace(damage, variant="fragment") if damage.kind == "add" else damage


batches = st.lists(events, min_size=1, max_size=3).map(tuple)
simple_calls = st.one_of(
    _call(Create, header=headers),
    _call(Append, session=texts(), events=batches),
    _call(Load, session=texts()),
    _call(Inspect, session=texts()),
)
operations = st.one_of(
    simple_calls,
    _call(Append, session=texts(), events=batches, spoiled=st.just(Spoiled(0, "nan"))),
    _call(ListSessions),
    _call(Reopen),
    _call(Close),
    _call(ChangeCallersCopy, what=st.sampled_from(["appended", "loaded"])),
    _call(Together, operations=st.lists(simple_calls, max_size=2).map(tuple)),
    _call(
        Damage,
        session=texts(),
        kind=st.sampled_from(["cut", "add", "flip", "restore"]),
        record=counts,
        amount=st.integers(-99, 99),
        other=texts(),
    ).map(_with_a_variant),
)

models = st.sampled_from(["kill", "ordered", "posix"])
choices = st.builds(
    FileChoice,
    counts,
    counts,
    st.lists(st.tuples(counts, counts, st.integers(-1, 9)), max_size=2).map(tuple),
)


def crashes(model: Any) -> st.SearchStrategy[Crash]:
    return st.builds(
        Crash,
        model=st.just(model),
        position=counts,
        torn=st.none() | counts,
        names=st.none() | st.lists(counts, max_size=3).map(tuple),
        files=st.none() | st.lists(st.tuples(counts, choices), max_size=2).map(tuple),
    )


crashable = st.one_of(
    st.builds(Create, header=headers),
    st.builds(Append, session=texts(), events=batches),
    st.builds(Load, session=texts()),
    st.builds(Reopen),
)


@st.composite
def crash_faults(draw: Any, calls: int, first: bool) -> CrashFault:
    model = draw(models)
    crash = draw(st.none() | crashes(model))
    recovery = () if first else draw(st.lists(crashable, min_size=1, max_size=3).map(tuple))
    return CrashFault(
        during=draw(st.integers(-1, (calls if first else len(recovery)) - 1)),
        model=model,
        operations="" if crash is None else draw(st.text("0123456789abcdef", min_size=4)),
        crash=crash,
        recovery=recovery,
    )


strikes = st.one_of(
    st.builds(BitRot, position=counts, inode=counts, bit=counts),
    st.builds(CutFile, position=counts, inode=counts, length=counts),
    st.builds(LostWrite, position=counts, sync=counts, inode=counts, start=counts, stop=counts),
    st.builds(
        RolledBackFile,
        position=counts,
        sync=counts,
        inode=counts,
        chunk=st.none() | st.tuples(counts, counts),
    ),
    st.builds(
        LyingSync,
        position=counts,
        syncs=st.lists(counts, max_size=2).map(tuple),
        crash=crashes("ordered"),
    ),
)
data = st.one_of(
    st.binary(max_size=40),
    texts().map(lambda text: text.encode("utf-8", "surrogatepass")),
    st.tuples(st.binary(min_size=1, max_size=1), counts).map(lambda run: run[0] * run[1]),
    st.lists(json_values(), max_size=3).map(
        lambda values: b"".join(
            json.dumps({"a": value}, separators=(",", ":")).encode() + b"\n" for value in values
        )
    ),
)


@st.composite
def scenarios(draw: Any) -> Scenario:
    kind = draw(st.sampled_from(["plain", "crash", "device", "file", "io"]))
    calls = crashable if kind in ("crash", "device", "io") else operations
    plan = draw(st.lists(calls, min_size=1, max_size=4).map(tuple))
    faults: tuple[Any, ...] = ()
    expect = [Expectation(clause="CR-1", outcome=draw(words))]
    match kind:
        case "crash":
            faults = (draw(crash_faults(len(plan), True)),)
            if draw(st.booleans()):
                faults += (draw(crash_faults(0, False)),)
        case "device":
            digest = draw(st.text("0123456789abcdef", min_size=4))
            faults = (DeviceStrike(strike=draw(strikes), operations=digest),)
        case "file":
            plan = (Load(session="s"), *plan)
            faults = (FileFault(path="a/b.jsonl", data=draw(data)),)
            expect.append(
                Expectation(
                    clause="DM-1", outcome="o", session="s", loads="ok", events=draw(counts)
                )
            )
        case "io":
            faults = (
                IoFault(
                    during=0,
                    on=draw(st.sampled_from(["any", "write", "sync"])),
                    nth=draw(counts),
                    error=draw(st.sampled_from(["EIO", "ENOSPC", None])),
                    sync=draw(st.none() | st.just(SyncFailure(pages="dirty"))),
                ),
            )
    if kind != "file":
        recoveries = [call for fault in faults for call in getattr(fault, "recovery", ())]
        made = [*plan, *recoveries]
        missing = {name: None for _, name in strangers(made, created_sessions(made))}
        plan = (*(Create(header=SessionHeader(name, 1)) for name in missing), *plan)
    found = st.builds(RecordedFinding, clause=words, sentence=words, cause=words)
    return Scenario(
        torntail=1,
        id=draw(st.text("ab0", min_size=1, max_size=9)),
        kind=draw(st.sampled_from(SCENARIO_CLASSES)),
        title=draw(words),
        teaches=draw(words),
        store=draw(words),
        durability=draw(st.sampled_from([None, "none", "process"])),
        capabilities=draw(
            st.none()
            | st.builds(
                Capabilities,
                atomic_batch=st.booleans(),
                detects=st.sets(st.sampled_from(["torn", "gap", "bitflip"])).map(frozenset),
            )
        ),
        plan=plan,
        faults=faults,
        expect=tuple(expect),
        kills=draw(st.lists(words, max_size=2).map(tuple)),
        finding=draw(st.none() | found),
    )
