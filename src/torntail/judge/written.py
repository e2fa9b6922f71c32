"""What storage holds of a session that several processes write, and what each of them knows of it.

Decides how a log changes hands, and which part of it a load has shown. Does not decide who may
append or load (`writers`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from torntail.judge.capabilities import Capabilities
from torntail.judge.recovery import common_prefix, same_events
from torntail.session import SessionEvent, SessionHeader, interrupted_turn_closers

__all__ = ["WrittenLog", "closers_of", "length_shown"]


@dataclass(frozen=True, slots=True)
class WrittenLog:
    """One session in storage.

    `holder` has appended and not let go. `shown` says of each process how many events it last knew
    storage to hold, or -1 where it was shown closers that were not stored; those of `possible` may
    hold the session, having loaded it. `orphaned` tells how the last holder was killed, if it was.
    """

    events: tuple[SessionEvent, ...] = ()
    header: SessionHeader | None = None
    holder: str | None = None
    possible: frozenset[str] = frozenset()
    shown: tuple[tuple[str, int], ...] = ()
    orphaned: str = ""

    def known_to(self, writer: str) -> int | None:
        """How many events a process last knew storage to hold; None if it never looked."""
        return dict(self.shown).get(writer)

    def showing(self, writer: str, count: int) -> WrittenLog:
        """A process knows storage to hold so many events."""
        return replace(self, shown=tuple({**dict(self.shown), writer: count}.items()))

    def without(self, writer: str, killed: str) -> WrittenLog:
        """A process has let go, or was killed, as `killed` tells."""
        held = self.holder == writer
        return replace(
            self,
            holder=None if held else self.holder,
            possible=self.possible - {writer},
            shown=tuple(one for one in self.shown if one[0] != writer),
            orphaned=killed if killed and held else self.orphaned,
        )


def closers_of(
    events: Sequence[SessionEvent], capabilities: Capabilities
) -> tuple[SessionEvent, ...]:
    """What a load puts behind these events."""
    if capabilities.profile != "session":
        return ()
    return tuple(interrupted_turn_closers(list(events)))


def length_shown(
    stored: Sequence[SessionEvent], shown: Sequence[SessionEvent], capabilities: Capabilities
) -> int | None:
    """How many stored events were shown, if what was shown is a prefix of them with its closers."""
    for count in range(common_prefix(stored, shown, capabilities), -1, -1):
        kept = tuple(stored[:count])
        if same_events(kept + closers_of(kept, capabilities), shown, capabilities):
            return count
    return None
