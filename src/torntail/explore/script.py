"""Writing a case: the operations of a plan, with the bookkeeping of seqs and marks done.

A script knows what the log of each of its sessions should be by now, so that a case says only what
is peculiar to it. Values vary with the seed, the shape of a case does not. Does not decide what an
operation should come to (`judge.model`).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import msgspec

from torntail.judge.capabilities import Capabilities, claims
from torntail.judge.clauses import clause
from torntail.judge.history import (
    MARK_KEY,
    Append,
    Create,
    Damage,
    DamageKind,
    Inspect,
    ListSessions,
    Load,
    Operation,
    Reopen,
    Spoiled,
    Spoiling,
)
from torntail.session import SessionEvent, SessionHeader, interrupted_turn_closers

__all__ = ["Case", "CaseBook", "CaseRecipe", "Log", "Script"]

_WORDS = (
    "ship",
    "the",
    "log",
    "before",
    "noon",
    "Übermut",
    "größer",
    "слово",
    "言葉",
    "👩‍🚀",
    "ok",
)


class Case(msgspec.Struct, frozen=True):
    """A plan with a name, and the clauses its operations probe.

    It is crashed in the calls `crashed` only, and there here and there; everywhere if that is
    empty.
    """

    name: str
    clauses: tuple[str, ...]
    operations: tuple[Operation, ...]
    crashed: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class CaseRecipe:
    """How a case is written, and for which stores: `requires` as in the clause table.

    `durable`: the case opens the store again, which one without durability does not survive.
    """

    name: str
    clauses: tuple[str, ...]
    write: Callable[[Script], None]
    requires: tuple[str, ...]
    durable: bool


class CaseBook:
    """The recipes of one group of clauses, in the order they are run."""

    def __init__(self) -> None:
        self.recipes: list[CaseRecipe] = []

    def case(
        self, *clauses: str, requires: Iterable[str] = (), durable: bool = False
    ) -> Callable[[Callable[[Script], None]], Callable[[Script], None]]:
        """Enters a function as the recipe of a case; its name becomes the case's."""

        def enter(write: Callable[[Script], None]) -> Callable[[Script], None]:
            name = write.__name__.replace("_", "-")
            self.recipes.append(CaseRecipe(name, clauses, write, tuple(requires), durable))
            return write

        return enter

    def cases(
        self, seed: int, capabilities: Capabilities, wanted: Callable[[str], bool]
    ) -> list[Case]:
        """The cases for a store with these claims that concern a wanted clause."""
        cases = []
        for recipe in self.recipes:
            if recipe.durable and capabilities.durability == "none":
                continue
            concerned = [
                one for one in recipe.clauses if wanted(one) and _held_to(one, capabilities)
            ]
            if not concerned:
                continue
            if not all(claims(capabilities, requirement) for requirement in recipe.requires):
                continue
            script = Script(f"{seed}/{recipe.name}", capabilities)
            recipe.write(script)
            cases.append(Case(recipe.name, recipe.clauses, tuple(script.operations)))
        return cases


def _held_to(clause_id: str, capabilities: Capabilities) -> bool:
    return all(claims(capabilities, requirement) for requirement in clause(clause_id).requires)


class Script:
    """The operations of one case, written one after the other."""

    def __init__(self, seed: str, capabilities: Capabilities) -> None:
        self.random = random.Random(seed)
        self.capabilities = capabilities
        self.token = f"{self.random.getrandbits(32):08x}"
        self.operations: list[Operation] = []
        self._marks = 0

    @property
    def durable(self) -> bool:
        """Whether the store is to keep anything when it is opened again."""
        return self.capabilities.durability != "none"

    def add(self, operation: Operation) -> None:
        """Adds an operation as it is."""
        self.operations.append(operation)

    def session(self, label: str = "a", *, create: bool = True, **fields: Any) -> Log:
        """A session, created unless told otherwise."""
        fields.setdefault("cwd", f"/projects/{self.token}")
        created_at = 1_700_000_000_000 + self.random.randrange(10**9)
        session_id = fields.pop("id", f"{label}-{self.token}")
        log = Log(self, SessionHeader(session_id, created_at, **fields))
        if create:
            self.add(Create(header=log.header))
        return log

    def reopen(self, *probes: str) -> None:
        """Opens the store again, if it keeps anything."""
        if self.durable:
            self.add(Reopen(probes=probes))

    def list(self, *probes: str) -> None:
        """Lists the sessions, if the store can."""
        if self.capabilities.lists:
            self.add(ListSessions(probes=probes))

    def mark(self) -> str:
        """A text that stands nowhere else."""
        self._marks += 1
        return f"mark-{self.token}-{self._marks:04d}"

    def text(self) -> str:
        """A few words."""
        return " ".join(self.random.choices(_WORDS, k=self.random.randrange(1, 6)))


