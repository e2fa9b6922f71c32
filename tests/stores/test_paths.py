"""Ids as file names: injective, decodable, inside their folder, on any file system."""

from __future__ import annotations

import hashlib
import os
import re
import string
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyfakefs.fake_filesystem import OSType
from pyfakefs.fake_filesystem_unittest import Patcher
from pyfakefs.helpers import reset_ids, set_gid, set_uid

from tests.shapes import log
from tests.stores.support import BUCKET, LOG, Disk, check, events, jsonl, other, place
from torntail.session import SessionHeader, join_surrogates
from torntail.stores.contract import (
    IdentityMismatch,
    SessionExists,
    SessionNotFound,
    StorageFailed,
    StoreError,
    WriterConflict,
)
from torntail.stores.paths import (
    bucket_name,
    companion_name,
    decode_segment,
    encode_segment,
    is_bucket_name,
)

EXAMPLES = settings(max_examples=400, deadline=None, database=None, derandomize=False)

KEPT = string.ascii_letters + string.digits + "._-"

ids = st.one_of(
    st.text(min_size=1, max_size=12),
    st.text(st.characters(categories=["Cs", "Lu", "So", "Cc"]), min_size=1, max_size=8),
    st.text(st.sampled_from("~./\\0041AFaf_-\ud83d\ude00"), min_size=1, max_size=10),
    st.sampled_from([".", "..", "~", "~0041", "A", "~002E", "CON", "nul", "a.", "a "]),
)


@EXAMPLES
@given(ids, ids)
@example("A", "~0041")
@example("..", "~002E~002E")
@example("~~0041", "~A")
@example("\ud83d\ude00", "\U0001f600")
def test_two_ids_have_two_names(first: str, second: str) -> None:
    same = join_surrogates(first) == join_surrogates(second)
    assert (encode_segment(first) == encode_segment(second)) == same


@EXAMPLES
@given(ids)
@example("\ud83d\ude00")
@example("\ude00\ud83d")
@example("\x00/\\")
def test_a_name_gives_its_id_back(session_id: str) -> None:
    name = encode_segment(session_id)
    assert decode_segment(name) == join_surrogates(session_id)
    assert re.fullmatch(r"(?:[A-Za-z0-9._-]|~[0-9A-F]{4})+", name)
    assert name not in (".", "..")


@EXAMPLES
@given(st.text(st.sampled_from("~0041aAfF.E2 D83DE00\u00e9/"), max_size=12))
@example("~0041")
@example("~D83D~DE00")
@example("~00e9")
@example("..")
@example(".")
@example("")
def test_only_the_name_of_an_id_is_decoded(name: str) -> None:
    session_id = decode_segment(name)
    if session_id is None:
        assert all(
            encode_segment(guess) != name for guess in (name, name.replace("~", "")) if guess
        )
    else:
        assert encode_segment(session_id) == name


def test_measured_names() -> None:
    """Names the original system was seen to write."""
    names = {
        "../../x": "..~002F..~002Fx",
        "..": "~002E~002E",
        ".": "~002E",
        "...": "...",
        "a b": "a~0020b",
        "\u00e9": "~00E9",
        "\U0001f600": "~D83D~DE00",
        "\ud800": "~D800",
        "~": "~007E",
        KEPT: KEPT,
    }
    assert {session_id: encode_segment(session_id) for session_id in names} == names


@EXAMPLES
@given(st.one_of(st.none(), st.text(max_size=8), ids))
def test_buckets(cwd: str | None) -> None:
    name = bucket_name(cwd)
    assert is_bucket_name(name)
    if cwd is None:
        assert name == "_no-cwd"
    elif not re.search("[\ud800-\udfff]", cwd):
        assert name == "cwd-" + hashlib.sha256(cwd.encode()).hexdigest()[:12]


def test_a_bucket_of_half_a_character_is_the_one_the_original_uses() -> None:
    assert bucket_name("/\ud800") == bucket_name("/\ufffd")
    assert bucket_name("/\ud83d\ude00") == bucket_name("/\U0001f600")
    for name in ("cwd-", "cwd-0123456789AB", "cwd-0123456789abc", "_no-cwd\n", ".locks", "x"):
        assert not is_bucket_name(name)


