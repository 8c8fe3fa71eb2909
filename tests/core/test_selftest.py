"""What --numa-selftest concludes, over a made-up machine, and how it says so."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.core import harness

TWO = "0:0-3:4096/100 1:4-7:4096/100"
MODEL = "4000000"  # bytes, see selftest_model_fake.c

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return harness.build_fake("selftest_check.c", tmp_path_factory.mktemp("selftest"))


@pytest.mark.parametrize("name", harness.cases("selftest_check.c"))
def test_case(program: Path, name: str, tmp_path: Path) -> None:
    harness.run_case(program, name, tmp_path, quiet=False)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """run(words of selftest_dump) -> it, when it is done."""
    built = harness.build_fake("selftest_dump.c", tmp_path_factory.mktemp("selftest_dump"))
    clean = {name: value for name, value in os.environ.items() if not name.startswith("LLAMA_ARG_")}

    def start(*words: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        done = subprocess.run([built, *words], capture_output=True, text=True, env=clean | (env or {}))
        assert "Sanitizer" not in done.stderr, done.stderr
        assert "runtime error" not in done.stderr, done.stderr
        return done

    return start


def selftest(run: Run, *flags: str, machine: str = TWO, **env: str) -> subprocess.CompletedProcess[str]:
    return run("run", machine, "--numa-selftest", *flags, env=env)


# --- what is printed, of a result that is made up --------------------------------------------------------------------

SEEN = {"checked": 65536, "on_node": 65536, "elsewhere": 0, "not_resident": 0}
CELL = {"threads": 10, "bytes": 256 << 20, "cache_bytes": 55 << 20, "reason": None, "seen": SEEN}


def test_json(run: Run) -> None:
    read = json.loads(run("json").stdout)
    nodes = read.pop("nodes")
    assert [node["node"] for node in nodes] == [0, 1]
    assert nodes[0]["memory"] == 65536 << 20
    assert read.pop("bandwidth") == [
        {**CELL, "threads_on": 0, "memory_on": 0, "gb_per_s": 61.25, "busy": 0.99},
        {**CELL, "threads_on": 0, "memory_on": 1, "gb_per_s": 24.5, "busy": 0.995},
        {**CELL, "threads_on": 1, "memory_on": 0, "gb_per_s": 25.0, "busy": 0.5},
        {
            **{"threads_on": 1, "memory_on": 1, "threads": 0, "bytes": 0, "cache_bytes": None, "gb_per_s": None},
            **{"busy": None, "reason": 'node 1 has no "room"', "seen": dict.fromkeys(SEEN, 0)},
        },
    ]
    assert read.pop("gain") == {
        "model": {
            **{"name": "A model", "weights": 20_000_000_000, "per_token": 8_000_000_000},
            **{"experts": 8, "experts_used": 2},
        },
        "nodes": [
            {
                **{"node": 0, "local_gb_per_s": 61.25, "remote_gb_per_s": 24.5, "remote_node": 1, "ratio": 2.5},
                **{"local_tokens_per_s": 7.656, "remote_tokens_per_s": 3.062},
            },
            {
                **{"node": 1, "local_gb_per_s": None, "remote_gb_per_s": 25.0, "remote_node": 0, "ratio": None},
                **{"local_tokens_per_s": None, "remote_tokens_per_s": 3.125},
            },
        ],
    }
    assert read == {
        "schema": 1,
        "kind": "selftest",
        "system": "Windows 10.0.17763",
        "cpu": "Xeon E5-2699 v4",
        "page_bytes": 4096,
        "seconds": 31.3,
        "file": "temporary",
        "file_bytes": 64 << 20,
        "file_note": "not the model: it is in use",
        **questions(),
    }


def questions() -> dict[str, Any]:
    """Those that are about pages and threads, as selftest_dump.c makes them up."""
    late = {"answer": None, "reason": "the time was up"}
    unknown = {"answer": None, "reason": "nothing here tells"}
    pages = dict.fromkeys(("checked", "on_asked", "on_thread", "elsewhere", "not_resident"), 0)
    unseen = {"cached": None, "hard_faults": None}
    landed = {**pages, "checked": 16384, "on_thread": 16380, "elsewhere": 1, "not_resident": 3}
    way = {"way": "PrefetchVirtualMemory"}
    kept = {"checked": 16384, "before": 16384, "on_cached_on": 16384, "on_asked": 0, "not_resident": 0}
    hidden = {"checked": 8192, "on_node": 0, "elsewhere": 0, "not_resident": 8192}
    return {
        "prefetch": {
            **answer("thread"),
            "rows": [
                {**way, "asked": 0, "thread": 1, **answer("thread"), "seen": {**landed, **unseen, "hard_faults": 3}},
                {**way, "asked": 1, "thread": 0, **late, "seen": {**pages, **unseen}},
            ],
        },
        "cached": {
            **answer("stay"),
            "rows": [
                {
                    **{"cached_on": 0, "cached_by": "reading", "asked": 1, **answer("stay")},
                    "seen": {**kept, "on_asked_after_move": None},
                },
                {
                    **{"cached_on": 1, "cached_by": "mapping", "asked": 0, **answer("stay")},
                    "seen": {**kept, "on_cached_on": 16000, "on_asked": 384, "on_asked_after_move": 16384},
                },
            ],
        },
        "unbuffered": {
            **unknown,
            "rows": [
                {
                    **{"alone": False, "cached_on": 0, "asked": 1, **unknown},
                    "seen": {
                        **{"checked": 16384, "on_cached_on": 16384, "on_asked": 0},
                        **{"cached_before": 16384, "cached_after": 0},
                        **{"hard_faults_cold": 1024, "hard_faults_after": None},
                    },
                }
            ],
        },
        "cpu_sets": {
            **answer("new threads"),
            "seen": {
                **{"set": "4-7", "main_before": 3, "main_after": 3, "threads": 8},
                **{"ideal_before": 4, "ideal_after": 8, "ran_after": 8},
            },
        },
        "large_pages": {
            **answer("hidden"),
            "rows": [
                {
                    **{"kind": "large pages", "asked": 1, **answer("hidden")},
                    **{"bytes": 32 << 20, "large_bytes": 32 << 20, "seen": hidden},
                },
                {
                    **{"kind": "huge pages", "asked": 1, "answer": None, "reason": "there are none"},
                    **{"bytes": 0, "large_bytes": 0, "seen": dict.fromkeys(hidden, 0)},
                },
            ],
        },
    }


def answer(word: str) -> dict[str, str | None]:
    return {"answer": word, "reason": None}


def test_text(run: Run) -> None:
    text = run("text").stdout
    assert all(line == line.rstrip() for line in text.splitlines())
    table = """\
  threads on  memory on   0  memory on   1
  node     0           61.2           24.5
  node     1           25.0              -
  one thread a core, at least 256 MiB of memory; of its pages 196608 of 196608 looked at are on the node
  the threads had 50 % of their cores' time at worst: other programs ran, so the figures may be too low
  last-level caches of a node: 55.0 MiB
  not measured: node 1 has no "room"
