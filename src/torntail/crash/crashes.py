"""The ways to crash at a moment, and what each of them leaves.

All of them are given when they are few, a seeded spread when they are many, always with the
strictest (nothing unsynced), the mildest (everything), each effect alone lost, each alone kept, and
every tear that matters. What is left is given once a moment: contents that are equal as bytes are
one choice, and those of a file whose name is lost are no choice at all. Does not decide where a
process dies (`moments`), what one file may be left with (`choices`), which images are worth loading
(the campaign does) or what a device may do against its promises (`devices`).
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import product
from math import prod
from typing import Final, NamedTuple

from torntail.crash.choices import (
    GARBAGE,
    FileChoice,
    file_choices,
    name_choices,
    newest_choices,
)
from torntail.crash.disk import Disk, DiskImage, FileVersions, Model, Name, Tree
from torntail.crash.moments import Crash, Moment, is_mark, moments, surviving
from torntail.crash.oplog import (
    Inode,
    SyncAll,
    SyncDirectory,
    SyncFailed,
    SyncFile,
    Truncate,
    Write,
)

__all__ = [
    "GARBAGE",
    "Crash",
    "FileChoice",
    "Images",
    "Left",
    "Moment",
    "crashes",
    "image_key",
    "is_mark",
    "moments",
]

EXHAUSTIVE: Final = 48
_SAMPLES: Final = 12


def crashes(
    moment: Moment,
    model: Model,
    seed: int = 0,
    *,
    exhaustive: int = EXHAUSTIVE,
    since: Disk | None = None,
) -> Iterator[Crash]:
    """The ways to crash at one moment under a model; see `Images.at`."""
    for left in Images(model, seed, exhaustive=exhaustive).at(moment, since=since):
        yield left.crash


class _Contents(NamedTuple):
    """What may be left of a file: the choices with a content of their own, and its digests.

    `drawn` tells for every choice there was, before equal ones became one, which it became.
    """

    choices: Sequence[FileChoice]
    digests: Sequence[bytes]
    drawn: Sequence[int]


class _Shape(NamedTuple):
    """The surviving names, the tree they span, and the inodes it has."""

    names: tuple[int, ...]
    tree: Tree
    inodes: frozenset[Inode]


_Way = tuple[_Shape, tuple[int, ...]]
"""A tree, and which content each unsettled file has: 0 for one that the tree has not."""


class Left:
    """One way to crash at a moment, and what it leaves; both are worked out when asked for.

    `key` is the `image_key` of the image.
    """

    __slots__ = ("_choices", "_model", "_moment", "_shape", "key")

    def __init__(
        self,
        key: int,
        model: Model,
        moment: Moment,
        shape: _Shape,
        choices: tuple[tuple[Inode, FileChoice], ...],
    ) -> None:
        self.key = key
        self._model = model
        self._moment = moment
        self._shape = shape
        self._choices = choices

    @property
    def crash(self) -> Crash:
        """The crash."""
        position, torn = self._moment.position, self._moment.torn
        if self._model == "kill":
            return Crash("kill", position, torn)
        return Crash(self._model, position, torn, self._shape.names, self._choices)

    @property
    def image(self) -> DiskImage:
        """What it leaves; the same as `crash.image(moment.disk)`."""
        disk, inodes = self._moment.disk, self._shape.inodes
        contents = {
            inode: choice.content(disk.files[inode])
            for inode, choice in self._choices
            if inode in inodes
        }
        return disk.filled(self._shape.tree, contents)


def image_key(image: DiskImage) -> int:
    """A number by which equal images are known: equal for these, different for all others but by
    chance.
    """
    digests = ((path, _begun(content).digest()) for path, content in image.files.items())
    return hash((frozenset(digests), image.directories))


class Images:
    """What the crashes at the moments of one log leave, under one model.

    What moments share is worked out once, and of a file that grows only its end is looked at; the
    moments are best given in their order. Up to `exhaustive` combinations at a moment are all
    given, of more a spread.
    """

    def __init__(self, model: Model, seed: int = 0, *, exhaustive: int = EXHAUSTIVE) -> None:
        self._model = model
        self._seed = seed
        self._exhaustive = exhaustive
        # By the identity of what they were worked out from, which is kept so that it stays taken.
        self._seen: dict[int, tuple[Mapping[Name, Inode], _Shape]] = {}
        self._shapes: tuple[Disk, list[_Shape]] | None = None
        self._contents: dict[Inode, tuple[FileVersions, _Contents]] = {}
        self._visible: dict[Inode, tuple[FileVersions, bytes]] = {}
        # The beginning of each file, and the digest as far as that goes.
        self._begun: dict[Inode, tuple[bytes, blake2b]] = {}

    def at(self, moment: Moment, *, since: Disk | None = None) -> Iterator[Left]:
        """The ways to crash at a moment, the strictest first.

        The moment's disk must be of this model, any model doing for `kill`. With `since`, the disk
        one operation earlier, only those that leave something that could not be left then: what the
        last operation took part in.
        """
        disk, operation = moment.disk, moment.operation
        if self._model == "kill":
            shape = self._seen_shape(disk)
            yield Left(self._key(shape, disk, {}), "kill", moment, shape, ())
            return
        if moment.torn is not None and not (isinstance(operation, Write) and operation.synced):
            return  # The tears of a write that is not synced are among the choices for its file.
        shapes = self._shapes_of(disk)
        changed: Inode | None = None
        if since is not None:
            if isinstance(operation, SyncFile | SyncDirectory | SyncFailed | SyncAll):
                return  # It takes possibilities away and adds none.
            if isinstance(operation, Truncate | Write):
                if not (isinstance(operation, Write) and operation.synced):
                    changed = operation.inode
            else:
                old = sum(map(len, since.changes))
                shapes = [shape for shape in shapes if shape.names and shape.names[-1] >= old]
        if not shapes:
            return
        pending = disk.pending_files
        files = [self._contents_of(inode, disk.files[inode], inode == changed) for inode in pending]
        if not all(file.choices for file in files):
            return
        for shape, places in self._ways(moment.position, shapes, pending, files):
            choices = []
            digests = {}
            for inode, file, place in zip(pending, files, places, strict=True):
                choices.append((inode, file.choices[place]))
                digests[inode] = file.digests[place]
            key = self._key(shape, disk, digests)
            yield Left(key, self._model, moment, shape, tuple(choices))

    # --- combining ------------------------------------------------------------------------------

    def _ways(
        self,
        position: int,
        shapes: Sequence[_Shape],
        pending: Sequence[Inode],
        files: Sequence[_Contents],
    ) -> Iterator[_Way]:
        """All combinations, or a spread of them: each once."""
        known: dict[Tree, _Shape] = {}
        drawn = [known.setdefault(shape.tree, shape) for shape in shapes]
        counts = [len(file.choices) for file in files]
        combinations = 0
        for shape in known.values():
            combinations += prod(
                count for inode, count in zip(pending, counts, strict=True) if inode in shape.inodes
            )
        if combinations <= self._exhaustive:
            for shape in known.values():
                yield from product(
                    (shape,),
                    product(
                        *(
                            range(count if inode in shape.inodes else 1)
                            for inode, count in zip(pending, counts, strict=True)
                        )
                    ),
                )
            return
        seen = set()
        for shape, places in self._spread(position, drawn, files):
            way = (
                shape,
                tuple(
                    place if inode in shape.inodes else 0
                    for inode, place in zip(pending, places, strict=True)
                ),
            )
            key = id(shape), way[1]
            if key not in seen:
                seen.add(key)
                yield way

    def _spread(
        self, position: int, shapes: Sequence[_Shape], files: Sequence[_Contents]
    ) -> Iterator[tuple[_Shape, Sequence[int]]]:
        """Each extreme with each single deviation, then some by chance."""
        nothing, everything = shapes[0], shapes[-1]
        strictest = [file.drawn[0] for file in files]
        mildest = [file.drawn[-1] for file in files]
        for shape in shapes:
            yield shape, strictest
            yield shape, mildest
        for shape in (everything, nothing):
            for index, file in enumerate(files):
                for place in range(len(file.choices)):
                    yield shape, [*mildest[:index], place, *mildest[index + 1 :]]
                    yield shape, [*strictest[:index], place, *strictest[index + 1 :]]
        chance = random.Random(f"{self._seed}/{position}")
        for _ in range(_SAMPLES):
            yield chance.choice(shapes), [chance.choice(file.drawn) for file in files]

    # --- what moments share ---------------------------------------------------------------------

    def _seen_shape(self, disk: Disk) -> _Shape:
        known = self._seen.get(id(disk.names))
        if known is None:
            known = self._seen[id(disk.names)] = disk.names, _shape((), disk.tree())
        return known[1]

    def _shapes_of(self, disk: Disk) -> list[_Shape]:
        if self._shapes is not None:
            earlier, shapes = self._shapes
            if earlier.changes is disk.changes and earlier.durable_names is disk.durable_names:
                return shapes
        shapes = []
        for names in name_choices(disk):
            shapes.append(_shape(names, disk.tree(surviving(names, disk))))
        self._shapes = disk, shapes
        return shapes

    def _contents_of(self, inode: Inode, file: FileVersions, newest: bool) -> _Contents:
        """What may be left of a file; of the newest version alone, what it has a part in."""
        if newest:
            return self._distinct(inode, file, newest_choices(file, self._model))
        known = self._contents.get(inode)
        if known is None or known[0] is not file:
            known = file, self._distinct(inode, file, file_choices(file, self._model))
            self._contents[inode] = known
        return known[1]

    def _distinct(
        self, inode: Inode, file: FileVersions, choices: Iterable[FileChoice]
    ) -> _Contents:
        begin, begun = self._beginning(inode, file)
        places: dict[bytes, int] = {}
        kept: list[FileChoice] = []
        drawn = []
        for choice in choices:
            digest = begun.copy()
            digest.update(choice.content(file, begin))
            place = places.setdefault(digest.digest(), len(kept))
            if place == len(kept):
                kept.append(choice)
            drawn.append(place)
        return _Contents(kept, list(places), drawn)

    def _visible_digest(self, inode: Inode, file: FileVersions) -> bytes:
        known = self._visible.get(inode)
        if known is None or known[0] is not file:
            begin, begun = self._beginning(inode, file)
            digest = begun.copy()
            digest.update(file.visible[begin:])
            known = self._visible[inode] = file, digest.digest()
        return known[1]

    def _beginning(self, inode: Inode, file: FileVersions) -> tuple[int, blake2b]:
        """How far all versions of a file are the same, and the digest up to there."""
        common = file.common_length
        content, digest = self._begun.get(inode, (b"", _begun(b"")))
        if len(content) > common or not file.durable.startswith(content):
            content, digest = b"", _begun(b"")
        if len(content) < common:
            digest = digest.copy()
            digest.update(file.durable[len(content) : common])
            self._begun[inode] = file.durable[:common], digest
        return common, digest

    def _key(self, shape: _Shape, disk: Disk, digests: Mapping[Inode, bytes]) -> int:
        """The `image_key` of a tree with these contents, and the visible ones elsewhere."""
        found = []
        for path, inode in shape.tree.files:
            digest = digests.get(inode)
            if digest is None:
                digest = self._visible_digest(inode, disk.files[inode])
            found.append((path, digest))
        return hash((frozenset(found), shape.tree.directories))


def _shape(names: tuple[int, ...], tree: Tree) -> _Shape:
    return _Shape(names, tree, frozenset(inode for _, inode in tree.files))


def _begun(content: bytes) -> blake2b:
    return blake2b(content, digest_size=16)
