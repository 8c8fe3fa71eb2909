"""What the --numa-* flags and their environment twins ask for, and which node that is on machines of all kinds."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.core import cc

NODE, WEIGHTS, STRICT, REPORT = (f"LLAMA_ARG_NUMA_{name}" for name in ("NODE", "WEIGHTS", "STRICT", "REPORT"))

Ask = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Ask:
    """ask(words, environment) -> choose_dump's JSON."""
    sources = [cc.HERE / "choose_dump.c", *cc.core("options.c", "choose.c", "json.c", "topology.c", "node_set.c")]
    program = cc.compile(sources, into=tmp_path_factory.mktemp("choose_dump"))
    clean = {name: value for name, value in os.environ.items() if not name.startswith("LLAMA_ARG_")}

    def run(words: str | list[str], env: dict[str, str], *, machine: str = "", start: int = -1) -> dict[str, Any]:
        split = words.split() if isinstance(words, str) else words
        command = [str(program), machine, str(start), *split]
        done = subprocess.run(command, capture_output=True, text=True, env=clean | env)
        assert (done.returncode, done.stderr) == (0, "")
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    return run


DEFAULT = {
    "rest": [],
    "wish": "unset",
    "number": 0,
    "requested": "",
    "from_env": 0,
    "weights": "auto",
    "strict": 0,
    "list": 0,
    "selftest": 0,
    "json": 0,
    "report": None,
}
ONE = {"wish": "number", "number": 1, "requested": "1"}
AUTO = {"wish": "auto", "requested": "auto"}
NONE = {"wish": "none", "requested": "none"}
ENV_ONE = ONE | {"from_env": 1}


