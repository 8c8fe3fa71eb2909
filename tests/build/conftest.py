from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.build.programs import Program, clean, usable_node
from tools.paths import ROOT


@pytest.fixture(scope="session")
def ours(program: Path) -> Program:
    return Program(program)


@pytest.fixture(scope="session")
def theirs(upstream: Path) -> Program:
    return Program(upstream, ("completion",))


@pytest.fixture(scope="session")
def node(ours: Program) -> str:
    return usable_node(ours)


@pytest.fixture(scope="session")
def package(program: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The package as a wheel has it, its program the one that was built; what this process imports has it, too."""
    folder = tmp_path_factory.mktemp("site") / "llamafile_numa"
    folder.mkdir()
    for file in (ROOT / "src" / "llamafile_numa").glob("*.py"):
        (folder / file.name).symlink_to(file)
    (folder / "bin").mkdir()
    (folder / "bin" / program.name).symlink_to(program)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("llamafile_numa.__path__", [str(folder)])
        for name in os.environ.keys() - clean({}).keys():
            patch.delenv(name)
        yield folder
