"""The machines of the lab, each booted once for all tests that were chosen."""

from __future__ import annotations

import pytest

from tools import lab
from tools.fail import Fail
from tools.lab import kernel, needs, scenario
from tools.lab.verdict import Outcome


def missing(name: str) -> str | None:
    """Why this scenario cannot run here, if it cannot."""
    return needs.missing(lab.programs_of([scenario.load(name)]))


@pytest.fixture(scope="session")
def outcomes(request: pytest.FixtureRequest) -> dict[str, list[Outcome]]:
    """What was seen, by scenario: of those that the chosen tests ask for."""
    if reason := needs.missing():
        pytest.skip(reason)
    try:
        kernel.kernel()
    except Fail as failure:
        pytest.skip(str(failure))
    wanted = [name for name in scenario.names() if any(f"[{name}]" in item.name for item in request.session.items)]
    wanted = [name for name in wanted if not missing(name)]
    _, measured = lab.measure(scenario.load(name) for name in wanted)
    return {name: [one for one in measured if one.scenario.name == name] for name in wanted}
