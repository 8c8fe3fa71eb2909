"""What the core decides, over a made-up machine (prim_fake.c): claims, regions, weights, workers."""

from pathlib import Path

import pytest

from tests.core import harness

WRONG = {
    "claim_with_unknown_room": "room that is not known counts as none, and what was claimed as too much for it",
    "small_weights_are_forgotten": "weights tagged in memory of malloc are looked at for ever, freed or not",
    "weights_of_the_next_file_are_not_touched_either": "placing goes on after it was decided to copy",
    "weights_are_not_copied_into_room_that_others_took": "the mapping's pages count as room, wherever they lie",
}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return harness.build_fake("policy_check.c", tmp_path_factory.mktemp("policy"))


@pytest.mark.parametrize("name", harness.parameters("policy_check.c", WRONG))
def test_policy(program: Path, name: str, tmp_path: Path) -> None:
    harness.run_case(program, name, tmp_path)
