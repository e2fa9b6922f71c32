"""Where the real sync functions are held besides the globals of modules, and exchanging them there.

An fsync that goes past the wrappers leaves nothing behind that the check of a recording could find,
and a store that makes it looks as if it lost data. So the functions are looked for, by the garbage
collector, in whatever holds them: class attributes, default arguments, closures, instances, lists
and dictionaries, and in the tuples, `staticmethod`, `partial` and bound objects on the way there.

Decides what of that is exchanged, and names what cannot be. Only syncs: any other call that is
missed is found by its effect. The standard library is left as it is. Not reached: what holds a
function without telling the garbage collector, and what syncs without Python (`foreign`).
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import CellType, FrameType, FunctionType, ModuleType
from typing import Any, Final

__all__ = ["exchange_hidden"]

_DEPTH: Final = 3
"""How many boxes that cannot be changed may lie in one another."""

_ABSENT: Final = object()

Undo = Callable[[], object]


def exchange_hidden(
    wrappers: Mapping[int, tuple[Any, Any]], untouched: frozenset[str], own: tuple[Any, ...]
) -> tuple[list[Undo], list[str]]:
    """Puts wrappers where the functions are held; gives how to undo that, and what was left.

    `wrappers` gives for the identity of each function itself and what comes in its place; modules
    whose first name is in `untouched` are left alone, and so are the objects in `own`.
    """
    exchange = _Exchange(untouched, {id(one) for one in own})
    exchange.run(list(wrappers.values()), _DEPTH)
    return exchange.undo, exchange.left


class _Exchange:
    def __init__(self, untouched: frozenset[str], own: set[int]) -> None:
        self.untouched = untouched
        self.own = own
        self.undo: list[Undo] = []
        self.left: list[str] = []

    def run(self, pairs: list[tuple[Any, Any]], depth: int) -> None:
        """Exchanges each first by its second in whatever holds the first."""
        by_id = {id(old): (old, new) for old, new in pairs}
        asked = tuple(old for old, _ in pairs)
        ours = {id(pairs), id(by_id), id(asked), *map(id, pairs), *map(id, by_id.values())}
        boxes: list[tuple[Any, Any]] = []
        holders = gc.get_referrers(*asked)
        modules = {id(vars(module)): name for name, module in _modules()}
        for holder in holders:
            if id(holder) in ours | self.own or holder is holders or _is_frame(holder):
                continue
            if isinstance(holder, dict) and id(holder) in modules:
                if not self.is_untouched(modules[id(holder)]):
                    self.in_dictionary(holder, by_id)
            elif (box := _box(holder, by_id)) is not None:
                boxes.append((holder, box))
            else:
                self.in_holder(holder, by_id)
        del holders
        if boxes and depth:
            self.run(boxes, depth - 1)
        elif boxes:
            self.left.extend(type(box).__name__ for box, _ in boxes)

    def in_holder(self, holder: Any, by_id: Mapping[int, tuple[Any, Any]]) -> None:
        if isinstance(holder, dict):
            owners = [one for one in gc.get_referrers(holder) if isinstance(one, type)]
            owner = next((one for one in owners if one.__dict__.keys() == holder.keys()), None)
            if owner is None:
                self.in_dictionary(holder, by_id)
                return
            holder = owner
        if self.is_untouched(_module_of(holder)):
            return
        if isinstance(holder, list):
            for index, value in enumerate(holder):
                if id(value) in by_id:
                    self.put(partial(holder.__setitem__, index), *by_id[id(value)])
        elif isinstance(holder, CellType):
            old, new = by_id[id(holder.cell_contents)]
            self.put(partial(setattr, holder, "cell_contents"), old, new)
        elif isinstance(holder, FunctionType):
            if id(holder.__defaults__) in by_id:
                self.put(partial(setattr, holder, "__defaults__"), *by_id[id(holder.__defaults__)])
        else:
            self.in_attributes(holder, by_id)

    def in_dictionary(self, holder: dict[Any, Any], by_id: Mapping[int, tuple[Any, Any]]) -> None:
        for key, value in list(holder.items()):
            if id(value) in by_id:
                self.put(partial(holder.__setitem__, key), *by_id[id(value)])

    def in_attributes(self, holder: Any, by_id: Mapping[int, tuple[Any, Any]]) -> None:
        """Of a class, or of an object with or without slots."""
        change = type.__setattr__ if isinstance(holder, type) else object.__setattr__
        found = False
        for name, value in _attributes(holder):
            if id(value) not in by_id:
                continue
            try:
                self.put(partial(change, holder, name), *by_id[id(value)])
                found = True
            except (AttributeError, TypeError):
                break
        if not found:
            self.left.append(f"{type(holder).__module__}.{type(holder).__qualname__}")

    def put(self, change: Callable[[Any], object], old: Any, new: Any) -> None:
        change(new)
        self.undo.append(partial(change, old))

    def is_untouched(self, module: str) -> bool:
        return module.partition(".")[0] in self.untouched or module.startswith("torntail.record.")


def _modules() -> Iterator[tuple[str, ModuleType]]:
    for name, module in list(sys.modules.items()):
        if isinstance(module, ModuleType):
            yield name, module


def _is_frame(holder: Any) -> bool:
    return isinstance(holder, FrameType)


def _module_of(holder: Any) -> str:
    named = holder if isinstance(holder, type | FunctionType) else type(holder)
    module = named.__module__
    # Of a list or a cell nobody knows whose it is: it is not of the standard library that has it.
    return "" if module == "builtins" or not isinstance(module, str) else module


def _attributes(holder: Any) -> Iterator[tuple[str, Any]]:
    try:
        yield from list(vars(holder).items())
    except TypeError:
        pass
    if isinstance(holder, type):
        return
    for above in type(holder).__mro__:
        slots = vars(above).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            value = getattr(holder, name, _ABSENT)
            if value is not _ABSENT:
                yield name, value


def _box(holder: Any, by_id: Mapping[int, tuple[Any, Any]]) -> Any:
    """What cannot be changed, made anew with the wrappers in it; None for anything else."""

    def new(value: Any) -> Any:
        return by_id[id(value)][1] if id(value) in by_id else value

    if type(holder) is tuple:
        return tuple(map(new, holder))
    if isinstance(holder, tuple):
        make = getattr(type(holder), "_make", None)
        return None if make is None else make(map(new, holder))
    if isinstance(holder, staticmethod | classmethod):
        return type(holder)(new(holder.__func__))
    if type(holder) is partial:
        keywords = {name: new(value) for name, value in holder.keywords.items()}
        return partial(new(holder.func), *map(new, holder.args), **keywords)
    return None
