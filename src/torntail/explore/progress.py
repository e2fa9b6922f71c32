"""What a campaign tells while it runs: one stream of values, which reports consume.

Decides nothing; a report need not know how a campaign comes about.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from torntail.judge.verdict import Certificate, Finding

__all__ = ["CampaignEnded", "CampaignStarted", "CaseEnded", "CrashesWent", "Progress"]


class CampaignStarted(msgspec.Struct, frozen=True):
    """A campaign begins; so many cases will be run."""

    target: str
    cases: int


class CaseEnded(msgspec.Struct, frozen=True):
    """A case was run and judged; `findings` are the new ones."""

    case: str
    clauses: tuple[str, ...]
    judgements: int
    findings: tuple[Finding, ...] = ()


class CrashesWent(msgspec.Struct, frozen=True):
    """How far the crashes are: plans, moments, images, distinct images of `wanted`, findings.

    After the search, `shortened` of the `histories` of findings were made small. `io_runs` of
    `wanted_io_runs` runs were made in which the disk said no.
    """

    plans: int
    moments: int
    images: int
    distinct_images: int
    wanted_images: int
    findings: int
    seconds: float
    histories: int = 0
    shortened: int = 0
    io_runs: int = 0
    wanted_io_runs: int = 0


class CampaignEnded(msgspec.Struct, frozen=True):
    """The certificate is ready; `seconds` is how long it took."""

    certificate: Certificate
    seconds: float


Progress = Callable[[CampaignStarted | CaseEnded | CrashesWent | CampaignEnded], None]
