"""What is shown while a model is loaded."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.build.programs import GENERATE, Program
from tests.build.servers import Running, free_port
from tests.build.terminal import COLUMNS, Terminal
from tests.core import cc
from tools.paths import ROOT

SERVED = ("-c", "256", "-t", "1", "-tb", "1")
FULL = re.compile(r"loading (\d\.\d) of 4\.0 GiB \((\d+) %\), (\d+\.\d) (MiB|GiB)/s, (\d+) s left")


# --- a load that is made up -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def display(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = cc.compiler()
    if compiler is None:
        pytest.skip("no C++ compiler")
    target = tmp_path_factory.mktemp("progress") / "progress_run"
    sources = (Path(__file__).with_name("progress_run.cpp"), ROOT / "src" / "program" / "progress.cpp")
    folders = ("src/program", "src/numa_node")
    command = [*compiler, "-std=c++17", "-O1", "-g", *cc.WARNINGS, *(f"-I{ROOT / folder}" for folder in folders)]
    done = subprocess.run(
        [*command, *sources, "-pthread", "-lstdc++", "-lm", "-o", target], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return target


def shown(display: Path, *arguments: str) -> str:
    done = subprocess.run([display, *arguments], stderr=subprocess.PIPE, check=True)
    return done.stderr.decode()


def test_line_on_a_terminal(display: Path) -> None:
    text = shown(display, "live")
    *frames, last = text.split("\r")
    assert "\x1b" not in text  # no colours, no cursor keys: nothing to be switched off
    assert all(len(frame) < COLUMNS - 20 for frame in frames)
    drawn = [FULL.fullmatch(frame.rstrip()) for frame in frames]
    told = [(float(m[1]), int(m[2]), float(m[3]) * (1024 if m[4] == "GiB" else 1), int(m[5])) for m in drawn if m]
    assert len(told) > 20
    for gib, percent, rate, left in told:
        assert percent == pytest.approx(25 * gib, abs=3)
        assert rate == pytest.approx(1024, rel=0.3)
        assert left == pytest.approx((4 - gib) * 1024 / rate, abs=1)
    assert "loaded 4.0 GiB, preparing" in text
    assert "moving to the node: 1.0 of 2.0 GiB (50 %)" in text
    # What stood there is gone before others write.
    assert frames[-1].strip() == ""
    assert re.fullmatch(r"llamafile-numa: loaded 4\.0 GiB in [45]\.\d s\nthe next line\n", last)


def test_nothing_stays_where_it_is_to_be_quiet(display: Path) -> None:
    *frames, last = shown(display, "live", "quiet").split("\r")
    assert any(FULL.fullmatch(frame.rstrip()) for frame in frames)
    assert last == "the next line\n"


def test_a_few_lines_elsewhere(display: Path) -> None:
    first, *between, last, after = shown(display, "plain").splitlines()
    assert first == "llamafile-numa: loading 4.0 GiB"
    assert re.fullmatch(r"llamafile-numa: loaded 4\.0 GiB in [45]\.\d s", last)
    assert after == "the next line"
    assert 1 <= len(between) <= 2
    assert all(FULL.fullmatch(line.removeprefix("llamafile-numa: ")) for line in between)


def test_no_lines_where_it_is_to_be_quiet(display: Path) -> None:
    assert shown(display, "plain", "quiet") == "the next line\n"


# --- the program ------------------------------------------------------------------------------------------------------


def wanted(node: str, weights: str) -> tuple[str, ...]:
    return ("--numa-node", "none") if weights == "none" else ("--numa-node", node, "--numa-weights", weights)


WEIGHTS = ["map", "copy", "none"]


@pytest.mark.parametrize("weights", WEIGHTS)
def test_server_says_it_in_lines(ours: Program, node: str, model: Path, weights: str) -> None:
    with Running(ours, "--server", "-m", model, *SERVED, *wanted(node, weights), "--port", str(free_port())) as server:
        server.until("listening on ")
    lines = [line for line in server.said.splitlines() if line.startswith("llamafile-numa: load")]
    assert lines[0] == f"llamafile-numa: loading {tensors(model)} MiB"
    assert lines[-1].startswith(f"llamafile-numa: loaded {tensors(model)} MiB in ")
    assert server.said.index("llamafile-numa: loaded") < server.said.find("NUMA node") or weights == "none"
    assert "\r" not in server.said


def tensors(model: Path) -> str:
    """MiB of the weights."""
    from gguf import GGUFReader

    return f"{sum(int(tensor.n_bytes) for tensor in GGUFReader(model).tensors) / (1 << 20):.1f}"


@pytest.mark.parametrize("weights", WEIGHTS)
def test_completion_shows_it_on_a_terminal_and_takes_it_away(
    ours: Program, node: str, model: Path, weights: str
) -> None:
    with Terminal([ours.path, "-m", model, *GENERATE, *SERVED[2:], *wanted(node, weights)], NO_COLOR="1") as terminal:
        assert terminal.end() == 0
        assert f"loading 0.0 of {tensors(model)} MiB (0 %)" in terminal.screen
        assert "llamafile-numa:" not in terminal.screen
        assert re.search(r"\r +\r", terminal.screen)
        assert "\x1b[3" not in terminal.screen


@pytest.mark.parametrize("weights", WEIGHTS)
def test_what_is_counted_is_what_there_is(ours: Program, node: str, weights: str) -> None:
    """The bytes come to the whole, whichever way they come."""
    from tools import models

    model = models.synthetic_model(120)
    flags = (*SERVED, "--no-warmup", *wanted(node, weights), "--port", str(free_port()))
    with Terminal([ours.path, "--server", "-m", model, *flags]) as terminal:
        terminal.until("listening on ")
        counted = [float(found) for found in re.findall(rf"loading (\d+\.\d) of {tensors(model)} MiB", terminal.screen)]
        assert counted == sorted(counted)
        assert f"loaded {tensors(model)} MiB, preparing" in terminal.screen


def test_quiet_completion_says_nothing_elsewhere(ours: Program, model: Path) -> None:
    assert ours.ok("-m", model, *GENERATE).stderr == ""


def test_dumb_terminal_gets_lines(ours: Program, model: Path) -> None:
    command: list[str | Path] = [ours.path, "--server", "-m", model, *SERVED, "--port", str(free_port())]
    with Terminal(command, TERM="dumb") as terminal:
        terminal.until("listening on ")
        assert "llamafile-numa: loading" in terminal.screen
        assert not re.search(r"\r[^\n]", terminal.screen)
