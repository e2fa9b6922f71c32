"""Writes the corpus: `python -m tests.scenarios.make_corpus [--zoo] [--pin] [--kills] [ID…]`.

Without options the scenarios written by hand and those of the field reports are written anew, and
the page about them all. `--zoo` also makes the scenarios of the zoo's stores that are not there yet
(those named are made again), `--pin` puts down anew the very crash that shows each of them, as is
due when the stores of the zoo do other file operations than before, and `--kills` runs every
scenario on the stores it may break; each takes some minutes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec

from tests.scenarios import corpus_found, corpus_shapes, corpus_upstream, corpus_zoo
from tests.scenarios.corpus_page import page_text
from tests.scenarios.kills import broken_by
from torntail.record.install import install
from torntail.scenarios.files import find_scenarios, load_scenario, place_of, save_scenario
from torntail.scenarios.format import CrashFault, Scenario
from torntail.scenarios.from_finding import pinned
from torntail.scenarios.replay import Replayer, StoreChoice

CORPUS = Path(__file__).parents[2] / "fault-scenarios"
PAGE = CORPUS / "README.md"


def corpus() -> list[Scenario]:
    """What stands in the corpus."""
    return [load_scenario(path) for path in find_scenarios([CORPUS])]


def written() -> Iterator[Scenario]:
    """The scenarios that are made without running anything."""
    yield from corpus_shapes.scenarios()
    yield from corpus_upstream.scenarios()
    yield from corpus_found.scenarios()


def _write(scenario: Scenario, kills: dict[str, tuple[str, ...]]) -> None:
    if scenario.id in kills:
        scenario = msgspec.structs.replace(scenario, kills=kills[scenario.id])
    save_scenario(scenario, place_of(scenario, CORPUS))


def repinned(scenario: Scenario) -> Scenario:
    """A scenario with the very crash that shows its finding on the store it was found in."""
    finding = scenario.finding
    faults = [one for one in scenario.faults if isinstance(one, CrashFault)]
    if finding is None or not faults:
        return scenario
    with Replayer(StoreChoice(finding.store)) as replayer:
        sight = replayer.first_sight(scenario, finding.clause, finding.cause)
    if sight is None:
        _say(scenario.id, "does not show its finding any more")
        return scenario
    return msgspec.structs.replace(scenario, faults=pinned(faults, sight))


def _say(*words: object) -> None:
    sys.stderr.write(f"{' '.join(map(str, words))}\n")


def main(arguments: list[str]) -> None:
    install()
    options = {one for one in arguments if one.startswith("--")}
    names = set(arguments) - options
    known = {one.id: one for one in corpus()} if any(CORPUS.glob("*/*.json")) else {}
    kills = {one.id: one.kills for one in known.values() if one.kills}
    for scenario in written():
        _write(scenario, kills)
    for target, clause in corpus_zoo.ZOO.items():
        animal = known.get(corpus_zoo.scenario_name(target))
        if animal is not None and animal.finding is not None:
            told = corpus_zoo.told(animal, target, clause)
            if told.kind != animal.kind:
                place_of(animal, CORPUS).unlink()
            _write(told, {})
    if "--zoo" in options:
        animals = {corpus_zoo.scenario_name(target) for target in corpus_zoo.ZOO}
        wanted = names & animals or animals - known.keys()
        for target, animal in corpus_zoo.scenarios(wanted):
            _say(target, "no scenario" if animal is None else animal.kind)
            if animal is not None:
                _write(animal, {})
    if "--pin" in options:
        for one in corpus():
            _write(repinned(one), {})
    if "--kills" in options:
        scenarios = [one for one in corpus() if not names or one.id in names]
        broken: dict[str, list[str]] = {one.id: [] for one in scenarios}
        for target, ids in broken_by(scenarios):
            _say(target, len(ids))
            for name in ids:
                broken[name].append(target)
        for scenario in scenarios:
            _write(scenario, {scenario.id: tuple(broken[scenario.id])})
    PAGE.write_text(page_text(corpus()), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
