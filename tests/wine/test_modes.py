"""What the Windows program is and serves, and which flags it takes: as the Linux one, where each case is tested."""

from __future__ import annotations

import gzip
import json
import re
import urllib.request
from pathlib import Path

import pytest

from tests.build import test_modes as linux
from tests.build.programs import GENERATE, SECONDS
from tests.build.servers import Running, free_port, get, post, serving
from tests.wine.program import WindowsProgram

pytestmark = pytest.mark.wine

SERVED = ("-c", "256", "-t", "1", "-tb", "1", "-np", "1")


# --- modes and ports -------------------------------------------------------------------------------------------------


def test_no_terminal_serves_on_8080_or_the_next_free_port(windows: WindowsProgram, model: Path) -> None:
    linux.test_no_terminal_serves_on_8080_or_the_next_free_port(windows, model)


def test_two_that_start_with_defaults_get_along(windows: WindowsProgram, model: Path) -> None:
    linux.test_two_that_start_with_defaults_get_along(windows, model)


@pytest.mark.parametrize("mode", ["--server", "--chat"])
def test_a_port_that_was_asked_for_and_is_taken(windows: WindowsProgram, mode: str) -> None:
    linux.test_a_port_that_was_asked_for_and_is_taken(windows, mode)


@pytest.mark.parametrize("mode", [(), ("--chat",)])
def test_no_model(windows: WindowsProgram, mode: tuple[str, ...]) -> None:
    linux.test_no_model(windows, mode)


@pytest.mark.parametrize("arguments", linux.ASKS, ids=" ".join)
def test_help_comes_whatever_else_is_wrong(windows: WindowsProgram, arguments: tuple[str, ...]) -> None:
    linux.test_help_comes_whatever_else_is_wrong(windows, arguments)


def test_version(windows: WindowsProgram) -> None:
    lines = windows.ok("--version").stdout.splitlines()
    assert lines[0].startswith("llamafile-numa ")
    assert any("Clang" in line and "Windows" in line for line in lines)


# --- flags of llamafile ----------------------------------------------------------------------------------------------


def test_old_flags_are_taken(windows: WindowsProgram, model: Path) -> None:
    plain = windows.ok("-m", model, *GENERATE)
    silent = ("--nobrowser", "--nologo", "--ascii", "--silent-prompt", "--log-disable")
    old = windows.ok("-m", model, *GENERATE, *silent, "--unsecure", "--gpu", "NVIDIA")
    assert old.stdout == plain.stdout
    assert old.stderr.splitlines() == [
        "llamafile-numa: --unsecure: there is no sandbox here: the program may do what its user may",
        "llamafile-numa: --gpu NVIDIA: this build computes on CPUs only",
    ]


@pytest.mark.parametrize("flags", [("--mmap",), ("--no-mmap",), ("--mlock",), ("--no-mmap", "--mlock")], ids=" ".join)
@pytest.mark.parametrize("node", [("--numa-node", "1"), ("--numa-node", "none")], ids=" ".join)
def test_load_modes(two_nodes: WindowsProgram, model: Path, flags: tuple[str, ...], node: tuple[str, ...]) -> None:
    done = two_nodes.ok("-m", model, *GENERATE, *flags, *node)
    assert done.stdout == two_nodes.ok("-m", model, *GENERATE, *node).stdout
    assert "failed to" not in done.stderr
    assert "warning" not in done.stderr


@pytest.mark.parametrize("mode", [("-p", "x", "-n", "1"), ("--server",)], ids=" ".join)
def test_an_abort_is_no_matter_of_the_node(windows: WindowsProgram, model: Path, mode: tuple[str, ...]) -> None:
    """Windows ends what aborts with 3."""
    done = windows("-m", model, *mode, "--grammar", "x", *(["--port", str(free_port())] if mode[0] != "-p" else []))
    assert done.returncode == 1
    assert "terminating" in done.stderr


# --- commands of llama.cpp -------------------------------------------------------------------------------------------


def test_bench(two_nodes: WindowsProgram, model: Path) -> None:
    done = two_nodes.ok("bench", "--numa-node", "1", "-m", model, "-p", "8", "-n", "4", "-r", "1", "-o", "json")
    assert [(result["n_prompt"], result["n_gen"]) for result in json.loads(done.stdout)] == [(8, 0), (0, 4)]
    assert "NUMA node 1" in done.stderr


def test_quantize_and_perplexity(windows: WindowsProgram, model: Path, tmp_path: Path) -> None:
    smaller, text = tmp_path / "smaller.gguf", tmp_path / "text.txt"
    windows.ok("quantize", "--allow-requantize", model, smaller, "Q8_0")
    assert smaller.stat().st_size != model.stat().st_size
    text.write_text("one day ban " * 400, encoding="utf-8")
    done = windows.ok("perplexity", "-m", smaller, "-f", text, "-c", "128", "--chunks", "2")
    assert re.search(r"Final estimate: PPL = \d", done.stdout + done.stderr)


# --- what is served --------------------------------------------------------------------------------------------------


def get_page(url: str) -> bytes:
    """As browsers ask for it, which all take it compressed."""
    request = urllib.request.Request(url, headers={"Accept-Encoding": "gzip"})
    with urllib.request.urlopen(request, timeout=SECONDS) as response:
        text: bytes = response.read()
    return text


def test_page_and_verdict(two_nodes: WindowsProgram, model: Path, tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    flags = ("--server", "--numa-node", "1", "--numa-report", file, "-m", model, *SERVED, "--metrics")
    with serving(two_nodes, *flags) as url:
        report = json.loads(file.read_text(encoding="utf-8"))
        assert json.loads(get(f"{url}/numa")) == report
        assert json.loads(get(f"{url}/props"))["numa"] == report
        metrics = get(f"{url}/metrics").splitlines()
        page = gzip.decompress(get_page(url)).decode()
        body = {"messages": [{"role": "user", "content": "one"}], "max_tokens": 4}
        answer = post(f"{url}/v1/chat/completions", body)
    assert report["node"] == 1
    for region in report["regions"]:
        sample = f'llamafile_numa_pages{{region="{region["name"]}",place="on_node"}} {region["on_node"]}'
        assert metrics.count(sample) == 1
    assert "<html" in page
    assert "<script" in page
    assert answer["usage"]["completion_tokens"] == 4


def test_a_router_starts_its_models(two_nodes: WindowsProgram, model: Path, tmp_path: Path) -> None:
    (tmp_path / "small.gguf").symlink_to(model)
    port = free_port()
    flags = ("--server", "--models-dir", tmp_path, "--port", str(port), "--numa-node", "1", *SERVED)
    with Running(two_nodes, *flags) as server:
        server.until("listening on ")
        body = {"model": "small", "prompt": "one day", "n_predict": 4}
        assert post(f"http://127.0.0.1:{port}/completion", body)["content"]
        assert "NUMA node 1" in server.said


@pytest.mark.parametrize("weights", ["map", "copy"])
def test_loading_is_told_in_lines(two_nodes: WindowsProgram, model: Path, weights: str) -> None:
    flags = ("--server", "-m", model, *SERVED, "--numa-node", "1", "--numa-weights", weights)
    with Running(two_nodes, *flags, "--port", str(free_port())) as server:
        server.until("listening on ")
    told = [line.strip() for line in server.said.splitlines() if line.startswith("llamafile-numa: load")]
    size = re.fullmatch(r"llamafile-numa: loading (\d+\.\d MiB)", told[0])
    assert size
    assert told[-1].startswith(f"llamafile-numa: loaded {size[1]} in ")
