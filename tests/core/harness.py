"""Build the upper half of the core against a made-up or the real operating system, and run what tests it."""

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.core import cc

UPPER = (
    "options.c",
    "choose.c",
    "claim.c",
    "region.c",
    "weights.c",
    "progress.c",
    "worker.c",
    "verdict.c",
    "listing.c",
    "json.c",
)
TOPOLOGY = ("topology.c", "node_set.c")
CANNOT = 77  # exit code of check.h


def build_fake(source: str, into: Path) -> Path:
    """The C test with the whole core above prim_fake.c."""
    core = cc.core(*UPPER, "start.c", *TOPOLOGY)
    return cc.compile([cc.HERE / source, cc.HERE / "prim_fake.c", *core], into=into)


def build_linux(
    source: str, into: Path, *, upper: bool = False, sanitize: bool = True, flags: Sequence[str] = ()
) -> Path:
    """The C test with prim_linux.c, and with `upper` the core above it."""
    core = cc.core("prim_linux.c", "topology_linux.c", *TOPOLOGY, *((*UPPER, "start.c") if upper else ()))
    return cc.compile([cc.HERE / source, *core], into=into, sanitize=sanitize, flags=flags)


def cases(source: str) -> list[str]:
    """The names of the cases in a C test that includes check.h."""
    return re.findall(r"^CASE\((\w+)\)", (cc.HERE / source).read_text(), re.MULTILINE)


def run_case(program: Path, name: str, folder: Path) -> None:
    """Run one case of a program made with check.h; fail or skip as it says."""
    done = subprocess.run([program, name, folder], capture_output=True, text=True, errors="replace")
    if done.returncode == CANNOT:
        pytest.skip(done.stdout.strip())
    if done.returncode != 0 or done.stdout or done.stderr:
        pytest.fail(f"{name}: exit code {done.returncode}\n{done.stdout}{done.stderr}", pytrace=False)
