"""Plans and faults as Hypothesis strategies: the same operations that `plans` gives from a seed.

    @given(plans(Capabilities()))
    def test_something(plan): ...

Decides what is drawn: headers, odd ids, events of every type of the vocabulary in lawful order,
sequences in any order, whole plans, and the faults that may strike them. Values are drawn as far as
the store claims to keep them (`strategies_json`). Does not decide how a step is written
(`fuzz_work`) or what should come of anything (`judge`).
"""

from __future__ import annotations

from typing import Any, Final

from hypothesis import strategies as st

from torntail.crash.disk import Model
from torntail.crash.io_faults import IoFault, SyncFailure
from torntail.explore.fuzz_work import MOST_SESSIONS, Note, Work
from torntail.explore.script import Case, Script
from torntail.explore.strategies_json import json_events, json_numbers, json_texts, json_values
from torntail.judge.capabilities import Capabilities
from torntail.judge.history import Append, Damage, DamageKind
from torntail.session import SessionEvent, SessionHeader
from torntail.session import vocabulary as words

__all__ = [
    "any_sequences",
    "crash_points",
    "damages",
    "headers",
    "io_faults",
    "json_events",
    "json_numbers",
    "json_texts",
    "json_values",
    "lawful_sequences",
    "notes",
    "odd_ids",
    "plans",
    "working_directories",
]

# --- sessions -----------------------------------------------------------------------------------

ODD_IDS: Final = (
    "..",
    ".",
    "../outside",
    "a/b",
    "/absolute",
    "a\\b",
    "nul\x00inside",
    "line\nfeed",
    "\ud800",
    "é",
    "e\u0301",
    "CON",
    "a.jsonl",
    "a.tmp",
    ".hidden",
    "-rf",
    " ",
    "%2e%2e",
    "~",
    "x" * 300,
    "é" * 150,
)
"""Ids that have led stores out of their directory, or to another session's file (RW-10)."""


def odd_ids(capabilities: Capabilities) -> st.SearchStrategy[str]:
    """Ids a store has to keep faithfully or refuse clearly."""
    clean = capabilities.values == "i-json"
    known = [one for one in ODD_IDS if not (clean and "\ud800" in one)]
    return st.sampled_from(known)


def working_directories() -> st.SearchStrategy[str | None]:
    """Where a session works, if anywhere."""
    return st.sampled_from(["/projects/torntail", "/wörk", None, "relative/..", "/"])


def headers(capabilities: Capabilities) -> st.SearchStrategy[SessionHeader]:
    """Headers of version 0 with any id."""
    ids = st.one_of(st.uuids().map(str), odd_ids(capabilities))
    return st.builds(
        SessionHeader,
        id=ids,
        created_at=st.one_of(st.integers(0, 2**41), st.just(0.5)),
        cwd=working_directories(),
    )


# --- events -------------------------------------------------------------------------------------


def notes(capabilities: Capabilities) -> st.SearchStrategy[Note]:
    """Events that no turn needs: the other types of the vocabulary, unknown types, odd values."""
    value = st.one_of(
        json_values(capabilities.values),
        st.sampled_from([300, 3_000, 9_000]).map("x".__mul__),
        st.integers(2, 150).map(_nested),
    )
    unknown = st.sampled_from(["note", "x", "turn/started", "session", "\u2028"])
    wrapped = value.map(lambda one: {"note": one})
    return st.one_of(
        st.builds(_note, unknown, wrapped),
        st.builds(_note, unknown, value),
        st.sampled_from(_NOTES),
    )


def _note(kind: str, data: Any) -> Note:
    return Note(kind, data)


def _nested(levels: int) -> list[Any]:
    nest: list[Any] = []
    for _ in range(levels):
        nest = [nest]
    return nest


_PLUGIN: Final[words.MessageSource] = {"kind": "plugin", "plugin": "p"}
_SAMPLES: Final = (
    words.context_message(seq=0, time=0, content=[words.text("more")], source=_PLUGIN),
    words.steering_message(seq=0, time=0, turn=0, content=[words.text("no")], source=words.USER),
    words.prompt_blocked(
        seq=0, time=0, content=[words.text("rm")], source=words.USER, reason="not allowed"
    ),
    words.todo_write(seq=0, time=0, todos=[{"content": "write", "status": "pending"}]),
    words.compact_start(seq=0, time=0, turn=0),
    words.compact_end(seq=0, time=0, turn=0),
    words.compact_summary(
        seq=0,
        time=0,
        summary=[words.text("so far")],
        shadowed_range=(0, 1),
        shadowed_seqs=[0, 1],
        shadowed_token_count=7,
    ),
    words.hook_invoked(seq=0, time=0, turn=0, point="before", dialect="d", handler_id="h"),
    words.hook_result(
        seq=0, time=0, turn=0, point="before", handler_id="h", decision="allow", duration_ms=0.5
    ),
)
_NOTES: Final = tuple(
    # The turn is filled in where the event is written.
    Note(
        sample.type,
        {key: value for key, value in sample.data.items() if key != "turn"},
        sample.surface_op,
    )
    for sample in _SAMPLES
    if isinstance(sample.data, dict)
)

