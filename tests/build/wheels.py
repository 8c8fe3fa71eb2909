"""Wheels with something changed, for the audit to find."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

Members = dict[str, tuple[zipfile.ZipInfo, bytes]]
Change = Callable[[Members], None]

BIN = "llamafile_numa/bin/"


def install_for_windows(wheel: Path, folder: Path) -> None:
    """As pip does there, on any system."""
    install = ("install", "--quiet", "--no-index", "--no-deps", "--only-binary", ":all:", "--platform", "win_amd64")
    subprocess.run([sys.executable, "-m", "pip", *install, "--target", str(folder), str(wheel)], check=True)


def changed(wheel: Path, folder: Path, change: Change, *, platform: str = "") -> Path:
    """A copy of a wheel whose members went through `change`, with another platform in its name if one is given."""
    with zipfile.ZipFile(wheel) as archive:
        members = {info.filename: (info, archive.read(info)) for info in archive.infolist()}
    change(members)
    stem, _, old = wheel.stem.rpartition("-")
    target = folder / f"{stem}-{platform or old}.whl"
    with zipfile.ZipFile(target, "w") as archive:
        for name, (info, content) in members.items():
            info.filename = name
            archive.writestr(info, content)
    return target


def named(members: Members, end: str) -> str:
    return next(name for name in members if name.endswith(end))


def unchanged(members: Members) -> None:
    pass


def without(end: str) -> Change:
    """Leaves out the member whose name ends like this."""

    def change(members: Members) -> None:
        del members[named(members, end)]

    return change


def replaced(end: str, content: bytes) -> Change:
    def change(members: Members) -> None:
        name = named(members, end)
        members[name] = (members[name][0], content)

    return change


def added(name: str, content: bytes) -> Change:
    def change(members: Members) -> None:
        members[name] = (zipfile.ZipInfo(name), content)

    return change
