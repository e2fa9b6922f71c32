"""The page of the driver protocol says what the code does."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from tests.docs import driver_schema
from torntail.drive import protocol
from torntail.drive.conversation import answer_id
from torntail.drive.protocol import ErrorKind, Request
from torntail.judge.capabilities import Capabilities

PAGE = Path(__file__).parents[2] / "docs" / "driver-protocol.md"
DRIVERS = Path(__file__).parents[2] / "drivers"


def test_the_schema_is_the_one_of_the_types() -> None:
    shown = driver_schema.FILE.read_text(encoding="utf-8")
    assert shown == driver_schema.text(), "run python -m tests.docs.driver_schema"


def test_each_line_shown_is_a_request_or_an_answer() -> None:
    blocks = re.findall(r"^```json\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    lines = [line.encode() for block in blocks for line in block.splitlines()]
    assert len(lines) >= 6
    for line in lines:
        if b'"call"' in line:
            msgspec.json.decode(line, type=Request)
        else:
            assert answer_id(line) is not None


def test_the_page_names_every_call_and_every_kind() -> None:
    shown = PAGE.read_text(encoding="utf-8")
    calls = [one.__struct_config__.tag for one in get_args(Request)]
    assert [call for call in calls if f"\n| `{call}` |" not in shown] == []
    assert [kind for kind in get_args(ErrorKind) if f"\n| `{kind}` |" not in shown] == []
    assert f"{protocol.ANSWER_BYTES // 2**20} MiB" in shown


def test_requests_are_written_with_their_members_in_the_order_shown() -> None:
    shown = PAGE.read_text(encoding="utf-8")
    for one in get_args(Request):
        call = one.__struct_config__.tag
        members = [f"`{name}`" for name in one.__struct_fields__ if name != "id"]
        assert f"| `{call}` | {', '.join(members)} |" in shown


@pytest.mark.parametrize("path", ["node/example.mjs", "c/example.c"])
def test_the_claims_of_the_examples_are_claims(path: str) -> None:
    text = (DRIVERS / path).read_text(encoding="utf-8")
    known = set(Capabilities.__struct_fields__)
    (claims,) = re.findall(r"capabilities\\?\"?: ?\{(.*?)\}", text, re.S)
    names = set(re.findall(r"(\w+)\\?\"?:", claims))
    assert names
    assert names <= known


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_the_node_example_can_be_parsed() -> None:
    subprocess.run(["node", "--check", str(DRIVERS / "node" / "example.mjs")], check=True)