# --- sequences of events ------------------------------------------------------------------------

_CALL_IDS: Final = ["a", "b", "", "a", None, 7, ["a"], {"id": 1}, "\ud800"]
_small = st.integers(0, 3)
_blocks = st.lists(
    st.one_of(
        st.builds(
            lambda name: {"type": "tool-call", "id": name, "name": "f"}, st.sampled_from(_CALL_IDS)
        ),
        st.builds(
            lambda name: {"type": "tool-result", "toolCallId": name}, st.sampled_from(_CALL_IDS)
        ),
        st.sampled_from([{"type": "text", "text": "x"}, {"type": "tool-call"}, {}, None, 7, "x"]),
    ),
    max_size=3,
)
_odd_data = st.sampled_from(
    [None, 0, "", [], {}, {"turn": None}, {"turn": 1.5, "step": True}, {"content": 1}, [None]]
)
_members: Final[dict[str, st.SearchStrategy[Any]]] = {
    "turn": _small,
    "step": _small,
    "callId": st.sampled_from(_CALL_IDS),
    "content": st.one_of(_blocks, _blocks, st.none(), st.just("text")),
    "reason": st.just({"kind": "completed"}),
    "isError": st.booleans(),
}
_data = st.one_of(st.fixed_dictionaries({}, optional=_members), _odd_data)
_types = st.sampled_from(
    [
        *("turn/start", "step/start", "assistant/message", "tool/call", "tool/result") * 2,
        "assistant/message",
        "turn/end",
        "step/end",
        "user/message",
        "steering/message",
        "context/message",
        "assistant/chunk",
        "compact/start",
        "note",
    ]
)


@st.composite
def any_sequences(draw: st.DrawFn, *, surface: bool = False) -> list[SessionEvent]:
    """Events in any order with any data, contiguous in seq; with surface operations if asked."""
    first = draw(st.integers(0, 2))
    found = []
    for offset, (kind, data) in enumerate(draw(st.lists(st.tuples(_types, _data), max_size=14))):
        operation = draw(st.sampled_from(["append", "append", "append", None])) if surface else None
        found.append(SessionEvent(kind, first + offset, draw(_small), data, operation))
    return found


@st.composite
def lawful_sequences(draw: st.DrawFn, *, answered: bool = False) -> list[SessionEvent]:
    """A session as an agent writes it, cut anywhere.

    With `answered`, no closed step leaves a call without a result.
    """
    plan = draw(plans(Capabilities(), sessions=1, storeless=True, answered=answered, odd=False))
    events = [
        event
        for operation in plan.operations
        if isinstance(operation, Append)
        for event in operation.events
    ]
    return events[: draw(st.integers(0, len(events)))]


# --- plans --------------------------------------------------------------------------------------


@st.composite
def plans(
    draw: st.DrawFn,
    capabilities: Capabilities,
    *,
    most_steps: int = 12,
    sessions: int = MOST_SESSIONS,
    storeless: bool = False,
    answered: bool = False,
    odd: bool = True,
) -> Case:
    """A plan for a store with these claims, as the steps of the machine write it.

    `storeless`: no reopen, load or look, only events. `answered` as in `lawful_sequences`. Without
    `odd`, events of other types hold no odd values.
    """
    script = Script(f"plan/{draw(st.integers(0, 2**32 - 1))}", capabilities)
    work = Work(script, batch=draw(st.sampled_from([1, 3, 100])))
    work.create(draw(working_directories()))
    steps = ["turn", "step", "message", "message", "answer", "chunks", "note", "flush"]
    if not storeless:
        steps += ["load", "look"]
        steps += ["reopen"] if script.durable else []
        steps += ["fork"] if capabilities.forks else []
    if sessions > 1:
        steps.append("create")
    noted = notes(capabilities) if odd else st.sampled_from(_NOTES)
    for step in draw(st.lists(st.sampled_from(steps), min_size=1, max_size=most_steps)):
        desk = draw(st.sampled_from(work.desks)) if len(work.desks) > 1 else work.desks[0]
        match step:
            case "turn":
                work.turn(desk, answered=answered or draw(st.booleans()))
            case "step":
                work.step(desk, answered=answered or draw(st.booleans()))
            case "message":
                work.message(desk, draw(_small))
            case "answer":
                work.answer(desk, draw(st.integers(1, 3)), backwards=draw(st.booleans()))
            case "chunks":
                work.chunks(desk, draw(st.integers(1, 3)))
            case "note":
                work.note(desk, draw(noted))
            case "flush":
                work.flush(desk)
            case "load":
                work.load(desk)
            case "look":
                work.look(draw(st.sampled_from([None, desk])))
            case "reopen":
                work.reopen()
            case "fork":
                work.fork(desk)
            case "create" if len(work.desks) < sessions:
                work.create(draw(working_directories()))
    work.finish()
    return Case("drawn", (), tuple(script.operations))


