"""Being asked to end: whatever the program is doing, it is gone within two seconds, with the exit code that is promised."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.build.programs import Program, clean
from tests.build.servers import Running, free_port, get, post
from tests.build.terminal import Terminal

SOON = 2.0  # seconds
LOADING = "llamafile-numa: loading "
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
ONE = ("-t", "1", "-tb", "1")  # threads do not wait for each other where a busy machine runs one of them only
LONG = ("-n", "100000", "--ignore-eos", "-c", "0", *ONE)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that takes a while to load."""
    from tools import models

    return models.synthetic_model(300)


def server(program: Program, model: Path, *flags: str, **environment: str) -> Running:
    given = ("--server", "-m", model, "-c", "256", "--port", str(free_port()), *ONE)
    return Running(program, *given, *flags, **environment)


def address(running: Running) -> str:
    return running.said.split("listening on ")[1].split()[0]


def assert_ends(running: Running, number: signal.Signals, code: int) -> None:
    running.process.send_signal(number)
    assert running.end(SOON) == code


# --- the server: success ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", SIGNALS)
def test_server_that_is_idle(ours: Program, model: Path, number: signal.Signals) -> None:
    with server(ours, model) as running:
        running.until("listening on ")
        post(f"{address(running)}/completion", {"prompt": "one", "n_predict": 1})  # it is past the last of its preparations
        assert_ends(running, number, 0)
        assert "cleaning up before exit" in running.said


def test_server_that_answers(ours: Program, model: Path) -> None:
    with server(ours, model) as running:
        running.until("listening on ")
        url = address(running)
        body = {"prompt": "one day", "n_predict": 100000, "ignore_eos": True}
        asking = threading.Thread(target=ask, args=(f"{url}/completion", body))
        asking.start()
        running.until("processing task")
        assert_ends(running, signal.SIGTERM, 0)
        asking.join()


def ask(url: str, body: dict[str, object]) -> None:
    try:
        post(url, body)
    except OSError:  # it is cut short
        pass


@pytest.mark.parametrize("flags", [("--numa-node", "none"), ("map",), ("copy",)], ids=" ".join)
def test_server_that_loads(ours: Program, node: str, large: Path, flags: tuple[str, ...]) -> None:
    weights = flags if len(flags) > 1 else ("--numa-node", node, "--numa-weights", *flags)
    with server(ours, large, *weights) as running:
        running.until(LOADING)
        assert_ends(running, signal.SIGTERM, 0)
        assert "listening on" not in running.said
        assert "NUMA node" not in running.said


def test_server_before_the_weights(ours: Program, model: Path) -> None:
    with server(ours, model) as running:
        running.until("loading model")
        assert_ends(running, signal.SIGTERM, 0)


