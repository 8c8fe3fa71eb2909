"""Every scenario of the lab is as its file expects."""

from __future__ import annotations

import pytest

from tests.lab.conftest import missing
from tools.lab import scenario
from tools.lab.verdict import Outcome

pytestmark = [pytest.mark.lab, pytest.mark.slow]


@pytest.mark.parametrize("name", scenario.names())
def test_scenario(name: str, outcomes: dict[str, list[Outcome]]) -> None:
    if reason := missing(name):
        pytest.skip(reason)
    wanted = scenario.load(name).runs
    found = {one.run.name: one for one in outcomes[name]}
    assert list(found) == list(wanted)
    faults = [f"{run}: {failure}" for run, one in found.items() for failure in one.failures]
    said = [f"--- {run}, end of its stderr:\n{one.errors}" for run, one in found.items() if one.failures]
    assert not faults, "\n".join([*faults, *said])
