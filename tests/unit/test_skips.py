"""Where nothing may be skipped, a skip of any kind is a failure, and its reason is shown."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tools.paths import ROOT

KINDS = {
    "in a test": "import pytest\ndef test_it(): pytest.skip('the reason')\n",
    "by a mark": "import pytest\n@pytest.mark.skipif(True, reason='the reason')\ndef test_it(): pass\n",
    "in a fixture": "import pytest\n@pytest.fixture\ndef f(): pytest.skip('the reason')\ndef test_it(f): pass\n",
    "of a whole file": "import pytest\npytest.skip('the reason', allow_module_level=True)\n",
}


def run(folder: Path, source: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_sample.py").write_text(source, encoding="ascii")
    command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-p", "no:cacheprovider", "-rs", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [*command, "test_sample.py"], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("kind", KINDS)
def test_skip_is_named(tmp_path: Path, kind: str) -> None:
    done = run(tmp_path, KINDS[kind])
    assert done.returncode in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
    assert "the reason" in done.stdout


@pytest.mark.parametrize("kind", KINDS)
def test_skip_fails_where_nothing_may_be_skipped(tmp_path: Path, kind: str) -> None:
    done = run(tmp_path, KINDS[kind], "--no-skips")
    assert done.returncode in (pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.INTERRUPTED)
    assert "the reason" in done.stdout


def test_expected_failure_is_no_skip(tmp_path: Path) -> None:
    source = "import pytest\n@pytest.mark.xfail\ndef test_it(): assert False\n"
    assert run(tmp_path, source, "--no-skips").returncode == pytest.ExitCode.OK
