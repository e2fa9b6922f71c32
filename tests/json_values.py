"""The strategies for JSON values that tests of the codec draw from."""

from __future__ import annotations

from torntail.explore.strategies_json import (
    ODD_NUMBERS,
    ODD_TEXTS,
    json_events,
    json_numbers,
    json_texts,
    json_values,
)

__all__ = ["ODD_NUMBERS", "ODD_TEXTS", "events", "numbers", "texts", "values"]

texts = json_texts()
numbers = json_numbers()
values = json_values()
events = json_events()
