"""Sequences of events for properties: lawful ones, as an agent writes them, and any others."""

from __future__ import annotations

from torntail.explore.strategies import any_sequences as any_sequence
from torntail.explore.strategies import lawful_sequences as lawful_sequence

__all__ = ["any_sequence", "lawful_sequence"]
