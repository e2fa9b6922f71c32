"""The cases of LV-1 to LV-5: what a live layer does over a store that says no as told.

Each case is a function of a layer, its name a sentence, that raises `LiveFinding`; those of LV-1
stand in `cases_lv_storing`. Crashes are not here: they need real processes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from torntail.explore.cases_lv_storing import STORING
from torntail.explore.live import LiveCase, LiveFinding, LiveLayer, LiveSession, expect, refused
from torntail.explore.live_store import TroubledStore
from torntail.explore.live_words import (
    HEADER,
    OPEN,
    TURN,
    Word,
    again,
    assistant,
    chunk,
    events_of,
    expect_kept,
    expect_stored,
    flush,
    same,
    say,
    step,
    tool_call,
    tool_result,
    turn_end,
    turn_start,
    user,
)
from torntail.session import derive_messages, interrupted_turn_closers, same_json
from torntail.session import vocabulary as words

__all__ = ["LIVE_CASES"]

# --- LV-2 ---------------------------------------------------------------------------------------

_STEP: Final = (turn_start(), step("start"))
_CALLED: Final = (*_STEP, assistant("c1"), tool_call("c1"))

_UNLAWFUL: Final[Sequence[tuple[str, Sequence[Word], Word]]] = (
    ("a turn inside a turn", [turn_start()], turn_start(2)),
    ("a step inside a step", _STEP, step("start", 2)),
    ("a first turn that is not 1", [], turn_start(2)),
    ("a turn number left out", TURN, turn_start(3)),
    ("a turn number used again", TURN, turn_start(1)),
    ("a first step that is not 1", [turn_start()], step("start", 2)),
    ("a step number used again", [*_STEP, step("end")], step("start", 1)),
    ("a step outside a turn", [], step("start")),
    ("a turn/end outside a turn", [], turn_end()),
    ("a turn/end inside a step", _STEP, turn_end()),
    ("a turn/end of another turn", [turn_start()], turn_end(2)),
    ("a step/end outside a step", [turn_start()], step("end")),
    ("a chunk outside a step", [turn_start()], chunk()),
    ("a chunk of another step", _STEP, chunk(step=2)),
    ("an assistant message outside a turn", [], assistant()),
    ("an assistant message of another turn", _STEP, assistant(turn=2)),
    ("a tool/call outside a step", [turn_start()], tool_call("c1")),
    ("a result without a call", _STEP, tool_result("c1")),
    ("a result before its tool/call", [*_STEP, assistant("c1")], tool_result("c1")),
    ("a result outside its step", [*_CALLED, step("end")], tool_result("c1")),
    ("a result of another call", _CALLED, tool_result("c2")),
)


def what_breaks_the_grammar_is_refused(layer: LiveLayer) -> None:
    """LV-2: at the append, and nothing of it is in the log."""
    for sentence, before, unlawful in _UNLAWFUL:
        session = layer.start(TroubledStore(), "a")
        say(session, *before)

        def attempt(session: LiveSession = session, unlawful: Word = unlawful) -> None:
            say(session, unlawful)

        refused("LV-2", attempt, f"{sentence} is accepted")
        kept = len(session.events()) == len(before)
        expect("LV-2", kept, f"{sentence} is refused and yet in the log")
        session.close()


def a_lawful_session_is_accepted(layer: LiveLayer) -> None:
    """LV-2: turns, steps, tools, and other types anywhere."""
    session = layer.start(TroubledStore(), "a")
    second = (turn_start(2), step("start", turn=2), assistant("c1", "c2", turn=2))
    calls = (tool_call("c2", turn=2), tool_call("c1", turn=2), tool_result("c1", turn=2))
    rest = (tool_result("c2", turn=2), step("end", turn=2), step("start", 2, 2), step("end", 2, 2))
    said = (("note", {"at": 0}), *TURN, ("note", None), *second, *calls, *rest, turn_end(2))
    try:
        say(session, *said)
    except Exception as error:
        raise LiveFinding("LV-2", f"a lawful event is refused: {error}") from error
    expect("LV-2", len(session.events()) == len(said), "lawful events are not in the log")
    session.close()


def loaded_events_are_taken_as_they_are(layer: LiveLayer) -> None:
    """LV-2: a stored log that breaks the grammar is resumed; new events keep it."""
    store = TroubledStore()
    loose = (user(), turn_start(7), turn_start(8), chunk(9, 9), turn_end(3))
    store.put(HEADER, events_of(*loose))
    try:
        session = layer.resume(store, "a")
    except Exception as error:
        raise LiveFinding("LV-2", f"a stored log is refused: {error}") from error
    expect("LV-2", same(session.events(), events_of(*loose)), "loaded events were changed")
    refused("LV-2", lambda: say(session, chunk()), "a chunk outside a step is accepted")
    session.close()


# --- LV-3 ---------------------------------------------------------------------------------------


def resume_goes_on_where_the_log_ends(layer: LiveLayer) -> None:
    """LV-3: seqs and turn numbers continue, under the same id, and nothing is stored twice."""
    store = TroubledStore()
    before = events_of(*TURN)
    store.put(HEADER, before)
    session = layer.resume(store, "a")
    expect("LV-3", session.header == HEADER, "the resumed session has another header")
    expect("LV-3", same(session.events(), before), "the resumed log is not the stored one")
    flush("LV-3", session, "the flush of a resumed session")
    expect("LV-3", same(store.stored("a"), before), "resume stored something again")
    try:
        say(session, turn_start(2), turn_end(2))
    except Exception as error:
        raise LiveFinding("LV-3", f"turn 2 does not follow turn 1: {error}") from error
    expect_kept("LV-3", store, session, "of a resumed session")
    seqs = [event.seq for event in store.stored("a")]
    expect("LV-3", seqs == [*range(len(before) + 2)], "seqs do not go on")


def resume_closes_the_interrupted_turn(layer: LiveLayer) -> None:
    """LV-3: as load does; then the next turn begins."""
    store = TroubledStore()
    cut = events_of(*OPEN)
    store.put(HEADER, cut)
    session = layer.resume(store, "a")
    closed = [*cut, *interrupted_turn_closers(cut)]
    expect("LV-3", same(session.events(), closed), "the interrupted turn is not closed")
    try:
        say(session, turn_start(2))
    except Exception as error:
        raise LiveFinding("LV-3", f"turn 2 does not follow turn 1: {error}") from error
    expect_kept("LV-3", store, session, "of a resumed session")


def resume_again_and_again(layer: LiveLayer) -> None:
    """LV-3: a closed session can be resumed, in this process and any number of times."""
    store = TroubledStore()
    session = layer.start(store, "a")
    for turn in (1, 2, 3):
        say(session, turn_start(turn), user(f"turn {turn}"), turn_end(turn))
        session.flush()
        session.close()
        try:
            session = layer.resume(store, "a")
        except Exception as error:
            raise LiveFinding("LV-3", f"a closed session is not resumed: {error}") from error
    expect_stored("LV-3", store, session, "after three turns")
    session.close()


def resume_of_a_running_session_is_refused(layer: LiveLayer) -> None:
    """LV-3: its open turn must not be closed under its feet."""
    store = TroubledStore()
    session = layer.start(store, "a")
    say(session, *OPEN)
    session.flush()
    before = store.stored("a")
    refused("LV-3", lambda: layer.resume(store, "a"), "a running session is resumed")
    expect("LV-3", same(store.stored("a"), before), "the running session was repaired")
    session.close()


def resume_says_what_is_missing(layer: LiveLayer) -> None:
    """LV-3: without a store a clear error; of an unknown id the store's own."""
    error = refused("LV-3", lambda: layer.resume(None, "a"), "resume without a store succeeds")
    clear = "store" in str(error) and not isinstance(error, AttributeError | TypeError)
    expect("LV-3", clear, f"resume without a store says only {error!r}")
    store = TroubledStore()
    error = refused("LV-3", lambda: layer.resume(store, "a"), "an unknown session is resumed")
    kind = getattr(error, "kind", None)
    expect("LV-3", kind == "not_found", f"resume of an unknown session says {error!r}")


