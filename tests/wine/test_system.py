"""What the program asks of Windows, as Wine has it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.core.cc import WARNINGS
from tests.wine import host
from tools import zig
from tools.fail import Fail
from tools.paths import ROOT

pytestmark = pytest.mark.wine


@pytest.fixture(scope="module")
def check(tmp_path_factory: pytest.TempPathFactory) -> Path:
    host.prefix()  # first, as it may skip
    try:
        compiler = zig.toolchain("x86_64-windows-gnu").cxx
    except Fail as error:
        pytest.skip(f"no compiler for Windows: {error}")
    sources = [Path(__file__).with_name("system_check.cpp"), ROOT / "src" / "program" / "system_windows.cpp"]
    target = tmp_path_factory.mktemp("system") / "system_check.exe"
    command: list[str | Path] = [
        compiler,
        "-std=c++17",
        *WARNINGS,
        "-static",
        f"-I{ROOT / 'src' / 'program'}",
        *sources,
        "-lws2_32",
    ]
    done = subprocess.run([*command, "-o", target], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return target


def said(check: Path, *arguments: str, code: int = 0) -> str:
    done = host.run([check, *arguments])
    assert done.returncode == code, done.stderr
    return done.stdout.strip()


def test_pipes_and_nul_are_no_terminals(check: Path) -> None:
    assert said(check, "terminal") == "000"


def test_a_name_is_had_once(check: Path) -> None:
    assert said(check, "claim") == "101"


def test_environment_is_seen_by_both(check: Path) -> None:
    """The C library, and programs that are started."""
    assert said(check, "environment") == "server server"


@pytest.mark.parametrize("named", [(), ("named",)], ids=["whoever it is", "by number"])
def test_end_of_the_parent(check: Path, named: tuple[str, ...]) -> None:
    assert said(check, "parent", "500", *named) == "terminate"


def test_parent_that_has_ended_already(check: Path) -> None:
    assert said(check, "child", "99996", code=143) == "terminate"
