"""The guest's kernel: Debian's for cloud machines, taken from its package into the cache, not installed."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tools.console import say
from tools.fail import Fail
from tools.lab import needs
from tools.lock import locked
from tools.paths import cache_dir

METAPACKAGE = "linux-image-cloud-amd64"

# What a virtio disk needs, in the order they load. A kernel that has one built in has no file of it.
MODULES = ("virtio_ring", "virtio", "virtio_pci_modern_dev", "virtio_pci_legacy_dev", "virtio_pci", "virtio_blk")


@dataclass(frozen=True)
class Kernel:
    """The image to boot and the modules to load, in order."""

    image: Path
    modules: tuple[Path, ...]


def kernel() -> Kernel:
    """The newest kernel apt offers or, where it offers none, the newest in the cache. Raises Fail without either."""
    folder = cache_dir() / "lab" / "kernel"
    with locked(folder / ".lock", lambda: say("waiting for another run that fetches the kernel")):
        package = offered()
        if package:
            unpacked = folder / package
            if not unpacked.is_dir():
                download(package, unpacked)
        else:
            unpacked = newest(folder)
    return find(unpacked)


def offered() -> str | None:
    """The package that the metapackage depends on, such as linux-image-6.1.0-57-cloud-amd64."""
    done = subprocess.run(
        [needs.path("apt-cache"), "depends", METAPACKAGE], capture_output=True, text=True, check=False
    )
    found = re.findall(r"Depends: (linux-image-\S+)", done.stdout)
    return found[0] if found else None


def newest(folder: Path) -> Path:
    kept = sorted(
        (entry for entry in folder.glob("linux-image-*") if entry.is_dir()), key=lambda one: one.stat().st_mtime
    )
    if not kept:
        raise Fail(f"apt offers no {METAPACKAGE}; run apt-get update, on a Debian or with one among its sources")
    return max(kept, key=lambda entry: entry.stat().st_mtime)


def download(package: str, target: Path) -> None:
    """Fetch a package and unpack it as `target`, which appears whole or not at all."""
    say(f"fetching {package}")
    fresh = target.with_name(f"{target.name}.fresh")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    try:
        run([needs.path("apt-get"), "download", package], fresh)
        archive = next(fresh.glob("*.deb"))
        run([needs.path("dpkg"), "-x", archive.name, "."], fresh)
        archive.unlink()
        fresh.replace(target)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def run(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        reason = done.stderr.strip().splitlines() or [f"exit {done.returncode}"]
        raise Fail(f"{' '.join(command)}: {reason[-1]}")


def find(unpacked: Path) -> Kernel:
    image = next(unpacked.glob("boot/vmlinuz-*"), None)
    if image is None:
        raise Fail(f"{unpacked} holds no kernel; remove it to fetch it anew")
    found = (next(unpacked.rglob(f"{name}.ko*"), None) for name in MODULES)
    return Kernel(image, tuple(module for module in found if module))
