"""The live layer over any store: sessions, write-behind, resume, fork, and a scripted agent.

Decides LV-1 to LV-5. Knows the session model and the store protocol, nothing of the harness.
"""

from torntail.runtime.errors import (
    BufferFull,
    LiveError,
    NoStore,
    SessionClosed,
    SessionRunning,
    StorageDiffers,
    TurnGrammarBroken,
)
from torntail.runtime.live_session import Session, close_all
from torntail.runtime.opening import fork, resume, start
from torntail.runtime.work import Work
from torntail.runtime.write_behind import WritePolicy

__all__ = [
    "BufferFull",
    "LiveError",
    "NoStore",
    "Session",
    "SessionClosed",
    "SessionRunning",
    "StorageDiffers",
    "TurnGrammarBroken",
    "Work",
    "WritePolicy",
    "close_all",
    "fork",
    "resume",
    "start",
]
