"""The Windows program says what the Linux one says.

The two are built by different compilers and perhaps for different CPUs, so sums are rounded in other ways. Texts are
compared as far as each next token is likelier than any other by far more than that: by 0.19 in the logarithm at least
for SYNTHETIC, by 0.3 for REAL. The likelihoods themselves are compared as numbers.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.build.programs import Program, usable_node
from tests.build.servers import Running, free_port, post, serving
from tests.wine.program import WindowsProgram
from tools import models
from tools.lab import evidence

pytestmark = pytest.mark.wine

SYNTHETIC = ("-p", "one day ban", "-n", "11", "-c", "256", "--temp", "0")
REAL = {"prompt": "Monday, Tuesday,", "n_predict": 24, "temperature": 0, "n_probs": 5}
CLOSE = 0.3  # in the logarithm of a likelihood; measured: 0.17 at most, between AVX2 and AVX-512


@pytest.fixture(scope="module")
def expected(linux: Program, model: Path) -> str:
    return linux.ok("--numa-node", usable_node(linux), "-m", model, *SYNTHETIC).stdout


@pytest.mark.parametrize("weights", ["auto", "map", "copy"])
def test_synthetic_model(two_nodes: WindowsProgram, model: Path, expected: str, weights: str) -> None:
    done = two_nodes.ok("--numa-node", "1", "--numa-weights", weights, "-m", model, *SYNTHETIC)
    assert done.stdout == expected
    assert len(expected.split()) == 11


@pytest.mark.parametrize("flags", [(), ("--numa-node", "none")])
def test_without_a_node(windows: WindowsProgram, model: Path, expected: str, flags: tuple[str, ...]) -> None:
    done = windows.ok(*flags, "-m", model, *SYNTHETIC)
    assert (done.stdout, done.stderr) == (expected, "")


def test_another_seed_is_another_model(two_nodes: WindowsProgram, expected: str) -> None:
    """The comparisons above would see wrong weights: other weights say something else."""
    assert two_nodes.ok("--numa-node", "1", "-m", models.synthetic_model(seed=1), *SYNTHETIC).stdout != expected


# --- the real model, served ------------------------------------------------------------------------------------------


def threads(pid: int) -> list[evidence.Thread]:
    """Every thread of a process, with the CPUs that Linux lets it run on."""
    status = [file.read_text(encoding="utf-8") for file in Path(f"/proc/{pid}/task").glob("*/status")]
    lines = [line for text in status for line in text.splitlines() if line.startswith(("Name:", "Cpus_allowed_list:"))]
    return evidence.parse_threads("\n".join(lines))


def test_workers_are_where_linux_sees_them(two_nodes: WindowsProgram, tmp_path: Path) -> None:
    """Wine asks Linux to keep a thread on its CPUs."""
    file = tmp_path / "report.json"
    model = models.synthetic_model(1)
    flags = ("--numa-node", "1", "-t", "3", "--numa-report", file, "-m", model, "-c", "256", "-np", "1")
    port = free_port()
    with Running(two_nodes, "--server", "--port", str(port), *flags) as running:
        running.until("listening on ")
        post(f"http://127.0.0.1:{port}/completion", {"prompt": "one", "n_predict": 1})
        report = json.loads(file.read_text(encoding="utf-8"))
        bound = [thread for thread in threads(running.process.pid) if thread.cpus == {1}]
    assert report["threads"] == {"workers": 3, "bound": 3}
    assert len(bound) >= 3


@pytest.mark.real_model
def test_real_model(two_nodes: WindowsProgram, linux: Program) -> None:
    """Served by both: the same text, and each of its tokens as likely."""
    flags = ("-m", models.real_model(), "-c", "256", "-np", "1", "-t", "1")
    with serving(linux, "--server", "--numa-node", usable_node(linux), *flags) as url:
        theirs = post(f"{url}/completion", REAL)
    with serving(two_nodes, "--server", "--numa-node", "1", *flags) as url:
        ours = post(f"{url}/completion", REAL)
    assert ours["content"] == theirs["content"]
    assert ours["content"].startswith(" Wednesday, Thursday, Friday, Saturday, Sunday,")
    assert likelihoods(ours) == pytest.approx(likelihoods(theirs), abs=CLOSE)


def likelihoods(answer: dict[str, Any]) -> list[float]:
    """Of each token that was said."""
    return [token["logprob"] for token in answer["completion_probabilities"]]
