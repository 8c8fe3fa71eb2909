"""The guest's disk: an ext4 image with models and a large empty file, made without mounting."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Collection, Mapping
from pathlib import Path

from tools.fail import Fail
from tools.lab import needs

MIB = 1 << 20
IMAGE = "disk.img"
MOUNTED_AT = "/disk"

# A file of holes: on disk it is nothing, in the page cache it is as large as any node of any machine.
FILLER_BYTES = 1024 * MIB

# The file system's own needs beside the models' bytes.
OVERHEAD_BYTES = 48 * MIB


def path(name: str) -> str:
    """Where a file of the disk is in the guest, by the name it has in scenarios."""
    return f"{MOUNTED_AT}/{name}" if name == "filler" else f"{MOUNTED_AT}/{name}.gguf"


def build(models: Mapping[str, Path], image: Path, below: str = "", others: Collection[Path] = ()) -> None:
    """Write a raw image that holds models, by their names, and `others` below a folder at their paths.

    Raises Fail with mke2fs's words if that does not work.
    """
    content = image.with_name("disk")
    content.mkdir()
    for name, model in models.items():
        put(model, content / f"{name}.gguf")
    for one in others:
        put(one, content / below / one.relative_to("/"))
    with (content / "filler").open("wb") as filler:
        filler.truncate(FILLER_BYTES)
    size = sum(one.stat().st_size for one in (*models.values(), *others))
    with image.open("wb") as file:
        file.truncate(-(-size // MIB) * MIB + OVERHEAD_BYTES)
    command = [needs.path("mke2fs"), "-q", "-t", "ext4", "-m", "0", "-d", str(content), str(image)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    shutil.rmtree(content)
    if done.returncode:
        raise Fail(f"mke2fs: {(done.stderr.strip().splitlines() or ['no message'])[-1]}")


def put(file: Path, target: Path) -> None:
    """A second name for the file where the file system allows it, else a copy."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(file.resolve(), target)
    except OSError:
        shutil.copy(file, target)
