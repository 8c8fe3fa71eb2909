"""Machines composed for a test: the files of sysfs and procfs that the core reads, below a root folder."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

MIB = 1024  # in kB, the unit of meminfo


@dataclass(frozen=True)
class Node:
    """One nodeN folder. None leaves the file out; sizes are in kB."""

    cpulist: str | None = ""
    cpumap: str | None = None
    total: int | None = 1024 * MIB
    free: int = 0
    active_file: int | None = None
    inactive_file: int | None = None
    reclaimable: int | None = None
    distance: str | None = None

    def meminfo(self, number: int) -> str:
        fields = {
            "MemTotal": self.total,
            "MemFree": self.free,
            "Active": 7 * MIB,  # beside the part that counts
            "Active(file)": self.active_file,
            "Inactive(file)": self.inactive_file,
            "SReclaimable": self.reclaimable,
        }
        return "".join(f"Node {number} {key}: {kib:>15} kB\n" for key, kib in fields.items() if kib is not None)


@dataclass(frozen=True)
class Machine:
    """A root folder in the making; "" for a file's text means an empty list, None that the file is not there."""

    nodes: Mapping[int, Node] = field(default_factory=dict)
    online_nodes: str | None = None
    possible_nodes: str | None = None
    has_memory: str | None = None
    has_normal_memory: str | None = None
    online_cpus: str | None = None
    core_cpus: Mapping[int, str] = field(default_factory=dict)  # CPU -> core_cpus_list
    thread_siblings: Mapping[int, str] = field(default_factory=dict)  # CPU -> thread_siblings_list, of older kernels
    cpus_allowed: str | None = None
    mems_allowed: str | None = None
    meminfo: str | None = None

    def write(self, root: Path) -> Path:
        for path, text in self._files().items():
            if text is not None:
                file = root / path
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(text.encode())
        (root / "sys/devices/system/cpu").mkdir(parents=True, exist_ok=True)
        return root

    def _files(self) -> dict[str, str | None]:
        nodes, cpus = "sys/devices/system/node", "sys/devices/system/cpu"
        files = {
            f"{nodes}/online": _line(self.online_nodes),
            f"{nodes}/possible": _line(self.possible_nodes),
            f"{nodes}/has_memory": _line(self.has_memory),
            f"{nodes}/has_normal_memory": _line(self.has_normal_memory),
            f"{cpus}/online": _line(self.online_cpus),
            "proc/self/status": self._status(),
            "proc/meminfo": self.meminfo,
        }
        for number, node in self.nodes.items():
            files[f"{nodes}/node{number}/cpulist"] = _line(node.cpulist)
            files[f"{nodes}/node{number}/cpumap"] = _line(node.cpumap)
            files[f"{nodes}/node{number}/distance"] = _line(node.distance)
            files[f"{nodes}/node{number}/meminfo"] = None if node.total is None else node.meminfo(number)
        for cpu, siblings in self.core_cpus.items():
            files[f"{cpus}/cpu{cpu}/topology/core_cpus_list"] = _line(siblings)
        for cpu, siblings in self.thread_siblings.items():
            files[f"{cpus}/cpu{cpu}/topology/thread_siblings_list"] = _line(siblings)
        return files

    def _status(self) -> str | None:
        if self.cpus_allowed is None and self.mems_allowed is None:
            return None
        lines = ["Name:\ttest", "Groups:\t0 4 27"]
        if self.cpus_allowed is not None:
            lines += ["Cpus_allowed:\tff", f"Cpus_allowed_list:\t{self.cpus_allowed}"]
        if self.mems_allowed is not None:
            lines += ["Mems_allowed:\tff", f"Mems_allowed_list:\t{self.mems_allowed}"]
        return "\n".join([*lines, "voluntary_ctxt_switches:\t1", ""])


def _line(text: str | None) -> str | None:
    return text if text is None or text.endswith("\0") else text + "\n"


def pairs(cores: int) -> dict[int, str]:
    """core_cpus of a machine whose core c has the CPUs c and c + cores."""
    return {cpu: f"{cpu % cores},{cpu % cores + cores}" for cpu in range(2 * cores)}
