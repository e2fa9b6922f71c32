"""A model of a store that keeps the contract: what each operation has to come to.

The model holds, for each session, its records as a reader would find them (`stored`), and predicts
outcomes from the clauses alone: lazy create, closers, next seq, damage. A prediction is a list of
branches, the first being what the contract says and the others what it leaves open; the branch that
came true moves the model on. Does not decide whether an outcome is the predicted one (`oracle`),
nor what two writers at once may see.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from torntail.judge.capabilities import Capabilities
from torntail.judge.expected import (
    ANY_REFUSAL,
    CANNOT_LOOK,
    CLOSED,
    EXISTS,
    EXISTS_DAMAGED,
    IDENTITY,
    NEVER,
    NOT_FOUND,
    NOT_THERE,
    Branch,
    ExpectedEntry,
    ExpectedSession,
    Refusal,
)
from torntail.judge.history import (
    Append,
    ChangeCallersCopy,
    Close,
    Create,
    Damage,
    Damaged,
    Inspect,
    ListSessions,
    Load,
    Operation,
    Reopen,
)
from torntail.judge.stored import (
    Line,
    Reading,
    Start,
    StoredLog,
    damage_log,
    expected_tail,
    read_log,
)
from torntail.session import SessionEvent, SessionHeader, interrupted_turn_closers

__all__ = ["Model"]


@dataclass(slots=True)
class Model:
    """A store that keeps its promises; `branches` predicts, a branch's effect moves on."""

    capabilities: Capabilities
    logs: dict[str, StoredLog] = field(default_factory=dict)
    announced: dict[tuple[int, str], SessionHeader] = field(default_factory=dict)
    touched: set[tuple[int, str]] = field(default_factory=set)
    closed: set[int] = field(default_factory=set)
    odd: set[str] = field(default_factory=set)
    refused: set[str] = field(default_factory=set)
    root_is_a_file: bool = False
    before_damage: Model | None = None

    def copy(self) -> Model:
        """A model that goes its own way from here."""
        other = copy.copy(self)
        other.logs = {session: log.copy() for session, log in self.logs.items()}
        other.announced = dict(self.announced)
        other.touched = set(self.touched)
        other.closed = set(self.closed)
        other.odd = set(self.odd)
        other.refused = set(self.refused)
        return other

    def branches(self, operation: Operation) -> list[Branch]:
        """What the contract allows this operation to come to, the rule first."""
        match operation:
            case Reopen():
                return self._reopen(operation.store)
            case Close():
                return [Branch(effect=lambda: self.closed.add(operation.store))]
            case ChangeCallersCopy():
                return [Branch()]
        if operation.store in self.closed:
            return [Branch(CLOSED, writes=False, situations=("a call after close",))]
        if self.root_is_a_file:
            return [Branch(CANNOT_LOOK, writes=False, situations=("storage cannot be looked at",))]
        match operation:
            case Create():
                return self._create(operation)
            case Append():
                return self._append(operation)
            case Load():
                return self._load(operation.session, operation.store, stores=True)
            case Inspect():
                return self._load(operation.session, operation.store, stores=False)
            case ListSessions():
                return self._list()
        raise AssertionError(f"no prediction for {operation}")

    def unpredictable(self, operation: Operation) -> bool:
        """Whether the session's state is past telling (after a load of a flipped log)."""
        session = getattr(operation, "session", None)
        return session in self.logs and self.logs[session].unknown

    # --- calls ----------------------------------------------------------------------------------

    def _reopen(self, store: int) -> list[Branch]:
        def effect() -> None:
            self.closed.discard(store)
            self._forget(store)

        opened = Branch(effect=effect)
        return [opened, Branch(ANY_REFUSAL)] if self.root_is_a_file else [opened]

    def _forget(self, store: int | None = None) -> None:
        self.announced = {
            key: header for key, header in self.announced.items() if store not in (None, key[0])
        }
        self.touched = {key for key in self.touched if store not in (None, key[0])}

    def _create(self, operation: Create) -> list[Branch]:
        header, key = operation.header, (operation.store, operation.header.id)
        if not header.id:
            return [Branch(ANY_REFUSAL, writes=False, situations=("the empty id",))]
        log = self.logs.get(header.id)
        if any(session == header.id for _, session in self.announced):
            return [Branch(EXISTS, writes=False, situations=("exists in memory",))]
        bare = log is not None and log.bare
        damaged = ("version", "identity", "two places", "garbled")
        if log is not None and log.start in damaged and not bare:
            # To say what is wrong with it is as good as to say that it is there.
            return [Branch(EXISTS_DAMAGED, writes=False, situations=("exists in storage",))]
        if log is not None and log.start != "never materialised" and not bare:
            return [Branch(EXISTS, writes=False, situations=("exists in storage",))]

        def announce() -> None:
            if not self.capabilities.lazy:
                start: Start = "whole" if header.version == 0 else "version"
                self.logs[header.id] = StoredLog(header, [], start=start, bare=True)
            self.announced[key] = header

        def refuse() -> None:
            self.refused.add(header.id)

        made = Branch(writes=not self.capabilities.lazy, effect=announce)
        if bare:
            # By another store object, or before this one was opened.
            return [Branch(EXISTS_DAMAGED, writes=False, situations=("exists in storage",)), made]
        if header.version != 0:
            # To refuse it at once is as good as to refuse it when it is loaded.
            version = Refusal(frozenset({"version"}), words=(str(header.version),))
            situation = ("another version refused at create",)
            return [made, Branch(version, writes=False, situations=situation, effect=refuse)]
        if "RW-10" in operation.probes:
            self.odd.add(header.id)
            return [made, Branch(ANY_REFUSAL, writes=False, effect=refuse)]
        return [made]

    def _append(self, operation: Append) -> list[Branch]:
        session, store = operation.session, operation.store
        if not operation.events:
            known = session in self.logs or (store, session) in self.announced
            situation = "an empty batch" if known else "an empty batch for an unknown id"
            return [Branch(writes=False, situations=(situation,))]
        if session in self.refused:
            return [Branch(Refusal(), writes=False)]
        if operation.spoiled is not None:
            event = operation.events[operation.spoiled.index]
            names: tuple[tuple[str, tuple[Any, ...]], ...] = ()
            kinds = {"not_serializable"}
            if operation.spoiled.how.endswith("seq"):
                kinds.add("sequence")
            elif operation.spoiled.how != "empty-type":
                names = (("the event's type", (event.type,)), ("its seq", (event.seq,)))
            refusal = Refusal(frozenset(kinds), names=names)
            return [Branch(refusal, writes=False, situations=(operation.spoiled.how,))]
        log = self.logs.get(session)
        first_flush = (store, session) in self.announced and (
            log is None or log.start == "never materialised" or log.bare
        )
        if first_flush:
            return self._first_flush(operation)
        if log is None:
            if self.capabilities.creates == "implicit":
                self.announced[store, session] = SessionHeader(session, 0)
                return self._first_flush(operation)
            return [Branch(NOT_FOUND, writes=False, situations=("append to an unknown id",))]
        branches = self._append_to(operation, log)
        if log.bare and (store, session) not in self.touched:
            branches.append(Branch(NOT_THERE, writes=False))
        return branches

    def _append_to(self, operation: Append, log: StoredLog) -> list[Branch]:
        session, store = operation.session, operation.store
        adopting = (store, session) not in self.touched
        adopted: list[SessionEvent] = []
        if adopting:
            (loading, *_) = self._load(session, store, stores=True)
            if loading.refusal is not None:
                return [replace(loading, writes=False)]
            assert loading.session is not None
            adopted = list(loading.session.events)
        next_seq = len(adopted) if adopting else len(log.lines)
        repairs = adopting and (
            len(adopted) != len(log.lines) or not log.ended or log.start != "whole"
        )

        def take(events: tuple[SessionEvent, ...]) -> None:
            if adopting:
                self._settle(session, adopted, store)
            log.bare = log.bare and not events
            log.lines.extend(Line(event) for event in events)

        situation = "append to a stored session not loaded before" if adopting else "append"
        problem = self._sequence_problem(operation.events, next_seq)
        if problem is None:
            return [Branch(situations=(situation,), effect=lambda: take(operation.events))]
        refusal, kind = problem
        return [
            Branch(refusal, writes=repairs, situations=(kind, situation), effect=lambda: take(()))
        ]

    def _first_flush(self, operation: Append) -> list[Branch]:
        session, key = operation.session, (operation.store, operation.session)
        problem = self._sequence_problem(operation.events, 0)
        if problem is not None:
            return [Branch(problem[0], writes=False, situations=(problem[1],))]

        def flush() -> None:
            header = self.announced.pop(key)
            start: Start = "whole" if header.version == 0 else "version"
            lines = [Line(event) for event in operation.events]
            self.logs[session] = StoredLog(header, lines, start=start, acknowledged=len(lines))
            self.touched.add(key)

        def refuse() -> None:
            self.refused.add(session)

        flushed = Branch(situations=("first append",), effect=flush)
        return [flushed, Branch(ANY_REFUSAL, effect=refuse)] if session in self.odd else [flushed]

    def _sequence_problem(
        self, events: tuple[SessionEvent, ...], next_seq: int
    ) -> tuple[Refusal, str] | None:
        for index, event in enumerate(events):
            expected = next_seq + index
            if event.seq != expected:
                names = (("the expected seq", (expected,)), ("the seq it got", (event.seq,)))
                where = "first seq" if index == 0 else "seq inside a batch"
                side = "low" if event.seq < expected else "high"
                return (
                    Refusal(frozenset({"sequence"}), names=names),
                    f"a {where} too {side}",
                )
        return None

    def _load(self, session: str, store: int, *, stores: bool) -> list[Branch]:
        if session in self.refused:
            return [Branch(Refusal(), writes=False)]
        log = self.logs.get(session)
        if log is None:
            announced = any(session == other for _, other in self.announced)
            situation = "load of a created, empty session" if announced else "load of an unknown id"
            return [Branch(NOT_FOUND, writes=False, situations=(situation,))]
        branches = self._load_stored(log, session, store, stores=stores)
        if log.bare:
            situations = ("load of a created, empty session",)
            branches.append(Branch(NOT_THERE, writes=False, situations=situations))
        return branches

    def _load_stored(
        self, log: StoredLog, session: str, store: int, *, stores: bool
    ) -> list[Branch]:
        refused = self._refused_at_start(log)
        if refused is not None:
            return [Branch(refused, writes=False, situations=(f"start: {log.start}",))]
        if log.uncertain:
            events = tuple(log.events())
            expected = ExpectedSession(log.header, events, uncertain=log.uncertain)

            def lose() -> None:
                log.unknown = True

            situations = ("a flipped bit",) if log.uncertain == "flip" else ("a cut file",)
            return [
                Branch(session=expected, situations=situations, effect=lose),
                Branch(ANY_REFUSAL, situations=situations, effect=lose),
            ]
        reading = read_log(log, self.capabilities.profile)
        if reading.corrupt_at is not None:
            return self._corrupt(log, reading, session, store, stores=stores)
        return self._readable(log, reading, session, store, stores=stores)

    def _refused_at_start(self, log: StoredLog) -> Refusal | None:
        match log.start:
            case "version":
                version = log.header.version if log.header is not None else None
                return Refusal(frozenset({"version"}), words=(str(version),))
            case "identity" | "two places":
                return IDENTITY
            case "garbled":
                return Refusal(frozenset({"corrupted"}), names=(("the line", (1,)),))
            case "never materialised":
                return NEVER
        return None

    def _corrupt(
        self, log: StoredLog, reading: Reading, session: str, store: int, *, stores: bool
    ) -> list[Branch]:
        assert reading.corrupt_at is not None
        names: list[tuple[str, tuple[Any, ...]]] = []
        if log.place is not None:
            path = log.place.path
            names.append(("the file", (path, path.rpartition("/")[2])))
            if log.place.byte is not None:
                names.append(("the line", (log.place.line,)))
            elif log.place.line is not None:
                # Where a row is missing, its own number and the next one both tell the place.
                names.append(("the row", (log.place.line, log.place.line + 1)))
        refusal = Refusal(frozenset({"corrupted"}), names=tuple(names), names_clause="DM-1")
        if reading.wrong_seq is None:
            situation = "a bad record in the committed region"
        elif reading.committed:
            situation = "a wrong seq in the committed region"
        else:
            situation = "a wrong seq in the tail"
        branches = [Branch(refusal, writes=False, situations=(situation, "not a byte changed"))]
        if reading.wrong_seq is not None and not reading.committed:
            # Third-party stores may cut the tail there instead; the certificate says so.
            cut = self._readable(
                log, replace(reading, torn_from=reading.corrupt_at), session, store, stores=stores
            )
            branches.append(replace(cut[0], situations=("the tail was cut at a wrong seq",)))
        return branches

    def _readable(
        self, log: StoredLog, reading: Reading, session: str, store: int, *, stores: bool
    ) -> list[Branch]:
        closers: tuple[SessionEvent, ...] = ()
        if self.capabilities.profile == "session":
            closers = tuple(interrupted_turn_closers(reading.events))
        events = reading.events + closers
        tail = None
        situations = ["a load"]
        if reading.torn_from is not None:
            tail = expected_tail(log, reading)
            situations.append("a torn tail was dropped")
            if reading.copied_marks:
                situations.append("a torn tail with whole records was copied")
            if reading.kept_leading:
                situations.append("a record followed by rubbish was kept")
            if any(
                line.whole and line.event and line.event.seq != index
                for index, line in enumerate(log.lines)
            ):
                situations.append("a wrong seq behind a bad line was not looked at")
        elif not log.ended and log.lines:
            situations.append("a record without newline was kept")
        if log.start == "unterminated":
            situations.append("a header without newline was kept")
        if closers:
            situations.append("an open turn was closed")
        if len(closers) > 2:
            situations.append("an open call was answered")
        expected = ExpectedSession(log.header, events, tail)
        durable = stores and self.capabilities.repairs == "load"
        effect = (lambda: self._settle(session, list(events), store)) if durable else None
        writes = stores and (bool(closers) or reading.torn_from is not None or not log.ended)
        branch = Branch(
            session=expected,
            writes=writes or log.start == "unterminated",
            situations=tuple(situations),
            effect=effect,
        )
        if not stores:
            branch = replace(branch, writes=False)
        if reading.may_refuse:
            return [branch, Branch(Refusal(frozenset({"corrupted"})), writes=False)]
        return [branch]

    def _settle(self, session: str, events: list[SessionEvent], store: int) -> None:
        """A repair is durable: these events are what is stored now."""
        log = self.logs[session]
        log.lines = [Line(event) for event in events]
        log.ended = True
        log.place = None
        if log.start == "unterminated":
            log.start = "whole"
        self.touched.add((store, session))

    def _list(self) -> list[Branch]:
        entries: dict[str, ExpectedEntry] = {}
        situations = ["a list"]
        for session, log in self.logs.items():
            if log.start == "never materialised":
                situations.append("a never materialised log was left out")
                continue
            match log.start:
                case "whole" | "unterminated":
                    entries[session] = ExpectedEntry(log.header)
                case "version":
                    entries[session] = ExpectedEntry(log.header, frozenset({"version", "other"}))
                case "garbled":
                    entries[session] = ExpectedEntry(None, frozenset({"corrupted", "other"}))
                case _:
                    entries[session] = ExpectedEntry(None, frozenset({"identity", "other"}))
            if log.bare:
                entries[session] = replace(entries[session], optional=True)
                continue
            if log.start == "whole" and any(not line.whole for line in log.lines):
                situations.append("a log with a damaged body was listed")
            if entries[session].errors:
                situations.append(f"a log was listed with its error: {log.start}")
        return [Branch(entries=entries, writes=False, situations=tuple(situations))]

    # --- damage ---------------------------------------------------------------------------------

    def damage(self, operation: Damage, landed: Damaged | None) -> None:
        """The storage is changed; all store objects were closed first and are opened after.

        `landed` is None when the damage could not be made: then only the reopening took place.
        """
        if operation.kind == "restore":
            if self.before_damage is not None:
                before = self.before_damage.copy()
                self.logs, self.refused = before.logs, before.refused
                self.before_damage = None
            self.root_is_a_file = False
        elif self.before_damage is None:
            self.before_damage = self.copy()
        self._forget()
        self.closed.clear()
        if landed is None or operation.kind == "restore":
            return
        if operation.kind == "root-is-a-file":
            self.root_is_a_file = True
            return
        log = self.logs[operation.session]
        if operation.kind == "misplace":
            self.logs[operation.other].start = "identity"
            return
        if log.place is None:
            log.acknowledged = len(log.lines)
        bad_record = {"duplicate": operation.record + 1, "add": len(log.lines)}.get(
            operation.kind, operation.record
        )
        damage_log(log, operation)
        if log.place is None or bad_record < log.bad_record:
            log.place, log.bad_record = landed, bad_record
        else:
            log.place = msgspec.structs.replace(log.place, size=landed.size)