SUFFIXES = [".lock", ".jsonl.tmp", ".jsonl.torn.tmp", ".jsonl.torn-123456789012-" + "0" * 16]


@EXAMPLES
@given(st.one_of(ids, st.integers(1, 400).map("x".__mul__), ids.map(lambda text: text * 40)))
def test_companions_fit_and_are_no_logs(session_id: str) -> None:
    encoded = encode_segment(session_id)
    for suffix in SUFFIXES:
        name = companion_name(encoded, suffix)
        assert len(name) <= 255
        assert name.endswith(suffix)
        assert "/" not in name
        assert not name.endswith(".jsonl")
        if name != encoded + suffix:
            # No other id can have this name for a companion of its own.
            assert decode_segment(name.removesuffix(suffix)) is None


def test_companions_of_different_ids_differ() -> None:
    names = {companion_name(letter * 300, ".lock") for letter in "abc"}
    names |= {companion_name("a" * length, ".lock") for length in (250, 251, 299)}
    assert len(names) == 6


def test_a_long_id_and_the_short_one_its_digest_spells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With one temporary file for both, a first flush could link the other's log as its own."""
    found = (
        (long, digest)
        for long in (f"{number:0249}" for number in range(10_000))
        for digest in [hashlib.sha256(long.encode()).hexdigest()[:32]]
        if re.match("00[0-2][0-9]", digest)
    )
    long, digest = next(found)
    short = chr(int(digest[:4], 16)) + digest[4:]
    assert encode_segment(short) == f"~{digest}"
    disk = Disk(monkeypatch, tmp_path)
    with jsonl(tmp_path) as store:
        for name in (long, short):
            store.create(SessionHeader(name, 1))
            store.append(name, [other(0)])
    temporary = [call[1] for call in disk.writes() if call[0] == "create"]
    assert len(set(temporary)) == 2


# --- other file systems -------------------------------------------------------------------------

ROOT = Path("/store")
TWINS = ("Session", "sESSION")


def header(name: str, cwd: str | None = "/w") -> SessionHeader:
    return SessionHeader(name, 1, cwd)


@contextmanager
def fake_disk(system: OSType = OSType.LINUX, *, case_sensitive: bool = True) -> Iterator[None]:
    """A file system in memory, of another operating system perhaps.

    No fixture: nothing is patched any more when the test returns, so that nothing pytest does after
    it, in a working directory of its own, meets the wrong operating system.
    """
    with Patcher() as patcher:
        fs = patcher.fs
        assert fs is not None
        real = fs.os
        try:
            fs.os = system
            if not case_sensitive:
                fs.is_case_sensitive = False
            yield
        finally:
            fs.os = real


@contextmanager
def unprivileged() -> Iterator[None]:
    """A file system as a user sees it who may not do everything."""
    with fake_disk():
        set_uid(1000)
        set_gid(1000)
        try:
            ROOT.mkdir()
            yield
        finally:
            reset_ids()


@pytest.mark.parametrize("system", [OSType.LINUX, OSType.MACOS], ids=["linux", "macos"])
def test_the_store_on_another_system(system: OSType) -> None:
    with fake_disk(system):
        with jsonl(ROOT) as store:
            for name in ("CON", "a.", "a ", "..", "x:y", "\ud800"):
                store.create(header(name))
                store.append(name, events("T TS"))
        with jsonl(ROOT) as store:
            for name in ("CON", "a.", "a ", "..", "x:y", "\ud800"):
                assert len(store.load(name).events) == 8
                assert store.load(name).header == header(name)
            assert len(store.list()) == 6


def test_names_on_windows() -> None:
    """Every name can be made there, and none means a folder, a device or a stream."""
    with fake_disk(OSType.WINDOWS):
        for name in ("a/b", "a\\b", "C:x", "..", "a:stream", 'x<>|"?*', "a.", " ", "\x00", "\n"):
            text = encode_segment(name) + ".jsonl"
            path = Path("C:/store") / "_no-cwd" / text
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"x")
            assert os.listdir(path.parent) == [text]
            path.unlink()


