"""A session's file taken from under a live writer, between two of its appends (IO-6).

Decides which file is a session's: the one its last append wrote to, as its marks tell, or the one
it wrote to last. Decides where in a plan it is taken, and what is looked at afterwards. A store
that keeps no file of its own per session is taken the file it shares.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final

from torntail.crash.oplog import Inode, Write
from torntail.explore.io_stage import Stage, stage_of
from torntail.explore.io_story import Base, Story, StoryTeller
from torntail.judge.history import Append, Load, Reopen, Returned, mark_of
from torntail.judge.io_content import taking_breach
from torntail.judge.io_steps import TAKINGS, IoStep, Take, Taking
from torntail.record.real import Real
from torntail.record.tree import read_file

__all__ = ["NoFile", "take", "takings_of"]

_WRITE: Final = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW

_LOG_OF_A_DATABASE: Final = "-wal"


class NoFile(Exception):
    """No file could be found that a session's append had written to."""


def takings_of(base: Base, story: Story) -> Iterator[tuple[int, Taking]]:
    """After which calls of a plan a file can be taken, and how: an append was acknowledged, and
    the next call on its session, by the same object, is an append.
    """
    for index, step in enumerate(story.steps[: len(base.calls)]):
        call = step.call
        if not isinstance(call, Append) or not isinstance(step.outcome, Returned):
            continue
        following = _next_append(base, index)
        if following is not None:
            for how in TAKINGS:
                yield index, how


def _next_append(base: Base, index: int) -> int | None:
    session = getattr(base.calls[index], "session", None)
    for later in range(index + 1, len(base.calls)):
        call = base.calls[later]
        if isinstance(call, Reopen):
            return None
        if isinstance(call, Append) and call.session == session:
            return later
        if isinstance(call, Load) and call.session == session:
            return None
    return None


def take(teller: StoryTeller, base: Base, index: int, how: Taking) -> Story:
    """Drives a plan up to the call `index`, takes the file, appends, and looks at what is left.

    Raises `NoFile`, and what the recorder raises for an unseen write.
    """
    teller.began()
    teller.slot.hold(base.image)
    story = Story(base, None, "leave")
    following = _next_append(base, index)
    assert following is not None
    stage = stage_of(teller.target, teller.root, base.disk, None)
    sizes: list[int] = []
    # What it comes to is not held against the log: this process writes there, too.
    with stage.finishing(check=False):
        try:
            for call in base.calls[: index + 1]:
                sizes.append(len(stage.operations))
                story.steps.append(IoStep(call, stage.answer(call)))
            call = base.calls[index]
            assert isinstance(call, Append)
            path, before = _session_file(stage, call, sizes[-1])
            content = _take(path, how, before)
            shown = os.path.relpath(path, teller.root)
            story.steps.append(IoStep(Take(call.session, how, shown), Returned()))
            append = base.calls[following]
            story.steps.append(IoStep(append, stage.answer(append)))
            left = read_file(path)[0] if os.path.exists(path) else None
        finally:
            stage.close()
    found = None
    if left is not None and content is None:
        found = teller.calls.load_all([call.session])[call.session]
        story.steps.append(IoStep(Load(session=call.session), found))
    breach = taking_breach(
        call.session, how, story.steps[index + 2].outcome, found, wrote=left != content
    )
    if breach is not None:
        story.breaches.append((index + 2, breach))
    return story


def _session_file(stage: Stage, call: Append, start: int) -> tuple[str, int]:
    """Where the file stands that a call wrote its events to, and its length before the call."""
    marks = [mark.encode() for mark in map(mark_of, call.events) if mark is not None]
    operations = stage.operations
    written: list[Inode] = []
    for operation in operations[start:]:
        if isinstance(operation, Write):
            written.append(operation.inode)
            if any(mark in operation.data for mark in marks):
                written.append(operation.inode)
                break
    for inode in reversed(written):
        path = stage.real_path(inode)
        if path is not None and path.endswith(_LOG_OF_A_DATABASE):
            # The file of a session is the database; its log beside it comes and goes.
            database = path.removesuffix(_LOG_OF_A_DATABASE)
            return database, os.path.getsize(database)
        if path is not None:
            offsets = [
                operation.offset
                for operation in operations[start:]
                if isinstance(operation, Write) and operation.inode == inode
            ]
            return path, min(offsets)
    raise NoFile


def _take(path: str, how: Taking, before: int) -> bytes | None:
    """Does it; gives what the file holds afterwards, None when it is gone."""
    content, _ = read_file(path)
    older = content[:before] or content[: len(content) // 2]
    match how:
        case "unlinked":
            Real.unlink(path)
            return None
        case "replaced by a copy" | "replaced by an older copy":
            content = content if how == "replaced by a copy" else older
            _replace(path, content)
            return content
        case "cut" | "emptied":
            content = older if how == "cut" else b""
            descriptor = Real.open_descriptor(path, _WRITE)
            try:
                Real.ftruncate(descriptor, len(content))
            finally:
                os.close(descriptor)
            return content


def _replace(path: str, content: bytes) -> None:
    temporary = f"{path}.taken"
    descriptor = Real.open_descriptor(temporary, _WRITE | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        done = 0
        while done < len(content):
            done += Real.write(descriptor, content[done:])
    finally:
        os.close(descriptor)
    Real.replace(temporary, path)