"""
    assert table in text
    for question, said in {
        "Where do prefetched pages of a file land?": "on the node of the thread that prefetched",
        "Does asking for a node move pages that are cached on another one?": "no, they stay where they are",
        "Does opening a file past the cache drop its cached pages?": "not asked: nothing here tells",
        "Do CPU sets change ideal processors?": "of new threads only",
        "What does looking at large pages say?": "nothing: it calls them not resident",
    }.items():
        assert f"\n{question}\n  {said}\n" in text


def test_text_of_the_gain_promises_nothing(run: Run) -> None:
    text = run("text").stdout
    assert "A model: a token reads 8.00 GB of 20.00 GB of weights (a mixture of experts: those it uses)\n" in text
    assert (
        "  threads on node 0, weights there too: at most 7.7 tokens/s; weights on node 1: at most 3.1; ratio 2.50\n"
        in text
    )
    assert "threads on node 1" not in text  # its own memory was not measured
    assert "not promised" in text
    assert "nothing is to be gained" not in text


def test_text_of_one_node(run: Run) -> None:
    text = run("text", "1").stdout
    assert "threads on node 0, weights there too: at least 16.3 ms a token for each GB of weights\n" in text
    assert "There is one node with memory, so nothing is to be gained by choosing one.\n" in text
    assert "ratio" not in text.split("What is there to gain?")[1].split("Expected")[0]
    assert "not asked: it takes two nodes\n" in text


def test_columns_are_aligned(run: Run) -> None:
    """Each number of a row ends where the heading of its column does."""
    lines = run("text").stdout.splitlines()
    head = next(i for i, line in enumerate(lines) if line.startswith("  cached on"))
    for row in lines[head + 1 : head + 3]:
        assert len(row) == len(lines[head])
    head = next(i for i, line in enumerate(lines) if line.startswith("  brought in by"))
    assert len(lines[head + 1]) == len(lines[head])
    head = next(i for i, line in enumerate(lines) if line.startswith("  open by others"))
    assert len(lines[head + 1]) == len(lines[head])
    head = next(i for i, line in enumerate(lines) if line.startswith("  kind"))
    assert len(lines[head + 1]) == len(lines[head])


# --- from the start of the program on --------------------------------------------------------------------------------


def test_all_of_it(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    done = selftest(run, "-m", MODEL, "--numa-report", str(file))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("llamafile-numa selftest\n  system  Fake 1.0\n")
    assert all(line.startswith("selftest, ") for line in done.stderr.splitlines())
    read = json.loads(file.read_text(encoding="utf-8"))
    assert (read["prefetch"]["answer"], read["cached"]["answer"], read["unbuffered"]["answer"]) == (
        "asked",
        "stay",
        "keeps",
    )
    assert all(cell["gb_per_s"] > 0 for cell in read["bandwidth"])
    gain = read["gain"]["nodes"][0]
    assert gain["local_tokens_per_s"] == pytest.approx(gain["local_gb_per_s"] * 1e9 / int(MODEL), rel=1e-3)
    assert gain["ratio"] == pytest.approx(gain["local_gb_per_s"] / gain["remote_gb_per_s"], rel=1e-2)


@pytest.mark.parametrize("flags", [("--json",), ("--numa-report", "-"), ("--json", "--numa-report", "-")])
def test_json_on_stdout_is_all_there(run: Run, flags: tuple[str, ...]) -> None:
    done = selftest(run, *flags)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["schema"] == 1


def test_environment_says_where_the_report_goes_and_no_node(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    env = {"LLAMA_ARG_NUMA_REPORT": str(file), "LLAMA_ARG_NUMA_NODE": "7", "LLAMA_ARG_NUMA_STRICT": "1"}
    assert selftest(run, **env).returncode == 0
    assert json.loads(file.read_text(encoding="utf-8"))["kind"] == "selftest"


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (("--numa-node", "0"), "takes no --numa-node"),
        (("--numa-weights", "copy"), "takes no --numa-weights"),
        (("--numa-strict",), "takes no --numa-strict"),
        (("-p", "x"), "does not take '-p'; -m model.gguf, --json and --numa-report FILE are possible"),
        (("--server",), "does not take '--server'"),
        (("bench",), "does not take 'bench'"),
        (("-m",), "-m needs a value: a GGUF file"),
        (("-m", ""), "-m needs a value: a GGUF file"),
        (("--model",), "--model needs a value: a GGUF file"),
        (("-m", "no\nmodel"), "cannot read no?model"),
        (("--numa-selftest=1",), "--numa-selftest takes no value"),
        (("--numa-report", "/no/such/folder/r"), "/no/such/folder/r"),
        (("--numa-report", ""), "--numa-report has an empty value"),
    ],
)
def test_bad_input_gives_one_line(run: Run, flags: tuple[str, ...], says: str) -> None:
    done = selftest(run, *flags)
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr
    assert done.stderr.count("\n") == 1


def test_bad_input_leaves_the_report_of_before(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    file.write_text("before", encoding="utf-8")
    assert selftest(run, "--numa-report", str(file), "-m", "none").returncode == 2
    assert file.read_text(encoding="utf-8") == "before"


def test_nothing_measured_is_a_failure(run: Run) -> None:
    done = selftest(run, machine="0:0-3:8")
    assert done.returncode == 1
    assert "not measured: node 0 has too little room: 8 MiB\n" in done.stdout
    assert done.stderr.splitlines()[-1].startswith("llamafile-numa: error: no bandwidth could be measured")


def test_stdout_that_cannot_be_written_is_a_failure(run: Run) -> None:
    done = run("full", TWO, "--numa-selftest")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "llamafile-numa: error: what was found cannot be written"