@pytest.mark.parametrize(
    ("words", "env", "expected"),
    [
        ("", {}, {}),
        ("-m x -p y", {}, {"rest": ["-m", "x", "-p", "y"]}),
        # the node
        ("--numa-node 1", {}, ONE),
        ("--numa-node=1", {}, ONE),
        ("--numa-node auto", {}, AUTO),
        ("--numa-node=none", {}, NONE),
        ("--numa-node 0", {}, {"wish": "number", "requested": "0"}),
        ("--numa-node 01", {}, ONE | {"requested": "01"}),
        ("--numa-node 2147483639", {}, {"wish": "number", "number": 2147483639, "requested": "2147483639"}),
        ("--numa-node 1 --numa-node 1", {}, ONE),
        ("--numa-node 1 --numa-node=01", {}, ONE | {"requested": "01"}),
        ("--numa-node auto --numa-node auto", {}, AUTO),
        # the others
        ("--numa-weights copy", {}, {"weights": "copy"}),
        ("--numa-weights=map", {}, {"weights": "map"}),
        ("--numa-weights map --numa-weights auto", {}, {}),
        ("--numa-node 1 --numa-strict", {}, ONE | {"strict": 1}),
        ("--numa-strict --numa-node auto --numa-strict", {}, AUTO | {"strict": 1}),
        ("--numa-report a.json", {}, {"report": "a.json"}),
        ("--numa-report=a=b", {}, {"report": "a=b"}),
        ("--numa-report -", {}, {"report": "-"}),
        ("--numa-report a --numa-report b", {}, {"report": "b"}),
        # what stays, and in which order
        (
            "-m x --numa-node 1 -p y --numa-weights=copy --temp 0 --numa-report r --numa-strict -n 3",
            {},
            ONE
            | {"rest": ["-m", "x", "-p", "y", "--temp", "0", "-n", "3"], "weights": "copy", "strict": 1, "report": "r"},
        ),
        ("a --numa-node 1 b", {}, ONE | {"rest": ["a", "b"]}),
        ("--numa-node 1 a", {}, ONE | {"rest": ["a"]}),
        ("a --numa-node 1", {}, ONE | {"rest": ["a"]}),
        ("--numa-nod 1", {}, {"rest": ["--numa-nod", "1"]}),
        ("--numa-nodes 1", {}, {"rest": ["--numa-nodes", "1"]}),
        ("-numa-node=1", {}, {"rest": ["-numa-node=1"]}),
        ("--NUMA-NODE 1", {}, {"rest": ["--NUMA-NODE", "1"]}),
        ("--numa-node 1 --json", {}, ONE | {"rest": ["--json"]}),
        (["", "--numa-node", "1", "=", ""], {}, ONE | {"rest": ["", "=", ""]}),
        # the list
        ("--numa-list", {}, {"list": 1}),
        ("--numa-list --json", {}, {"list": 1, "json": 1, "rest": ["--json"]}),
        ("--json -m x --numa-list", {}, {"list": 1, "json": 1, "rest": ["--json", "-m", "x"]}),
        ("--numa-list --numa-strict", {}, {"list": 1, "strict": 1}),
        ("--numa-list", {NODE: "x", STRICT: "perhaps", "LLAMA_ARG_NUMA": "distribute"}, {"list": 1}),
        ("--numa-list --numa-node 1 --numa numactl", {}, ONE | {"list": 1, "rest": ["--numa", "numactl"]}),
        # the selftest
        ("--numa-selftest", {}, {"selftest": 1}),
        ("--numa_selftest -m x --json", {}, {"selftest": 1, "json": 1, "rest": ["-m", "x", "--json"]}),
        ("--numa-selftest --numa-report r", {REPORT: "s"}, {"selftest": 1, "report": "r"}),
        ("--numa-selftest", {REPORT: "r", NODE: "x", STRICT: "perhaps"}, {"selftest": 1, "report": "r"}),
        ("--numa-selftest --numa-list --numa-node 1", {}, ONE | {"selftest": 1, "list": 1}),
        # the environment
        ("", {NODE: "1"}, ENV_ONE),
        ("", {NODE: "auto"}, AUTO | {"from_env": 1}),
        ("", {NODE: "none"}, NONE | {"from_env": 1}),
        ("", {NODE: "1", WEIGHTS: "map", REPORT: "r"}, ENV_ONE | {"weights": "map", "report": "r"}),
        ("", {NODE: "1", STRICT: "1"}, ENV_ONE | {"strict": 1}),
        ("", {NODE: "1", STRICT: "true"}, ENV_ONE | {"strict": 1}),
        ("", {NODE: "1", STRICT: "on"}, ENV_ONE | {"strict": 1}),
        ("", {STRICT: "0"}, {}),
        ("", {STRICT: "off"}, {}),
        ("", {STRICT: "false"}, {}),
        ("--numa-node 1", {NODE: "2"}, ONE),
        ("--numa-node 1", {NODE: "rubbish"}, ONE),
        ("--numa-node none", {NODE: "1"}, NONE),
        ("--numa-weights auto", {WEIGHTS: "copy"}, {}),
        ("--numa-weights map", {WEIGHTS: "rubbish"}, {"weights": "map"}),
        ("--numa-report a", {REPORT: "b"}, {"report": "a"}),
        ("--numa-strict", {STRICT: "0", NODE: "1"}, ENV_ONE | {"strict": 1}),
        # upstream's own flag goes with everything but a node
        ("--numa distribute", {}, {"rest": ["--numa", "distribute"]}),
        ("--numa distribute --numa-node none", {}, NONE | {"rest": ["--numa", "distribute"]}),
        ("--numa-weights copy", {"LLAMA_ARG_NUMA": "isolate"}, {"weights": "copy"}),
        ("--numactl --numa-node 1", {}, ONE | {"rest": ["--numactl"]}),
    ],
)
def test_good(ask: Ask, words: str | list[str], env: dict[str, str], expected: dict[str, Any]) -> None:
    assert ask(words, env) == DEFAULT | expected


NOT_A_NODE = ["1x", "x1", "-1", "+1", "1.0", "0x1", " 1", "1 ", "1,2", "0-1", "4294967296", "4294967297", "2147483648"]
NOT_A_NODE += ["18446744073709551617", "9" * 400, "AUTO", "all", "nöde", "-"]


@pytest.mark.parametrize("value", NOT_A_NODE)
@pytest.mark.parametrize("form", ["word", "equals", "env"])
def test_not_a_node(ask: Ask, value: str, form: str) -> None:
    words = {"word": ["--numa-node", value], "equals": [f"--numa-node={value}"], "env": []}[form]
    answer = ask(words, {NODE: value} if form == "env" else {})
    name = NODE if form == "env" else "--numa-node"
    wanted = f"{name}: '{value}' is not a node; a number as --numa-list shows it, auto or none is possible"
    assert answer == {"error": wanted[:511]}


