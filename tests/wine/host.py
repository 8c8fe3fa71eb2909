"""Wine, which runs Windows programs on Linux."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tools.lock import locked
from tools.paths import cache_dir

PLACES = (Path("/usr/lib/wine/wine64"),)  # Debian's, which puts it on no PATH without the package wine
SECONDS = 300
QUIET = "-all"
# What Wine starts beside the first program. Nothing of ours needs it, it takes a second, and what it says would come
# out of our program's stderr.
BESIDE = ("services.exe", "explorer.exe", "winemenubuilder.exe")


@functools.cache
def wine() -> Path:
    """The program wine64; skips the calling test where there is none."""
    on_path = [Path(found) for name in ("wine64", "wine") if (found := shutil.which(name))]
    for place in (*on_path, *PLACES):
        if place.is_file():
            return place
    pytest.skip("no wine64: install Wine (Debian: wine64)")


@functools.cache
def prefix() -> Path:
    """A Windows drive with its registry, made once for each version of Wine: that takes half a minute."""
    version = subprocess.run([wine(), "--version"], capture_output=True, text=True, check=True).stdout.split()[0]
    ready = cache_dir() / "wine" / version
    with locked(ready.with_name(f"{ready.name}.lock"), lambda: None):
        if not ready.exists():
            making = ready.with_name(f"{ready.name}.half-made")
            shutil.rmtree(making, ignore_errors=True)
            _run(["wineboot", "--init"], making)
            _wait_for_server(making)
            making.rename(ready)
    return ready


def beside(folder: Path, registry: str) -> Path:
    """Another prefix, in a folder of its own, with the same drive and more in the user's registry."""
    for name in ("system.reg", "user.reg", "userdef.reg", ".update-timestamp"):
        shutil.copy(prefix() / name, folder)
    (folder / "drive_c").symlink_to(prefix() / "drive_c")
    (folder / "dosdevices").mkdir()
    for letter, target in (("c:", "../drive_c"), ("z:", "/")):
        (folder / "dosdevices" / letter).symlink_to(target)
    with (folder / "user.reg").open("a", encoding="ascii") as file:
        file.write(registry)
    return folder


def run(command: Sequence[str | Path]) -> subprocess.CompletedProcess[str]:
    """Run a Windows program. Paths among its arguments have to be in the form of path()."""
    return _run(command, prefix(), without=BESIDE)


def command(program: Path, *arguments: str | Path) -> list[str]:
    """What runs a Windows program in environment(); arguments that are Paths are told in the form of path()."""
    told = (path(argument) if isinstance(argument, Path) else argument for argument in arguments)
    return [str(wine()), str(program), *told]


def environment(
    at: Path, *, debug: str = QUIET, without: Sequence[str] = BESIDE, more: Mapping[str, str] | None = None
) -> dict[str, str]:
    """This process's environment, with what Wine is to do in the prefix `at`; `debug` is WINEDEBUG."""
    # No word from Wine itself, no debugger, and no question whether to install a browser or .NET.
    hidden = ("mscoree", "mshtml", "winedbg.exe", *without)
    overrides = ";".join(f"{name}=" for name in hidden)
    own = {"WINEPREFIX": str(at), "WINEDEBUG": debug, "WINEDLLOVERRIDES": overrides}
    return {**os.environ, **own, **(more or {})}


def path(file: Path) -> str:
    """What Windows programs call a file."""
    return f"Z:{file.absolute()}"


def _run(command: Sequence[str | Path], at: Path, *, without: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(wine()), *map(str, command)],
        env=environment(at, without=without),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=SECONDS,
    )


def _wait_for_server(at: Path) -> None:
    """Until what was started in the prefix has ended and its registry is written."""
    found = shutil.which("wineserver")
    server = Path(found) if found else wine().with_name("wineserver")
    if server.exists():
        subprocess.run([server, "--wait"], env=environment(at, without=()), timeout=SECONDS, check=False)