# --- LV-4 ---------------------------------------------------------------------------------------


def a_fork_is_the_stored_prefix_with_closers(layer: LiveLayer) -> None:
    """LV-4: at every length, with the source's id and the length in the header."""
    source = events_of(*TURN, *(again(word) for word in OPEN))
    for at in (None, *range(1, len(source) + 1)):
        store = TroubledStore()
        store.put(HEADER, source)
        child = layer.fork(store, "a", "b", at)
        seed = source if at is None else source[:at]
        expected = [*seed, *interrupted_turn_closers(seed)]
        where = f"a fork at {at}"
        expect("LV-4", same(child.events(), expected), f"{where} has other events")
        expect_stored("LV-4", store, child, f"of {where}", "b")
        header = child.header
        expect("LV-4", header.id == "b", f"{where} has the id {header.id!r}")
        expect("LV-4", header.parent_session == "a", f"{where} does not name its parent")
        found = header.seed_length
        expect("LV-4", found == len(seed), f"{where} has seedLength {found}, not {len(seed)}")
        expect("LV-4", store.stored_header("b") == header, f"{where} has another header in storage")
        expect("LV-4", same(store.stored("a"), source), f"{where} changed its source")
        child.close()


def a_fork_knows_only_what_is_stored(layer: LiveLayer) -> None:
    """LV-4: the source may be running; its buffer is not copied, its turn not closed."""
    store = TroubledStore()
    source = layer.start(store, "a")
    say(source, *OPEN[:3])
    source.flush()
    stored = store.stored("a")
    say(source, *OPEN[3:])
    child = layer.fork(store, "a", "b")
    seed_length = child.header.seed_length
    expect("LV-4", seed_length == 3, f"a fork copied {seed_length} events where 3 are stored")
    expect("LV-4", same(store.stored("a"), stored), "a fork changed its source")
    child.close()
    expect_kept("LV-4", store, source, "of the source")


