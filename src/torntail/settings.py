"""`[tool.torntail]` of a pyproject.toml: what a project asks of torntail by default.

Decides the keys, their types, and that a key which is not known is refused with the nearest one.
Does not decide what goes before it: an option on the command line and an argument in the code do
(`plugin.options`).
"""

from __future__ import annotations

import difflib
import tomllib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

__all__ = ["LEVELS", "Level", "Settings", "SettingsError", "read_settings", "settings_of"]

Level: TypeAlias = Literal["none", "process", "power"]

LEVELS: Final[tuple[Level, ...]] = ("none", "process", "power")

_SECTION: Final = "[tool.torntail]"


class SettingsError(ValueError):
    """A section that cannot be used; the text is one line that says what to change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the section says; None where it says nothing.

    `store` is the TARGET that scenarios are run on, `scenarios` the folder they lie in, relative to
    the file's own; `seed`, `images` and `level` are those of `torntail certify`.
    """

    store: str | None = None
    scenarios: str | None = None
    seed: int | None = None
    images: int | None = None
    level: Level | None = None


_KEYS: Final = tuple(field.name for field in fields(Settings))


def read_settings(path: Path) -> Settings | None:
    """What a pyproject.toml says, or None if there is no such file or section.

    Raises:
        SettingsError: the file is no TOML, or the section has unknown keys or wrong values.
    """
    try:
        with path.open("rb") as file:
            document = tomllib.load(file)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise SettingsError(f"{path.name} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SettingsError(f"{path.name} is not TOML: {error}") from None
    section = document.get("tool", {})
    section = section.get("torntail") if isinstance(section, dict) else None
    return None if section is None else settings_of(section, path.name)


def settings_of(section: object, name: str) -> Settings:
    """The settings that a section of the file `name` stands for; raises `SettingsError`."""
    where = f"{name}, {_SECTION}"
    if not isinstance(section, dict):
        raise SettingsError(f"{where}: is {_kind(section)}, not a table of keys")
    for key in section:
        if key not in _KEYS:
            near = difflib.get_close_matches(key, _KEYS, n=1)
            advice = f"did you mean {near[0]}?" if near else f"use one of {', '.join(_KEYS)}"
            raise SettingsError(f"{where}: there is no key {key!r}; {advice}")
    return Settings(
        store=_text(section, "store", where),
        scenarios=_folder(section, where),
        seed=_count(section, "seed", None, where),
        images=_count(section, "images", 1, where),
        level=_level(section, where),
    )


def _text(section: dict[str, Any], key: str, where: str) -> str | None:
    value = section.get(key)
    if value is None:
        return None
    if not isinstance(value, str):
        raise SettingsError(f"{where}: {key} is {_kind(value)}; write it in quotes")
    if not value.strip():
        raise SettingsError(f"{where}: {key} is empty; name it, or leave the key out")
    return value


def _folder(section: dict[str, Any], where: str) -> str | None:
    value = _text(section, "scenarios", where)
    if value is not None and (Path(value).is_absolute() or ".." in Path(value).parts):
        raise SettingsError(f"{where}: scenarios {value!r} is not below this folder")
    return value


def _count(section: dict[str, Any], key: str, least: int | None, where: str) -> int | None:
    value = section.get(key)
    if value is None:
        return None
    if type(value) is not int:
        raise SettingsError(f"{where}: {key} is {_kind(value)}; write a whole number")
    if least is not None and value < least:
        raise SettingsError(f"{where}: {key} is {value}; the least is {least}")
    return value


def _level(section: dict[str, Any], where: str) -> Level | None:
    value = _text(section, "level", where)
    for level in LEVELS:
        if level == value:
            return level
    if value is None:
        return None
    raise SettingsError(f"{where}: level is {value!r}; use {', '.join(LEVELS)}")


def _kind(value: object) -> str:
    names = {bool: "true or false", int: "a number", float: "a number with a point"}
    names |= {str: "a text", list: "a list", dict: "a table"}
    return names.get(type(value), f"a {type(value).__name__}")
