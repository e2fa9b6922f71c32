"""What a test of torntail tells: its failure in words, and properties that reports carry along.

Decides the names of the properties, which stand in JUnit XML, too, and the section at the end of a
run. They are properties of the item, since those come over from the workers of xdist. All text is
printable, whatever a store or a file made of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import pytest

from torntail.report.inspection import printable

__all__ = ["Told", "add_properties", "fail", "summary_lines", "told_in"]

CLAUSE: Final = "torntail.clause"
STORE: Final = "torntail.store"
SEED: Final = "torntail.seed"
FINDING: Final = "torntail.finding"
COMMAND: Final = "torntail.command"

_LIMIT: Final = 1000
_COMMAND_LIMIT: Final = 4000


class Told(NamedTuple):
    """What one test has found: a sentence, the store, and the command that shows it again."""

    sentence: str
    store: str
    command: str


def add_properties(
    item: pytest.Item, *, clauses: Iterable[str], store: str, seed: int | None = None
) -> None:
    """Says what a test is about."""
    item.user_properties += [(CLAUSE, clause) for clause in clauses]
    item.user_properties.append((STORE, printable(store, _LIMIT)))
    if seed is not None:
        item.user_properties.append((SEED, str(seed)))


def fail(item: pytest.Item, found: Sequence[Told], lines: Sequence[str] = ()) -> None:
    """Ends a test as failed; what it found, one thing or more, becomes text and properties."""
    for told in found:
        item.user_properties.append((FINDING, printable(told.sentence, _LIMIT)))
        item.user_properties.append((COMMAND, printable(told.command, _COMMAND_LIMIT)))
    first = found[0]
    shown = [first.sentence, *lines]
    text = [printable(line, _LIMIT) for line in shown] + [printable(first.command, _COMMAND_LIMIT)]
    pytest.fail("\n".join(text), pytrace=False)


def told_in(properties: Iterable[tuple[str, object]]) -> Iterator[Told]:
    """What stands in the properties of a report."""
    texts = [(name, str(value)) for name, value in properties]
    store = next((text for name, text in texts if name == STORE), "")
    sentences = [text for name, text in texts if name == FINDING]
    commands = [text for name, text in texts if name == COMMAND]
    for sentence, command in zip(sentences, commands, strict=True):
        yield Told(sentence, store, command)


def summary_lines(reports: Iterable[Any]) -> list[str]:
    """The section at the end of a run; nothing where no test has found anything."""
    found: dict[tuple[str, str, str], dict[str, None]] = {}
    for report in reports:
        for told in told_in(getattr(report, "user_properties", ())):
            # A subtest has the properties of its test, too.
            place = (report.nodeid, told.store, told.command)
            found.setdefault(place, {})[told.sentence] = None
    lines: list[str] = []
    for (_, store, command), sentences in sorted(found.items(), key=lambda one: one[0]):
        lines += [f"{store}: {sentence}" for sentence in sentences]
        lines.append(f"  {command}")
    return lines
