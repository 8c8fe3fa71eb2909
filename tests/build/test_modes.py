"""What the program is: completion, chat with the server beside it, or the server."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from tests.build.programs import GENERATE, NO_MODEL, Program
from tests.build.servers import Running, free_port, get, post, taken
from tests.build.terminal import Terminal

PROMPT = "\n> "
SERVED = ("-c", "256", "-t", "1", "-tb", "1")  # one thread: two wait for each other, which a busy machine makes long
SMALL = (*SERVED, "-n", "12")


def chatting(ours: Program, *arguments: str | Path) -> Terminal:
    return Terminal([ours.path, *map(str, arguments), *SMALL])


# --- with nothing but a model ----------------------------------------------------------------------------------------


def test_terminal_chats_with_the_server_beside(ours: Program, node: str, model: Path) -> None:
    port = free_port()
    with chatting(ours, "-m", model, "--numa-node", node, "--port", str(port)) as terminal:
        before = terminal.until(PROMPT)
        assert f"NUMA node {node}: everything that was looked at is on the node" in before
        assert f"server     : http://127.0.0.1:{port}" in before
        assert json.loads(get(f"http://127.0.0.1:{port}/health")) == {"status": "ok"}
        terminal.type("one day ban\r")
        answer = terminal.until(" t/s ]")  # how fast it was, below the answer
        assert len(answer.split()) > 3
        body = {"messages": [{"role": "user", "content": "one"}], "max_tokens": 4}
        assert post(f"http://127.0.0.1:{port}/v1/chat/completions", body)["choices"][0]["message"]["content"]
        terminal.until(PROMPT)
        terminal.type("/exit\r")
        assert terminal.end() == 0
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) != 0


def test_no_terminal_serves_on_8080_or_the_next_free_port(ours: Program, model: Path) -> None:
    with taken(8080), Running(ours, "-m", model, *SERVED) as server:
        server.until("listening on ")
        assert "no terminal to chat in, so this serves" in server.said
        line = next(line for line in server.said.splitlines() if "port 8080 is taken" in line)
        port = int(line.split()[-1])
        assert port > 8080
        assert json.loads(get(f"http://127.0.0.1:{port}/health")) == {"status": "ok"}


def test_port_defaults_to_8080(ours: Program, model: Path) -> None:
    with socket.socket() as probe:
        free = probe.connect_ex(("127.0.0.1", 8080)) != 0
    with Running(ours, "-m", model, *SERVED) as server:
        server.until("listening on ")
        assert free == ("listening on http://127.0.0.1:8080" in server.said)
        assert free != ("port 8080 is taken" in server.said)


def test_two_that_start_with_defaults_get_along(ours: Program, model: Path) -> None:
    with Running(ours, "-m", model, *SERVED) as one, Running(ours, "-m", model, *SERVED) as other:
        ports = set()
        for server in (one, other):
            server.until("listening on ")
            address = server.said.split("listening on ")[1].split()[0]
            get(f"{address}/health")
            ports.add(address)
    assert len(ports) == 2


# --- a mode that was chosen ------------------------------------------------------------------------------------------


def test_chat_without_a_terminal(ours: Program, node: str, model: Path, tmp_path: Path) -> None:
    """It reads lines, and ends where they do."""
    out = tmp_path / "chat.txt"
    done = ours("--chat", "-m", model, "--numa-node", node, "--port", str(free_port()), *SMALL, "-o", out)
    assert done.returncode == 0, done.stderr
    assert "server     : " in done.stdout


def test_server_on_a_terminal(ours: Program, model: Path) -> None:
    port = free_port()
    with Terminal([ours.path, "--server", "-m", model, *SERVED, "--port", str(port)]) as terminal:
        terminal.until(f"listening on http://127.0.0.1:{port}")
        terminal.type("\x03")
        assert terminal.end() == 0
        assert PROMPT not in terminal.screen


def test_flags_of_the_server_and_of_the_chat_go_together(ours: Program, model: Path) -> None:
    port = free_port()
    flags = ("--metrics", "--api-prefix", "/llm", "-sys", "Be brief", "--port", str(port), "--host", "0.0.0.0")
    with chatting(ours, "-m", model, *flags) as terminal:
        banner = terminal.until(PROMPT)
        assert f"http://127.0.0.1:{port}/llm" in banner
        assert "using custom system prompt" in banner
        assert "llamacpp:" in get(f"http://127.0.0.1:{port}/llm/metrics")
        terminal.type("/exit\r")
        assert terminal.end() == 0


def test_first_prompt_of_a_chat(ours: Program, model: Path) -> None:
    with chatting(ours, "--chat", "-m", model, "-p", "one day", "-st", "--port", str(free_port())) as terminal:
        terminal.until("> one day")
        assert terminal.end() == 0


def test_command_cli_is_the_chat(ours: Program, model: Path) -> None:
    port = free_port()
    with Terminal([ours.path, "cli", "-m", model, *SMALL, "--port", str(port)]) as terminal:
        assert f"http://127.0.0.1:{port}" in terminal.until(PROMPT)
        terminal.type("/exit\r")
        assert terminal.end() == 0


def test_a_router_starts_its_models(ours: Program, node: str, model: Path, tmp_path: Path) -> None:
    """Without a model the server loads those it is asked for, each in a process of its own, on the same node."""
    (tmp_path / "small.gguf").symlink_to(model)
    port = free_port()
    flags = ("--server", "--models-dir", tmp_path, "--port", str(port), "--numa-node", node, *SERVED)
    with Running(ours, *flags) as server:
        server.until("listening on ")
        body = {"model": "small", "prompt": "one day", "n_predict": 4}
        assert post(f"http://127.0.0.1:{port}/completion", body)["content"]
        assert f"NUMA node {node}: everything that was looked at is on the node" in server.said
        server.process.terminate()
        assert server.end() == 0


@pytest.mark.parametrize(
    ("flags", "shown", "hidden"),
    [((), "██", "\nllamafile-numa\r"), (("--ascii",), "\nllamafile-numa\r", "██"), (("--nologo",), "build", "██")],
)
def test_logo(ours: Program, model: Path, flags: tuple[str, ...], shown: str, hidden: str) -> None:
    with chatting(ours, "-m", model, "--port", str(free_port()), *flags) as terminal:
        banner = terminal.until(PROMPT)
        assert shown in banner
        assert hidden not in banner


# --- what is wrong ---------------------------------------------------------------------------------------------------


def assert_one_line(ours: Program, *arguments: str, says: str, **environment: str) -> None:
    done = ours(*arguments, **environment)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert says in done.stderr


@pytest.mark.parametrize("mode", ["--server", "--chat"])
def test_a_port_that_was_asked_for_and_is_taken(ours: Program, mode: str) -> None:
    port = free_port()
    with taken(port):
        flags = (mode, "-m", "/no/such/model.gguf", "--port", str(port))
        assert_one_line(ours, *flags, says=f"port {port} is taken; --port ")
        assert_one_line(ours, *flags[:-2], says=f"port {port} is taken", LLAMA_ARG_PORT=str(port))


def test_a_port_is_taken_where_it_is_on_one_of_the_hosts(ours: Program) -> None:
    port = free_port()
    flags = ("--server", "-m", "/no/such/model.gguf", "--port", str(port), "--host", "127.0.0.2,127.0.0.1")
    with taken(port):
        assert_one_line(ours, *flags, says=f"port {port} is taken")


@pytest.mark.parametrize("port", ["65536", "84186", "-1", "-70000"])
def test_a_port_that_there_is_not(ours: Program, port: str) -> None:
    assert_one_line(ours, "--server", "-m", "/no/such.gguf", "--port", port, says=f"there is no port {port}; 0 ")


@pytest.mark.parametrize("mode", [(), ("--chat",)])
def test_no_model(ours: Program, mode: tuple[str, ...]) -> None:
    assert_one_line(ours, *mode, "-c", "256", says="-m FILE")


def test_chat_refuses_what_it_cannot_reach(ours: Program) -> None:
    flags = ("--chat", "-m", "/no/such/model.gguf", "--port", str(free_port()))
    assert_one_line(ours, *flags, "--api-key", "secret", says="--server serves with one")
    assert_one_line(ours, *flags, says="--server serves with one", LLAMA_API_KEY="secret")
    assert_one_line(ours, *flags, "--host", "/tmp/no.sock", says="UNIX socket")


def test_a_model_that_cannot_be_loaded_ends_the_chat(ours: Program) -> None:
    done = ours("--chat", *NO_MODEL, "--port", str(free_port()))
    assert done.returncode == 1
    assert "/no/such/model.gguf" in done.stderr


# --- help and version ------------------------------------------------------------------------------------------------

BROKEN = {"LLAMA_ARG_NUMA_NODE": "7x", "LLAMA_ARG_NUMA_REPORT": "/no/such/folder/r"}
ASKS = [("--help",), ("-h",), ("help",), ("--numa-node", "99", "--help"), ("-m", "x", "--help")]
OF_LLAMA = [(mode, "--help") for mode in ("--server", "--chat", "--cli", "server", "cli", "completion", "bench")]


@pytest.mark.parametrize("arguments", ASKS, ids=" ".join)
def test_help_comes_whatever_else_is_wrong(ours: Program, arguments: tuple[str, ...]) -> None:
    done = ours.ok(*arguments, **BROKEN)
    assert done.stdout.startswith("Usage: llamafile-numa ")
    assert done.stderr == ""
    first_screen = "\n".join(done.stdout.splitlines()[:24])
    for flag in ("--numa-node", "--numa-weights", "--numa-strict", "--numa-report", "--numa-list"):
        assert f"  {flag}" in first_screen
    for part in ("--server", "--chat", "--exit-with-parent", "130", "quantize"):
        assert part in done.stdout


@pytest.mark.parametrize("arguments", OF_LLAMA, ids=" ".join)
def test_help_of_llama_comes_whatever_else_is_wrong(ours: Program, arguments: tuple[str, ...]) -> None:
    assert "--numa-node" in ours.ok(*arguments, **BROKEN).stdout


@pytest.mark.parametrize("arguments", [("--version",), ("version",), ("-m", "x", "--version")], ids=" ".join)
def test_version_of_both(ours: Program, arguments: tuple[str, ...]) -> None:
    import tomllib

    from tools.paths import ROOT

    own = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    lines = ours.ok(*arguments, **BROKEN).stdout.splitlines()
    assert lines[0].startswith(f"llamafile-numa {own}")
    assert any(line.startswith("version: ") for line in lines)


def test_a_value_is_not_a_flag(ours: Program, model: Path) -> None:
    """What looks like a flag and stands where a value is expected is a value."""
    done = ours.ok("-m", model, "-p", "--server", *GENERATE[2:])
    assert len(done.stdout.split()) > 3
    assert ours.ok("-m", model, "-p", "--unsecure", *GENERATE[2:]).stderr == ""
