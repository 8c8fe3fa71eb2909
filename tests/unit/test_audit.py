"""What the audit says to the list of a wheel's files."""

from __future__ import annotations

import zipfile

import pytest
from packaging.tags import Tag

from tools import audit
from tools.paths import ROOT, cache_dir

NONE: tuple[str, ...] = ()
LINUX = ("libggml-cpu-x64.so", "libggml-cpu-haswell.so", "libggml-base.so")
WINDOWS = ("ggml-cpu-x64.dll", "ggml-cpu-haswell.dll", "ggml-base.dll")


def variants(platform: str, build: str, libraries: tuple[str, ...]) -> list[str]:
    members = {f"{audit.BIN}{name}": zipfile.ZipInfo(name) for name in libraries}
    return list(audit.variants(members, Tag("py3", "none", platform), build))


@pytest.mark.parametrize(
    ("platform", "build", "libraries"),
    [
        ("linux_x86_64", "", NONE),
        ("manylinux_2_28_x86_64", "", LINUX),
        ("manylinux_2_28_aarch64", "", ("libggml-cpu-armv8.0_1.so", "libggml-cpu-armv8.2_1.so")),
        ("win_amd64", "", WINDOWS),
        ("win_amd64", "1avx2", NONE),
    ],
)
def test_kinds_of_cpu_are_as_the_name_says(platform: str, build: str, libraries: tuple[str, ...]) -> None:
    assert variants(platform, build, libraries) == []


@pytest.mark.parametrize(
    ("platform", "build", "libraries", "says"),
    [
        ("manylinux_2_28_x86_64", "", NONE, "libraries for 0 kinds"),
        ("win_amd64", "", ("ggml-cpu.dll",), "libraries for 0 kinds"),
        ("win_amd64", "", WINDOWS[:1], "libraries for 1 kinds"),
        ("win_amd64", "", ("ggml-cpu-zen4.dll", "ggml-cpu-haswell.dll"), "no library for the oldest"),
        ("manylinux_2_28_x86_64", "", ("libggml-cpu-zen4.so", "libggml-cpu-haswell.so"), "no library for the oldest"),
        ("win_amd64", "1avx2", WINDOWS, "says one kind of CPU, but there is ggml-cpu-haswell.dll"),
        ("win_amd64", "2", NONE, "the build tag 2 is not known"),
    ],
)
def test_kinds_of_cpu_that_are_missing_are_found(
    platform: str, build: str, libraries: tuple[str, ...], says: str
) -> None:
    (fault,) = variants(platform, build, libraries)
    assert says in fault


@pytest.mark.parametrize("folder", [str(ROOT), str(cache_dir())])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16-le"])
def test_folders_of_this_machine_are_found(folder: str, encoding: str) -> None:
    assert folder in audit.paths(b"\0" + f"{folder}/src/main.cpp".encode(encoding) + b"\0")
    assert audit.paths(b"llama.cpp/src/llama.cpp") == []
