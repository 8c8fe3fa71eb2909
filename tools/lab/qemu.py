"""Boots a machine with several nodes under QEMU and reads what its guest tells."""

from __future__ import annotations

import base64
import gzip
import json
import os
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tools.lab import needs
from tools.lab.guest import INITRD
from tools.lab.scenario import Machine

# A guest that tells nothing for so long is dead: each wait in guest/lab.sh is shorter.
SILENCE_SECONDS = 420
BOOT_SECONDS = 120

POLL_SECONDS = 0.1
CONSOLE_TAIL_LINES = 15

BOOT_ARGUMENTS = "console=ttyS0 quiet panic=-1 random.trust_cpu=on"
# Wine enters programs with an iretq of its own, on which QEMU 7.2 faults where the CPU has SMAP.
CPU = {"kvm": "host", "tcg": "max,-smap"}


@dataclass(frozen=True)
class Event:
    """What the guest told: see guest/lab.sh. `seconds` since the machine was switched on."""

    scenario: str
    run: str
    kind: str
    text: str
    seconds: float


class LostError(Exception):
    """The machine has died or says no more; the text tells what is known."""


def accelerators() -> list[str]:
    """What to try, best first.

    A /dev/kvm without hardware virtualisation below it (no vmx or svm) emulates the kernel, some thousand times slower
    than tcg does, and not all of it.
    """
    flags = Path("/proc/cpuinfo").read_text(encoding="utf-8").split()
    hardware = "vmx" in flags or "svm" in flags
    return ["kvm", "tcg"] if hardware and os.access("/dev/kvm", os.R_OK | os.W_OK) else ["tcg"]


def command(machine: Machine, accelerator: str, kernel: Path, image: Path, folder: Path) -> list[str]:
    """The QEMU command. The disk `image` is not written to; `folder` has the initrd and gets `console` and `events`."""
    cpus = sum(len(node.cpus) for node in machine.nodes)
    return [
        needs.path("qemu-system-x86_64"),
        *("-accel", "tcg,thread=multi" if accelerator == "tcg" else accelerator, "-cpu", CPU[accelerator]),
        # A socket per CPU: whatever node a CPU is in, no two nodes share a socket.
        *("-smp", f"{cpus},sockets={cpus},cores=1,threads=1"),
        *("-m", f"{sum(node.memory for node in machine.nodes)}M"),
        *numa_arguments(machine),
        *("-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"),
        *("-serial", f"file:{folder / 'console'}", "-serial", f"file:{folder / 'events'}"),
        *("-drive", f"file={image},format=raw,if=virtio,snapshot=on"),
        *("-kernel", str(kernel), "-initrd", str(folder / INITRD), "-append", BOOT_ARGUMENTS),
    ]


def numa_arguments(machine: Machine) -> list[str]:
    arguments = []
    for number, node in enumerate(machine.nodes):
        cpus = "".join(f",cpus={cpu}" for cpu in sorted(node.cpus))
        memory = ""
        if node.memory:
            arguments += ["-object", f"memory-backend-ram,id=m{number},size={node.memory}M"]
            memory = f",memdev=m{number}"
        arguments += ["-numa", f"node,nodeid={number}{cpus}{memory}"]
    for src, row in enumerate(machine.distances):
        for dst, distance in enumerate(row):
            if src != dst:
                arguments += ["-numa", f"dist,src={src},dst={dst},val={distance}"]
    return arguments


def boot(command: list[str], folder: Path) -> Iterator[Event]:
    """Switch the machine on and yield what it tells until it switches itself off.

    Raises LostError when it stops to tell before that or QEMU fails.
    """
    events = folder / "events"
    events.write_bytes(b"")
    begun = time.monotonic()
    with (folder / "qemu").open("wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        with events.open("rb") as stream:
            for line in follow(stream, process):
                yield decode(line, time.monotonic() - begun)
        if process.returncode:
            raise LostError(f"QEMU ended with {process.returncode}: {tail(folder / 'qemu', 1)}")
    except TimeoutError:
        console = tail(folder / "console", CONSOLE_TAIL_LINES)
        raise LostError(f"the machine told nothing for too long; the end of its console:\n{console}") from None
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def follow(stream: IO[bytes], process: subprocess.Popen[bytes]) -> Iterator[bytes]:
    """Lines of a file that a process writes, until it has ended. Raises TimeoutError when none comes for too long."""
    deadline = time.monotonic() + BOOT_SECONDS
    line = b""
    while True:
        ended = process.poll() is not None
        while part := stream.readline():
            line += part
            if line.endswith(b"\n"):
                yield line
                line = b""
                deadline = time.monotonic() + SILENCE_SECONDS
        if ended:
            return
        if time.monotonic() > deadline:
            raise TimeoutError
        time.sleep(POLL_SECONDS)


def decode(line: bytes, seconds: float) -> Event:
    told = json.loads(line)
    text = gzip.decompress(base64.b64decode(told["data"])).decode(errors="replace")
    return Event(told["scenario"], told["run"], told["kind"], text, seconds)


def tail(file: Path, count: int) -> str:
    """The last lines of a file that are not empty."""
    lines = file.read_text(encoding="utf-8", errors="replace").splitlines() if file.exists() else []
    return "\n".join([line for line in lines if line.strip()][-count:])
