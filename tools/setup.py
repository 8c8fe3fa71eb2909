"""Set up .venv; with --system also Debian packages that the tests need."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from typing import Any

from tools.console import out, say
from tools.fail import Fail
from tools.paths import VENV

# What the tests run that no Python package holds: Debian's packages, and what each is for.
SYSTEM_PACKAGES = {
    "busybox-static": "user land of the machines in the lab",
    "ccache": "objects shared between flavours",
    "chromium": "opens the server's web page",
    "clang": "fuzzing and the sanitizers",
    "curl": "asks an instance whether it answers, in the unit of deploy/",
    "e2fsprogs": "mke2fs fills the disks of the lab",
    "g++": "builds the native flavour",
    "libclang-rt-14-dev": "libFuzzer and the sanitizers' run time for clang",
    "nginx-light": "in front of the instances of deploy/",
    "numactl": "the usual way to bind, to compare with",
    "qemu-system-x86": "machines with several NUMA nodes",
    "systemd": "systemd-analyze checks the unit of deploy/",
    "util-linux": "unshare and taskset",
    "wine64": "runs what is built for Windows",
}


def register(subparsers: Any) -> None:
    listed = "\n".join(f"  {name:20} {purpose}" for name, purpose in SYSTEM_PACKAGES.items())
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "setup",
        description=f"Make .venv with all that the tools and the tests need.\n\nThe packages of --system:\n{listed}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--system", action="store_true", help="install Debian's packages for the tests, as root")


def run(args: argparse.Namespace) -> int:
    # .venv is there: this runs in it.
    out.print(f"ready: {VENV}")
    if args.system:
        install_system_packages()
    return 0


def install_system_packages() -> None:
    """apt-get install what is missing; Fail if this is no Debian, or not root and something is missing."""
    if shutil.which("apt-get") is None or shutil.which("dpkg-query") is None:
        raise Fail(f"--system needs Debian's apt-get; elsewhere install by hand: {', '.join(SYSTEM_PACKAGES)}")
    missing = [name for name in SYSTEM_PACKAGES if not is_installed(name)]
    if not missing:
        out.print("ready: all system packages are installed")
        return
    command = ["apt-get", "install", "--yes", "--no-install-recommends", *missing]
    if sys.platform != "win32" and os.geteuid() != 0:
        raise Fail(f"--system installs packages and needs root: sudo {' '.join(command)}")
    say(f"installing {', '.join(missing)}")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for step in (["apt-get", "update", "--quiet"], command):
        if code := subprocess.run(step, env=environment, check=False).returncode:
            raise Fail(f"{' '.join(step[:2])} failed (exit {code}); the lines above tell why")
    out.print(f"ready: installed {', '.join(missing)}")


def is_installed(package: str) -> bool:
    query = ["dpkg-query", "--show", "--showformat=${db:Status-Status}", package]
    result = subprocess.run(query, capture_output=True, text=True, check=False)
    return result.stdout == "installed"
