"""Drawn plans keep the turn grammar and the contract; values keep to what a store claims."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from torntail.drive.inline_store import InlineStore
from torntail.drive.target import target_of
from torntail.explore.script import Case
from torntail.explore.strategies import (
    any_sequences,
    crash_points,
    damages,
    headers,
    io_faults,
    json_values,
    lawful_sequences,
    plans,
)
from torntail.judge.capabilities import Capabilities
from torntail.judge.history import Append, Create, Inspect, ListSessions, Load, Observation, Reopen
from torntail.judge.oracle import judge
from torntail.session import (
    encode_event,
    encode_header,
    parse_event,
    parse_header,
    same_json,
    turn_grammar_problem,
)

JSON = Capabilities(durability="none")
I_JSON = Capabilities(durability="none", values="i-json")
DURABLE = Capabilities()


def sessions(plan: Case) -> dict[str, list[Any]]:
    """The events each session was given."""
    logs: dict[str, list[Any]] = {}
    for operation in plan.operations:
        if isinstance(operation, Append):
            logs.setdefault(operation.session, []).extend(operation.events)
    return logs


@settings(max_examples=100)
@given(plans(JSON))
def test_a_store_that_keeps_the_contract_takes_every_plan(plan: Case) -> None:
    store = InlineStore(target_of("memory").factory, None)  # type: ignore[arg-type]
    history = []
    for operation in plan.operations:
        match operation:
            case Create(header=header):
                outcome = store.create(header)
            case Append(session=session, events=events):
                outcome = store.append(session, events)
            case Load(session=session):
                outcome = store.load(session)
            case Inspect(session=session):
                outcome = store.inspect(session)
            case ListSessions():
                outcome = store.list()
            case _:
                raise AssertionError(operation)
        history.append(Observation(operation, outcome))
    judging = judge(tuple(history), JSON)
    assert [one for one in judging.judgements if not one.passed] == []
    assert judging.cut_short is None


@given(plans(DURABLE))
def test_a_reopened_session_goes_on_behind_its_closers(plan: Case) -> None:
    reopened = [index for index, one in enumerate(plan.operations) if isinstance(one, Reopen)]
    for session, events in sessions(plan).items():
        seqs = [event.seq for event in events]
        assert seqs == sorted(set(seqs))
        gaps = len(seqs) and seqs[-1] + 1 - len(seqs)
        loads = sum(isinstance(one, Load) and one.session == session for one in plan.operations)
        # Closers are the store's to write, where a load or a reopened append makes it.
        assert gaps == 0 or reopened or loads


@given(lawful_sequences())
def test_lawful_sequences_keep_the_grammar(events: list[Any]) -> None:
    assert turn_grammar_problem(events) is None


@given(any_sequences(surface=True))
def test_any_sequences_are_events(events: list[Any]) -> None:
    for event in events:
        assert same_json(parse_event(encode_event(event)).to_json(), event.to_json())


@given(headers(JSON))
def test_headers_can_be_written(header: Any) -> None:
    assert parse_header(encode_header(header)) == header


def leaves(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [leaf for key, one in value.items() for leaf in [key, *leaves(one)]]
    if isinstance(value, list):
        return [leaf for one in value for leaf in leaves(one)]
    return [value]


def is_surrogate(text: Any) -> bool:
    return isinstance(text, str) and any("\ud800" <= letter <= "\udfff" for letter in text)


@given(json_values("i-json"))
def test_what_i_json_cannot_hold_is_not_drawn_for_it(value: Any) -> None:
    for leaf in leaves(value):
        assert not is_surrogate(leaf)
        if type(leaf) is int:
            assert abs(leaf) <= 2**53 - 1
        assert not (type(leaf) is float and leaf == 0 and str(leaf) == "-0.0")


def test_odd_values_are_drawn_where_they_are_claimed() -> None:
    drawn: list[Any] = []

    @settings(max_examples=400, derandomize=True)
    @given(json_values())
    def draw(value: Any) -> None:
        drawn.extend(leaves(value))

    draw()
    texts = "".join(one for one in drawn if isinstance(one, str))
    assert any(map(is_surrogate, drawn))
    assert {"\u2028", "\u0085", "\x00"} <= set(texts)
    assert any(type(one) is int and abs(one) > 2**64 for one in drawn)


@given(st.data())
def test_faults_strike_what_is_there(data: st.DataObject) -> None:
    plan = data.draw(plans(DURABLE))
    count = len(plan.operations)
    call, model = data.draw(crash_points(plan, ("kill", "posix")))
    assert -1 <= call < count
    assert model in ("kill", "posix")
    assert 0 <= data.draw(io_faults(plan)).during < count
    for session, events in sessions(plan).items():
        damage = data.draw(damages(DURABLE, session, len(events)))
        assert damage.session == session
        assert 0 <= damage.record < len(events)


@given(st.data())
def test_damage_that_is_not_claimed_to_be_seen_is_not_drawn(data: st.DataObject) -> None:
    blind = Capabilities(detects=frozenset())
    assert data.draw(damages(blind, "a", 9)).kind == "flip"
