"""Programs that change a directory, run both in this process and as traced children.

Each takes the directory. The file is also a script: the name of a program, then its arguments.
"""

from __future__ import annotations

import json
import os
import sys

TIME = 1_700_000_000_000


def bytes_of_files(root: str) -> None:
    """Every way to write bytes that Python has."""
    fd = os.open(f"{root}/a", os.O_RDWR | os.O_CREAT, 0o600)
    os.write(fd, b"one")
    os.write(fd, b"")
    os.writev(fd, [b"two", b"", b"three"])
    os.pwrite(fd, b"ONE", 0)
    os.pwritev(fd, [b"x", b"y"], 20)
    os.pwritev(fd, [b"synced"], 30, os.RWF_DSYNC)
    os.pwritev(fd, [b"at the position"], -1)
    os.lseek(fd, 2, os.SEEK_SET)
    twin = os.dup(fd)
    os.write(twin, b"by the twin")
    os.close(twin)
    os.ftruncate(fd, 9)
    os.truncate(f"{root}/a", 12)
    os.posix_fallocate(fd, 0, 8)
    os.posix_fallocate(fd, 0, 40)
    end = os.open(f"{root}/b", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(end, b"first\n")
    os.pwrite(end, b"second\n", 0)
    synced = os.open(f"{root}/c", os.O_RDWR | os.O_CREAT | os.O_SYNC, 0o600)
    os.write(synced, b"synced")
    os.sendfile(synced, fd, 0, 5)
    os.copy_file_range(fd, synced, 4, 1, 2)
    os.copy_file_range(fd, synced, 4, 1)
    os.fsync(fd)
    os.fdatasync(end)
    for one in (fd, end, synced):
        os.close(one)
    os.close(os.open(f"{root}/b", os.O_WRONLY | os.O_TRUNC))
    with open(f"{root}/b", "a", encoding="utf-8") as text:
        text.write("a line\n")
        text.flush()
        text.write("another\n")
    with open(f"{root}/c", "wb", buffering=0) as raw:
        raw.write(b"new")
        raw.truncate(1)


def names_of_files(root: str) -> None:
    """Every way to change names that Python has, by all kinds of paths."""
    os.mkdir(f"{root}/d")
    os.makedirs(f"{root}/d/e/f")
    os.chdir(root)
    open("d/plain", "wb").close()
    open("./d/../second", "wb").close()
    directory = os.open("d", os.O_RDONLY)
    os.close(os.open("third", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=directory))
    os.rename("third", "fourth", src_dir_fd=directory, dst_dir_fd=directory)
    os.link("fourth", "fifth", src_dir_fd=directory, dst_dir_fd=directory)
    os.rename("d/fourth", "d/fifth")
    os.replace("second", "d/plain")
    os.unlink("fifth", dir_fd=directory)
    os.unlink("d/fourth")
    os.rename("d/e", "moved")
    os.mkdir("d/e")
    os.rename("moved", "d/e")
    os.rmdir("d/e/f")
    os.fsync(directory)
    os.close(directory)
    for wrong in (
        lambda: os.mkdir("d"),
        lambda: os.rmdir("d"),
        lambda: os.unlink("missing"),
        lambda: os.rename("missing", "elsewhere"),
        lambda: os.open("d/plain", os.O_CREAT | os.O_EXCL),
        lambda: os.link("d/plain", "d/e"),
    ):
        try:
            wrong()
        except OSError:
            pass
    # A number that comes back is another file.
    for name in ("x", "y"):
        with open(name, "wb", buffering=0) as file:
            file.write(name.encode())
        os.unlink(name)
    odd = os.fsencode(root) + b"/odd \xff name"
    os.close(os.open(odd, os.O_WRONLY | os.O_CREAT, 0o600))
    by_link = os.open("/proc/self/cwd/d/plain", os.O_WRONLY)
    os.write(by_link, b"through a link")
    os.close(by_link)


def jsonl_store(root: str) -> None:
    """The reference store: three appends, one of them after opening again."""
    from tests.shapes import event_lines
    from torntail.session import SessionEvent, SessionHeader
    from torntail.stores.jsonl import JsonlStore

    events = [SessionEvent.from_json(json.loads(line)) for line in event_lines("T TS U SS TE Tt")]
    with JsonlStore(root) as store:
        store.create(SessionHeader("s", TIME, cwd="/w"))
        store.append("s", events[:6])
        store.append("s", events[6:10])
    with JsonlStore(root) as store:
        store.load("s")
        store.append("s", events[10:])


PROGRAMS = {one.__name__: one for one in (bytes_of_files, names_of_files, jsonl_store)}

if __name__ == "__main__":
    PROGRAMS[sys.argv[1]](*sys.argv[2:])
