"""Faults of the device under a file system that keeps its own promises, as values.

A crash takes away what was not synced; a device that is broken, or lies, takes away what was. Each
fault is a frozen value, and `Devices.image` a pure function from a recorded op log and a fault to
the disk it leaves. Decided here: what each fault leaves of a file (a lost write stays lost only
until the page is written back again), and a bounded, seeded choice of faults per log, each proven
to have changed the disk. Faults stand where a call was just acknowledged.

All but `LyingSync` are seen after a clean shut-down: what was not synced by then is written back.
What the page cache holds hides a fault from the running program, so a fault shows at the next open.

Not modelled: reads that fail or come short, faults that come and go, damage to what the file system
keeps for itself (names, lengths, its journal), two faults at once, and faults below the file system
of a database that has pages of its own; blocks of other files move whole pages only.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import msgspec

from torntail.crash.crashes import Crash, Moment, crashes
from torntail.crash.disk import PAGE_BYTES, SECTOR_BYTES, Disk, DiskImage
from torntail.crash.oplog import (
    Acknowledged,
    Inode,
    Operation,
    SyncAll,
    SyncDirectory,
    SyncFile,
    Write,
)

__all__ = [
    "DEVICE_FAULTS",
    "BitRot",
    "CutFile",
    "DeviceFault",
    "Devices",
    "LostWrite",
    "LyingSync",
    "MisdirectedWrite",
    "RolledBackFile",
    "fault_name",
    "fault_words",
]


class _Fault(msgspec.Struct, frozen=True, tag_field="fault", kw_only=True):
    """Base of all device faults; it shows after `position` operations of the log."""

    position: int


class LyingSync(_Fault, frozen=True, tag="lying fsync", kw_only=True):
    """The operations at the indices `syncs` returned success and made nothing durable.

    Then power failed, as `crash` says. A write through O_SYNC or O_DSYNC lies in the same way.
    """

    syncs: tuple[int, ...]
    crash: Crash


class LostWrite(_Fault, frozen=True, tag="lost write", kw_only=True):
    """Of what the sync at index `sync` wrote back, `start` to `stop` of the file never arrived."""

    sync: int
    inode: Inode
    start: int
    stop: int


class MisdirectedWrite(_Fault, frozen=True, tag="misdirected write", kw_only=True):
    """As `LostWrite`, and the bytes arrived in the file `target`, from `target_start` on."""

    sync: int
    inode: Inode
    start: int
    stop: int
    target: Inode
    target_start: int


class RolledBackFile(_Fault, frozen=True, tag="rolled-back file", kw_only=True):
    """A file is what it durably was after the operation at index `sync`.

    With `chunk`, (start, stop), only that range, and the file keeps its length.
    """

    sync: int
    inode: Inode
    chunk: tuple[int, int] | None = None


class BitRot(_Fault, frozen=True, tag="bit rot", kw_only=True):
    """One bit of durable data is flipped; `bit` counts from the file's first."""

    inode: Inode
    bit: int


class CutFile(_Fault, frozen=True, tag="cut file", kw_only=True):
    """Something else truncated the file to `length`."""

    inode: Inode
    length: int


DeviceFault = LyingSync | LostWrite | MisdirectedWrite | RolledBackFile | BitRot | CutFile

DEVICE_FAULTS: Final[tuple[type[DeviceFault], ...]] = (
    LyingSync,
    LostWrite,
    MisdirectedWrite,
    RolledBackFile,
    BitRot,
    CutFile,
)

_TRIES: Final = 6
"""So many draws for each fault wanted: many are no fault at all on a small log."""


def fault_name(fault: DeviceFault | type[DeviceFault]) -> str:
    """What a kind of fault is called."""
    return str(fault.__struct_config__.tag)


