"""What TARGET names: a built-in store, `sqlite:settings`, a published package of another project
(`dsh`), `module:factory`, or `exec:command`.

Decides how a factory or a driver is found, what it claims, and that it can be called and returns a
store; every failure is a `TargetError` with one line that says what to change. Does not decide
anything about the store's behaviour (`explore`).
"""

from __future__ import annotations

import difflib
import importlib
import inspect
import os
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, cast

import msgspec

from torntail.drive.child_store import ChildStore, Driver
from torntail.drive.conversation import DriverError
from torntail.drive.dsh import DSH, NotInstalled, driver_command
from torntail.drive.exits import install
from torntail.drive.inline_store import InlineStore
from torntail.drive.python_store import KINDS, PythonStore
from torntail.drive.sqlite_target import SQLITE, sqlite_settings
from torntail.judge.capabilities import Capabilities
from torntail.stores.jsonl import JsonlStore
from torntail.stores.memory import MemoryStore
from torntail.stores.sqlite import SqliteStore

__all__ = [
    "BUILT_IN",
    "EXEC",
    "Durability",
    "Factory",
    "Target",
    "TargetError",
    "check_store",
    "target_of",
]

Factory = Callable[[Path], Any]
Durability = Literal["none", "process", "power"]

BUILT_IN: Final = ("memory", "jsonl", "sqlite")

EXEC: Final = "exec:"
"""With what the name of a target begins that is a command, the driver of a store."""

_CALLS: Final = ("create", "append", "load", "list")


class TargetError(Exception):
    """TARGET does not name a store that can be tested; the text says what to change."""


class Target(msgspec.Struct, frozen=True):
    """A store under test: how it is named, how it is opened, what it claims.

    With a `driver` the store lives in another process, and `factory` opens nothing. A `recorder` is
    a driver of the same store, for file operations that nothing inside Python sees.
    """

    name: str
    factory: Factory
    capabilities: Capabilities
    driver: Driver | None = None
    recorder: Driver | None = None

    @property
    def is_traced(self) -> bool:
        """Whether its file operations are recorded in another process."""
        return self.driver is not None or self.recorder is not None

    @property
    def arguments(self) -> tuple[str, ...]:
        """How a command line names it."""
        if self.name.startswith(EXEC):
            return "--exec", self.name.removeprefix(EXEC)
        return (self.name,)

    def open(self, root: Path, *, timeout: float) -> PythonStore | ChildStore:
        """A store over `root`, for calls that may hang."""
        if self.driver is not None:
            return ChildStore(self.driver, root, timeout=timeout)
        return PythonStore(self.factory, root, timeout=timeout)

    def open_inline(self, root: Path, *, timeout: float = 30.0) -> InlineStore | ChildStore:
        """A store over `root` for many short lives; only calls in another process are timed."""
        if self.driver is not None:
            return ChildStore(self.driver, root, timeout=timeout)
        return InlineStore(self.factory, root)


def target_of(
    name: str | Factory,
    *,
    capabilities: Capabilities | None = None,
    durability: Durability | None = None,
) -> Target:
    """The target a name or a factory stands for.

    `capabilities` go before what the factory itself claims, `durability` before both; the built-in
    stores are also opened with it.
    """
    if callable(name):
        factory, title = name, _title(name)
    elif name in BUILT_IN or name.startswith(f"{SQLITE}:"):
        return _built_in(name, capabilities, durability)
    elif name.partition(":")[0] in DSH:
        return _package(name, capabilities, durability)
    elif name.startswith(EXEC):
        return _command(name, capabilities, durability)
    else:
        factory, title = _import(name), name
    _check_signature(title, factory)
    _check_kinds(title, factory)
    claimed = capabilities if capabilities is not None else _claims(title, factory)
    if durability is not None:
        claimed = msgspec.structs.replace(claimed, durability=durability)
    return Target(title, factory, claimed)


def _built_in(
    name: str, capabilities: Capabilities | None, durability: Durability | None
) -> Target:
    claims: Capabilities
    factory: Factory
    if name == "memory":
        if durability not in (None, "none"):
            raise TargetError(
                f"memory keeps nothing after its process: --durability {durability} is for jsonl "
                "and sqlite"
            )
        claims, factory = Capabilities(durability="none"), lambda root: MemoryStore()
    elif name == "jsonl":
        kept = durability or "power"
        claims = Capabilities(durability=kept)
        factory = lambda root: JsonlStore(root, durability=kept)  # noqa: E731
    else:
        return _sqlite(name, capabilities, durability)
    return Target(name, factory, capabilities or claims)


def _sqlite(name: str, capabilities: Capabilities | None, durability: Durability | None) -> Target:
    try:
        settings = sqlite_settings(name.partition(":")[2], durability)
    except ValueError as error:
        raise TargetError(f"TARGET {name}: {error}") from None

    def factory(root: Path) -> SqliteStore:
        return SqliteStore(
            root / "sessions.db",
            durability=settings.durability,
            journal_mode=settings.journal_mode,
            synchronous=settings.synchronous,
        )

    claims = Capabilities(durability=settings.durability, atomic_batch=True)
    command = [sys.executable, "-m", "torntail.drive.serve", name]
    if durability is not None:
        command += ["--durability", durability]
    path = os.pathsep.join(filter(None, sys.path))
    recorder = Driver(command, environment={**os.environ, "PYTHONPATH": path})
    return Target(name, factory, capabilities or claims, recorder=recorder)


def _command(name: str, capabilities: Capabilities | None, durability: Durability | None) -> Target:
    try:
        command = shlex.split(name.removeprefix(EXEC))
    except ValueError as error:
        raise TargetError(f"{name!r} is no command: {error}") from None
    if not command:
        raise TargetError("--exec needs a command, as in --exec 'node driver.mjs'")
    return _driven(name, command, capabilities, durability)


