"""The stores in docs/examples do what docs/your-own-store.md says of them."""

from __future__ import annotations

import importlib
import os
import re
from collections import Counter
from pathlib import Path
from types import ModuleType

import msgspec
import pytest

from torntail import Capabilities, certify
from torntail.drive.python_store import KINDS
from torntail.judge.verdict import Certificate

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "your-own-store.md").read_text(encoding="utf-8")


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> ModuleType:
    monkeypatch.syspath_prepend(DOCS / "examples")
    return importlib.import_module(request.param)


def states(certificate: Certificate) -> Counter[str]:
    return Counter(result.state for result in certificate.results)


def failed(certificate: Certificate) -> set[str]:
    return {result.clause for result in certificate.results if result.state == "fail"}


@pytest.mark.parametrize("example", ["small_store"], indirect=True)
def test_the_small_store_keeps_every_clause(example: ModuleType) -> None:
    certificate = certify(example.open_store, level="power", images=1000, runs=None, workers=0)
    assert (certificate.verdict, certificate.harness_errors) == ("pass", ())
    passed, counted = re.findall(r"pass · (\d+) pass, (\d+) counted, …", PAGE)[0]
    assert states(certificate)["pass"] == int(passed)
    assert states(certificate)["counted"] == int(counted)


@pytest.mark.parametrize("example", ["small_store"], indirect=True)
@pytest.mark.parametrize(("left_out", "clause"), [("fsync", "CR-1"), ("ftruncate", "CR-5")])
def test_without_a_step_the_small_store_is_caught(
    example: ModuleType, left_out: str, clause: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Os:
        """The example's `os`, with one call that does nothing."""

        def __getattr__(self, name: str) -> object:
            return (lambda *arguments: None) if name == left_out else getattr(os, name)

    monkeypatch.setattr(example, "os", Os())
    certificate = certify(
        example.open_store, level="power", only=[clause], images=1000, runs=None, workers=0
    )
    assert failed(certificate) == {clause}


@pytest.mark.parametrize("example", ["async_store"], indirect=True)
def test_the_async_store_breaks_the_clause_that_is_accepted(example: ModuleType) -> None:
    refused = certify(example.open_store, runs=None)
    assert (refused.exit_code, failed(refused)) == (1, {"RW-17"})
    clause, reason = re.findall(r"--accept '([A-Z0-9-]+)=([^']+)'", PAGE)[0]
    accepted = certify(example.open_store, runs=None, only=["RW-17"], accept={clause: reason})
    assert (accepted.verdict, accepted.exit_code) == ("pass", 0)
    assert [result.accepted for result in accepted.results] == [reason]


def test_the_page_names_every_claim_with_its_default() -> None:
    defaults = msgspec.to_builtins(Capabilities())
    for name, default in defaults.items():
        shown = re.findall(rf"^\| `{name}` \| `([^`]+)` \|", PAGE, re.MULTILINE)
        assert len(shown) == 1, name
        if name == "detects":
            assert set(re.findall(r"\w+", shown[0])) == set(default)
        else:
            assert shown[0].replace('"', "'") == repr(default), name


def test_the_page_names_every_kind_of_error() -> None:
    assert {kind for kind in KINDS if f"`{kind}`" in PAGE} == KINDS
