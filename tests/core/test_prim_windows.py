"""The Windows side of the core: above recorded machines, and above what Wine is."""

import subprocess
from pathlib import Path

import pytest

from tests.core import cc, harness
from tests.wine import host
from tools import wine

SOURCE = "prim_windows_check.c"
CASES = harness.cases(SOURCE)
LOST = "llamafile-numa: error: the file of the model can no longer be read (status c000026e); "

pytestmark = pytest.mark.wine


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    host.prefix()
    sources = [
        cc.HERE / SOURCE,
        *cc.core("prim_windows.c", "path_windows.c", "topology_windows.c", "topology.c", "node_set.c"),
    ]
    return cc.compile_for_windows(sources, into=tmp_path_factory.mktemp("prim_windows_check"))


def run(program: Path, name: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return host.run([program, name, wine.path(folder)])


@pytest.mark.parametrize("name", [name for name in CASES if not name.startswith("exit_")])
def test_case(program: Path, tmp_path: Path, name: str) -> None:
    done = run(program, name, tmp_path)
    if done.returncode != 0 or done.stdout or done.stderr:
        pytest.fail(f"{name}: exit code {done.returncode}\n{done.stdout}{done.stderr}", pytrace=False)


def test_exit_when_the_file_goes_away(program: Path, tmp_path: Path) -> None:
    """One line says so, instead of a crash without words."""
    done = run(program, "exit_when_the_file_goes_away", tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(LOST)
    assert done.stderr.count("\n") == 1


def test_exit_by_other_handlers(program: Path, tmp_path: Path) -> None:
    done = run(program, "exit_by_other_handlers", tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (42, "", "")
