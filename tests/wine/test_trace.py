"""What the Windows program asks of Windows, call by call: memory, files and threads of node 1, by weights mode.

A machine with two nodes is made up. Wine ignores the node that memory is asked for on; that it was asked for, on every
way to memory there is, and that all of it is given back, its trace tells.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tests.wine import host, ledger, relay
from tests.wine.program import WindowsProgram
from tools import models

pytestmark = pytest.mark.wine

NODE = 1
WORKERS = 3
BOUND = ("--numa-node", str(NODE), "-t", str(WORKERS))
GENERATE = ("-p", "one", "-n", "1", "-c", "256")  # workers share a CPU and wait for each other: as little as can be
LARGE = 1 << 20  # bytes
LARGEST_TENSOR = 1024 * 3072 * 18 // 32  # bytes of the model
PAGE = 4096
SECTOR = 4096
NO_BUFFERING = 0x20000000
OVERLAPPED = 0x40000000

FILES = ("CreateFileW", "ReOpenFile", "ReadFile", "GetOverlappedResult")
THREADS = ("CreateThread", "SetThreadGroupAffinity", "SetThreadIdealProcessorEx")
LOOKS = ("PrefetchVirtualMemory", "K32QueryWorkingSetEx")
SHOWN = (*ledger.SHOWN, *(f"kernel32.{name}" for name in (*FILES, *THREADS, *LOOKS)))


@dataclass(frozen=True)
class Traced:
    """A run: its report, the calls of its process, what became of its memory."""

    report: dict[str, Any]
    trace: relay.Trace
    ledger: ledger.Ledger

    def calls(self, *functions: str) -> list[relay.Call]:
        return self.trace.of(*functions)

    @property
    def looked(self) -> int:
        """The line at which the verdict is made."""
        return self.calls("K32QueryWorkingSetEx")[-1].began

    @property
    def main(self) -> int:
        return self.trace.calls[0].thread


def run(program: WindowsProgram, folder: Path, model: Path, *flags: str, shown: Sequence[str] = SHOWN) -> Traced:
    file = folder / "report.json"
    traced = replace(program, prefix=host.prefix(*shown), debug="+relay,+pid")
    done = traced.ok(*flags, "--numa-report", file, "-m", model, *GENERATE)
    everything = relay.parse(done.stderr.splitlines())
    # The first process is the program; wineboot comes later.
    first = min(call.process for call in everything.calls)
    trace = relay.Trace(
        [call for call in everything.calls if call.process == first],
        [start for start in everything.starts if start[0] == first],
    )
    return Traced(json.loads(file.read_text(encoding="utf-8")), trace, ledger.ledger(trace))


@pytest.fixture(scope="module")
def model() -> Path:
    """One whose tensors are large enough to be told from small change."""
    return models.synthetic_model(32)


@pytest.fixture(scope="module")
def mapped(two_nodes: WindowsProgram, model: Path, tmp_path_factory: pytest.TempPathFactory) -> Traced:
    return run(two_nodes, tmp_path_factory.mktemp("map"), model, "--numa-weights", "map", *BOUND)


@pytest.fixture(scope="module")
def copied(two_nodes: WindowsProgram, model: Path, tmp_path_factory: pytest.TempPathFactory) -> Traced:
    return run(two_nodes, tmp_path_factory.mktemp("copy"), model, "--numa-weights", "copy", *BOUND)


@pytest.fixture(params=["map", "copy"])
def either(request: pytest.FixtureRequest) -> Traced:
    traced: Traced = request.getfixturevalue({"map": "mapped", "copy": "copied"}[request.param])
    return traced


def test_without_a_node_it_is_all_otherwise(windows: WindowsProgram, model: Path, tmp_path: Path) -> None:
    """The assertions below would see it."""
    free = run(windows, tmp_path, model, "--numa-node", "none", "-t", "1")
    assert free.ledger.held == []
    assert free.calls("CreateFileMappingA")
    assert free.calls("MapViewOfFile")
    assert free.calls("SetThreadGroupAffinity") == []
    assert sum(block.size for block in ledger.blocks(free.trace, LARGE)) > 2 * model.stat().st_size


def nodes(held: Sequence[ledger.Held]) -> set[int]:
    return {node for one in held for node in one.nodes}


# --- memory ----------------------------------------------------------------------------------------------------------


def test_all_memory_asks_for_the_node(either: Traced) -> None:
    regions = either.ledger.of("VirtualAllocExNuma")
    assert nodes(regions) == {NODE}
    # What the verdict speaks of is there, each region whole.
    sizes = [region["bytes"] for region in either.report["regions"] if region["name"] in ("kv", "compute", "repack")]
    assert sum(one.committed for one in regions) >= sum(sizes) > 0


def test_no_large_memory_comes_another_way(either: Traced) -> None:
    """But for one block of the main thread, which is bound: llama.cpp keeps there what the graph is made of."""
    there = [
        block for block in ledger.blocks(either.trace, LARGE) if block.ended is None or block.ended > either.looked
    ]
    sizes = {region["bytes"] for region in either.report["regions"]}
    assert [block.thread for block in there] == [either.main]
    assert not [block for block in there if any(size <= block.size < size + 2 * PAGE for size in sizes)]


def test_what_passes_through_other_memory(mapped: Traced, copied: Traced) -> None:
    """Copies of weights that are repacked, a tensor at a time, and reads that begin or end within a sector."""
    graph, *others = gone(mapped)
    assert (graph.thread, others) == (mapped.main, [])
    through = [block for block in gone(copied) if block.size != graph.size]
    assert max(block.size for block in through) <= LARGEST_TENSOR
    at_once = [sum(one.began <= block.began < (one.ended or 0) for one in through) for block in through]
    assert max(at_once) <= 2


def gone(traced: Traced) -> list[ledger.Block]:
    """Large blocks that are there no more when the verdict is made."""
    return [one for one in ledger.blocks(traced.trace, LARGE) if one.ended is not None and one.ended < traced.looked]


def test_everything_is_given_back(either: Traced) -> None:
    assert either.ledger.held
    assert [one for one in either.ledger.held if not one.released] == []
    assert either.ledger.refused == []


# --- weights ---------------------------------------------------------------------------------------------------------


def test_a_mapping_asks_for_the_node(mapped: Traced, model: Path) -> None:
    sections, views = mapped.ledger.of("CreateFileMappingNumaW"), mapped.ledger.of("MapViewOfFileExNuma")
    assert (len(sections), len(views)) == (1, 1)
    assert nodes(sections) == nodes(views) == {NODE}
    assert mapped.calls(*ledger.MAPPING_ANYWHERE) == []
    assert mapped.calls("PrefetchVirtualMemory")
    assert mapped.report["weights_mode"] == "map"


def test_a_copy_maps_nothing(copied: Traced) -> None:
    assert copied.ledger.of("CreateFileMappingNumaW") == copied.ledger.of("MapViewOfFileExNuma") == []
    assert copied.calls(*ledger.MAPPING_ANYWHERE) == []
    assert copied.report["weights_mode"] == "copy"


def direct_reads(traced: Traced) -> list[relay.Call]:
    """Reads that leave nothing in the file cache."""
    direct = NO_BUFFERING | OVERLAPPED
    files = {call.returned for call in traced.calls("ReOpenFile") if call.low(3) & direct == direct}
    return [call for call in traced.calls("ReadFile") if call.arguments[0] in files]


def test_a_copy_is_read_past_the_cache(copied: Traced, model: Path) -> None:
    """By overlapped reads of whole sectors, to memory that begins with a sector."""
    reads = direct_reads(copied)
    assert all(call.low(2) % SECTOR == 0 and call.arguments[1] % SECTOR == 0 for call in reads)
    assert all(call.arguments[4] for call in reads)  # OVERLAPPED
    assert sum(call.low(2) for call in reads) >= 0.9 * model.stat().st_size


def test_several_reads_are_in_flight(copied: Traced) -> None:
    begun = [(call.began, 1) for call in direct_reads(copied)]
    ended = [(call.ended or 0, -1) for call in copied.calls("GetOverlappedResult")]
    in_flight = itertools.accumulate(change for _, change in sorted(begun + ended))
    assert max(in_flight) >= 4


def test_files_are_closed(copied: Traced) -> None:
    opened = Counter(call.returned or 0 for call in copied.calls("ReOpenFile"))
    closed = Counter(call.arguments[0] for call in copied.calls("CloseHandle"))
    assert opened
    assert not opened - closed


@pytest.mark.real_model
def test_a_real_model_is_read_straight_to_its_place(two_nodes: WindowsProgram, tmp_path: Path) -> None:
    """Its weights lie as the disk wants them, and few are repacked, so there is no buffer in between."""
    without_heap = [name for name in SHOWN if not name.startswith("ntdll.")]
    model, flags = models.real_model(), ("--numa-node", str(NODE), "--numa-weights", "copy", "-t", "1")
    traced = run(two_nodes, tmp_path, model, *flags, shown=without_heap)
    reads = direct_reads(traced)
    regions = traced.ledger.of("VirtualAllocExNuma")
    to = [next((one for one in regions if one.name <= call.arguments[1] < one.name + one.size), None) for call in reads]
    straight = sum(call.low(2) for call, region in zip(reads, to, strict=True) if region)
    assert straight >= 0.9 * model.stat().st_size
    assert nodes(regions) == {NODE}


# --- threads ---------------------------------------------------------------------------------------------------------


def test_every_worker_binds_itself(either: Traced) -> None:
    bound = {call.thread for call in either.calls("SetThreadGroupAffinity") if call.returned}
    begun = {thread: address for _, thread, address in either.trace.starts}
    workers = {begun[thread] for thread in bound - {either.main}}
    assert len(workers) == 1  # all begin with the same function
    assert {thread for thread, address in begun.items() if address in workers} == bound - {either.main}
    assert len(bound) == WORKERS
    assert either.report["threads"] == {"workers": WORKERS, "bound": WORKERS}
    assert bound <= {call.thread for call in either.calls("SetThreadIdealProcessorEx")}


def test_the_process_is_bound_before_anything_else(either: Traced) -> None:
    first = either.calls("SetThreadGroupAffinity")[0]
    assert first.thread == either.main
    later = either.calls("VirtualAllocExNuma", "CreateFileMappingNumaW", "CreateThread", "ReOpenFile")
    assert all(first.began < call.began for call in later)
