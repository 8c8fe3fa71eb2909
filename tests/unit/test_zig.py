"""The compiler: which one is chosen, and the one from the package index as CMake calls it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection

from tools import compiler, zig
from tools.fail import Fail

posix = pytest.mark.skipif(sys.platform == "win32", reason="the scripts here are POSIX shell")

FAKE = """\
#!/bin/sh
if [ "$1" = --version ]; then echo "fake 1.0"; exit 0; fi
echo "{says}" >&2
exit {code}
"""


def fake(folder: Path, name: str, *, says: str = "", code: int = 0) -> Path:
    folder.mkdir(exist_ok=True)
    file = folder / name
    file.write_text(FAKE.format(says=says, code=code), encoding="ascii")
    file.chmod(0o755)
    return file


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH with nothing in it, and no compiler named."""
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.delenv("CXX", raising=False)
    return tmp_path / "path"


# --- which one -------------------------------------------------------------------------------------------------------


@posix
def test_compiler_of_the_system_is_used(path: Path) -> None:
    cc, cxx = fake(path, "cc"), fake(path, "c++")
    chosen = compiler.choose("native")
    assert chosen.options == (f"-DCMAKE_C_COMPILER={cc}", f"-DCMAKE_CXX_COMPILER={cxx}")
    assert chosen.identity == "fake 1.0, fake 1.0"


@posix
def test_compiler_of_the_user_comes_first(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("cc", "c++", "mycc", "myc++"):
        fake(path, name)
    monkeypatch.setenv("CC", "mycc")
    monkeypatch.setenv("CXX", "myc++")
    assert compiler.choose("native").options[1] == f"-DCMAKE_CXX_COMPILER={path / 'myc++'}"


@posix
@pytest.mark.parametrize("name", ["broken", "absent"])
def test_compiler_of_the_user_that_does_not_work_is_an_error(
    path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    fake(path, "c++")
    fake(path, "broken", says="no such flag\nmore", code=1)
    monkeypatch.setenv("CXX", name)
    with pytest.raises(Fail, match=f"^CXX={name} cannot compile a C\\+\\+17 program: [^\n]*; unset it") as caught:
        compiler.choose("native")
    assert "more" not in str(caught.value)


@posix
@pytest.mark.parametrize("code", [None, 1])
def test_without_a_working_compiler_it_comes_from_the_index(path: Path, code: int | None) -> None:
    if code is not None:
        fake(path, "cc")
        fake(path, "c++", says="too old", code=code)
    chosen = compiler.choose("native")
    assert chosen.identity.startswith("ziglang ")
    wrapper = Path(chosen.options[1].removeprefix("-DCMAKE_CXX_COMPILER="))
    assert "-target" not in wrapper.read_text(encoding="utf-8")


def test_portable_is_always_built_with_the_index_s(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "/no/such/compiler")
    chosen = compiler.choose("portable")
    wrapper = Path(chosen.options[1].removeprefix("-DCMAKE_CXX_COMPILER="))
    assert f"-target {os.uname().machine}-linux-gnu.{zig.GLIBC_FLOOR} " in wrapper.read_text(encoding="utf-8")


# --- ziglang ---------------------------------------------------------------------------------------------------------


@posix
def test_wrapper_passes_on_every_argument(tmp_path: Path) -> None:
    zig.write_wrapper(tmp_path / "echo", ["/bin/echo", "two words", "$HOME"], "1.0")
    done = subprocess.run([tmp_path / "echo", "a b", '"', "*"], capture_output=True, text=True, check=True)
    assert done.stdout == 'two words $HOME a b " *\n'


@posix
def test_wrapper_that_is_right_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "wrapper"
    zig.write_wrapper(file, ["/bin/echo"], "1.0")
    os.utime(file, (1, 1))
    zig.write_wrapper(file, ["/bin/echo"], "1.0")
    assert file.stat().st_mtime == 1
    zig.write_wrapper(file, ["/bin/echo"], "2.0")
    assert file.stat().st_mtime > 1


def test_windows_script_has_one_word_an_argument() -> None:
    assert '@"C:\\a b\\zig.exe" "cc" %*' in zig.windows_script(["C:\\a b\\zig.exe", "cc"], "1.0")


def test_windows_script_takes_percent_signs_as_they_are() -> None:
    assert '@"C:\\50%% of %%PATH%%\\zig.exe" %*' in zig.windows_script(["C:\\50% of %PATH%\\zig.exe"], "1.0")


@pytest.mark.skipif(sys.platform != "linux", reason="looks at a Linux program")
def test_program_needs_no_newer_glibc_than_the_floor(tmp_path: Path) -> None:
    tools = zig.toolchain(f"{os.uname().machine}-linux-gnu.{zig.GLIBC_FLOOR}")
    source = tmp_path / "main.c"
    # pthread_create moved into libc.so.6 with glibc 2.34: built on a newer system, it would ask for that.
    source.write_text(
        "#include <pthread.h>\n"
        "static void *run(void *value) { return value; }\n"
        "int main(void) { pthread_t thread; return pthread_create(&thread, 0, run, 0); }\n",
        encoding="ascii",
    )
    subprocess.run([tools.cc, source, "-o", tmp_path / "main", "-pthread"], check=True)
    subprocess.run([tmp_path / "main"], check=True)
    floor = tuple(map(int, zig.GLIBC_FLOOR.split(".")))
    versions = glibc_versions(tmp_path / "main")
    assert versions
    assert max(versions) <= floor


def glibc_versions(file: Path) -> set[tuple[int, ...]]:
    with file.open("rb") as stream:
        section = ELFFile(stream).get_section_by_name(".gnu.version_r")
        assert isinstance(section, GNUVerNeedSection)
        names = [needed.name for _, library in section.iter_versions() for needed in library]
    return {tuple(map(int, name.removeprefix("GLIBC_").split("."))) for name in names if re.match(r"GLIBC_\d", name)}