def test_report_is_not_half_written(ours: Program, node: str, large: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    with server(ours, large, "--numa-node", node, "--numa-report", str(report)) as running:
        running.until(LOADING)
        assert_ends(running, signal.SIGTERM, 0)
    assert report.read_text() == ""


def test_what_was_ignored_stays_ignored(ours: Program, model: Path) -> None:
    """As nohup asks for."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        running = server(ours, model)
    finally:
        signal.signal(signal.SIGHUP, before)
    with running:
        running.until("listening on ")
        running.process.send_signal(signal.SIGHUP)
        time.sleep(0.3)
        assert "ok" in get(f"{address(running)}/health")
        assert_ends(running, signal.SIGTERM, 0)


def test_what_it_starts_can_be_asked_to_end(ours: Program, model: Path) -> None:
    """Programs inherit what is blocked: for those that the server starts, nothing is."""
    with server(ours, model) as running:
        running.until("listening on ")
        deadline = time.monotonic() + SOON  # the C library blocks all for a moment where it starts or ends a thread
        while "SigBlk:\t0000000000000000" not in Path("/proc", str(running.process.pid), "status").read_text():
            assert time.monotonic() < deadline


def test_server_whose_log_nobody_reads_any_more(ours: Program, model: Path) -> None:
    port = free_port()
    command: list[str | Path] = [ours.path, "--server", "-m", model, "-c", "256", "--port", str(port), *ONE]
    with subprocess.Popen(command, env=clean({}), stdin=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        assert process.stderr
        while b"listening on " not in process.stderr.readline():
            assert process.poll() is None
        process.stderr.close()
        body = {"prompt": "one", "n_predict": 1}
        for _ in range(3):
            assert post(f"http://127.0.0.1:{port}/completion", body)["content"]
        process.terminate()
        assert process.wait(SOON) == 0


# --- all else: it was not done ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 143)])
def test_completion_that_generates(ours: Program, model: Path, number: signal.Signals, code: int) -> None:
    with Running(ours, "-m", model, "-p", "one day", *LONG) as running:
        running.until(" ")
        assert_ends(running, number, code)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_completion_that_loads(ours: Program, node: str, large: Path, number: signal.Signals, code: int) -> None:
    with Terminal([ours.path, "-m", large, "-p", "one day", "--numa-node", node]) as terminal:
        terminal.until("loading ")
        terminal.signal(number)
        assert terminal.end(SOON) == code
        assert terminal.screen.rstrip(" \r").endswith("\r") or terminal.screen.endswith("\r")


def test_ctrl_c_never_waits_for_the_log(ours: Program, model: Path) -> None:
    """llama.cpp's handler writes to the log, which is locked most of the time by a model that is this fast."""
    for pause in range(10):
        with Running(ours, "-m", model, "-p", "one day", *LONG) as running:
            running.until(" ")
            time.sleep(pause / 100)
            assert_ends(running, signal.SIGINT, 130)


def test_command_of_llama(ours: Program, node: str, model: Path) -> None:
    with Running(ours, "bench", "-m", model, "-p", "0", "-n", "512", "-r", "100000", "-t", "1", "--numa-node", node) as running:
        running.until("NUMA node")
        assert_ends(running, signal.SIGTERM, 143)


@pytest.mark.parametrize("mode", [("-p", "x"), ("--server",), ("--chat",)], ids=" ".join)
def test_strict_ends_with_its_own_code(ours: Program, node: str, model: Path, mode: tuple[str, ...]) -> None:
    """Also where the server is a thread of the chat. A report that cannot be written is a reason, too."""
    port = ("--port", str(free_port())) if mode[0] != "-p" else ()
    strict = ("--numa-node", node, "--numa-strict", "--numa-report", "/dev/full")
    done = ours(*mode, *port, *strict, "-m", model, "-c", "256", *ONE)
    assert done.returncode == 3, done.stderr
    assert "nothing is served" in done.stderr or "could not be written" in done.stderr


# --- the chat ---------------------------------------------------------------------------------------------------------


def chat(program: Program, model: Path, *flags: str) -> Terminal:
    return Terminal([program.path, "-m", model, "-c", "1024", "--port", str(free_port()), *ONE, *flags])


def test_ctrl_c_while_the_chat_loads(ours: Program, node: str, large: Path) -> None:
    with chat(ours, large, "--numa-node", node) as terminal:
        terminal.until("loading ")
        terminal.type("\x03")
        assert terminal.end(SOON) == 130
        assert terminal.echoes()


def test_ctrl_c_at_the_prompt_leaves(ours: Program, model: Path) -> None:
    with chat(ours, model) as terminal:
        terminal.until("\n> ")
        assert not terminal.echoes()
        terminal.type("\x03")
        assert terminal.end(SOON) == 0
        assert terminal.echoes()


def test_ctrl_c_stops_the_answer_and_the_chat_goes_on(ours: Program, model: Path) -> None:
    with chat(ours, model, "-c", "0", "--ignore-eos") as terminal:
        terminal.until("\n> ")
        terminal.type("one day\r")
        terminal.until("bos")  # a word of the answer, which would go on for long
        asked = time.monotonic()
        terminal.type("\x03")
        terminal.until("\n> ")
        assert time.monotonic() - asked < SOON
        terminal.type("/exit\r")
        assert terminal.end(SOON) == 0
        assert terminal.echoes()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_chat_whose_terminal_is_closed(ours: Program, model: Path, number: signal.Signals) -> None:
    with chat(ours, model) as terminal:
        terminal.until("\n> ")
        terminal.signal(number)
        assert terminal.end(SOON) == 143
        assert terminal.echoes()


# --- the parent -------------------------------------------------------------------------------------------------------

# Starts a program, maybe in a thread that then ends, and ends when its stdin does.
PARENT = """
import os, subprocess, sys, threading
if os.environ.get("LLAMAFILE_NUMA_EXIT_WITH_PARENT") == "PID":
    os.environ["LLAMAFILE_NUMA_EXIT_WITH_PARENT"] = str(os.getpid())
start = lambda: print(subprocess.Popen(sys.argv[2:], stdin=subprocess.DEVNULL).pid, flush=True)
if sys.argv[1] == "thread":
    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
else:
    start()
sys.stdin.read()
"""


class Parent:
    """A process that starts the program."""

    def __init__(self, kind: str, command: Sequence[str | Path], **environment: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", PARENT, kind, *map(str, command)],
            env=clean(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self.process.stdout
        self.child = int(self.process.stdout.readline())

    def __enter__(self) -> Parent:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        if self.child_lives():
            os.kill(self.child, signal.SIGKILL)

    def child_lives(self) -> bool:
        try:
            state = Path("/proc", str(self.child), "stat").read_text(encoding="ascii")
        except FileNotFoundError:
            return False
        return state.rpartition(")")[2].split()[0] != "Z"

    def child_ends(self) -> bool:
        deadline = time.monotonic() + SOON
        while self.child_lives():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        return True

    def wait_for_child(self, port: str) -> None:
        deadline = time.monotonic() + 60
        while True:
            try:
                get(f"http://127.0.0.1:{port}/health")
                return
            except OSError:
                assert self.child_lives() and time.monotonic() < deadline
                time.sleep(0.05)


TWIN = "LLAMAFILE_NUMA_EXIT_WITH_PARENT"
WITH_PARENT = [(("--exit-with-parent",), {}), ((), {TWIN: "1"}), ((), {TWIN: "PID"})]


@pytest.mark.parametrize(("flags", "environment"), WITH_PARENT, ids=["flag", "environment", "by number"])
def test_ends_with_its_parent(
    ours: Program, model: Path, flags: tuple[str, ...], environment: dict[str, str]
) -> None:
    port = str(free_port())
    command: list[str | Path] = [ours.path, "--server", "-m", model, "-c", "256", *ONE, "--port", port, *flags]
    with Parent("thread", command, **environment) as parent:
        parent.wait_for_child(port)
        time.sleep(0.3)
        assert parent.child_lives()  # the thread that started it has ended, its process has not
        parent.process.kill()
        parent.process.wait()
        assert parent.child_ends()


def test_ends_with_its_parent_while_it_loads(ours: Program, node: str, large: Path) -> None:
    """And where the parent has ended before it could be watched."""
    command: list[str | Path] = [ours.path, "--server", "-m", large, "--port", str(free_port()), "--numa-node", node]
    for pause in (0, 0.1):
        with Parent("main", command, LLAMAFILE_NUMA_EXIT_WITH_PARENT="PID") as parent:
            time.sleep(pause)
            parent.process.kill()
            parent.process.wait()
            assert parent.child_ends()


@pytest.mark.parametrize("value", ["x", "-1", "1 "])
def test_parent_that_is_no_number(ours: Program, value: str) -> None:
    done = ours("-m", "/no/such/model.gguf", "-p", "x", **{TWIN: value})
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert f"{TWIN}: '{value}' is not possible" in done.stderr


def test_lives_on_without_its_parent_otherwise(ours: Program, model: Path) -> None:
    port = str(free_port())
    command: list[str | Path] = [ours.path, "--server", "-m", model, "-c", "256", *ONE, "--port", port]
    with Parent("main", command, LLAMAFILE_NUMA_EXIT_WITH_PARENT="0") as parent:
        parent.wait_for_child(port)
        parent.process.kill()
        parent.process.wait()
        time.sleep(0.5)
        assert "ok" in get(f"http://127.0.0.1:{port}/health")


def children(process: int) -> list[int]:
    return [int(child) for file in Path(f"/proc/{process}/task").glob("*/children") for child in file.read_text().split()]


def test_what_it_starts_ends_with_it(ours: Program, model: Path, tmp_path: Path) -> None:
    """Not only with the process that was named."""
    (tmp_path / "small.gguf").symlink_to(model)
    port = str(free_port())
    flags = ("--server", "--models-dir", tmp_path, "-c", "256", *ONE, "--port", port)
    with Running(ours, *flags, **{TWIN: str(os.getpid())}) as router:
        router.until("listening on ")
        assert post(f"http://127.0.0.1:{port}/completion", {"model": "small", "prompt": "one", "n_predict": 1})["content"]
        started = children(router.process.pid)
        assert started
        router.process.kill()
        router.process.wait()
        deadline = time.monotonic() + SOON
        while any(Path("/proc", str(one)).exists() for one in started):
            assert time.monotonic() < deadline
            time.sleep(0.02)
