"""deploy/: each file is what its reader takes it for, and its command lines start the real program."""

from __future__ import annotations

import configparser
import json
import os
import shlex
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from ruamel.yaml import YAML

from tests.build.programs import SECONDS, Program, clean
from tests.core import cc
from tests.wine import host
from tools import wine
from tools.paths import ROOT

DEPLOY = ROOT / "deploy"
UNIT = DEPLOY / "systemd" / "llamafile-numa@.service"
PROGRAM = "/opt/llamafile-numa/bin/llamafile-numa"
COMPOSE = DEPLOY / "compose" / "compose.yaml"

# What places a model; a service that may not call these would serve from wherever it happens to be.
PLACING = {"set_mempolicy", "mbind", "move_pages", "get_mempolicy", "sched_setaffinity", "sched_getaffinity", "madvise"}


@contextmanager
def running(command: Sequence[str], url: str, **environment: str) -> Iterator[None]:
    """A server that is started with this very command and has to come up at this address."""
    with subprocess.Popen(
        command, env=clean(environment), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            deadline = time.monotonic() + SECONDS
            while not answers(f"{url}/health"):
                assert process.poll() is None, f"{shlex.join(command)} ended with {process.returncode}"
                assert time.monotonic() < deadline
                time.sleep(0.05)
            yield
        finally:
            process.terminate()
            process.wait(SECONDS)


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url):
            return True
    except OSError:
        return False


def free_port(host: str) -> str:
    with socket.create_server((host, 0)) as probe:
        return str(probe.getsockname()[1])


# --- systemd ---------------------------------------------------------------------------------------------------------


def unit() -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None, delimiters="=", comment_prefixes="#")
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(UNIT, encoding="utf-8")
    return parser


