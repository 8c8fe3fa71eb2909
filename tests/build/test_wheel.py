"""Wheels: audited, and in a fresh environment they do what they are for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.build.programs import GENERATE, Program, clean
from tests.build.wheels import BIN, Change, Members, added, changed, replaced, unchanged, without
from tools import audit
from tools.wheel import wheel


@pytest.fixture(scope="module")
def native() -> Path:
    return wheel("native")


def fresh_environment(folder: Path, packed: Path) -> Path:
    """The bin folder of a new virtual environment that has nothing but the wheel."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    install = [str(folder / "bin" / "pip"), "install", "--quiet", "--no-index", "--no-deps", str(packed)]
    subprocess.run(install, check=True)
    return folder / "bin"


@pytest.fixture(scope="module")
def installed(native: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fresh_environment(tmp_path_factory.mktemp("environment"), native)


# --- installed -------------------------------------------------------------------------------------------------------


def test_console_script_generates(installed: Path, ours: Program, node: str, model: Path) -> None:
    arguments = ("--numa-node", node, "-m", model, *GENERATE)
    done = Program(installed / "llamafile-numa").ok(*arguments)
    assert done.stdout == ours.ok(*arguments).stdout
    assert done.stderr.startswith(f"NUMA node {node}:")


def test_module_is_the_program(installed: Path, ours: Program) -> None:
    done = Program(installed / "python", ("-m", "llamafile_numa")).ok("--version")
    assert done.stdout == ours.ok("--version").stdout


def test_exit_code_is_the_program_s(installed: Path) -> None:
    assert Program(installed / "llamafile-numa")("--numa-node", "1x", "-m", "x").returncode == 2


def test_program_takes_the_place_of_python(installed: Path, model: Path) -> None:
    """Signals and exit codes need no passing on: the process is the same."""
    find_bin = "import llamafile_numa; print(llamafile_numa.find_bin())"
    program = subprocess.check_output([str(installed / "python"), "-c", find_bin], text=True).strip()
    command = [str(installed / "llamafile-numa"), "--server", "-m", str(model), "--port", "0"]
    with subprocess.Popen(
        command, env=clean({}), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            assert becomes(process.pid, program)
        finally:
            process.kill()


def becomes(pid: int, program: str) -> bool:
    """Whether the process `pid` is `program` before it ends."""
    executable = Path(f"/proc/{pid}/exe")
    while executable.exists():
        if str(executable.readlink()) == program:
            return True
    return False


# --- audited ---------------------------------------------------------------------------------------------------------


def test_native_wheel_has_no_faults(native: Path) -> None:
    assert native.name.startswith("llamafile_numa-")
    assert audit.audit(native) == []


def not_executable(members: Members) -> None:
    members[f"{BIN}llamafile-numa"][0].external_attr = 0o100644 << 16


OTHER_SCRIPT = b"[console_scripts]\nllama = llamafile_numa.__main__:main\n"


@pytest.mark.parametrize(
    ("change", "platform", "says"),
    [
        (without("licenses/llama.cpp/LICENSE"), "", "licence llama.cpp/LICENSE is missing"),
        (without("bin/llamafile-numa"), "", "0 programs named llamafile-numa"),
        (replaced("entry_points.txt", OTHER_SCRIPT), "", "console script llamafile-numa"),
        (not_executable, "", "is not executable"),
        (added("llama_cpp/lib/libllama.so", b"\x7fELF"), "", "llama_cpp/lib/libllama.so lies outside"),
        (replaced("bin/llamafile-numa", b"#!/bin/sh\n"), "", "is no Linux program"),
        (unchanged, "win_amd64", "is no Windows program"),
        (unchanged, "linux_riscv64", "but the tag is for linux_riscv64"),
        (unchanged, "manylinux_2_17_x86_64", "auditwheel allows"),
        (unchanged, "manylinux_2_28_x86_64", "needs libstdc++.so.6"),
        (unchanged, "manylinux_2_28_x86_64", "has libraries for 0 kinds"),
    ],
)
def test_fault_is_found(native: Path, tmp_path: Path, change: Change, platform: str, says: str) -> None:
    faults = audit.audit(changed(native, tmp_path, change, platform=platform))
    assert [fault for fault in faults if says in fault], faults


# --- portable --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_portable_wheel_generates(
    ours: Program, node: str, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = wheel("portable")
    assert "manylinux_2_28" in packed.name
    assert audit.audit(packed) == []
    program = Program(fresh_environment(tmp_path / "environment", packed) / "llamafile-numa")
    done = program.ok("--numa-node", node, "-m", model, *GENERATE)
    assert len(done.stdout.split()) == 12
    assert done.stderr.startswith(f"NUMA node {node}:")
    assert program.ok("licenses").stdout == ours.ok("licenses").stdout
    log = program.ok("completion", "--numa-node", node, "-m", model, *GENERATE, "-no-cnv").stderr
    assert "LLAMAFILE = 1" in log
    (tmp_path / "bait").mkdir()
    assert not planted_library_runs(program, tmp_path / "bait", monkeypatch)


PLANTED = """
#include <stdio.h>
__attribute__((constructor)) static void run(void) { fclose(fopen("marker", "w")); }
int ggml_backend_score(void) { return 1000000; }
"""


def planted_library_runs(program: Program, folder: Path, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether a library in the current folder that is called as the best CPU backend would be is loaded from there."""
    library = folder / "libggml-cpu-planted.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(library)], input=PLANTED, text=True, check=True)
    monkeypatch.chdir(folder)
    subprocess.run([sys.executable, "-c", f"import ctypes; ctypes.CDLL({str(library)!r})"], check=True)
    marker = folder / "marker"
    marker.unlink()  # so it is a bait that works
    program.ok("--version")
    return marker.exists()
