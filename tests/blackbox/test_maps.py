"""Stores into writable shared mappings, which are no calls, stand in the log all the same."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from tests.blackbox.support import compiled, needs_tracing, python, run, traced
from torntail.crash.oplog import CreateFile, Operation, Rename, SyncFile, Truncate, Write
from torntail.record.replay import replayed
from torntail.record.traced.values import Kill, Output

pytestmark = needs_tracing

PAGE = 4096

MAPPED = """
import mmap, os, sys
os.chdir(sys.argv[1])
fd = os.open("data", os.O_RDWR | os.O_CREAT)
os.ftruncate(fd, 4 * 4096)
data = mmap.mmap(fd, 4 * 4096)
data[0:3] = b"one"
data[2 * 4096 + 5 : 2 * 4096 + 8] = b"two"
os.close(fd)
"""


def _page(*pieces: tuple[int, bytes]) -> bytes:
    page = bytearray(PAGE)
    for offset, data in pieces:
        page[offset : offset + len(data)] = data
    return bytes(page)


FIRST: list[Operation] = [
    CreateFile(0, "data", 1),
    Truncate(1, 4 * PAGE),
    Write(1, 0, _page((0, b"one"))),
    Write(1, 2 * PAGE, _page((5, b"two"))),
]


@pytest.mark.parametrize(
    "code, expected",
    [
        ("", FIRST),
        ("data.close()", FIRST),
        ("data.flush()", [*FIRST, SyncFile(1)]),
        (
            # A part: its pages are durable, the others are not.
            "data.flush(0, 4096)",
            [*FIRST, Write(1, 0, _page((0, b"one")), synced=True)],
        ),
        ("os.write(1, b'said')", [*FIRST, Output(b"said")]),
        (
            "os.rename('data', 'moved')\ndata[1:2] = b'N'",
            [*FIRST, Rename(0, "data", 0, "moved"), Write(1, 0, _page((0, b"oNe")))],
        ),
        (
            "os.kill(os.getpid(), 9)",
            FIRST,
        ),
        (
            # A call and a store to one page.
            "fd = os.open('data', os.O_RDWR)\nos.pwrite(fd, b'call', 100)\ndata[104:105] = b'!'",
            [*FIRST, Write(1, 100, b"call"), Write(1, 0, _page((0, b"one"), (100, b"call!")))],
        ),
    ],
)
def test_stores_stand_before_what_follows_them(code, expected, tmp_path):
    process = run(python(MAPPED + code, tmp_path), tmp_path)
    assert process.entries == expected


def test_a_kill_leaves_what_was_stored(tmp_path):
    code = MAPPED + "data[0:3] = b'ONE'\nos.rename('data', 'moved')\ndata[0:3] = b'two'\n"
    process = run(python(code, tmp_path), tmp_path, inject=[Kill(on="rename")])
    assert process.entries == [*FIRST[:2], Write(1, 0, _page((0, b"ONE"))), FIRST[3]]


def test_a_mapping_that_becomes_writable_later_is_watched(tmp_path):
    source = r"""
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
/* As LMDB with a writable map: pages are stored, synced, then the page that names them. */
int main(int count, char **arguments) {
    chdir(arguments[1]);
    int file = open("data.mdb", O_RDWR | O_CREAT, 0600);
    ftruncate(file, 8 * 4096);
    char *map = mmap(0, 8 * 4096, PROT_READ, MAP_SHARED, file, 0);
    mprotect(map, 8 * 4096, PROT_READ | PROT_WRITE);
    for (int commit = 1; commit <= 3; commit++) {
        memset(map + 4096 * (2 + commit), 'a' + commit, 4096);
        msync(map + 4096 * 2, 4096 * 6, MS_SYNC);
        map[(commit % 2) * 4096] = (char) commit;
        msync(map, 4096 * 2, MS_SYNC);
        write(1, "commit\n", 7);
    }
    munmap(map, 8 * 4096);
    return 0;
}
"""
    root = tmp_path / "root"
    root.mkdir()
    process = run([compiled(tmp_path, source), str(root)], root)
    expected: list[object] = [CreateFile(0, "data.mdb", 1), Truncate(1, 8 * PAGE)]
    for commit in (1, 2, 3):
        data = bytes([ord("a") + commit]) * PAGE
        meta = _page((0, bytes([commit])))
        for offset, page in (((2 + commit) * PAGE, data), (commit % 2 * PAGE, meta)):
            expected += [Write(1, offset, page), Write(1, offset, page, synced=True)]
        expected.append(Output(b"commit\n"))
    assert process.entries == expected


def test_a_mapping_for_reading_alone_is_not_looked_at(tmp_path):
    (tmp_path / "data").write_bytes(bytes(PAGE))
    code = """
import mmap, os, sys
os.chdir(sys.argv[1])
fd = os.open("data", os.O_RDONLY)
data = mmap.mmap(fd, 4096, prot=mmap.PROT_READ)
os.mkdir("d")
"""
    process = run(python(code, tmp_path), tmp_path)
    assert len(process.operations) == 1


SQLITE = """
import os, sqlite3, sys
path = sys.argv[1] + "/db"
database = sqlite3.connect(path, isolation_level=None)
database.execute("pragma journal_mode = wal")
database.execute("pragma synchronous = full")
database.execute("create table t (x)")
for number in range(5):
    database.execute("insert into t values (?)", (number,))
    os.write(1, b"%d\\n" % number)
sys.stdin.readline()
"""


def test_sqlite_in_wal_mode_without_its_shared_memory(tmp_path):
    root = tmp_path / "root"
    root.mkdir()
    with traced(python(SQLITE, root), root) as process:
        for number in range(5):
            assert process.stdout.readline() == b"%d\n" % number
        assert sorted(path.name for path in root.iterdir()) == ["db", "db-shm", "db-wal"]
        process.kill()
    process.check()
    names = {e.inode: e.name for e in process.operations if isinstance(e, CreateFile)}
    assert sorted(names.values()) == ["db", "db-journal", "db-shm", "db-wal"]
    touched = {names[e.inode] for e in process.operations if isinstance(e, Write | Truncate)}
    assert touched == {"db", "db-journal", "db-wal"}
    # What the log holds is a database with all rows, whatever its shared memory was.
    image = replayed(process.disk, process.operations).image()
    copy = tmp_path / "copy"
    copy.mkdir()
    for name, data in image.files.items():
        Path(copy / name).write_bytes(data)
    database = sqlite3.connect(copy / "db")
    assert database.execute("select x from t").fetchall() == [(number,) for number in range(5)]
    database.close()
    # WAL with FULL: every commit is synced before it is told.
    for number in range(5):
        told = process.entries.index(Output(b"%d\n" % number))
        wal = next(inode for inode, name in names.items() if name == "db-wal")
        last = [e for e in process.entries[:told] if getattr(e, "inode", None) == wal][-1]
        assert last == SyncFile(wal)
