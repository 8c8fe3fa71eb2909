"""The Windows program on machines made up for it: what it lists, what it binds to, and what it refuses.

Wine takes nodes, CPUs and cores from /sys/devices/system, which a mount namespace replaces. It has one group of at most
64 CPUs, and tells neither the memory of a node nor an ideal processor: groups, memory per node, nodes without memory
and `start /NODE` are for the recorded machines in tests/core.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.build.programs import Program
from tests.build.test_flags import assert_one_clear_line
from tests.wine import sysfs
from tests.wine.conftest import MadeUpMachine
from tests.wine.program import WindowsProgram
from tools import models
from tools.lab.scenario import cpu_list

pytestmark = pytest.mark.wine

# CPUs that are not there in truth are listed, but nobody may use them.
MACHINES = {
    "two": sysfs.MadeUp({0: "0", 1: "1"}),
    "two of two cores": sysfs.MadeUp({0: "0-3", 1: "4-7"}, ("0,2", "1,3", "4,6", "5,7")),
    "four": sysfs.MadeUp({0: "0", 1: "1", 2: "2-3", 3: "4,6"}, ("2,3",)),
    "sparse": sysfs.MadeUp({0: "0", 2: "1", 10: "2-5"}, ("2,3", "4,5")),
    "without CPUs": sysfs.MadeUp({0: "0", 1: "", 2: "1"}),
}
# Workers share a CPU here and wait for each other at each step, so there are as few as can be.
SHORT = ("-p", "one", "-n", "1", "-c", "64")


@pytest.fixture(scope="module")
def model() -> Path:
    return models.synthetic_model(1)


def ids(program: Program) -> list[int]:
    return [node["node"] for node in listed(program)]


def listed(program: Program) -> list[dict[str, Any]]:
    nodes: list[dict[str, Any]] = json.loads(program.ok("--numa-list", "--json").stdout)["nodes"]
    return nodes


def needs_cpus(*cpus: int) -> None:
    if not set(cpus) <= os.sched_getaffinity(0):
        pytest.skip(f"needs the CPUs {cpus}: a thread can be bound to CPUs only that are there")


# --- what there is ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MACHINES)
def test_nodes_are_listed(windows: WindowsProgram, made_up: MadeUpMachine, name: str) -> None:
    machine = MACHINES[name]
    nodes = listed(windows.on(made_up(machine)))
    assert {node["node"]: set(node["cpus"]) for node in nodes} == {n: cpu_list(c) for n, c in machine.nodes.items()}
    assert [node["cores"] for node in nodes] == [len(machine.cores_of(node["node"])) for node in nodes]
    assert [node["cpus_allowed"] for node in nodes] == [
        bool({*node["cpus"]} & os.sched_getaffinity(0)) for node in nodes
    ]
    assert {node["group"] for node in nodes} == {0}
    assert all(node["memory"] > 0 and node["memory_allowed"] for node in nodes)


@pytest.mark.parametrize("name", MACHINES)
def test_nodes_are_listed_as_on_linux(
    windows: WindowsProgram, linux: Program, made_up: MadeUpMachine, tmp_path: Path, name: str
) -> None:
    """The Linux half of the core reads the same folders in its own way."""
    root = made_up(MACHINES[name])
    script = tmp_path / "on-this-machine"
    command = " ".join(f"'{word}'" for word in (*sysfs.inside(root), str(linux.path)))
    script.write_text(f'#!/bin/sh\nexec {command} "$@"\n', encoding="utf-8")
    script.chmod(0o755)
    keys = ("node", "cpus", "cores")
    theirs = [[node[key] for key in keys] for node in listed(Program(script))]
    assert [[node[key] for key in keys] for node in listed(windows.on(root))] == theirs


@pytest.mark.parametrize("name", MACHINES)
def test_nodes_are_listed_for_people(windows: WindowsProgram, made_up: MadeUpMachine, name: str) -> None:
    machine = MACHINES[name]
    head, *lines = windows.on(made_up(machine)).ok("--numa-list").stdout.splitlines()
    assert head.split()[:2] == ["node", "CPUs"]
    ids = sorted(machine.nodes)
    wanted = [[str(node), machine.nodes[node] or "-", str(len(machine.cores_of(node)))] for node in ids]
    assert [line.split()[:3] for line in lines] == wanted
    # Windows tells no distances but that a node is next to itself.
    assert [line.split()[-len(ids) :] for line in lines] == [["10" if to == at else "?" for to in ids] for at in ids]


# --- what it binds to ------------------------------------------------------------------------------------------------


def run(program: WindowsProgram, folder: Path, model: Path, *flags: str, **environment: str) -> dict[str, Any]:
    """The report of a short run, with what it said besides under "said"."""
    file = folder / "report.json"
    done = program.ok(*flags, "--numa-report", file, "-m", model, *SHORT, **environment)
    return {**json.loads(file.read_text(encoding="utf-8")), "said": done.stderr}


@pytest.mark.parametrize(
    ("name", "node", "cpus"),
    [("two", 0, "0"), ("two", 1, "1"), ("sparse", 2, "1"), ("without CPUs", 2, "1")],
)
def test_threads_are_bound(
    windows: WindowsProgram, made_up: MadeUpMachine, model: Path, tmp_path: Path, name: str, node: int, cpus: str
) -> None:
    needs_cpus(0, 1)
    report = run(windows.on(made_up(MACHINES[name])), tmp_path, model, "--numa-node", str(node), "-t", "2")
    assert (report["node"], report["how"], report["requested"]) == (node, "flag", str(node))
    assert report["threads"] == {"workers": 2, "bound": 2}
    assert f"2 of 2 on CPUs {cpus}\n" in report["said"]


def test_threads_of_a_node_without_cpus_run_on_another(
    windows: WindowsProgram, made_up: MadeUpMachine, model: Path, tmp_path: Path
) -> None:
    report = run(windows.on(made_up(MACHINES["without CPUs"])), tmp_path, model, "--numa-node", "1", "-t", "2")
    assert (report["node"], report["threads"]) == (1, {"workers": 2, "bound": 2})
    assert "node 1 has no CPUs this process may use, so threads run on the nearest node that has, 0" in report["said"]


@pytest.mark.parametrize("batch", [False, True])
def test_default_number_of_threads(
    windows: WindowsProgram, made_up: MadeUpMachine, model: Path, tmp_path: Path, batch: bool
) -> None:
    """One for each core of the node (two, of two CPUs each), not for each CPU, nor for each core there is (four)."""
    given = ("-tb", "3") if batch else ()
    report = run(windows.on(made_up(MACHINES["two of two cores"])), tmp_path, model, "--numa-node", "0", *given)
    assert report["threads"] == {"workers": 4 if batch else 2, "bound": 4 if batch else 2}


# --- which node it takes ---------------------------------------------------------------------------------------------


def test_a_process_that_is_confined_stays(
    windows: WindowsProgram, made_up: MadeUpMachine, model: Path, tmp_path: Path
) -> None:
    needs_cpus(0, 1)
    confined = windows.on(made_up(MACHINES["two"]), 1)
    for flags in ((), ("--numa-node", "auto")):
        report = run(confined, tmp_path, model, *flags)
        assert (report["node"], report["how"]) == (1, "confined")
    assert run(confined, tmp_path, model, "--numa-node", "none")["node"] is None


def test_a_process_that_is_free_takes_a_node_on_request(
    windows: WindowsProgram, made_up: MadeUpMachine, model: Path, tmp_path: Path
) -> None:
    free = windows.on(made_up(MACHINES["two"]))
    report = run(free, tmp_path, model, "--numa-node", "auto")
    assert (report["node"], report["how"]) == (0, "emptiest")
    assert run(free, tmp_path, model)["node"] is None


def test_environment_chooses(windows: WindowsProgram, made_up: MadeUpMachine, model: Path, tmp_path: Path) -> None:
    needs_cpus(0, 1)
    flags = {"LLAMA_ARG_NUMA_NODE": "2", "LLAMA_ARG_NUMA_WEIGHTS": "copy"}
    report = run(windows.on(made_up(MACHINES["sparse"])), tmp_path, model, **flags)
    assert (report["node"], report["how"], report["weights_mode"]) == (2, "env", "copy")


# --- what it refuses -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "absent", "there"),
    [("two", "2", "0-1"), ("four", "4", "0-3"), ("sparse", "1", "0,2,10"), ("without CPUs", "3", "0-2")],
)
def test_absent_node_is_an_error_that_names_those_there_are(
    windows: WindowsProgram, made_up: MadeUpMachine, name: str, absent: str, there: str
) -> None:
    program = windows.on(made_up(MACHINES[name]))
    assert_one_clear_line(program, ["--numa-node", absent], f"there is no node {absent}; nodes here: {there}\n")


def test_two_different_nodes_are_an_error(windows: WindowsProgram, made_up: MadeUpMachine) -> None:
    program = windows.on(made_up(MACHINES["two"]))
    assert_one_clear_line(program, ["--numa-node", "0", "--numa-node", "1"], "twice, as 0 and as 1; one process")


@pytest.mark.parametrize(
    "flags",
    [
        ["--numa-node", "1x"],
        ["--numa-node", "-1"],
        ["--numa-node", "4294967296"],
        ["--numa-node", ""],
        ["--numa-node", "0", "--numa-node", "2"],
        ["--numa-node", "0", "--numa", "distribute"],
    ],
)
def test_bad_input_names_the_nodes_there_are(windows: WindowsProgram, made_up: MadeUpMachine, flags: list[str]) -> None:
    assert_one_clear_line(windows.on(made_up(MACHINES["sparse"])), flags, "; nodes here: 0,2,10\n")


def test_strict_ends_with_its_own_code(windows: WindowsProgram, made_up: MadeUpMachine, model: Path) -> None:
    """Wine says of every page that it is on node 0: nothing is served from there for who wants node 1."""
    needs_cpus(0, 1)
    done = windows.on(made_up(MACHINES["two"]))("--numa-node", "1", "--numa-strict", "-m", model, *SHORT)
    assert (done.returncode, done.stdout) == (3, "")
    assert "NOT everything is on the node" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("llamafile-numa: error: --numa-strict: ")