def fault_words(fault: DeviceFault) -> str:
    """One fault, in words."""
    where = f"after file operation {fault.position}"
    match fault:
        case LyingSync(syncs=syncs):
            told = ", ".join(str(index + 1) for index in syncs)
            return f"file operation(s) {told} made nothing durable, and power fails {where}"
        case LostWrite(sync=sync, inode=inode, start=start, stop=stop):
            return (
                f"bytes {start}–{stop} of file {inode}, synced by file operation {sync + 1}, "
                f"never arrived; seen {where}"
            )
        case MisdirectedWrite(sync=sync, inode=inode, start=start, stop=stop):
            return (
                f"bytes {start}–{stop} of file {inode}, synced by file operation {sync + 1}, "
                f"arrived in file {fault.target} at byte {fault.target_start}; seen {where}"
            )
        case RolledBackFile(sync=sync, inode=inode, chunk=chunk):
            part = "" if chunk is None else f"bytes {chunk[0]}–{chunk[1]} of "
            return f"{part}file {inode} are as after file operation {sync + 1}; seen {where}"
        case BitRot(inode=inode, bit=bit):
            return f"bit {bit % 8} of byte {bit // 8} of file {inode} is flipped {where}"
        case CutFile(inode=inode, length=length):
            return f"file {inode} is cut to {length} bytes {where}"


