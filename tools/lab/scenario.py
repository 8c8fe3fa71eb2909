"""Scenarios of the lab: the data files in scenarios/ and machines.toml, read and checked.

A scenario file:

    title = "What is shown"
    machine = "two"                               # a machine of machines.toml
    steps = ["cache model 0", "run unpatched", "drop", "run patched"]

    [run.unpatched]
    program = "llama"                             # the unpatched program; default: llamafile-numa. llamafile-numa.exe
                                                  # is the one for Windows, under Wine
    model = "synthetic"                            # one whose weights ggml rewrites when it loads them; default: model
    arguments = ["-t", "2"]
    under = ["numactl", "--membind=1"]            # a command that the program is started through
    selftest = true                                # --numa-selftest instead of a server; it ends by itself

    [run.unpatched.expect]                        # see Expect
    node = 1
    weights = 0

Steps: `drop` empties the page cache (each scenario begins so), `cache FILE NODE` reads a file so that its
cached pages lie on that node, `own FILE` gives it to the user that programs run as until the scenario ends,
`small-pages` keeps the kernel from making huge ones until then, `run NAME...` starts the named programs, looks at each
once all of them serve, and ends them.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from tools.fail import Fail

HERE = Path(__file__).parent
SCENARIOS = HERE / "scenarios"
MACHINES = HERE / "machines.toml"
PROGRAMS = ("llamafile-numa", "llama", "llamafile-numa.exe")
MODELS = ("model", "synthetic")
FILES = (*MODELS, "filler")


@dataclass(frozen=True)
class Node:
    """A node of a machine: `memory` in MiB (0: none), its CPUs (none: empty)."""

    memory: int
    cpus: frozenset[int]


@dataclass(frozen=True)
class Machine:
    name: str
    nodes: tuple[Node, ...]
    distances: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Expect:
    """What a run must show; what is not given is not asserted.

    exit: it ends with this code and serves nothing; otherwise it serves and generates.
    node: where `weights` and `buffers` are counted; their values are per cent of the pages there, as seen from outside.
    weights: pages of the model's file or, where the program says that it copied it, of the copy.
    buffers: large anonymous mappings (KV cache, compute buffers, repacked or copied weights).
    strays: so many pages of them may be elsewhere, where others than bound threads touch memory, too.
    threads: the node whose CPUs all threads are bound to.
    regions: what the report must name besides weights, kv and compute.
    report: entries of the program's report; a list stands for any of its values. A key "cells.*.seen" is an entry of
    each element of a list.
    says: what its stderr must match, each a regular expression.
    """

    exit: int | None = None
    node: int | None = None
    weights: float | None = None
    buffers: float | None = None
    strays: int = 0
    threads: int | None = None
    regions: tuple[str, ...] = ()
    report: Mapping[str, Any] | None = None
    says: tuple[str, ...] = ()


@dataclass(frozen=True)
class Run:
    name: str
    program: str
    model: str
    arguments: tuple[str, ...]
    under: tuple[str, ...]
    expect: Expect
    selftest: bool = False


@dataclass(frozen=True)
class Scenario:
    """`steps` are split into words and name only runs, files and nodes that there are."""

    name: str
    title: str
    machine: Machine
    steps: tuple[tuple[str, ...], ...]
    runs: Mapping[str, Run]


def names() -> list[str]:
    return sorted(file.stem for file in SCENARIOS.glob("*.toml"))


def load(name: str) -> Scenario:
    """A scenario by its name. Raises Fail if there is none or its file is not as it should be."""
    file = SCENARIOS / f"{name}.toml"
    if name not in names():
        raise Fail(f"there is no scenario {name!r}; there are: {', '.join(names())}", code=2)
    return parse(name, file.read_text(encoding="utf-8"), machines())


def machines() -> dict[str, Machine]:
    return parse_machines(MACHINES.read_text(encoding="utf-8"))


def parse(name: str, text: str, known: Mapping[str, Machine]) -> Scenario:
    """A scenario from the text of its file; `known` are the machines it may name."""
    where = f"scenario {name}"
    table = read_toml(text, where)
    only_keys(table, ("title", "machine", "steps", "run"), where)
    machine = known.get(table.get("machine", ""))
    if machine is None:
        raise Fail(f"{where}: no machine {table.get('machine')!r}; there are: {', '.join(known)}")
    runs = {run: parse_run(run, entry, machine, where) for run, entry in table.get("run", {}).items()}
    steps = tuple(parse_step(step, runs, machine, where) for step in table.get("steps", []))
    started = [run for step in steps if step[0] == "run" for run in step[1:]]
    if sorted(started) != sorted(runs) or not runs:
        raise Fail(f"{where}: each run is to be in one step; steps start {started}, runs are {list(runs)}")
    return Scenario(name, text_of(table, "title", where), machine, steps, runs)


def parse_run(name: str, table: Mapping[str, Any], machine: Machine, where: str) -> Run:
    where = f"{where}, run {name}"
    only_keys(table, ("program", "model", "arguments", "under", "selftest", "expect"), where)
    program = table.get("program", PROGRAMS[0])
    if program not in PROGRAMS:
        raise Fail(f"{where}: no program {program!r}; there are: {', '.join(PROGRAMS)}")
    model = table.get("model", MODELS[0])
    if model not in MODELS:
        raise Fail(f"{where}: no model {model!r}; there are: {', '.join(MODELS)}")
    if not re.fullmatch(r"[a-z0-9-]+", name):
        raise Fail(f"{where}: a name has lower-case letters, digits and '-' only")
    expect = parse_expect(table.get("expect", {}), machine, where)
    arguments, under = (tuple(table.get(key, ())) for key in ("arguments", "under"))
    return Run(name, program, model, arguments, under, expect, table.get("selftest", False))


def parse_expect(table: Mapping[str, Any], machine: Machine, where: str) -> Expect:
    only_keys(table, tuple(field.name for field in fields(Expect)), f"{where}, expect")
    for key in ("node", "threads"):
        if key in table and table[key] not in range(len(machine.nodes)):
            raise Fail(f"{where}: {key} = {table[key]}, but machine {machine.name} has {len(machine.nodes)} nodes")
    if ("weights" in table or "buffers" in table) and "node" not in table:
        raise Fail(f"{where}: weights and buffers are counted on a node; say which: node = N")
    lists = {key: tuple(table.get(key, ())) for key in ("says", "regions")}
    return Expect(**{**table, **lists})


def parse_step(step: str, runs: Mapping[str, Run], machine: Machine, where: str) -> tuple[str, ...]:
    files = "|".join(FILES)
    match words := tuple(step.split()):
        case ("drop",) | ("small-pages",):
            return words
        case ("cache", file, node) if file in FILES and node in map(str, range(len(machine.nodes))):
            return words
        case ("own", file) if file in FILES:
            return words
        case ("run", *wanted) if wanted and set(wanted) <= set(runs):
            return words
    raise Fail(f"{where}: step {step!r} is none of: drop; cache {files} NODE; own {files}; small-pages; run NAME...")


def parse_machines(text: str) -> dict[str, Machine]:
    return {name: parse_machine(name, table) for name, table in read_toml(text, "machines").items()}


def parse_machine(name: str, table: Mapping[str, Any]) -> Machine:
    where = f"machine {name}"
    only_keys(table, ("nodes", "distances"), where)
    nodes = tuple(Node(node["memory"], cpu_list(node["cpus"])) for node in table["nodes"])
    distances = tuple(tuple(row) for row in table["distances"])
    if [len(row) for row in distances] != [len(nodes)] * len(nodes):
        raise Fail(f"{where}: {len(nodes)} nodes need as many rows of as many distances")
    cpus = sorted(cpu for node in nodes for cpu in node.cpus)
    if cpus != list(range(len(cpus))):
        raise Fail(f"{where}: each CPU from 0 on belongs to one node; got {cpus}")
    return Machine(name, nodes, distances)


def cpu_list(text: str) -> frozenset[int]:
    """The kernel's list form: "0-3,8"; empty for none."""
    numbers: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        numbers.update(range(int(first), int(last or first) + 1))
    return frozenset(numbers)


def read_toml(text: str, where: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise Fail(f"{where}: {error}") from None


def only_keys(table: Mapping[str, Any], known: tuple[str, ...], where: str) -> None:
    if unknown := sorted(table.keys() - set(known)):
        raise Fail(f"{where}: unknown key {unknown[0]!r}; there are: {', '.join(known)}")


def text_of(table: Mapping[str, Any], key: str, where: str) -> str:
    value = table.get(key)
    if not isinstance(value, str) or not value:
        raise Fail(f"{where}: {key} is missing")
    return value
