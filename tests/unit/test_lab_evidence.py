"""What the lab sees from outside: numa_maps, move_pages and threads, parsed and summed."""

from __future__ import annotations

import pytest

from tools.lab.evidence import (
    Area,
    Thread,
    kind,
    parse_numa_maps,
    parse_numa_maps_line,
    parse_pages,
    parse_threads,
    see,
    share,
)

MODEL = "/disk/model.gguf"

# Lines as kernel 6.1 writes them.
NUMA_MAPS = """\
55d0c8a3a000 bind:1 file=/opt/llama/llama mapped=23 N0=23 kernelpagesize_kB=4
55d0ca000000 bind:1 heap anon=1200 dirty=1200 N1=1200 kernelpagesize_kB=4
7f3a00000000 bind:1 anon=5888 dirty=5888 N0=64 N1=5824 kernelpagesize_kB=4
7f3a10000000 bind:1
7f3a20000000 bind:1 anon=40 dirty=40 N1=40 kernelpagesize_kB=4
7f3a30000000 bind:1 file=/disk/model.gguf mapped=60203 N0=203 N1=60000 kernelpagesize_kB=4
7ffd1c5f0000 bind:1 stack anon=5 dirty=5 N1=5 kernelpagesize_kB=4
"""

PAGES = """\
7f3a00000000 N0=64 N1=5824 absent=12
7f3a10000000 absent=2048
7f3a20000000 N1=40 absent=0
7f3a30000000 N0=203 N1=60000 absent=0
"""

THREADS = "Name:\tllama\nCpus_allowed_list:\t2-3\nName:\tworker: 1\nCpus_allowed_list:\t0,2\n"


def test_a_mapped_file() -> None:
    line = "7f3a30000000 bind:1 file=/disk/model.gguf mapped=60203 N0=203 N1=60000 kernelpagesize_kB=4"
    assert parse_numa_maps_line(line) == Area(0x7F3A30000000, "bind:1", MODEL, None, {0: 203, 1: 60000})


def test_anonymous_memory_has_no_file_and_perhaps_a_name() -> None:
    anonymous, heap = parse_numa_maps(
        "7f0000000000 default anon=3 dirty=3 N0=3 kernelpagesize_kB=4\n55d0ca000000 default heap N2=1 N10=2\n"
    )
    assert (anonymous.file, anonymous.name, anonymous.pages) == (None, None, {0: 3})
    assert (heap.name, heap.pages) == ("heap", {2: 1, 10: 2})


@pytest.mark.parametrize(
    "policy", ["default", "bind:0-1", "prefer:1", "interleave:0-3", "bind=static:0", "prefer (many):0-1", "local"]
)
def test_policies(policy: str) -> None:
    area = parse_numa_maps_line(f"7f0000000000 {policy} anon=7 dirty=7 N1=7 kernelpagesize_kB=4")
    assert (area.policy, area.pages) == (policy, {1: 7})


def test_a_mapping_with_nothing_in_memory() -> None:
    assert parse_numa_maps_line("7f3a10000000 prefer:1") == Area(0x7F3A10000000, "prefer:1", None, None, {})


def test_spaces_in_file_names_are_escaped_by_the_kernel() -> None:
    area = parse_numa_maps_line(r"7f0000000000 default file=/a\040b/x=1.gguf mapped=1 N0=1 kernelpagesize_kB=4")
    assert area.file == "/a b/x=1.gguf"


def test_hugetlbfs_counts_in_its_own_pages_transparent_huge_pages_in_small_ones() -> None:
    huge = parse_numa_maps_line(
        "7f0000000000 bind:0 file=/anon_hugepage huge anon=2 dirty=2 N0=2 kernelpagesize_kB=2048"
    )
    transparent = parse_numa_maps_line("7f0000000000 bind:0 anon=1024 dirty=1024 N0=1024 kernelpagesize_kB=4")
    assert huge.pages == transparent.pages == {0: 1024}


@pytest.mark.parametrize("line", ["", "nonsense", "7f00000000"])
def test_what_is_no_line_of_numa_maps(line: str) -> None:
    with pytest.raises(ValueError, match="no line of numa_maps"):
        parse_numa_maps_line(line)


def test_kinds() -> None:
    found = {area.start: kind(area, MODEL) for area in parse_numa_maps(NUMA_MAPS)}
    assert found == {
        0x55D0C8A3A000: "rest",  # the program
        0x55D0CA000000: "rest",  # malloc's heap, however large
        0x7F3A00000000: "buffers",
        0x7F3A10000000: "rest",  # nothing in memory
        0x7F3A20000000: "rest",  # small
        0x7F3A30000000: "model",
        0x7FFD1C5F0000: "rest",  # the stack
    }


def test_pages_that_are_not_there_do_not_count() -> None:
    assert parse_pages(PAGES)[0x7F3A00000000] == {0: 64, 1: 5824}
    assert parse_pages(PAGES)[0x7F3A10000000] == {}


def test_threads() -> None:
    assert parse_threads(THREADS) == [
        Thread("llama", frozenset({2, 3})),
        Thread("worker: 1", frozenset({0, 2})),
    ]


def test_both_witnesses_are_summed_over_the_same_mappings() -> None:
    seen = see(NUMA_MAPS, PAGES, THREADS, MODEL)
    assert seen.model == seen.model_moved == {0: 203, 1: 60000}
    assert seen.buffers == seen.buffers_moved == {0: 64, 1: 5824}
    assert len(seen.threads) == 2


def test_share() -> None:
    assert share({0: 1, 1: 3}, 1) == 75
    assert share({0: 4}, 1) == 0
    assert share({}, 1) is None
