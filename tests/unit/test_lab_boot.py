"""A machine of the lab that dies is booted once more, for what it did not live to finish."""

from __future__ import annotations

import pytest

from tools.lab import Lab, scenario
from tools.lab.qemu import Event
from tools.lab.scenario import Machine, Node, Scenario

MACHINE = Machine("one", (Node(512, frozenset({0})),), ((10,),))
LOST = "QEMU ended with -11: -"


def sample(name: str) -> Scenario:
    text = 'title = "t"\nmachine = "one"\nsteps = ["run it"]\n[run.it]\nexpect = { exit = 2 }'
    return scenario.parse(name, text, {"one": MACHINE})


def told(name: str, *, done: bool = True) -> list[Event]:
    kinds = [("errors", "error: no\n"), ("exit", "2"), *([("done", "")] if done else [])]
    return [Event(name, "it", kind, text, 1.0) for kind, text in kinds]


class Boots:
    """In place of `Lab.boot`: what each boot tells; `asked` keeps for which scenarios it was."""

    def __init__(self, *boots: tuple[list[Event], str]) -> None:
        self.boots = list(boots)
        self.asked: list[list[str]] = []

    def __call__(self, _: Machine, scenarios: list[Scenario]) -> tuple[list[Event], str]:
        self.asked.append([one.name for one in scenarios])
        return self.boots.pop(0)


def run(boots: Boots, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    lab = Lab.__new__(Lab)
    lab.windows = {}
    monkeypatch.setattr(lab, "boot", boots)
    return [one.failures for one in lab.run(MACHINE, [sample("first"), sample("second")])]


def test_a_machine_that_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    boots = Boots((told("first") + told("second"), ""))
    assert run(boots, monkeypatch) == [[], []]
    assert boots.asked == [["first", "second"]]


def test_a_machine_that_dies_once(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    boots = Boots((told("first") + told("second", done=False)[:1], LOST), (told("second"), ""))
    assert run(boots, monkeypatch) == [[], []]
    assert boots.asked == [["first", "second"], ["second"]]
    assert f"booted once more: {LOST}" in capsys.readouterr().err


def test_a_machine_that_dies_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    boots = Boots((told("first"), LOST), ([], LOST))
    assert run(boots, monkeypatch) == [[], [f"the machine ended before the run did: {LOST}"]]