def _package(name: str, capabilities: Capabilities | None, durability: Durability | None) -> Target:
    try:
        command = driver_command(name)
    except (NotInstalled, ValueError) as error:
        raise TargetError(f"TARGET {name}: {error}") from None
    return _driven(name, command, capabilities, durability)


def _driven(
    name: str,
    command: Sequence[str],
    capabilities: Capabilities | None,
    durability: Durability | None,
) -> Target:
    driver = Driver(command)
    try:
        hello = driver.hello
    except DriverError as error:
        raise TargetError(f"{error}; torntail driver check --exec … tells more") from None
    claimed = capabilities if capabilities is not None else hello.capabilities
    if durability is not None:
        claimed = msgspec.structs.replace(claimed, durability=durability)
    return Target(name, _no_factory, claimed, driver)


def _no_factory(root: Path) -> Any:
    raise TargetError("a driver's store is not opened in this process")


def _title(factory: Factory) -> str:
    module = getattr(factory, "__module__", None) or "?"
    name = getattr(factory, "__qualname__", None) or type(factory).__qualname__
    return f"{module}:{name}"


def _import(name: str) -> Factory:
    module_name, colon, attribute = name.partition(":")
    if module_name.endswith(".py") or "/" in module_name:
        raise TargetError(f"TARGET {name!r} names a file: {_advice(module_name, attribute)}")
    if not colon or not module_name or not attribute:
        near = difflib.get_close_matches(name.lower(), [*BUILT_IN, *DSH], n=1)
        if near:
            raise TargetError(f"there is no store {name!r}; did you mean {near[0]}?")
        raise TargetError(
            f"TARGET {name!r} is neither one of {', '.join([*BUILT_IN, *DSH])} nor of the form "
            "module:factory; a factory takes a directory (pathlib.Path) and returns a store"
        )
    # As `python -m` does: a module beside the caller can be named without being installed.
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    install()
    try:
        value: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name and (module_name == error.name or module_name.startswith(f"{error.name}.")):
            raise TargetError(
                f"there is no module {error.name!r}: run this where {module_name!r} can be "
                "imported, or correct the name before the colon"
            ) from error
        raise TargetError(
            f"module {module_name!r} needs {error.name!r}, which is not installed here"
        ) from error
    except Exception as error:
        raise TargetError(
            f"module {module_name!r} cannot be imported: {type(error).__name__}: {error}"
        ) from error
    for part in attribute.split("."):
        if not hasattr(value, part):
            public = [name for name, member in vars(value).items() if callable(member)][:5]
            has = f"; it has {', '.join(public)}" if public else ""
            raise TargetError(f"module {module_name!r} has no attribute {attribute!r}{has}")
        value = getattr(value, part)
    if not callable(value):
        raise TargetError(
            f"{name} is {type(value).__name__}, not a function: name a factory that takes a "
            "directory (pathlib.Path) and returns a store"
        )
    return cast(Factory, value)


def _advice(file: str, attribute: str) -> str:
    """How to write the module that a file holds."""
    path = Path(os.path.normpath(file.removesuffix(".py")))
    factory = attribute or "FACTORY"
    if path.is_absolute() or ".." in path.parts:
        return f"go to the folder {path.parent} and name the module, {path.name}:{factory}"
    return f"name the module, {'.'.join(path.parts)}:{factory}"


def _check_signature(title: str, factory: Factory) -> None:
    try:
        inspect.signature(factory).bind(Path())
    except TypeError as error:
        raise TargetError(
            f"{title} cannot be called with one argument, the directory (pathlib.Path): {error}"
        ) from None
    except ValueError:
        pass  # Some built-in callables have no signature; calling them will tell.


def _check_kinds(title: str, factory: Factory) -> None:
    kinds = getattr(factory, "error_kinds", None) or {}
    if not isinstance(kinds, Mapping):
        raise TargetError(
            f"{title}.error_kinds is {type(kinds).__name__}: give a dict from an exception, or its "
            "name, to its kind"
        )
    unknown = [kind for kind in kinds.values() if kind not in (*KINDS, "other")]
    if unknown:
        raise TargetError(
            f"{title}.error_kinds has the kind {unknown[0]!r}: use one of "
            f"{', '.join(sorted(KINDS))}"
        )


def _claims(title: str, factory: Factory) -> Capabilities:
    claimed = getattr(factory, "capabilities", None)
    if claimed is None:
        return Capabilities()
    if isinstance(claimed, Capabilities):
        return claimed
    try:
        return msgspec.convert(claimed, Capabilities, strict=False)
    except msgspec.ValidationError as error:
        raise TargetError(f"{title}.capabilities is not a set of claims: {error}") from error


def check_store(title: str, store: Any, capabilities: Capabilities) -> None:
    """Raises `TargetError` unless the object a factory returned has the calls of a store."""
    if store is None:
        raise TargetError(f"{title} returned None: return the store it opens")
    needed = [
        call
        for call in _CALLS
        if not (call == "create" and capabilities.creates == "implicit")
        and not (call == "list" and not capabilities.lists)
    ]
    if capabilities.inspects:
        needed.append("inspect")
    missing = [call for call in needed if not callable(getattr(store, call, None))]
    if not missing:
        return
    optional = {"list": "lists=False", "inspect": "inspects=False", "create": "creates='implicit'"}
    advice = [optional[call] for call in missing if call in optional]
    change = f", or claim {', '.join(advice)}" if len(advice) == len(missing) else ""
    raise TargetError(
        f"{title} returned {type(store).__name__}, which has no {', '.join(missing)}: return an "
        f"object with these calls{change}; claims are read from the factory's attribute "
        "`capabilities`, and without it every default is claimed"
    )
