"""Writes docs/turns.md from the turn grammar's table: `python -m tests.docs.turns_page`."""

from __future__ import annotations

from pathlib import Path

from torntail.session.turns import EVENT_KINDS, TRANSITIONS, Effect, State, Transition

PAGE = Path(__file__).parents[2] / "docs" / "turns.md"

HEAD = """\
# The grammar of turns

A session's events form turns, turns consist of steps, and a step may hold calls of tools that wait
for their results. One table, `torntail.session.turns.TRANSITIONS`, says for each state and kind of
event what comes next. This page is made from it by `python -m tests.docs.turns_page`; a test holds
the page against the table.

Two readers follow the table:

- **A load** takes events as they are, lawful or not. It follows the table to know which turn and
  step are open at the end of the log and which calls have no result, and writes the
  [closers](contract.md#closers-profile-session) for them.
- **A live session** may write only what is lawful (LV-2). `turn_grammar_problem` names the first
  event of a log that is not. It also checks what no table holds: turns and steps are numbered from
  1 without a gap, events name the turn and step they stand in, a result follows its call.

"""

DIAGRAM = """\
## Where events lead

Only events that change the state or forget the open calls. `──▶` is lawful, `┄┄▶` is what a load
makes of a log that breaks the grammar.

"""

TABLE = """
## Every state and kind of event

The next state, then what happens to the calls that wait for a result. A cell in *italics* is not
lawful. Every type that is not named here is `other`: it is always lawful and changes nothing.

"""

CLOSERS = """
## How an open turn is closed

Where a log ends in the state `in turn` or `in step`, the closers are, in this order:

1. a `tool/result` with `isError: true` for each call without a result, in order of appearance;
2. `step/end`, if a step is open;
3. `turn/end` with `reason: {kind: interrupted}`.

In the states `idle` and `in a step without a turn` nothing is written. What the closers hold is
said by CL-5 of the [contract](contract.md#closers-profile-session).
"""


def diagram() -> str:
    edges: dict[tuple[State, State, bool], list[str]] = {}
    for (state, kind), transition in TRANSITIONS.items():
        if transition.next_state is not state:
            key = (state, transition.next_state, transition.lawful)
            edges.setdefault(key, []).append(kind)
    # An edge that returns to its own state is worth drawing where it forgets the open calls.
    for (state, kind), transition in TRANSITIONS.items():
        if transition.next_state is state and transition.effect is Effect.FORGET_CALLS:
            edges.setdefault((state, state, transition.lawful), []).append(kind)
    order = list(State)
    rows = sorted(edges.items(), key=lambda edge: (order.index(edge[0][0]), not edge[0][2]))
    wide = max(len(state) for state in State)
    longest = max(len(" or ".join(kinds)) for kinds in edges.values())
    lines = []
    for (state, following, lawful), kinds in rows:
        rule = "─" if lawful else "┄"
        label = f" {' or '.join(kinds)} ".ljust(longest + 2, rule)
        lines.append(f"{state:<{wide}} {rule * 2}{label}{rule * 2}▶ {following}")
    return "```text\n" + "\n".join(lines) + "\n```\n"


def cell(transition: Transition) -> str:
    effect = "" if transition.effect is Effect.NONE else f"; {transition.effect}"
    told = f"{transition.next_state}{effect}"
    return told if transition.lawful else f"*{told}*"


def table() -> str:
    lines = [
        f"| event | {' | '.join(State)} |",
        f"| --- |{' --- |' * len(State)}",
        *(
            f"| `{kind}` | {' | '.join(cell(TRANSITIONS[state, kind]) for state in State)} |"
            if kind != "other"
            else f"| other | {' | '.join(cell(TRANSITIONS[state, kind]) for state in State)} |"
            for kind in EVENT_KINDS
        ),
    ]
    return "\n".join(lines) + "\n"


def page() -> str:
    return HEAD + DIAGRAM + diagram() + TABLE + table() + CLOSERS


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
