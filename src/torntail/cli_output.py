"""Whose standard output is: the command's own, whatever a store prints that runs in its process.

Decides that descriptor 1 leads to standard error from the first time on that a store may run, and
that the command writes through a duplicate of its own. Worker processes do as much for themselves
(`scenarios.worker`, `explore.fuzz_worker`, `explore.crash_worker`).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

import click

__all__ = ["nobody_reads", "stores_may_print"]

_KEY: Final = "torntail.standard-output"


@contextmanager
def stores_may_print() -> Iterator[None]:
    """Within it what is printed goes to standard error; for commands, may be used again in one.

    Descriptor 1 is not put back in the process of the command alone: what a store's thread prints
    later, or at exit, must not follow the results.
    """
    context = click.get_current_context()
    output = context.meta.get(_KEY)
    if output is None:
        output = context.meta[_KEY] = _StandardOutput()
        context.call_on_close(output.close)
    with output.left_to_stores():
        yield


def nobody_reads() -> None:
    """Drops what is still to be written to standard output, whose reader has gone."""
    with suppress(OSError, ValueError, AttributeError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


class _StandardOutput:
    """Standard output of a command: `own` is what it writes to, `aside` what stores print to."""

    def __init__(self) -> None:
        self._kept: int | None = None
        self._alone = sys.stdout is sys.__stdout__
        self._own = self._aside = sys.stdout
        if sys.stdout is None:
            return  # It was closed before we began: there is nothing to keep apart.
        sys.stdout.flush()
        self._kept = os.dup(1)
        _lead_aside()
        self._aside = open(  # noqa: SIM115
            1, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False
        )
        if self._alone:
            self._own = open(  # noqa: SIM115
                self._kept,
                "w",
                encoding=sys.stdout.encoding,
                errors=sys.stdout.errors,
                closefd=False,
            )

    @contextmanager
    def left_to_stores(self) -> Iterator[None]:
        if self._kept is None:
            yield
            return
        self._own.flush()
        sys.stdout = self._aside
        try:
            yield
        finally:
            sys.stdout = self._own

    def close(self) -> None:
        """The command has said all it has to say."""
        if self._kept is None:
            return
        self._own.flush()
        if self._alone:
            sys.stdout = self._aside
            return
        # Another reads what the command says, in a process that goes on after it.
        self._aside.close()
        os.dup2(self._kept, 1)
        os.close(self._kept)


def _lead_aside() -> None:
    try:
        os.dup2(2, 1)
    except OSError:  # There is no standard error: nobody wants to know.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        if nowhere != 1:
            os.dup2(nowhere, 1)
            if nowhere != 2:
                os.close(nowhere)