def settings() -> dict[str, str]:
    """What systemd makes of the environment file."""
    lines = (UNIT.parent / "llamafile-numa.conf").read_text(encoding="utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def systemd_analyze(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    found = shutil.which("systemd-analyze")
    if found is None:
        pytest.skip("no systemd-analyze: Debian's package systemd")
    return subprocess.run([found, *map(str, arguments)], capture_output=True, text=True, check=False)


def test_systemd_finds_no_fault(ours: Program, tmp_path: Path) -> None:
    """With the program where it is here: systemd looks whether it can be run."""
    text = UNIT.read_text(encoding="utf-8")
    (tmp_path / UNIT.name).write_text(text.replace(PROGRAM, str(ours.path)), encoding="utf-8")
    done = systemd_analyze("verify", "--man=no", tmp_path / UNIT.name)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_systemd_finds_it_well_hardened(tmp_path: Path) -> None:
    copy = tmp_path / UNIT.name.replace("@", "@1")
    shutil.copyfile(UNIT, copy)
    done = systemd_analyze("security", "--offline=true", "--threshold=20", copy)
    assert done.returncode == 0, done.stdout


def test_systemd_lets_it_place_a_model() -> None:
    service = unit()["Service"]
    allowed = calls(service["SystemCallFilter"].split())
    assert allowed >= PLACING
    assert "ptrace" not in allowed
    assert "ProcSubset" not in service  # /proc/meminfo
    assert service["ProtectKernelTunables"] == "yes"  # /sys can be read all the same
    assert not {"CPUAffinity", "NUMAPolicy", "AllowedCPUs", "AllowedMemoryNodes"} & set(service)


def calls(names: Sequence[str]) -> set[str]:
    """The system calls behind names and groups such as @resources."""
    found: set[str] = set()
    for name in names:
        if name.startswith("@"):
            done = systemd_analyze("syscall-filter", name)
            assert done.returncode == 0, done.stderr
            members = [line.strip() for line in done.stdout.splitlines()[1:]]
            found |= calls([member for member in members if member and not member.startswith("#")])
        else:
            found.add(name)
    return found


def test_systemd_starts_it_on_the_node_of_its_name(ours: Program, node: str, model: Path) -> None:
    service, values = unit()["Service"], settings()
    assert set(values) == {"MODEL", "ARGUMENTS"}
    host, port = f"127.0.80.{node}", free_port(f"127.0.80.{node}")
    words = service["ExecStart"].replace("%i", node).split()
    assert words[0] == PROGRAM
    command = [str(ours.path)]
    for word in words[1:]:
        if word == "$ARGUMENTS":
            command += values["ARGUMENTS"].split()
        else:
            command.append({"${MODEL}": str(model), "8080": port}.get(word, word))
    assert "--numa-strict" in command
    with running(command, f"http://{host}:{port}"):
        with urllib.request.urlopen(f"http://{host}:{port}/numa") as response:
            report = json.load(response)
        ready = shlex.split(service["ExecStartPost"].replace("%i", node).replace("8080", port))
        lives = {**os.environ, "MAINPID": str(os.getpid())}
        assert subprocess.run(ready, env=lives, timeout=SECONDS, check=False).returncode == 0
    with subprocess.Popen(["true"]) as ended:
        ended.wait()
    gone = {**os.environ, "MAINPID": str(ended.pid)}
    assert subprocess.run(ready, env=gone, timeout=SECONDS, capture_output=True, check=False).returncode == 1
    assert (report["node"], report["ok"]) == (int(node), True)


def test_systemd_does_not_repeat_what_ends_the_same_way() -> None:
    """The exit codes of README.md: 2 and 3."""
    service = unit()["Service"]
    assert (service["Restart"], service["RestartPreventExitStatus"]) == ("on-failure", "2 3")


# --- compose ---------------------------------------------------------------------------------------------------------


def compose() -> dict[str, Any]:
    read: dict[str, Any] = YAML(typ="safe").load(COMPOSE.read_text(encoding="utf-8"))
    return read


def test_compose_file_is_one() -> None:
    """By the schema of the compose specification, which check-jsonschema has with it."""
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(COMPOSE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_compose_has_a_node_each_and_one_address() -> None:
    services = compose()["services"]
    front = services.pop("front")
    nodes = {name: service["environment"]["LLAMA_ARG_NUMA_NODE"] for name, service in services.items()}
    assert nodes == {"node0": "0", "node1": "1"}
    assert front["depends_on"] == list(nodes)
    listed = (COMPOSE.parent / "nodes.conf").read_text(encoding="utf-8")
    assert all(listed.count(f"server {name}:8080") == 2 for name in nodes)
    assert all("ports" not in service for service in services.values())
    assert all(service["healthcheck"] for service in (front, *services.values()))
    for mounted in front["volumes"]:
        assert (COMPOSE.parent / mounted.split(":")[0]).is_file()
    build = services["node0"]["build"]
    assert (COMPOSE.parent / build["context"] / build["dockerfile"]).resolve() == COMPOSE.parent / "Dockerfile"
    # Docker's seccomp profile allows mbind, move_pages and set_mempolicy to containers with this capability.
    assert all("SYS_NICE" in service["cap_add"] for service in services.values())


def test_compose_starts_the_program(ours: Program, node: str, model: Path) -> None:
    service = compose()["services"][f"node{node}"]
    port = free_port("127.0.0.1")
    environment = {name: value.replace("8080", port) for name, value in service["environment"].items()}
    assert environment["LLAMA_ARG_MODEL"].startswith("/models/${MODEL:?")
    environment |= {"LLAMA_ARG_MODEL": str(model), "LLAMA_ARG_HOST": "127.0.0.1"}
    with running([str(ours.path), *service["command"]], f"http://127.0.0.1:{port}", **environment):
        kind, program, *check = (word.replace("8080", port) for word in service["healthcheck"]["test"])
        assert (kind, program) == ("CMD", "python3")
        assert subprocess.run([sys.executable, *check], timeout=SECONDS, check=False).returncode == 0
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as response:
            assert f'llamafile_numa_ok{{node="{node}"}} 1' in response.read().decode()
    assert subprocess.run([sys.executable, *check], capture_output=True, timeout=SECONDS, check=False).returncode != 0


# --- Windows ---------------------------------------------------------------------------------------------------------

# In the place of schtasks.exe: says how it was called, and keeps the file that it was given.
SCHTASKS = """\
#include <stdio.h>
#include <string.h>
int main(int argc, char ** argv) {
    for (int i = 1; i < argc; i++) {
        printf("%s%s", argv[i], i + 1 < argc ? "|" : "\\n");
        if (strcmp(argv[i - 1], "/XML") == 0) {
            char name[64];
            snprintf(name, sizeof(name), "kept-%s", strrchr(argv[i], '\\\\') + 1);
            FILE * from = fopen(argv[i], "rb"), * to = fopen(name, "wb");
            for (int c; from && to && (c = fgetc(from)) != EOF;) {
                fputc(c, to);
            }
            fclose(to);
        }
    }
    return 0;
}
"""


@pytest.fixture(scope="module")
def schtasks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    shell = host.prefix() / "drive_c" / "windows" / "system32" / "cmd.exe"
    shell.symlink_to(wine.libraries() / shell.name)
    source = tmp_path_factory.mktemp("schtasks") / "schtasks.c"
    source.write_text(SCHTASKS, encoding="ascii")
    return cc.compile_for_windows([source], into=source.parent)


@pytest.fixture
def windows(schtasks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a program, a model and schtasks.exe, for the script."""
    shutil.copyfile(schtasks, tmp_path / schtasks.name)
    for name in ("llamafile-numa.exe", "a model & more.gguf"):
        (tmp_path / name).touch()
    monkeypatch.setenv("LLAMAFILE_NUMA", of_windows(tmp_path / "llamafile-numa.exe"))
    monkeypatch.setenv("TEMP", of_windows(tmp_path))
    monkeypatch.setenv("PATHEXT", ".COM;.EXE;.BAT;.CMD")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def of_windows(file: Path) -> str:
    return wine.path(file).replace("/", "\\")


def script(*arguments: str) -> subprocess.CompletedProcess[str]:
    return host.run(["cmd", "/c", of_windows(DEPLOY / "windows" / "llamafile-numa-nodes.cmd"), *arguments])


def lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


@pytest.mark.wine
def test_windows_tasks_start_a_server_on_each_node(windows: Path, ours: Program) -> None:
    model = of_windows(windows / "a model & more.gguf")
    done = script("install", model)
    assert done.returncode == 0, done.stderr
    said = lines(done.stdout)
    assert [line.split("|")[0].split(" serves")[0] for line in said] == [
        *("/Create", "/Run", "Node 0"),
        *("/Create", "/Run", "Node 1"),
    ]
    for node in ("0", "1"):
        task = ElementTree.parse(windows / f"kept-llamafile-numa-{node}.xml").getroot()

        def text(path: str, task: ElementTree.Element = task) -> str | None:
            found = task.find("/".join(f"{{*}}{part}" for part in path.split("/")))
            return None if found is None else found.text

        assert text("Triggers/BootTrigger/Enabled") == "true"
        assert text("Settings/ExecutionTimeLimit") == "PT0S"
        assert text("Settings/DisallowStartIfOnBatteries") == "false"
        assert text("Triggers/TimeTrigger/Repetition/Interval") == "PT1M"
        assert text("Settings/MultipleInstancesPolicy") == "IgnoreNew"
        assert text("Actions/Exec/Command") == f'"{of_windows(windows / "llamafile-numa.exe")}"'
        assert text("Actions/Exec/Arguments") == (
            f'--server --numa-node {node} --host 127.0.80.{node} --port 8080 -m "{model}" --numa-strict'
        )
        assert any(line.startswith(f"/Create|/F|/TN|llamafile-numa node {node}|/XML|") for line in said)
    accepted = ours("--server", "--numa-node", "0", "--host", "127.0.80.0", "-m", "/no/such.gguf", "--numa-strict")
    assert accepted.returncode == 1  # for the model, not for a flag
    assert "/no/such.gguf" in accepted.stderr


@pytest.mark.wine
def test_windows_tasks_serve_a_member_of_an_archive(windows: Path) -> None:
    (windows / "x (1).llamafile").touch()
    assert script("install", of_windows(windows / "x (1).llamafile@m.gguf"), "3").returncode == 0
    assert "x (1).llamafile@m.gguf" in (windows / "kept-llamafile-numa-3.xml").read_text(encoding="ascii")


@pytest.mark.wine
def test_windows_tasks_are_removed(windows: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("nodes", "7")
    done = script("remove", "0", "3")
    assert done.returncode == 0
    assert lines(done.stdout) == [
        "/End|/TN|llamafile-numa node 0",
        "/Delete|/F|/TN|llamafile-numa node 0",
        "/End|/TN|llamafile-numa node 3",
        "/Delete|/F|/TN|llamafile-numa node 3",
    ]


@pytest.mark.wine
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["begin"], '"begin" is not possible; "install MODEL [NODE...]" and "remove [NODE...]" are'),
        (["install", "no.gguf"], 'there is no model "no.gguf"'),
        (["install", "no (1) & no.gguf@m.gguf"], 'there is no model "no (1) & no.gguf@m.gguf"'),
        (["install"], "there is no model"),
        (["install", "."], '"." is a folder'),
        (["install", "a model & more.gguf", "0", "1x"], '"1x" is not a node'),
        (["remove", "-1"], '"-1" is not a node'),
    ],
)
def test_windows_script_says_what_is_wrong(windows: Path, arguments: list[str], says: str) -> None:
    done = script(*arguments)
    assert done.returncode == 2
    assert lines(done.stdout) == []
    assert len(lines(done.stderr)) == 1
    assert says in done.stderr
    assert list(windows.glob("kept-*")) == []


@pytest.mark.wine
def test_windows_script_without_the_program(windows: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLAMAFILE_NUMA", "C:\\no\\such.exe")
    done = script("install", "a model & more.gguf")
    assert (done.returncode, len(lines(done.stderr))) == (2, 1)
    assert 'there is no program "C:\\no\\such.exe"' in done.stderr


def test_windows_script_has_the_line_ends_of_windows() -> None:
    attributes = (ROOT / ".gitattributes").read_text(encoding="ascii")
    assert "/deploy/windows/*.cmd text eol=crlf" in attributes
    if (ROOT / ".git").exists():
        content = (DEPLOY / "windows" / "llamafile-numa-nodes.cmd").read_bytes()
        assert content.count(b"\r\n") == content.count(b"\n") > 50


# --- for all ---------------------------------------------------------------------------------------------------------


def test_all_address_a_node_the_same_way() -> None:
    """Units, tasks and nginx meet at 127.0.80.NODE:8080."""
    nginx = (DEPLOY / "nginx" / "nodes.conf").read_text(encoding="utf-8")
    assert [nginx.count(f"server 127.0.80.{node}:8080") for node in (0, 1)] == [2, 2]
    assert "--host 127.0.80.%i --port 8080" in UNIT.read_text(encoding="utf-8")
    assert "--host 127.0.80.%1 --port 8080" in (DEPLOY / "windows" / "llamafile-numa-nodes.cmd").read_text(encoding="ascii")
