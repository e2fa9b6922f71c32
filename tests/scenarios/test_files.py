"""Scenario files that are broken, hostile or odd: one line that says file, field and change."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from torntail.judge.history import Load
from torntail.scenarios.files import (
    ScenarioError,
    find_scenarios,
    load_scenario,
    odd_place,
    place_of,
    save_scenario,
)
from torntail.scenarios.format import Expectation, FileFault, Scenario

GOOD: dict[str, Any] = {
    "torntail": 1,
    "id": "good",
    "class": "gap",
    "title": "A title",
    "plan": [{"operation": "load", "session": "s", "probes": ["RW-8"]}],
    "expect": [{"clause": "DM-3", "outcome": "it is refused"}],
}
CRASH = {"fault": "crash", "during": 0, "model": "kill"}
FOUND = [{"clause": "DM-1", "outcome": "o", "session": "s", "loads": "corrupted"}]
EVENT = {"type": "x", "seq": 0, "time": 0, "data": None}


CREATE = {
    "operation": "create",
    "header": {"type": "session", "version": 0, "id": "session-1", "createdAt": 1},
}


def damage(**more: Any) -> dict[str, Any]:
    return {"operation": "damage", "session": "session-1", **more}


def text_of(**changes: Any) -> bytes:
    return json.dumps({**GOOD, **changes}).encode()


def file_at(path: str, **more: Any) -> bytes:
    return text_of(faults=[{"fault": "file", "path": path, "content": [], **more}], expect=FOUND)


def refusal(tmp_path: Path, content: bytes) -> str:
    path = tmp_path / "good.json"
    path.write_bytes(content)
    with pytest.raises(ScenarioError) as caught:
        load_scenario(path)
    told = str(caught.value)
    assert told.startswith(f"{path}: ")
    assert "\n" not in told
    assert len(told) < 700
    return told.removeprefix(f"{path}: ")


CASES: list[tuple[bytes, str]] = [
    (b"", "is empty"),
    (b" \n", "is empty"),
    (text_of()[:-20], "the file seems to be cut off"),
    (text_of()[:30], "line 1: is not JSON"),
    (b"\xef\xbb\xbf" + text_of(), "byte order mark: save it as plain UTF-8"),
    (text_of().decode().encode("utf-16"), "byte order mark"),
    (b'{"torntail": 1, "id": "\xff"}', "line 1: is not UTF-8"),
    (text_of() + b"\0", "is not JSON"),
    (b"\0" * 100, "is not JSON"),
    (b"[]", "is not an object"),
    (b"7", "is not an object"),
    (b"[" * 100_000, "nests deeper than 240 levels"),
    (b'{"a":' * 100_000, "nests deeper than 240 levels"),
    (b" " * (4 << 20) + text_of(), "is longer than 4194304 bytes"),
    (b'{"torntail": 1, "torntail": 1}', "torntail: stands twice in one object"),
    (text_of()[:-1] + b', "plan": []}', "plan: stands twice in one object"),
    (b'{"torntail": NaN}', "NaN is not JSON"),
    (b'{"torntail": 1e999}', "is out of range"),
    (b'{"torntail": ' + b"9" * 5_000 + b"}", "has more than 4300 digits"),
    (text_of(torntail=2), "torntail: the format 2 is not known to torntail"),
    (text_of(torntail=0), "install the torntail that wrote it, or save it again"),
    (text_of(torntail="1"), 'torntail: is missing or no number: write "torntail": 1'),
    (text_of(torntail=True), "torntail: is missing or no number"),
    (b"{}", "torntail: is missing"),
    (text_of(titel="x"), "titel: unknown field: use title"),
    (
        text_of(**{"class": "gaps"}),
        "class: 'gaps' is not known: use gap, or another of damage, device, durability, ",
    ),
    (text_of(**{"class": "x" * 5_000}), f"class: '{'x' * 58}… is not known: use one of "),
    (text_of(level="all"), "level: 'all' is not known: use one of none, power, process"),
    (
        text_of(**{"class": None}),
        "class: is to be a text, not null",
    ),
    (
        json.dumps({"torntail": 1, "id": "x", "class": "gap", "title": "t", "expect": []}).encode(),
        "plan: is missing: this scenario needs torntail, id, class, title, plan, expect",
    ),
    (text_of(id="../up"), "id: is to be of small letters, digits and hyphens"),
    (text_of(id="Good"), "id: is to be of small letters"),
    (text_of(id=7), "id: is to be a text, not an integer"),
    (text_of(title=" "), "title: is empty"),
    (text_of(teaches="a\nb"), "teaches: has several lines"),
    (text_of(plan=[]), "plan: has no operations"),
    (text_of(plan={}), "plan: is to be a list, not an object"),
    (text_of(plan=None), "plan: is to be a list, not null"),
    (text_of(plan=[7]), "plan[0]: is to be an object, not an integer"),
    (text_of(plan=[{}]), "plan[0].operation: is missing: use one of create, append"),
    (text_of(plan=[{"operation": "lode"}]), "plan[0].operation: lode is not known: use load"),
    (text_of(plan=[{"operation": []}]), "plan[0].operation: [] is not known"),
    (
        text_of(plan=[{"operation": "load", "sesion": "s"}]),
        "plan[0].sesion: unknown field: use session",
    ),
    (text_of(plan=[{"operation": "load"}]), "plan[0].session: is missing: load needs session"),
    (text_of(plan=[CREATE, damage()]), "plan[1].kind: is missing: damage needs session, kind"),
    (
        text_of(plan=[CREATE, damage(kind="garbel")]),
        "plan[1].kind: 'garbel' is not known: use garble, or another of add, crlf, cut, ",
    ),
    (
        text_of(plan=[CREATE, damage(kind="add", variant="fragmnet")]),
        "plan[1].variant: 'fragmnet' is not known: use fragment",
    ),
    (
        text_of(plan=[CREATE, damage(kind="add")]),
        "plan[1].variant: is missing: use one of fragment, nul-run, ",
    ),
    (
        text_of(plan=[CREATE, damage(kind="garble", variant="fragment")]),
        "plan[1].variant: is for trail, rewrite, add alone: leave it out",
    ),
    (
        text_of(plan=[CREATE, damage(kind="misplace")]),
        "plan[1].other: is missing: misplace needs the name of a second session",
    ),
    (
        text_of(plan=[CREATE, damage(kind="misplace", other="x")]),
        "plan[1].other: no create of the plan names 'x'",
    ),
    (
        text_of(plan=[CREATE, damage(kind="garble", session="session-2")]),
        "plan[1].session: no create of the plan names 'session-2': use session-1, or create it",
    ),
    (
        text_of(plan=[CREATE, {"operation": "append", "session": "t", "events": [EVENT]}]),
        "plan[1].session: no create of the plan names 't': use one of session-1, or create it",
    ),
    (
        text_of(plan=[{"operation": "load", "session": "s", "probes": ["DM-3"]}]),
        "plan[0].session: no create of the plan names 's': create it before (to try an unknown",
    ),
    (
        text_of(plan=[{"operation": "together", "operations": [{"operation": "load"}]}]),
        "plan[0].operations[0].session: is missing: load needs session",
    ),
    (
        text_of(plan=[{"operation": "load", "session": "s", "store": 99}]),
        "plan[0].store: is to be from 0 to 7",
    ),
    (
        text_of(plan=[{"operation": "load", "session": "s", "store": 10**300}]),
        "plan[0].store: is absurdly large",
    ),
    (
        text_of(plan=[{"operation": "load", "session": "s", "probes": ["DM-99"]}]),
        "plan[0].probes: no clause 'DM-99'",
    ),
    (text_of(plan=GOOD["plan"] * 1_000_000)[: 4 << 20], "is not JSON"),
    (text_of(plan=GOOD["plan"] * 20_000), "plan: has 20000 operations, more than 10000"),
    (
        text_of(plan=[{"operation": "append", "session": "s", "events": [{"type": "x"}]}]),
        "plan[0].events[0]: record lacks seq, time, data",
    ),
    (
        text_of(plan=[{"operation": "append", "session": "s", "events": [7]}]),
        "plan[0].events[0]: record is not an object",
    ),
    (
        text_of(plan=[{"operation": "create", "header": {"type": "session"}}]),
        "plan[0].header: version is not an integer",
    ),
    (
        text_of(
            plan=[
                {
                    "operation": "append",
                    "session": "s",
                    "events": [EVENT],
                    "spoiled": {"index": 3, "how": "nan"},
                }
            ]
        ),
        "plan[0].spoiled.index: 3 is no call of it",
    ),
    (text_of(expect=[]), "expect: is empty: name the clause"),
    (
        text_of(expect=[{"clause": "XX-1", "outcome": "o"}]),
        "expect[0].clause: no clause 'XX-1'",
    ),
    (text_of(expect=[{"clause": "DM-3", "outcome": ""}]), "expect[0].outcome: is empty"),
    (
        text_of(expect=[{"clause": "DM-3", "outcome": "o", "session": "other"}]),
        "expect[0].session: is in no operation of the plan",
    ),
    (
        text_of(expect=[{"clause": "DM-3", "outcome": "o", "session": "s", "loads": "ok"}]),
        "expect[0].loads: is for a session found in a file",
    ),
    (text_of(faults=[{"fault": "crush"}]), "faults[0].fault: crush is not known: use crash"),
    (text_of(faults=[{**CRASH, "during": 1}]), "faults[0].during: 1 is no call of it"),
    (text_of(faults=[{**CRASH, "during": -2}]), "faults[0].during: -2 is no call of it"),
    (text_of(faults=[{**CRASH, "modle": "kill"}]), "faults[0].modle: unknown field: use model"),
    (text_of(faults=[{**CRASH, "operations": "ab"}]), "and crash belong together"),
    (
        text_of(faults=[{**CRASH, "recovery": GOOD["plan"]}]),
        "faults[0].recovery: is before the first crash",
    ),
    (text_of(faults=[CRASH, CRASH]), "faults[1].recovery: is empty"),
    (
        text_of(faults=[CRASH], plan=[{"operation": "list"}]),
        "plan[0]: cannot be struck: use create, append, load, reopen",
    ),
    (
        text_of(
            faults=[
                {
                    **CRASH,
                    "operations": "ab",
                    "crash": {"model": "posix", "position": 0},
                }
            ]
        ),
        "faults[0].crash.model: is not kill",
    ),
    (
        text_of(faults=[CRASH, {"fault": "file", "path": "a"}], expect=FOUND),
        "faults: are of several kinds",
    ),
    (file_at("/etc/passwd"), "faults[0].path: is absolute"),
    (file_at("c:/x"), "faults[0].path: is absolute"),
    (file_at("../x"), "faults[0].path: has an empty, . or .. part"),
    (file_at("a/../../x"), "faults[0].path: has an empty, . or .. part"),
    (file_at("a//x"), "faults[0].path: has an empty, . or .. part"),
    (file_at(""), "faults[0].path: has an empty, . or .. part"),
    (file_at("a\0b"), "faults[0].path: has a control character"),
    (file_at("a\\b"), "faults[0].path: has a control character, a backslash"),
    (file_at("a\ud800"), "faults[0].path: has a control character, a backslash or half"),
    (file_at("x" * 300), "faults[0].path: is too long"),
    (file_at("a/" * 20 + "x"), "faults[0].path: is too long"),
    (file_at("a", data="AAAA"), "faults[0].data: unknown field"),
    (file_at("a", content="x"), "faults[0].content: is not a list"),
    (file_at("a", content=[["x", 10**15]]), "faults[0].content[0]: more than 16777216 bytes"),
    (file_at("a", content=["\\y"]), "faults[0].content[0]: a backslash stands alone"),
    (
        text_of(
            faults=[{"fault": "file", "path": name, "content": []} for name in ("a/b", "A")],
            expect=FOUND,
        ),
        "faults[1].path: is in the way of another file",
    ),
    (
        text_of(faults=[{"fault": "file", "path": "a", "content": []}]),
        "expect: says of no session what its load is to come to",
    ),
]


@pytest.mark.parametrize(("content", "told"), CASES, ids=range(len(CASES)))
def test_a_bad_file_is_refused_in_one_line(tmp_path: Path, content: bytes, told: str) -> None:
    assert told in refusal(tmp_path, content)


def test_the_good_one_is_taken(tmp_path: Path) -> None:
    (tmp_path / "good.json").write_bytes(text_of())
    assert load_scenario(tmp_path / "good.json") == Scenario(
        torntail=1,
        id="good",
        kind="gap",
        title="A title",
        plan=(Load(session="s", probes=("RW-8",)),),
        expect=(Expectation(clause="DM-3", outcome="it is refused"),),
    )


def test_every_way_to_cut_it_short_is_refused(tmp_path: Path) -> None:
    content = text_of()
    for length in range(len(content)):
        refusal(tmp_path, content[:length])


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "folder.json").mkdir()
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "loop.json").symlink_to("loop.json")
    (tmp_path / "null.json").symlink_to("/dev/null")
    for name, told in (
        ("folder.json", "is not a regular file"),
        ("pipe.json", "is not a regular file"),
        ("loop.json", "cannot be read: Too many levels of symbolic links"),
        ("null.json", "is not a regular file"),
        ("missing.json", "cannot be read: No such file or directory"),
        ("nul\0.json", "cannot be read: .*embedded null "),
    ):
        with pytest.raises(ScenarioError, match=told):
            load_scenario(tmp_path / name)


def test_folders_are_searched_once_and_links_to_folders_not_followed(tmp_path: Path) -> None:
    folder = tmp_path / "all"
    (folder / "gap").mkdir(parents=True)
    for name in ("b", "a", "c"):
        (folder / "gap" / f"{name}.json").write_bytes(text_of())
    (folder / "gap" / "notes.txt").write_text("no scenario")
    (folder / "schema.json").write_text("{}")
    (folder / "gap" / ".hidden.json").write_text("{}")
    (folder / "again").symlink_to(folder)
    found = find_scenarios([folder, folder / "gap" / "b.json"])
    assert [path.name for path in found] == ["a.json", "b.json", "c.json"]
    (tmp_path / "empty.json").mkdir()
    with pytest.raises(ScenarioError, match="is a folder without scenarios"):
        find_scenarios([tmp_path / "empty.json"])
    with pytest.raises(ScenarioError, match="cannot be read"):
        find_scenarios([tmp_path / "missing"])


def test_an_odd_place_is_told(tmp_path: Path) -> None:
    scenario = Scenario(
        torntail=1,
        id="good",
        kind="gap",
        title="A title",
        plan=(Load(session="s", probes=("RW-8",)),),
        expect=(Expectation(clause="DM-3", outcome="o"),),
    )
    assert place_of(scenario, tmp_path) == tmp_path / "gap" / "good.json"
    assert odd_place(scenario, tmp_path / "gap" / "good.json") is None
    assert odd_place(scenario, tmp_path / "mine" / "good.json") is None
    assert "its id is good" in str(odd_place(scenario, tmp_path / "gap" / "other.json"))
    assert "its class is gap" in str(odd_place(scenario, tmp_path / "device" / "good.json"))


def test_saving_leaves_the_old_file_or_the_new_one(tmp_path: Path) -> None:
    path = tmp_path / "new" / "good.json"
    scenario = Scenario(
        torntail=1,
        id="good",
        kind="gap",
        title="A title",
        plan=(Load(session="s", probes=("RW-8",)),),
        expect=(Expectation(clause="DM-3", outcome="o"),),
    )
    save_scenario(scenario, path)
    before = path.read_bytes()
    assert load_scenario(path) == scenario
    bad = Scenario(
        torntail=1,
        id="good",
        kind="gap",
        title="A title",
        plan=(Load(session="s"),),
        faults=(FileFault(path="../x"),),
        expect=(Expectation(clause="DM-3", outcome="o", session="s", loads="corrupted"),),
    )
    with pytest.raises(ScenarioError, match=r"has an empty, \. or \.\. part"):
        save_scenario(bad, path)
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == ["good.json"]
    with pytest.raises(ScenarioError, match="cannot be written"):
        save_scenario(scenario, path / "below-a-file" / "good.json")
