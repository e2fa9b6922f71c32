"""`torntail inspect`: outcome, line and byte of every case, safe output, exit codes, no writes."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.field_reports import CASES, Case
from tests.shapes import log
from torntail.cli_files import inspect_command
from torntail.report.inspection import printable, printable_bytes
from torntail.session import SessionEvent, SessionHeader, encode_event, encode_header
from torntail.stores.jsonl import JsonlStore
from torntail.stores.paths import encode_segment
from torntail.stores.sqlite import SqliteStore

BUCKET = "cwd-d1bb8ca35467"


def inspect(*arguments: str | Path) -> Result:
    result = CliRunner().invoke(inspect_command, [str(one) for one in arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def record(*arguments: str | Path) -> dict[str, Any]:
    (line,) = inspect("--json", *arguments).stdout.splitlines()
    found: dict[str, Any] = json.loads(line)
    return found


def snapshot(root: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(path.relative_to(root)): (path.stat().st_mtime_ns, path.read_bytes())
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def place(root: Path, name: str, shape: str, bucket: str = BUCKET) -> Path:
    path = root / bucket / f"{name}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(log(shape))
    return path


# --- the cases ----------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("loose", [False, True], ids=["in a store", "loose"])
def test_field_report(case: Case, loose: bool, tmp_path: Path) -> None:
    if loose:
        path = tmp_path / f"{case.session_id}.jsonl"
        path.write_bytes(case.content)
    else:
        path = case.place(tmp_path)
    before = snapshot(tmp_path)
    expect = {key: value for key, value in case.expect.items() if key != "why"}
    if loose and expect["outcome"] == "identity_mismatch":
        # Away from a store a difference between name and header is a note.
        expect = {"outcome": "ok", "events": 6, "closers": [], "total": 6}
    result = inspect("--json", path)
    (line,) = result.stdout.splitlines()
    found = json.loads(line)
    others = {"path", "session_id", "expected_id", "why", "excerpt", "events_before", "size"}
    others |= {"header", "types", "turns", "turn_open", "open_calls", "notes"}
    others |= {"torn_why", "torn_excerpt"}
    assert {key: value for key, value in found.items() if key not in others} == expect
    assert result.exit_code == (0 if expect["outcome"] == "ok" else 1)
    assert snapshot(tmp_path) == before

    text = inspect(path)
    assert text.exit_code == result.exit_code
    assert f"outcome  {expect['outcome']}:" in text.stdout
    if "line" in expect:
        assert f"at line {expect['line']}, byte {expect['byte']};" in text.stdout
    if "torn_from_line" in expect:
        place = f"line {expect['torn_from_line']}, byte {expect['torn_from_byte']}:"
        assert f"torn tail from {place} {expect['torn_bytes']} bytes" in text.stdout


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_inspect_says_is_what_load_does(case: Case, tmp_path: Path) -> None:
    path = case.place(tmp_path)
    found = record(path)
    with JsonlStore(tmp_path, durability="process") as store:
        if found["outcome"] != "ok":
            with pytest.raises(Exception, match=r"corrupt|version|never|not the id"):
                store.load(case.session_id)
            return
        loaded = store.load(case.session_id)
        assert len(loaded.events) == found["total"]
        assert loaded.repair.torn_bytes == found.get("torn_bytes", 0)
        assert loaded.repair.newline_added == found.get("newline_added", False)


# --- what is shown ------------------------------------------------------------------------------


def test_counts_and_header(tmp_path: Path) -> None:
    found = record(place(tmp_path, "s-1", "H Tt TS U SS A:c1,c2 K:c1 R:c1"))
    assert found["session_id"] == found["expected_id"] == "s-1"
    assert found["header"] == {
        "type": "session",
        "version": 0,
        "id": "s-1",
        "createdAt": 1_700_000_000_000,
        "cwd": "/w",
    }
    assert (found["turns"], found["turn_open"], found["open_calls"]) == (2, True, 1)
    assert found["types"]["assistant/message"] == 3
    assert sum(found["types"].values()) == found["events"] == 16
    assert found["closers"][0] == ["tool/result", 16, "c2", 1, None]


def test_a_noted_call_is_cited(tmp_path: Path) -> None:
    found = record(place(tmp_path, "s-1", "H TS SS A:c1 K:c1"))
    assert found["closers"][0] == ["tool/result", 4, "c1", 1, [3]]


def test_nothing_from_a_file_reaches_the_terminal_as_it_is(tmp_path: Path) -> None:
    evil = "\x1b]0;owned\x07\x1b[31m\u202e\x9b\x00\r\n\ud800\u2028"
    path = tmp_path / "evil.jsonl"
    header = SessionHeader(f"s{evil}", 1, evil, evil, extra={evil: evil})
    event = SessionEvent(f"t{evil}", 0, 1, evil)
    damaged = b"\x1b[2J\x9b\x07 \xff\n"
    end = encode_event(SessionEvent("turn/end", 1, 1, {}))
    path.write_bytes(
        encode_header(header) + b"\n" + encode_event(event) + b"\n" + damaged + end + b"\n"
    )
    for arguments in ([path], ["--json", path], [tmp_path], ["--json", tmp_path]):
        output = inspect(*arguments).output
        assert not [
            character for character in output if character != "\n" and not character.isprintable()
        ]
    assert r"\x1b[2J" in inspect(path).stdout


def test_printable() -> None:
    assert printable("a\x1b\u202eé\U000e0001\ud800") == "a\\x1b\\u202eé\\U000e0001\\ud800"
    assert printable("x" * 301) == "x" * 300 + "…"
    assert printable_bytes(b"a\xff" + bytes(80)) == "a\\xff\\x00(×80)"
    assert printable_bytes(b"\x00\x01\n") == "\\x00\\x01\\x0a"


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such names")
def test_a_name_that_is_not_utf8(tmp_path: Path) -> None:
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/bad\xff.jsonl"))
    path.write_bytes(log("H T"))
    assert record(path)["outcome"] == "ok"
    assert "bad\\udcff" in inspect(path).stdout


# --- identity -----------------------------------------------------------------------------------


def test_identity_by_place_and_by_option(tmp_path: Path) -> None:
    assert record(place(tmp_path, "s-2", "H T"))["outcome"] == "identity_mismatch"
    assert record(place(tmp_path, "s-1", "H T", "_no-cwd"))["outcome"] == "ok"
    loose = tmp_path / "other.jsonl"
    loose.write_bytes(log("H T"))
    assert record(loose)["outcome"] == "ok"
    assert "name does not say" in record(loose)["notes"][0]
    assert record("--id", "s-1", loose)["notes"] == []
    assert record("--id", "s-9", loose)["outcome"] == "identity_mismatch"
    assert inspect("--id", "s-9", loose).exit_code == 1


def test_an_encoded_name_is_decoded(tmp_path: Path) -> None:
    assert record(place(tmp_path, encode_segment("a/b"), "H:id=a/b T"))["outcome"] == "ok"


def test_a_name_no_id_has(tmp_path: Path) -> None:
    found = record(place(tmp_path, "a b", "H:id=a T"))
    assert found["outcome"] == "identity_mismatch"
    assert "no session id has this file name" in found["why"]


def test_an_id_in_two_places(tmp_path: Path) -> None:
    first = place(tmp_path, "s-1", "H T")
    second = place(tmp_path, "s-1", "H T T", "_no-cwd")
    for path in (first, second):
        found = record(path)
        assert found["outcome"] == "identity_mismatch"
        assert str(first) in found["why"]
        assert str(second) in found["why"]


# --- folders ------------------------------------------------------------------------------------


def test_a_store_one_damaged_session_hides_nothing(tmp_path: Path) -> None:
    place(tmp_path, "s-1", "H T TS U")
    place(tmp_path, "s-2", "H:id=s-2 T RAW:7b LF T")
    place(tmp_path, "s-3", "RAW:")
    place(tmp_path, "s-4", "H:v7 T", "_no-cwd")
    (tmp_path / BUCKET / "s-5.jsonl").symlink_to("s-1.jsonl")
    (tmp_path / BUCKET / "s-1.jsonl.torn-7-abc").write_bytes(b"{}")
    result = inspect(tmp_path)
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert [line.split()[0] for line in lines] == [
        "session",
        "_no-cwd/s-4.jsonl",
        f"{BUCKET}/s-1.jsonl",
        f"{BUCKET}/s-2.jsonl",
        f"{BUCKET}/s-3.jsonl",
        f"{BUCKET}/s-5.jsonl",
    ]
    for word in ("unsupported_version", "corrupt", "line 8, byte 761", "never_materialised"):
        assert word in result.stdout
    assert "unreadable" in lines[-1]
    found = [json.loads(line) for line in inspect("--json", tmp_path).stdout.splitlines()]
    assert [one["outcome"] for one in found] == [
        "unsupported_version",
        "ok",
        "corrupt",
        "never_materialised",
    ]


def test_a_bucket_a_folder_of_loose_files_and_an_empty_store(tmp_path: Path) -> None:
    place(tmp_path / "store", "s-1", "H T")
    assert inspect(tmp_path / "store" / BUCKET).exit_code == 0
    assert inspect(tmp_path / "store").exit_code == 0
    (tmp_path / "loose").mkdir()
    (tmp_path / "loose" / "a.jsonl").write_bytes(log("H T"))
    assert "a.jsonl" in inspect(tmp_path / "loose").stdout
    (tmp_path / "empty" / BUCKET).mkdir(parents=True)
    assert inspect(tmp_path / "empty").exit_code == 0
    assert "no sessions" in inspect(tmp_path / "empty").stdout


# --- what cannot be inspected -------------------------------------------------------------------


def refused(*arguments: str | Path) -> str:
    result = inspect(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("torntail: ")
    return line


def test_missing_special_and_foreign(tmp_path: Path) -> None:
    assert "no such file" in refused(tmp_path / "missing")
    assert "not a regular file" in refused("/dev/null")
    (tmp_path / "dangling").symlink_to("nowhere")
    assert "not a regular file" in refused(tmp_path / "dangling")
    (tmp_path / "folder").mkdir()
    assert "no session files here" in refused(tmp_path / "folder")
    place(tmp_path, "s-1", "H T")
    assert "--id names one session" in refused("--id", "s-1", tmp_path)
    os.mkfifo(tmp_path / "fifo")
    assert "not a regular file" in refused(tmp_path / "fifo")


def test_no_argument_is_a_usage_error() -> None:
    assert inspect().exit_code == 2


def test_unreadable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = place(tmp_path, "s-1", "H T")

    def denied(*_: Any) -> int:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("torntail.stores.inspection.open_log", denied)
    assert "Permission denied" in refused(path)
    assert "unreadable" in inspect(tmp_path).stdout


def test_a_file_that_is_no_session_is_corrupt_at_line_1(tmp_path: Path) -> None:
    path = tmp_path / "picture.png"
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(range(256)))
    result = inspect(path)
    assert result.exit_code == 1
    assert "at line 1, byte 0" in result.stdout
    assert "a session file begins with" in result.stdout


def test_help_has_examples() -> None:
    assert "torntail inspect session.jsonl" in inspect("--help").stdout


# --- databases ----------------------------------------------------------------------------------


def test_a_database(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    with SqliteStore(path) as store:
        for name in ("s-1", "s-2"):
            store.create(SessionHeader(name, 1))
            store.append(name, [SessionEvent("turn/start", 0, 1, {"turn": 1})])
    found = [json.loads(line) for line in inspect("--json", path).stdout.splitlines()]
    assert [(one["session_id"], one["outcome"], one["total"]) for one in found] == [
        ("s-1", "ok", 2),
        ("s-2", "ok", 2),
    ]
    assert inspect(path).exit_code == 0
    assert record("--id", "s-2", path)["session_id"] == "s-2"
    assert "not found" in refused("--id", "s-3", path)


def test_a_foreign_database(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE t (a)")
    connection.commit()
    connection.close()
    before = path.read_bytes()
    refused(path)
    assert path.read_bytes() == before


# --- memory -------------------------------------------------------------------------------------

_MEASURE = """
import sys
from pathlib import Path
from torntail.stores.inspection import inspect_log
# Not ru_maxrss: that begins with the peak of the process that started this one.
peak = lambda: int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])
before = peak()
found = inspect_log(Path(sys.argv[1]))
print(found.kept, (peak() - before) * 1024)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_large_file_costs_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "s-1.jsonl"
    event = SessionEvent("assistant/chunk", 0, 1, {"text": "x" * 200})
    head, tail = encode_event(event).split(b'"seq":0', 1)
    with open(path, "wb") as file:
        file.write(log("H"))
        for seq in range(120_000):
            file.write(b'%b"seq":%d%b\n' % (head, seq, tail))
    assert path.stat().st_size > 30 << 20
    answer = subprocess.run(
        [sys.executable, "-c", _MEASURE, str(path)], capture_output=True, check=True, text=True
    )
    kept, grown = map(int, answer.stdout.split())
    assert kept == 120_000
    assert grown < 12 << 20


