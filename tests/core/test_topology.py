"""Machines of our own: what the core reads of them, and which node it would choose."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.core.dump import Dump
from tests.core.machines import MIB, Machine, Node, pairs

TWO = {0: Node("0-3", distance="10 21"), 1: Node("4-7", distance="21 10")}


@pytest.fixture
def read(topology: Dump, tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """read(machine, node...) -> its dump, written to a root folder and read from there."""
    return lambda machine, *find: topology.read(machine.write(tmp_path / "root"), *find)


@pytest.fixture
def error(topology: Dump, tmp_path: Path) -> Callable[[Machine], str | None]:
    """error(machine) -> why it cannot be read."""
    return lambda machine: topology.error(machine.write(tmp_path / "root"))


Read = Callable[..., dict[str, Any]]
Error = Callable[[Machine], str | None]


def column(read: dict[str, Any], key: str) -> list[Any]:
    return [node[key] for node in read["nodes"]]


# --- what is read ---


def test_plain(read: Read) -> None:
    machine = read(Machine(TWO, online_nodes="0-1", possible_nodes="0-1", has_memory="0-1", online_cpus="0-7"), 0, 1, 2)
    assert machine == {
        "nodes": [
            {
                "node": number,
                "cpus": cpus,
                "cores": cpus,
                "group": 0,
                "mem_bytes": 2**30,
                "free_bytes": 0,
                "avail_bytes": 0,
                "cpus_allowed": True,
                "mem_allowed": True,
                "distance": distance,
                "nearest_cpus": number,
            }
            for number, cpus, distance in [(0, [0, 1, 2, 3], [10, 21]), (1, [4, 5, 6, 7], [21, 10])]
        ],
        "allowed_cpus": list(range(8)),
        "confined": -1,
        "emptiest": 0,
        "find": [0, 1, -1],
    }


def test_sparse(read: Read) -> None:
    nodes = {
        0: Node("0-1", distance="10 20 30"),
        2: Node("2-3", distance="20 10 40"),
        10: Node("4-5", distance="30 40 10"),
    }
    machine = read(Machine(nodes, online_nodes="0,2,10", possible_nodes="0-15", online_cpus="0-5"), 0, 1, 2, 10, -1)
    assert column(machine, "node") == [0, 2, 10]
    assert column(machine, "distance") == [[10, 20, 30], [20, 10, 40], [30, 40, 10]]
    assert machine["find"] == [0, -1, 1, 2, -1]


def test_numbers_with_many_digits_are_in_order(read: Read) -> None:
    machine = read(Machine({number: Node(str(number)) for number in (1023, 2, 10, 100, 1)}), 1023, 100)
    assert column(machine, "node") == [1, 2, 10, 100, 1023]
    assert machine["find"] == [4, 3]


def test_memory_only(read: Read) -> None:
    nodes = {0: Node("0-3", distance="10 17"), 1: Node("", distance="17 10")}
    machine = read(Machine(nodes, online_nodes="0-1", online_cpus="0-3"))
    assert column(machine, "cpus") == [[0, 1, 2, 3], []]
    assert column(machine, "cpus_allowed") == [True, False]
    assert column(machine, "mem_allowed") == [True, True]


@pytest.mark.parametrize("total", [0, None], ids=["0 kB", "no meminfo"])
def test_without_memory(read: Read, total: int | None) -> None:
    machine = read(Machine({0: Node("0-3"), 1: Node("4-7", total=total)}, online_cpus="0-7"))
    assert column(machine, "mem_bytes") == [2**30, 0]
    assert column(machine, "mem_allowed") == [True, False]
    assert column(machine, "cpus_allowed") == [True, True]


def test_has_memory_beats_meminfo(read: Read) -> None:
    machine = Machine({0: Node("0-3", free=5), 1: Node("4-7", free=5)}, has_memory="0", has_normal_memory="0-1")
    assert column(read(machine), "mem_bytes") == [2**30, 0]
    assert column(read(machine), "avail_bytes") == [5 * 1024, 0]


def test_has_normal_memory_of_old_kernels(read: Read) -> None:
    assert column(read(Machine(TWO, has_normal_memory="1")), "mem_bytes") == [0, 2**30]


def test_memory_that_can_be_had(read: Read) -> None:
    node = Node("0", free=100, active_file=1000, inactive_file=10_000, reclaimable=100_001)
    machine = read(Machine({0: node, 1: Node("1", free=3)}))
    assert column(machine, "free_bytes") == [100 * 1024, 3 * 1024]
    assert column(machine, "avail_bytes") == [11_100 * 1024 + 100_001 * 512, 3 * 1024]


def test_offline_cpus_are_not_listed(read: Read) -> None:
    """As kernels write it: cpulist has those online only. Their folders stay."""
    machine = read(Machine({0: Node("0-1,3"), 1: Node("4-6")}, online_cpus="0-1,3-6", core_cpus={7: "7", 2: "2"}))
    assert column(machine, "cpus") == column(machine, "cores") == [[0, 1, 3], [4, 5, 6]]
    assert machine["allowed_cpus"] == [0, 1, 3, 4, 5, 6]


def test_listed_offline_cpus_are_not_used(read: Read) -> None:
    machine = read(Machine(TWO, online_cpus="1-3", cpus_allowed="0-7"))
    assert machine["allowed_cpus"] == [1, 2, 3]
    assert column(machine, "cores") == [[1, 2, 3], []]
    assert column(machine, "cpus_allowed") == [True, False]


def test_offline_nodes_are_not_listed(read: Read) -> None:
    assert column(read(Machine(TWO, online_nodes="1")), "node") == [1]
    assert column(read(Machine(TWO, online_nodes="0-1,5")), "node") == [0, 1]


def test_interleaved(read: Read) -> None:
    machine = read(Machine({0: Node("0,2,4,6"), 1: Node("1,3,5,7")}, online_cpus="0-7", core_cpus=pairs(4)))
    assert column(machine, "cpus") == [[0, 2, 4, 6], [1, 3, 5, 7]]
    assert column(machine, "cores") == [[0, 2], [1, 3]]


def test_more_than_1024_cpus(read: Read) -> None:
    nodes = {0: Node("0-1023,2048-3071"), 1: Node("1024-2047,3072-4095")}
    machine = read(Machine(nodes, online_cpus="0-4095", cpus_allowed="1500-1600", core_cpus=pairs(2048)))
    assert column(machine, "cpus")[1] == [*range(1024, 2048), *range(3072, 4096)]
    assert column(machine, "cores") == [list(range(1024)), list(range(1024, 2048))]
    assert machine["allowed_cpus"] == list(range(1500, 1601))
    assert column(machine, "cpus_allowed") == [False, True]
    assert machine["confined"] == 1


def test_long_lists(read: Read) -> None:
    """Longer than a page: every second of 8192 CPUs, and 255 distances a node."""
    nodes = {n: Node("", distance=" ".join("10" if n == to else "255" for to in range(255))) for n in range(255)}
    nodes[3] = Node(",".join(map(str, range(1, 8192, 2))), distance=nodes[3].distance)
    machine = read(Machine(nodes, online_cpus="0-8191", cpus_allowed="8191", online_nodes="0-254"))
    assert machine["nodes"][3]["cpus"] == list(range(1, 8192, 2))
    assert [row.index(10) for row in column(machine, "distance")] == list(range(255))
    assert set(column(machine, "nearest_cpus")) == {3}


def test_most_nodes(read: Read) -> None:
    machine = read(Machine({n: Node(str(n)) for n in range(1024)}), 1023)
    assert (len(machine["nodes"]), machine["find"]) == (1024, [1023])


def test_cpumap_without_cpulist(read: Read) -> None:
    nodes = {0: Node(None, cpumap="00000000,000000f0"), 1: Node(None, cpumap="1,0000000f")}
    assert column(read(Machine(nodes)), "cpus") == [[4, 5, 6, 7], [0, 1, 2, 3, 32]]


def test_trailing_nuls(read: Read) -> None:
    nodes = {0: Node("0-3\n\0", distance="10 20\n\0"), 1: Node("4-7\0", distance="20 10\0\0")}
    machine = read(Machine(nodes, online_nodes="0-1\n\0", online_cpus="0-7\0\0"))
    assert column(machine, "cpus") == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert column(machine, "distance") == [[10, 20], [20, 10]]


def test_old_kernel(read: Read) -> None:
    """No `online` files: the nodes are those with a folder, the CPUs those that the nodes list."""
    machine = read(Machine(TWO, thread_siblings={0: "0-1", 1: "0-1", 4: "4,6", 6: "4,6"}))
    assert column(machine, "node") == [0, 1]
    assert column(machine, "cores") == [[0, 2, 3], [4, 5, 7]]
    assert machine["allowed_cpus"] == list(range(8))


MEMINFO = "MemTotal:  2048 kB\nMemFree:  512 kB\nActive(file):  256 kB\nInactive(file):  128 kB\nSReclaimable:  64 kB\n"


@pytest.mark.parametrize(
    ("machine", "cpus"),
    [
        (Machine(online_cpus="0-3,6", meminfo=MEMINFO), [0, 1, 2, 3, 6]),
        (Machine(core_cpus={0: "0", 1: "1", 12: "12"}, meminfo=MEMINFO), [0, 1, 12]),
    ],
    ids=["online", "folders"],
)
def test_kernel_without_numa(read: Read, machine: Machine, cpus: list[int]) -> None:
    dump = read(machine)
    [node] = dump["nodes"]
    assert (node["node"], node["cpus"], node["cores"]) == (0, cpus, cpus)
    assert (node["mem_bytes"], node["free_bytes"]) == (2 << 20, 512 << 10)
    assert node["avail_bytes"] == (512 + 256 + 128 + 32) << 10
    assert node["distance"] == [10]
    assert (node["cpus_allowed"], node["mem_allowed"]) == (True, True)
    assert (dump["confined"], dump["emptiest"], dump["allowed_cpus"]) == (-1, 0, cpus)


def test_other_folders_are_no_nodes(topology: Dump, tmp_path: Path) -> None:
    root = Machine(TWO).write(tmp_path)
    for name in ("node", "nodes", "node7x", "node-7", "node7-8", "node7,8", "nodeclass", "power"):
        (root / "sys/devices/system/node" / name).mkdir()
    assert column(topology.read(root), "node") == [0, 1]


NEIGHBOURS = {cpu: f"{cpu & ~1}-{cpu | 1}" for cpu in range(8)}


@pytest.mark.parametrize("machine", [Machine(TWO, core_cpus=NEIGHBOURS), Machine(TWO, thread_siblings=NEIGHBOURS)])
def test_hyperthreads(read: Read, machine: Machine) -> None:
    assert column(read(machine), "cores") == [[0, 2], [4, 6]]


def test_cores_whose_lowest_cpu_is_offline_or_not_ours(read: Read) -> None:
    nodes = {0: Node("0-7")}
    machine = Machine(nodes, online_cpus="1-7", cpus_allowed="1,6-7", core_cpus=pairs(4))
    assert column(read(machine), "cores") == [[1, 4, 6, 7]]  # cores 0+4 (0 is offline), 1+5, 2+6, 3+7


def test_core_lists_that_leave_out_the_cpu_itself(read: Read) -> None:
    assert column(read(Machine({0: Node("0-3")}, core_cpus={0: "", 1: "9", 2: "3", 3: "2"})), "cores") == [[0, 1, 2]]


def test_cpuset(read: Read) -> None:
    machine = read(Machine(TWO, online_cpus="0-7", cpus_allowed="5,7", mems_allowed="0-1"))
    assert machine["allowed_cpus"] == [5, 7]
    assert column(machine, "cpus_allowed") == [False, True]
    assert column(machine, "mem_allowed") == [True, True]
    assert machine["confined"] == 1


def test_status_without_cpusets(read: Read) -> None:
    machine = read(Machine(TWO, online_cpus="0-7", cpus_allowed="0-7"))
    assert column(machine, "mem_allowed") == [True, True]


def test_distances_that_fit_no_nodes_are_not_known(read: Read) -> None:
    nodes = {0: Node("0", distance="10 20 30"), 1: Node("1", distance="")}
    assert column(read(Machine(nodes)), "distance") == [[0, 0], [0, 0]]


def test_distances_by_possible_node(read: Read) -> None:
    nodes = {1: Node("0", distance="21 10 22 30"), 3: Node("1", distance="31 30 32 10")}
    machine = read(Machine(nodes, online_nodes="1,3", possible_nodes="0-3"))
    assert column(machine, "distance") == [[10, 30], [30, 10]]


# --- which node is chosen ---

ROW = {  # of a machine with nodes 0 and 2 that have CPUs, 4 and 6 that have memory only, 8 that has CPUs only
    0: "10 21 17 28 24",
    2: "21 10 28 17 14",
    4: "17 28 10 28 28",
    6: "28 17 28 10 17",
    8: "24 14 28 17 10",
}
CPUS = {0: "0-3", 2: "4-7", 4: "", 6: "", 8: "8-9"}


def five(**rest: Any) -> Machine:
    nodes = {n: Node(CPUS[n], total=0 if n == 8 else 1024 * MIB, distance=ROW[n]) for n in ROW}
    return Machine(nodes, online_nodes="0,2,4,6,8", online_cpus="0-9", **rest)


@pytest.mark.parametrize(
    ("cpus_allowed", "nearest"),
    [
        ("0-9", [0, 1, 0, 1, 4]),
        ("0-3", [0, 0, 0, 0, 0]),
        ("4-9", [1, 1, 1, 1, 4]),
        ("0-3,8", [0, 4, 0, 4, 4]),
        ("0,8-9", [0, 4, 0, 4, 4]),
        ("8-9", [4, 4, 4, 4, 4]),
        ("", [-1, -1, -1, -1, -1]),
    ],
)
def test_nearest_cpus(read: Read, cpus_allowed: str, nearest: list[int]) -> None:
    assert column(read(five(cpus_allowed=cpus_allowed)), "nearest_cpus") == nearest


def test_nearest_cpus_by_unknown_distance(read: Read) -> None:
    """Unknown is farther than known; among unknown ones the lowest number counts."""
    nodes = {0: Node("0"), 1: Node("1"), 2: Node("", distance="0 200 10")}
    assert column(read(Machine(nodes)), "nearest_cpus") == [0, 1, 1]
    nodes[2] = Node("")
    assert column(read(Machine({**nodes, 2: Node("", distance="0 0 0")})), "nearest_cpus") == [0, 1, 0]


@pytest.mark.parametrize(
    ("cpus", "mems", "confined"),
    [
        ("0-9", "0-8", -1),
        (None, None, -1),
        ("0-3", "0-8", 0),
        ("2", "0-8", 0),
        ("4-7", "0-8", 1),
        ("3-4", "0-8", -1),
        ("8", "0-8", -1),  # on a node that has no memory
        ("0-3", "2,4", -1),  # on a node whose memory is not ours
        ("0-9", "2", 1),
        ("0-9", "2,8", 1),  # 8 has no memory
        ("0-9", "0,2", -1),
        ("0-3", "2", 1),  # memory beats CPUs
        ("0-9", "4", 2),  # memory only
        ("", "0-8", -1),
    ],
)
def test_confined(read: Read, cpus: str | None, mems: str | None, confined: int) -> None:
    assert read(five(cpus_allowed=cpus, mems_allowed=mems))["confined"] == confined


@pytest.mark.parametrize(
    "machine",
    [
        Machine({0: Node("0-3")}, cpus_allowed="1", mems_allowed="0"),
        Machine({5: Node("0-3")}),
        Machine({0: Node("0-3"), 1: Node("")}, cpus_allowed="0-3", mems_allowed="0-1"),
        Machine({0: Node("0-3"), 1: Node("")}, cpus_allowed="1", mems_allowed="0-1"),
        Machine({0: Node("0-3"), 1: Node("", total=0)}, cpus_allowed="1", mems_allowed="0"),
        Machine(TWO, online_cpus="0-3"),
    ],
    ids=["one node", "one node 5", "memory-only beside", "and fewer CPUs", "empty node beside", "others offline"],
)
def test_machines_that_confine_nobody(read: Read, machine: Machine) -> None:
    assert read(machine)["confined"] == -1


@pytest.mark.parametrize(
    ("free", "cpus", "mems", "emptiest"),
    [
        ([5, 5, 5, 5], "0-9", "0-8", 0),
        ([5, 6, 7, 8], "0-9", "0-8", 1),
        ([6, 5, 7, 8], "0-9", "0-8", 0),
        ([5, 6, 7, 8], "0-3", "0-8", 0),
        ([5, 6, 7, 8], "0-9", "0", 0),
        ([0, 0, 7, 8], "0-9", "0-8", 0),
        ([5, 6, 7, 8], "0-9", "4,6", -1),
        ([5, 6, 7, 8], "8-9", "0-8", -1),
        ([5, 6, 7, 8], "", "0-8", -1),
    ],
)
def test_emptiest(read: Read, free: list[int], cpus: str, mems: str, emptiest: int) -> None:
    machine = five(cpus_allowed=cpus, mems_allowed=mems)
    nodes = {n: Node(node.cpulist, node.cpumap, node.total) for n, node in machine.nodes.items()}
    for (number, node), kib in zip(list(nodes.items())[:4], free, strict=True):
        nodes[number] = Node(node.cpulist, total=node.total, free=kib)
    assert read(Machine(nodes, cpus_allowed=cpus, mems_allowed=mems))["emptiest"] == emptiest


def test_emptiest_counts_file_cache(read: Read) -> None:
    nodes = {0: Node("0", free=500), 1: Node("1", free=100, inactive_file=300, active_file=101)}
    assert read(Machine(nodes))["emptiest"] == 1


# --- what cannot be read ---

LIST = "not a list of numbers like 0-3,8"
NODE = "sys/devices/system/node"


@pytest.mark.parametrize(
    ("machine", "expected"),
    [
        (Machine(TWO, online_nodes="0-x"), f"{NODE}/online: {LIST}"),
        (Machine(TWO, possible_nodes="1-0"), f"{NODE}/possible: {LIST}"),
        (Machine(TWO, has_memory="0;1"), f"{NODE}/has_memory: {LIST}"),
        (Machine(TWO, has_normal_memory="?"), f"{NODE}/has_normal_memory: {LIST}"),
        (Machine(TWO, online_cpus="0-"), f"sys/devices/system/cpu/online: {LIST}"),
        (Machine(TWO, online_cpus="0-9999"), f"sys/devices/system/cpu/online: {LIST}"),
        (Machine({0: Node("0-3,")}), f"{NODE}/node0/cpulist: {LIST}"),
        (Machine({0: Node(None, cpumap="0xff")}), f"{NODE}/node0/cpumap: not a mask like ff,ffffffff"),
        (Machine({0: Node("0", distance="10 x")}), f"{NODE}/node0/distance: not a row of distances like 10 21"),
        (Machine({0: Node("0", distance="-1")}), f"{NODE}/node0/distance: not a row of distances like 10 21"),
        (Machine({0: Node("0", distance="65536")}), f"{NODE}/node0/distance: not a row of distances like 10 21"),
        (Machine({0: Node("0", distance="99999999999999999999")}),
         f"{NODE}/node0/distance: not a row of distances like 10 21"),
        (Machine({0: Node("0", distance="10 " * 1025)}), f"{NODE}/node0/distance: not a row of distances like 10 21"),
        (Machine({0: Node("0", total=-5)}), f"{NODE}/node0/meminfo: MemTotal is not a number of kB"),
        (Machine({0: Node("0", free=2**64)}), f"{NODE}/node0/meminfo: MemFree is not a number of kB"),
        (Machine({0: Node("0", active_file=2**51)}), f"{NODE}/node0/meminfo: Active(file) is not a number of kB"),
        (Machine({0: Node("0"), 1024: Node("1")}), f"{NODE}: node numbers above 1023"),
        (Machine(TWO, core_cpus={0: "0-1", 2: "two"}), f"sys/devices/system/cpu/cpu2/topology/core_cpus_list: {LIST}"),
        (Machine(TWO, thread_siblings={0: "zero"}),
         f"sys/devices/system/cpu/cpu0/topology/thread_siblings_list: {LIST}"),
        (Machine(TWO, cpus_allowed="0-7\0x"), "proc/self/status: not a text"),
        (Machine(TWO, cpus_allowed="0-7x"), f"proc/self/status: {LIST}"),
        (Machine(TWO, mems_allowed="none"), f"proc/self/status: {LIST}"),
        (Machine(online_cpus="0-1", meminfo="MemTotal:  12"), "proc/meminfo: MemTotal is not a number of kB"),
        (Machine(online_cpus="0-1", meminfo=""), "proc/meminfo: has no MemTotal"),
        (Machine(), "sys/devices/system/cpu: no CPUs found"),
        (Machine(online_cpus=""), "sys/devices/system/cpu: no CPUs found"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)  # fmt: skip
def test_garbage(error: Error, machine: Machine, expected: str) -> None:
    assert error(machine) == expected


def test_no_such_root(topology: Dump, tmp_path: Path) -> None:
    assert topology.error(tmp_path / "none") == "sys/devices/system/cpu: no CPUs found"
    assert topology.error("/" + "x" * 5000) == "/" + "x" * 59 + "...: this path is too long"


def test_folder_in_place_of_a_file(topology: Dump, tmp_path: Path) -> None:
    root = Machine(TWO).write(tmp_path)
    (root / NODE / "online").mkdir()
    assert topology.error(root) == f"{NODE}/online: Is a directory"


def test_file_without_end(topology: Dump, tmp_path: Path) -> None:
    root = Machine(TWO).write(tmp_path)
    (root / NODE / "online").symlink_to("/dev/zero")
    assert topology.error(root) == f"{NODE}/online: longer than any file of this kind"


FULL = Machine(
    {
        0: Node("0-3", free=512 * MIB, active_file=9, inactive_file=9, reclaimable=9, distance="10 21"),
        1: Node(None, cpumap="000000f0", free=512 * MIB, distance="21 10"),
    },
    online_nodes="0-1",
    possible_nodes="0-1",
    has_memory="0-1",
    online_cpus="0-7",
    core_cpus={0: "0-1", 1: "0-1"},
    thread_siblings={4: "4-5", 5: "4-5"},
    cpus_allowed="0-7",
    mems_allowed="0-1",
)
FULL_FILES = [
    *(f"{NODE}/{name}" for name in ("online", "possible", "has_memory")),
    *(f"{NODE}/node0/{name}" for name in ("cpulist", "meminfo", "distance")),
    f"{NODE}/node1/cpumap",
    "sys/devices/system/cpu/online",
    "sys/devices/system/cpu/cpu0/topology/core_cpus_list",
    "sys/devices/system/cpu/cpu4/topology/thread_siblings_list",
    "proc/self/status",
]


@pytest.mark.parametrize("path", FULL_FILES)
def test_any_file_may_be_cut_or_garbage(topology: Dump, tmp_path: Path, path: str) -> None:
    """It is read, or refused with one line that names the file; the sanitizers see the rest."""
    root = FULL.write(tmp_path)
    assert topology.error(root) is None
    whole = (root / path).read_bytes()
    texts = [whole[:length] for length in range(0, len(whole), 1 if len(whole) < 200 else 7)]
    texts += [whole + b"\xff\xfe", b"\0" + whole, b"\0" * 4096, b"-" * 5000, b"9" * 5000, b"," * 5000, b"\n" * 5000]
    refused = 0
    for text in texts:
        (root / path).write_bytes(text)
        reason = topology.error(root)
        refused += reason is not None
        assert reason is None or reason.startswith((path, "sys/devices/system/cpu: no CPUs found"))
    assert refused > 0


# --- this machine ---

linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /sys and an affinity to read")


@linux
def test_this_machine(topology: Dump) -> None:
    machine = topology.read("")
    cpus = {cpu for node in machine["nodes"] for cpu in node["cpus"]}
    assert set(machine["allowed_cpus"]) == os.sched_getaffinity(0)
    assert cpus >= os.sched_getaffinity(0)
    assert sum(column(machine, "mem_bytes")) > 0
    assert any(column(machine, "mem_allowed"))
    for node in machine["nodes"]:
        assert node["free_bytes"] <= node["avail_bytes"] <= node["mem_bytes"]


@linux
@pytest.mark.skipif(shutil.which("taskset") is None, reason="no taskset (util-linux)")
def test_affinity_of_this_process(topology: Dump) -> None:
    one = max(os.sched_getaffinity(0))
    machine = topology.read("", within=["taskset", "--cpu-list", str(one)])
    assert machine["allowed_cpus"] == [one]
    assert sum(column(machine, "cpus_allowed")) == 1


@linux
def test_without_sys(topology: Dump) -> None:
    """Where /sys cannot be seen there is one node still: by our affinity and /proc/meminfo."""
    hide = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /sys && exec "$@"', "sh"]
    if shutil.which("unshare") is None or subprocess.run([*hide, "true"], capture_output=True).returncode != 0:
        pytest.skip("hiding /sys needs unshare (util-linux) and the right to mount")
    machine = topology.read("", within=hide)
    [node] = machine["nodes"]
    assert set(node["cpus"]) == set(machine["allowed_cpus"]) == os.sched_getaffinity(0)
    assert node["mem_bytes"] == os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
