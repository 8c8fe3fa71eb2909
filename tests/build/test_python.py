"""The Python package with the real program: nodes(), Server, and the script of the README."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from llamafile_numa import NotOnNodeError, Server, ServerError, nodes
from tests.build.programs import Program, clean, machine
from tools import models
from tools.paths import ROOT

SMALL = ("-c", "256", "-np", "1")


pytestmark = pytest.mark.usefixtures("package")


def script(package: Path, text: str, *, seconds: float = 120) -> subprocess.CompletedProcess[str]:
    """A Python of its own that has the package."""
    environment = clean({"PYTHONPATH": str(package.parent)})
    command = [sys.executable, "-c", text]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=seconds, check=False)


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] != "Z"


def gone_within(seconds: float, pid: int) -> bool:
    deadline = time.monotonic() + seconds
    while is_running(pid):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


# --- nodes() ---------------------------------------------------------------------------------------------------------


def test_nodes_are_those_that_are_listed(ours: Program, node: str) -> None:
    listed = machine(ours)["nodes"]
    for one, json_node in zip(nodes(), listed, strict=True):
        assert (one.node, list(one.cpus), one.cores) == (json_node["node"], json_node["cpus"], json_node["cores"])
        assert one.memory == json_node["memory"] >= one.free > 0
        assert one.distances == {int(other): far for other, far in json_node["distances"].items()}
    assert {one.node for one in nodes() if one.usable} >= {int(node)}


# --- Server ----------------------------------------------------------------------------------------------------------


def test_server_answers_and_ends(node: str, model: Path) -> None:
    with Server(model, int(node), weights="copy", arguments=SMALL) as server:
        pid, url = server.pid, server.url
        with urllib.request.urlopen(f"{url}/health") as response:
            assert json.load(response) == {"status": "ok"}
        report = server.report
    assert (report.node, report.requested, report.how, report.weights_mode) == (int(node), node, "flag", "copy")
    assert report.ok
    assert report["weights"].on_node == report["weights"].checked > 0
    assert report.threads.bound == report.threads.workers > 0
    assert not is_running(pid)
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(f"{url}/health")


def test_without_a_node_the_report_says_so(model: Path) -> None:
    with Server(model, "none", arguments=SMALL) as server:
        assert (server.report.node, server.report.ok, server.report.regions) == (None, None, ())


def test_port_that_was_asked_for(model: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
        with pytest.raises(ServerError, match=str(port)) as caught:
            Server(model, port=port, arguments=SMALL).start()
        assert caught.value.code not in (None, 0)
    with Server(model, port=port, arguments=SMALL) as server:
        assert server.url == f"http://127.0.0.1:{port}"


def test_missing_model_is_one_exception(node: str) -> None:
    with pytest.raises(ServerError, match="/no/such/model.gguf") as caught:
        Server("/no/such/model.gguf", int(node)).start()
    assert caught.value.code == 1


def test_absent_node_is_the_program_s_one_line(model: Path) -> None:
    with pytest.raises(ServerError, match="no node 4095") as caught:
        Server(model, 4095).start()
    assert caught.value.code == 2
    assert len(caught.value.words.splitlines()) == 1


def test_strict_is_an_exception_of_its_own(model: Path) -> None:
    """Confined to one CPU, and workers sent to another: they are not where they should be."""
    before = os.sched_getaffinity(0)
    if len(before) < 2:
        pytest.skip("one CPU only")
    here, other, *_ = sorted(before)
    os.sched_setaffinity(0, {here})
    try:
        with pytest.raises(NotOnNodeError, match="--numa-strict") as caught:
            Server(model, "auto", strict=True, arguments=[*SMALL, "-t", "2", "-C", hex(1 << other)]).start()
    finally:
        os.sched_setaffinity(0, before)
    report = caught.value.report
    assert report
    assert (report.ok, report.threads.bound < report.threads.workers) == (False, True)


def test_ctrl_c_ends_the_server_once(package: Path, model: Path) -> None:
    """It goes to all of a terminal's programs. The server is left to the script, whose with statement ends it."""
    text = f"""
import time
from llamafile_numa import Server
with Server({str(model)!r}, arguments={SMALL!r}) as server:
    print(server.pid, flush=True)
    time.sleep(60)
"""
    command = [sys.executable, "-c", text]
    environment = clean({"PYTHONPATH": str(package.parent)})
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout
        pid = int(process.stdout.readline())
        os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert errors.splitlines()[-1] == "KeyboardInterrupt"
    assert not is_running(pid)


def test_server_ends_with_its_python(package: Path, model: Path) -> None:
    """Killed, so that nothing is left of it that could end the server. That a thread ended before means nothing."""
    text = f"""
import os, signal, threading
from llamafile_numa import Server
server = Server({str(model)!r}, arguments={SMALL!r})
thread = threading.Thread(target=server.start)
thread.start()
thread.join()
print(server.pid, flush=True)
input()
os.kill(os.getpid(), signal.SIGKILL)
"""
    command = [sys.executable, "-c", text]
    environment = clean({"PYTHONPATH": str(package.parent)})
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin
        assert process.stdout
        pid = int(process.stdout.readline())
        time.sleep(2)
        assert is_running(pid)
        process.stdin.write("\n")
        process.stdin.close()
        assert gone_within(5, pid)


# --- the README ------------------------------------------------------------------------------------------------------


def readme_script() -> str:
    """The block of the README that uses Server."""
    blocks = (ROOT / "README.md").read_text(encoding="utf-8").split("\n\n")
    joined, block = [], ""
    for part in [*blocks, ""]:  # blocks are indented; a blank line within one does not end it
        if part.startswith("    "):
            block += f"{part}\n\n"
        else:
            joined.append(block)
            block = ""
    (found,) = [block for block in joined if "Server(" in block]
    return "\n".join(line.removeprefix("    ") for line in found.splitlines())


@pytest.mark.real_model
def test_script_of_the_readme(package: Path, node: str, model: Path) -> None:
    """As it stands, but for the models' names; where there is one node only, both servers run on that."""
    usable = [one.node for one in nodes() if one.usable]
    first, second = usable[0], usable[-1]
    text = readme_script()
    for old, new in {
        "small.gguf": str(model),
        "large.gguf": str(models.real_model()),
        "node=0": f"node={first}",
        "node=1": f"node={second}",
    }.items():
        assert text.count(old) == 1
        text = text.replace(old, new)
    done = script(package, text)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line.split(":")[0] for line in lines if line.startswith("node ")] == [
        f"node {first}, all of it there",
        f"node {second}, all of it there",
    ]
