"""Build the program of a flavour with CMake and ninja."""

from __future__ import annotations

import argparse
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from importlib import import_module
from pathlib import Path
from typing import Any

from tools import compiler, console, patch, ui, zig
from tools.console import err, progress, say
from tools.fail import Fail
from tools.lock import locked
from tools.paths import ROOT, flavour_dir

# The CMake options of each flavour and the name of its program.
FLAVOURS = {
    "native": ((), "llamafile-numa"),
    "upstream": (("-DLLAMAFILE_NUMA_PATCHED=OFF",), "llama"),
    "portable": (("-DLLAMAFILE_NUMA_PORTABLE=ON",), "llamafile-numa"),
    "win_amd64": ((), "llamafile-numa"),
    "win_amd64_portable": (("-DLLAMAFILE_NUMA_PORTABLE=ON",), "llamafile-numa"),
}

FOR_THIS_CPU = ("native", "upstream")

STAMP = ".configured"
STATUS = re.compile(r"\[(\d+)/(\d+)\] ")


def register(subparsers: Any) -> None:
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "build",
        help="build the program",
        description="Prepare the sources of a flavour and build its program in build/FLAVOUR/out. native: patched, for"
        " this machine's CPU. upstream: the same without patches. portable: patched, for every CPU of this"
        f" architecture and every Linux with glibc {zig.GLIBC_FLOOR} or newer. win_amd64: patched, for Windows, one"
        " program for CPUs with AVX2; win_amd64_portable: for every CPU. CC and CXX choose the compiler for this"
        " machine; without one, and for all others, ziglang from the package index is used.",
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--flavour", choices=FLAVOURS, default="native", help="what to build (default: %(default)s)")
    which.add_argument("--target", dest="flavour", choices=("win_amd64",), help="build for another system")


def run(args: argparse.Namespace) -> int:
    console.out.print(str(build(args.flavour)))
    return 0


def build(flavour: str = "native", *, out: str = "out", extra: Sequence[str] = ()) -> Path:
    """The up-to-date program of a flavour; with `extra` CMake options in a binary folder `out` of its own.

    Raises Fail, with the compiler's words above it, if it does not build.
    """
    tree = patch.prepare(flavour)
    chosen = compiler.choose(flavour)
    folder = flavour_dir(flavour) / out
    with lock(flavour):
        if flavour not in ui.WITHOUT:
            ui.put(tree)
        configure(flavour, folder, tree, chosen, extra)
        compile_all(folder, flavour)
    return folder / "bin" / program(flavour).name


def lock(flavour: str) -> AbstractContextManager[None]:
    """Held while something is made in the flavour's binary folder."""
    return locked(flavour_dir(flavour) / ".build.lock", lambda: say(f"waiting for another run that builds {flavour}"))


def options(flavour: str, tree: Path, chosen: compiler.Compiler) -> list[str]:
    """What CMake is told about a flavour; the same options belong to its folder whoever calls CMake."""
    return [
        f"-DCMAKE_MAKE_PROGRAM={ninja().as_posix()}",
        f"-DLLAMAFILE_NUMA_TREE={tree.as_posix()}",
        *FLAVOURS[flavour][0],
        *chosen.options,
    ]


def program(flavour: str) -> Path:
    """Where the program of a flavour is, built or not."""
    suffix = ".exe" if sys.platform == "win32" or compiler.for_windows(flavour) else ""
    return flavour_dir(flavour) / "out" / "bin" / (FLAVOURS[flavour][1] + suffix)


def configure(flavour: str, folder: Path, tree: Path, chosen: compiler.Compiler, extra: Sequence[str] = ()) -> None:
    """Run CMake, unless the folder was configured in this very way. What another compiler or CPU built is removed."""
    cmake = installed("cmake", "CMAKE_BIN_DIR")
    command = [str(cmake), "-S", str(ROOT), "-B", str(folder), "-G", "Ninja", *options(flavour, tree, chosen), *extra]
    wanted = digest([*command, chosen.identity, cpu_features() if flavour in FOR_THIS_CPU else ""])
    stamp = folder / STAMP
    if stamp.is_file() and stamp.read_text(encoding="ascii") == wanted:
        # pip may have configured the folder since, with a CMake of its own that is gone by now.
        if cached(folder, "CMAKE_COMMAND") == cmake and (folder / "build.ninja").exists():
            return
    else:
        shutil.rmtree(folder, ignore_errors=True)
    say(f"configuring {flavour}: {chosen.identity}")
    folder.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        err.print(done.stdout)
        raise Fail(f"CMake cannot configure {flavour}; its words are above")
    stamp.write_text(wanted, encoding="ascii")


def compile_all(folder: Path, flavour: str) -> None:
    """Run ninja with as many jobs as there are cores, showing how far it is, and all of what fails."""
    command = [str(ninja()), "-C", str(folder), "-j", str(os.cpu_count() or 1)]
    environment = {**os.environ, "NINJA_STATUS": "[%f/%t] "}
    said: list[str] = []
    total = done = 0
    with (
        ExitStack() as shown,
        subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
        ) as process,
    ):
        assert process.stdout
        advance = None
        for line in process.stdout:
            if not (status := STATUS.match(line)):
                said.append(line)
                continue
            now, of = int(status[1]), int(status[2])
            if now <= 1:
                continue  # upstream looks at its web UI each time; with nothing else to do that is no progress to show
            if advance is None or of != total or now < done:
                shown.close()
                advance = shown.enter_context(progress(f"building {flavour}", of, done=now, unit="steps"))
            else:
                advance(now - done)
            total, done = of, now
    if process.returncode:
        first = next((i for i, line in enumerate(said) if line.startswith(("FAILED:", "ninja: error"))), 0)
        err.print("".join(said[first:]).rstrip())
        raise Fail(f"{flavour} does not build; the compiler's words are above")


def ninja() -> Path:
    return installed("ninja", "BIN_DIR")


def installed(package: str, variable: str) -> Path:
    """The program that a package of this Python brings; `variable` of the package names its folder."""
    name = f"{package}.exe" if sys.platform == "win32" else package
    return Path(getattr(import_module(package), variable)) / name


def cached(folder: Path, variable: str) -> Path | None:
    """The path in a variable of a folder's CMakeCache.txt."""
    try:
        text = (folder / "CMakeCache.txt").read_text(encoding="utf-8")
    except OSError:
        return None
    found = re.search(rf"^{variable}:\w+=(.*)$", text, re.MULTILINE)
    return Path(found[1]) if found else None


def cpu_features() -> str:
    """What `-march=native` depends on: a build folder may outlive its machine (containers, CI caches)."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.startswith(("flags", "Features"))), "")


def digest(content: list[str]) -> str:
    return hashlib.sha256("\0".join(content).encode()).hexdigest()