def test_the_bad_byte_is_shown_where_the_reason_names_one(tmp_path: Path) -> None:
    """Deep in a long line, its beginning would not tell what is wrong."""
    text = log("H T TS")
    note = '{"type":"note","seq":8,"time":1,"data":{"text":"' + "é" * 300
    note_bytes = note.encode() + b"*here*"
    path = tmp_path / "loose.jsonl"
    for bad, said in (
        (b"\xff", f"invalid UTF-8 at byte {len(note_bytes)} of the line"),
        (b"\x01", f"not JSON: Invalid control character at character {len(note) + 6}"),
    ):
        path.write_bytes(text + note_bytes + bad + b"and on\n")
        shown = inspect(path).stdout
        assert said in shown
        (line,) = [line for line in shown.splitlines() if "found:" in line]
        assert "found: …é" in line
        assert "*here*" in line
        assert "*here*" in record(path)["torn_excerpt"]
    # A short line is shown from its beginning.
    path.write_bytes(text + b'{"type":"note",\xff\n')
    assert 'found: {"type":"note",\\xff' in inspect(path).stdout
    assert record(path)["torn_excerpt"].startswith('{"type"')
    # In the committed region and in the header as well.
    path.write_bytes(text.replace(b'"turn/start"', b'"turn/st' + b"x" * 200 + b'*here*\xff"', 1))
    assert "*here*" in record(path)["excerpt"]
    assert record(path)["outcome"] == "corrupt"
