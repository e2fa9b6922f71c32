"""Device faults: what each leaves, held against small logs worked out by hand."""

from __future__ import annotations

import msgspec
import pytest

from torntail.crash.crashes import Crash, FileChoice
from torntail.crash.devices import (
    DEVICE_FAULTS,
    BitRot,
    CutFile,
    DeviceFault,
    Devices,
    LostWrite,
    LyingSync,
    MisdirectedWrite,
    RolledBackFile,
    fault_name,
    fault_words,
)
from torntail.crash.disk import Disk
from torntail.crash.oplog import (
    ROOT,
    Acknowledged,
    CreateFile,
    Invoked,
    Operation,
    SyncAll,
    SyncDirectory,
    SyncFile,
    Write,
)

PAGE = 4096

# A file of two synced appends; what follows an operation's index is its position.
APPENDS: list[Operation] = [
    CreateFile(ROOT, "log", 1),
    Write(1, 0, b"one\n"),
    SyncFile(1),
    SyncDirectory(ROOT),
    Acknowledged(0),
    Write(1, 4, b"two\n"),
    SyncFile(1),
    Acknowledged(1),
]
FIRST, SECOND = 2, 6

# Two files, the one of two pages.
PAGES: list[Operation] = [
    CreateFile(ROOT, "log", 1),
    Write(1, 0, b"a" * PAGE + b"b" * 100),
    CreateFile(ROOT, "other", 2),
    Write(2, 0, b"z" * 200),
    SyncAll(),
    Write(1, PAGE + 100, b"c" * 50),
    SyncFile(1),
    Acknowledged(0),
]


def left(operations: list[Operation], fault: DeviceFault) -> dict[str, bytes]:
    return dict(Devices(Disk("ordered"), operations).image(fault).files)


def strictest(position: int, *files: tuple[int, FileChoice]) -> Crash:
    return Crash("ordered", position, None, (), files)


def test_a_sync_that_lied_made_nothing_durable() -> None:
    lie = LyingSync(position=8, syncs=(SECOND,), crash=strictest(8, (1, FileChoice(4, 0))))
    assert left(APPENDS, lie) == {"log": b"one\n"}
    # Without either sync, and with that of the directory a lie, too, there is not even a name.
    all_lie = LyingSync(position=8, syncs=(2, 3, 6), crash=strictest(8, (1, FileChoice(0, 0))))
    assert left(APPENDS, all_lie) == {}


def test_a_synced_write_lies_like_an_fsync() -> None:
    operations: list[Operation] = [
        CreateFile(ROOT, "log", 1),
        SyncAll(),
        Write(1, 0, b"ab", synced=True),
    ]
    lie = LyingSync(position=3, syncs=(2,), crash=strictest(3, (1, FileChoice(1, 1))))
    assert left(operations, lie) == {"log": b"a"}


def test_a_later_sync_that_did_not_lie_makes_good_an_earlier_one() -> None:
    lie = LyingSync(position=8, syncs=(FIRST,), crash=strictest(8))
    assert left(APPENDS, lie) == {"log": b"one\ntwo\n"}


def test_a_lost_write_leaves_what_stood_there_and_the_new_length() -> None:
    lost = LostWrite(position=8, sync=SECOND, inode=1, start=0, stop=PAGE)
    assert left(APPENDS, lost) == {"log": b"one\n\0\0\0\0"}


def test_a_lost_write_is_healed_when_its_page_is_written_back_again() -> None:
    lost = LostWrite(position=8, sync=FIRST, inode=1, start=0, stop=512)
    assert left(APPENDS, lost) == {"log": b"one\ntwo\n"}
    early = LostWrite(position=5, sync=FIRST, inode=1, start=0, stop=512)
    assert left(APPENDS, early) == {"log": b"\0\0\0\0"}


def test_another_page_does_not_heal_it() -> None:
    lost = LostWrite(position=8, sync=4, inode=1, start=512, stop=1024)
    assert left(PAGES, lost)["log"] == b"a" * 512 + b"\0" * 512 + b"a" * (PAGE - 1024) + (
        b"b" * 100 + b"c" * 50
    )


