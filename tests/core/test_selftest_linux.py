"""The Linux side of --numa-selftest, on this machine."""

import sys
from pathlib import Path

import pytest

from tests.core import harness

SOURCE = "selftest_linux_check.c"

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the Linux half of the core")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return harness.build_linux(SOURCE, tmp_path_factory.mktemp("selftest_linux"))


@pytest.mark.parametrize("name", harness.cases(SOURCE))
def test_case(program: Path, name: str, tmp_path: Path) -> None:
    harness.run_case(program, name, tmp_path)