def a_fork_is_durable_before_it_is_announced(layer: LiveLayer) -> None:
    """LV-4: where the child cannot be stored, there is none."""
    store = TroubledStore()
    store.put(HEADER, events_of(*TURN))
    store.troubles.append("none stored")
    refused("LV-4", lambda: layer.fork(store, "a", "b"), "a fork that was not stored is announced")
    expect("LV-4", store.stored("b") == [], "a fork that failed is in storage")


def a_fork_goes_on(layer: LiveLayer) -> None:
    """LV-4: its numbers continue, and source and child no longer touch each other."""
    store = TroubledStore()
    cut = events_of(*OPEN)
    store.put(HEADER, cut)
    child = layer.fork(store, "a", "b")
    try:
        say(child, turn_start(2), user("in the child"), turn_end(2))
    except Exception as error:
        raise LiveFinding("LV-4", f"turn 2 does not follow in a fork: {error}") from error
    expect_kept("LV-4", store, child, "of a fork", "b")
    expect("LV-4", same(store.stored("a"), cut), "a fork changed its source")


# --- LV-5 ---------------------------------------------------------------------------------------


def the_history_is_derived_at_every_point(layer: LiveLayer) -> None:
    """LV-5: as from the log at once, whenever it is asked for."""
    for every in (1, 3, 100):
        session = layer.start(TroubledStore(), "a")
        for seq, (kind, data, operation) in enumerate(_surface()):
            session.append(kind, data, operation)
            if seq % every == 0:
                _expect_derived(session)
        _expect_derived(session)
        session.close()


