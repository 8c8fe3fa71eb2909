"""What was seen of a process from outside: numa_maps, move_pages and the CPUs of its threads, parsed and summed."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tools.lab.scenario import cpu_list

PAGE = 4096  # bytes

# An anonymous mapping with at least so many pages (1 MiB) in memory is a buffer; smaller ones belong to malloc, stacks
# and libraries, which no node was asked for.
BUFFER_PAGES = 256

NO_IMAGE = range(0)

# "prefer (many):0-1" is the one policy with a space in it.
NUMA_MAPS_LINE = re.compile(r"([0-9a-f]+) (prefer \(many\)\S*|\S+)(.*)")


@dataclass(frozen=True)
class Area:
    """A line of numa_maps: first address, policy, file (None for anonymous memory), name such as `heap`, and the pages
    (of 4 KiB, huge ones counted by their parts) in memory per node."""

    start: int
    policy: str
    file: str | None
    name: str | None
    pages: Mapping[int, int]


@dataclass(frozen=True)
class Thread:
    name: str
    cpus: frozenset[int]


def parse_numa_maps(text: str) -> list[Area]:
    """All mappings of a /proc/PID/numa_maps."""
    return [parse_numa_maps_line(line) for line in text.splitlines() if line.strip()]


def parse_numa_maps_line(line: str) -> Area:
    matched = NUMA_MAPS_LINE.fullmatch(line.strip())
    if not matched:
        raise ValueError(f"no line of numa_maps: {line!r}")
    start, policy, rest = matched.groups()
    file = name = None
    size = PAGE
    pages: dict[int, int] = {}
    for word in rest.split():
        key, _, value = word.partition("=")
        if key == "file":
            file = re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), value)
        elif key in ("heap", "stack"):
            name = key
        elif key == "kernelpagesize_kB":
            size = int(value) * 1024
        elif re.fullmatch(r"N\d+", key):
            pages[int(key[1:])] = int(value)
    # Only hugetlbfs has larger kernel pages; transparent huge pages are counted in small ones already.
    return Area(int(start, 16), policy, file, name, {node: count * size // PAGE for node, count in pages.items()})


def parse_pages(text: str) -> dict[int, dict[int, int]]:
    """Output of guest/pages.c: pages per node, by first address. Pages that are not there are left out."""
    result = {}
    for line in text.splitlines():
        start, *words = line.split()
        counts = (word.removeprefix("N").split("=") for word in words if word.startswith("N"))
        result[int(start, 16)] = {int(node): int(count) for node, count in counts}
    return result


def parse_threads(text: str) -> list[Thread]:
    """The `Name:` and `Cpus_allowed_list:` lines of a process's /proc/PID/task/*/status."""
    values = [line.partition(":")[2].strip() for line in text.splitlines()]
    return [Thread(name, cpu_list(cpus)) for name, cpus in zip(values[::2], values[1::2], strict=True)]


def kind(mapping: Area, model: str, image: range = NO_IMAGE) -> str:
    """`model`: the mapped file of that name; `buffers`: large anonymous memory; `rest`: everything else.

    image: addresses of a Windows program, which Wine does not map but reads.
    """
    if mapping.file == model:
        return "model"
    if mapping.start in image or mapping.file or mapping.name or sum(mapping.pages.values()) < BUFFER_PAGES:
        return "rest"
    return "buffers"


@dataclass(frozen=True)
class Seen:
    """Pages per node: of the model's mapping and of buffers, by numa_maps and by move_pages.

    hinted: some of it has no memory policy. The kernel may have marked pages there to find out who uses them (NUMA
    balancing); move_pages of Linux 6.1 takes a marked page for one that is not there.
    """

    model: Mapping[int, int]
    buffers: Mapping[int, int]
    model_moved: Mapping[int, int]
    buffers_moved: Mapping[int, int]
    threads: tuple[Thread, ...]
    hinted: bool


def see(numa_maps: str, pages: str, threads: str, model: str, image: range = NO_IMAGE) -> Seen:
    """Sum up what the guest sent; `model` is the path of the model there, `image` as in kind()."""
    mappings = parse_numa_maps(numa_maps)
    asked = parse_pages(pages)
    kinds = {wanted: [one for one in mappings if kind(one, model, image) == wanted] for wanted in ("model", "buffers")}

    def by_numa_maps(wanted: str) -> dict[int, int]:
        return total(one.pages for one in kinds[wanted])

    def by_move_pages(wanted: str) -> dict[int, int]:
        return total(asked.get(one.start, {}) for one in kinds[wanted])

    return Seen(
        by_numa_maps("model"),
        by_numa_maps("buffers"),
        by_move_pages("model"),
        by_move_pages("buffers"),
        tuple(parse_threads(threads)),
        any(one.policy == "default" for areas in kinds.values() for one in areas),
    )


def total(counts: Iterable[Mapping[int, int]]) -> dict[int, int]:
    result: Counter[int] = Counter()
    for one in counts:
        result.update(one)
    return dict(sorted(result.items()))


def share(counts: Mapping[int, int], node: int) -> float | None:
    """Per cent of the pages that are on `node`; None where there are no pages."""
    everywhere = sum(counts.values())
    return 100 * counts.get(node, 0) / everywhere if everywhere else None
