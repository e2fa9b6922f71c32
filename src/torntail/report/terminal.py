"""A campaign on a terminal: progress while it runs, then the table and the findings.

Progress goes to standard error, and only where that is a terminal; results go to standard output.
NO_COLOR and FORCE_COLOR are obeyed (by rich). Everything a store under test could have chosen (ids,
error texts, file names) is shown with its control characters escaped and never as markup.
"""

from __future__ import annotations

import sys
from collections import Counter
from typing import Final, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn
from rich.table import Table
from rich.text import Text

from torntail.explore.progress import CampaignEnded, CampaignStarted, CaseEnded, CrashesWent
from torntail.judge.clauses import CLAUSES
from torntail.judge.devices import DEVICE_OUTCOMES
from torntail.judge.verdict import Certificate, ClauseResult, Finding
from torntail.report.console import print_table, result_console
from torntail.report.inspection import printable

__all__ = ["LiveProgress", "print_certificate", "print_interrupted"]

_STYLES: Final = {
    "fail": "bold red",
    "accepted": "bold red",
    "unknown": "yellow",
    "not exercised": "yellow",
    "pass": "green",
    "counted": "cyan",
    "not exercised yet": "dim",
    "not applicable": "dim",
    "not requested": "dim",
    "broken baseline": "bold red",
}
"""What may become of a clause, in the order in which it is told."""
_BRIEF: Final = frozenset({"not exercised yet", "not applicable", "not requested"})


class LiveProgress:
    """Shows where a campaign is; a context manager, and a `Progress` callable."""

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._crashes: TaskID | None = None
        self._errors: TaskID | None = None
        self._findings = 0
        self._judgements = 0
        self.seconds = 0.0

    def __enter__(self) -> Self:
        if self._console.is_terminal and sys.stderr.isatty():
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(bar_width=24),
                MofNCompleteColumn(),
                TextColumn("{task.fields[told]}"),
                console=self._console,
                transient=True,
            )
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, event: CampaignStarted | CaseEnded | CrashesWent | CampaignEnded) -> None:
        """Takes the next event of the campaign."""
        match event:
            case CampaignStarted():
                if self._bar is not None:
                    name = printable(f"certify {event.target}")
                    self._task = self._bar.add_task(name, total=event.cases, told="")
            case CaseEnded():
                self._findings += len(event.findings)
                self._judgements += event.judgements
                if self._bar is not None and self._task is not None:
                    told = f"{self._judgements} checks, {self._findings} findings · {event.case}"
                    self._bar.update(self._task, advance=1, told=told)
            case CrashesWent():
                if self._bar is not None:
                    self._show_crashes(self._bar, event)
            case CampaignEnded():
                self.seconds = event.seconds

    def _show_crashes(self, bar: Progress, event: CrashesWent) -> None:
        if event.wanted_images:
            if self._crashes is None:
                self._crashes = bar.add_task("crash", total=event.wanted_images, told="")
            rate = event.distinct_images / max(event.seconds, 0.1)
            told = (
                f"distinct images · {event.plans} plans, {event.moments} crash positions, "
                f"{event.images} images, {event.findings} findings, {rate:.0f} images/s"
            )
            if event.shortened < event.histories:
                told = (
                    f"{event.findings} findings; making their histories small: "
                    f"{event.shortened} of {event.histories}"
                )
            bar.update(self._crashes, completed=event.distinct_images, told=told)
        if event.wanted_io_runs:
            if self._errors is None:
                self._errors = bar.add_task("I/O errors", total=event.wanted_io_runs, told="")
            told = f"runs in which the disk said no · {event.findings} findings"
            bar.update(self._errors, completed=event.io_runs, told=told)


def print_certificate(certificate: Certificate, seconds: float, *, stderr: bool = False) -> None:
    """Prints the table of clauses, the findings, and the command that shows them again, last."""
    console = result_console(stderr=stderr)
    _print_head(console, certificate, seconds)
    if certificate.baseline_error is not None:
        console.print(Text(f"broken baseline: {printable(certificate.baseline_error)}", "bold red"))
        console.print(
            "Nothing else was tried: a store has to create, append, load and reopen first."
        )
    else:
        _print_table(console, certificate)
        _print_rest(console, certificate)
        _print_device_faults(console, certificate)
        for finding in certificate.findings:
            _print_finding(console, certificate, finding)
    _print_verdict(console, certificate)


def print_interrupted(certificate: Certificate, seconds: float, *, stderr: bool = False) -> None:
    """Prints what was found before an interrupt, and the command that shows the first of it, last.

    Nothing is said of a clause that was not seen to be violated: it was looked at in part only.
    """
    console = result_console(stderr=stderr)
    _print_head(console, certificate, seconds)
    for finding in certificate.findings:
        _print_finding(console, certificate, finding)
    console.print()
    found = len(certificate.findings)
    told = f"{found or 'no'} finding{'' if found == 1 else 's'} by then; nothing else is decided"
    console.print(Text(f"interrupted: {told}", "yellow"))
    if found > 1:
        console.print(f"(the first of {found})")
    again = certificate.findings[0].command if found else certificate.command
    console.out(again, highlight=False)


