"""What the real program is for: it says what unpatched llama.cpp says, and serves, wherever its weights are."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.build.programs import GENERATE, Program
from tests.build.servers import post, serving
from tools import models

FEATURES = "LLAMAFILE = 1"


@pytest.fixture(scope="module")
def expected(theirs: Program, model: Path) -> str:
    """What the unpatched program adds to the prompt."""
    quiet = ("-no-cnv", "--no-display-prompt", "--simple-io", "-lv", "1")
    text = theirs.ok("-m", model, *GENERATE, *quiet).stdout
    assert len(text.split()) == 12
    return text


@pytest.mark.parametrize("weights", ["auto", "map", "copy"])
def test_says_what_upstream_says(ours: Program, node: str, model: Path, expected: str, weights: str) -> None:
    done = ours.ok("--numa-node", node, "--numa-weights", weights, "-m", model, *GENERATE)
    assert done.stdout == expected


@pytest.mark.parametrize("flags", [(), ("--numa-node", "none")])
def test_without_a_node_it_is_upstream(ours: Program, model: Path, expected: str, flags: tuple[str, ...]) -> None:
    done = ours.ok(*flags, "-m", model, *GENERATE)
    assert done.stdout == expected


def test_prompt_from_a_file(ours: Program, node: str, model: Path, expected: str, tmp_path: Path) -> None:
    file = tmp_path / "prompt.txt"
    file.write_text(GENERATE[1], encoding="utf-8")
    assert ours.ok("--numa-node", node, "-m", model, "-f", file, *GENERATE[2:]).stdout == expected


def test_another_seed_is_another_model(ours: Program, node: str, expected: str) -> None:
    """The comparisons above would see wrong weights: other weights say something else."""
    assert ours.ok("--numa-node", node, "-m", models.synthetic_model(seed=1), *GENERATE).stdout != expected


def test_bench_runs_on_a_node(ours: Program, node: str, model: Path) -> None:
    done = ours.ok("bench", "--numa-node", node, "-m", model, "-p", "8", "-n", "4", "-r", "1", "-o", "json")
    results = json.loads(done.stdout)
    assert [(result["n_prompt"], result["n_gen"]) for result in results] == [(8, 0), (0, 4)]


def test_batched_bench_looks(ours: Program, node: str, model: Path) -> None:
    flags = ("-c", "256", "-npp", "8", "-ntg", "4", "-npl", "1")
    done = ours.ok("batched-bench", "--numa-node", node, "--numa-report", "-", "-m", model, *flags)
    report = json.JSONDecoder().raw_decode(done.stdout)[0]
    assert (report["node"], report["ok"]) == (int(node), True)


def test_same_cpu_features_as_upstream(ours: Program, theirs: Program, model: Path) -> None:
    """Adding ggml by itself loses a default of llama.cpp, and prompts then take 1.6 times as long."""
    line = next(line for line in theirs.ok("-m", model, *GENERATE, "-no-cnv").stderr.splitlines() if FEATURES in line)
    features = [part.strip() for part in line.split("|") if " = 1" in part]
    listed = ours.ok("--version").stdout
    assert [feature for feature in features if feature.removeprefix("CPU : ") not in listed] == []


# --- serving ---------------------------------------------------------------------------------------------------------


def test_serves_what_upstream_says(ours: Program, node: str, model: Path, expected: str, tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    with serving(ours, "--server", "--numa-node", node, "--numa-report", file, "-m", model, "-c", "256") as url:
        report = json.loads(file.read_text(encoding="utf-8"))  # there once the model is loaded
        answer = post(f"{url}/completion", {"prompt": GENERATE[1], "n_predict": 12, "temperature": 0})
    assert answer["content"].split() == expected.split()
    assert (report["node"], report["ok"]) == (int(node), True)


def workers(ours: Program, node: str, model: Path, *flags: str) -> dict[str, int]:
    done = ours.ok("--numa-node", node, "--numa-report", "-", "-m", model, "-c", "256", "-p", "Hi", "-n", "2", *flags)
    threads: dict[str, int] = json.loads(done.stdout.splitlines()[0])["threads"]
    return threads


def test_workers_of_both_pools_are_bound(ours: Program, node: str, model: Path) -> None:
    """One thread more of either number is one worker more; the one that decodes belongs to both pools."""
    assert workers(ours, node, model, "-t", "2", "-tb", "3") == {"workers": 4, "bound": 4}
    assert workers(ours, node, model, "-t", "3", "-tb", "4") == {"workers": 6, "bound": 6}


def test_threads_default_to_the_cores_of_the_node(ours: Program, node: str, model: Path) -> None:
    listed = json.loads(ours.ok("--numa-list", "--json").stdout)["nodes"]
    cores = next(one["cores"] for one in listed if one["node"] == int(node))
    assert workers(ours, node, model) == {"workers": cores, "bound": cores}


# --- the real model --------------------------------------------------------------------------------------------------


@pytest.mark.real_model
def test_real_model_knows_paris(ours: Program, node: str, tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    flags = ("--numa-node", node, "--numa-report", file, "-m", models.real_model(), "-c", "256", "--temp", "0")
    done = ours.ok(*flags, "-p", "Paris is the capital and most populous city of", "-n", "4")
    assert "France" in done.stdout
    report = json.loads(file.read_text(encoding="utf-8"))
    assert report["ok"]
    assert all(region["elsewhere"] == 0 for region in report["regions"])
