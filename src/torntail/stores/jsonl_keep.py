"""What a store keeps beside a JSONL log: the torn tail it drops, and what was never a session.

Decides the names of these copies and when they are durable (DM-2, DM-6). Does not decide when one
is due (`jsonl`), nor the copy that `torntail repair` makes (`salvage`).
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from torntail.session import TornTail
from torntail.stores.contract import StorageFailed
from torntail.stores.files import (
    FILE_MODE,
    open_log,
    sync_directory,
    sync_file,
    unlink_if_there,
    write_all,
)
from torntail.stores.paths import LOG_SUFFIX, companion_name

__all__ = ["keep_torn_tail", "move_aside"]

_COPY_CHUNK_BYTES: Final = 1 << 20


def keep_torn_tail(session_id: str, path: str, torn: TornTail, *, durable: bool) -> str:
    """Copies the torn tail beside the log, durably; again under the same name if repeated (DM-2).

    Gives the name of the copy; raises `StorageFailed`.
    """
    temporary = _beside(path, f"{LOG_SUFFIX}.torn.tmp")
    target = _beside(path, f"{LOG_SUFFIX}.torn-{torn.byte}-{torn.digest[:16]}")
    try:
        unlink_if_there(temporary)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(temporary, flags, FILE_MODE)
        try:
            with os.fdopen(open_log(path, os.O_RDONLY), "rb") as source:
                source.seek(torn.byte)
                while chunk := source.read(_COPY_CHUNK_BYTES):
                    write_all(descriptor, chunk)
            if durable:
                sync_file(descriptor)
        finally:
            os.close(descriptor)
        os.replace(temporary, target)
        if durable:
            sync_directory(os.path.dirname(path))
    except OSError as error:
        with suppress(OSError):
            os.unlink(temporary)
        raise StorageFailed(session_id, Path(target), "copy of the torn tail", error) from error
    return target


def move_aside(session_id: str, path: str, *, durable: bool) -> None:
    """Keeps the bytes of a log that was never materialised, and frees its name (DM-6).

    Raises `StorageFailed`.
    """
    try:
        with os.fdopen(open_log(path, os.O_RDONLY), "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()[:16]
        os.replace(path, _beside(path, f"{LOG_SUFFIX}.aside-{digest}"))
        if durable:
            # Its folder need not be the new log's: back after a power cut, it would be a second
            # place of the same id.
            sync_directory(os.path.dirname(path))
    except OSError as error:
        raise StorageFailed(session_id, Path(path), "moving aside", error) from error


def _beside(path: str, suffix: str) -> str:
    folder, name = os.path.split(path)
    return os.path.join(folder, companion_name(name.removesuffix(LOG_SUFFIX), suffix))
