"""prim_linux.c on this machine, and the core above it under ThreadSanitizer."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.core import cc, harness

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the Linux half of the core")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return harness.build_linux("linux_check.c", tmp_path_factory.mktemp("linux"))


@pytest.mark.parametrize("name", harness.cases("linux_check.c"))
def test_linux(program: Path, name: str, tmp_path: Path) -> None:
    harness.run_case(program, name, tmp_path)


def thread_sanitizer(into: Path) -> list[str]:
    """What to put before a program made with -fsanitize=thread; skips where none runs."""
    source = into / "probe.c"
    source.write_text("int main(void) { return 0; }\n")
    command = [
        *(cc.compiler() or pytest.skip("no C compiler")),
        "-fsanitize=thread",
        str(source),
        "-o",
        str(into / "probe"),
    ]
    if subprocess.run(command, capture_output=True).returncode != 0:
        pytest.skip("the compiler has no ThreadSanitizer")
    setarch = shutil.which("setarch")
    for before in (
        [setarch, "-R"] if setarch else [],
        [],
    ):  # it wants some addresses free, which a random layout may take
        if subprocess.run([*before, str(into / "probe")], capture_output=True).returncode == 0:
            return before
    pytest.skip("ThreadSanitizer does not run on this kernel")


def test_no_races(tmp_path: Path) -> None:
    before = thread_sanitizer(tmp_path)
    program = harness.build_linux("stress.c", tmp_path, upper=True, sanitize=False, flags=["-fsanitize=thread"])
    done = subprocess.run([*before, str(program)], capture_output=True, text=True, errors="replace", timeout=300)
    assert done.returncode == 0, done.stderr
    assert "ThreadSanitizer" not in done.stderr, done.stderr
    assert done.stdout == "0 bytes, 0 workers left\n"
