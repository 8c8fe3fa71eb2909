"""The source distribution: exactly what a build needs, and enough for it."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests.build.programs import Program
from tools import pin
from tools.bootstrap import NO_BOOTSTRAP
from tools.paths import ROOT

BACKEND = "import sys; from scikit_build_core.build import build_sdist; build_sdist(sys.argv[1])"
SINGLE = {"CHANGELOG.md", "CMakeLists.txt", "LICENSE", "PKG-INFO", "README.md", "pyproject.toml"}


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sdist")
    subprocess.run([sys.executable, "-c", BACKEND, str(folder)], cwd=ROOT, stdout=subprocess.DEVNULL, check=True)
    (file,) = folder.iterdir()
    return file


@pytest.fixture(scope="module")
def unpacked(archive: Path) -> Path:
    with tarfile.open(archive) as tar:
        tar.extractall(archive.parent, filter="data")
    (folder,) = (entry for entry in archive.parent.iterdir() if entry.is_dir())
    return folder


def files(folder: Path) -> set[str]:
    return {
        file.relative_to(folder).as_posix()
        for file in folder.rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }


def test_holds_what_a_build_needs_and_nothing_else(unpacked: Path) -> None:
    expected = {f"{top}/{file}" for top in ("src", "patches", "vendor") for file in files(ROOT / top)} | SINGLE
    expected |= {
        f"tools/{file}"
        for file in files(ROOT / "tools")
        if file.endswith(".py") and not file.startswith(("bench/", "lab/"))
    }
    assert files(unpacked) == expected


def test_prepares_the_sources_by_itself(unpacked: Path) -> None:
    """What CMake calls first, in an environment that pip has made."""
    command = [sys.executable, "-m", "tools", "patch", "--flavour", "native"]
    environment = {**os.environ, NO_BOOTSTRAP: "1"}
    done = subprocess.run(command, cwd=unpacked, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (unpacked / "build" / "native" / "tree" / "CMakeLists.txt").is_file()


@pytest.mark.slow
def test_pip_builds_it(archive: Path, tmp_path: Path) -> None:
    python = tmp_path / "environment" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "environment")], check=True)
    subprocess.run([str(python), "-m", "pip", "install", "--quiet", str(archive)], check=True)
    assert f"commit {pin.load().commit}" in Program(python.with_name("llamafile-numa")).ok("--version").stdout