# --- faults -------------------------------------------------------------------------------------


def crash_points(plan: Case, models: tuple[Model, ...]) -> st.SearchStrategy[tuple[int, Model]]:
    """In which call of a plan the process is killed, or power fails."""
    return st.tuples(st.integers(-1, len(plan.operations) - 1), st.sampled_from(models))


def damages(
    capabilities: Capabilities, session: str, events: int, calls: tuple[int, ...] = ()
) -> st.SearchStrategy[Damage]:
    """What may be done behind a store's back to a log of so many events, at least one.

    `calls` are the records in the midst of tool calls: there a log is cut as a crash would cut it.
    Damage that the store does not claim to detect is left out, but for a flipped bit, which is
    counted then.
    """

    def damage(kind: DamageKind, record: int, amount: int = 0, variant: str = "") -> Damage:
        return Damage(session=session, kind=kind, record=record, amount=amount, variant=variant)

    record = st.integers(0, events - 1)
    last = st.integers(max(events - 4, 0), events - 1)
    flip = st.builds(damage, st.just("flip"), record, st.integers(0, 2_000))
    torn = [
        # A torn tail, and one in the midst of tool calls; two writes spliced into one line.
        st.builds(damage, st.just("cut"), last, st.sampled_from([-1, -2, 0, 1, 20])),
        st.builds(damage, st.just("cut"), st.sampled_from(calls or (events - 1,)), st.just(0)),
        st.builds(damage, st.just("garble"), st.one_of(last, record)),
        st.builds(
            damage, st.just("trail"), record, st.just(0), st.sampled_from(["rubbish", "fragment"])
        ),
        st.builds(damage, st.just("add"), last, st.just(0), st.sampled_from(_ADDED)),
    ]
    gap = [
        st.builds(damage, st.sampled_from(["delete", "duplicate"]), record),
        st.builds(damage, st.just("renumber"), record, st.sampled_from([1, 2])),
    ]
    return st.one_of(
        flip,
        *(torn if "torn" in capabilities.detects else ()),
        *(gap if "gap" in capabilities.detects else ()),
    )


_ADDED: Final = ("fragment", "nul-run", "nul-line", "rubbish-line", "glued-line")


def io_faults(plan: Case) -> st.SearchStrategy[IoFault]:
    """An error of the disk in one of the calls of a plan."""
    during = st.integers(0, max(len(plan.operations) - 1, 0))
    lasts = st.sampled_from(["once", "once", "on"])
    failed_sync = st.builds(
        SyncFailure,
        pages=st.sampled_from(["clean-new", "clean-old", "dirty"]),
        reported=st.sampled_from(["once", "again"]),
    )
    return st.one_of(
        st.builds(
            IoFault,
            during=during,
            on=st.just("write"),
            nth=_small,
            error=st.sampled_from(["ENOSPC", "EIO", None]),
            length=st.sampled_from([0, 1, 7, 100]),
            lasts=lasts,
        ),
        st.builds(
            IoFault,
            during=during,
            on=st.sampled_from(["sync", "sync-directory"]),
            nth=_small,
            error=st.sampled_from(["EIO", "ENOSPC"]),
            lasts=lasts,
            sync=failed_sync,
        ),
        st.builds(
            IoFault,
            during=during,
            on=st.sampled_from(["any", "create", "truncate", "rename", "link", "unlink", "mkdir"]),
            nth=_small,
            error=st.sampled_from(["ENOSPC", "EIO"]),
            lasts=lasts,
        ),
    )
