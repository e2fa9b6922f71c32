"""What is done in a process of its own comes back, and the process is gone."""

from __future__ import annotations

import os
import threading

import pytest

from torntail.explore.apart import NothingCameBack, worked_apart
from torntail.record.problems import UnseenWrite


def test_the_result_comes_back_and_its_process_is_dead() -> None:
    process = worked_apart(os.getpid)
    assert process != os.getpid()
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)


def test_what_is_raised_there_is_raised_here() -> None:
    def fail() -> None:
        raise UnseenWrite("a", "is gone")

    with pytest.raises(UnseenWrite, match="'a': is gone"):
        worked_apart(fail)


@pytest.mark.parametrize("work", [lambda: os.kill(os.getpid(), 9), threading.Lock])
def test_no_result_and_one_that_cannot_be_sent_are_told(work) -> None:
    with pytest.raises((NothingCameBack, TypeError)):
        worked_apart(work)
