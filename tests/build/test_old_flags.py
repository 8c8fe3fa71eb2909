"""Flags that llamafile users are used to: each is taken in each mode, and what it no longer does is said in one line."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from tests.build.programs import GENERATE, Program
from tests.build.servers import Running, free_port, get
from tools.paths import ROOT

TABLE = re.compile(r'^    \{ "(-[\w-]+)", +(\d|OPTIONAL_VALUE), (ALL|[A-Z |]+),', re.MULTILINE)
SOURCE = (ROOT / "src" / "program" / "old_flags.cpp").read_text(encoding="utf-8")
VALUES = {"--gpu": "auto", "--samplers-seq": "kpt", "--url-prefix": "/x", "-spf": "/dev/null"}
MODES = {
    "COMPLETE": ("--cli", "-p", "x", "-n", "1"),
    "SERVE": ("--server",),
    "CHAT": ("--chat",),
}
SILENT = {"--nobrowser", "--nocompile", "--nologo", "--ascii", "--silent-prompt", "--mmap", "--no-mmap", "--mlock"}


def rows() -> list[tuple[str, tuple[str, ...], str]]:
    """Each old flag with its value, and a mode that it is old in."""
    found: list[tuple[str, tuple[str, ...], str]] = []
    for name, values, modes in TABLE.findall(SOURCE):
        value = (VALUES.get(name, "1"),) if values == "1" else ()
        found += [(name, value, mode) for mode in MODES if modes == "ALL" or mode in modes]
    return found


def test_the_table_is_read() -> None:
    assert len({name for name, _, _ in rows()}) == SOURCE.count('    { "-')
    assert {name for name, _, _ in rows()} >= SILENT


@pytest.mark.parametrize(("name", "value", "mode"), rows(), ids=lambda value: "".join(value))
def test_is_taken(ours: Program, name: str, value: tuple[str, ...], mode: str) -> None:
    """It gets as far as the model, which is not there, having said one line at most."""
    port = () if mode == "COMPLETE" else ("--port", str(free_port()))
    done = ours(*MODES[mode], *port, name, *value, "-m", "/no/such/model.gguf")
    assert done.returncode == 1
    assert "failed to load model" in done.stderr
    said = [line for line in done.stderr.splitlines() if line.startswith("llamafile-numa: -")]
    assert len(said) <= (name not in SILENT)


def test_a_line_says_what_holds_instead(ours: Program, model: Path) -> None:
    done = ours.ok("-m", model, *GENERATE, "--unsecure", "--confine-reads", "--gpu", "NVIDIA", "--tinyblas")
    assert done.stderr.splitlines() == [
        "llamafile-numa: --unsecure: there is no sandbox here: the program may do what its user may",
        "llamafile-numa: --gpu NVIDIA: this build computes on CPUs only",
        "llamafile-numa: --tinyblas: this build computes on CPUs only",
    ]


def test_text_is_the_same_with_and_without(ours: Program, model: Path) -> None:
    old = ("--nobrowser", "--gpu", "disable", "--log-disable", "--silent-prompt", "-fa", "--mlock", "--ascii")
    with_them = ours.ok("-m", model, *GENERATE, *old)
    assert with_them.stdout == ours.ok("-m", model, *GENERATE).stdout
    assert "llamafile-numa:" not in with_them.stderr


@pytest.mark.parametrize("arguments", [("--gpu", "foo"), ("--gpu",), ("--logdir",)], ids=" ".join)
def test_what_is_wrong_gets_one_line(ours: Program, arguments: tuple[str, ...]) -> None:
    done = ours("-m", "/no/such/model.gguf", "-p", "x", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    assert arguments[0] in done.stderr


# --- flags that other flags stand for ---------------------------------------------------------------------------------

LOADING = {
    ("--mmap",): "mmap",
    ("--no-mmap",): "none",
    ("--mlock",): "mmap+mlock",
    ("--no-mmap", "--mlock"): "mlock",
    ("--mlock", "--no_mmap"): "mlock",
    ("--no-mmap", "--mmap"): "mmap",
}


@pytest.mark.parametrize(("flags", "mode"), LOADING.items(), ids=lambda value: "".join(value))
def test_mapping_and_locking_are_a_load_mode(
    ours: Program, model: Path, tmp_path: Path, flags: tuple[str, ...], mode: str
) -> None:
    """Whether the file is mapped, and how much is locked, as the kernel has it."""
    old, new = (memory(ours, model, tmp_path / name, *given) for name, given in (("a", flags), ("b", ("-lm", mode))))
    assert old[0] == new[0]
    assert old[1] == pytest.approx(new[1], abs=64)
    assert old[0] == mode.startswith("mmap")
    assert (old[1] > 0) == mode.endswith("mlock")


def memory(ours: Program, model: Path, folder: Path, *flags: str) -> tuple[bool, int]:
    """Whether the model is mapped by a server with these flags, and the kilobytes that are locked in memory."""
    folder.mkdir()
    link = folder / "model.gguf"
    link.symlink_to(model)
    with Running(ours, "--server", "-m", link, "-c", "256", "-t", "1", "-tb", "1", "--port", str(free_port()), *flags) as server:
        server.until("listening on ")
        process = Path("/proc", str(server.process.pid))
        locked = re.search(r"VmLck:\s+(\d+) kB", (process / "status").read_text(encoding="ascii"))
        assert locked
        return str(model.resolve()) in (process / "maps").read_text(), int(locked[1])


def test_log_disable_leaves_errors(ours: Program, model: Path) -> None:
    flags = ("--server", "--log-disable", "-c", "256", "-t", "1", "-tb", "1", "--port", str(free_port()))
    with Running(ours, "-m", model, *flags) as server:
        port = flags[-1]
        while server.process.poll() is None and not answers(int(port)):
            pass
        server.process.terminate()
        assert server.end() == 0
        assert server.said == ""
    assert "/no/such/model.gguf" in ours(*flags, "-m", "/no/such/model.gguf").stderr


def answers(port: int) -> bool:
    time.sleep(0.05)
    try:
        return "ok" in get(f"http://127.0.0.1:{port}/health")
    except OSError:
        return False