@pytest.mark.parametrize("open_both", [True, False], ids=["side by side", "one after the other"])
@pytest.mark.parametrize("cwds", [("/w", "/w"), ("/w", None)], ids=["one folder", "two folders"])
def test_twins_on_a_case_blind_file_system(
    open_both: bool, cwds: tuple[str | None, str | None]
) -> None:  # RW-10
    """Both are stored faithfully, or the second is refused; they are never mixed up."""
    with fake_disk(case_sensitive=False):
        stored: dict[str, SessionHeader] = {}
        with jsonl(ROOT) as store:
            heads = [header(name, cwd) for name, cwd in zip(TWINS, cwds, strict=True)]
            if open_both:
                for head in heads:
                    store.create(head)
            for head in heads:
                try:
                    if not open_both:
                        store.create(head)
                    store.append(head.id, [other(0, head.id)])
                except (SessionExists, WriterConflict, IdentityMismatch):
                    assert stored
                else:
                    stored[head.id] = head
        assert stored
        with jsonl(ROOT) as store:
            for head in heads:
                if head.id in stored:
                    check(store.load(head.id), [other(0, head.id)], header=head)
                    store.append(head.id, [other(1, head.id)])
                else:
                    with pytest.raises((SessionNotFound, IdentityMismatch)):
                        store.load(head.id)
                    with pytest.raises(StoreError):
                        store.append(head.id, [other(1, head.id)])
            assert [(entry.session_id, entry.error) for entry in store.list()] == [
                (name, None) for name in stored
            ]


def test_a_never_materialised_twin_is_not_lost() -> None:
    with fake_disk(case_sensitive=False):
        place(ROOT, b"", f"{BUCKET}/SESSION.jsonl")
        with jsonl(ROOT) as store:
            store.create(header("Session"))
            store.append("Session", [other(0)])
            check(store.load("Session"), [other(0)], header=header("Session"))


def test_a_missing_root_is_made_privately() -> None:
    with fake_disk():
        with jsonl(ROOT / "a" / "b") as store:
            assert store.list() == []
            with pytest.raises(SessionNotFound):
                store.load("s-1")
            assert not ROOT.exists()
            store.create(header("s-1"))
            store.append("s-1", events("T"))
        for folder in (ROOT, ROOT / "a", ROOT / "a" / "b", ROOT / "a" / "b" / BUCKET):
            assert folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("shape, events_found", [("H T", 6), ("H T TS", 8), ("H T TS CUT:4", 6)])
def test_a_read_only_tree(shape: str, events_found: int) -> None:
    """Load gives what is there, closed virtually; append and the first flush say why not."""
    with unprivileged():
        path = place(ROOT, log(shape))
        os.chmod(path, 0o400)
        os.chmod(path.parent, 0o500)
        os.chmod(ROOT, 0o500)
        with jsonl(ROOT) as store:
            found = store.load("s-1")
            assert len(found.events) == events_found
            assert found.repair.durable == (shape == "H T")
            with pytest.raises(StorageFailed):
                store.append("s-1", [other(events_found)])
            store.create(header("new", "/elsewhere"))
            with pytest.raises(StorageFailed):
                store.append("new", [other(0)])
            assert [entry.session_id for entry in store.list()] == ["s-1"]
        os.chmod(ROOT, 0o700)
        assert sorted(os.listdir(ROOT)) == [BUCKET]


def test_a_folder_that_cannot_be_read() -> None:  # RW-8
    with unprivileged():
        place(ROOT, log("H T"))
        os.chmod(ROOT, 0o000)
        with jsonl(ROOT) as store:
            for call in (store.load, store.inspect, store.reopen):
                with pytest.raises(StorageFailed):
                    call("s-1")
            with pytest.raises(StorageFailed):
                store.list()
            with pytest.raises(StorageFailed):
                store.create(header("new"))
        os.chmod(ROOT, 0o700)
        assert (ROOT / LOG).read_bytes() == log("H T")


def test_nothing_is_patched_when_a_test_on_another_system_returns() -> None:
    """A worker of pytest changes its directory behind the last test, whatever that was."""
    test_names_on_windows()
    assert Patcher.PATCHER is None or not Patcher.PATCHER.is_patching
    assert os.sep == "/"
    os.chdir(os.getcwd())
