"""deploy/nginx with a real nginx in front of two instances: what is lost when one of them is killed under load."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from llamafile_numa import Server, nodes
from tests.build.programs import SECONDS
from tools.paths import ROOT

CLIENTS = 6
TOKENS = 48
FILES = ROOT / "deploy" / "nginx"

MAIN = """\
{user}
daemon off;
pid {folder}/pid;
error_log {folder}/error.log;
events {{ }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    include {folder}/nodes.conf;
    include {folder}/llamafile-numa.conf;
}}
"""


def nginx() -> str:
    found = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
    if found is None:
        pytest.skip("no nginx: python3 -m tools setup --system")
    return found


def free_port(host: str) -> int:
    with socket.create_server((host, 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


def configure(folder: Path, front: int, ports: tuple[int, int], source: Path = FILES / "nodes.conf") -> Path:
    """The files as they are but for the ports, which others may have here; the main file that includes them."""
    addresses = {"node0:8080": f"127.0.80.0:{ports[0]}", "node1:8080": f"127.0.80.1:{ports[1]}"}
    addresses |= {f"127.0.80.{n}:8080": address for n, address in enumerate(list(addresses.values()))}
    text = source.read_text(encoding="utf-8")
    for old, new in addresses.items():
        text = text.replace(old, new)
    (folder / "nodes.conf").write_text(text, encoding="utf-8")
    text = (FILES / "llamafile-numa.conf").read_text(encoding="utf-8")
    assert "listen 8000;" in text  # not where the nodes listen, whose addresses are this machine's, too
    text = text.replace("listen 8000;", f"listen 127.0.0.1:{front};")
    (folder / "llamafile-numa.conf").write_text(text, encoding="utf-8")
    user = "user root;" if os.geteuid() == 0 else ""
    (folder / "nginx.conf").write_text(MAIN.format(folder=folder, user=user), encoding="utf-8")
    return folder / "nginx.conf"


@pytest.mark.parametrize("source", [FILES / "nodes.conf", ROOT / "deploy" / "compose" / "nodes.conf"], ids=str)
def test_nginx_takes_the_configuration(tmp_path: Path, source: Path) -> None:
    command = [nginx(), "-t", "-e", str(tmp_path / "log"), "-c", str(configure(tmp_path, 1, (2, 3), source))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "warn" not in done.stderr


# --- two instances ---------------------------------------------------------------------------------------------------


@dataclass
class Front:
    """nginx at `port`, and the instances behind it by their addresses as nginx names them."""

    port: int
    instances: dict[str, Server] = field(default_factory=dict)

    @property
    def addresses(self) -> list[str]:
        return list(self.instances)


@pytest.fixture
def front(package: Path, model: Path, tmp_path: Path) -> Iterator[Front]:
    """One server for each of two nodes; where there is one node only, both are on it."""
    usable = [one.node for one in nodes() if one.usable]
    ports = free_port("127.0.80.0"), free_port("127.0.80.1")
    found = Front(free_port("127.0.0.1"))
    main = configure(tmp_path, found.port, ports)
    with ExitStack() as stack:
        for i, node in enumerate((usable[0], usable[-1])):
            host = f"127.0.80.{i}"
            server = Server(model, node, host=host, port=ports[i], arguments=["-c", "2048", "-np", "4", "-t", "1"])
            found.instances[f"{host}:{ports[i]}"] = stack.enter_context(server)
        process = stack.enter_context(
            subprocess.Popen([nginx(), "-e", str(tmp_path / "log"), "-c", str(main)], stdin=subprocess.DEVNULL)
        )
        stack.callback(process.terminate)
        wait_until(lambda: is_listening(found.port))
        yield found


def is_listening(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def wait_until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@dataclass
class Answer:
    status: int
    by: list[str]  # the addresses that were asked, in their order
    text: str
    at: float  # seconds, when it was there


def ask(port: int, path: str, body: dict[str, Any] | None = None) -> Answer:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
    try:
        content = json.dumps(body).encode() if body else None
        connection.request("POST" if body else "GET", path, content, {"Content-Type": "application/json"})
        response = connection.getresponse()
        text = b""
        try:
            text = response.read()
        except http.client.IncompleteRead as error:
            text = error.partial
        by = (response.headers.get("X-Llamafile-Numa") or "").split(", ")
        return Answer(response.status, by, text.decode(), time.monotonic())
    finally:
        connection.close()


class Load:
    """Clients that ask one question after the other until they are told to stop."""

    def __init__(self, front: Front, *, stream: bool) -> None:
        self.answers: list[Answer] = []
        self.stopping = threading.Event()
        body = {"prompt": "one day", "n_predict": TOKENS, "ignore_eos": True, "stream": stream, "cache_prompt": False}

        def client() -> None:
            while not self.stopping.is_set():
                self.answers.append(ask(front.port, "/completion", body))

        self.threads = [threading.Thread(target=client) for _ in range(CLIENTS)]
        for thread in self.threads:
            thread.start()

    def answered(self, count: int, *by: str, since: float = 0) -> bool:
        found = [one for one in self.answers if one.at > since]
        return all(sum(one.by[-1] == address for one in found) >= count for address in by)

    def stop(self) -> None:
        self.stopping.set()
        for thread in self.threads:
            thread.join(SECONDS)
            assert not thread.is_alive()


def kill_one_under_load(front: Front, *, stream: bool) -> tuple[list[Answer], float]:
    """All answers, and when the second instance was killed; afterwards it is started again and gets requests again."""
    first, second = front.addresses
    load = Load(front, stream=stream)
    try:
        wait_until(lambda: load.answered(4, first, second))
        killed = time.monotonic()
        os.kill(front.instances[second].pid, signal.SIGKILL)
        wait_until(lambda: load.answered(2 * CLIENTS, first, since=killed))
        server = front.instances[second]
        server.stop()
        server.port = int(second.rpartition(":")[2])
        server.start()
        back = time.monotonic()
        wait_until(lambda: load.answered(2, second, since=back))
    finally:
        load.stop()
    return load.answers, killed


def test_no_request_is_lost(front: Front) -> None:
    """Answers in one piece: those that the killed instance had begun are asked again of the other, which loses none."""
    first, second = front.addresses
    answers, _ = kill_one_under_load(front, stream=False)
    assert {answer.status for answer in answers} == {200}
    assert {json.loads(answer.text)["tokens_predicted"] for answer in answers} == {TOKENS}
    assert [answer for answer in answers if answer.by == [second, first]]  # they were taken over


def test_no_stream_of_the_other_is_lost(front: Front) -> None:
    """Streams that have begun end with their instance; all others are whole."""
    first, second = front.addresses
    answers, killed = kill_one_under_load(front, stream=True)
    assert {answer.status for answer in answers} == {200}
    broken = [answer for answer in answers if '"stop":true' not in answer.text]
    assert {tuple(answer.by) for answer in broken} <= {(second,)}
    assert all(answer.at > killed for answer in broken)
    assert len(broken) <= CLIENTS
    assert sum(answer.by[-1] == first for answer in answers) >= 2 * CLIENTS


def test_each_node_can_be_asked(front: Front) -> None:
    for i, server in enumerate(front.instances.values()):
        report = json.loads(ask(front.port, f"/numa/{i}").text)
        assert (report["node"], report["ok"]) == (server.report.node, True)
        assert json.loads(ask(front.port, f"/health/{i}").text) == {"status": "ok"}
    assert ask(front.port, "/numa/7").status == 502
    assert json.loads(ask(front.port, "/numa").text)["schema"] == 1


def test_long_request_gets_through(front: Front) -> None:
    """A body that nginx has to keep in a file."""
    body = {"prompt": [1], "n_predict": 1, "comment": "x" * 20_000_000}
    assert ask(front.port, "/completion", body).status == 200
