"""`torntail.contract_suite`: a class of tests for one store, one test for each clause.

Decides what a clause's state means for its test. Both parts of the campaign, the calls and the
crashes, are made as a whole when the first test needs them, so that what a test comes to does not
depend on which others were chosen; workers of xdist share them (`shared`). Does not decide whether
a clause is kept (`judge`).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import pytest

from torntail.drive.onlooker import HarnessError
from torntail.drive.target import Factory, Target, TargetError, target_of
from torntail.explore.campaign import RUNS_DIRECTORY, certify
from torntail.judge.capabilities import Capabilities
from torntail.judge.clauses import CLAUSES, Clause, check_selector
from torntail.judge.verdict import Certificate, ClauseResult, Finding
from torntail.plugin.options import asked, command_for
from torntail.plugin.shared import Outcome, shared
from torntail.plugin.told import Told, add_properties, fail
from torntail.report.inspection import printable
from torntail.settings import Level

__all__ = ["contract_suite"]

IMAGES: Final = 2_000
"""Distinct disk images that a suite loads if nobody says how many: some seconds."""

_PARTS: Final = {"calls": ("RW", "CL", "DM"), "crashes": ("CR", "IO", "MW")}
"""What is tried in one go: calls and damages cost seconds, crashes as much as one likes."""


def contract_suite(
    factory: Factory | str,
    *,
    name: str | None = None,
    capabilities: Capabilities | None = None,
    durability: Literal["none", "process", "power"] | None = None,
    level: Level | None = None,
    seed: int | None = None,
    images: int | None = None,
    only: Sequence[str] = (),
    accept: Mapping[str, str] | None = None,
    call_timeout: float = 30.0,
    workers: int = 0,
    runs: Path | None = RUNS_DIRECTORY,
) -> type[Any]:
    """A class of pytest tests that hold a store to the contract, one test for each clause.

    Give it a name that pytest collects: `TestMyStore = contract_suite(open_store)`. A test passes,
    fails with the finding and the command that shows it again, or is skipped where the clause is
    not claimed, not requested, or not exercised yet by this version. What could not be decided
    fails. An accepted violation is an expected failure.

    Args:
        factory: called with a directory, returns a store over it; a class, a function, a coroutine
            function, or the text that names a store on the command line.
        name: what the store is called in reports; default is the factory's name.
        capabilities: what the store claims; default is the factory's attribute of that name.
        durability: replaces that claim, and is passed on to a built-in store.
        level: what is to be proven; default is what the store claims.
        seed: which values the cases are made of; default is 0.
        images: how many distinct disk images are loaded; default is 2,000.
        only: clause ids or groups (`RW`, `DM-1`); the class has tests for these alone.
        accept: known violations, each with a reason.
        call_timeout: after so many seconds a call that has not come back is taken to hang.
        workers: processes that crash the store; 0 crashes it in the process of pytest, which any
            factory allows. More need a factory that can be imported by its name.
        runs: where witnesses of violations are kept, relative to the root of the run; None keeps
            none.

    The options `--torntail-level`, `--torntail-seed` and `--torntail-images` go before these
    arguments, and these before `[tool.torntail]`.

    Raises:
        TargetError: the factory does not lead to a store.
        UnknownClauseError: `only` or `accept` name no clause.
    """
    if not isinstance(factory, str) and not callable(factory):
        raise TargetError(
            f"contract_suite was given {type(factory).__name__}: give a factory, which takes a "
            "directory (pathlib.Path) and returns a store, or the name of one"
        )
    for selector in (*only, *(accept or ())):
        check_selector(selector)
    target = target_of(factory, capabilities=capabilities, durability=durability)
    suite = _Suite(
        title=name or target.name,
        target=target,
        durability=durability,
        level=level,
        seed=seed,
        images=images,
        only=tuple(only),
        accepted=dict(accept or {}),
        call_timeout=call_timeout,
        workers=workers,
        runs=runs,
    )
    tests = {_test_name(clause): _test(clause, suite) for clause in suite.clauses()}
    caller = sys._getframe(1).f_globals.get("__name__", __name__)
    doc = f"{suite.title} keeps the clauses of the contract that it is held to."
    return type("ContractSuite", (), {**tests, "__doc__": doc, "__module__": caller})


def _test_name(clause: Clause) -> str:
    return f"test_{clause.id.lower().replace('-', '_')}"


def _test(clause: Clause, suite: _Suite) -> Any:
    def test(self: object, request: pytest.FixtureRequest) -> None:
        suite.test(clause, request)

    test.__name__ = test.__qualname__ = _test_name(clause)
    test.__doc__ = f"{clause.id}: {clause.sentence}"
    return test


@dataclass(frozen=True, kw_only=True)
class _Suite:
    """What the arguments of `contract_suite` came to."""

    title: str
    target: Target
    durability: Literal["none", "process", "power"] | None
    level: Level | None
    seed: int | None
    images: int | None
    only: tuple[str, ...]
    accepted: dict[str, str]
    call_timeout: float
    workers: int
    runs: Path | None

    def clauses(self) -> list[Clause]:
        """The clauses that concern a store, as far as they were asked for."""
        groups = [group for part in _PARTS.values() for group in part]
        return [
            clause
            for clause in CLAUSES.values()
            if clause.group in groups
            and (not self.only or clause.id in self.only or clause.group in self.only)
        ]

    def test(self, clause: Clause, request: pytest.FixtureRequest) -> None:
        """Passes, fails or skips one clause's test."""
        item: pytest.Item = request.node
        config = request.config
        options = asked(config)
        seed = _first(options.seed, self.seed, options.settings.seed, 0)
        level = _first(options.level, self.level, options.settings.level, None)
        images = _first(options.images, self.images, options.settings.images, IMAGES)
        add_properties(item, clauses=[clause.id], store=self.title, seed=seed)
        again = command_for(item, config, seed)
        part = next(name for name, groups in _PARTS.items() if clause.group in groups)
        only = [one.id for one in self.clauses() if one.group in _PARTS[part]]

        def campaign() -> Certificate:
            return certify(
                self.target,
                level=level,
                durability=self.durability,
                seed=seed,
                only=only,
                accept=self.accepted,
                images=images,
                call_timeout=self.call_timeout,
                workers=self.workers,
                runs=None if self.runs is None else config.rootpath / self.runs,
            )

        # The class, and the file it stands in: two classes may be made of one factory.
        key = f"{item.nodeid.rpartition('::')[0]} {part}"
        outcome = shared(request, key, lambda: _outcome(campaign))
        if outcome.certificate is None:
            fail(item, [Told(f"nothing is proven: {outcome.error}", self.title, again)])
        else:
            _Clause(clause, outcome.certificate, self.title, again).test(request)


