"""A C and C++ compiler from the package index: `ziglang`, wrapped so that CMake can call it."""

from __future__ import annotations

import shlex
import stat
import sys
from dataclasses import dataclass
from importlib import invalidate_caches, metadata
from importlib.util import find_spec
from pathlib import Path

from tools import bootstrap
from tools.fail import Fail
from tools.paths import BUILD, cache_dir

# Portable programs start on every Linux with this glibc or a newer one: the floor of manylinux_2_28.
GLIBC_FLOOR = "2.28"

# Wrapper and zig subcommand. The compilers are called after clang, which they are: ccache and others go by the name.
WRAPPERS = {"clang": "cc", "clang++": "c++", "ar": "ar", "ranlib": "ranlib", "rc": "rc"}


@dataclass(frozen=True)
class Toolchain:
    """One program each, as CMake wants them, for one target."""

    folder: Path
    version: str

    @property
    def cc(self) -> Path:
        return self.folder / script_name("clang")

    @property
    def cxx(self) -> Path:
        return self.folder / script_name("clang++")

    @property
    def ar(self) -> Path:
        return self.folder / script_name("ar")

    @property
    def ranlib(self) -> Path:
        return self.folder / script_name("ranlib")

    @property
    def rc(self) -> Path:
        return self.folder / script_name("rc")


def toolchain(target: str | None = None) -> Toolchain:
    """The toolchain for a zig target such as `x86_64-linux-gnu.2.28`, or for this very machine (None).

    Installs ziglang when it is missing; raises Fail if the index does not have it.
    """
    bootstrap.ensure(["zig"])
    invalidate_caches()
    folder = BUILD / "zig" / (target or "native")
    version = metadata.version("ziglang")
    folder.mkdir(parents=True, exist_ok=True)
    for name, subcommand in WRAPPERS.items():
        arguments = [str(program()), subcommand]
        if subcommand in ("cc", "c++"):
            # Of itself zig adds debug information, which doubles the time it takes and goes into no wheel.
            arguments += [*(["-target", target] if target else []), "-g0"]
        write_wrapper(folder / script_name(name), arguments, version)
    return Toolchain(folder, version)


def program() -> Path:
    """The zig program itself: `python -m ziglang` would start Python for each source file."""
    spec = find_spec("ziglang")
    if spec is None or spec.origin is None:
        raise Fail("ziglang is not installed in this Python; run it through `python3 -m tools`")
    return Path(spec.origin).parent / ("zig.exe" if sys.platform == "win32" else "zig")


def mingw_licence() -> Path:
    """The licence of the C runtime that each program for Windows holds; it asks to be passed on with them."""
    return program().parent / "lib" / "libc" / "mingw" / "COPYING"


def script_name(name: str) -> str:
    return f"{name}.cmd" if sys.platform == "win32" else name


def write_wrapper(file: Path, arguments: list[str], version: str) -> None:
    """One word that stands for `arguments`. Left alone if it is right already: its time is what ccache looks at."""
    text = windows_script(arguments, version) if sys.platform == "win32" else posix_script(arguments, version)
    if file.exists() and file.read_text(encoding="utf-8") == text:
        return
    file.write_text(text, encoding="utf-8")
    file.chmod(file.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)


def posix_script(arguments: list[str], version: str) -> str:
    cache = shlex.quote(str(cache_dir() / "zig"))
    # zig keeps what it compiles, its C library among it, in a folder of its own; without HOME it would have none.
    return f'#!/bin/sh\n# ziglang {version}\nZIG_GLOBAL_CACHE_DIR={cache} exec {shlex.join(arguments)} "$@"\n'


def windows_script(arguments: list[str], version: str) -> str:
    def literal(text: str) -> str:
        return text.replace("%", "%%")  # else what stands between two of them is taken for a variable

    command = " ".join(f'"{literal(argument)}"' for argument in arguments)
    cache = literal(str(cache_dir() / "zig"))
    return f'@rem ziglang {version}\n@set "ZIG_GLOBAL_CACHE_DIR={cache}"\n@{command} %*\n'