@pytest.mark.parametrize(
    ("words", "env", "parts"),
    [
        # empty
        (["--numa-node", ""], {}, ("--numa-node has an empty value", "N|auto|none")),
        ("--numa-node=", {}, ("--numa-node has an empty value", "N|auto|none")),
        ("", {NODE: ""}, (f"{NODE} has an empty value", "N|auto|none")),
        ("--numa-weights=", {}, ("--numa-weights has an empty value", "auto|map|copy")),
        ("", {WEIGHTS: ""}, (f"{WEIGHTS} has an empty value", "auto|map|copy")),
        ("--numa-report=", {}, ("--numa-report has an empty value", "FILE|-")),
        ("", {REPORT: ""}, (f"{REPORT} has an empty value", "FILE|-")),
        ("--numa-node 1", {STRICT: ""}, (f"{STRICT} has an empty value", "1 or 0")),
        # missing
        ("--numa-node", {}, ("--numa-node needs a value: N|auto|none",)),
        ("-m x --numa-node", {}, ("--numa-node needs a value: N|auto|none",)),
        ("--numa-weights", {}, ("--numa-weights needs a value: auto|map|copy",)),
        ("--numa-report", {}, ("--numa-report needs a value: FILE|-",)),
        ("--numa-report -m x", {}, ("--numa-report needs a value: FILE|-",)),
        ("--numa-node --server", {}, ("--numa-node",)),
        # one too many
        ("--numa-node 1 --numa-strict=1", {}, ("--numa-strict takes no value",)),
        ("--numa-list=json", {}, ("--numa-list takes no value",)),
        # unknown
        ("--numa-weights move", {}, ("--numa-weights: 'move' is not possible", "auto, map and copy")),
        ("--numa-weights=MAP", {}, ("--numa-weights: 'MAP' is not possible", "auto, map and copy")),
        ("", {WEIGHTS: "x"}, (f"{WEIGHTS}: 'x' is not possible", "auto, map and copy")),
        ("--numa-node 1", {STRICT: "2"}, (f"{STRICT}: '2' is not possible", "1 and 0")),
        ("--numa-list --numa-node x", {}, ("--numa-node: 'x' is not a node",)),
        # two nodes
        ("--numa-node 0 --numa-node 1", {}, ("--numa-node is given twice, as 0 and as 1", "one node")),
        ("--numa-node=auto --numa-node=1", {}, ("--numa-node is given twice, as auto and as 1",)),
        ("--numa-node none --numa-node auto", {}, ("--numa-node is given twice, as none and as auto",)),
        ("--numa-node auto --numa-node 0", {}, ("--numa-node is given twice, as auto and as 0",)),
        # together with upstream's
        ("--numa-node 1 --numa distribute", {}, ("--numa-node", "--numa ", "give one of them")),
        ("--numa isolate --numa-node auto", {}, ("--numa-node", "--numa ", "give one of them")),
        ("--numa numactl", {NODE: "1"}, ("--numa-node", "--numa ", "give one of them")),
        ("--numa-node 1", {"LLAMA_ARG_NUMA": "distribute"}, ("--numa-node", "--numa ", "give one of them")),
        # strict about nothing
        ("--numa-strict", {}, ("--numa-strict needs a node", "--numa-node N or --numa-node auto")),
        ("--numa-strict --numa-node none", {}, ("--numa-strict needs a node",)),
        ("", {STRICT: "1"}, ("--numa-strict needs a node",)),
        ("--numa-strict", {NODE: "none"}, ("--numa-strict needs a node",)),
    ],
)
def test_bad(ask: Ask, words: str | list[str], env: dict[str, str], parts: tuple[str, ...]) -> None:
    answer = ask(words, env)
    assert list(answer) == ["error"]
    assert "\n" not in answer["error"]
    for part in parts:
        assert part in answer["error"]


@pytest.mark.parametrize(
    ("words", "env"), [(["--numa-node", "1\n2"], {}), ([], {WEIGHTS: "a\nb"}), (["--numa-node=\033[2J"], {})]
)
def test_message_is_one_line(ask: Ask, words: list[str], env: dict[str, str]) -> None:
    assert ask(words, env)["error"].isprintable()


@pytest.mark.parametrize("words", ["--numa_node 1", "--numa-node 1 --numa_strict"])
def test_underscores_are_not_lost(ask: Ask, words: str) -> None:
    assert not any(word.startswith("--numa_") for word in ask(words, {}).get("rest", []))


def test_report_is_no_flag(ask: Ask) -> None:
    assert "--numa-report" in ask("--numa-node 1 --numa-report --numa-strict", {}).get("error", "")


