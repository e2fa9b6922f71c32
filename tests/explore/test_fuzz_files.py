"""What fuzzing keeps: written whole or not at all, read with suspicion, shared by several runs."""

from __future__ import annotations

import errno
import fcntl
import json
import os
from pathlib import Path

import pytest

from torntail.explore import fuzz_files
from torntail.explore.fuzz import fuzz
from torntail.explore.fuzz_files import CannotWrite, Corpus, RunDirectory
from torntail.explore.fuzz_messages import CorpusPlan, from_line, to_line
from torntail.judge.history import Append, Create, Load
from torntail.session import SessionEvent, SessionHeader

ODD = {"text": "\ud800\u2028\x00", "number": 10**4000, "zero": -0.0}


def plan_of(*features: str, session: str = "a", target: str = "jsonl") -> CorpusPlan:
    event = SessionEvent("note", 0, 0.5, ODD)
    operations = (
        Create(header=SessionHeader(session, 1)),
        Append(session=session, events=(event,)),
    )
    return CorpusPlan(torntail=1, target=target, features=features, plan=operations)


# --- the corpus -----------------------------------------------------------------------------------


def test_a_plan_survives_with_all_its_values(tmp_path: Path) -> None:
    plan = plan_of("x")
    assert from_line(to_line(plan), CorpusPlan) == plan
    assert Corpus(tmp_path, "jsonl").add(plan)
    again = Corpus(tmp_path, "jsonl")
    assert again.load() == (plan,)
    assert (again.features, again.notes) == ({"x"}, [])


def test_what_reaches_nothing_new_is_not_kept(tmp_path: Path) -> None:
    corpus = Corpus(tmp_path, "jsonl")
    assert corpus.add(plan_of("x", "y"))
    assert not corpus.add(plan_of("y"))
    assert len(list(corpus.path.iterdir())) == 1


def test_the_corpus_has_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzz_files, "MOST_PLANS", 3)
    monkeypatch.setattr(fuzz_files, "MOST_PLAN_BYTES", 10_000)
    corpus = Corpus(tmp_path, "jsonl")
    for number in range(5):
        assert corpus.add(plan_of(str(number), session=f"s{number}"))
        newest = max(corpus.path.iterdir(), key=lambda path: path.stat().st_ino)
        os.utime(newest, ns=(number, number))
    assert not corpus.add(plan_of("long", session="s" * 10_000))
    kept = Corpus(tmp_path, "jsonl").load()
    assert len(kept) == 3
    assert "4" in {feature for plan in kept for feature in plan.features}


def test_targets_that_read_alike_have_corpora_of_their_own(tmp_path: Path) -> None:
    paths = {Corpus(tmp_path, target).path for target in ("a:b", "a-b", "../a", "", "x" * 300)}
    assert len(paths) == 5
    assert {path.parent for path in paths} == {tmp_path}


def hostile(directory: Path) -> int:
    """Fills a corpus with what may be found in one; how many files that are."""
    good = to_line(plan_of("x"))
    foreign = to_line(plan_of("x", target="sqlite"))
    unlawful = CorpusPlan(torntail=1, target="jsonl", features=(), plan=(Load(session="nobody"),))
    files = {
        "truncated": good[:-9],
        "empty": b"",
        "binary": bytes(range(256)),
        "older": good.replace(b'"torntail":1', b'"torntail":0'),
        "unversioned": good.replace(b'"torntail":1,', b""),
        "list": b"[]",
        "deep": b"[" * 100_000,
        "unknown-field": good.replace(b'"features"', b'"futures"'),
        "unknown-operation": good.replace(b'"create"', b'"explode"'),
        "foreign": foreign,
        "long": b" " * (fuzz_files.MOST_PLAN_BYTES + 10),
    }
    directory.mkdir(parents=True)
    for name, content in files.items():
        (directory / f"{name}.json").write_bytes(content)
    (directory / "folder.json").mkdir()
    (directory / "nowhere.json").symlink_to(directory / "missing")
    (directory / "unlawful.json").write_bytes(to_line(unlawful))
    (directory / "README").write_text("no plan")
    return len(files) + 2


def test_what_is_no_plan_is_left_out_with_a_note(tmp_path: Path) -> None:
    corpus = Corpus(tmp_path, "jsonl")
    bad = hostile(corpus.path)
    assert [plan.features for plan in corpus.load()] == [()]
    assert len(corpus.notes) == bad
    assert all("is left out" in note for note in corpus.notes)
    assert any("its version is 0, not 1" in note for note in corpus.notes)


