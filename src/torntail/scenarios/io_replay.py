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
from torntail.explore.io_run import IoRun, IoViolation
from torntail.explore.io_story import FOLLOWS
from torntail.explore.io_trials import plan_base
from torntail.explore.script import Case
from torntail.explore.witness import describe_steps
from torntail.record.slots import Slot
from torntail.scenarios.format import Scenario
from torntail.scenarios.outcome import Replay, ReplayFinding, cause_of, image_digest
from torntail.scenarios.story import error_story, verdict

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
    if shown:
        yield from error_story(fault, shown[0].steps, shown[0].crash, shown[0].image)
    else:
        yield f"in call {fault.during + 1} of the plan {fault_told(fault)}"
        for number, line in enumerate(describe_steps(scenario.plan, None), 1):
            yield f"{number}. {line}"
    yield from verdict(findings, scenario)
