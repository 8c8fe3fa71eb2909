"""Machines that are not there: /sys/devices/system as Wine, and any Linux program, is to see it."""

from __future__ import annotations

import functools
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.core.machines import Machine, Node
from tools.lab.scenario import cpu_list

SYSTEM = "sys/devices/system"
# A mount namespace of its own: as root, or with the rights that a user namespace gives.
NAMESPACES = (("unshare", "--mount"), ("unshare", "--map-root-user", "--mount"))


@dataclass(frozen=True)
class MadeUp:
    """CPUs of each node, as the kernel lists them, and those of each core where it has several."""

    nodes: Mapping[int, str]
    cores: tuple[str, ...] = ()
    cpus: frozenset[int] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "cpus", frozenset().union(*map(cpu_list, self.nodes.values())))

    def siblings(self, cpu: int) -> str:
        return next((core for core in self.cores if cpu in cpu_list(core)), str(cpu))

    def cores_of(self, node: int) -> set[str]:
        return {self.siblings(cpu) for cpu in cpu_list(self.nodes[node])}

    def write(self, root: Path) -> Path:
        """The folders below `root`, with what Wine 8 reads (bit maps) and what the core on Linux does (lists)."""
        siblings = {cpu: self.siblings(cpu) for cpu in self.cpus}
        nodes = {
            n: Node(cpulist=cpus, cpumap=bitmap(cpus), distance=self.distances(n)) for n, cpus in self.nodes.items()
        }
        online = ",".join(map(str, sorted(self.nodes)))
        machine = Machine(
            nodes=nodes,
            online_nodes=online,
            possible_nodes=online,
            has_memory=online,
            online_cpus=",".join(map(str, sorted(self.cpus))),
            core_cpus=siblings,
            thread_siblings=siblings,
        )
        machine.write(root)
        for cpu, core in siblings.items():
            (root / SYSTEM / "cpu" / f"cpu{cpu}" / "topology" / "thread_siblings").write_text(f"{bitmap(core)}\n")
        for name in ("present", "possible"):
            (root / SYSTEM / "cpu" / name).write_text(f"{machine.online_cpus}\n")
        return root

    def distances(self, node: int) -> str:
        return " ".join("10" if other == node else "21" for other in sorted(self.nodes))


def bitmap(cpus: str) -> str:
    """The kernel's map of CPUs below 32."""
    return f"{sum(1 << cpu for cpu in cpu_list(cpus)):08x}"


def inside(root: Path) -> list[str]:
    """What a command has to be started through to see the machine below `root`; skips where that is not allowed."""
    script = "".join(f'mount --bind "{root}/{SYSTEM}/{name}" /{SYSTEM}/{name} && ' for name in ("node", "cpu"))
    return [*namespace(), "sh", "-c", f'{script}exec "$@"', "sh"]


@functools.cache
def namespace() -> tuple[str, ...]:
    for command in NAMESPACES:
        try:
            mount = ["mount", "--bind", f"/{SYSTEM}/cpu", f"/{SYSTEM}/node"]
            if subprocess.run([*command, *mount], capture_output=True, check=False).returncode == 0:
                return command
        except FileNotFoundError:
            pytest.skip("no unshare: install util-linux")
    pytest.skip(
        "this container allows no mount namespace (neither to root nor to a user), so no machine can be made up"
    )