def test_a_run_goes_on_beside_a_corpus_of_rubbish(tmp_path: Path) -> None:
    bad = hostile(Corpus(tmp_path, "jsonl").path)
    result = fuzz("jsonl", seed=3, max_examples=2, workers=0, images=20, corpus=tmp_path)
    assert (result.findings, result.errors, result.exit_code) == ([], [], 0)
    assert len([note for note in result.notes if "is left out" in note]) == bad


def test_the_corpus_is_tried_again_by_the_next_run(tmp_path: Path) -> None:
    first = fuzz("jsonl", seed=3, max_examples=4, workers=0, images=20, corpus=tmp_path)
    assert (first.total.replayed, first.corpus_plans) == (0, 0)
    assert first.corpus_added > 0
    second = fuzz("jsonl", seed=4, max_examples=1, workers=0, images=20, corpus=tmp_path)
    assert second.total.replayed == second.corpus_plans == first.corpus_added


# --- a run ----------------------------------------------------------------------------------------


def test_a_run_is_locked_and_git_ignores_it(tmp_path: Path) -> None:
    runs = tmp_path / ".torntail" / "runs"
    with RunDirectory(runs) as one, RunDirectory(runs) as other:
        assert one.path != other.path
        one.write({"text": "\ud800"})
        descriptor = os.open(one.path / "lock", os.O_RDWR)
        with pytest.raises(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(descriptor)
    assert json.loads((one.path / "run.json").read_bytes()) == {"text": "\ud800"}
    assert (tmp_path / ".torntail" / ".gitignore").read_text() == "*\n"
    descriptor = os.open(one.path / "lock", os.O_RDWR)
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(descriptor)


def test_a_full_disk_is_told_and_leaves_nothing_half_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with RunDirectory(tmp_path / "runs") as run:
        run.write({"first": True})
        monkeypatch.setattr(os, "replace", full)
        with pytest.raises(CannotWrite, match="free some room"):
            run.write({"first": False})
        monkeypatch.undo()
        assert sorted(path.name for path in run.path.iterdir()) == ["lock", "run.json"]
        assert json.loads((run.path / "run.json").read_bytes()) == {"first": True}


def test_a_place_that_is_no_folder_is_told(tmp_path: Path) -> None:
    (tmp_path / ".torntail").write_text("a file")
    with pytest.raises(CannotWrite, match="choose another directory"):
        RunDirectory(tmp_path / ".torntail" / "runs")


def test_a_run_is_written_with_what_it_found(tmp_path: Path) -> None:
    target = "tests.zoo.crashing:no_closers"
    result = fuzz(target, seed=1, max_examples=4, workers=0, images=40, runs=tmp_path / "runs")
    assert result.run is not None
    record = json.loads((result.run / "run.json").read_bytes())
    assert record == {**json.loads(json.dumps(result.to_json())), "state": "ended"}
    assert record["exit_code"] == 1
    for told, kept in zip(record["findings"], result.findings, strict=True):
        assert told["clause"] == kept.finding.clause
        witness = result.run / told["witness"]
        assert (witness / "steps.txt").is_file()
        assert (witness / "crash.json").is_file() == (kept.finding.crash is not None)


def test_what_an_error_of_the_disk_led_to_is_kept_with_its_disk(tmp_path: Path) -> None:
    result = fuzz(
        "tests.zoo.io_errors:swallows_a_write_error",
        seed=1,
        max_examples=25,
        stop_at_first=True,
        workers=0,
        images=60,
        runs=tmp_path / "runs",
    )
    (kept,) = result.findings
    assert kept.witness is not None
    assert kept.finding.error is not None
    record = json.loads((kept.witness / "io.json").read_bytes())
    assert (record["clause"], record["sentence"]) == (kept.finding.clause, kept.finding.sentence)
    assert len(record["steps"]) == len(kept.finding.error.steps)
    disk = {
        path.relative_to(kept.witness / "disk").as_posix(): path.read_bytes()
        for path in (kept.witness / "disk").rglob("*")
        if path.is_file()
    }
    assert disk == kept.finding.error.files
    steps = (kept.witness / "steps.txt").read_text().splitlines()
    assert any("fails with" in step for step in steps)
    assert steps[-1] == f"{kept.finding.sentence} (model: {kept.finding.model})"
