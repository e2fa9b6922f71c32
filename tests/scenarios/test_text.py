"""Scenarios as text: what is saved is what is loaded, in the same text each time."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.scenarios.schema_check import problems
from tests.scenarios.values import data, scenarios
from torntail.judge.history import Append, Create, Load
from torntail.scenarios.content import BadContent, bytes_of, pieces_of
from torntail.scenarios.format import Expectation, FileFault, Scenario
from torntail.scenarios.reading import parse_scenario
from torntail.scenarios.schema import SCHEMA_PATH, schema, schema_text
from torntail.scenarios.text import scenario_text
from torntail.session import SessionEvent, SessionHeader, same_json


@settings(max_examples=60, deadline=None)
@given(scenarios())
def test_what_is_saved_is_loaded(scenario: Scenario) -> None:
    text = scenario_text(scenario)
    loaded = parse_scenario(text.encode("utf-8"), "x.json")
    assert loaded == scenario
    assert scenario_text(loaded) == text
    assert problems(schema(), json.loads(text)) == []


@settings(max_examples=120, deadline=None)
@given(data | st.binary(max_size=300))
def test_bytes_come_back_from_their_pieces(content: bytes) -> None:
    pieces = pieces_of(content)
    assert bytes_of(pieces, 1 << 20) == content
    assert bytes_of(json.loads(json.dumps(pieces)), 1 << 20) == content
    assert pieces_of(content) == pieces


def test_pieces_are_what_a_person_reads() -> None:
    content = b'{"a":1}\n{"a":"\xff\n' + b"\0" * 30 + b"tail \\ \xc3\xa9"
    assert pieces_of(content) == [
        {"a": 1},
        '{"a":"\\xff\n',
        ["\0", 30],
        "tail \\\\ é",
    ]


@pytest.mark.parametrize(
    ("piece", "told"),
    [
        ("a \\ b", "stands alone"),
        ("\ud800", "no bytes in UTF-8"),
        (["ab", 0], "neither"),
        (["ab", True], "neither"),
        (["ab", 2**70], "more than"),
        (["ab", 1.0], "neither"),
        (7, "neither"),
        (None, "neither"),
    ],
)
def test_a_piece_that_stands_for_nothing_is_refused(piece: object, told: str) -> None:
    with pytest.raises(BadContent, match=told) as caught:
        bytes_of(["good", piece], 1_000)
    assert caught.value.index == 1


def test_the_text_is_laid_out_for_a_person() -> None:
    event = SessionEvent("turn/start", 0, 1, {"turn": 1, "note": "\u2028\ud800é"})
    scenario = Scenario(
        torntail=1,
        id="a",
        kind="gap",
        title="A title",
        plan=(Append(session="s", events=(event, event)), Load(session="s", probes=("DM-3",))),
        faults=(),
        expect=(Expectation(clause="DM-3", outcome="it is refused"),),
    )
    assert scenario_text(scenario) == (
        "{\n"
        '  "torntail": 1,\n'
        '  "id": "a",\n'
        '  "class": "gap",\n'
        '  "title": "A title",\n'
        '  "plan": [\n'
        '    {"operation": "append", "session": "s", "events": [\n'
        '      {"type": "turn/start", "seq": 0, "time": 1, "data": {"turn": 1, "note": '
        '"\\u2028\\ud800é"}},\n'
        '      {"type": "turn/start", "seq": 0, "time": 1, "data": {"turn": 1, "note": '
        '"\\u2028\\ud800é"}}\n'
        "    ]},\n"
        '    {"operation": "load", "probes": ["DM-3"], "session": "s"}\n'
        "  ],\n"
        '  "expect": [\n'
        '    {"clause": "DM-3", "outcome": "it is refused"}\n'
        "  ]\n"
        "}\n"
    )


def test_values_keep_their_kind() -> None:
    numbers = [-0.0, 0, 1.0, 1, True, 10**300, 5e-324, 1e22]
    event = SessionEvent("x", 0, 1.5, numbers)
    scenario = Scenario(
        torntail=1,
        id="a",
        kind="gap",
        title="t",
        plan=(Create(header=SessionHeader("s", 1)), Append(session="s", events=(event,))),
        expect=(Expectation(clause="DM-3", outcome="o"),),
    )
    _, append = parse_scenario(scenario_text(scenario).encode(), "x").plan
    assert isinstance(append, Append)
    assert [type(one) for one in append.events[0].data] == [type(one) for one in numbers]
    assert same_json(append.events[0].to_json(), event.to_json())


def test_a_run_is_written_short() -> None:
    scenario = Scenario(
        torntail=1,
        id="a",
        kind="gap",
        title="t",
        plan=(Load(session="s"),),
        faults=(FileFault(path="a", data=b"x" * 2_000_000),),
        expect=(Expectation(clause="DM-3", outcome="o", session="s", loads="corrupted"),),
    )
    text = scenario_text(scenario)
    assert len(text) < 600
    assert parse_scenario(text.encode(), "x") == scenario


def test_the_schema_is_current() -> None:
    shown = SCHEMA_PATH.read_text(encoding="utf-8")
    assert shown == schema_text(), "run python -m torntail.scenarios.schema"