class Devices:
    """What device faults can make of one recording that began on `disk`."""

    def __init__(self, disk: Disk, operations: Sequence[Operation]) -> None:
        self._operations = tuple(operations)
        disks = [disk]
        for operation in self._operations:
            disks.append(disks[-1].after(operation))
        self._disks = disks
        self._honest: dict[int, frozenset[DiskImage]] = {}

    # --- what a fault leaves --------------------------------------------------------------------

    def whole(self, position: int) -> DiskImage:
        """What stands after so many operations and a clean shut-down."""
        return self._disks[position].image()

    def image(self, fault: DeviceFault) -> DiskImage:
        """What a fault leaves; equal to `whole` where a later write has healed it."""
        disk = self._disks[fault.position]
        match fault:
            case LyingSync(syncs=syncs, crash=crash):
                return crash.image(self._lied_to(frozenset(syncs), fault.position))
            case LostWrite(inode=inode):
                return disk.image(contents={inode: self._without(fault)})
            case MisdirectedWrite(inode=inode, target=target):
                contents = {inode: self._without(fault)}
                before = contents.get(target, disk.files[target].visible)
                contents[target] = self._struck(fault, before)
                return disk.image(contents=contents)
            case RolledBackFile(sync=sync, inode=inode, chunk=chunk):
                older = self._disks[sync + 1].files[inode].durable
                if chunk is None:
                    return disk.image(contents={inode: older})
                visible = disk.files[inode].visible
                return disk.image(contents={inode: _patched(visible, older, *chunk)})
            case BitRot(inode=inode, bit=bit):
                rotten = bytearray(disk.files[inode].visible)
                rotten[bit // 8] ^= 1 << bit % 8
                return disk.image(contents={inode: bytes(rotten)})
            case CutFile(inode=inode, length=length):
                return disk.image(contents={inode: disk.files[inode].visible[:length]})

    def path(self, fault: DeviceFault) -> str | None:
        """Where the file that a fault strikes stands; None where it is not one file."""
        if isinstance(fault, LyingSync | MisdirectedWrite):
            return None
        files = self._disks[fault.position].tree().files
        return next((path for path, inode in files if inode == fault.inode), None)

    def _lied_to(self, syncs: frozenset[int], position: int) -> Disk:
        """The disk on which those syncs did nothing."""
        disk = self._disks[min(syncs, default=position)]
        for index in range(min(syncs, default=position), position):
            operation = self._operations[index]
            if index not in syncs:
                disk = disk.after(operation)
            elif isinstance(operation, Write):
                disk = disk.after(msgspec.structs.replace(operation, synced=False))
        return disk

    def _without(self, fault: LostWrite | MisdirectedWrite) -> bytes:
        """A file in which a range of a write-back never arrived."""
        visible = self._disks[fault.position].files[fault.inode].visible
        if self._written_later(fault.inode, fault.start, fault.stop, fault.sync, fault.position):
            return visible
        file = self._disks[fault.sync].files.get(fault.inode)
        older = b"" if file is None else file.durable
        return _patched(visible, older, fault.start, fault.stop)

    def _struck(self, fault: MisdirectedWrite, content: bytes) -> bytes:
        """The file that got the bytes of another."""
        start, length = fault.target_start, fault.stop - fault.start
        stop = start + length
        if self._written_later(fault.target, start, stop, fault.sync, fault.position):
            return content
        arrived = self._disks[fault.sync + 1].files[fault.inode].durable[fault.start : fault.stop]
        return _patched(content, b"\0" * start + arrived, start, stop)

    def _written_later(self, inode: Inode, start: int, stop: int, sync: int, position: int) -> bool:
        """Whether a page of the range was written back again: a page is written whole."""
        start = start // PAGE_BYTES * PAGE_BYTES
        stop = -(-stop // PAGE_BYTES) * PAGE_BYTES
        for index in range(sync + 1, position):
            before = self._disks[index].files.get(inode)
            after = self._disks[index + 1].files.get(inode)
            if before is after or before is None or after is None:
                continue
            if before.durable[start:stop] != after.durable[start:stop]:
                return True
        last = self._disks[position].files[inode]
        return last.durable[start:stop] != last.visible[start:stop]

    # --- choosing faults ------------------------------------------------------------------------

    def faults(self, seed: int | str = 0, limit: int = 60) -> Iterator[DeviceFault]:
        """At most `limit` faults, of all kinds in turn; each leaves a disk of its own.

        None is given that a later write has healed, or that an honest device could have left.
        """
        chance = random.Random(f"{seed}/devices")
        places = [
            index + 1
            for index, operation in enumerate(self._operations)
            if isinstance(operation, Acknowledged)
        ]
        places = [place for place in places if self._disks[place].files]
        if not places and self._disks[-1].files:
            places = [len(self._operations)]
        if not places:
            return
        makers: tuple[Callable[[random.Random, int], DeviceFault | None], ...] = (
            self._a_lying_sync,
            self._a_lost_write,
            self._a_misdirected_write,
            self._a_rolled_back_file,
            self._a_rotten_bit,
            self._a_cut_file,
        )
        seen: set[tuple[int, DiskImage]] = set()
        given = 0
        for number in range(limit * _TRIES):
            if given >= limit:
                return
            fault = makers[number % len(makers)](chance, chance.choice(places))
            if fault is None:
                continue
            image = self.image(fault)
            if image == self.whole(fault.position) or (fault.position, image) in seen:
                continue
            seen.add((fault.position, image))
            given += 1
            yield fault

    def _a_lying_sync(self, chance: random.Random, position: int) -> DeviceFault | None:
        syncs = [
            index
            for index, operation in enumerate(self._operations[:position])
            if _syncs(operation)
        ]
        if not syncs:
            return None
        draw = chance.random()
        if draw < 0.5:
            lies: tuple[int, ...] = (chance.choice(syncs),)
        else:
            # A device that begins to lie goes on; one that always did is the common one.
            lies = tuple(syncs[0 if draw < 0.75 else chance.randrange(len(syncs)) :])
        disk = self._lied_to(frozenset(lies), position)
        ways = list(crashes(Moment(position, disk), disk.model, chance.randrange(1 << 30)))
        # The strictest way comes first and says most.
        crash = ways[0] if chance.random() < 0.5 else chance.choice(ways)
        if crash.image(disk) in self._honest_images(position):
            return None
        return LyingSync(position=position, syncs=lies, crash=crash)

    def _honest_images(self, position: int) -> frozenset[DiskImage]:
        """What a device that keeps its word may leave when power fails there."""
        if position not in self._honest:
            disk = self._disks[position]
            ways = crashes(Moment(position, disk), disk.model)
            self._honest[position] = frozenset(way.image(disk) for way in ways)
        return self._honest[position]

    def _write_back(
        self, chance: random.Random, position: int
    ) -> tuple[int, Inode, int, int] | None:
        """A sync before `position` and a page, or a sector, that it wrote back."""
        pieces: list[tuple[int, Inode, int]] = []
        for index in range(position):
            if not _syncs(self._operations[index]):
                continue
            before, after = self._disks[index].files, self._disks[index + 1].files
            for inode in after:
                if before[inode] is after[inode] or inode not in self._named(position):
                    continue
                pieces += [
                    (index, inode, page)
                    for page in _changed(before[inode].durable, after[inode].durable, PAGE_BYTES)
                ]
        if not pieces:
            return None
        sync, inode, page = chance.choice(pieces)
        if chance.random() < 0.5:
            return sync, inode, page, page + PAGE_BYTES
        before_sync = self._disks[sync].files[inode].durable[page : page + PAGE_BYTES]
        after_sync = self._disks[sync + 1].files[inode].durable[page : page + PAGE_BYTES]
        sector = page + chance.choice(_changed(before_sync, after_sync, SECTOR_BYTES))
        return sync, inode, sector, sector + SECTOR_BYTES

    def _a_lost_write(self, chance: random.Random, position: int) -> DeviceFault | None:
        found = self._write_back(chance, position)
        if found is None:
            return None
        sync, inode, start, stop = found
        return LostWrite(position=position, sync=sync, inode=inode, start=start, stop=stop)

    def _a_misdirected_write(self, chance: random.Random, position: int) -> DeviceFault | None:
        found = self._write_back(chance, position)
        if found is None:
            return None
        sync, inode, start, stop = found
        target = chance.choice(self._named(position))
        unit = stop - start
        size = len(self._disks[position].files[target].visible)
        target_start = chance.randrange(0, max(1, -(-size // unit))) * unit
        if (target, target_start) == (inode, start):
            return None
        return MisdirectedWrite(
            position=position,
            sync=sync,
            inode=inode,
            start=start,
            stop=stop,
            target=target,
            target_start=target_start,
        )

    def _a_rolled_back_file(self, chance: random.Random, position: int) -> DeviceFault | None:
        inode = chance.choice(self._named(position) or [-1])
        syncs = [
            index
            for index in range(position)
            if _syncs(self._operations[index]) and inode in self._disks[index + 1].files
        ]
        if not syncs:
            return None
        chunk = None
        if chance.random() < 0.4:
            visible = self._disks[position].files[inode].visible
            unit = chance.choice((SECTOR_BYTES, PAGE_BYTES))
            start = chance.randrange(0, -(-len(visible) // unit)) * unit
            chunk = (start, start + unit)
        return RolledBackFile(
            position=position, sync=chance.choice(syncs), inode=inode, chunk=chunk
        )

    def _a_rotten_bit(self, chance: random.Random, position: int) -> DeviceFault | None:
        files = self._disks[position].files
        committed = [inode for inode in self._named(position) if files[inode].durable]
        if not committed:
            return None
        inode = chance.choice(committed)
        size = min(len(files[inode].durable), len(files[inode].visible))
        return BitRot(position=position, inode=inode, bit=chance.randrange(size * 8))

    def _a_cut_file(self, chance: random.Random, position: int) -> DeviceFault | None:
        named = self._named(position)
        if not named:
            return None
        inode = chance.choice(named)
        size = len(self._disks[position].files[inode].visible)
        length = chance.choice((0, size - 1, chance.randrange(size)))
        return CutFile(position=position, inode=inode, length=length)

    def _named(self, position: int) -> list[Inode]:
        """The files with a name and bytes in them."""
        disk = self._disks[position]
        return sorted({inode for _, inode in disk.tree().files if disk.files[inode].visible})


def _syncs(operation: Operation) -> bool:
    return isinstance(operation, SyncFile | SyncDirectory | SyncAll) or (
        isinstance(operation, Write) and operation.synced
    )


def _patched(content: bytes, source: bytes, start: int, stop: int) -> bytes:
    """`content` with a range from `source`, zeros where that has none; it keeps its length."""
    stop = min(stop, len(content))
    if start >= stop:
        return content
    return content[:start] + source[start:stop].ljust(stop - start, b"\0") + content[stop:]


def _changed(before: bytes, after: bytes, edge: int) -> list[int]:
    """Where pages or sectors begin in which two contents differ."""
    return [
        start
        for start in range(0, max(len(before), len(after)), edge)
        if before[start : start + edge] != after[start : start + edge]
    ]