def test_what_is_not_synced_yet_heals_it_at_a_clean_shut_down() -> None:
    operations = [*APPENDS[:5], APPENDS[5]]
    lost = LostWrite(position=6, sync=FIRST, inode=1, start=0, stop=PAGE)
    assert left(operations, lost) == {"log": b"one\ntwo\n"}


def test_a_misdirected_write_is_missing_here_and_stands_there() -> None:
    wrong = MisdirectedWrite(
        position=8, sync=6, inode=1, start=PAGE, stop=2 * PAGE, target=2, target_start=0
    )
    files = left(PAGES, wrong)
    # The older page, and zeros where it was shorter; the whole page, cut at the other's length.
    assert files["log"] == b"a" * PAGE + b"b" * 100 + b"\0" * 50
    assert files["other"] == b"b" * 100 + b"c" * 50 + b"\0" * 50


def test_a_write_misdirected_within_its_file() -> None:
    wrong = MisdirectedWrite(
        position=8, sync=6, inode=1, start=PAGE, stop=2 * PAGE, target=1, target_start=0
    )
    expected = b"b" * 100 + b"c" * 50 + b"\0" * (PAGE - 150) + b"b" * 100 + b"\0" * 50
    assert left(PAGES, wrong)["log"] == expected


def test_a_file_or_a_part_of_it_goes_back_to_what_it_durably_was() -> None:
    back = RolledBackFile(position=8, sync=FIRST, inode=1)
    assert left(APPENDS, back) == {"log": b"one\n"}
    chunk = RolledBackFile(position=8, sync=4, inode=1, chunk=(PAGE, PAGE + 512))
    assert left(PAGES, chunk)["log"] == b"a" * PAGE + b"b" * 100 + b"\0" * 50


def test_a_bit_and_a_length() -> None:
    assert left(APPENDS, BitRot(position=8, inode=1, bit=8 * 4)) == {"log": b"one\nuwo\n"}
    assert left(APPENDS, CutFile(position=8, inode=1, length=5)) == {"log": b"one\nt"}


@pytest.mark.parametrize("operations", [APPENDS, PAGES], ids=["appends", "pages"])
@pytest.mark.parametrize("limit", [1, 6, 40])
def test_faults_are_bounded_all_landed_and_the_same_for_a_seed(
    operations: list[Operation], limit: int
) -> None:
    devices = Devices(Disk("ordered"), operations)
    faults = list(devices.faults(3, limit))
    assert 1 <= len(faults) <= limit
    assert faults == list(Devices(Disk("ordered"), operations).faults(3, limit))
    marks = {index + 1 for index, one in enumerate(operations) if isinstance(one, Acknowledged)}
    images = set()
    for fault in faults:
        assert fault.position in marks
        assert devices.image(fault) != devices.whole(fault.position)
        images.add((fault.position, devices.image(fault)))
    assert len(images) == len(faults)
    if limit == 40:
        # A file of one page has no other place for a write to go to.
        moot = {MisdirectedWrite} if operations is APPENDS else set()
        assert {type(fault) for fault in faults} == set(DEVICE_FAULTS) - moot
        assert faults != list(devices.faults(4, limit))


def test_a_lie_is_told_only_where_an_honest_device_would_have_kept_the_data() -> None:
    # Acknowledged without a sync: whatever is lost here is the store's fault.
    operations: list[Operation] = [
        Invoked(0),
        CreateFile(ROOT, "log", 1),
        SyncAll(),
        Write(1, 0, b"one\n"),
        Acknowledged(0),
    ]
    for fault in Devices(Disk("ordered"), operations).faults(0, 40):
        assert not isinstance(fault, LyingSync) or fault.crash.names is not None
        if isinstance(fault, LyingSync):
            assert left(operations, fault) == {}  # The name alone was promised.
    assert list(Devices(Disk("ordered"), [Acknowledged(0)]).faults()) == []


def test_faults_are_json_and_words() -> None:
    for fault in Devices(Disk("ordered"), PAGES).faults(0, 40):
        text = msgspec.json.encode(fault)
        assert msgspec.json.decode(text, type=DeviceFault) == fault
        assert str(fault.position) in fault_words(fault)
        assert f'"{fault_name(fault)}"'.encode() in text