# --- which node ---

TWO = "0:0-3:1024 1:4-7:2048"
SPARSE = "0:0-3:1024 2:4-7:1024 10:8-11:4096"
MEMORY_ONLY = "0:0-3:1024 1:4-7:1024 2:-:8192"  # CXL, HBM
CPU_ONLY = "0:0-3:1024 1:4-7:0"  # empty slots
HERE = {"node": 1, "cpu_node": 1}


@pytest.mark.parametrize(
    ("machine", "words", "start", "node", "cpu_node", "how"),
    [
        # nothing asked
        (TWO, "", -1, -1, -1, ""),
        (TWO, "--numa-node none", 1, -1, -1, ""),
        ("0:0-7:1024", "", -1, -1, -1, ""),
        (MEMORY_ONLY, "", -1, -1, -1, ""),
        (CPU_ONLY, "", -1, -1, -1, ""),
        # confined, though nothing is asked
        ("0:0-3:1024 1:4-7:2048 allowed=4-5", "", -1, 1, 1, "confined"),
        ("0:0-3:1024 1:4-7:2048:m", "", -1, 0, 0, "confined"),
        ("0:0-3:1024 1:4-7:2048 allowed=4-7", "--numa-node none", -1, -1, -1, ""),
        ("0:0-3:1024 1:4-7:0 allowed=4-7", "", -1, -1, -1, ""),  # of its CPUs only
        ("0:0-3:1024:c 1:4-7:0", "", -1, -1, -1, ""),
        ("0:0-3:1024:m 1:4-7:1024:m 2:-:8192", "", -1, 2, 1, "confined"),
        ("0:0-3:1024 1:4-7:2048:m allowed=4-7", "", -1, 0, 1, "confined"),  # memory beats CPUs
        # started on a node, though nothing is asked
        (TWO, "", 1, 1, 1, "start-node"),
        (TWO, "", 0, 0, 0, "start-node"),
        ("0:0-7:1024", "", 0, -1, -1, ""),  # where else?
        (CPU_ONLY, "", 1, -1, -1, ""),  # the start node has no memory
        ("0:0-3:1024 1:4-7:2048 allowed=4-5", "", 0, 1, 1, "confined"),
        # a number
        (TWO, "--numa-node 0", -1, 0, 0, "flag"),
        (TWO, "--numa-node 1", 0, 1, 1, "flag"),
        ("0:0-7:1024", "--numa-node 0", -1, 0, 0, "flag"),
        (SPARSE, "--numa-node 2", -1, 2, 2, "flag"),
        (SPARSE, "--numa-node 10", -1, 10, 10, "flag"),
        (MEMORY_ONLY, "--numa-node 2", -1, 2, 1, "flag"),
        ("0:-:1024 3:0-3:1024 9:4-7:1024", "--numa-node 0", -1, 0, 3, "flag"),
        ("0:0-3:1024 1:4-7:1024 allowed=0-3", "--numa-node 1", -1, 1, 0, "flag"),
        ("0:0-3:1024 1:4-7:1024:m", "--numa-node 1", -1, 1, 1, "flag"),  # its CPUs can be had, so it says what cannot
        # auto
        (TWO, "--numa-node auto", -1, 1, 1, "emptiest"),
        ("0:0-3:1024/900 1:4-7:2048/100", "--numa-node auto", -1, 0, 0, "emptiest"),
        ("0:0-3:1024 1:4-7:1024", "--numa-node auto", -1, 0, 0, "emptiest"),
        ("0:0-7:1024", "--numa-node auto", -1, 0, 0, "emptiest"),
        (SPARSE, "--numa-node auto", -1, 10, 10, "emptiest"),
        (MEMORY_ONLY, "--numa-node auto", -1, 0, 0, "emptiest"),
        (CPU_ONLY, "--numa-node auto", -1, 0, 0, "emptiest"),
        (TWO, "--numa-node auto", 0, 0, 0, "start-node"),
        (SPARSE, "--numa-node auto", 1, 2, 2, "start-node"),
        (CPU_ONLY, "--numa-node auto", 1, 0, 0, "emptiest"),  # the start node has no memory
        ("0:0-3:1024 1:4-7:1024:m 2:8-11:1024", "--numa-node auto", 1, 0, 0, "emptiest"),
        ("0:0-3:1024 1:4-7:2048 allowed=0", "--numa-node auto", 1, 0, 0, "confined"),
        ("0:0-3:4096 1:4-7:1024:m", "--numa-node auto", -1, 0, 0, "confined"),
    ],
)
def test_chosen(ask: Ask, machine: str, words: str, start: int, node: int, cpu_node: int, how: str) -> None:
    answer = ask(words, {}, machine=machine, start=start)
    assert {key: answer.get(key, answer) for key in ("node", "cpu_node", "how")} == {
        "node": node,
        "cpu_node": cpu_node,
        "how": how,
    }


