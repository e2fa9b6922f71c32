"""What TARGET names, and the one line that says what to change when it names no store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from torntail.drive.target import TargetError, check_store, target_of
from torntail.judge.capabilities import Capabilities, claims
from torntail.stores.sqlite_settings import Settings


def test_the_built_in_stores_claim_what_the_contract_says() -> None:
    assert target_of("memory").capabilities == Capabilities(durability="none")
    assert target_of("jsonl").capabilities == Capabilities()
    assert target_of("sqlite").capabilities == Capabilities(atomic_batch=True)


def test_durability_is_passed_on_to_a_built_in_store(tmp_path: Path) -> None:
    jsonl, sqlite = (target_of(name, durability="process") for name in ("jsonl", "sqlite"))
    assert jsonl.capabilities.durability == sqlite.capabilities.durability == "process"
    assert jsonl.factory(tmp_path).durability == "process"
    assert sqlite.factory(tmp_path).settings == Settings.choose("process", "wal", None, 5.0)


def test_a_module_beside_the_caller_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "beside_the_caller.py").write_text(
        "class box:\n"
        "    @staticmethod\n"
        "    def factory(root): return root\n"
        "box.factory.capabilities = {'durability': 'process', 'detects': ['torn']}\n"
    )
    monkeypatch.chdir(tmp_path)
    target = target_of("beside_the_caller:box.factory")
    assert target.capabilities == Capabilities(durability="process", detects=frozenset({"torn"}))
    assert target.factory(tmp_path) == tmp_path
    assert target_of(target.factory).name == "beside_the_caller:box.factory"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("mystore.py:open_store", "names a file: name the module, mystore:open_store"),
        ("mystore.py", "names a file: name the module, mystore:FACTORY"),
        ("./stores/mine.py:open_store", "names a file: name the module, stores.mine:open_store"),
        ("stores/mine:open_store", "names a file: name the module, stores.mine:open_store"),
        (
            "/a/mine.py:open_store",
            "names a file: go to the folder /a and name the module, mine:open_store",
        ),
        (
            "../mine.py:open_store",
            "names a file: go to the folder .. and name the module, mine:open_store",
        ),
    ],
)
def test_a_file_in_the_place_of_a_module_is_told_how_to_write(name: str, said: str) -> None:
    with pytest.raises(TargetError) as caught:
        target_of(name)
    assert str(caught.value) == f"TARGET {name!r} {said}"


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("import no_such_thing", "needs 'no_such_thing', which is not installed here"),
        ("1 / 0", "cannot be imported: ZeroDivisionError: division by zero"),
        ("x = 1", "has no attribute 'factory'"),
        ("factory = 1", "is int, not a function"),
        ("def factory(root, mode): ...", "missing a required argument: 'mode'"),
        (
            "def factory(root): ...\nfactory.capabilities = {'durability': 'always'}",
            "capabilities is not a set of claims: Invalid enum value 'always'",
        ),
        (
            "def factory(root): ...\nfactory.capabilities = {'durabilty': 'none'}",
            "capabilities is not a set of claims: Object contains unknown field `durabilty`",
        ),
    ],
)
def test_what_is_wrong_is_said_in_one_line(
    source: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: Any
) -> None:
    name = f"wrong_{abs(hash(request.node.name))}"
    (tmp_path / f"{name}.py").write_text(source)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(TargetError) as caught:
        target_of(f"{name}:factory")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_store_lacks_only_what_it_claims() -> None:
    class Two:
        def append(self) -> None: ...
        def load(self) -> None: ...

    few = Capabilities(creates="implicit", lists=False, inspects=False)
    check_store("t", Two(), few)
    with pytest.raises(TargetError, match="or claim lists=False, inspects=False"):
        check_store("t", Two(), Capabilities(creates="implicit"))
    with pytest.raises(TargetError, match="which has no append, load: return an object"):
        check_store("t", object(), few)


def test_a_requirement_is_held_against_the_claims() -> None:
    few = Capabilities(detects=frozenset({"torn"}), lists=False)
    asked = ["lists", "header", "detects=torn", "detects=gap", "profile=session", "writers=many"]
    assert [claims(few, one) for one in asked] == [False, True, True, False, True, False]