def the_history_of_a_resumed_session(layer: LiveLayer) -> None:
    """LV-5: what was loaded and what came after are one history."""
    store = TroubledStore()
    session = layer.start(store, "a")
    for kind, data, operation in _surface():
        session.append(kind, data, operation)
    session.flush()
    session.close()
    session = layer.resume(store, "a")
    _expect_derived(session)
    say(session, turn_start(2), user("later"))
    _expect_derived(session)
    session.append(*user("all of it in short"), {"op": "replace", "start": 16, "end": 14})
    _expect_derived(session)
    session.close()


def the_history_is_never_stored(layer: LiveLayer) -> None:
    """LV-5: to ask for it adds nothing to the log, and to change it changes nothing."""
    store = TroubledStore()
    session = layer.start(store, "a")
    say(session, *TURN)
    messages = session.derive_messages()
    messages[0]["content"][0]["text"] = "changed"
    messages.clear()
    _expect_derived(session)
    session.flush()
    expect("LV-5", len(store.stored("a")) <= len(TURN), "something else than the log was stored")
    session.close()


def a_range_that_is_not_there_is_not_replaced(layer: LiveLayer) -> None:
    """LV-5: refused at the append, or the history could never be derived again."""
    session = layer.start(TroubledStore(), "a")
    say(session, *TURN)
    for start, end in ((0, 1), (1, 99), (4, 1), (3, 4)):
        operation = {"op": "replace", "start": start, "end": end}

        def attempt(operation: dict[str, Any] = operation) -> None:
            session.append(*user("in short"), operation)

        refused("LV-5", attempt, f"{operation} is accepted: its ends are not on the surface")
    _expect_derived(session)
    session.close()


def _surface() -> list[tuple[str, Any, Any]]:
    """A turn with every kind of surface event, and two compactions."""
    named = {"kind": "plugin", "plugin": "files"}
    context = ("context/message", {"content": [words.text("a file")], "source": named}, "append")
    steering_data = {"turn": 1, "content": [words.text("shorter")], "source": words.USER}
    return [
        (*turn_start(), None),
        (*user("first"), "append"),
        context,
        (*step("start"), None),
        (*chunk(), None),
        (*assistant("c1"), "append"),
        (*tool_call("c1"), None),
        (*tool_result("c1"), "append"),
        (*step("end"), None),
        ("steering/message", steering_data, "append"),
        ("compact/start", {"turn": 1}, None),
        (*user("the first two in short"), {"op": "replace", "start": 1, "end": 2}),
        (*step("start", 2), None),
        ("assistant/message", {"turn": 1, "step": 2, "content": []}, "append"),
        (*assistant(step=2), "append"),
        (*step("end", 2), None),
        (*user("all but the last in short"), {"op": "replace", "start": 11, "end": 13}),
        (*turn_end(), None),
        (*user("between turns"), "append"),
    ]


def _expect_derived(session: LiveSession) -> None:
    expected = derive_messages(session.events())
    found = session.derive_messages()
    at = len(session.events())
    expect("LV-5", same_json(found, expected), f"after {at} events the history is another")


_FUNCTIONS: Final[Sequence[Callable[[LiveLayer], None]]] = (
    *STORING,
    what_breaks_the_grammar_is_refused,
    a_lawful_session_is_accepted,
    loaded_events_are_taken_as_they_are,
    resume_goes_on_where_the_log_ends,
    resume_closes_the_interrupted_turn,
    resume_again_and_again,
    resume_of_a_running_session_is_refused,
    resume_says_what_is_missing,
    a_fork_is_the_stored_prefix_with_closers,
    a_fork_knows_only_what_is_stored,
    a_fork_is_durable_before_it_is_announced,
    a_fork_goes_on,
    the_history_is_derived_at_every_point,
    the_history_of_a_resumed_session,
    the_history_is_never_stored,
    a_range_that_is_not_there_is_not_replaced,
)

LIVE_CASES: Final[tuple[LiveCase, ...]] = tuple(
    LiveCase((function.__doc__ or "").partition(":")[0], function) for function in _FUNCTIONS
)
"""Every case, with its clause."""
