"""Which sessions run in this process, over which store: one live session of an id at a time.

Between processes, the store's own lock decides. An id is free again when its session is closed or
given up, or was forgotten and what it held has been drained.
"""

from __future__ import annotations

import threading
import weakref
from typing import Any, Final

from torntail.runtime.errors import SessionRunning
from torntail.session import join_surrogates

__all__ = ["Claim"]

_lock: Final = threading.RLock()
_claims: Final[weakref.WeakValueDictionary[tuple[int, str], Claim]] = weakref.WeakValueDictionary()


class Claim:
    """The right to run a session over a store, held until `free` or as long as it is kept.

    Raises `SessionRunning` where another holds it.
    """

    def __init__(self, store: Any, session_id: str) -> None:
        # The store is kept, so that its identity cannot become another's.
        self.store = store
        self._key = (id(store), join_surrogates(session_id))
        with _lock:
            if self._key in _claims:
                raise SessionRunning(session_id)
            _claims[self._key] = self

    def free(self) -> None:
        """Gives the id free; harmless when done already."""
        with _lock:
            if _claims.get(self._key) is self:
                del _claims[self._key]
