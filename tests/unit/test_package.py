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


# --- Windows, which has no exec: its way, taken here with a script for the program ------------------------------------

AS_WINDOWS = """\
import subprocess, sys
sys.platform = "win32"
from llamafile_numa.__main__ import main
main()
"""


def as_windows(package: Path, script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    file = package / "bin" / "llamafile-numa.exe"
    file.parent.mkdir(exist_ok=True)
    file.write_text(f"#!/bin/sh\n{script}\n", encoding="ascii")
    file.chmod(0o755)
    _, done = python(package, "-c", AS_WINDOWS, *arguments)
    return done


@posix
def test_on_windows_the_program_is_run(package: Path) -> None:
    done = as_windows(package, 'echo "$# $1 $2"; exit 42', "--numa-node", "two words")
    assert (done.stdout, done.returncode) == ("2 --numa-node two words\n", 42)


@posix
def test_on_windows_interrupts_are_the_program_s(package: Path) -> None:
    """Both get a Ctrl-C; the program takes its time, and its exit code is what counts."""
    done = as_windows(package, "kill -INT $PPID; sleep 0.2; exit 7")
    assert (done.returncode, done.stderr) == (7, "")


@posix
def test_on_windows_the_program_ends_with_its_starter(package: Path) -> None:
    """As on Linux, where the one becomes the other."""
    done = as_windows(package, 'test "$LLAMAFILE_NUMA_EXIT_WITH_PARENT" = $PPID')
    assert done.returncode == 0


@posix
def test_on_windows_a_missing_program_is_told(package: Path) -> None:
    _, done = python(package, "-c", AS_WINDOWS)
    assert done.returncode == 1
    assert done.stderr.startswith("error: the program llamafile-numa.exe is not in this installation; looked at: ")


@pytest.mark.parametrize(("code", "passed"), [(3, 3), (0xC0000005, -0x3FFFFFFB)])
def test_on_windows_exit_codes_keep_their_bits(package: Path, program: Path, code: int, passed: int) -> None:
    program.rename(program.with_suffix(".exe"))
    run = f"subprocess.run = lambda command, **_: subprocess.CompletedProcess(command, {code})\n"
    script = AS_WINDOWS.replace("main()\n", f"{run}try: main()\nexcept SystemExit as ended: print(ended.code)\n")
    _, done = python(package, "-c", script)
    assert done.stdout == f"{passed}\n"
    assert passed & 0xFFFFFFFF == code


def test_package_is_typed(package: Path) -> None:
    assert (package / "py.typed").is_file()
