"""`torntail.live_suite`: a class of tests for a live layer, one for each case of LV-1 to LV-5.

Decides nothing of its own: a test is a case of `explore.cases_lv`.
"""

from __future__ import annotations

import sys
from typing import Any

from torntail.explore.cases_lv import LIVE_CASES
from torntail.explore.live import LiveCase, LiveLayer

__all__ = ["live_suite"]


def live_suite(layer: LiveLayer) -> type[Any]:
    """A class of pytest tests that hold a live layer to the clauses LV-1 to LV-5.

    Give it a name that pytest collects: `TestMyLayer = live_suite(MyLayer())`. The layer is used
    through the calls of `torntail.explore.live.LiveLayer`, over stores that fail as told.
    """
    tests = {_test_name(case): _test(case, layer) for case in LIVE_CASES}
    caller = sys._getframe(1).f_globals.get("__name__", __name__)
    doc = "A live layer keeps the clauses LV-1 to LV-5."
    return type("LiveSuite", (), {**tests, "__doc__": doc, "__module__": caller})


def _test_name(case: LiveCase) -> str:
    return f"test_{case.clause.lower().replace('-', '_')}_{case.name}"


def _test(case: LiveCase, layer: LiveLayer) -> Any:
    def test(self: object) -> None:
        case.run(layer)

    test.__name__ = test.__qualname__ = _test_name(case)
    test.__doc__ = case.run.__doc__
    return test
