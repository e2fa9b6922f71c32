"""The check of a driver finds each rule that is broken, and says which."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from torntail.cli_driver import driver_command

WRONG = Path(__file__).with_name("wrong_drivers.py")


def checked(name: str, *more: str) -> tuple[int, list[str]]:
    command = f"{sys.executable} -I -S {WRONG} {name}"
    result = CliRunner().invoke(
        driver_command, ["check", "--exec", command, "--timeout", "60", *more]
    )
    return result.exit_code, result.output.splitlines()


def test_one_that_keeps_all():
    code, lines = checked("well")
    assert code == 0
    assert lines[-1] == "14 rules kept, 0 broken"
    assert [line for line in lines[:-2] if not line.startswith("ok      ")] == []


@pytest.mark.parametrize(
    ("name", "rule", "problem"),
    [
        ("talks", "answers nothing but requests", "it wrote b'ready"),
        ("loads_oddly", "answers each call in its form", "load gave "),
        ("lists_oddly", "answers each call in its form", "list gave "),
        (
            "finds_everything",
            "refuses with a kind and a message",
            "load of an unknown session was not refused",
        ),
        ("no_message", "refuses with a kind and a message", "without a message"),
        ("no_kind", "refuses with a kind and a message", "refused as other, not as not_found"),
        (
            "stops_at_the_unknown",
            "refuses a call that it does not know, and goes on",
            "it ended with exit code 1",
        ),
        (
            "any_store",
            "refuses calls on a store that is not open",
            "a call on a store that was never opened was not refused",
        ),
        (
            "one_root",
            "serves several roots at once",
            "load of what was appended below another root was not refused",
        ),
        (
            "reads_once",
            "answers requests that come together",
            "a line that is no answer: ",
        ),
        ("splits", "ends lines at the byte 0A and nowhere else", ""),
        ("never_closed", "closes a store, and opens its root again", "was not refused"),
        (
            "any_protocol",
            "names its protocol to one who speaks another",
            "it neither refused nor named its protocol",
        ),
        (
            "bad_end",
            "ends when its input does, and leaves no process behind",
            "its exit code was 5",
        ),
    ],
)
def test_each_breach_is_named(name, rule, problem):
    code, lines = checked(name)
    assert code == 1
    assert f"broken  {rule}" in lines
    told = lines[lines.index(f"broken  {rule}") + 1]
    assert told.startswith("          ")
    assert problem in told


def test_without_a_command_there_is_nothing_to_check():
    result = CliRunner().invoke(driver_command, ["check", "--exec", "/nowhere/driver"])
    assert result.exit_code == 2
    assert "/nowhere/driver cannot be run: No such file or directory" in result.output
