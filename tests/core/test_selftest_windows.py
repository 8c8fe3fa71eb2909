"""The Windows side of --numa-selftest, above answers that are made up and above what Wine is."""

from pathlib import Path

import pytest

from tests.core import cc, harness
from tests.wine import host
from tools import wine

SOURCE = "selftest_windows_check.c"
CASES = harness.cases(SOURCE)
SYSTEM = ("prim_windows.c", "path_windows.c", "topology_windows.c", "selftest_windows.c")

pytestmark = pytest.mark.wine


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    host.prefix()
    sources = [cc.HERE / SOURCE, *cc.core(*SYSTEM, *harness.TOPOLOGY)]
    return cc.compile_for_windows(sources, into=tmp_path_factory.mktemp("selftest_windows_check"))


@pytest.mark.parametrize("name", [name for name in CASES if not name.startswith("exit_")])
def test_case(program: Path, tmp_path: Path, name: str) -> None:
    done = host.run([program, name, wine.path(tmp_path)])
    if done.returncode != 0 or done.stdout or done.stderr:
        pytest.fail(f"{name}: exit code {done.returncode}\n{done.stdout}{done.stderr}", pytrace=False)
    assert list(tmp_path.iterdir()) == []


def test_exit_with_a_file_open(program: Path, tmp_path: Path) -> None:
    """Nothing is left of a process that is ended."""
    done = host.run([program, "exit_with_a_file_open", wine.path(tmp_path)])
    assert (done.returncode, done.stdout, done.stderr) == (42, "", "")
    assert list(tmp_path.iterdir()) == []