@pytest.mark.parametrize(("value", "how"), [("1", "env"), ("auto", "emptiest")])
def test_chosen_by_environment(ask: Ask, value: str, how: str) -> None:
    answer = ask("", {NODE: value}, machine=TWO)
    assert (answer["node"], answer["how"]) == (1, how)


@pytest.mark.parametrize(
    ("machine", "words", "env", "parts"),
    [
        (TWO, "--numa-node 2", {}, ("--numa-node: there is no node 2", "nodes here: 0-1")),
        (TWO, "", {NODE: "2"}, (f"{NODE}: there is no node 2", "nodes here: 0-1")),
        ("0:0-7:1024", "--numa-node 1", {}, ("no node 1", "nodes here: 0")),
        (SPARSE, "--numa-node 1", {}, ("no node 1", "nodes here: 0,2,10")),
        (SPARSE, "--numa-node 3", {}, ("no node 3", "nodes here: 0,2,10")),
        (CPU_ONLY, "--numa-node 1", {}, ("node 1 has no memory", "nodes here: 0 (not usable: 1)")),
        ("0:0-3:1024 1:4-7:1024:cm", "--numa-node 1", {}, ("node 1", "neither", "nodes here: 0 (not usable: 1)")),
        ("0:0-3:1024 1:-:1024:m", "--numa-node 1", {}, ("node 1", "neither", "cpuset", "nodes here: 0")),
        (SPARSE + ":cm", "--numa-node 7", {}, ("no node 7", "nodes here: 0,2 (not usable: 10)")),
        ("0:0-3:0 1:-:1024", "--numa-node auto", {}, ("auto", "no node has both memory and CPUs")),
        ("0:0-3:1024:cm 1:4-7:1024:m", "--numa-node auto", {}, ("auto", "no node has both memory and CPUs")),
    ],
)
def test_no_such_node(ask: Ask, machine: str, words: str, env: dict[str, str], parts: tuple[str, ...]) -> None:
    answer = ask(words, env, machine=machine)
    assert list(answer) == ["error"]
    assert "\n" not in answer["error"]
    for part in parts:
        assert part in answer["error"]


# --- any words at all ---

SEEDS = [
    "--numa-node\0001\0-m\0x",
    "--numa-node=auto\0--numa-strict\0--numa-weights=copy\0--numa-report\0-",
    "--numa-list\0--json",
    "--numa\0distribute\0--numa-node\0none",
    "-m\0x\0LLAMA_ARG_NUMA_NODE=1\0LLAMA_ARG_NUMA_STRICT=1\0LLAMA_ARG_NUMA_WEIGHTS=map\0LLAMA_ARG_NUMA_REPORT=r",
    "--numa-node\0004294967296\0--numa-node=",
]
WORDS = ["--numa-node", "--numa-weights", "--numa-strict", "--numa-report", "--numa-list", "--json", "--numa", "auto"]
WORDS += ["none", "map", "copy", "=", "\\x00", NODE + "=", WEIGHTS + "=", STRICT + "=", REPORT + "=", "LLAMA_ARG_NUMA="]


def test_fuzz(tmp_path: Path) -> None:
    program = cc.compile_fuzzer([cc.HERE / "fuzz_options.c", *cc.core("options.c")], into=tmp_path)
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    for number, seed in enumerate(SEEDS):
        (corpus / str(number)).write_text(seed)
    words = tmp_path / "words"
    words.write_text("".join(f'"{word}"\n' for word in WORDS))
    runs = 100_000
    limits = [f"-runs={runs}", "-max_len=256", f"-dict={words}", f"-artifact_prefix={tmp_path}/"]
    command = [str(program), *limits, str(corpus)]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace")
    assert done.returncode == 0, done.stderr[-4000:]
    assert f"Done {runs} runs" in done.stderr
