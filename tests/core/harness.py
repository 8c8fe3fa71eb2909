"""Build the upper half of the core against a made-up or the real operating system, and run what tests it."""

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.core import cc

SELFTEST = tuple(f"selftest{name}.c" for name in ("", "_bandwidth", "_files", "_gain", "_json", "_text"))
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
MODEL = "selftest_model_fake.c"  # the real one needs ggml
CANNOT = 77  # exit code of check.h


def build_fake(source: str, into: Path) -> Path:
    """The C test with the whole core above prim_fake.c."""
    core = cc.core(*UPPER, "start.c", *SELFTEST, *TOPOLOGY)
    fakes = [cc.HERE / name for name in ("prim_fake.c", "selftest_fake.c", MODEL)]
    return cc.compile([cc.HERE / source, *fakes, *core], into=into)


def build_linux(
    source: str, into: Path, *, upper: bool = False, sanitize: bool = True, flags: Sequence[str] = ()
) -> Path:
    """The C test with the Linux half of the core, and with `upper` the core above it."""
    core = cc.core("prim_linux.c", "selftest_linux.c", "topology_linux.c", *TOPOLOGY)
    if upper:
        core += [*cc.core(*UPPER, "start.c", *SELFTEST), cc.HERE / MODEL]
    return cc.compile([cc.HERE / source, *core], into=into, sanitize=sanitize, flags=flags)


def cases(source: str) -> list[str]:
    """The names of the cases in a C test that includes check.h."""
    return re.findall(r"^CASE\((\w+)\)", (cc.HERE / source).read_text(), re.MULTILINE)


def run_case(program: Path, name: str, folder: Path, *, quiet: bool = True) -> None:
    """Run one case of a program made with check.h; fail or skip as it says. quiet: it may not write to stderr."""
    done = subprocess.run([program, name, folder], capture_output=True, text=True, errors="replace")
    if done.returncode == CANNOT:
        pytest.skip(done.stdout.strip())
    if done.returncode != 0 or done.stdout or (quiet and done.stderr):
        pytest.fail(f"{name}: exit code {done.returncode}\n{done.stdout}{done.stderr}", pytrace=False)
