"""Whether the parts of a scenario make sense together.

Decides what a plan, its faults and its expectations may refer to, so that nothing is run that could
not prove a thing, or could do harm outside the store's directory. Does not look at any text
(`reading`) or store (`replay`).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Final

from torntail.crash.io_faults import IoFault
from torntail.drive.records import ADDITIONS, STRICT_VARIANTS, TRAILS
from torntail.explore.sound_calls import created_sessions, strangers
from torntail.judge.clauses import UnknownClauseError, clause
from torntail.judge.history import Append, Create, Damage, Load, Operation, Reopen
from torntail.scenarios.format import CrashFault, DeviceStrike, FileFault, Scenario
from torntail.scenarios.refusals import nearest

__all__ = ["Problem", "problem_of"]

Problem = tuple[str, str]
"""The place of what is wrong, and what to change."""

_ID: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,119}")
_CRASHABLE: Final = (Create, Append, Load, Reopen)
_MAXIMUM_NAME_BYTES: Final = 255
_MAXIMUM_STORES: Final = 8
_VARIANTS: Final[Mapping[str, Collection[str]]] = {
    "trail": TRAILS,
    "rewrite": STRICT_VARIANTS,
    "add": ADDITIONS,
}
_WITH_ANOTHER: Final = ("misplace", "second-place")


def problem_of(scenario: Scenario) -> Problem | None:
    """The first thing that makes no sense, if any."""
    return next(_problems(scenario), None)


def _problems(scenario: Scenario) -> Iterator[Problem]:
    if not _ID.fullmatch(scenario.id):
        yield "id", "is to be of small letters, digits and hyphens, at most 120"
    for name in ("title", "store"):
        if not getattr(scenario, name).strip():
            yield name, "is empty: fill it in"
    for name in ("title", "teaches", "origin", "store"):
        if "\n" in getattr(scenario, name):
            yield name, "has several lines: write one sentence"
    if not scenario.plan:
        yield "plan", "has no operations: without any nothing is tried"
    yield from _expectations(scenario)
    yield from _operations(scenario.plan, "plan")
    kinds = {type(fault) for fault in scenario.faults}
    if len(kinds) > 1:
        yield "faults", "are of several kinds: make a scenario of each"
    if kinds & {DeviceStrike, IoFault} and len(scenario.faults) > 1:
        yield "faults[1]", "is one too many: make a scenario of each"
    yield from _crashes(scenario)
    yield from _files(scenario)
    for index, fault in enumerate(scenario.faults):
        if isinstance(fault, IoFault):
            yield from _within(fault.during, 0, len(scenario.plan), f"faults[{index}].during")
            if fault.nth < 0 or fault.length < 0:
                yield f"faults[{index}]", "nth and length count from 0"
            yield from _crashable(scenario.plan, "plan")
    yield from _strangers(scenario)


def _expectations(scenario: Scenario) -> Iterator[Problem]:
    if not scenario.expect:
        yield "expect", "is empty: name the clause that is to hold"
    sessions = set(_sessions(scenario.plan))
    for index, expected in enumerate(scenario.expect):
        where = f"expect[{index}]"
        try:
            clause(expected.clause)
        except UnknownClauseError as error:
            yield f"{where}.clause", str(error)
        if not expected.outcome.strip():
            yield f"{where}.outcome", "is empty: say in one sentence what is to hold"
        if expected.session and expected.session not in sessions:
            yield f"{where}.session", "is in no operation of the plan: correct the name"
        if expected.loads and not expected.session:
            yield f"{where}.session", "is missing: say which session is loaded"
        if expected.loads and not any(isinstance(fault, FileFault) for fault in scenario.faults):
            yield f"{where}.loads", "is for a session found in a file (fault file): leave it out"
    if any(isinstance(fault, FileFault) for fault in scenario.faults) and not any(
        expected.loads for expected in scenario.expect
    ):
        yield "expect", "says of no session what its load is to come to: give session and loads"


def _sessions(operations: Iterable[Operation]) -> Iterator[str]:
    for operation in operations:
        if isinstance(operation, Create):
            yield operation.header.id
        elif hasattr(operation, "session"):
            yield operation.session
        elif hasattr(operation, "operations"):
            yield from _sessions(operation.operations)


def _operations(operations: Sequence[Operation], where: str) -> Iterator[Problem]:
    for index, operation in enumerate(operations):
        place = f"{where}[{index}]"
        if not 0 <= operation.store < _MAXIMUM_STORES:
            yield f"{place}.store", f"is to be from 0 to {_MAXIMUM_STORES - 1}"
        for probe in operation.probes:
            try:
                clause(probe)
            except UnknownClauseError as error:
                yield f"{place}.probes", str(error)
        if isinstance(operation, Append) and operation.spoiled is not None:
            yield from _within(
                operation.spoiled.index, 0, len(operation.events), f"{place}.spoiled.index"
            )
        if isinstance(operation, Damage):
            yield from _damage(operation, place)


def _damage(damage: Damage, place: str) -> Iterator[Problem]:
    known = _VARIANTS.get(damage.kind)
    if known is None and damage.variant:
        yield f"{place}.variant", f"is for {', '.join(_VARIANTS)} alone: leave it out"
    elif known is not None and damage.variant not in known:
        what = f"{damage.variant!r} is not known" if damage.variant else "is missing"
        yield f"{place}.variant", f"{what}: use {nearest(damage.variant, known)}"
    if damage.kind in _WITH_ANOTHER and not damage.other:
        yield f"{place}.other", f"is missing: {damage.kind} needs the name of a second session"


def _strangers(scenario: Scenario) -> Iterator[Problem]:
    """Names of sessions that nothing creates: a slip, unless that is what is tried.

    Not where files are found: a session may stand in one.
    """
    if any(isinstance(fault, FileFault) for fault in scenario.faults):
        return
    calls = {"plan": scenario.plan}
    for index, fault in enumerate(scenario.faults):
        if isinstance(fault, CrashFault):
            calls[f"faults[{index}].recovery"] = fault.recovery
    created = created_sessions(chain.from_iterable(calls.values()))
    for where, operations in calls.items():
        for place, session in strangers(operations, created):
            use = f"use {nearest(session, created)}, or create it" if created else "create it"
            yield (
                f"{where}{place}",
                f"no create of the plan names {session!r}: {use} before (to try an unknown "
                'session, give the call "probes": ["RW-8"])',
            )


def _within(number: int, first: int, count: int, where: str) -> Iterator[Problem]:
    if not first <= number < count:
        yield where, f"{number} is no call of it: it is to be from {first} to {count - 1}"


def _crashes(scenario: Scenario) -> Iterator[Problem]:
    calls: Sequence[Operation] = scenario.plan
    strikes = [fault for fault in scenario.faults if isinstance(fault, CrashFault | DeviceStrike)]
    for index, fault in enumerate(strikes):
        where = f"faults[{index}]"
        if isinstance(fault, CrashFault):
            if index == 0 and fault.recovery:
                yield f"{where}.recovery", "is before the first crash: put it into the plan"
            calls = fault.recovery if index else scenario.plan
            name = f"{where}.recovery" if index else "plan"
            if index and not calls and fault.during >= 0:
                yield name, "is empty: say what the next process does before it is struck"
            yield from _within(fault.during, -1, max(len(calls), 1), f"{where}.during")
            yield from _operations(calls, name)
            crash = fault.crash
            if (crash is None) != (not fault.operations):
                yield f"{where}.operations", "and crash belong together: give both or neither"
            if crash is not None and crash.model != fault.model:
                yield f"{where}.crash.model", f"is not {fault.model}, the model of the fault"
        elif not fault.operations:
            yield f"{where}.operations", "is missing: say which recording the fault was seen in"
        yield from _crashable(calls, "plan" if calls is scenario.plan else f"{where}.recovery")


def _crashable(calls: Sequence[Operation], name: str) -> Iterator[Problem]:
    for number, call in enumerate(calls):
        if not isinstance(call, _CRASHABLE) or call.store:
            yield f"{name}[{number}]", "cannot be struck: use create, append, load, reopen"


def _files(scenario: Scenario) -> Iterator[Problem]:
    paths: set[str] = set()
    for index, fault in enumerate(scenario.faults):
        if not isinstance(fault, FileFault):
            continue
        where = f"faults[{index}].path"
        problem = _path_problem(fault.path)
        if problem:
            yield where, problem
        # Without regard to case, as the file system may be.
        path = fault.path.casefold()
        beside = [one for one in paths if one.startswith(f"{path}/") or path.startswith(f"{one}/")]
        if path in paths or beside:
            yield where, "is in the way of another file of this scenario: choose another name"
        paths.add(path)


def _path_problem(path: str) -> str | None:
    parts = path.split("/")
    if path.startswith("/") or re.match(r"[A-Za-z]:", path):
        return "is absolute: write it relative to the store's directory"
    if any(part in ("", ".", "..") for part in parts):
        return "has an empty, . or .. part: write the plain path below the store's directory"
    if re.search(r"[\x00-\x1f\\\x7f\ud800-\udfff]", path):
        return "has a control character, a backslash or half a character: write a plain path"
    if any(len(part.encode("utf-8")) > _MAXIMUM_NAME_BYTES for part in parts) or len(parts) > 8:
        return "is too long"
    return None
