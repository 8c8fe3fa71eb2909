"""Compile C tests of the core with whatever C compiler there is, or for Windows."""

import functools
import importlib.util
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from tools import zig
from tools.fail import Fail

ROOT = Path(__file__).resolve().parents[2]
CORE = ROOT / "src" / "numa_node"
LLAMAFILE = ROOT / "src" / "llamafile"
HERE = Path(__file__).resolve().parent

WARNINGS = ("-Wall", "-Wextra", "-Werror")
WINDOWS = "x86_64-windows-gnu"
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover", "-fno-omit-frame-pointer")


@functools.cache
def compiler() -> tuple[str, ...] | None:
    """The command of a C compiler: the system's, else that of the package ziglang; None where there is neither."""
    for name in ("cc", "gcc", "clang"):
        if path := shutil.which(name):
            return (path,)
    if importlib.util.find_spec("ziglang"):
        return (sys.executable, "-m", "ziglang", "cc")
    return None


def compile(sources: Sequence[Path], *, into: Path, sanitize: bool = True, flags: Sequence[str] = ()) -> Path:
    """Compile the sources to a program in the folder `into`, named like the first; they may include the core's headers.

    With `sanitize` what AddressSanitizer or UBSan finds ends the program with a message and a code that is not 0. (zig
    has UBSan only.) Skips the calling test where there is no compiler; fails it, with the compiler's words, where the
    sources do not compile.
    """
    command = compiler()
    if command is None:
        pytest.skip("no C compiler: install gcc or clang, or the package ziglang")
    return _compile(command, sources, into, (*(SANITIZERS if sanitize else ()), *flags))


def compile_fuzzer(sources: Sequence[Path], *, into: Path) -> Path:
    """As compile(), with libFuzzer's main; skips where clang or its fuzzer runtime is missing."""
    clang = _fuzzing_clang()
    if clang is None:
        pytest.skip("no clang with libFuzzer: install clang and its runtime (Debian 12: clang libclang-rt-14-dev)")
    return _compile((clang,), sources, into, (*SANITIZERS, "-fsanitize=fuzzer", "-O2"))


def compile_for_windows(sources: Sequence[Path], *, into: Path) -> Path:
    """As compile(), to a Windows program that undefined behaviour ends; skips where ziglang cannot be had."""
    try:
        compiler = zig.toolchain(WINDOWS).cc
    except Fail as error:
        pytest.skip(f"no compiler for Windows: {error}")
    program = into / f"{sources[0].stem}.exe"
    flags = ["-fsanitize=undefined", "-fsanitize-trap=undefined"]
    return _run([str(compiler)], [*flags, f"-I{CORE}", f"-I{LLAMAFILE}", *map(str, sources), "-ladvapi32"], program)


def core(*names: str) -> list[Path]:
    """Source files of the core by name."""
    return [CORE / name for name in names]


def llamafile(*names: str) -> list[Path]:
    """Source files of the reader of archives by name."""
    return [LLAMAFILE / name for name in names]


def _compile(command: Sequence[str], sources: Sequence[Path], into: Path, flags: Sequence[str]) -> Path:
    arguments = [*flags, f"-I{CORE}", f"-I{LLAMAFILE}", *map(str, sources), "-pthread"]
    return _run(command, arguments, into / sources[0].stem)


def _run(compiler: Sequence[str], arguments: Sequence[str], program: Path) -> Path:
    full = [*compiler, "-std=c11", "-g", "-O1", *WARNINGS, *arguments, "-o", str(program)]
    done = subprocess.run(full, capture_output=True, text=True)
    if done.returncode != 0:
        pytest.fail(f"{' '.join(full)}\n{done.stdout}{done.stderr}", pytrace=False)
    return program


@functools.cache
def _fuzzing_clang() -> str | None:
    clang = shutil.which("clang")
    if clang is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "probe.c")
        source.write_text(
            "#include <stddef.h>\nint LLVMFuzzerTestOneInput(const char * d, size_t n) { return !d && n; }\n"
        )
        probe = [clang, "-fsanitize=fuzzer,address,undefined", str(source), "-o", str(Path(folder, "probe"))]
        return clang if subprocess.run(probe, capture_output=True).returncode == 0 else None
