from __future__ import annotations

from pathlib import Path

import pytest

from tests.build.programs import Program, usable_node


@pytest.fixture(scope="session")
def ours(program: Path) -> Program:
    return Program(program)


@pytest.fixture(scope="session")
def theirs(upstream: Path) -> Program:
    return Program(upstream, ("completion",))


@pytest.fixture(scope="session")
def node(ours: Program) -> str:
    return usable_node(ours)
