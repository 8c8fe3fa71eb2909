"""Windows programs in the guest: what of Wine goes with them, and how they are started and looked at."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.core import cc
from tools import wine
from tools.lab import disk, evidence, guest, needs, scenario, script, windows

PROGRAM = '#include <stdio.h>\n#include <windows.h>\nint main(void) { return puts("x") + (int) GetTickCount(); }\n'
SCENARIO = """\
title = "t"
machine = "two"
steps = ["run it"]
[run.it]
program = "llamafile-numa.exe"
arguments = ["--numa-node", "1"]
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program that calls kernel32 and the C library."""
    if reason := needs.missing(["x.exe"]):
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("windows")
    source = folder / "it.c"
    source.write_text(PROGRAM, encoding="ascii")
    return cc.compile_for_windows([source], into=folder)


def test_it_brings_the_libraries_that_it_is_loaded_with(program: Path) -> None:
    libraries = windows.loaded(program, wine.libraries())
    assert {"kernel32.dll", "kernelbase.dll", "ntdll.dll", "ucrtbase.dll", "apisetschema.dll"} <= set(libraries)
    assert "shell32.dll" not in libraries
    assert len(libraries) == len(set(libraries))


def test_it_brings_wine(program: Path) -> None:
    names = [file.name for file in windows.files(program)]
    assert {"wine64", "wineserver64", "ntdll.so", "ntdll.dll", "l_intl.nls", "locale.nls"} <= set(names)
    assert all(file.is_absolute() and file.is_file() for file in windows.files(program))
    linked = [Path(path).name for path in guest.wine_libraries()]
    assert {"libc.so.6", "libgcc_s.so.1"} <= set(linked)


def test_where_its_image_will_be(program: Path) -> None:
    image = windows.image(program)
    assert image.start == 0x140000000
    assert program.stat().st_size / 2 < len(image) < 64 << 20


def test_its_image_is_no_buffer() -> None:
    area = evidence.parse_numa_maps_line("140001000 default anon=5888 dirty=5888 N0=5888 kernelpagesize_kB=4")
    assert evidence.kind(area, "/disk/model.gguf") == "buffers"
    assert evidence.kind(area, "/disk/model.gguf", range(0x140000000, 0x142000000)) == "rest"
    assert evidence.kind(area, "/disk/model.gguf", range(0x140000000, 0x140001000)) == "buffers"


def test_it_is_started_through_wine() -> None:
    parsed = scenario.parse("sample", SCENARIO, scenario.machines())
    (started,) = (line for line in script.lines(parsed) if line.startswith("start "))
    exe = "/tools/wine /opt/llamafile-numa.exe/llamafile-numa.exe --server"
    assert re.search(rf" --clear-groups {exe} .* --port 8081 --numa-node 1$", started)


def test_wine_is_started_by_a_shell_script(program: Path, tmp_path: Path) -> None:
    file = tmp_path / "wine"
    file.write_text(windows.starter(), encoding="utf-8")
    done = subprocess.run([needs.path("busybox"), "sh", "-n", file], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"/disk/wine{wine.program().resolve()} " in windows.starter()


@pytest.mark.skipif(bool(needs.missing()), reason=str(needs.missing()))
def test_a_disk_holds_other_files_at_their_paths(tmp_path: Path) -> None:
    program, image = tmp_path / "a program", tmp_path / "disk.img"
    program.write_bytes(os.urandom(1 << 20))
    program.chmod(0o755)
    disk.build({}, image, "below", [program])
    debugfs = needs.find("debugfs")
    assert debugfs
    done = subprocess.run([debugfs, "-R", f'stat "/below{program}"', image], capture_output=True, text=True, check=True)
    assert re.search(r"Type: regular\s+Mode:\s+0755", done.stdout)
    assert f"Size: {1 << 20}" in done.stdout
