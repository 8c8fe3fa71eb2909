"""The Windows program in a console, as Wine shows one on a terminal, and how it ends.

Wine hands on neither Ctrl-C nor the end of its console: console_run.c tells the program of them, as Windows would.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.build.programs import SECONDS
from tests.build.servers import Running, free_port, get, post
from tests.build.terminal import Terminal
from tests.build.test_endings import LOADING, ONE, SOON
from tests.core import cc
from tests.wine import host
from tests.wine.program import WindowsProgram
from tools import models, wine

pytestmark = pytest.mark.wine

CTRL_C, CTRL_BREAK, CTRL_CLOSE, SHUTDOWN = 0, 1, 2, 6
PROMPT = "\n>"  # and a space, which conhost leaves out
SERVED = ("-c", "256", *ONE)
# How conhost moves about: it writes what has changed, as it would in a window.
MOVES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]*\x07")


@dataclass(frozen=True)
class Told(WindowsProgram):
    """A program that is told of what happens to its console: console_run.c, and the file that this is written to."""

    starter: Path = Path()
    events: Path = Path()

    def command(self, *arguments: str | Path) -> list[str]:
        own = (wine.path(word) if isinstance(word, Path) else word for word in (self.path, *arguments))
        return [*self.under, str(wine.program()), str(self.starter), wine.path(self.events), *own]

    def tell(self, event: int) -> None:
        with self.events.open("a", encoding="ascii") as file:
            file.write(str(event))


class Window(Terminal):
    """A program in a console window."""

    def __init__(self, program: WindowsProgram, *arguments: str | Path) -> None:
        environment = {**program.environment(), "TERM": "xterm"}
        super().__init__(program.command(*arguments), seconds=SECONDS, raw=True, **environment)

    def read(self, seconds: float) -> bool:
        came = super().read(seconds)
        self.screen = MOVES.sub("", self.screen)
        return came


@pytest.fixture(scope="module")
def starter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = Path(__file__).with_name("console_run.c")
    return cc.compile_for_windows([source], into=tmp_path_factory.mktemp("console"))


@pytest.fixture
def ours(two_nodes: WindowsProgram, starter: Path, tmp_path: Path) -> Told:
    prefix = host.prefix(programs=("conhost.exe",))
    return Told(two_nodes.path, (), prefix, two_nodes.under, starter=starter, events=tmp_path / "events")


@pytest.fixture(scope="module")
def large() -> Path:
    """A model that takes a while to load."""
    return models.synthetic_model(300)


# --- chat ------------------------------------------------------------------------------------------------------------


def chat(program: WindowsProgram, model: Path, *flags: str) -> Window:
    return Window(program, "-m", model, "--numa-node", "1", "--port", str(free_port()), *ONE, *flags)


def test_chat_with_the_server_beside(ours: Told, model: Path) -> None:
    port = free_port()
    with chat(ours, model, "--port", str(port), "-c", "256", "-n", "12") as window:
        assert f"http://127.0.0.1:{port}" in window.until(PROMPT)
        assert json.loads(get(f"http://127.0.0.1:{port}/health")) == {"status": "ok"}
        assert json.loads(get(f"http://127.0.0.1:{port}/numa"))["node"] == 1
        window.type("one day ban\r")
        assert len(window.until(" t/s ]").split()) > 3
        window.until(PROMPT)
        window.type("/exit\r")
        assert window.end() == 0
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) != 0


def test_ctrl_c_while_the_chat_loads(ours: Told, large: Path) -> None:
    with chat(ours, large) as window:
        window.until("loading ")
        ours.tell(CTRL_C)
        assert window.end(SOON) == 130


def test_ctrl_c_stops_the_answer_and_then_leaves(ours: Told, model: Path) -> None:
    with chat(ours, model, "-c", "0", "--ignore-eos") as window:
        window.until(PROMPT)
        window.type("one day\r")
        window.until("bos")  # a word of the answer, which would go on for long
        asked = time.monotonic()
        ours.tell(CTRL_C)
        window.until(PROMPT)
        assert time.monotonic() - asked < SOON
        ours.tell(CTRL_C)
        assert window.end(SOON) == 0


@pytest.mark.parametrize("event", [CTRL_BREAK, CTRL_CLOSE, SHUTDOWN])
def test_chat_whose_window_is_closed(ours: Told, model: Path, event: int) -> None:
    with chat(ours, model) as window:
        window.until(PROMPT)
        ours.tell(event)
        assert window.end(SOON) == 143


# --- a completion and a server ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("event", "code"), [(CTRL_C, 130), (CTRL_BREAK, 143), (CTRL_CLOSE, 143)])
def test_completion(ours: Told, model: Path, event: int, code: int) -> None:
    with Running(ours, "-m", model, "-p", "one day", "-n", "100000", "--ignore-eos", "-c", "0", *ONE) as running:
        running.until(" ")
        ours.tell(event)
        assert running.end(SOON) == code


@pytest.mark.parametrize("event", [CTRL_C, CTRL_CLOSE])
@pytest.mark.parametrize("said", [LOADING, "listening on "])
def test_server(ours: Told, large: Path, said: str, event: int) -> None:
    port = free_port()
    with Running(ours, "--server", "-m", large, *SERVED, "--port", str(port), "--numa-node", "1") as running:
        running.until(said)
        if said != LOADING:
            assert post(f"http://127.0.0.1:{port}/completion", {"prompt": "one", "n_predict": 1})
        ours.tell(event)
        assert running.end(SOON) == 0
        assert ("listening on" in running.said) == (said != LOADING)


# --- the parent ------------------------------------------------------------------------------------------------------


def processes(name: str) -> list[int]:
    """The numbers that Linux has for the runs of the program that were given this name."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if name.encode() in words and words[0].endswith(b"llamafile-numa.exe"):
            found.append(int(folder.name))
    return found


@pytest.mark.parametrize("said", [LOADING, "listening on "])
@pytest.mark.parametrize("watched", [True, False])
def test_ends_with_its_parent(ours: Told, large: Path, said: str, watched: bool, tmp_path: Path) -> None:
    """Which is ended by force."""
    name = tmp_path.name  # not a port, which Wine may hold for a moment after the last one's end
    flags: tuple[str | Path, ...] = ("--server", "-m", large, *SERVED, "--port", "0", "--alias", name)
    with Running(ours, *flags, *(["--exit-with-parent"] if watched else [])) as parent:
        parent.until(said)
        started = processes(name)
        assert len(started) == 1
        parent.process.kill()
        parent.process.wait()
        deadline = time.monotonic() + SOON
        while processes(name) and time.monotonic() < deadline:
            time.sleep(0.02)
        ended = not processes(name)
        for one in () if ended else started:
            os.kill(one, signal.SIGKILL)
        assert ended == watched
