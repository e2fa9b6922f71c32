"""An I/O error carried out: the plan made with it, in each way of going on, and crashed after it.

Decides which operation is struck on a store that makes fewer of that kind in the call than the one
the scenario came from: the last that there is. Does not decide what is done after an error
(`explore.io_story`), which crashes follow (`explore.io_run`) or what is right (`judge.io`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator

import msgspec

from torntail.crash.io_faults import IoFault, fault_told
from torntail.drive.target import Target
from torntail.explore.crash_findings import crash_words
from torntail.explore.io_run import IoRun, IoViolation
from torntail.explore.io_story import FOLLOWS
from torntail.explore.io_trials import plan_base
from torntail.explore.script import Case
from torntail.explore.witness import describe_steps
from torntail.judge.history import Observation
from torntail.judge.io_steps import IoStep, Revive, Take
from torntail.record.slots import Slot
from torntail.scenarios.format import Scenario
from torntail.scenarios.outcome import Replay, ReplayFinding, cause_of, image_digest
from torntail.scenarios.story import told_answer, verdict

__all__ = ["replay_io"]

_FURTHEST: int = 64
"""No call of a store makes more operations of one kind that would be worth striking."""


def replay_io(
    scenario: Scenario,
    target: Target,
    slot: Slot,
    *,
    tick: Callable[[], object],
    explain: bool = False,
) -> Replay:
    """What a scenario with an I/O error comes to; raises what the recorder raises."""
    (fault,) = (one for one in scenario.faults if isinstance(one, IoFault))
    findings: dict[str, ReplayFinding] = {}
    shown: list[IoViolation] = []
    digest = hashlib.sha256()

    def found(violation: IoViolation) -> None:
        breach = violation.breach
        cause = cause_of(breach.clause, breach.sentence)
        if violation.image is not None:
            digest.update(image_digest(violation.image).encode("ascii"))
        if cause not in findings:
            shown.append(violation)
            findings[cause] = ReplayFinding(
                clause=breach.clause,
                sentence=breach.sentence,
                cause=cause,
                session=breach.session,
                model="" if violation.crash is None else violation.crash.model,
            )

    power = target.capabilities.durability == "power"
    run = IoRun(target, slot, power=power, found=found, began=tick)
    base = plan_base(Case(scenario.id, (), scenario.plan))
    landed = False
    for nth in range(min(fault.nth, _FURTHEST), -1, -1):
        struck = msgspec.structs.replace(fault, nth=nth)
        for follow in FOLLOWS:
            landed = run.run(base, struck, follow) or landed
        if landed:
            fault = struck
            break
    reason = ""
    if not landed:
        reason = f"the error did not land: call {fault.during + 1} makes no operation of that kind"
    story: tuple[str, ...] = ()
    if explain:
        story = tuple(_story(scenario, fault, shown, tuple(findings.values())))
    return Replay(
        scenario=scenario.id,
        store=target.name,
        status="failed" if findings else "fixed" if landed else "unknown",
        reason=reason,
        findings=tuple(findings.values()),
        images=run.counts.images,
        digest=digest.hexdigest(),
        landed=(landed,),
        story=story,
    )


def _story(
    scenario: Scenario,
    fault: IoFault,
    shown: list[IoViolation],
    findings: tuple[ReplayFinding, ...],
) -> Iterator[str]:
    yield f"in call {fault.during + 1} of the plan {fault_told(fault)}"
    steps = shown[0].steps if shown else ()
    for number, step in enumerate(steps, 1):
        yield f"{number}. {_step(step)}"
    if not steps:
        for number, line in enumerate(describe_steps(scenario.plan, None), 1):
            yield f"{number}. {line}"
    if shown and shown[0].crash is not None:
        yield f"then {crash_words(shown[0].crash)}"
    yield from verdict(findings, scenario)


def _step(step: IoStep) -> str:
    call = step.call
    match call:
        case Revive(session=session):
            told = f"reopen {session!r} → {told_answer(step.outcome)}"
        case Take(session=session, how=how):
            told = f"the file of {session!r} is {how}"
        case _:
            told = describe_steps([call], (Observation(call, step.outcome),))[0]
    failed = ", ".join(
        f"{one.kind} {'came short' if one.error is None else f'failed with {one.error}'}"
        for one in step.struck
    )
    return f"{told} ({failed})" if failed else told
