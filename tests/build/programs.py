"""Running a built program as a user would."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

GENERATE = ("-p", "one day ban", "-n", "12", "-c", "256", "--temp", "0")
# A model that is not there: the program has to speak before it looks for one.
NO_MODEL = ("-m", "/no/such/model.gguf", "-p", "x", "-n", "1")
SECONDS = 240  # after this a run counts as hanging


@dataclass(frozen=True)
class Program:
    """A program and the arguments it is always given."""

    path: Path
    arguments: tuple[str, ...] = ()

    def command(self, *arguments: str | Path) -> list[str]:
        return [str(self.path), *self.arguments, *map(str, arguments)]

    def environment(self, **more: str) -> dict[str, str]:
        return clean(more)

    def __call__(self, *arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*arguments),
            env=self.environment(**environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=SECONDS,
            check=False,
        )

    def ok(self, *arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
        done = self(*arguments, **environment)
        assert done.returncode == 0, done.stderr
        return done


def clean(environment: dict[str, str]) -> dict[str, str]:
    """This process's environment without flags for llama.cpp, and with `environment`."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LLAMA_")}
    return {**kept, **environment}


def machine(program: Program) -> dict[str, Any]:
    """What --numa-list --json says."""
    listed: dict[str, Any] = json.loads(program.ok("--numa-list", "--json").stdout)
    return listed


def usable_node(program: Program) -> str:
    """A node of this machine with CPUs and memory that this process may use."""
    nodes = machine(program)["nodes"]
    return next(str(node["node"]) for node in nodes if node["cpus_allowed"] and node["memory_allowed"] and node["cpus"])


def absent_node(program: Program) -> str:
    return str(1 + max(node["node"] for node in machine(program)["nodes"]))
