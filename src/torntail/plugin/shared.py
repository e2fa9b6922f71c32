"""A campaign made once in a run, also where several workers of xdist need it.

Decides that the first who needs it makes it, under a lock that dies with its process, and that the
others read the file it leaves. The files lie beside the temporary directories of the run.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from torntail.judge.verdict import Certificate

__all__ = ["Outcome", "shared"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a campaign came to: a certificate, or why there is none."""

    certificate: Certificate | None = None
    error: str = ""


_MADE: Final = pytest.StashKey[dict[str, Outcome]]()


def shared(request: pytest.FixtureRequest, key: str, make: Callable[[], Outcome]) -> Outcome:
    """What `make` gives, called once in this run for this key."""
    made = request.config.stash.setdefault(_MADE, {})
    if key not in made:
        directory = _directory(request)
        run = getattr(request.config, "workerinput", {}).get("testrunuid", "")
        made[key] = make() if directory is None else _of_all_workers(directory, run + key, make)
    return made[key]


def _directory(request: pytest.FixtureRequest) -> Path | None:
    """A directory that all workers of this run have in common; None if there are no others."""
    if not hasattr(request.config, "workerinput"):
        return None
    try:
        factory: pytest.TempPathFactory = request.getfixturevalue("tmp_path_factory")
    except pytest.FixtureLookupError:
        return None
    return factory.getbasetemp().parent


def _of_all_workers(directory: Path, key: str, make: Callable[[], Outcome]) -> Outcome:
    name = hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:24]
    path = directory / f"torntail-{name}.json"
    with (directory / f"torntail-{name}.lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if path.exists():
            return _read(path)
        outcome = make()
        temporary = path.with_suffix(".tmp")
        temporary.write_text(_text(outcome), encoding="ascii")
        temporary.replace(path)
        return outcome


def _text(outcome: Outcome) -> str:
    certificate = outcome.certificate
    record = None if certificate is None else certificate.to_json()
    return json.dumps({"certificate": record, "error": outcome.error})


def _read(path: Path) -> Outcome:
    record = json.loads(path.read_text(encoding="ascii"))
    found = record["certificate"]
    return Outcome(
        certificate=None if found is None else Certificate.from_json(found),
        error=record["error"],
    )
