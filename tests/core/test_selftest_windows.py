"""The Windows side of --numa-selftest: above answers that are made up, and all of it above what Wine is."""

import json
from pathlib import Path

import pytest

from tests.core import cc, harness, wine
from tests.wine import host

SOURCE = "selftest_windows_check.c"
CASES = harness.cases(SOURCE)
SYSTEM = ("prim_windows.c", "topology_windows.c", "selftest_windows.c")

pytestmark = pytest.mark.wine


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    host.prefix()
    sources = [cc.HERE / SOURCE, *cc.core(*SYSTEM, *harness.TOPOLOGY)]
    return wine.compile(sources, into=tmp_path_factory.mktemp("selftest_windows_check"))


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The start of the program, for Windows."""
    host.prefix()
    core = cc.core(*harness.UPPER, "start.c", *harness.SELFTEST, *SYSTEM, *harness.TOPOLOGY)
    sources = [cc.HERE / "selftest_main.c", cc.HERE / harness.MODEL, *core]
    return wine.compile(sources, into=tmp_path_factory.mktemp("selftest_main"))


@pytest.mark.parametrize("name", [name for name in CASES if not name.startswith("exit_")])
def test_case(program: Path, tmp_path: Path, name: str) -> None:
    done = host.run([program, name, host.path(tmp_path)])
    if done.returncode != 0 or done.stdout or done.stderr:
        pytest.fail(f"{name}: exit code {done.returncode}\n{done.stdout}{done.stderr}", pytrace=False)
    assert list(tmp_path.iterdir()) == []


def test_exit_with_a_file_open(program: Path, tmp_path: Path) -> None:
    """Nothing is left of a process that is ended."""
    done = host.run([program, "exit_with_a_file_open", host.path(tmp_path)])
    assert (done.returncode, done.stdout, done.stderr) == (42, "", "")
    assert list(tmp_path.iterdir()) == []


def test_all_of_it(start: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    done = host.run([start, "--numa-selftest", "-m", "8000000000", "--numa-report", host.path(report)])
    assert done.returncode == 0, done.stderr
    assert "in truth Wine" in done.stdout
    assert all(line.startswith("selftest, ") for line in done.stderr.splitlines())
    read = json.loads(report.read_text(encoding="utf-8"))
    for cell in read["bandwidth"]:
        # Wine's working-set query knows node 0 only: what cannot be seen where it should be is not measured.
        assert (cell["gb_per_s"] is not None) == (cell["memory_on"] == 0)
        assert (cell["reason"] is None) == (cell["memory_on"] == 0)
    assert read["file"] == "temporary"
    assert read["file_note"].startswith("not the model: Windows does not drop")
    for question in ("prefetch", "cached", "unbuffered", "cpu_sets", "large_pages"):
        assert (read[question]["answer"] is None) == bool(read[question]["reason"])


def test_bad_input_gives_one_line(start: Path) -> None:
    done = host.run([start, "--numa-selftest", "-m", "nothing.gguf"])
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines() == ["llamafile-numa: error: -m: cannot read nothing.gguf"]
