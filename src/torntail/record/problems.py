"""What makes a recording worthless, as errors that name the file.

Each is a fault of the harness's sight, never a verdict on the store.
"""

from __future__ import annotations

__all__ = ["RecordingFailed", "Unmodelled", "UnseenWrite"]


class RecordingFailed(Exception):
    """A recording that must not be judged.

    `path` is relative to the recorded directory; "" is the directory itself.
    """

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)
        self.path = path
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.path or 'the recorded directory'!r}: {self.reason}"


class UnseenWrite(RecordingFailed):
    """The directory is not what the log says: something was done to it past the recorder.

    `path` is the first file that differs, `reason` how.
    """

    def __str__(self) -> str:
        return f"a write was not seen: {super().__str__()}"


class Unmodelled(RecordingFailed):
    """An operation that was seen but that the op log has no word for, such as a symbolic link."""

    def __str__(self) -> str:
        return f"an operation is not modelled: {super().__str__()}"
