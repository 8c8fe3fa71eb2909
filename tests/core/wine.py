"""Compile C tests for Windows and run them under Wine."""

import functools
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.core import cc
from tools import zig
from tools.fail import Fail
from tools.lock import locked
from tools.paths import cache_dir

TARGET = "x86_64-windows-gnu"
PLACES = (Path("/usr/lib/wine/wine64"),)  # Debian's, which puts it on no PATH without the package wine
SECONDS = 300
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


def run(command: Sequence[str | Path]) -> subprocess.CompletedProcess[str]:
    """Run a Windows program. Paths among its arguments have to be in the form of path()."""
    return _run(command, prefix(), without=BESIDE)


def path(file: Path) -> str:
    """What Windows programs call a file."""
    return f"Z:{file.absolute()}"


def compile(sources: Sequence[Path], *, into: Path) -> Path:
    """Compile C sources to a Windows program in the folder `into`, named like the first.

    Undefined behaviour ends it. Skips the calling test where ziglang cannot be had; fails it, with the compiler's
    words, where the sources do not compile.
    """
    try:
        compiler = zig.toolchain(TARGET).cc
    except Fail as error:
        pytest.skip(f"no compiler for Windows: {error}")
    program = into / f"{sources[0].stem}.exe"
    command = [str(compiler), "-std=c11", "-g", "-O1", *cc.WARNINGS]
    command += ["-fsanitize=undefined", "-fsanitize-trap=undefined", f"-I{cc.CORE}"]
    command += [*map(str, sources), "-ladvapi32", "-o", str(program)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        pytest.fail(f"{' '.join(command)}\n{done.stdout}{done.stderr}", pytrace=False)
    return program


def _run(command: Sequence[str | Path], at: Path, *, without: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(wine()), *map(str, command)],
        env=_environment(at, without),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=SECONDS,
    )


def _environment(at: Path, without: Sequence[str] = ()) -> dict[str, str]:
    # No word from Wine itself, no debugger, and no question whether to install a browser or .NET.
    hidden = ("mscoree", "mshtml", "winedbg.exe", *without)
    overrides = ";".join(f"{name}=" for name in hidden)
    return os.environ | {"WINEPREFIX": str(at), "WINEDEBUG": "-all", "WINEDLLOVERRIDES": overrides}


def _wait_for_server(at: Path) -> None:
    """Until what was started in the prefix has ended and its registry is written."""
    found = shutil.which("wineserver")
    server = Path(found) if found else wine().with_name("wineserver")
    if server.exists():
        subprocess.run([server, "--wait"], env=_environment(at), timeout=SECONDS, check=False)
