"""`torntail repair`: the store's repair behind a byte copy, dry runs, and salvage."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.field_reports import CASES, Case
from tests.shapes import log
from torntail.cli_files import repair_command
from torntail.session import SessionEvent, encode_event, scan_log
from torntail.stores.jsonl import JsonlStore

BUCKET = "cwd-d1bb8ca35467"


def repair(*arguments: str | Path) -> Result:
    result = CliRunner().invoke(repair_command, [str(one) for one in arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def place(root: Path, shape: str, name: str = "s-1") -> Path:
    path = root / BUCKET / f"{name}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(log(shape))
    return path


def names(root: Path) -> set[str]:
    return {path.name for path in root.rglob("*") if path.is_file() and path.suffix != ".lock"}


def events_of(content: bytes) -> list[SessionEvent]:
    events: list[SessionEvent] = []
    scan_log([content], events.append)
    return events


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_field_report(case: Case, tmp_path: Path) -> None:
    path = case.place(tmp_path)
    dry = repair("--dry-run", path)
    assert path.read_bytes() == case.content
    assert names(tmp_path) == {path.name}
    result = repair(path)
    assert result.exit_code == dry.exit_code
    if case.expect["outcome"] != "ok":
        assert result.exit_code == 1
        assert case.expect["outcome"] in result.stderr
        if "line" in case.expect:
            assert f"at line {case.expect['line']} (byte {case.expect['byte']})" in result.stderr
        assert path.read_bytes() == case.content
        assert names(tmp_path) == {path.name}
        return
    assert result.exit_code == 0
    copies = [one for one in path.parent.iterdir() if ".before-repair-" in one.name]
    if case.expect["closers"] or "torn_from_byte" in case.expect:
        (copy,) = copies
        assert copy.read_bytes() == case.content
        assert "would keep a copy first" in dry.stdout
        assert f"repaired: {case.expect['total']} events" in result.stdout
    else:
        assert copies == []
        assert path.read_bytes() == case.content
        assert "nothing to repair" in result.stdout
    with JsonlStore(tmp_path, durability="process") as store:
        loaded = store.load(case.session_id)
    assert loaded.repair.empty
    assert len(loaded.events) == case.expect["total"]
    assert "nothing to repair" in repair(path).stdout


def test_the_torn_tail_that_holds_records_is_kept_too(tmp_path: Path) -> None:
    path = place(tmp_path, "H T TS U RAW:7b LF SS")
    result = repair(path)
    assert "torn tail kept: " in result.stdout
    assert any(".torn-" in name for name in names(tmp_path))


def test_a_session_another_writer_holds_is_left_alone(tmp_path: Path) -> None:
    place(tmp_path, "H T")
    with JsonlStore(tmp_path, durability="process") as holder:
        loaded = holder.load("s-1")
        event = SessionEvent("turn/start", len(loaded.events), 1, {"turn": 2})
        holder.append("s-1", [event])
        path = tmp_path / BUCKET / "s-1.jsonl"
        before = path.read_bytes()
        result = repair(path)
        assert result.exit_code == 1
        assert "not repaired" in result.stderr
        assert path.read_bytes() == before


def test_a_loose_file_is_not_repaired_in_place(tmp_path: Path) -> None:
    loose = tmp_path / "s-1.jsonl"
    loose.write_bytes(log("H T TS U"))
    result = repair(loose)
    assert result.exit_code == 2
    assert "--salvage OUT" in result.stderr
    assert loose.read_bytes() == log("H T TS U")
    assert repair(tmp_path / "missing.jsonl").exit_code == 2
    assert repair("--help").stdout.count("torntail repair") >= 3


# --- salvage ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "kept", "total"),
    [
        ("H T RAW:7b LF T", 6, 6),
        ("H T TS U NONL SS A SE TE", 8, 9),
        ("H T TS U CUT:7 SS@7 A SE TE", 7, 8),
        ("H TS U SS A:c1 U@9 TE", 4, 7),
        ("H T TS@3 TE", 6, 6),
        ("H TS U!nan TE", 1, 2),
        ("H T TS U CRLF", 8, 9),
        ("H T TS U RAW:7b", 8, 9),
        ("H T NONL", 6, 6),
        ("H", 0, 0),
        ("H LF T", 0, 0),
    ],
)
def test_salvage_writes_the_longest_valid_prefix(
    shape: str, kept: int, total: int, tmp_path: Path
) -> None:
    content = log(shape)
    damaged, out = tmp_path / "damaged.jsonl", tmp_path / "saved.jsonl"
    damaged.write_bytes(content)
    dry = repair("--dry-run", "--salvage", out, damaged)
    assert (dry.exit_code, out.exists()) == (0, False)
    assert f"would write {kept} events and {total - kept} closers" in dry.stdout
    assert repair("--salvage", out, damaged).exit_code == 0
    assert damaged.read_bytes() == content
    saved = out.read_bytes()
    assert len(events_of(saved)) == total
    whole = b"\n".join([content.split(b"\n")[0].strip(b"\r"), *map(encode_event, events_of(saved))])
    assert saved == whole + b"\n"
    again = repair("--salvage", out, damaged)
    assert again.exit_code == 2
    assert "exists already" in again.stderr
    assert out.read_bytes() == saved


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_salvage_of_every_field_report_loads(case: Case, tmp_path: Path) -> None:
    path = case.place(tmp_path)
    out = tmp_path / "new" / BUCKET / f"{case.session_id}.jsonl"
    out.parent.mkdir(parents=True)
    result = repair("--salvage", out, path)
    assert path.read_bytes() == case.content
    header_lost = case.expect.get("line") == 1
    if header_lost or case.expect["outcome"] in ("never_materialised", "unsupported_version"):
        assert (result.exit_code, out.exists()) == (1, False)
        return
    assert result.exit_code == 0
    with JsonlStore(tmp_path / "new", durability="process") as store:
        loaded = store.load(case.session_id)
    assert loaded.repair.empty
    if case.expect["outcome"] == "ok":
        assert len(loaded.events) == case.expect["total"]


def test_salvage_into_a_store_takes_the_id_of_its_name(tmp_path: Path) -> None:
    path = place(tmp_path, "H T RAW:7b LF T")
    out = tmp_path / BUCKET / "s-1-saved.jsonl"
    assert "as session 's-1-saved'" in repair("--salvage", out, path).stdout
    with JsonlStore(tmp_path, durability="process") as store:
        assert len(store.load("s-1-saved").events) == 6


def test_salvage_refuses_a_place_that_would_collide(tmp_path: Path) -> None:
    path = place(tmp_path, "H T RAW:7b LF T")
    other = tmp_path / "_no-cwd" / "s-1.jsonl"
    other.parent.mkdir()
    result = repair("--salvage", other, path)
    assert result.exit_code == 1
    assert "exists already" in result.stderr
    assert (
        "no session id has the file name"
        in repair("--salvage", other.with_name("a b.jsonl"), path).stderr
    )
    missing = repair("--salvage", tmp_path / "no" / "such.jsonl", path)
    assert missing.exit_code == 2
    assert not any("such" in name for name in names(tmp_path))