def _print_head(console: Console, certificate: Certificate, seconds: float) -> None:
    claims = certificate.capabilities
    counts = certificate.counts
    head = (
        f"{certificate.target} · profile {claims.profile} · durability {claims.durability} · "
        f"level {certificate.request.level} · seed {certificate.seed}"
    )
    console.print(Text(printable(head), "bold"))
    console.print(
        f"{counts.cases} cases, {counts.operations} operations, {counts.damages} damages, "
        f"{counts.judgements} checks in {seconds:.1f} s"
    )
    if counts.plans:
        rate = counts.distinct_images / max(counts.crash_seconds, 0.1)
        console.print(
            f"{counts.plans} plans crashed at {counts.moments} positions: {counts.images} images, "
            f"{counts.distinct_images} of them distinct and loaded ({rate:.0f} a second), "
            f"{counts.recoveries} distinct recoveries gone on with"
        )
    if counts.io_runs:
        struck = ", ".join(f"{count} {kind}" for kind, count in sorted(counts.io_struck.items()))
        console.print(
            f"{counts.io_runs} runs in which the disk said no (struck: {struck}), "
            f"{counts.io_images} disks loaded after crashes in them"
        )


def _print_table(console: Console, certificate: Certificate) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1, 0, 0))
    table.add_column("clause", no_wrap=True)
    table.add_column("state", no_wrap=True)
    table.add_column("checks", justify="right", no_wrap=True)
    table.add_column("promise", overflow="fold")
    for result in certificate.results:
        if result.state in _BRIEF:
            continue
        table.add_row(
            result.clause,
            Text(_state(result), _STYLES[result.state]),
            str(result.executed) if result.executed else "",
            Text.assemble(
                CLAUSES[result.clause].summary,
                (f"\n{printable(_note(result))}" if _note(result) else "", "yellow"),
            ),
        )
    if table.row_count:
        print_table(console, table)


def _state(result: ClauseResult) -> str:
    return "accepted" if result.accepted is not None and result.state == "fail" else result.state


def _note(result: ClauseResult) -> str:
    if result.accepted is not None and result.state == "fail":
        return f"accepted: {result.accepted} ({result.note})"
    return result.note


def _print_rest(console: Console, certificate: Certificate) -> None:
    """What has no row of its own, in one line for each state."""
    brief: dict[str, list[str]] = {}
    for result in certificate.results:
        if result.state in _BRIEF:
            why = f" ({printable(result.note)})" if result.note else ""
            brief.setdefault(f"{result.state}{why}", []).append(result.clause)
    for state, clauses in brief.items():
        console.print(Text(f"{state}: {_ranges(clauses)}", "dim"))
    if certificate.not_claimed:
        console.print(Text(f"not claimed: {', '.join(certificate.not_claimed)}", "dim"))
    for clause in certificate.healed:
        console.print(Text(f"healed: {clause} was accepted as violated and is kept now", "green"))
    for note in (*certificate.notes, *certificate.harness_errors):
        console.print(Text(f"note: {printable(note)}", "yellow"))
    for limit in certificate.limits:
        console.print(Text(f"limit: {limit}", "dim"))


def _print_device_faults(console: Console, certificate: Certificate) -> None:
    """What loads came to after device faults: counted, not judged but by DM-1 and CR-2."""
    if not certificate.device_faults:
        return
    struck = sum(sum(outcomes.values()) for outcomes in certificate.device_faults.values())
    console.print(f"device faults, not part of the verdict: {struck} disks loaded")
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 1, 0, 2))
    table.add_column("fault", no_wrap=True)
    for outcome in DEVICE_OUTCOMES:
        table.add_column(outcome, justify="right")
    for kind, outcomes in sorted(certificate.device_faults.items()):
        table.add_row(kind, *(str(outcomes.get(outcome, "")) for outcome in DEVICE_OUTCOMES))
    print_table(console, table)


def _ranges(clauses: list[str]) -> str:
    """`CR-1 CR-2 CR-3 IO-1` as `CR-1…3 IO-1`."""
    groups: dict[str, list[int]] = {}
    for clause in clauses:
        group, _, number = clause.partition("-")
        groups.setdefault(group, []).append(int(number))
    parts = []
    for group, numbers in groups.items():
        start = numbers[0]
        for index, last in enumerate(numbers):
            if last + 1 not in numbers[index + 1 : index + 2]:
                parts.append(f"{group}-{start}" + (f"…{last}" if last > start else ""))
                start = numbers[index + 1] if index + 1 < len(numbers) else start
    return " ".join(parts)


def _print_finding(console: Console, certificate: Certificate, finding: Finding) -> None:
    accepted = certificate.request.accepted.get(finding.clause)
    sentence = printable(finding.sentence, 1000)
    if accepted is not None:
        told = f"{finding.clause} violated, accepted ({printable(accepted)}): {sentence}"
        console.print(Text(told, "dim"))
        return
    console.print()
    console.print(Text(f"{finding.clause} violated: {sentence}", "bold red"))
    console.print(Text(f"  {CLAUSES[finding.clause].sentence}", "dim"))
    if finding.model != "no fault":
        console.print(Text(f"  plan {printable(finding.case)}, model: {finding.model}"))
    for number, step in enumerate(finding.steps, 1):
        console.print(Text(f"  {number}. {printable(step, 1000)}"))
    if finding.witness is not None:
        console.print(Text(f"  witness: {printable(finding.witness)}"))
    console.out(f"  {finding.command}", highlight=False)


def _print_verdict(console: Console, certificate: Certificate) -> None:
    states = Counter(_state(result) for result in certificate.results)
    told = ", ".join(f"{states[state]} {state}" for state in _STYLES if states[state])
    console.print()
    console.print(
        Text.assemble(
            (certificate.verdict, _STYLES[certificate.verdict]), f" · {told}" if told else ""
        )
    )
    if certificate.verdict == "pass":
        return
    # The last line of every failure is the command that shows it again.
    findings = [
        finding
        for finding in certificate.findings
        if finding.clause not in certificate.request.accepted
    ]
    if len(findings) > 1:
        console.print(f"(the first of {len(findings)})")
    console.out(findings[0].command if findings else certificate.command, highlight=False)
