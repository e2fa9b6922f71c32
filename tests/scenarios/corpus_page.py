"""The page fault-scenarios/README.md, made from the scenarios themselves."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from torntail.scenarios.format import SCENARIO_CLASSES, Scenario

HEAD = """\
# Fault scenarios

{count} saved cases: a plan, a fault, and what is to hold. Each is one JSON file that a person can
read; [docs/scenarios.md](../docs/scenarios.md) says what stands in it. They are run on the JSONL
reference store, which passes all of them, or on any other:

```console
$ torntail replay fault-scenarios
$ torntail replay fault-scenarios --store mypackage.store:open_store
$ torntail replay --explain fault-scenarios/mid-tool/between-parallel-results.json
```

`clause` is what is to hold; `torntail explain CLAUSE` says what that promises. `breaks` are the
stores of the [zoo](../docs/zoo.md), each with one thing done wrong, that a scenario catches by that
clause. This page is made by `python -m tests.scenarios.make_corpus`.
"""

WORDS = {
    "reading-and-writing": "Nothing goes wrong, and what was written is read.",
    "torn-tail": "What a crash leaves behind the last record.",
    "mid-tool": "Crashes in a turn with tools: between the message, its calls and their results.",
    "gap": "Records that are missing, doubled, or numbered wrongly.",
    "damage": "Damage that no crash makes.",
    "durability": "The write path: what is durable when an append returns.",
    "repair": "What a load makes of an interrupted turn, and crashes while it does.",
    "io-error": "The disk says no.",
    "device": "The disk lies, loses or rots.",
    "field-report": "Files shaped after public bug reports about the session logs of agents.",
    "upstream": "What is known of other implementations of this format.",
}

_SHOWN = 4


def page_text(scenarios: Iterable[Scenario]) -> str:
    """The whole page."""
    ordered = sorted(scenarios, key=lambda one: (SCENARIO_CLASSES.index(one.kind), one.id))
    parts = [HEAD.format(count=len(ordered))]
    for kind, group in groupby(ordered, key=lambda one: one.kind):
        rows = [_row(one) for one in group]
        head = "| scenario | what happens | clause | breaks |\n| --- | --- | --- | --- |"
        parts.append(f"## {kind}\n\n{WORDS[kind]}\n\n{head}\n" + "\n".join(rows) + "\n")
    return "\n".join(parts)


def _row(scenario: Scenario) -> str:
    clauses = ", ".join(dict.fromkeys(one.clause for one in scenario.expect))
    names = [f"`{target.rpartition(':')[2]}`" for target in scenario.kills]
    broken = ", ".join(names[:_SHOWN]) + (
        f" and {len(names) - _SHOWN} more" if names[_SHOWN:] else ""
    )
    title = scenario.title.replace("|", r"\|")
    link = f"[{scenario.id}]({scenario.kind}/{scenario.id}.json)"
    return f"| {link} | {title} | {clauses} | {broken} |"
