"""Where each of the 29 coordinator tests of the original design is kept: `COORDINATOR`.

`python -m tests.runtime.coordinator` writes that table into docs/live.md, between its marks, and
the one of the broken layers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.zoo.live import LIVE_ZOO

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "docs" / "live.md"

_MARKS = re.compile(r"(?P<head><!-- (?P<name>\w+) -->\n).*?(?P<foot><!-- end -->)", re.S)

SUITE: Final = "src/torntail/explore/cases_lv.py"
STORING: Final = "src/torntail/explore/cases_lv_storing.py"
BEHIND: Final = "tests/runtime/test_write_behind.py"
OPENING: Final = "tests/runtime/test_opening.py"
KILLS: Final = "tests/runtime/test_kills.py"
STORES: Final = "tests/stores/test_contract.py"


@dataclass(frozen=True)
class Kept:
    """What the original asks, and by which tests this project asks it."""

    meaning: str
    tests: tuple[tuple[str, str], ...] = ()
    reason: str = ""


def _kept(meaning: str, *tests: tuple[str, str]) -> Kept:
    return Kept(meaning, tests)


def _not_applicable(meaning: str, reason: str) -> Kept:
    return Kept(meaning, (), reason)


_RELOAD = "a session is given its store when it is made; there is no hot reload"

COORDINATOR: Final[dict[str, Kept]] = {
    "C1": _kept(
        "a live session driven through the store survives a reload",
        (STORING, "flush_stores_everything_in_order"),
        (KILLS, "test_a_kill_at_a_place"),
    ),
    "C2": _kept(
        "the seed boundary (`seedLength`) comes back",
        (SUITE, "a_fork_is_the_stored_prefix_with_closers"),
        (OPENING, "test_a_fork_copies_bytes_and_shares_nothing"),
    ),
    "C3": _kept(
        "an event changed after it was told does not change the copy",
        (STORING, "what_is_stored_is_what_was_appended"),
    ),
    "C4": _kept("append copies its batch", (STORES, "test_batches_are_private_copies")),
    "C5": _kept(
        "a fork stores its seed once",
        (OPENING, "test_a_fork_stores_its_seed_once"),
    ),
    "C6": _kept(
        "a resumed session appends nothing again and goes on with the seq",
        (SUITE, "resume_goes_on_where_the_log_ends"),
    ),
    "C7": _not_applicable("a late mount catches up with live sessions", _RELOAD),
    "C8": _kept(
        "dispose drains what waits",
        (STORING, "close_drains"),
        (BEHIND, "test_all_are_closed_whatever_becomes_of_one"),
    ),
    "C9": _not_applicable("a reloaded backend adopts a live session", _RELOAD),
    "C10": _not_applicable("adoption stores the live suffix behind the stored prefix", _RELOAD),
    "C11": _kept(
        "what takes up an active open turn does not repair it",
        (STORING, "a_drain_that_failed_is_told_and_made_good"),
        (SUITE, "resume_of_a_running_session_is_refused"),
    ),
    "C12": _kept(
        "a new session that collides with a stored id is refused",
        (BEHIND, "test_an_id_that_is_taken_in_storage_is_refused_at_the_first_flush_and_for_ever"),
    ),
    "C13": _kept(
        "an abandoned lazy session gives its id free",
        (BEHIND, "test_a_forgotten_session_gives_its_id_free"),
    ),
    "C14": _kept(
        "an id whose abandoned owner holds events is not given away",
        (BEHIND, "test_a_forgotten_session_is_stored_before_its_id_is_free"),
    ),
    "C15": _not_applicable(
        "to announce a session twice is harmless", "no event announces a session to a store"
    ),
    "C16": _not_applicable(
        "a live session claims what `create` announced",
        "a live session announces itself; an id that somebody else announced is taken (C12)",
    ),
    "C17": _kept(
        "a fresh session that uses a loaded id again is refused",
        (BEHIND, "test_an_id_that_was_loaded_is_taken"),
    ),
    "C18": _kept(
        "a session whose seed is the stored prefix stores the rest",
        (SUITE, "resume_goes_on_where_the_log_ends"),
        (STORING, "a_first_drain_that_failed_is_made_good"),
    ),
    "C19": _kept(
        "another cwd cannot claim what was announced", (STORES, "test_an_id_is_created_once")
    ),
    "C20": _kept(
        "another cwd cannot claim what was loaded", (STORES, "test_an_id_is_created_once")
    ),
    "C21": _kept(
        "a session with a cwd cannot claim one without",
        (STORES, "test_an_id_is_created_once"),
    ),
    "C22": _kept(
        "append adopts a session that is in storage only",
        (STORES, "test_append_to_a_stored_session_does_what_load_does"),
    ),
    "C23": _kept(
        "an empty batch does nothing",
        (STORES, "test_an_empty_batch_does_nothing"),
        (BEHIND, "test_a_session_without_events_leaves_nothing_in_the_store"),
    ),
    "C24": _kept(
        "a session that is not there is not loaded",
        (STORES, "test_unknown_ids_are_not_found"),
        (OPENING, "test_what_is_not_there_is_not_resumed"),
    ),
    "C25": _kept(
        "an id is created once, in memory and on disk", (STORES, "test_an_id_is_created_once")
    ),
    "C26": _kept(
        "an unknown format version is refused at load",
        (STORES, "test_another_version_is_refused"),
    ),
    "C27": _kept(
        "`parentSession` comes back",
        (STORES, "test_a_header_comes_back_whole"),
        (OPENING, "test_a_fork_of_a_fork_names_its_own_parent"),
    ),
    "C28": _kept(
        "a flush before the session is announced begins at seq 0",
        (BEHIND, "test_nothing_is_drained_before_it_is_due"),
    ),
    "C29": _kept(
        "a torn tail is cut and the open turn closed",
        (KILLS, "test_kills_during_the_repair_of_a_resume"),
    ),
}


def table() -> str:
    lines = ["| | what the original asks | kept by |", "| --- | --- | --- |"]
    for number, kept in COORDINATOR.items():
        by = ", ".join(f"`{name}`" for _, name in kept.tests)
        lines.append(f"| {number} | {kept.meaning} | {by or f'not applicable: {kept.reason}'} |")
    return "\n".join(lines) + "\n"


def layers() -> str:
    lines = ["| layer | what is wrong | clause |", "| --- | --- | --- |"]
    for layer, clause in LIVE_ZOO.items():
        told = " ".join((layer.__doc__ or "").split()).removesuffix(".")
        lines.append(f"| `{layer.__name__}` | {told} | {clause} |")
    return "\n".join(lines) + "\n"


def page(text: str) -> str:
    tables = {"coordinator": table(), "layers": layers()}
    return _MARKS.sub(lambda found: found["head"] + tables[found["name"]] + found["foot"], text)


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
