"""The NUMA nodes of this machine, as the program sees them."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass, field
from typing import Any

from llamafile_numa import find_bin


@dataclass(frozen=True)
class Node:
    """A NUMA node and what this process may use of it. Sizes are bytes at the time of asking."""

    node: int
    """The node's number, as the system has it: what `Server(node=...)` takes."""
    cpus: tuple[int, ...]
    cores: int
    """Physical cores."""
    group: int
    """Windows' processor group; 0 elsewhere."""
    memory: int
    free: int
    available: int
    """Free memory and what the system would give up for it (file cache)."""
    distances: dict[int, int] = field(hash=False)
    """From this node to each other; 10 is local."""
    cpus_allowed: bool
    memory_allowed: bool

    @property
    def usable(self) -> bool:
        """Whether this process may run there and take memory there."""
        return bool(self.cpus) and self.cpus_allowed and self.memory_allowed

    @classmethod
    def from_json(cls, listed: dict[str, Any]) -> Node:
        return cls(
            node=listed["node"],
            cpus=tuple(listed["cpus"]),
            cores=listed["cores"],
            group=listed["group"],
            memory=listed["memory"],
            free=listed["free"],
            available=listed["available"],
            distances={int(node): distance for node, distance in listed["distances"].items()},
            cpus_allowed=listed["cpus_allowed"],
            memory_allowed=listed["memory_allowed"],
        )


def nodes() -> tuple[Node, ...]:
    """The nodes of this machine. Raises RuntimeError, with the program's words, where they cannot be listed."""
    command = [find_bin(), "--numa-list", "--json"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr.strip() or f"{command[0]} ended with exit code {done.returncode}")
    return tuple(Node.from_json(listed) for listed in json.loads(done.stdout)["nodes"])
