"""What the core makes of the records in which Windows describes a machine.

Runs on any OS: the records are composed here, some after machines of which people have shown what Windows says.
"""

import json
import struct
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.core import cc

CORE, NUMA_NODE, CACHE, PACKAGE, GROUP, NUMA_NODE_EX = 0, 1, 2, 3, 4, 6  # LOGICAL_PROCESSOR_RELATIONSHIP
GIB = 1 << 30

Part = tuple[int, int]  # processor group, mask of CPUs in it


def bits(first: int, count: int) -> int:
    """The mask of `count` CPUs from `first` on."""
    return (1 << count) - 1 << first


def record(
    kind: int, head: bytes, parts: Sequence[Part], *, groups: int | None = None, size: int | None = None
) -> bytes:
    """A record with the parts; `groups`: what its GroupCount says, `size`: what its Size says, right or not."""
    masks = b"".join(struct.pack("<QH6x", mask, group) for group, mask in parts)
    body = head.ljust(22, b"\0") + struct.pack("<H", len(parts) if groups is None else groups) + masks
    return struct.pack("<II", kind, len(body) + 8 if size is None else size) + body


def node(number: int, *parts: Part, kind: int = NUMA_NODE, groups: int | None = None, size: int | None = None) -> bytes:
    return record(kind, struct.pack("<I", number), parts, groups=groups, size=size)


def core(group: int, mask: int) -> bytes:
    hyperthreads = mask.bit_count() > 1
    return record(CORE, bytes([hyperthreads]), [(group, mask)])


def pairs(group: int, cpus: int) -> list[bytes]:
    """Cores of two CPUs each, side by side as Windows numbers them."""
    return [core(group, 0b11 << cpu) for cpu in range(0, cpus, 2)]


