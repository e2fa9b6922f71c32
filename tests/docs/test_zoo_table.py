"""docs/zoo.md lists every store of the zoo that a crash or a device fault breaks."""

from __future__ import annotations

from tests.zoo.table import PAGE, ZOO, name_of, rows


def test_every_store_is_in_the_table_under_its_clause() -> None:
    expected = {name_of(target): clause for target, clause in ZOO.items()}
    assert rows(PAGE.read_text(encoding="utf-8")) == expected, "run python -m tests.zoo.table"
