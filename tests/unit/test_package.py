"""The package that ships, with a script in the place of the program."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tools.paths import ROOT

SCRIPT = """\
#!/bin/sh
echo "$$ $# $1 $2"
exit 42
"""

posix = pytest.mark.skipif(sys.platform == "win32", reason="only POSIX replaces a process")


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """An installation without the program."""
    return Path(shutil.copytree(ROOT / "src" / "llamafile_numa", tmp_path / "site" / "llamafile_numa"))


@pytest.fixture
def program(package: Path) -> Path:
    file = package / "bin" / "llamafile-numa"
    file.parent.mkdir(exist_ok=True)
    file.write_text(SCRIPT, encoding="ascii")
    file.chmod(0o755)
    return file


def python(package: Path, *arguments: str) -> tuple[int, subprocess.CompletedProcess[str]]:
    """Run this Python with the package; the process's number, and how it ended."""
    command = [sys.executable, *arguments]
    with subprocess.Popen(
        command, cwd=package.parent, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        out, err = process.communicate()
        return process.pid, subprocess.CompletedProcess(command, process.returncode, out, err)


@posix
def test_process_becomes_the_program(package: Path, program: Path) -> None:
    pid, done = python(package, "-m", "llamafile_numa", "--numa-node", "two words")
    assert done.stdout == f"{pid} 2 --numa-node two words\n"
    assert done.returncode == 42


def test_program_is_found(package: Path, program: Path) -> None:
    _, done = python(package, "-c", "import llamafile_numa; print(llamafile_numa.find_bin())")
    assert Path(done.stdout.strip()) == program


@posix
@pytest.mark.parametrize("there", ["nothing", "a folder", "a file that cannot be run"])
def test_without_the_program_it_says_where_it_looked(package: Path, there: str) -> None:
    expected = package / "bin" / "llamafile-numa"
    if there == "a folder":
        expected.mkdir(parents=True)
    elif there != "nothing":
        expected.parent.mkdir()
        expected.touch(0o644)
    _, done = python(package, "-m", "llamafile_numa")
    assert done.returncode == 1
    assert done.stderr == f"error: the program llamafile-numa is not in this installation; looked at: {expected}\n"


def test_package_is_typed(package: Path) -> None:
    assert (package / "py.typed").is_file()
