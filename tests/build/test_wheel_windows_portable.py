"""The wheel for every x86-64 CPU under Windows: each of its libraries that this machine can run is loaded and computes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.build.programs import GENERATE, Program
from tests.build.wheels import BIN, install_for_windows
from tests.wine import host
from tests.wine.program import WindowsProgram
from tools import audit
from tools.wheel import wheel

pytestmark = [pytest.mark.wine, pytest.mark.long]

# What is looked for in /proc/cpuinfo; the rest of the kinds need more than can be told from there, or no machine is all.
KINDS = {
    "x64": "lm",
    "sse42": "sse4_2",
    "sandybridge": "avx",
    "ivybridge": "f16c",
    "haswell": "avx2",
    "skylakex": "avx512bw",
    "icelake": "avx512_vnni",
    "zen4": "avx512_bf16",
}


@pytest.fixture(scope="module")
def packed() -> Path:
    return wheel("win_amd64_portable")


@pytest.fixture(scope="module")
def installed(packed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("installed")
    install_for_windows(packed, folder)
    return folder / BIN


def loaded(program: WindowsProgram) -> str:
    """The kind whose library a program takes, by what it says of it."""
    line = next(line for line in program.ok("--version").stderr.splitlines() if "loaded CPU backend" in line)
    return line.rpartition("ggml-cpu-")[2].removesuffix(".dll")


def test_wheel_has_no_faults(packed: Path) -> None:
    assert packed.name.endswith("-py3-none-win_amd64.whl")
    assert audit.audit(packed) == []


def test_best_of_them_is_taken_and_generates(installed: Path, ours: Program, model: Path) -> None:
    windows = WindowsProgram(installed / "llamafile-numa.exe", prefix=host.prefix())
    flags = Path("/proc/cpuinfo").read_text(encoding="utf-8").split()
    best = [kind for kind, flag in KINDS.items() if flag in flags][-1]
    assert loaded(windows) == best
    for node in (("--numa-node", "none"), ("--numa-node", "0", "--numa-weights", "copy")):
        assert windows.ok(*node, "-m", model, *GENERATE).stdout == ours.ok("-m", model, *GENERATE).stdout


@pytest.mark.parametrize("kind", KINDS)
def test_each_of_them_generates(installed: Path, ours: Program, model: Path, kind: str, tmp_path: Path) -> None:
    if KINDS[kind] not in Path("/proc/cpuinfo").read_text(encoding="utf-8").split():
        pytest.skip(f"this CPU has no {KINDS[kind]}")
    for file in ("llamafile-numa.exe", "ggml.dll", "ggml-base.dll", f"ggml-cpu-{kind}.dll"):
        shutil.copy(installed / file, tmp_path)
    windows = WindowsProgram(tmp_path / "llamafile-numa.exe", prefix=host.prefix())
    assert loaded(windows) == kind
    arguments = ("-p", GENERATE[1], "-n", "4", "-c", "256", "--temp", "0")
    assert windows.ok("-m", model, *arguments).stdout == ours.ok("-m", model, *arguments).stdout
