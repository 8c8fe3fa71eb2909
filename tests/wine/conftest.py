from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.build.programs import Program
from tests.wine import host, sysfs
from tests.wine.program import WindowsProgram
from tools import build

MadeUpMachine = Callable[[sysfs.MadeUp], Path]


@pytest.fixture(scope="session")
def windows() -> WindowsProgram:
    """Our program for Windows, on this machine as it is."""
    prefix = host.prefix()  # first, as it may skip
    return WindowsProgram(build.build("win_amd64"), prefix=prefix)


@pytest.fixture(scope="session")
def linux(program: Path) -> Program:
    return Program(program)


@pytest.fixture(scope="session")
def made_up(tmp_path_factory: pytest.TempPathFactory) -> MadeUpMachine:
    """Writes a machine, once for all tests; returns its folder."""
    written: dict[str, Path] = {}

    def write(machine: sysfs.MadeUp) -> Path:
        key = repr(machine)
        if key not in written:
            written[key] = machine.write(tmp_path_factory.mktemp("machine"))
        return written[key]

    return write


@pytest.fixture(scope="session")
def two_nodes(windows: WindowsProgram, made_up: MadeUpMachine) -> WindowsProgram:
    """Our program on a machine with CPU 0 on node 0 and CPU 1 on node 1: its threads can be bound to either."""
    if not {0, 1} <= os.sched_getaffinity(0):
        pytest.skip("needs the CPUs 0 and 1: a thread can be bound to CPUs only that are there")
    return windows.on(made_up(sysfs.MadeUp({0: "0", 1: "1"})))