class Log:
    """What one session should hold by now, and the operations on it."""

    def __init__(self, script: Script, header: SessionHeader) -> None:
        self.script = script
        self.header = header
        self.events: list[SessionEvent] = []
        self.turn = 0
        self.step = 0
        self.time = header.created_at

    @property
    def id(self) -> str:
        """The session's id."""
        return self.header.id

    # --- events ---------------------------------------------------------------------------------

    def event(
        self, type: str, data: dict[str, Any] | None = None, *, seq: int | None = None, **more: Any
    ) -> SessionEvent:
        """An event, marked, that comes next; it is not part of the log before it is appended."""
        self.time += self.script.random.randrange(1, 50)
        return SessionEvent(
            type,
            len(self.events) if seq is None else seq,
            more.pop("time", self.time),
            {**(data or {}), MARK_KEY: self.script.mark()},
            **more,
        )

    def write(self, words: str) -> list[SessionEvent]:
        """Events in short: `TS U SS A:c1,c2 K:c1 R:c1 C SE TE`, or any type as `X:type`.

        Turn and step numbers are filled in; the events are not part of the log before they are
        appended.
        """
        events: list[SessionEvent] = []
        for word in words.split():
            kind, _, rest = word.partition(":")
            if kind == "TS":
                self.turn, self.step = self.turn + 1, 0
            self.step += kind == "SS"
            data, surface = self._content(kind, rest, self.step)
            event = self.event(_TYPES.get(kind, rest), data, seq=len(self.events) + len(events))
            events.append(msgspec.structs.replace(event, surface_op=surface))
        return events

    def _content(self, kind: str, rest: str, step: int) -> tuple[dict[str, Any], Any]:
        place = {"turn": self.turn, "step": step}
        # `~id` is a block that has an id and is no call.
        blocks = [
            {"type": "reasoning", "id": name[1:], "text": self.script.text()}
            if name.startswith("~")
            else {"type": "tool-call", "id": name, "name": "look", "arguments": "{}"}
            for name in (rest.split(",") if kind in ("A", "U") else ())
            if name
        ]
        text = {"type": "text", "text": self.script.text()}
        match kind:
            case "TS":
                source = {"kind": "user"}
                return {"turn": self.turn, "trigger": {"kind": "message", "source": source}}, None
            case "TE":
                return {"turn": self.turn, "reason": {"kind": "completed"}}, None
            case "U":
                return {"content": [text, *blocks], "source": {"kind": "user"}}, "append"
            case "SS" | "SE":
                return place, None
            case "C":
                chunk = {"type": "text-delta", "index": 0, "text": self.script.text()}
                return {**place, "chunk": chunk}, None
            case "A":
                return {**place, "content": [text, *blocks]}, "append"
            case "K":
                return {**place, "callId": rest, "name": "look", "arguments": "{}"}, None
            case "R":
                return {**place, "callId": rest, "content": [text], "isError": False}, "append"
        return {"note": self.script.text()}, None

    # --- operations -----------------------------------------------------------------------------

    def append(self, events: str | Iterable[SessionEvent], *probes: str) -> list[SessionEvent]:
        """Appends events; they are part of the log from here on."""
        batch = self.write(events) if isinstance(events, str) else list(events)
        self.script.add(Append(session=self.id, events=tuple(batch), probes=probes))
        self.events.extend(batch)
        return batch

    def append_wrong(
        self,
        events: Iterable[SessionEvent],
        *probes: str,
        spoiled: tuple[int, Spoiling] | None = None,
    ) -> None:
        """Appends a batch that has to be refused."""
        how = None if spoiled is None else Spoiled(*spoiled)
        self.script.add(Append(session=self.id, events=tuple(events), spoiled=how, probes=probes))

    def load(self, *probes: str) -> None:
        """Loads; the closers of an open turn are part of the log from here on."""
        self.script.add(Load(session=self.id, probes=probes))
        capabilities = self.script.capabilities
        if capabilities.profile == "session" and capabilities.repairs == "load":
            self.events.extend(interrupted_turn_closers(self.events))

    def inspect(self, *probes: str) -> None:
        """Inspects, if the store can."""
        if self.script.capabilities.inspects:
            self.script.add(Inspect(session=self.id, probes=probes))

    def damage(
        self, kind: DamageKind, record: int = 0, amount: int = 0, variant: str = "", other: str = ""
    ) -> None:
        """Damages the storage; negative records count from the end of the log."""
        if record < 0:
            record += len(self.events)
        self.script.add(
            Damage(
                session=self.id,
                kind=kind,
                record=record,
                amount=amount,
                variant=variant,
                other=other,
            )
        )


_TYPES = {
    "TS": "turn/start",
    "TE": "turn/end",
    "SS": "step/start",
    "SE": "step/end",
    "U": "user/message",
    "C": "assistant/chunk",
    "A": "assistant/message",
    "K": "tool/call",
    "R": "tool/result",
}