def _first(*values: Any) -> Any:
    return next((value for value in values[:-1] if value is not None), values[-1])


def _outcome(campaign: Any) -> Outcome:
    try:
        certificate: Certificate = campaign()
    except (HarnessError, TargetError) as error:
        return Outcome(error=str(error))
    except OSError as error:  # The folder of witnesses, say, is not ours to write to.
        return Outcome(error=f"{type(error).__name__}: {error}")
    if certificate.baseline_error is not None:
        return Outcome(error=f"broken baseline: {certificate.baseline_error}")
    return Outcome(certificate=certificate)


@dataclass(frozen=True)
class _Clause:
    """One clause on a certificate, as a test."""

    clause: Clause
    certificate: Certificate
    store: str
    command: str

    def test(self, request: pytest.FixtureRequest) -> None:
        """Does nothing where the clause passes."""
        result = next(one for one in self.certificate.results if one.clause == self.clause.id)
        match result.state:
            case "fail" if result.accepted is not None:
                pytest.xfail(printable(f"accepted: {result.accepted} ({result.note})", 1000))
            case "fail":
                self._violated(request, result)
            case "pass" | "counted" if not self.certificate.harness_errors:
                return
            case "not applicable" | "not requested" | "not exercised yet":
                pytest.skip(printable(f"{self.clause.id} {result.state}{_why(result.note)}", 1000))
            case _:
                errors = self.certificate.harness_errors
                note = result.note or "; ".join(errors)
                state = "unknown" if result.state in ("pass", "counted") else result.state
                fail(request.node, [self._told(f"{state}{_why(note)}")])

    def _violated(self, request: pytest.FixtureRequest, result: ClauseResult) -> None:
        mine = [one for one in self.certificate.findings if one.clause == self.clause.id]
        if not mine:
            fail(request.node, [self._told(f"violated: {result.note}")])
        subtests = _subtests(request) if len(mine) > 1 else None
        if subtests is None:
            self._fail(request.node, mine)
        else:
            for finding in mine:
                with subtests.test(printable(f"{finding.case}, {finding.model}", 60)):
                    self._fail(request.node, [finding])

    def _fail(self, item: pytest.Item, findings: Sequence[Finding]) -> None:
        told = [self._told(f"violated: {finding.sentence}") for finding in findings]
        lines = [self.clause.sentence]
        for number, finding in enumerate(findings):
            if number:
                lines.append(f"also: {finding.sentence}")
            if finding.model != "no fault":
                lines.append(f"plan {finding.case}, model: {finding.model}")
            lines += [f"{count}. {step}" for count, step in enumerate(finding.steps, 1)]
            if finding.witness is not None:
                place = os.path.relpath(finding.witness, item.config.invocation_params.dir)
                lines.append(f"witness: {place}")
        fail(item, told, lines)

    def _told(self, what: str) -> Told:
        return Told(f"{self.clause.id} {what}", self.store, self.command)


def _why(note: str) -> str:
    return f": {note}" if note else ""


def _subtests(request: pytest.FixtureRequest) -> Any:
    """The fixture of that name, from pytest 9 on, or from a plugin."""
    try:
        return request.getfixturevalue("subtests")
    except pytest.FixtureLookupError:
        return None
