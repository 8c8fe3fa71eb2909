"""Compile C tests for Windows."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.core import cc
from tools import zig
from tools.fail import Fail

TARGET = "x86_64-windows-gnu"


def compile(sources: Sequence[Path], *, into: Path) -> Path:
    """Compile C sources to a Windows program in the folder `into`, named like the first.

    Undefined behaviour ends it. Skips the calling test where ziglang cannot be had; fails it, with the compiler's
    words, where the sources do not compile.
    """
    try:
        compiler = zig.toolchain(TARGET).cc
    except Fail as error:
        pytest.skip(f"no compiler for Windows: {error}")
    program = into / f"{sources[0].stem}.exe"
    command = [str(compiler), "-std=c11", "-g", "-O1", *cc.WARNINGS]
    command += ["-fsanitize=undefined", "-fsanitize-trap=undefined", f"-I{cc.CORE}"]
    command += [*map(str, sources), "-ladvapi32", "-o", str(program)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        pytest.fail(f"{' '.join(command)}\n{done.stdout}{done.stderr}", pytrace=False)
    return program
