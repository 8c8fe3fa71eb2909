"""What of a machine decides how fast it is here."""

from __future__ import annotations

import mmap
import os
import platform
import re
from pathlib import Path

from tools.bench.memory import parse

THP = Path("sys/kernel/mm/transparent_hugepage")


def describe(root: Path = Path("/")) -> dict[str, str]:
    """Facts about this machine, as read below `root`; what the system does not tell is left out."""
    facts = {
        "CPU": cpu(text(root / "proc/cpuinfo")) or platform.processor(),
        "logical CPUs": str(os.cpu_count() or ""),
        "NUMA nodes": str(len(list((root / "sys/devices/system/node").glob("node[0-9]*"))) or ""),
        "memory": memory(text(root / "proc/meminfo")),
        "system": f"{platform.system()} {platform.release()}",
        "page size": f"{mmap.PAGESIZE // 1024} KiB",
        "transparent huge pages": huge_pages(root / THP),
    }
    return {name: fact for name, fact in facts.items() if fact}


def text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def cpu(cpuinfo: str) -> str:
    """'AMD EPYC (virtual machine)': the model as /proc/cpuinfo tells it."""
    model = re.search(r"^model name\s*:\s*(.+)$", cpuinfo, re.MULTILINE)
    flags = re.search(r"^flags\s*:.*\bhypervisor\b", cpuinfo, re.MULTILINE)
    return (model[1].strip() if model else "") + (" (virtual machine)" if model and flags else "")


def memory(meminfo: str) -> str:
    total = parse(meminfo).get("MemTotal")
    return f"{total / 2**30:.1f} GiB" if total else ""


def huge_pages(folder: Path) -> str:
    """'madvise, defrag madvise': the chosen ones of 'always [madvise] never'."""
    enabled, defrag = (re.search(r"\[(.+)\]", text(folder / name)) for name in ("enabled", "defrag"))
    return (enabled[1] if enabled else "") + (f", defrag {defrag[1]}" if enabled and defrag else "")


def busy() -> float | None:
    """How many threads of others want to run, over the last minute; None where the system does not tell."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else None
