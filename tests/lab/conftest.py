"""The machines of the lab, each booted once for all tests that were chosen."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tools import lab
from tools.lab import needs, rows, scenario
from tools.lab.verdict import Outcome


@pytest.fixture(scope="session")
def outcomes(request: pytest.FixtureRequest) -> dict[str, list[Outcome]]:
    """What was seen, by scenario: of those that the chosen tests ask for."""
    if reason := needs.missing():
        pytest.skip(reason)
    wanted = [name for name in scenario.names() if any(f"[{name}]" in item.name for item in request.session.items)]
    accelerator, measured = lab.measure(scenario.load(name) for name in wanted)
    if file := os.environ.get("LLAMAFILE_NUMA_LAB_JSON"):
        Path(file).write_text(rows.to_json(measured, accelerator), encoding="utf-8")
    return {name: [one for one in measured if one.scenario.name == name] for name in wanted}
