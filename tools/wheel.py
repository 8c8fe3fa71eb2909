"""Pack the program into a wheel and audit it."""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tools import audit, build, compiler, patch, pe, zig
from tools.bootstrap import NO_BOOTSTRAP
from tools.console import err, out, say
from tools.fail import Fail
from tools.paths import DIST, ROOT

# Calls the build backend as pip does, in a process of its own: it changes its folder and environment.
BACKEND = "import json, sys; from scikit_build_core.build import build_wheel; build_wheel(*json.loads(sys.argv[1]))"

# One program for Windows instead of one with a library for each kind of CPU. pip would prefer it where both lie in one
# folder, because of the build tag in its name, so it lies in another.
ONE_VARIANT = "win_amd64"
ONE_VARIANT_NEEDS = "AVX2, BMI2, FMA and F16C"
ONE_VARIANT_DIST = DIST / "one-variant"


def register(subparsers: Any) -> None:
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "wheel",
        help="pack and audit a wheel",
        description="Build the portable flavour and pack it into dist/: one wheel for every CPU of this architecture"
        f" and every Linux with glibc {zig.GLIBC_FLOOR} or newer, or for every x86-64 CPU and {pe.FLOOR} or newer. The"
        " wheel is audited before it gets there.",
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--native", action="store_true", help="pack what was built for this machine only")
    which.add_argument("--target", choices=("win_amd64",), help="pack for another system")
    parser.add_argument(
        "--one-variant",
        action="store_true",
        help=f"for Windows: only a program for CPUs with {ONE_VARIANT_NEEDS}, built in less than half the time; the"
        f" wheel is named after them and goes to {ONE_VARIANT_DIST.relative_to(ROOT).as_posix()}/",
    )


def run(args: argparse.Namespace) -> int:
    out.print(str(wheel(flavour(args.target, native=args.native, one_variant=args.one_variant))))
    return 0


def flavour(target: str | None, *, native: bool, one_variant: bool) -> str:
    """Which flavour the verb's arguments ask for. Raises Fail if there is none."""
    windows = target == "win_amd64" or (sys.platform == "win32" and not native)
    if one_variant and not windows:
        raise Fail("--one-variant needs --target win_amd64; for this machine's CPU only there is --native", 2)
    if windows:
        return ONE_VARIANT if one_variant else "win_amd64_portable"
    return "native" if native else "portable"


def wheel(flavour: str = "portable") -> Path:
    """The audited wheel of a flavour in dist/. Raises Fail if it cannot be packed or the audit finds faults."""
    build.build(flavour)
    say(f"packing {flavour}")
    with tempfile.TemporaryDirectory(prefix="llamafile-numa-") as folder:
        pack(flavour, Path(folder))
        (packed,) = Path(folder).glob("*.whl")
        if faults := audit.audit(packed):
            for fault in faults:
                err.print(f"  {fault}")
            raise Fail(f"{packed.name} has {len(faults)} faults, listed above; it was not kept")
        folder_of = ONE_VARIANT_DIST if flavour == ONE_VARIANT else DIST
        folder_of.mkdir(parents=True, exist_ok=True)
        target = folder_of / packed.name
        shutil.copyfile(packed, fresh := target.with_suffix(".fresh"))
        fresh.replace(target)
    if flavour == ONE_VARIANT:
        say(f"this wheel is for CPUs with {ONE_VARIANT_NEEDS} only; on others its program does not start")
    return target


def pack(flavour: str, folder: Path) -> None:
    """Have scikit-build-core pack what lies in the flavour's build folder; folder, options and tag go together."""
    settings = {"build-dir": f"build/{flavour}/out", "wheel.tags": tag(flavour)}
    if flavour == ONE_VARIANT:
        settings["wheel.build-tag"] = audit.ONE_VARIANT_TAG
    if compiler.for_windows(flavour):
        settings["install.strip"] = "false"  # the linker has done it, and this machine's strip knows its own programs
    options = build.options(flavour, patch.prepare(flavour), compiler.choose(flavour))
    environment = {**os.environ, NO_BOOTSTRAP: "1", "CMAKE_ARGS": shlex.join(options)}
    command = [sys.executable, "-c", BACKEND, json.dumps([str(folder), settings])]
    with build.lock(flavour):
        done = subprocess.run(
            command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
    if done.returncode:
        err.print(done.stdout)
        raise Fail(f"{flavour} cannot be packed; the build backend's words are above")


def tag(flavour: str) -> str:
    """What the wheel runs on: the glibc floor it is built for, Windows, or the system as it is on this machine."""
    if compiler.for_windows(flavour):
        return "py3-none-win_amd64"
    if sys.platform == "win32":
        return f"py3-none-win_{platform.machine().lower()}"
    glibc = f"many{sys.platform}_{zig.GLIBC_FLOOR.replace('.', '_')}" if flavour == "portable" else sys.platform
    return f"py3-none-{glibc}_{platform.machine()}"
