"""Scenario files and machines of the lab: what they may say, and the script made from them."""

from __future__ import annotations

import re
import subprocess

import pytest

from tools.fail import Fail
from tools.lab import needs, qemu, scenario, script
from tools.lab.scenario import Expect, Machine, Node, Run

MACHINE = Machine("pair", (Node(512, frozenset({0, 2})), Node(256, frozenset({1, 3}))), ((10, 21), (21, 10)))

GOOD = """\
title = "A title"
machine = "pair"
steps = ["cache model 0", "run one", "drop", "small-pages", "run two three", "own model", "run self"]

[run.one]
program = "llama"
arguments = ["-t", "2"]
under = ["numactl", "--membind=1"]
expect = { node = 1, weights = 0 }

[run.two]
arguments = ["--numa-node", "1"]
under = ["cpuset", "0-1", "0"]
expect = { exit = 2, says = ["no node .*"] }

[run.three]
model = "synthetic"

[run.self]
selftest = true
under = ["deny", "mbind"]
"""


OWN = (("own", "model"), ("run", "self"))


def parse(text: str) -> scenario.Scenario:
    return scenario.parse("sample", text, {"pair": MACHINE})


def test_a_scenario() -> None:
    parsed = parse(GOOD)
    assert (parsed.name, parsed.title, parsed.machine) == ("sample", "A title", MACHINE)
    assert parsed.steps == (
        ("cache", "model", "0"),
        ("run", "one"),
        ("drop",),
        ("small-pages",),
        ("run", "two", "three"),
        *OWN,
    )
    under = ("numactl", "--membind=1")
    assert parsed.runs["one"] == Run("one", "llama", "model", ("-t", "2"), under, Expect(node=1, weights=0))
    assert parsed.runs["two"].expect == Expect(exit=2, says=("no node .*",))
    assert parsed.runs["three"] == Run("three", "llamafile-numa", "synthetic", (), (), Expect())
    assert parsed.runs["self"] == Run("self", "llamafile-numa", "model", (), ("deny", "mbind"), Expect(), selftest=True)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('title = "A title"', "", "title is missing"),
        ('"pair"', '"none"', "no machine 'none'; there are: pair"),
        ("title", "titel", "unknown key 'titel'"),
        ("cache model 0", "cache model 2", "step 'cache model 2' is none of"),
        ("cache model 0", "cache nothing 0", "step 'cache nothing 0' is none of"),
        ("own model", "own nothing", "step 'own nothing' is none of"),
        ("run two three", "run two four", "step 'run two four' is none of"),
        ("run two three", "run two", "each run is to be in one step"),
        ("run two three", "run one two three", "each run is to be in one step"),
        ('"drop"', '"dorp"', "step 'dorp' is none of"),
        ('"llama"', '"lama"', "no program 'lama'"),
        ('"synthetic"', '"other"', "no model 'other'; there are: model, synthetic"),
        ("[run.three]", "[run.'three;']", "lower-case letters"),
        ("weights", "wieghts", "unknown key 'wieghts'"),
        ("node = 1, weights", "node = 2, weights", "machine pair has 2 nodes"),
        ("node = 1, weights", "weights", "say which: node = N"),
        ("[run.one]", "[run.one", "Expected"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(old: str, new: str, message: str) -> None:
    assert old in GOOD
    with pytest.raises(Fail, match=re.escape(message)) as caught:
        parse(GOOD.replace(old, new))
    assert str(caught.value).startswith("scenario sample")
    assert "\n" not in str(caught.value)


def test_an_unknown_scenario_names_those_there_are() -> None:
    with pytest.raises(Fail, match=r"there is no scenario '../x'; there are: .*cold-cache") as caught:
        scenario.load("../x")
    assert caught.value.code == 2


@pytest.mark.parametrize("name", scenario.names())
def test_the_scenarios_of_the_lab(name: str) -> None:
    assert scenario.load(name).runs


@pytest.mark.parametrize(("text", "numbers"), [("", set()), ("3", {3}), ("0-2,8", {0, 1, 2, 8}), (" 1,3 \n", {1, 3})])
def test_cpu_lists(text: str, numbers: set[int]) -> None:
    assert scenario.cpu_list(text) == numbers


def test_machines_are_checked() -> None:
    with pytest.raises(Fail, match="2 nodes need as many rows"):
        scenario.parse_machines('[m]\nnodes = [{memory = 1, cpus = "0"}, {memory = 1, cpus = "1"}]\ndistances = [[10]]')
    with pytest.raises(Fail, match=r"each CPU from 0 on belongs to one node; got \[0, 0\]"):
        scenario.parse_machines(
            '[m]\nnodes = [{memory = 1, cpus = "0"}, {memory = 1, cpus = "0"}]\ndistances = [[10, 20], [20, 10]]'
        )


def test_the_arguments_for_qemu() -> None:
    bare = Machine("bare", (*MACHINE.nodes, Node(0, frozenset({4})), Node(64, frozenset())), ((10,) * 4,) * 4)
    arguments = qemu.numa_arguments(bare)
    assert arguments[:10] == [
        *("-object", "memory-backend-ram,id=m0,size=512M"),
        *("-numa", "node,nodeid=0,cpus=0,cpus=2,memdev=m0"),
        *("-object", "memory-backend-ram,id=m1,size=256M"),
        *("-numa", "node,nodeid=1,cpus=1,cpus=3,memdev=m1"),
        *("-numa", "node,nodeid=2,cpus=4"),
    ]
    assert arguments[10:14] == [
        *("-object", "memory-backend-ram,id=m3,size=64M"),
        *("-numa", "node,nodeid=3,memdev=m3"),
    ]
    assert arguments[14:16] == ["-numa", "dist,src=0,dst=1,val=10"]
    assert len(arguments) == 14 + 2 * 12


def test_the_script() -> None:
    lines = script.lines(parse(GOOD))
    user = "/tools/setpriv --reuid=65534 --regid=65534 --clear-groups"
    server = "--host 127.0.0.1 -c 2048 -np 1"
    model = "-m /disk/model.gguf --port"
    ours = f"/opt/llamafile-numa/llamafile-numa --server {server}"
    limit = script.START_SECONDS
    assert lines == [
        "begin sample",
        "cache /disk/model.gguf 0",
        f"start one 8081 {limit} {user} numactl --membind=1 /opt/llama/llama serve {server} {model} 8081 -t 2",
        "look one /disk/model.gguf",
        "stop one",
        "drop",
        "huge never",
        f"start two 8081 {limit} cpuset 0-1 0 {user} {ours} {model} 8081 --numa-report /tmp/two.json --numa-node 1",
        f"start three 8082 {limit} {user} {ours} -m /disk/synthetic.gguf --port 8082 --numa-report /tmp/three.json",
        "look two /disk/model.gguf",
        "look three /disk/synthetic.gguf",
        "stop two",
        "stop three",
        "own /disk/model.gguf",
        f"start self 8081 {limit} {user} deny mbind /opt/llamafile-numa/llamafile-numa --numa-selftest"
        " -m /disk/model.gguf --numa-report /tmp/self.json",
        "look self /disk/model.gguf",
        "stop self",
        "end",
    ]


@pytest.mark.skipif(not needs.find("busybox"), reason="needs busybox (Debian: busybox-static)")
@pytest.mark.parametrize("file", ["init", "lab.sh", "cpuset"])
def test_the_guest_scripts_are_shell(file: str) -> None:
    path = scenario.HERE / "guest" / file
    done = subprocess.run([needs.path("busybox"), "sh", "-n", path], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