@dataclass(frozen=True)
class Reader:
    """The program topology_windows_dump, and a folder for its files."""

    program: Path
    folder: Path

    def run(
        self,
        nodes: bytes | Iterable[bytes] | None,
        cores: bytes | Iterable[bytes] | None = None,
        *,
        total: int = 64 * GIB,
        allowed: str = "all",
        free: Mapping[int, int] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        files = [self._write("nodes", nodes), self._write("cores", cores)]
        amounts = [f"{number}={bytes}" for number, bytes in (free or {}).items()]
        command = [str(self.program), *files, str(total), allowed, *amounts]
        return subprocess.run(command, capture_output=True, text=True, errors="replace")

    def read(self, nodes: bytes | Iterable[bytes] | None, *args: Any, **options: Any) -> dict[str, Any]:
        done = self.run(nodes, *args, **options)
        assert (done.returncode, done.stderr) == (0, "")
        machine: dict[str, Any] = json.loads(done.stdout)
        return machine

    def error(self, nodes: bytes | Iterable[bytes] | None, *args: Any) -> str | None:
        """Why the records were refused; None where they were not."""
        done = self.run(nodes, *args)
        if done.returncode == 0:
            return None
        assert (done.returncode, done.stdout) == (1, ""), done.stderr
        assert done.stderr.startswith("error: ")
        assert done.stderr.count("\n") == 1
        return done.stderr.removeprefix("error: ").removesuffix("\n")

    def _write(self, name: str, records: bytes | Iterable[bytes] | None) -> str:
        if records is None:
            return "-"
        path = self.folder / name
        path.write_bytes(records if isinstance(records, bytes) else b"".join(records))
        return str(path)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    sources = [cc.HERE / "topology_windows_dump.c", *cc.core("topology_windows.c", "topology.c", "node_set.c")]
    return cc.compile(sources, into=tmp_path_factory.mktemp("topology_windows_dump"))


@pytest.fixture
def windows(program: Path, tmp_path: Path) -> Reader:
    return Reader(program, tmp_path)


def column(machine: dict[str, Any], key: str) -> list[Any]:
    return [node[key] for node in machine["nodes"]]


# --- machines ---

TWO_SOCKETS = [node(0, (0, bits(0, 40))), node(1, (1, bits(0, 40)))]
TWO_SOCKET_CORES = [*pairs(0, 40), *pairs(1, 40)]


def test_two_sockets_in_two_groups(windows: Reader) -> None:
    """2 x 40 logical CPUs: more than a group holds, so each node has one of its own."""
    machine = windows.read(TWO_SOCKETS, TWO_SOCKET_CORES, total=512 * GIB, free={0: 100 * GIB, 1: 200 * GIB})
    [zero, one] = machine["nodes"]
    assert zero == {
        "node": 0,
        "cpus": "0-39",
        "cores": ",".join(map(str, range(0, 40, 2))),
        "group": 0,
        "mem_bytes": 256 * GIB,
        "free_bytes": 100 * GIB,
        "avail_bytes": 100 * GIB,
        "cpus_allowed": True,
        "mem_allowed": True,
        "distance": [10, 0],
    }
    assert one["cpus"] == "64-103"
    assert one["cores"] == ",".join(map(str, range(64, 104, 2)))
    assert (one["group"], one["distance"]) == (1, [0, 10])
    assert machine["allowed_cpus"] == "0-39,64-103"
    assert (machine["confined"], machine["emptiest"]) == (-1, 1)


def test_two_sockets_of_36(windows: Reader) -> None:
    """As Windows described a machine with two sockets of 18 cores: masks 68719476735 in groups 0 and 1."""
    machine = windows.read([node(0, (0, 68719476735)), node(1, (1, 68719476735))], [*pairs(0, 36), *pairs(1, 36)])
    assert column(machine, "cpus") == ["0-35", "64-99"]
    assert [cores.count(",") + 1 for cores in column(machine, "cores")] == [18, 18]


def test_two_nodes_in_one_group(windows: Reader) -> None:
    machine = windows.read([node(0, (0, bits(0, 32))), node(1, (0, bits(32, 32)))])
    assert column(machine, "cpus") == ["0-31", "32-63"]
    assert column(machine, "group") == [0, 0]


def test_node_over_two_groups(windows: Reader) -> None:
    """One node of 128 CPUs as Windows 11 tells it: groups that belong to one node add up."""
    machine = windows.read([node(0, (0, bits(0, 64)), (1, bits(0, 64)))], [*pairs(0, 64), *pairs(1, 64)])
    [only] = machine["nodes"]
    assert (only["cpus"], only["group"], only["cores"].count(",") + 1) == ("0-127", 0, 64)


def test_node_in_two_records(windows: Reader) -> None:
    machine = windows.read([node(0, (1, bits(0, 64))), node(0, (0, bits(0, 64)))])
    assert column(machine, "cpus") == ["0-127"]


def test_node_split_by_windows_10(windows: Reader) -> None:
    """The same machine before build 20348: two nodes, the second of which is made up and has no memory of its own."""
    machine = windows.read(
        [node(0, (0, bits(0, 64))), node(1, (1, bits(0, 64)))], total=256 * GIB, free={0: 90 * GIB, 1: 0}
    )
    assert column(machine, "cpus") == ["0-63", "64-127"]
    assert column(machine, "mem_bytes") == [256 * GIB, 0]
    assert column(machine, "mem_allowed") == [True, False]
    assert machine["emptiest"] == 0


def test_four_sockets(windows: Reader) -> None:
    """144 CPUs: no two nodes of 36 fit into one group, so Windows makes four."""
    nodes = [node(number, (number, bits(0, 36))) for number in range(4)]
    cores = [core for group in range(4) for core in pairs(group, 36)]
    machine = windows.read(nodes, cores, free={number: (number + 1) * GIB for number in range(4)})
    assert column(machine, "cpus") == ["0-35", "64-99", "128-163", "192-227"]
    assert column(machine, "group") == [0, 1, 2, 3]
    assert [cores.count(",") + 1 for cores in column(machine, "cores")] == [18] * 4
    assert machine["emptiest"] == 3


def test_sparse_and_unordered(windows: Reader) -> None:
    machine = windows.read([node(10, (1, 0b1100)), node(0, (0, 0b11)), node(2, (0, 0b1100))])
    assert column(machine, "node") == [0, 2, 10]
    assert column(machine, "cpus") == ["0-1", "2-3", "66-67"]


def test_empty_node(windows: Reader) -> None:
    """A slot without CPUs (mask 0), and one without CPUs and memory."""
    machine = windows.read(
        [node(0, (0, 0b11)), node(1, (0, 0)), node(2, (0, 0))], total=10 * GIB, free={0: GIB, 1: GIB, 2: 0}
    )
    assert column(machine, "cpus") == ["0-1", "", ""]
    assert column(machine, "cores") == ["0-1", "", ""]
    assert column(machine, "mem_bytes") == [5 * GIB, 5 * GIB, 0]
    assert column(machine, "cpus_allowed") == [True, False, False]
    assert column(machine, "mem_allowed") == [True, True, False]
    assert machine["confined"] == -1


def test_group_count_zero(windows: Reader) -> None:
    """Before build 20348 the count is reserved, and 0; the one mask is there."""
    machine = windows.read([node(0, (0, bits(0, 40)), groups=0), node(1, (1, bits(0, 40)), groups=0)], TWO_SOCKET_CORES)
    assert column(machine, "cpus") == ["0-39", "64-103"]


@pytest.mark.parametrize("kind", [NUMA_NODE, NUMA_NODE_EX])
def test_kinds_of_nodes(windows: Reader, kind: int) -> None:
    assert column(windows.read([node(3, (0, 1), kind=kind)]), "node") == [3]


def test_other_records_are_stepped_over(windows: Reader) -> None:
    others = [
        struct.pack("<II", CACHE, 52) + b"\xff" * 44,
        struct.pack("<II", GROUP, 8),
        record(PACKAGE, b"", [(0, 0xFF)]),
        struct.pack("<II", 0x12345678, 13) + b"\xff" * 5,  # which also puts the next record at an odd address
        core(0, 0b11),
    ]
    machine = windows.read([*others, node(0, (0, 0b11)), *others], [node(5, (0, 4)), *others])
    assert column(machine, "cpus") == ["0-1"]
    assert column(machine, "cores") == ["0"]


def test_longer_records(windows: Reader) -> None:
    """What a later Windows may append to a record is no part of it yet."""
    longer = node(0, (0, 0b11), (0, 0b1100), groups=1)
    assert column(windows.read([longer, node(1, (0, 0b10000))]), "cpus") == ["0-1", "4"]


# --- cores ---


def test_without_cores(windows: Reader) -> None:
    assert column(windows.read([node(0, (0, 0b1111))], None), "cores") == ["0-3"]


def test_cpus_in_no_core(windows: Reader) -> None:
    assert column(windows.read([node(0, (0, 0b11111))], [core(0, 0b110)]), "cores") == ["0-1,3-4"]


def test_core_is_its_lowest_allowed_cpu(windows: Reader) -> None:
    machine = windows.read([node(0, (0, 0xFF))], pairs(0, 8), allowed="1,3,4-5")
    assert column(machine, "cores") == ["1,3-4,6"]
    assert machine["allowed_cpus"] == "1,3-5"


def test_core_over_two_nodes(windows: Reader) -> None:
    machine = windows.read([node(0, (0, 0b0011)), node(1, (0, 0b1100))], [core(0, 0b0110)])
    assert column(machine, "cores") == ["0-1", "2-3"]


# --- what this process may use ---


@pytest.mark.parametrize(
    ("allowed", "confined"),
    [
        ("all", -1),
        ("0-39", 0),
        ("3", 0),
        ("64-103", 1),
        ("64", 1),
        ("0,64", -1),
        ("0-103", -1),
        ("", -1),
        ("40-63", -1),
    ],
)
def test_confined(windows: Reader, allowed: str, confined: int) -> None:
    machine = windows.read(TWO_SOCKETS, TWO_SOCKET_CORES, allowed=allowed)
    assert machine["confined"] == confined
    assert column(machine, "mem_allowed") == [True, True]


def test_allowed_cpus_are_those_there_are(windows: Reader) -> None:
    machine = windows.read(TWO_SOCKETS, TWO_SOCKET_CORES, allowed="0-8191")
    assert machine["allowed_cpus"] == "0-39,64-103"
    assert column(machine, "cpus_allowed") == [True, True]


# --- memory ---


@pytest.mark.parametrize(
    ("free", "mem_bytes"),
    [
        ({}, [32, 32]),  # not known of any: an equal share
        ({0: 1, 1: 1}, [32, 32]),
        ({0: 1}, [32, 32]),
        ({0: 0, 1: 1}, [0, 64]),  # known to have none
        ({0: 0}, [0, 64]),
        ({0: 40, 1: 1}, [40, 32]),  # more is free than an equal share
        ({0: 0, 1: 0}, [0, 0]),
    ],
)
def test_memory(windows: Reader, free: dict[int, int], mem_bytes: list[int]) -> None:
    machine = windows.read(TWO_SOCKETS, free={number: gib * GIB for number, gib in free.items()})
    assert column(machine, "mem_bytes") == [gib * GIB for gib in mem_bytes]
    assert column(machine, "free_bytes") == [free.get(number, 0) * GIB for number in (0, 1)]
    assert column(machine, "avail_bytes") == column(machine, "free_bytes")


# --- records that make no sense ---

NODES = "Windows lists the NUMA nodes of this machine in a way that makes no sense: "


@pytest.mark.parametrize(
    ("nodes", "reason"),
    [
        (None, "Windows lists no NUMA node of this machine"),
        (b"", "Windows lists no NUMA node of this machine"),
        (core(0, 1), "Windows lists no NUMA node of this machine"),
        (b"\1", NODES + "a record is cut short"),
        (node(0, (0, 1)) + b"\1\0\0\0", NODES + "a record is cut short"),
        (node(0, (0, 1), size=0), NODES + "a record without a size"),
        (node(0, (0, 1), size=7), NODES + "a record without a size"),
        (node(0, (0, 1), size=49), NODES + "a record that goes past the end"),
        (node(0, (0, 1), size=0xFFFFFFFF), NODES + "a record that goes past the end"),
        (node(0, (0, 1)) + node(1, (0, 2))[:-1], NODES + "a record that goes past the end"),
        (struct.pack("<II", NUMA_NODE, 8), NODES + "a record is cut short"),
        (struct.pack("<IIII", NUMA_NODE, 31, 0, 0).ljust(31, b"\0"), NODES + "a record is cut short"),
        (node(0), NODES + "a record with more groups than fit into it"),
        (node(0, (0, 1), groups=2), NODES + "a record with more groups than fit into it"),
        (node(0, (0, 1), groups=0xFFFF), NODES + "a record with more groups than fit into it"),
        (node(0, (128, 1)), NODES + "a processor group beyond any there are"),
        (node(1024, (0, 1)), NODES + "a node number beyond any there are"),
        (node(0xFFFFFFFF, (0, 1)), NODES + "a node number beyond any there are"),
    ],
)
def test_refused(windows: Reader, nodes: bytes | None, reason: str) -> None:
    assert windows.error(nodes) == reason


def test_refused_cores(windows: Reader) -> None:
    reason = "Windows lists the cores of this machine in a way that makes no sense: a record that goes past the end"
    assert windows.error([node(0, (0, 1))], core(0, 1)[:-1]) == reason


def test_highest_numbers(windows: Reader) -> None:
    machine = windows.read([node(1023, (127, 1 << 63))])
    assert (column(machine, "node"), column(machine, "cpus")) == ([1023], ["8191"])


def test_cut_anywhere(windows: Reader) -> None:
    """Every beginning of the records is read or refused with one line; the sanitizers see the rest."""
    whole = b"".join([*TWO_SOCKETS, node(2, (0, 1 << 50), (1, 1 << 50))])
    ends = {48, 96, 160}
    for length in range(len(whole) + 1):
        assert (windows.error(whole[:length]) is None) == (length in ends), length


SEEDS = [
    b"\0\xff" + b"".join(TWO_SOCKETS),
    b"\1\x80" + node(0, (0, 0xFF), (1, 0xFF), kind=NUMA_NODE_EX) + b"".join(pairs(0, 4)),
    b"\x1f\x80" + node(7, (1, 0xF0), groups=0) + core(1, 0x30),
    b"\x0a\x60" + node(3, (0, 0)) + b"".join([core(0, 1), core(0, 2), core(5, 4)]),
]


def test_fuzz(tmp_path: Path) -> None:
    sources = [cc.HERE / "fuzz_topology_windows.c", *cc.core("topology_windows.c", "topology.c", "node_set.c")]
    program = cc.compile_fuzzer(sources, into=tmp_path)
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    for number, seed in enumerate(SEEDS):
        (corpus / str(number)).write_bytes(seed)
    runs = 100_000
    command = [str(program), f"-runs={runs}", "-max_len=512", f"-artifact_prefix={tmp_path}/", str(corpus)]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace")
    assert done.returncode == 0, done.stderr[-4000:]
    assert f"Done {runs} runs" in done.stderr
