"""The corpus: every file in its place and worth its place, its page current, the store passing."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections import Counter

import msgspec
import pytest

from tests.scenarios import corpus_found, corpus_shapes, corpus_zoo
from tests.scenarios.corpus_page import page_text
from tests.scenarios.make_corpus import CORPUS, PAGE, corpus, written
from tests.scenarios.schema_check import problems
from torntail.scenarios.batch import replay_files
from torntail.scenarios.files import find_scenarios, load_scenario, odd_place, place_of
from torntail.scenarios.format import CrashFault, DeviceStrike, FileFault, Scenario
from torntail.scenarios.reading import parse_scenario
from torntail.scenarios.replay import Replayer, StoreChoice, replay
from torntail.scenarios.schema import schema
from torntail.scenarios.text import scenario_text
from torntail.scenarios.worker import ReplayOrder

FILES = find_scenarios([CORPUS])


def test_every_file_is_in_its_place_and_in_its_text() -> None:
    rules = schema()
    for path in FILES:
        scenario = load_scenario(path)
        assert odd_place(scenario, path) is None
        assert path == place_of(scenario, CORPUS)
        text = path.read_text(encoding="utf-8")
        assert text == scenario_text(scenario), path
        assert problems(rules, json.loads(text)) == [], path


def test_no_two_have_one_id_and_each_says_what_it_is_for() -> None:
    scenarios = corpus()
    assert [name for name, count in Counter(one.id for one in scenarios).items() if count > 1] == []
    for one in scenarios:
        assert one.store == "jsonl"
        for text in (one.title, one.teaches, one.origin):
            assert not text[:1].islower(), one.id
            assert 10 <= len(text) <= 400, one.id
        assert one.teaches.endswith("."), one.id


def test_the_corpus_covers_what_it_is_to_cover() -> None:
    scenarios = corpus()
    kinds = Counter(one.kind for one in scenarios)
    assert len(scenarios) >= 60
    assert {one for one in kinds if kinds[one] >= 4} >= {
        "reading-and-writing",
        "torn-tail",
        "mid-tool",
        "gap",
        "damage",
        "durability",
        "repair",
        "device",
        "field-report",
        "upstream",
    }
    reports = {one.id.rpartition("-")[0] for one in scenarios if one.kind == "field-report"}
    assert reports == corpus_found.classes() == set(corpus_found.TEACHES)


def test_each_store_of_the_zoo_is_broken_by_one() -> None:
    broken = {target for one in corpus() for target in one.kills}
    assert set(corpus_zoo.CRASHING) - broken == set()
    assert len(set(corpus_zoo.READING) - broken) <= 3  # Those that take more than fits in a file.


def test_what_is_made_without_a_run_is_current() -> None:
    shown = {one.id: msgspec.structs.replace(one, kills=()) for one in corpus()}
    for one in written():
        assert shown[one.id] == one, "run python -m tests.scenarios.make_corpus"


def test_the_page_is_current() -> None:
    shown = PAGE.read_text(encoding="utf-8")
    assert shown == page_text(corpus()), "run python -m tests.scenarios.make_corpus"


def test_the_reference_store_passes_them_all() -> None:
    order = ReplayOrder(paths=tuple(map(str, FILES)))
    results = replay_files(order)
    others = {
        str(one.path): one.error or (one.replay and (one.replay.status, one.replay.reason))
        for one in results
        if one.replay is None or one.replay.status != "fixed"
    }
    assert others == {}
    assert [one.path for one in results] == FILES


def test_the_same_file_gives_the_same_images_in_every_run() -> None:
    chosen = [path for path in FILES if path.parent.name in ("mid-tool", "device")]
    chosen += [path for path in FILES if path.parent.name == "field-report"][:10]
    order = ReplayOrder(paths=tuple(map(str, chosen)))
    runs = [[one.replay for one in replay_files(order)] for _ in range(2)]
    assert runs[0] == runs[1]
    assert all(one is not None and one.digest for one in runs[0])


OTHERS = [path for path in os.environ.get("TORNTAIL_TEST_PYTHONS", "").split(os.pathsep) if path]


@pytest.mark.skipif(not OTHERS, reason="TORNTAIL_TEST_PYTHONS names no other interpreter")
@pytest.mark.parametrize("python", OTHERS)
def test_the_same_file_gives_the_same_images_on_every_python(python: str) -> None:
    chosen = [path for path in FILES if path.parent.name in ("mid-tool", "device", "repair")]
    order = ReplayOrder(paths=tuple(map(str, chosen)))
    here = [one.replay for one in replay_files(order)]
    script = (
        "import sys, json, msgspec; from torntail.scenarios.worker import *;"
        "from torntail.scenarios.batch import replay_files;"
        "print(json.dumps([msgspec.to_builtins(one.replay) for one in "
        "replay_files(ReplayOrder(paths=tuple(sys.argv[1:])))]))"
    )
    places = os.pathsep.join([str(CORPUS.parent / "src"), str(CORPUS.parent)])
    environment = {**os.environ, "PYTHONPATH": places}
    ran = subprocess.run(
        [python, "-c", script, *order.paths],
        capture_output=True,
        text=True,
        env=environment,
        check=True,
    )
    there = json.loads(ran.stdout)
    assert [one["digest"] for one in there] == [one and one.digest for one in here]
    assert [one["status"] for one in there] == [one and one.status for one in here]


PAIRS = [
    (one.id, target)
    for one in corpus()
    for target in one.kills[:1]
    if one.kind in ("mid-tool", "gap", "torn-tail", "durability", "upstream", "field-report")
]


@pytest.mark.parametrize(("name", "target"), PAIRS[::7], ids=[f"{a}-{b}" for a, b in PAIRS[::7]])
def test_what_is_said_to_break_a_store_does(name: str, target: str) -> None:
    (scenario,) = (one for one in corpus() if one.id == name)
    with Replayer(StoreChoice(target)) as replayer:
        came = replayer.replay(scenario)
    assert came.status == "failed"
    assert {one.clause for one in came.findings} & {one.clause for one in scenario.expect}


@pytest.mark.slow
def test_all_that_is_said_to_break_a_store_does() -> None:
    for scenario in corpus():
        for target in scenario.kills:
            with Replayer(StoreChoice(target)) as replayer:
                came = replayer.replay(scenario)
            clauses = {one.clause for one in came.findings}
            assert clauses & {one.clause for one in scenario.expect}, (scenario.id, target)


def test_hand_written_shapes_are_of_each_kind() -> None:
    kinds = [
        {type(fault) for fault in one.faults} for one in (*corpus_shapes.scenarios(), *corpus())
    ]
    assert {kind for one in kinds for kind in one} >= {CrashFault, DeviceStrike, FileFault}


def test_the_page_about_scenarios_shows_one_that_holds() -> None:
    page = (CORPUS.parent / "docs" / "scenarios.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"^```json\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    assert replay(parse_scenario(shown.encode("utf-8"), "the page")).status == "fixed"
    fields = [field.encode_name for field in msgspec.structs.fields(Scenario)]
    assert [one for one in fields if f"`{one}`" not in page] == []
