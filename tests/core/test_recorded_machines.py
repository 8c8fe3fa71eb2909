"""The machines recorded in ../shared/data/linux-topologies: trees of sysfs with what is in them as JSON."""

import json
import re
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests.core import cc
from tests.core.dump import Dump

RECORDED = cc.ROOT.parent / "shared" / "data" / "linux-topologies"
NAMES = sorted(path.stem for path in RECORDED.glob("*.json"))

# Physical cores on machines whose name or documentation tells them. In 64amd64-4s2n4ca2co two cores share a module,
# which the kernel of that time calls one core.
CORES = {
    "128arm-2pa2n8cluster4co": 128,
    "16amd64-8n2c": 16,
    "16amd64-8n2c-cpusets": 15,  # one is offline
    "16em64t-4s2c2t": 8,
    "20em64t-hybrid-1p6c2t+2ca4co1t": 14,
    "256ia64-64n2s2c": 256,
    "32intel64-2p8co2t+8ve": 16,
    "40intel64-4n10c+pci-conflicts": 40,
    "4fake-4gr1nu1pu": 4,
    "64amd64-4s2n4ca2co": 32,
    "64fake-4n2s2ca2c2t": 32,
    "8ia64-2s2c2t": 4,
    "fakecpuid1f-64intel64-2p4d2n2c2t": 32,
    "memorysidecaches": 40,
    "nvidia-dgx-gb10": 20,
}

pytestmark = pytest.mark.skipif(not RECORDED.is_dir(), reason="no recorded machines: ../shared/data/linux-topologies")


@pytest.fixture(scope="module", params=NAMES)
def recorded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path]:
    """A machine's JSON and its root folder."""
    name: str = request.param
    root = tmp_path_factory.mktemp("recorded")
    with tarfile.open(RECORDED / f"{name}.tar.gz") as archive:
        archive.extractall(root, filter="data")
    machine: dict[str, Any] = json.loads((RECORDED / f"{name}.json").read_text())
    return machine, root


def test_all_are_there() -> None:
    assert len(NAMES) == 27
    assert {path.name.removesuffix(".tar.gz") for path in RECORDED.glob("*.tar.gz")} == set(NAMES)
    assert set(CORES) <= set(NAMES)


def test_equals_its_json(topology: Dump, recorded: tuple[dict[str, Any], Path]) -> None:
    machine, root = recorded
    numbers = [node["node"] for node in machine["nodes"]]
    read = topology.read(root)
    assert [_without_rest(node) for node in read["nodes"]] == [
        {
            "node": node["node"],
            "cpus": node["cpus"],
            "mem_kib": node["mem_kib"],
            "distance": _square(node.get("distance"), numbers, root),
        }
        for node in machine["nodes"]
    ]


def test_memory_that_can_be_had(topology: Dump, recorded: tuple[dict[str, Any], Path]) -> None:
    _, root = recorded
    for node in topology.read(root)["nodes"]:
        text = (root / f"sys/devices/system/node/node{node['node']}/meminfo").read_text()
        kib = {key: int(value) for key, value in re.findall(r"Node \d+ (\S+): +(\d+) kB", text)}
        free = kib.get("MemFree", 0)
        file_cache = kib.get("Active(file)", 0) + kib.get("Inactive(file)", 0)
        assert node["free_bytes"] == free * 1024
        assert node["avail_bytes"] == (free + file_cache) * 1024 + kib.get("SReclaimable", 0) * 512


def test_cores(topology: Dump, recorded: tuple[dict[str, Any], Path]) -> None:
    machine, root = recorded
    read = topology.read(root)
    for node in read["nodes"]:
        assert set(node["cores"]) <= set(node["cpus"]) & set(read["allowed_cpus"])
    if machine["machine"] in CORES:
        assert sum(len(node["cores"]) for node in read["nodes"]) == CORES[machine["machine"]]


def test_offline_cpus_are_not_used(topology: Dump, recorded: tuple[dict[str, Any], Path]) -> None:
    machine, root = recorded
    expected = {"16amd64-8n2c-cpusets": [*range(4), *range(5, 16)], "offline-cpu0-node0": list(range(4, 21))}
    read = topology.read(root)
    every = sorted({cpu for node in machine["nodes"] for cpu in node["cpus"]})
    assert read["allowed_cpus"] == expected.get(machine["machine"], every)


def _without_rest(node: dict[str, Any]) -> dict[str, Any]:
    return {
        "node": node["node"],
        "cpus": node["cpus"],
        "mem_kib": node["mem_bytes"] // 1024,
        "distance": node["distance"],
    }


def _square(row: list[int] | None, numbers: list[int], root: Path) -> list[int]:
    """The row with one column per node: unknown where nothing was recorded; without the nodes that are offline."""
    if row is None:
        return [0] * len(numbers)
    if len(row) == len(numbers):
        return row
    first, last = map(int, (root / "sys/devices/system/node/possible").read_text().split("-"))
    columns = range(first, last + 1)
    assert len(row) == len(columns)
    return [row[columns.index(number)] for number in numbers]
