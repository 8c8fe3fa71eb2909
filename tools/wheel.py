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

from tools import audit, build, compiler, patch, zig
from tools.bootstrap import NO_BOOTSTRAP
from tools.console import err, out, say
from tools.fail import Fail
from tools.paths import DIST, ROOT

# Calls the build backend as pip does, in a process of its own: it changes its folder and environment.
BACKEND = "import json, sys; from scikit_build_core.build import build_wheel; build_wheel(*json.loads(sys.argv[1]))"


def register(subparsers: Any) -> None:
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "wheel",
        help="pack and audit a wheel",
        description="Build the portable flavour and pack it into dist/: one wheel for every CPU of this architecture"
        f" and every Linux with glibc {zig.GLIBC_FLOOR} or newer. The wheel is audited before it gets there.",
    )
    parser.add_argument("--native", action="store_true", help="pack what was built for this machine only")


def run(args: argparse.Namespace) -> int:
    out.print(str(wheel("native" if args.native else "portable")))
    return 0


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
        DIST.mkdir(exist_ok=True)
        target = DIST / packed.name
        shutil.copyfile(packed, fresh := target.with_suffix(".fresh"))
        fresh.replace(target)
    return target


def pack(flavour: str, folder: Path) -> None:
    """Have scikit-build-core pack what lies in the flavour's build folder; folder, options and tag go together."""
    settings = {"build-dir": f"build/{flavour}/out", "wheel.tags": tag(flavour)}
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
    """What the wheel runs on: the glibc floor it is built for, or Linux as it is on this machine."""
    glibc = f"many{sys.platform}_{zig.GLIBC_FLOOR.replace('.', '_')}" if flavour == "portable" else sys.platform
    return f"py3-none-{glibc}_{platform.machine()}"
