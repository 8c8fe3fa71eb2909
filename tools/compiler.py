"""Which C and C++ compiler builds a flavour: the user's, the system's, or the one from the package index."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tools import zig
from tools.fail import Fail

PROBE = """\
#include <string_view>
static_assert(__cplusplus >= 201703L);
int main(int argc, char **) { return std::string_view("probe").size() == static_cast<unsigned>(argc); }
"""

# What a toolchain file would say on another system.
WINDOWS = ("-DCMAKE_SYSTEM_NAME=Windows", "-DCMAKE_SYSTEM_PROCESSOR=AMD64")


@dataclass(frozen=True)
class Compiler:
    """What CMake is told (`options`), and `identity`: when that changes, nothing built before may be kept."""

    options: tuple[str, ...]
    identity: str


def choose(flavour: str) -> Compiler:
    """The compiler of a flavour. Raises Fail if CC/CXX name one that does not work."""
    if flavour == "portable":
        return from_index(f"{platform.machine()}-linux-gnu.{zig.GLIBC_FLOOR}")
    if for_windows(flavour):
        return from_index("x86_64-windows-gnu")
    if "CC" in os.environ or "CXX" in os.environ:
        cc, cxx = os.environ.get("CC", "cc"), os.environ.get("CXX", "c++")
        if fault := probe(cxx):
            raise Fail(f"CXX={cxx} cannot compile a C++17 program: {fault}; unset it to use another compiler")
        return installed(cc, cxx)
    if shutil.which("cc") and shutil.which("c++") and not probe("c++"):
        return installed("cc", "c++")
    return from_index(None)


def for_windows(flavour: str) -> bool:
    return flavour.startswith("win_")


def installed(cc: str, cxx: str) -> Compiler:
    options = (f"-DCMAKE_C_COMPILER={shutil.which(cc) or cc}", f"-DCMAKE_CXX_COMPILER={shutil.which(cxx) or cxx}")
    return Compiler(options, f"{version(cc)}, {version(cxx)}")


def from_index(target: str | None) -> Compiler:
    tools = zig.toolchain(target)
    options = [
        f"-DCMAKE_C_COMPILER={tools.cc.as_posix()}",
        f"-DCMAKE_CXX_COMPILER={tools.cxx.as_posix()}",
        f"-DCMAKE_AR={tools.ar.as_posix()}",
        f"-DCMAKE_RANLIB={tools.ranlib.as_posix()}",
    ]
    windows = "windows" in target if target else sys.platform == "win32"
    if windows:
        options += [
            f"-DCMAKE_RC_COMPILER={tools.rc.as_posix()}",
            f"-DLLAMAFILE_NUMA_RUNTIME_LICENCE={zig.mingw_licence().as_posix()}",
        ]
    if windows and sys.platform != "win32":
        options += WINDOWS
    return Compiler(tuple(options), f"ziglang {tools.version}, {target or 'this machine'}")


def probe(cxx: str) -> str | None:
    """Compile and link a C++17 program; None if that works, else the first line of what went wrong."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "probe.cpp")
        source.write_text(PROBE, encoding="utf-8")
        command = [cxx, "-std=c++17", str(source), "-o", str(source.with_suffix(""))]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except OSError as error:
            return error.strerror or str(error)
    return None if done.returncode == 0 else (done.stderr.strip() or f"exit {done.returncode}").splitlines()[0]


def version(program: str) -> str:
    """First line of `program --version`, which names the compiler, its version and who packed it."""
    try:
        done = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise Fail(f"{program} --version does not work: {error}") from None
    return done.stdout.partition("\n")[0]
