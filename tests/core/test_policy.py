"""What the core decides, over a made-up machine (prim_fake.c): claims, regions, weights, workers."""

from pathlib import Path

import pytest

from tests.core import harness


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return harness.build_fake("policy_check.c", tmp_path_factory.mktemp("policy"))


@pytest.mark.parametrize("name", harness.cases("policy_check.c"))
def test_policy(program: Path, name: str, tmp_path: Path) -> None:
    harness.run_case(program, name, tmp_path)
