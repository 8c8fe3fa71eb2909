"""Wine for tests: one prefix for all of them, and a skip where there is no Wine."""

from __future__ import annotations

import atexit
import functools
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from tools import wine
from tools.fail import Fail

SECONDS = 300


@functools.cache
def prefix(*relay: str, programs: tuple[str, ...] = ()) -> Path:
    """A prefix that lives as long as this process; skips the calling test where there is no Wine. See make_prefix."""
    try:
        wine.program()
    except Fail as failure:
        pytest.skip(str(failure))
    folder = Path(tempfile.mkdtemp(prefix="llamafile-numa-wine-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return wine.make_prefix(folder, relay=relay, programs=programs)


def run(command: Sequence[str | Path]) -> subprocess.CompletedProcess[str]:
    """Run a Windows program. Paths among its arguments have to be in the form of wine.path()."""
    return subprocess.run(
        [str(wine.program()), *map(str, command)],
        env=wine.environment(prefix()),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=SECONDS,
    )
