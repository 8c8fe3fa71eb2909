"""What the lab takes from the system, and what of it is missing."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Collection

from tools import wine
from tools.fail import Fail

# Program and the Debian package that has it. busybox has to be the static one: it is all there is in the guest.
PROGRAMS = {
    "qemu-system-x86_64": "qemu-system-x86",
    "busybox": "busybox-static",
    "numactl": "numactl",
    "setpriv": "util-linux",
    "mke2fs": "e2fsprogs",
    "ldd": "libc-bin",
    "apt-get": "apt",
    "apt-cache": "apt",
    "dpkg": "dpkg",
}

# Debian keeps some of them where only root's PATH looks.
SEARCH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])


def missing(programs: Collection[str] = ()) -> str | None:
    """Why the lab cannot run here (with these programs in its guest), in one line; None if it can."""
    if sys.platform != "linux" or os.uname().machine != "x86_64":
        return "the lab runs on Linux on x86-64 only"
    lacking = [program for program in PROGRAMS if not find(program)]
    if lacking:
        packages = " ".join(sorted({PROGRAMS[program] for program in lacking}))
        return f"the lab needs {', '.join(lacking)}; on Debian: apt-get install {packages}"
    if any(name.endswith(".exe") for name in programs) and not wine.installed():
        return "the lab needs wine64 for Windows programs; on Debian: apt-get install wine64"
    return None


def find(program: str) -> str | None:
    return shutil.which(program, path=SEARCH)


def path(program: str) -> str:
    """Where a program is. Raises Fail if it is missing."""
    found = find(program)
    if not found:
        raise Fail(f"{program} is missing; on Debian: apt-get install {PROGRAMS.get(program, program)}")
    return found
