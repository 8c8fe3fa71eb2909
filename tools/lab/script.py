"""The shell script that the guest runs, made from scenarios; its words are defined in guest/lab.sh."""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from tools.lab import disk, windows
from tools.lab.guest import program_path
from tools.lab.scenario import Run, Scenario

FIRST_PORT = 8081

# How long a program may take to serve, in seconds of a guest that may be emulated on a busy machine.
START_SECONDS = 240

# As little work as shows all there is: one slot, a KV cache of some MiB.
SERVER = ("--host", "127.0.0.1", "-c", "2048", "-np", "1")
SUBCOMMAND = {"llamafile-numa": "--server", "llama": "serve", "llamafile-numa.exe": "--server"}

# Programs run as nobody: whoever may do everything proves nothing. The path keeps busybox's shell from its own setpriv.
USER = ("/tools/setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")


def script(scenarios: Iterable[Scenario]) -> str:
    return "".join(line + "\n" for scenario in scenarios for line in lines(scenario))


def lines(scenario: Scenario) -> list[str]:
    result = [f"begin {scenario.name}"]
    for step in scenario.steps:
        match step:
            case ("drop",):
                result.append("drop")
            case ("small-pages",):
                result.append("huge never")
            case ("cache", file, node):
                result.append(f"cache {disk.path(file)} {node}")
            case ("own", file):
                result.append(f"own {disk.path(file)}")
            case ("run", *names):
                result += together([scenario.runs[name] for name in names])
    return [*result, "end"]


def together(runs: list[Run]) -> list[str]:
    """Start all, look at each, end all."""
    started = [
        shlex.join(["start", run.name, str(port), str(START_SECONDS), *command(run, port)])
        for port, run in enumerate(runs, FIRST_PORT)
    ]
    looked = [f"look {run.name} {disk.path(run.model)}" for run in runs]
    stopped = [f"stop {run.name}" for run in runs]
    return [*started, *looked, *stopped]


def command(run: Run, port: int) -> list[str]:
    """The user is changed before `under`, but for a control group, which only root can make."""
    privileged, unprivileged = (run.under, ()) if run.under[:1] == ("cpuset",) else ((), run.under)
    report = ["--numa-report", f"/tmp/{run.name}.json"] if run.program == "llamafile-numa" else []
    files = ["-m", disk.path(run.model)]
    server = [SUBCOMMAND[run.program], *SERVER, *files, "--port", str(port)]
    through = ["/tools/wine"] if windows.is_program(run.program) else []
    program = [*through, program_path(run.program), *(["--numa-selftest", *files] if run.selftest else server)]
    return [*privileged, *USER, *unprivileged, *program, *report, *run.arguments]
